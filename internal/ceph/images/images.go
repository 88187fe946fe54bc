// Package images reads what RBD keeps about the images and groups of a pool: ids and
// names, who is in a group, and which images are mirrored.
//
// It reads the omap of the few objects in which librbd keeps this (the format is that
// of Ceph's class rbd, described in src/cls/rbd of Ceph, and has only been added to
// since it exists), instead of linking librbd: reading takes no lock, opens no image
// and leaves no watcher behind. It must not write any of them.
package images

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Objects and keys of the class rbd.
const (
	idObject        = "rbd_id."
	directory       = "rbd_directory"
	groupDirectory  = "rbd_group_directory"
	groupHeader     = "rbd_group_header."
	mirroring       = "rbd_mirroring"
	keyID           = "id_"
	keyName         = "name_"
	keyImage        = "image_"
	maxID           = 4096 // an id object holds one short string
	mirrorIsEnabled = 1    // cls::rbd::MIRROR_IMAGE_STATE_ENABLED
)

// Place is a pool, and the RADOS namespace in it, often empty.
type Place struct {
	Pool, Namespace string
}

// Reader reads from one cluster.
type Reader struct{ objects ceph.Objects }

// New makes a Reader. It keeps no state.
func New(objects ceph.Objects) Reader { return Reader{objects} }

func (p Place) object(name string) ceph.Object {
	return ceph.Object{Pool: p.Pool, Namespace: p.Namespace, Name: name}
}

// ID gives the id of an image by its name. ENOENT: no such pool or image.
func (r Reader) ID(ctx context.Context, at Place, image string) (string, error) {
	raw, err := r.objects.ReadObject(ctx, at.object(idObject+image), maxID)
	if err != nil {
		return "", fmt.Errorf("finding image %s/%s: %w", at.Pool, image, err)
	}
	id, _, err := text(raw)
	if err != nil || id == "" {
		return "", fmt.Errorf("finding image %s/%s: %w", at.Pool, image, errors.Join(errFormat, err))
	}
	return id, nil
}

// Names gives the names of all images by id. A pool without images has none; ENOENT:
// no such pool, or no image was ever made in it.
func (r Reader) Names(ctx context.Context, at Place) (map[string]string, error) {
	return r.list(ctx, at, directory)
}

// Groups gives the names of all groups by id. A pool without groups has none; ENOENT
// as for Names.
func (r Reader) Groups(ctx context.Context, at Place) (map[string]string, error) {
	return r.list(ctx, at, groupDirectory)
}

func (r Reader) list(ctx context.Context, at Place, object string) (map[string]string, error) {
	kv, err := r.objects.Omap(ctx, at.object(object))
	if err != nil {
		return nil, fmt.Errorf("reading %s of pool %s: %w", object, at.Pool, err)
	}
	names := map[string]string{}
	for key, value := range kv {
		id, ok := strings.CutPrefix(key, keyID)
		if !ok {
			continue // the same the other way round, and the directory's own state
		}
		name, _, err := text(value)
		if err != nil {
			return nil, fmt.Errorf("reading key %s of %s of pool %s: %w", key, object, at.Pool, err)
		}
		names[id] = name
	}
	return names, nil
}

// Member is an image in a group.
type Member struct {
	// Pool is the id of the image's pool, which need not be that of the group.
	Pool int64
	// ID is the image's id.
	ID string
}

// Members lists the images of a group by the group's id, ordered by pool and id.
// ENOENT: no such pool or group.
func (r Reader) Members(ctx context.Context, at Place, group string) ([]Member, error) {
	kv, err := r.objects.Omap(ctx, at.object(groupHeader+group))
	if err != nil {
		return nil, fmt.Errorf("reading group %s of pool %s: %w", group, at.Pool, err)
	}
	members := []Member{}
	for key := range kv {
		rest, ok := strings.CutPrefix(key, keyImage)
		if !ok {
			continue
		}
		pool, id, ok := strings.Cut(rest, "_")
		n, err := strconv.ParseInt(pool, 16, 64)
		if !ok || id == "" || err != nil {
			return nil, fmt.Errorf("reading group %s of pool %s: key %q: %w", group, at.Pool, key, errFormat)
		}
		members = append(members, Member{Pool: n, ID: id})
	}
	slices.SortFunc(members, func(a, b Member) int {
		if a.Pool != b.Pool {
			return int(a.Pool - b.Pool)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return members, nil
}

// Mirrored gives the ids of the images of a pool that are mirrored, and of those for
// which mirroring is being switched on or off, with false. A pool that is not mirrored
// has none; so has one that does not exist.
func (r Reader) Mirrored(ctx context.Context, at Place) (map[string]bool, error) {
	kv, err := r.objects.Omap(ctx, at.object(mirroring))
	if ceph.NotFound(err) {
		return map[string]bool{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which images of pool %s are mirrored: %w", at.Pool, err)
	}
	state := map[string]bool{}
	for key, value := range kv {
		id, ok := strings.CutPrefix(key, keyImage)
		if !ok {
			continue
		}
		enabled, err := mirrorState(value)
		if err != nil {
			return nil, fmt.Errorf("reading whether image %s of pool %s is mirrored: %w", id, at.Pool, err)
		}
		state[id] = enabled
	}
	return state, nil
}

var errFormat = errors.New("not in the format of RBD")

// text reads a string: its length in 4 bytes, little endian, and its bytes.
func text(raw []byte) (s string, rest []byte, err error) {
	if len(raw) < 4 {
		return "", nil, fmt.Errorf("%d bytes: %w", len(raw), errFormat)
	}
	n := binary.LittleEndian.Uint32(raw)
	if uint64(len(raw)-4) < uint64(n) {
		return "", nil, fmt.Errorf("a string of %d bytes in %d: %w", n, len(raw), errFormat)
	}
	return string(raw[4 : 4+n]), raw[4+n:], nil
}

// mirrorState reads the entry of a mirrored image: version and compatible version in
// a byte each, the length of the rest in 4, the global id, and the state in a byte.
// Later versions have more behind it.
func mirrorState(raw []byte) (enabled bool, err error) {
	const head = 6
	if len(raw) < head || raw[1] > 2 {
		return false, fmt.Errorf("%d bytes: %w", len(raw), errFormat)
	}
	_, rest, err := text(raw[head:])
	if err != nil {
		return false, err
	}
	if len(rest) == 0 {
		return false, fmt.Errorf("no state: %w", errFormat)
	}
	return rest[0] == mirrorIsEnabled, nil
}
