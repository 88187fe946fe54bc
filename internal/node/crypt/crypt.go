// Package crypt finds and closes the dm-crypt mappings of an OSD's volumes.
//
// A mapping that is left open is how an encrypted OSD is lost for ever: ceph-volume
// then formats nothing, keeps the old key in use, and says that it succeeded. So what
// counts as closed is what a fresh look at /sys says, never what a command said.
package crypt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// Mapping is an open dm-crypt mapping.
type Mapping struct {
	// Name in /dev/mapper, Kernel name (dm-7).
	Name, Kernel string
	// Of is the volume below, vg/lv.
	Of string
	// Holders are the kernel names and mapper names of what lies on the mapping.
	Holders []string
}

// Host is the node. Root is "/" but for tests.
type Host struct {
	Root string
	Run  run.Runner
}

// dm is one device mapper device.
type dm struct {
	kernel, name, uuid string
	slaves, holders    []string
}

// Open lists the open mappings of volumes. A volume is recognised by its own uuid, and
// by its names where the uuid is not known; a mapping also by its name alone, since the
// disk below it may be gone. Whatever lies on a volume counts, but LVM's own: one that was
// made by hand has no uuid that says dm-crypt, and keeps luksFormat out all the same.
func (h Host) Open(lvs []request.LV) ([]Mapping, error) {
	all, err := h.list()
	if err != nil {
		return nil, err
	}
	var open []Mapping
	for _, d := range all {
		if strings.HasPrefix(d.uuid, "LVM-") {
			continue
		}
		for _, lv := range lvs {
			if !of(d, lv, all) {
				continue
			}
			m := Mapping{Name: d.name, Kernel: d.kernel, Of: lv.VG + "/" + lv.Name}
			for _, holder := range d.holders {
				i := slices.IndexFunc(all, func(o dm) bool { return o.kernel == holder })
				if i >= 0 {
					holder += " (" + all[i].name + ")"
				}
				m.Holders = append(m.Holders, holder)
			}
			open = append(open, m)
			break
		}
	}
	return open, nil
}

// of reports whether a mapping lies on a volume.
func of(d dm, lv request.LV, all []dm) bool {
	bare := strings.ReplaceAll(lv.UUID, "-", "")
	if lv.UUID != "" && (d.name == lv.UUID || strings.HasSuffix(d.uuid, "-"+lv.UUID)) {
		return true
	}
	for _, below := range all {
		if !slices.Contains(d.slaves, below.kernel) {
			continue
		}
		if bare != "" && strings.HasPrefix(below.uuid, "LVM-") && strings.HasSuffix(below.uuid, bare) {
			return true
		}
		if bare == "" && below.name == volume.Mangled(lv.VG, lv.Name) {
			return true
		}
	}
	return false
}

// list reads all device mapper devices from /sys. That there is no device mapper at
// all is an empty list; a device that cannot be read is an error, unless it has gone.
func (h Host) list() ([]dm, error) {
	dir := filepath.Join(h.Root, "sys/block")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the open mappings: %w", err)
	}
	var all []dm
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "dm-") {
			continue
		}
		d, err := read(filepath.Join(dir, e.Name()))
		if err != nil {
			if _, gone := os.Stat(filepath.Join(dir, e.Name())); errors.Is(gone, fs.ErrNotExist) {
				continue
			}
			return nil, fmt.Errorf("listing the open mappings: %w", err)
		}
		d.kernel = e.Name()
		all = append(all, d)
	}
	return all, nil
}

func read(dir string) (dm, error) {
	var d dm
	for file, into := range map[string]*string{"dm/name": &d.name, "dm/uuid": &d.uuid} {
		b, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a fixed file of a device that the kernel lists
		if err != nil {
			return dm{}, err
		}
		*into = strings.TrimSpace(string(b))
	}
	for sub, into := range map[string]*[]string{"slaves": &d.slaves, "holders": &d.holders} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return dm{}, err
		}
		for _, e := range entries {
			*into = append(*into, e.Name())
		}
	}
	return d, nil
}

// Close closes the mappings of the volumes and proves it by a fresh look. Closing what
// is closed is no error. It returns the names that it closed.
func (h Host) Close(ctx context.Context, lvs []request.LV) ([]string, error) {
	open, err := h.Open(lvs)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, m := range open {
		if len(m.Holders) > 0 {
			failures = append(failures, fmt.Errorf("%s is used by %s", m.Name, strings.Join(m.Holders, ", ")))
			continue
		}
		if _, err := h.Run.Run(ctx, "cryptsetup", "close", m.Name); err != nil {
			failures = append(failures, fmt.Errorf("%s, which a process or a mount on this node holds open: %w", m.Name, err))
		}
	}
	left, err := h.Open(lvs)
	if err != nil {
		return nil, errors.Join(append(failures, err)...)
	}
	if len(left) > 0 {
		var names []string
		for _, m := range left {
			names = append(names, m.Name+" of "+m.Of)
		}
		return nil, errors.Join(append([]error{fmt.Errorf("closing dm-crypt mappings: still open: %s", strings.Join(names, ", "))}, failures...)...)
	}
	var closed []string
	for _, m := range open {
		closed = append(closed, m.Name)
	}
	return closed, nil
}
