package renew

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/activate"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// bootstrapRing is where the pod mounts the key that may make OSDs, and no more.
const bootstrapRing = "/var/lib/ceph/bootstrap-osd/ceph.keyring"

// zeroUUID is what Ceph's map has for a destroyed OSD.
const zeroUUID = "00000000-0000-0000-0000-000000000000"

// luks is the magic of a LUKS header, version 1 and 2.
const luks = "LUKS\xba\xbe"

// gather looks at everything.
func (j *job) gather(ctx context.Context) (facts, error) {
	var f facts
	var err error
	if f.slot, f.slotUUID, f.live, err = j.slot(ctx); err != nil {
		return f, err
	}
	if f.seen, err = j.node.Look(ctx); err != nil {
		return f, fmt.Errorf("looking at the disks: %w", err)
	}
	f.lvs, f.vgs, err = j.volumes(ctx)
	return f, err
}

// slot asks Ceph's map about the id.
func (j *job) slot(ctx context.Context) (request.Slot, string, map[string]bool, error) {
	out, err := j.run.Run(ctx, "ceph", "--name", "client.bootstrap-osd", "--keyring", bootstrapRing, "--connect-timeout", "60", "osd", "dump", "--format", "json")
	if err != nil {
		return request.SlotUnknown, "", nil, fmt.Errorf("asking Ceph about osd.%d: %w", j.req.OSD, err)
	}
	return parseSlot(out, j.req.OSD)
}

func parseSlot(dump []byte, id int) (request.Slot, string, map[string]bool, error) {
	var doc struct {
		OSDs []struct {
			OSD   *int     `json:"osd"`
			UUID  string   `json:"uuid"`
			State []string `json:"state"`
		} `json:"osds"`
	}
	if err := json.Unmarshal(dump, &doc); err != nil {
		return request.SlotUnknown, "", nil, fmt.Errorf("reading `ceph osd dump`: %w", err)
	}
	slot, uuid, live := request.SlotGone, "", map[string]bool{}
	for _, o := range doc.OSDs {
		if o.OSD == nil {
			return request.SlotUnknown, "", nil, errors.New("reading `ceph osd dump`: an OSD has no id")
		}
		if o.UUID != zeroUUID && o.UUID != "" {
			live[o.UUID] = true
		}
		if *o.OSD != id {
			continue
		}
		uuid = o.UUID
		switch {
		case slices.Contains(o.State, "destroyed"):
			slot, uuid = request.SlotDestroyed, ""
		case slices.Contains(o.State, "new"):
			slot = request.SlotNew
		default:
			slot = request.SlotUsed
		}
	}
	return slot, uuid, live, nil
}

// volumes lists volumes and groups; none for raw OSDs, whose image may have no LVM.
func (j *job) volumes(ctx context.Context) ([]volume.LV, []volume.VG, error) {
	if j.req.Mode != "lvm" {
		return nil, nil, nil
	}
	out, err := j.run.Run(ctx, "lvs", volume.LVsArgs()...)
	if err != nil {
		return nil, nil, fmt.Errorf("listing volumes: %w", err)
	}
	lvs, err := volume.ParseLVs(out)
	if err != nil {
		return nil, nil, err
	}
	if out, err = j.run.Run(ctx, "vgs", volume.VGsArgs()...); err != nil {
		return nil, nil, fmt.Errorf("listing volume groups: %w", err)
	}
	vgs, err := volume.ParseVGs(out)
	return lvs, vgs, err
}

// made is the new OSD, if the disks and Ceph's map agree that it is there and whole;
// nil if it has to be made. An encrypted one is also found through its open mapping, as
// if it were a plain OSD there: that is not it.
func (j *job) made(ctx context.Context, f facts) (*device.Found, error) {
	if f.slotUUID == "" || f.slotUUID == j.req.OldUUID {
		return nil, nil
	}
	for _, o := range f.seen.Found {
		if o.Mode != j.req.Mode || o.Role != device.RoleBlock || o.ID != j.req.OSD || o.FSID != j.req.FSID || o.UUID != f.slotUUID {
			continue
		}
		whole, err := j.whole(ctx, o)
		if err != nil {
			return nil, err
		}
		if whole {
			return &o, nil
		}
	}
	return nil, nil
}

// whole reports whether mkfs of an OSD has finished. An encrypted one whose mapping is
// not open is opened: one whose daemon could not be started is not whole.
func (j *job) whole(ctx context.Context, o device.Found) (bool, error) {
	path := o.Path
	if o.VG != "" {
		if err := j.activate(ctx, o.VG); err != nil {
			return false, err
		}
	}
	if o.Encrypted {
		head, err := j.node.Head(ctx, path)
		if err != nil {
			return false, fmt.Errorf("reading the header of the new osd.%d: %w", j.req.OSD, err)
		}
		if !bytes.HasPrefix(head, []byte(luks)) {
			return false, nil // it was tagged, and not encrypted yet
		}
		path, err = j.node.Unlock(ctx, o)
		if errors.Is(err, activate.ErrKey) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	head, err := j.node.Head(ctx, path)
	if err != nil {
		return false, fmt.Errorf("reading the label of the new osd.%d: %w", j.req.OSD, err)
	}
	l, err := label.Parse(head)
	if errors.Is(err, label.ErrNone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return l.Ready && l.UUID == o.UUID && l.ID == j.req.OSD, nil
}

// belong reports whether the database and WAL are those of an OSD that an earlier run has
// made: that run may have ended before it proved so, or because it found the opposite.
// Nothing is known here of what they were before, so an encrypted one has to open with
// the OSD's key.
func (j *job) belong(ctx context.Context, f facts, made device.Found) (bool, error) {
	if len(j.parts()) == 0 {
		return true, nil
	}
	paths := []string{made.Path}
	for _, want := range j.parts() {
		lv := volume.FindLV(f.lvs, want.VG, want.Name)
		if lv == nil || lv.OSDUUID() != made.UUID {
			return false, nil
		}
		if err := j.activate(ctx, want.VG); err != nil {
			return false, err
		}
		head, err := j.node.Head(ctx, lv.Path)
		if err != nil {
			return false, fmt.Errorf("reading %s: %w", lv.Full(), err)
		}
		if j.req.Encrypted {
			if !bytes.HasPrefix(head, []byte(luks)) {
				return false, nil
			}
			paths = append(paths, lv.Path)
			continue
		}
		l, err := label.Parse(head)
		if errors.Is(err, label.ErrNone) || err == nil && l.UUID != made.UUID {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading %s: %w", lv.Full(), err)
		}
	}
	if !j.req.Encrypted {
		return true, nil
	}
	err := j.node.Fits(ctx, made, paths...)
	if errors.Is(err, activate.ErrKey) {
		return false, nil
	}
	return err == nil, err
}

// ready does what the checks leave to do before the claim: it closes mappings, clears
// an earlier attempt away, makes missing volumes again and tries the disk.
func (j *job) ready(ctx context.Context, p *plan, seen []volume.LV) error {
	lvs := j.named(seen)
	groups := map[string]bool{}
	for _, l := range j.parts() {
		groups[l.VG] = p.dbDisk == nil || l.VG != p.dbVG
	}
	for _, vg := range slices.Sorted(maps.Keys(groups)) {
		if groups[vg] {
			if err := j.activate(ctx, vg); err != nil {
				return err
			}
		}
	}
	var gone []volume.LV
	for _, l := range []*volume.LV{p.stale, p.old} {
		if l != nil {
			gone, lvs = append(gone, *l), append(lvs, l.Named())
		}
	}
	if err := j.shut(ctx, lvs); err != nil {
		return err
	}
	if p.dbDisk != nil {
		if err := j.try(ctx, *p.dbDisk); err != nil {
			return err
		}
		if err := j.group(ctx, p.dbVG, *p.dbDisk); err != nil {
			return err
		}
	}
	for _, l := range gone {
		if err := j.lvm(ctx, "lvremove", "--yes", l.Full()); err != nil {
			return err
		}
	}
	if p.staleRaw {
		if err := j.node.Erase(ctx, p.disk.Path, j.attempt); err != nil {
			return refuse(request.DiskBroken, "clearing an earlier attempt from %s: %w", j.req.Device, err)
		}
	}
	if !p.haveVG {
		if err := j.try(ctx, p.disk); err != nil {
			return err
		}
	}
	for _, lv := range p.remake {
		if err := j.remake(ctx, lv); err != nil {
			return err
		}
	}
	return nil
}

// try proves that the disk is free, blank in ceph-volume's eyes too, and works.
func (j *job) try(ctx context.Context, d device.Device) error {
	if err := j.node.Free(ctx, d); err != nil {
		return refuse(request.DiskInUse, "%w", err)
	}
	inv, err := j.node.Inventory(ctx, d.Path)
	if err != nil {
		return err
	}
	if !inv.Available {
		return refuse(request.DiskInUse, "%s is not blank: %s", d.Path, strings.Join(inv.Rejected, "; "))
	}
	if err := j.node.Probe(ctx, d.Path); err != nil {
		return refuse(request.DiskBroken, "trying %s: %w", d.Path, err)
	}
	return nil
}

// shut closes the mappings on volumes; it is done when a fresh look finds none.
func (j *job) shut(ctx context.Context, lvs []request.LV) error {
	if len(lvs) == 0 {
		return nil
	}
	if _, err := j.node.Close(ctx, lvs); err != nil {
		return refuse(request.MappingOpen, "%w", err)
	}
	return nil
}

// activate makes a group's volumes devices: after a restart nobody may have done so.
func (j *job) activate(ctx context.Context, vg string) error {
	if err := j.lvm(ctx, "vgchange", "--activate", "y", vg); err != nil {
		return fmt.Errorf("activating the volume group %s: %w", vg, err)
	}
	return nil
}

// lvm runs one of LVM's programs.
func (j *job) lvm(ctx context.Context, name string, args ...string) error {
	_, err := j.run.Run(ctx, name, args...)
	return err
}

// remake makes a database volume again where it was, with the size that it had.
func (j *job) remake(ctx context.Context, lv request.LV) error {
	err := j.lvm(ctx, "lvcreate", "--yes", "--wipesignatures", "y", "--size", strconv.FormatUint(lv.Size, 10)+"b", "--name", lv.Name, "--addtag", volume.RemadeTag+"="+j.req.OldUUID, lv.VG)
	if err != nil {
		return fmt.Errorf("making %s/%s again: %w", lv.VG, lv.Name, err)
	}
	j.out.Remade = append(j.out.Remade, lv.VG+"/"+lv.Name)
	return nil
}

// prepare makes the data volume and has ceph-volume make the OSD. A plain OSD on a whole
// disk takes no ceph-volume: that is five Python processes less, and when it fails, the
// id stays in Ceph's maps with its weight and place.
func (j *job) prepare(ctx context.Context, p plan) error {
	if j.bare() {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
		return j.node.Renew(ctx, p.disk, j.req.OSD, volume.AttemptUUID(random, j.req.FSID, j.req.OldUUID), j.req.DeviceClass)
	}
	args := []string{"raw", "prepare", "--bluestore", "--osd-id", strconv.Itoa(j.req.OSD), "--data", p.disk.Path}
	if j.req.Mode == "lvm" {
		if err := j.dataVolume(ctx, p); err != nil {
			return err
		}
		args = []string{"lvm", "prepare", "--bluestore", "--no-systemd", "--osd-id", strconv.Itoa(j.req.OSD), "--data", p.vg + "/" + p.lv}
	}
	if j.req.Encrypted {
		args = append(args, "--dmcrypt")
	}
	if j.req.DB != nil {
		args = append(args, "--block.db", j.req.DB.VG+"/"+j.req.DB.Name)
	}
	if j.req.WAL != nil {
		args = append(args, "--block.wal", j.req.WAL.VG+"/"+j.req.WAL.Name)
	}
	if j.req.DeviceClass != "" {
		args = append(args, "--crush-device-class", j.req.DeviceClass)
	}
	// The last look of all: with a mapping open, ceph-volume would keep the old key and
	// say that it succeeded.
	lvs, _, err := j.volumes(ctx)
	if err != nil {
		return err
	}
	open, err := j.node.Open(j.named(lvs))
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return refuse(request.MappingOpen, "the mapping %s of %s has been opened meanwhile", open[0].Name, open[0].Of)
	}
	_, err = j.run.Run(ctx, "ceph-volume", args...)
	return err
}

// dataVolume makes the group and the volume. They are made here and not by ceph-volume
// so that a disk that takes no volume fails before the claim, and so that what is left
// after a crash can be told by its names.
func (j *job) dataVolume(ctx context.Context, p plan) error {
	if !p.haveVG {
		if err := j.group(ctx, p.vg, p.disk); err != nil {
			return err
		}
	}
	how, much := "--extents", "100%FREE"
	switch {
	case p.size > 0:
		how, much = "--size", strconv.FormatUint(p.size, 10)+"b"
	case p.slots > 1:
		much = strconv.Itoa(100/p.slots) + "%VG"
	}
	if err := j.lvm(ctx, "lvcreate", "--yes", "--wipesignatures", "y", how, much, "--name", p.lv, p.vg); err != nil {
		return fmt.Errorf("making a volume on %s: %w", j.req.Device, err)
	}
	return nil
}

// restore makes those database volumes again that a rollback has removed.
func (j *job) restore(ctx context.Context, p plan, lvs []volume.LV, vgs []volume.VG) error {
	var errs []error
	var regrouped []string
	for _, want := range j.parts() {
		if volume.FindLV(lvs, want.VG, want.Name) != nil {
			continue
		}
		if volume.FindVG(vgs, want.VG) == nil && !slices.Contains(regrouped, want.VG) {
			regrouped = append(regrouped, want.VG)
			if err := j.regroup(ctx, want.VG, p.below[want.VG]); err != nil {
				errs = append(errs, fmt.Errorf("ceph-volume's rollback has removed %s/%s and its whole volume group, and it cannot be made again: %w", want.VG, want.Name, err))
				continue
			}
		}
		errs = append(errs, j.remake(ctx, want))
	}
	return errors.Join(errs...)
}

// regroup makes a volume group again on the disks that it was on: ceph-volume's
// rollback removes one that has no other volume. The disks must be blank now.
func (j *job) regroup(ctx context.Context, vg string, disks []device.Device) error {
	if len(disks) == 0 {
		return errors.New("which disks it was on is not known")
	}
	for _, d := range disks {
		if err := j.try(ctx, d); err != nil {
			return err
		}
	}
	return j.group(ctx, vg, disks...)
}

// group makes a volume group on disks that are held. LVM takes no open file, only names: each
// is asked once more, right before, whether it is free and the disk that was chosen.
func (j *job) group(ctx context.Context, vg string, disks ...device.Device) error {
	args := []string{"--yes", vg}
	for _, d := range disks {
		if err := j.own(ctx, d); err != nil {
			return err
		}
		args = append(args, d.Path)
	}
	if err := j.lvm(ctx, "vgcreate", args...); err != nil {
		return fmt.Errorf("making a volume group on %s: %w", strings.Join(args[2:], ", "), err)
	}
	return nil
}

// own proves that a disk is held by this run, free, and still the one that was chosen.
func (j *job) own(ctx context.Context, d device.Device) error {
	if j.held[d.Path] == nil {
		return fmt.Errorf("%s is not held: its name may be another disk's", d.Path)
	}
	if err := j.node.Free(ctx, d); err != nil {
		return refuse(request.DiskInUse, "%w", err)
	}
	return nil
}

// hold keeps all disks that are written to by name from giving their names away, until the
// end of the run.
func (j *job) hold(ctx context.Context, p plan) error {
	for _, d := range p.disks() {
		if j.held[d.Path] != nil {
			continue
		}
		release, err := j.node.Hold(ctx, d)
		if err != nil {
			return err // the next run looks again, and says what is wrong
		}
		j.held[d.Path] = release
	}
	return nil
}

// disks are all disks that are written to by name, some of them more than once.
func (p plan) disks() []device.Device {
	disks := []device.Device{p.disk}
	if p.dbDisk != nil {
		disks = append(disks, *p.dbDisk)
	}
	for _, vg := range slices.Sorted(maps.Keys(p.below)) {
		disks = append(disks, p.below[vg]...)
	}
	return disks
}

// announce has udev look at the disks again after a failure. It does not watch a disk while it
// looks at it, so what is removed in that moment stays in its data, and the disk would be
// refused for a signature that it has no more. A disk that is gone has no data.
func (j *job) announce(p plan) {
	for _, d := range p.disks() {
		if err := j.node.Changed(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.out.Warnings = append(j.out.Warnings, err.Error())
		}
	}
}

// release ends hold.
func (j *job) release() {
	for _, r := range j.held {
		r()
	}
}

// attempt reports whether a uuid is of an attempt to make this OSD anew.
func (j *job) attempt(uuid string) bool {
	return volume.IsAttempt(uuid, j.req.FSID, j.req.OldUUID)
}

// bare reports whether the OSD is a plain one on a whole disk.
func (j *job) bare() bool {
	return j.req.Mode == "raw" && !j.req.Encrypted && len(j.parts()) == 0
}

// clearDisk takes the data volume and its group off the disk again, if nothing of Ceph
// is on them, and what this attempt has written of a plain OSD: then the disk is as
// blank as it came.
func (j *job) clearDisk(ctx context.Context, p plan, lvs []volume.LV, vgs []volume.VG) error {
	if j.bare() {
		head, err := j.node.Head(ctx, p.disk.Path)
		if err != nil {
			return fmt.Errorf("reading what the attempt has left on %s: %w", p.disk.Path, err)
		}
		if l, err := label.Parse(head); err != nil || !j.attempt(l.UUID) {
			return nil
		}
		return j.node.Erase(ctx, p.disk.Path, j.attempt)
	}
	if p.vg == "" || volume.FindVG(vgs, p.vg) == nil {
		return nil
	}
	others := false
	for _, l := range lvs {
		if l.VG != p.vg {
			continue
		}
		if l.Name != p.lv || l.OSDUUID() != "" {
			others = true
			continue
		}
		if err := j.lvm(ctx, "lvremove", "--yes", l.Full()); err != nil {
			return err
		}
	}
	if others {
		return nil
	}
	if err := j.lvm(ctx, "vgremove", "--yes", p.vg); err != nil {
		return err
	}
	if err := j.own(ctx, p.disk); err != nil {
		return err
	}
	return j.lvm(ctx, "pvremove", "--yes", p.disk.Path)
}

// heads are the heads of volumes before anything was done, by vg/lv.
type heads struct {
	siblings map[string]sibling
	// own are the heads of our database and WAL volumes.
	own map[string][]byte
}

type sibling struct {
	lv   volume.LV
	head []byte
}

// snapshot reads what must be the same afterwards, and what must not.
func (j *job) snapshot(ctx context.Context, p plan, lvs []volume.LV) (heads, error) {
	h := heads{siblings: map[string]sibling{}, own: map[string][]byte{}}
	for _, l := range lvs {
		own := slices.ContainsFunc(j.parts(), func(w request.LV) bool { return w.VG == l.VG && w.Name == l.Name })
		shared := l.VG == p.vg || slices.ContainsFunc(j.parts(), func(w request.LV) bool { return w.VG == l.VG })
		if !shared || l.VG == p.vg && (l.Name == p.lv || p.old != nil && l.Name == p.old.Name) {
			continue
		}
		head, err := j.node.Head(ctx, l.Path)
		if err != nil {
			return h, fmt.Errorf("reading %s: %w", l.Full(), err)
		}
		if own {
			h.own[l.Full()] = head
		} else {
			h.siblings[l.Full()] = sibling{l, head}
		}
	}
	for _, s := range j.req.Siblings {
		for _, want := range s.LVs {
			if volume.FindLV(lvs, want.VG, want.Name) == nil {
				j.out.Warnings = append(j.out.Warnings, fmt.Sprintf("%s/%s of osd.%d was missing before anything was done", want.VG, want.Name, s.OSD))
			}
		}
	}
	return h, nil
}

// compare holds the siblings' volumes against what they were.
func (j *job) compare(ctx context.Context, _ plan, before heads, lvs []volume.LV) []request.SiblingLV {
	var all []request.SiblingLV
	for full, was := range before.siblings {
		s := request.SiblingLV{OSD: was.lv.OSD(), VG: was.lv.VG, LV: was.lv.Name}
		now := volume.FindLV(lvs, was.lv.VG, was.lv.Name)
		switch {
		case now == nil:
			s.Changed = "it is gone"
		case now.UUID != was.lv.UUID || now.Size != was.lv.Size:
			s.Changed = "it is another volume"
		case now.TagText() != was.lv.TagText():
			s.Changed = "its tags have changed"
		default:
			head, err := j.node.Head(ctx, now.Path)
			if err != nil {
				s.Changed = fmt.Sprintf("%s cannot be read any more: %v", full, err)
			} else if !bytes.Equal(head, was.head) {
				s.Changed = "its first 4 KiB have changed"
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b request.SiblingLV) int { return strings.Compare(a.VG+a.LV, b.VG+b.LV) })
	return all
}

// fresh proves that the database and WAL are the new OSD's: labelled with its uuid, or,
// encrypted, formatted anew. An unchanged LUKS header means that the old key is in use,
// which Ceph has thrown away.
func (j *job) fresh(ctx context.Context, p plan, before heads, f facts, made device.Found) error {
	for _, want := range j.parts() {
		full := want.VG + "/" + want.Name
		lv := volume.FindLV(f.lvs, want.VG, want.Name)
		if lv == nil || lv.OSDUUID() != made.UUID {
			return refuse(request.NotProven, "%s is not tagged as of the new osd.%d", full, j.req.OSD)
		}
		head, err := j.node.Head(ctx, lv.Path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", full, err)
		}
		if j.req.Encrypted {
			if !bytes.HasPrefix(head, []byte(luks)) || bytes.Equal(head, before.own[full]) {
				return refuse(request.NotProven, "%s was not encrypted anew: the next restart would lose osd.%d, destroy it again", full, j.req.OSD)
			}
			continue
		}
		if l, err := label.Parse(head); err != nil || l.UUID != made.UUID {
			return refuse(request.NotProven, "%s does not carry the label of the new osd.%d", full, j.req.OSD)
		}
	}
	if j.req.Encrypted != made.Encrypted {
		return refuse(request.NotProven, "osd.%d was to be encrypted: %v, and is: %v", j.req.OSD, j.req.Encrypted, made.Encrypted)
	}
	return nil
}
