// Package sanitize removes what a deleted Ceph cluster has left on a host: the
// OSDs' data from disks, the mons' stores and the cluster's directories.
//
// It must not touch anything that is not proven to be the cluster's at that very
// moment: a disk by the fsid and uuid of its label while nobody else has it open, a
// volume by the tags that ceph-volume gave it, a mon's store by the monmap in it.
// What cannot be proven, or is in use, stays and is told. A host may be cleaned any
// number of times, and after a clean that was cut off at any point.
package sanitize

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// parallel is how many disks are overwritten at once: enough to keep a host's
// disks busy, few enough to leave its memory and bus to others.
const parallel = 8

// Looker lists the disks; it is internal/node/inspect's Node.
type Looker interface {
	Look(ctx context.Context) (inspect.Result, error)
}

// Host is the machine to clean.
type Host struct {
	// Root is where the host's dataDir is mounted.
	Root string
	// Dev is put before device paths; "" but for tests.
	Dev  string
	Node Looker
	Run  run.Runner
}

// Clean does what a request asks for. Everything that can be done is done: one disk
// that fails holds up no other. The error is about a request that makes no sense;
// all else is in the report.
func (h Host) Clean(ctx context.Context, req task.Request) (task.Report, error) {
	m, err := methodOf(req)
	if err != nil {
		return task.Report{}, err
	}
	if req.FSID == "" || req.Namespace == "" || !filepath.IsLocal(req.Namespace) || strings.ContainsRune(req.Namespace, '/') {
		return task.Report{}, fmt.Errorf("reading the request: fsid %q, namespace %q", req.FSID, req.Namespace)
	}
	items := h.disks(ctx, req, m)
	items = append(items, h.directories(ctx, req)...)
	return task.Report{Items: items}, nil
}

// part is a device or volume that holds a part of an OSD of the cluster.
type part struct {
	device.Found
	// problem says why it cannot be cleaned, "" for nothing.
	problem string
}

func (p part) item(o task.Outcome, format string, args ...any) task.Item {
	what := fmt.Sprintf("osd.%d", p.ID)
	if p.ID < 0 {
		what = "OSD " + p.UUID
	}
	if p.Role != device.RoleBlock {
		what = string(p.Role) + " of " + what
	}
	return task.Item{What: what, Where: p.Path, Outcome: o, Message: fmt.Sprintf(format, args...)}
}

// disks cleans all disks of the cluster.
func (h Host) disks(ctx context.Context, req task.Request, m method) []task.Item {
	seen, err := h.Node.Look(ctx)
	if err != nil {
		return []task.Item{{What: "disks", Outcome: task.Failed, Message: err.Error()}}
	}
	parts := choose(seen, req)
	items := make([]task.Item, len(parts))
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, p := range parts {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			items[i] = h.overwrite(ctx, req, p, m)
		})
	}
	wg.Wait()
	h.zap(ctx, req, parts, items)
	return append(items, missing(seen, req, parts)...)
}

// choose finds the parts of the cluster's OSDs. A label of a database names no
// cluster, but it has the uuid of its OSD.
func choose(seen inspect.Result, req task.Request) []part {
	ours, volumes := map[string]int{}, map[string]bool{}
	for _, o := range req.OSDs {
		ours[o.UUID] = o.ID
	}
	for _, f := range seen.Found {
		if f.FSID == req.FSID && f.UUID != "" {
			ours[f.UUID] = f.ID
			volumes[f.UUID] = volumes[f.UUID] || f.Mode == "lvm"
		}
	}
	var parts []part
	for _, f := range seen.Found {
		id, known := ours[f.UUID]
		raw := f.Mode == "raw"
		switch {
		case f.UUID == "" || !known, f.FSID != "" && f.FSID != req.FSID, f.FSID == "" && (!raw || f.Role == device.RoleBlock):
			continue // another cluster's, or nothing says whose
		case raw && volumes[f.UUID]:
			continue // the inside of an encrypted volume; the volume stands for it
		}
		if f.ID < 0 {
			f.ID = id
		}
		p := part{Found: f}
		if i := device.Find(seen.Devices, f.Path); raw && i >= 0 {
			if multipath(seen.Devices, seen.Devices[i]) {
				continue // one of several ways to a disk; the way that stands for all is listed too
			}
			if seen.Devices[i].Type == device.Crypt {
				p.problem = "lies in an encrypted mapping that ceph-volume has not made; close it and wipe the disk below by hand"
			}
		}
		parts = append(parts, p)
	}
	return parts
}

func multipath(devices []device.Device, d device.Device) bool {
	return slices.ContainsFunc(d.Children, func(child string) bool {
		i := slices.IndexFunc(devices, func(c device.Device) bool { return c.Name == child })
		return i >= 0 && devices[i].Type == device.Multipath
	})
}

// missing tells of OSDs that should be here and are not. If something could not be
// read, it may be there.
func missing(seen inspect.Result, req task.Request, parts []part) []task.Item {
	var unread []string
	for name, err := range seen.Unreadable {
		unread = append(unread, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(unread)
	var items []task.Item
	for _, o := range req.OSDs {
		if slices.ContainsFunc(parts, func(p part) bool { return p.UUID == o.UUID && p.Role == device.RoleBlock }) {
			continue
		}
		i := task.Item{What: fmt.Sprintf("osd.%d", o.ID), Outcome: task.Absent, Message: "no disk of this host carries uuid " + o.UUID}
		if len(unread) > 0 {
			i.Outcome = task.Failed
			i.Message += ", but not all could be read: " + strings.Join(unread, "; ")
		}
		items = append(items, i)
	}
	return items
}

// overwrite cleans one part; of a volume, what ceph-volume does not overwrite.
func (h Host) overwrite(ctx context.Context, req task.Request, p part, m method) task.Item {
	if p.problem != "" {
		return p.item(task.Failed, "%s", p.problem)
	}
	var err error
	if p.Mode == "lvm" {
		err = h.overwriteVolume(ctx, req, p, m)
	} else {
		err = h.overwriteDisk(ctx, req, p, m)
	}
	if err != nil {
		return p.item(task.Failed, "%v", err)
	}
	return p.item(task.Cleaned, "")
}

// overwriteDisk has the disk for itself, looks once more whose it is, and only then
// writes to it.
func (h Host) overwriteDisk(ctx context.Context, req task.Request, p part, m method) error {
	d, err := open(h.Dev + p.Path)
	if err != nil {
		return err
	}
	err = proven(d, req, p)
	if err == nil {
		err = d.wipe(ctx, p.UUID, m)
	}
	return errors.Join(err, d.close())
}

// proven reads the label of an open disk.
func proven(d disk, req task.Request, p part) error {
	l, err := label.Read(d.f)
	switch {
	case err != nil:
		return fmt.Errorf("making sure whose it is: %w", err)
	case l.UUID != p.UUID, l.Data() && l.FSID != req.FSID, l.Data() != (p.Role == device.RoleBlock):
		return fmt.Errorf("it holds something else by now: %s of OSD %s, cluster %s", l.Description, l.UUID, l.FSID)
	}
	return nil
}

// overwriteVolume makes sure that nobody uses a volume, and overwrites what `lvm
// zap` leaves: all of it, or the copies of the label.
func (h Host) overwriteVolume(ctx context.Context, req task.Request, p part, m method) error {
	if p.Encrypted {
		if err := h.closeMapping(ctx, p); err != nil {
			return err
		}
	}
	d, err := open(h.volumePath(p))
	if err != nil {
		return err
	}
	inner := p.UUID
	if p.Encrypted {
		inner = "" // its label cannot be read any more
	}
	// Whoever has a volume open keeps it from being removed, so what its name stands for
	// now it stands for until the end.
	err = h.tagged(ctx, req, p)
	switch {
	case err != nil:
	case m.complete || m.random || m.iterations > 1:
		err = d.wipe(ctx, inner, m)
	case inner != "":
		err = d.wipeCopies(ctx, inner, min(int64(edge), d.size), d.size)
	}
	return errors.Join(err, d.f.Close())
}

// tagged proves by the tags that it has now that a volume is still the part of an OSD that
// it was when all were listed.
func (h Host) tagged(ctx context.Context, req task.Request, p part) error {
	out, err := h.Run.Run(ctx, "lvs", volume.LVsArgs()...)
	if err != nil {
		return fmt.Errorf("making sure whose it is: %w", err)
	}
	lvs, err := volume.ParseLVs(out)
	if err != nil {
		return fmt.Errorf("making sure whose it is: %w", err)
	}
	for _, f := range volume.Found(lvs) {
		if f.VG == p.VG && f.LV == p.LV && f.LVUUID == p.LVUUID && f.UUID == p.UUID && f.FSID == req.FSID && f.Role == p.Role {
			return nil
		}
	}
	return fmt.Errorf("the volume %s/%s is not tagged as the %s of OSD %s of this cluster any more", p.VG, p.LV, p.Role, p.UUID)
}

// volumePath is the device of a volume. Links of LVM can be missing where no udev
// makes them; device mapper's own name is always there.
func (h Host) volumePath(p part) string {
	if _, err := os.Stat(h.Dev + p.Path); err == nil || p.VG == "" {
		return h.Dev + p.Path
	}
	esc := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return h.Dev + "/dev/mapper/" + esc(p.VG) + "-" + esc(p.LV)
}

// closeMapping closes the dm-crypt mapping over a volume, which has the volume's
// uuid for a name, unless somebody uses it.
func (h Host) closeMapping(ctx context.Context, p part) error {
	if p.LVUUID == "" {
		return errors.New("ceph-volume does not say the uuid of this encrypted volume")
	}
	path := h.Dev + "/dev/mapper/" + p.LVUUID
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for its open mapping: %w", err)
	}
	d, err := open(path)
	if err != nil {
		return fmt.Errorf("its open mapping %s: %w", p.LVUUID, err)
	}
	if err := d.f.Close(); err != nil {
		return fmt.Errorf("its open mapping %s: %w", p.LVUUID, err)
	}
	if _, err := h.Run.Run(ctx, "cryptsetup", "close", p.LVUUID); err != nil {
		return fmt.Errorf("closing its mapping: %w", err)
	}
	return nil
}

// zap has ceph-volume remove the volumes of all OSDs of which every part could be
// overwritten, one OSD after another since they can share a volume group, and then
// looks whether they are gone.
func (h Host) zap(ctx context.Context, req task.Request, parts []part, items []task.Item) {
	state := map[string]error{}
	for i, p := range parts {
		if p.Mode != "lvm" {
			continue
		}
		if state[p.UUID] == nil {
			state[p.UUID] = nil
		}
		if items[i].Outcome == task.Failed {
			state[p.UUID] = errors.New("another part of this OSD could not be cleaned")
		}
	}
	if len(state) == 0 {
		return
	}
	for _, uuid := range sorted(state) {
		if state[uuid] == nil {
			_, state[uuid] = h.Run.Run(ctx, "ceph-volume", "lvm", "zap", "--destroy", "--osd-fsid", uuid)
		}
	}
	after, err := h.Node.Look(ctx)
	for i, p := range parts {
		if p.Mode != "lvm" || items[i].Outcome == task.Failed {
			continue
		}
		switch {
		case state[p.UUID] != nil:
			items[i] = p.item(task.Failed, "%v", state[p.UUID])
		case err != nil:
			items[i] = p.item(task.Failed, "looking whether the volume is gone: %v", err)
		case slices.ContainsFunc(after.Found, func(f device.Found) bool { return f.UUID == p.UUID && f.FSID == req.FSID }):
			items[i] = p.item(task.Failed, "ceph-volume has reported success, but the OSD is still there")
		}
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
