// Package swap finds the disk that has taken the place of a destroyed OSD's disk.
//
// It is pure: devices and pending replacements in, an outcome out. It must not
// guess: a disk is the replacement only with proof, and what is ambiguous is a
// question to the user.
package swap

import (
	"slices"
	"strconv"
)

// Disk is what was recorded of an OSD's old disk.
type Disk struct {
	Serial     string `json:"serial,omitempty"`
	WWN        string `json:"wwn,omitempty"`
	ByPath     string `json:"byPath,omitempty"`
	ByID       string `json:"byID,omitempty"`
	Size       uint64 `json:"size,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
}

// Pending is an OSD that is destroyed and waits for another disk. OSDs that lay on
// one disk are recognised by the same Old, and get one disk together.
type Pending struct {
	OSD int `json:"osd"`
	// UUID is the old OSD's.
	UUID  string `json:"uuid"`
	Old   Disk   `json:"old,omitzero"`
	Class string `json:"class,omitempty"`
	// With is the device that the user has named (osd.rook.io/replace-with), or "".
	With string `json:"with,omitempty"`
	// DBLV says that the OSD has a database or WAL volume on another device.
	DBLV bool `json:"dbLV,omitempty"`
	// Before are the disks of the node when the OSD was destroyed, as
	// provision.Identities names those of a report: what tells a spare that was there
	// all along from a disk that came for this slot. Empty is "not known": then a disk
	// in another slot is never taken without being named.
	Before []string `json:"before,omitempty"`
	// Metadata says that Old is the disk of the OSD's database, not of its data, and that
	// only this one is replaced.
	Metadata bool `json:"metadata,omitempty"`
	// Keep is, with Metadata, the disk of the OSD's data: nothing else may use it, also
	// while it is blank between two attempts.
	Keep Disk `json:"keep,omitzero"`
}

// Match is a disk that is proven to be the replacement of an OSD's disk.
type Match struct {
	OSD int `json:"osd"`
	// Device is a stable path of the disk: by-id, by-path, or the plain path where
	// udev has made no link.
	Device string `json:"device"`
	Serial string `json:"serial,omitempty"`
	// Size in bytes.
	Size uint64 `json:"size,omitempty"`
	// Proof says for the user why it is the replacement.
	Proof string `json:"proof"`
	// Warnings are differences that do not speak against it: size, class.
	Warnings []string `json:"warnings,omitempty"`
}

// Outcome of a look at a node's devices. A pending OSD that is in none of the maps
// waits for its disk to be swapped.
type Outcome struct {
	Matches map[int]Match `json:"matches,omitempty"`
	// Reserved are device paths that nothing else may use, with the OSDs they are
	// kept for.
	Reserved map[string]string `json:"reserved,omitempty"`
	// Questions are for the user, by OSD.
	Questions map[int]string `json:"questions,omitempty"`
}

// Known is one device as a watch knows it: two devices that differ in any of this
// are two devices.
func Known(path, serial string, size uint64) string {
	return path + " " + serial + " " + strconv.FormatUint(size, 10)
}

// Identity names a disk wherever it is plugged in: by its serial or WWN, and where
// it has neither by its place and size.
func Identity(serial, wwn, path string, size uint64) string {
	switch {
	case serial != "":
		return "serial " + serial
	case wwn != "":
		return "wwn " + wwn
	}
	return "place " + Known(path, "", size)
}

// OldUUIDs are the uuids that must not be reported or started any more.
func OldUUIDs(pending []Pending) []string {
	var uuids []string
	for _, p := range pending {
		if p.UUID != "" && !slices.Contains(uuids, p.UUID) {
			uuids = append(uuids, p.UUID)
		}
	}
	return uuids
}
