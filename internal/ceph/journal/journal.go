// Package journal reads the journal that Ceph CSI drivers keep of their volumes and
// volume groups in the omap of objects in each pool: by the unique part of a handle,
// what the image or the group is called.
//
// It only reads, and never lists a pool: a handle names its object. It knows nothing
// of handles beyond that, and nothing of RBD.
package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Names of objects and keys. They are the drivers' format on disk, the same in every
// release so far.
const (
	volumePrefix = "csi.volume."
	groupPrefix  = "csi.volume.group."

	keyImage     = "csi.imagename"
	keyImageID   = "csi.imageid"
	keyGroup     = "csi.groupname"
	ownKeyPrefix = "csi."
)

// ErrUnfinished says that a volume or group is reserved and not made yet: its entry
// is there and names nothing.
var ErrUnfinished = errors.New("the journal's entry names nothing yet")

// Place is where a journal is: a pool, and the RADOS namespace of the client profile,
// often empty.
type Place struct {
	Pool, Namespace string
}

// Reader reads journals of one cluster.
type Reader struct{ objects ceph.Objects }

// New makes a Reader. It keeps no state.
func New(objects ceph.Objects) Reader { return Reader{objects} }

// Volume is what the journal knows of a volume.
type Volume struct {
	// Image is the name of the RBD image, csi-vol-<uuid> unless a prefix was chosen.
	Image string
	// ImageID is RBD's id of the image; empty for volumes of old drivers.
	ImageID string
}

// Volume reads the entry of a volume. ENOENT: the pool or the entry does not exist.
func (r Reader) Volume(ctx context.Context, at Place, uuid string) (Volume, error) {
	kv, err := r.objects.Omap(ctx, ceph.Object{Pool: at.Pool, Namespace: at.Namespace, Name: volumePrefix + uuid})
	if err != nil {
		return Volume{}, fmt.Errorf("reading the journal of volume %s: %w", uuid, err)
	}
	v := Volume{Image: string(kv[keyImage]), ImageID: string(kv[keyImageID])}
	if v.Image == "" {
		return Volume{}, fmt.Errorf("reading the journal of volume %s in pool %s: %w", uuid, at.Pool, ErrUnfinished)
	}
	return v, nil
}

// Group is what the journal knows of a volume group.
type Group struct {
	// Name is the name of the RBD group, csi-vol-group-<uuid> unless a prefix was
	// chosen.
	Name string
	// Volumes are the handles of the members as the driver was given them, sorted. The
	// group itself is what counts: an entry can be left over, or missing, where a driver
	// was interrupted.
	Volumes []string
}

// Group reads the entry of a volume group. ENOENT: the pool or the entry does not
// exist.
func (r Reader) Group(ctx context.Context, at Place, uuid string) (Group, error) {
	kv, err := r.objects.Omap(ctx, ceph.Object{Pool: at.Pool, Namespace: at.Namespace, Name: groupPrefix + uuid})
	if err != nil {
		return Group{}, fmt.Errorf("reading the journal of volume group %s: %w", uuid, err)
	}
	g := Group{Name: string(kv[keyGroup])}
	if g.Name == "" {
		return Group{}, fmt.Errorf("reading the journal of volume group %s in pool %s: %w", uuid, at.Pool, ErrUnfinished)
	}
	for key := range kv {
		if !strings.HasPrefix(key, ownKeyPrefix) {
			g.Volumes = append(g.Volumes, key)
		}
	}
	slices.Sort(g.Volumes)
	return g, nil
}
