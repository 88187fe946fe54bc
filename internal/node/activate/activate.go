// Package activate gets an OSD's directory ready so that ceph-osd can start: it
// finds the disk that carries this OSD, under whatever name it has today, and
// writes the directory from the disk's own label.
//
// It must not start from a disk that is not proven to be this OSD's: the
// cluster's fsid, the OSD's id and its uuid all have to be on the disk.
package activate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/request"
)

// Request names the OSD.
type Request struct {
	ID   int
	UUID string
	FSID string
	// Mode is "raw" or "lvm".
	Mode string
	// Dir is the OSD's directory, /var/lib/ceph/osd/ceph-<id>.
	Dir string
	// UID and GID own what ceph-osd opens: Ceph's user in this image.
	UID, GID int
}

// Node lists the disks and the open dm-crypt mappings of volumes, and opens one for
// reading.
type Node interface {
	Look(ctx context.Context) (inspect.Result, error)
	Device(path string) (Device, error)
	Mappings
}

// Device is an open disk, volume or mapping.
type Device interface {
	io.ReaderAt
	io.Closer
}

// Mappings lists the open dm-crypt mappings of volumes.
type Mappings interface {
	Open(lvs []request.LV) ([]crypt.Mapping, error)
}

// Host is the real Node.
type Host struct {
	inspect.Node
	crypt.Host
}

// Device opens a device for reading.
func (Host) Device(path string) (Device, error) {
	return os.Open(path) //nolint:gosec // what a look has found, or a mapping made from it
}

// Runner runs programs; Feed gives one something to read, which is how a key reaches it.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
	Feed(ctx context.Context, in []byte, name string, args ...string) ([]byte, error)
}

// Run activates the OSD.
func Run(ctx context.Context, node Node, runner Runner, req Request) error {
	if req.UUID == "" || req.FSID == "" || req.ID < 0 {
		return fmt.Errorf("activating osd.%d: id, uuid and fsid must all be known", req.ID)
	}
	if err := os.MkdirAll(req.Dir, 0o750); err != nil {
		return fmt.Errorf("activating osd.%d: %w", req.ID, err)
	}
	seen, err := node.Look(ctx)
	if err != nil {
		return fmt.Errorf("activating osd.%d: %w", req.ID, err)
	}
	data, err := Find(seen, req)
	if err != nil {
		return fmt.Errorf("activating osd.%d: %w", req.ID, err)
	}
	if req.Mode == "lvm" {
		err = lvm(ctx, node, runner, req, seen, data)
	} else {
		err = raw(ctx, node, runner, req, data)
	}
	if err != nil {
		return fmt.Errorf("activating osd.%d: %w", req.ID, err)
	}
	return chown(req)
}

// Find returns the part of the listing that is this OSD's data. Another OSD with
// the same id (a replaced disk still plugged in) and one of another cluster are
// passed over, and named when nothing else is left.
func Find(seen inspect.Result, req Request) (device.Found, error) {
	var others []string
	for _, f := range seen.Found {
		if f.Role != device.RoleBlock || f.Mode != req.Mode {
			continue
		}
		if f.UUID == req.UUID && f.FSID == req.FSID && f.ID == req.ID {
			return f, nil
		}
		if f.ID == req.ID || f.UUID == req.UUID {
			others = append(others, fmt.Sprintf("%s holds osd.%d, uuid %s, cluster %s", f.Path, f.ID, f.UUID, f.FSID))
		}
	}
	for name, err := range seen.Unreadable {
		others = append(others, fmt.Sprintf("%s could not be read: %v", name, err))
	}
	msg := fmt.Sprintf("no disk of this node carries uuid %s of cluster %s", req.UUID, req.FSID)
	if len(others) > 0 {
		msg += "; " + strings.Join(others, "; ")
	}
	return device.Found{}, errors.New(msg)
}

// raw writes the directory from the label: no mon, no Python and no program of Ceph's is
// needed, so an OSD starts also while the mons are away.
func raw(ctx context.Context, node Node, runner Runner, req Request, data device.Found) error {
	if err := prime(node, req, map[device.Role]string{device.RoleBlock: data.Path}); err != nil {
		return err
	}
	if data.LabelSize > 0 && data.DeviceSize > data.LabelSize {
		// The disk has grown. Opening the store costs seconds, so this is not done
		// at every start.
		_, err := runner.Run(ctx, "ceph-bluestore-tool", "bluefs-bdev-expand", "--path", req.Dir)
		return err
	}
	return nil
}

// relink points link at target, replacing an older link and nothing else.
func relink(target, link string) error {
	if old, err := os.Readlink(link); err == nil && old == target {
		return nil
	}
	if st, err := os.Lstat(link); err == nil && st.Mode()&os.ModeSymlink == 0 {
		return fmt.Errorf("%s is not a link; it is left alone", link)
	}
	tmp := link + ".new"
	_ = os.Remove(tmp)
	if err := os.Symlink(target, tmp); err != nil {
		return fmt.Errorf("linking the block device: %w", err)
	}
	if err := os.Rename(tmp, link); err != nil {
		return fmt.Errorf("linking the block device: %w", err)
	}
	return nil
}

// chown gives the directory, and the devices that its links name, to Ceph's
// user.
func chown(req Request) error {
	entries, err := os.ReadDir(req.Dir)
	if err != nil {
		return fmt.Errorf("osd.%d: giving the directory to Ceph's user: %w", req.ID, err)
	}
	paths := []string{req.Dir}
	for _, e := range entries {
		p := filepath.Join(req.Dir, e.Name())
		if e.Type()&os.ModeSymlink == 0 {
			paths = append(paths, p)
			continue
		}
		if err := os.Lchown(p, req.UID, req.GID); err != nil {
			return fmt.Errorf("osd.%d: giving %s to Ceph's user: %w", req.ID, p, err)
		}
		// Only a block device is followed: a link to anything else was not made here.
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		if err := os.Chown(p, req.UID, req.GID); err != nil {
			return fmt.Errorf("osd.%d: giving %s to Ceph's user: %w", req.ID, p, err)
		}
	}
	return nil
}
