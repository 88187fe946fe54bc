// Package inspect looks at the block devices of the node it runs on and returns
// them as values. It is all the reading that device choice and activation need.
//
// It never writes to a device, it never opens one of the types that can hang
// for ever (rbd, nbd, drbd), and a device that cannot be read in time is an
// entry with an error beside it, never "blank".
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// readTimeout bounds the reading of one label. A healthy disk answers in
// milliseconds; one that needs longer than this is not fit for an OSD.
const readTimeout = 10 * time.Second

// Node is the machine to look at. Root is "/" but for tests.
type Node struct {
	Root string
	Run  run.Runner
}

// Result is what was seen.
type Result struct {
	Devices []device.Device
	// Found are the parts of OSDs on the devices, raw ones from their labels, LVM
	// ones from their volumes' tags.
	Found []device.Found
	// Unreadable are devices whose label could not be read, by kernel name.
	Unreadable map[string]error
}

// Look lists the devices with what lies on them. Whether a device is blank takes
// another look, see Inventory.
func (n Node) Look(ctx context.Context) (Result, error) {
	devices, err := n.list(ctx)
	if err != nil {
		return Result{}, err
	}
	res := Result{Devices: devices, Unreadable: map[string]error{}}
	lvm := false
	for i := range res.Devices {
		d := &res.Devices[i]
		lvm = lvm || d.Type == device.LVM || d.FSType == "LVM2_member"
		if device.Hangs(d.Name) || !d.HasNode || d.Type == device.ROM || d.Type == device.LVM {
			continue
		}
		l, err := n.label(ctx, d.Path)
		switch {
		case errors.Is(err, label.ErrNone):
		case err != nil:
			res.Unreadable[d.Name] = err
		default:
			res.Found = append(res.Found, foundFrom(l, *d))
		}
	}
	if lvm {
		// What `ceph-volume lvm list` says is in the tags, and lvs needs a tenth of a
		// second for them, not several.
		out, err := n.Run.Run(ctx, "lvs", volume.LVsArgs()...)
		if err != nil {
			return Result{}, fmt.Errorf("listing OSDs on volumes: %w", err)
		}
		lvs, err := volume.ParseLVs(out)
		if err != nil {
			return Result{}, fmt.Errorf("listing OSDs on volumes: %w", err)
		}
		res.Found = append(res.Found, volume.Found(lvs)...)
	}
	res.Devices = device.Merge(res.Devices, res.Found)
	return res, nil
}

// foundFrom turns a label into a found OSD part. A label of a database names no
// OSD id and no cluster.
func foundFrom(l label.Label, d device.Device) device.Found {
	role := device.RoleBlock
	switch l.Description {
	case "bluefs db":
		role = device.RoleDB
	case "bluefs wal":
		role = device.RoleWAL
	}
	return device.Found{OSD: device.OSD{ID: l.ID, UUID: l.UUID, FSID: l.FSID, Role: role}, Path: d.Path, Mode: "raw", LabelSize: l.Size, DeviceSize: d.Size}
}

// list runs lsblk and adds what udev knows.
func (n Node) list(ctx context.Context) ([]device.Device, error) {
	out, err := n.Run.Run(ctx, "lsblk", "--json", "--bytes", "--all", "--output", device.LsblkColumns)
	if err != nil {
		return nil, fmt.Errorf("listing block devices: %w", err)
	}
	devices, err := device.ParseLsblk(out)
	if err != nil {
		return nil, err
	}
	for i := range devices {
		d := &devices[i]
		d.HasNode = n.hasNode(d)
		entry, err := os.ReadFile(filepath.Join(n.Root, "run/udev/data", "b"+d.MajMin))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading udev's data of %s: %w", d.Name, err)
		}
		device.ApplyUdev(d, entry)
	}
	return devices, nil
}

// hasNode reports whether the device node exists and is this very device: a
// stale node of another number must not stand for it. Where only the kernel
// name has a node (no device mapper links in the container), that one is used.
func (n Node) hasNode(d *device.Device) bool {
	for _, p := range slices.Compact([]string{d.Path, "/dev/" + d.Name}) {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(n.Root, p), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			continue
		}
		if fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)) == d.MajMin {
			d.Path = p
			return true
		}
	}
	return false
}

// same proves that the device that was opened is the one that was chosen: the kernel gives
// the name of a disk that was pulled to the next one.
func (n Node) same(f *os.File, d device.Device) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("looking at %s: %w", d.Path, err)
	}
	if number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)); st.Mode&unix.S_IFMT == unix.S_IFBLK && d.MajMin != "" && number != d.MajMin {
		return fmt.Errorf("%s is the device %s, it was %s when it was chosen: not the same disk", d.Path, number, d.MajMin)
	}
	entry, err := os.ReadFile(filepath.Join(n.Root, "run/udev/data", "b"+d.MajMin))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading udev's data of %s: %w", d.Path, err)
	}
	var now device.Device
	device.ApplyUdev(&now, entry)
	if now.Serial != "" && d.Serial != "" && now.Serial != d.Serial {
		return fmt.Errorf("%s has the serial %s, it had %s when it was chosen: not the same disk", d.Path, now.Serial, d.Serial)
	}
	return nil
}

// InTime gives what ask finds out about a device, and gives up on one that does not answer
// within the limit: the goroutine then stays behind with the kernel, and what it gets after
// all goes to late, unless that is nil. doing is for its own errors; those of ask stay as
// they are.
func InTime[T any](ctx context.Context, doing string, limit time.Duration, ask func() (T, error), late func(T)) (T, error) {
	type answer struct {
		got T
		err error
	}
	done, gone := make(chan answer), make(chan struct{})
	defer close(gone)
	go func() {
		got, err := ask()
		select {
		case done <- answer{got, err}:
		case <-gone:
			if err == nil && late != nil {
				late(got)
			}
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var none T
	select {
	case a := <-done:
		return a.got, a.err
	case <-timer.C:
		return none, fmt.Errorf("%s: no answer within %v", doing, limit)
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", doing, ctx.Err())
	}
}

// label reads a device's label.
func (n Node) label(ctx context.Context, path string) (label.Label, error) {
	return InTime(ctx, "reading "+path, readTimeout, func() (label.Label, error) {
		f, err := os.Open(filepath.Join(n.Root, path)) //nolint:gosec // the path is of a device that the kernel lists
		if err != nil {
			return label.Label{}, fmt.Errorf("opening %s: %w", path, err)
		}
		defer func() { _ = f.Close() }()
		return label.Read(f)
	}, nil)
}

// Hold proves that a device is the one that was chosen and has it open until release is
// called. For so long its name is nobody else's: the kernel gives name and number of a disk
// that was pulled to the next one only when nobody has it open any more. So what a program
// is told by name meanwhile is this device, or none.
func (n Node) Hold(ctx context.Context, d device.Device) (release func(), err error) {
	doing := "holding " + d.Path
	f, err := InTime(ctx, doing, readTimeout, func() (*os.File, error) {
		f, err := os.Open(filepath.Join(n.Root, d.Path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		if err := n.chosen(f, d); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		return f, nil
	}, func(f *os.File) { _ = f.Close() })
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// chosen proves that an open device is the one that was chosen, with the size that it had.
func (n Node) chosen(f *os.File, d device.Device) error {
	if err := n.same(f, d); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("measuring %s: %w", d.Path, err)
	}
	if uint64(size) != d.Size {
		return fmt.Errorf("%s has %d bytes, it had %d when it was chosen: not the same disk", d.Path, size, d.Size)
	}
	return nil
}

// Free is the confirming look right before something is written to a device:
// it still exists, nobody holds it, its size is what it was, and it carries no
// BlueStore label.
func (n Node) Free(ctx context.Context, d device.Device) error {
	f, err := os.OpenFile(filepath.Join(n.Root, d.Path), os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%s is held by somebody (mounted, mapped, or part of a volume group)", d.Path)
	}
	if err != nil {
		return fmt.Errorf("opening %s for writing: %w", d.Path, err)
	}
	defer func() { _ = f.Close() }()
	if err := n.chosen(f, d); err != nil {
		return err
	}
	switch l, err := n.label(ctx, d.Path); {
	case errors.Is(err, label.ErrNone):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("%s holds an OSD by now (id %d, uuid %s)", d.Path, l.ID, l.UUID)
	}
}
