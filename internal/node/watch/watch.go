// Package watch waits until the disks of a node differ from what was reported of
// them, so that a swapped disk is noticed within seconds.
//
// It reads a few small files of /sys and /run/udev, when the kernel tells of a change
// and every few seconds in any case. It must not open a device, start a process or ask
// the API server: it runs for as long as a slot waits for its disk, which may be weeks.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/device"
)

// settle is how long after the kernel's word the look is taken: a shelf of disks comes one
// by one. That udev has written down a new disk's serial and slot is not waited for here:
// a disk that is new is a difference without them, and the look that follows from it starts
// a pod first.
const settle = 300 * time.Millisecond

// Host is the machine to look at. Root is "/" but for tests.
type Host struct{ Root string }

// disk is one disk as a look finds it.
type disk struct {
	serial string
	size   uint64
}

// Wait returns the first difference from known, which it puts into words, or "" when
// ctx ends. events tell that something may have changed (nil where the kernel does not
// tell), tick that it is time to look anyway.
func (h Host) Wait(ctx context.Context, known []string, events <-chan struct{}, tick <-chan time.Time) (string, error) {
	want, err := parse(known)
	if err != nil {
		return "", err
	}
	for {
		have, err := h.look()
		if err != nil {
			return "", err
		}
		if d := difference(want, have); d != "" {
			return d, nil
		}
		select {
		case <-ctx.Done():
			return "", nil
		case <-tick:
		case _, open := <-events:
			if !open {
				events = nil // the kernel's channel has ended; the clock goes on
				continue
			}
			if !pause(ctx, settle) {
				return "", nil
			}
			drain(events)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func drain(events <-chan struct{}) {
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		default:
			return
		}
	}
}

// parse reads swap.Known's lines: path, serial (may hold blanks or be empty), size.
func parse(known []string) (map[string]disk, error) {
	disks := map[string]disk{}
	for _, k := range known {
		path, rest, ok := strings.Cut(k, " ")
		i := strings.LastIndexByte(rest, ' ')
		if !ok || i < 0 {
			return nil, fmt.Errorf("reading what is known of the disks: %q is no path, serial and size", k)
		}
		size, err := strconv.ParseUint(rest[i+1:], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading what is known of the disks: %q: %w", k, err)
		}
		disks[path] = disk{serial: rest[:i], size: size}
	}
	return disks, nil
}

// difference names the first one by path, so that the same change is told the same way.
// A serial that only one side knows is no difference: lsblk and udev do not always
// agree on who knows it.
func difference(want, have map[string]disk) string {
	var first string
	note := func(path, text string) {
		if first == "" || path < first[:strings.IndexByte(first, ' ')] {
			first = path + " " + text
		}
	}
	for p, w := range want {
		switch h, ok := have[p]; {
		case !ok:
			note(p, fmt.Sprintf("(serial %s) is gone", w.serial))
		case h.size != w.size:
			note(p, fmt.Sprintf("has %d bytes, it had %d", h.size, w.size))
		case h.serial != "" && w.serial != "" && h.serial != w.serial:
			note(p, fmt.Sprintf("has serial %s, it had %s", h.serial, w.serial))
		}
	}
	for p, h := range have {
		if _, ok := want[p]; !ok {
			note(p, fmt.Sprintf("(serial %s) is new", h.serial))
		}
	}
	return first
}

// look reads the disks that are there now.
func (h Host) look() (map[string]disk, error) {
	dir := filepath.Join(h.Root, "sys/block")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking at the disks: %w", err)
	}
	disks := map[string]disk{}
	for _, e := range entries {
		if device.Unplugged(e.Name()) {
			continue
		}
		d, ok, err := h.disk(filepath.Join(dir, e.Name()), e.Name())
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", e.Name(), err)
		}
		if ok {
			disks["/dev/"+e.Name()] = d
		}
	}
	return disks, nil
}

// disk reads one; false for one without a size, without a device node of this very
// number, or just gone.
func (h Host) disk(dir, name string) (disk, bool, error) {
	text := map[string]string{}
	for _, f := range []string{"size", "dev"} {
		b, err := os.ReadFile(filepath.Join(dir, f)) //nolint:gosec // a fixed file of a device that the kernel lists
		if gone(err) {
			return disk{}, false, nil
		}
		if err != nil {
			return disk{}, false, err
		}
		text[f] = strings.TrimSpace(string(b))
	}
	sectors, err := strconv.ParseUint(text["size"], 10, 64)
	if err != nil {
		return disk{}, false, fmt.Errorf("its size: %w", err)
	}
	if sectors == 0 || !h.node("/dev/"+name, text["dev"]) {
		return disk{}, false, nil
	}
	serial, err := h.serial(dir, text["dev"])
	return disk{serial: serial, size: sectors * 512}, err == nil, err
}

// gone are the errors of a device that is being pulled.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// node reports whether the device node is this device: /sys lists what belongs to
// others too.
func (h Host) node(path, number string) bool {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(h.Root, path), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)) == number
}

// serial is udev's, else the kernel's, as the report has it.
func (h Host) serial(dir, number string) (string, error) {
	entry, err := os.ReadFile(filepath.Join(h.Root, "run/udev/data", "b"+number)) //nolint:gosec // udev's file of a device that the kernel lists
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading udev's data: %w", err)
	}
	var d device.Device
	device.ApplyUdev(&d, entry)
	if d.Serial != "" {
		return d.Serial, nil
	}
	for _, f := range []string{"device/serial", "serial"} {
		b, err := os.ReadFile(filepath.Join(dir, f)) //nolint:gosec // a fixed file of a device that the kernel lists
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !gone(err) {
			return "", fmt.Errorf("reading its serial: %w", err)
		}
	}
	return "", nil
}
