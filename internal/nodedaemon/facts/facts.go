// Package facts is what an image of Ceph says of itself beyond its version: the
// number of Ceph's user, and which of the optional programs are in it.
//
// castellan-node finds the facts in the image and the operator reads them; both use
// this package, so that they cannot drift. It is pure.
package facts

import (
	"encoding/json"
	"fmt"
)

// Facts of an image.
type Facts struct {
	// UID and GID of Ceph's user: 167 in the upstream images, another number in
	// distributions.
	UID int64 `json:"uid"`
	GID int64 `json:"gid"`
	// Exporter says that ceph-exporter is in the image.
	Exporter bool `json:"exporter"`
}

// String is the facts as they are stored and handed on.
func (f Facts) String() string {
	b, err := json.Marshal(f)
	if err != nil {
		// Numbers and a boolean always encode.
		panic("encoding the facts of an image: " + err.Error())
	}
	return string(b)
}

// Parse reads facts. A user without a number, or with root's, is an error: pods
// would run as root by it.
func Parse(s string) (Facts, error) {
	var f Facts
	if err := json.Unmarshal([]byte(s), &f); err != nil {
		return Facts{}, fmt.Errorf("reading the facts of an image: %w", err)
	}
	if f.UID <= 0 || f.GID <= 0 {
		return Facts{}, fmt.Errorf("reading the facts of an image: Ceph's user has uid %d and gid %d", f.UID, f.GID)
	}
	return f, nil
}
