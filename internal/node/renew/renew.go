// Package renew makes a destroyed OSD anew on another disk, under the same id and with
// its surviving database volume.
//
// A plain OSD on a whole disk is made by package rawosd, every other one by ceph-volume.
// Everything is checked before Ceph's id is claimed, since ceph-volume's rollback of a
// late failure removes the id from the CRUSH map and destroys every volume that is
// tagged with it. It must not write to a disk that is not blank or its own former
// attempt, must not touch another OSD's volume, and must not believe a command: what
// counts is what the disks and Ceph's map say afterwards. Run again after a crash at
// any point it finishes, or says what is left; it never makes a second OSD.
package renew

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// cleanupTimeout bounds what is put in order after a failure, also when the Job is
// being ended.
const cleanupTimeout = 2 * time.Minute

// Node is what a replacement does to a node, beside running programs.
type Node interface {
	Look(ctx context.Context) (inspect.Result, error)
	Inventory(ctx context.Context, path string) (device.Inventory, error)
	// Hold proves that a device is the one that was looked at, and keeps its name from
	// being another's until it is released.
	Hold(ctx context.Context, d device.Device) (release func(), err error)
	// Free proves that nobody holds a device and that it carries no label.
	Free(ctx context.Context, d device.Device) error
	// Probe reads a blank device at its head, middle and tail, and writes the same back.
	Probe(ctx context.Context, path string) error
	// Head is the first HeadSize bytes of a device.
	Head(ctx context.Context, path string) ([]byte, error)
	// Erase zeroes the places where BlueStore and LUKS keep what a device is, of a device
	// whose label has a uuid that is ours. A name can be another disk's by now, so that is
	// asked of the very device that is opened for writing.
	Erase(ctx context.Context, path string, ours func(uuid string) bool) error
	// Changed has the kernel tell udev that what lies on a device has changed.
	Changed(d device.Device) error
	// Renew makes a plain OSD of a blank disk under the id of a destroyed one.
	Renew(ctx context.Context, d device.Device, id int, uuid, class string) error
	// Fits proves that an encrypted OSD's key opens the volumes at paths; activate.ErrKey
	// says that it does not.
	Fits(ctx context.Context, data device.Found, paths ...string) error
	// Unlock opens the mapping of an encrypted OSD's data volume, where it is not open,
	// and gives its path. activate.ErrKey says that the OSD's key does not open it.
	Unlock(ctx context.Context, data device.Found) (string, error)
	Open(lvs []request.LV) ([]crypt.Mapping, error)
	Close(ctx context.Context, lvs []request.LV) ([]string, error)
}

// HeadSize is what is compared of volumes: BlueStore's label and LUKS' first header
// block lie in the first 4 KiB and change only when a volume is made anew.
const HeadSize = 4096

// Outcome is the answer and the OSDs that the node reports; OSDs only counts when the
// answer is Done.
type Outcome struct {
	request.Replaced
	OSDs []prepare.Result
}

// job is one run.
type job struct {
	node Node
	run  run.Runner
	req  request.Replace
	now  func() time.Time
	out  Outcome
	// held are the disks that are held, by path, with what releases each.
	held map[string]func()
}

// refusal is an error with its stable word.
type refusal struct {
	reason request.Reason
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(reason request.Reason, format string, args ...any) error {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

// Run carries out the request. It always has an answer; err repeats it as an error
// unless it is Done.
func Run(ctx context.Context, node Node, runner run.Runner, req request.Replace, now func() time.Time) (Outcome, error) {
	req = moved(req)
	j := &job{node: node, run: runner, req: req, now: now, held: map[string]func(){}}
	defer j.release()
	j.out.Replaced = request.Replaced{OSD: req.OSD, OldUUID: req.OldUUID, Device: req.Device, Serial: req.Serial, Slot: request.SlotUnknown, DB: req.DB, WAL: req.WAL, Seconds: map[string]float64{}}
	err := j.do(ctx)
	if err == nil {
		j.out.Result = request.Done
		return j.out, nil
	}
	if j.out.Result == "" {
		j.out.Result = request.Refused
	}
	var r *refusal
	if errors.As(err, &r) && j.out.Reason == "" {
		j.out.Reason = r.reason
	} else if j.out.Reason == "" {
		j.out.Reason = request.NodeUnreadable
	}
	j.out.Message = err.Error()
	return j.out, fmt.Errorf("replacing osd.%d: %s: %w", req.OSD, j.out.Result, err)
}

// timed runs a step and notes how long it took.
func (j *job) timed(name string, step func() error) error {
	began := j.now()
	err := step()
	j.out.Seconds[name] += j.now().Sub(began).Seconds()
	return err
}

func (j *job) do(ctx context.Context) error {
	if j.req.OldUUID == "" || j.req.FSID == "" || j.req.OSD < 0 || j.req.Mode != "raw" && j.req.Mode != "lvm" {
		return refuse(request.NodeUnreadable, "the request is not whole: id %d, old uuid %q, cluster %q, mode %q", j.req.OSD, j.req.OldUUID, j.req.FSID, j.req.Mode)
	}
	var f facts
	if err := j.timed("look", func() (err error) { f, err = j.gather(ctx); return err }); err != nil {
		return err
	}
	j.out.Slot, j.out.SlotUUID = f.slot, f.slotUUID
	made, err := j.made(ctx, f)
	if err != nil {
		return err
	}
	if made != nil {
		ours, err := j.belong(ctx, f, *made)
		if err != nil {
			return err
		}
		if ours {
			return j.finish(f, *made)
		}
	}
	p, err := decide(j.req, f)
	if err != nil {
		return err
	}
	j.out.Serial = p.disk.Serial
	j.out.Warnings = append(j.out.Warnings, p.warnings...)
	if err := j.hold(ctx, p); err != nil {
		return err
	}
	if err := j.timed("check", func() error { return j.ready(ctx, &p, f.lvs) }); err != nil {
		return err
	}
	before, err := j.snapshot(ctx, p, f.lvs)
	if err != nil {
		return err
	}
	// From here on something changes.
	if err := j.timed("prepare", func() error { return j.prepare(ctx, p) }); err != nil {
		return j.failed(ctx, p, before, err)
	}
	return j.proven(ctx, p, before)
}

// proven looks at what the commands have left.
func (j *job) proven(ctx context.Context, p plan, before heads) error {
	var f facts
	err := j.timed("look again", func() (err error) { f, err = j.gather(ctx); return err })
	if err != nil {
		j.out.Result = request.Failed
		return err
	}
	j.out.Slot, j.out.SlotUUID = f.slot, f.slotUUID
	j.out.Siblings = j.compare(ctx, p, before, f.lvs)
	made, err := j.made(ctx, f)
	if err == nil && made == nil {
		err = refuse(request.NotProven, "preparing succeeded, and no disk carries a new osd.%d", j.req.OSD)
	}
	if err == nil {
		err = j.fresh(ctx, p, before, f, *made)
	}
	if err == nil {
		err = changed(j.out.Siblings)
	}
	if err != nil {
		j.out.Result = request.Failed
		return err
	}
	return j.finish(f, *made)
}

// finish fills in the answer from what was found.
func (j *job) finish(f facts, made device.Found) error {
	j.out.UUID = made.UUID
	for _, part := range []struct {
		role device.Role
		into **request.LV
	}{{device.RoleDB, &j.out.DB}, {device.RoleWAL, &j.out.WAL}} {
		for _, l := range f.lvs {
			if l.OSDUUID() == made.UUID && l.Tags["ceph.type"] == string(part.role) {
				named := l.Named()
				*part.into = &named
			}
		}
	}
	pending := append([]swap.Pending{{OSD: j.req.OSD, UUID: j.req.OldUUID}}, j.req.Pending...)
	j.out.OSDs, _ = provision.Living(f.seen, j.req.FSID, pending)
	return nil
}

// failed puts in order what a failed preparation has left and says what that is.
func (j *job) failed(ctx context.Context, p plan, before heads, cause error) error {
	j.out.Result, j.out.Reason = request.Failed, request.PrepareFailed
	var r *refusal
	if errors.As(cause, &r) {
		j.out.Reason = r.reason
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	errs := []error{cause}
	slot, slotUUID, _, err := j.slot(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	j.out.Slot, j.out.SlotUUID = slot, slotUUID
	lvs, vgs, err := j.volumes(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, j.restore(ctx, p, lvs, vgs), j.clearDisk(ctx, p, lvs, vgs))
	j.announce(p)
	if lvs, _, err = j.volumes(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	j.out.Siblings = j.compare(ctx, p, before, lvs)
	errs = append(errs, changed(j.out.Siblings))
	if slot == request.SlotDestroyed && len(j.out.Remade) == 0 && errors.Join(errs[1:]...) == nil {
		// Nothing of the OSD was touched: the slot is as it was.
		j.out.Result = request.Refused
	}
	return errors.Join(errs...)
}

// changed is an error that names the siblings' volumes that are not as they were.
func changed(siblings []request.SiblingLV) error {
	var errs []error
	for _, s := range siblings {
		if s.Changed != "" {
			errs = append(errs, refuse(request.SiblingChanged, "%s/%s of osd.%d: %s", s.VG, s.LV, s.OSD, s.Changed))
		}
	}
	return errors.Join(errs...)
}

// parts are the database and WAL of the request.
func (j *job) parts() []request.LV {
	var parts []request.LV
	for _, p := range []*request.LV{j.req.DB, j.req.WAL} {
		if p != nil {
			parts = append(parts, *p)
		}
	}
	return parts
}

// named are the database and WAL as they are recorded, and as the volumes that have their
// names now: one that was made again has a uuid of its own, and a mapping on it is named
// by that.
func (j *job) named(lvs []volume.LV) []request.LV {
	all := j.parts()
	for _, want := range j.parts() {
		if l := volume.FindLV(lvs, want.VG, want.Name); l != nil && l.UUID != want.UUID {
			all = append(all, l.Named())
		}
	}
	return all
}
