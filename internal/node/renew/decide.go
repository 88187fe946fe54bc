package renew

import (
	"fmt"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// lvmOverhead is what LVM keeps of a disk at most, in bytes: its metadata, aligned to
// 1 MiB, and less than an extent of 4 MiB at the end.
const lvmOverhead = 8 << 20

// facts are one look at the node and at Ceph's map.
type facts struct {
	seen inspect.Result
	lvs  []volume.LV
	vgs  []volume.VG
	slot request.Slot
	// slotUUID claims the id; live are the uuids of all OSDs in the map.
	slotUUID string
	live     map[string]bool
}

// plan is what is to be done, all of it checked against the facts.
type plan struct {
	disk device.Device
	// vg and lv are the names of the data volume to make, slots in how many parts its
	// group is divided; empty for raw OSDs.
	vg, lv string
	slots  int
	// haveVG: an earlier run, or another OSD of the same disk, has made the group.
	haveVG bool
	// stale is what an earlier attempt has left: its volume, or its label on the disk.
	stale    *volume.LV
	staleRaw bool
	// old is the destroyed OSD's own data volume, whose place the new one takes.
	old *volume.LV
	// size of the data volume in bytes; 0 for all that is free, or the OSD's share.
	size uint64
	// dbDisk gets the volume group dbVG for databases; nil if it is there already.
	dbDisk *device.Device
	dbVG   string
	// below are the disks of the groups of database and WAL, by group; none of a group of
	// which not all disks are known.
	below map[string][]device.Device
	// remake are volumes that are missing and have to be made again.
	remake   []request.LV
	warnings []string
}

// names are the volume group and volume of an OSD on a disk. The group is named by the
// first of the OSDs that share the disk, so that each of them finds it.
func names(req request.Replace, oldUUID string) (vg, lv string) {
	first := req.OldUUID
	if len(req.Set) > 0 {
		first = slices.Min(req.Set)
	}
	return "ceph-" + volume.Named("data", req.FSID, first, req.Serial), volume.BlockName(req.FSID, oldUUID)
}

// decide checks everything that can be checked without touching anything.
func decide(req request.Replace, f facts) (plan, error) {
	switch f.slot {
	case request.SlotDestroyed, request.SlotGone:
	case request.SlotNew:
		return plan{}, refuse(request.SlotClaimed, "osd.%d is claimed by uuid %s, an attempt that left nothing whole: it has to be destroyed again", req.OSD, f.slotUUID)
	case request.SlotUsed:
		return plan{}, refuse(request.SlotLive, "osd.%d is a live OSD with uuid %s", req.OSD, f.slotUUID)
	default:
		return plan{}, refuse(request.NodeUnreadable, "what Ceph has under osd.%d is not known", req.OSD)
	}
	p, err := onDisk(req, f)
	if err != nil {
		return plan{}, err
	}
	if err := p.newMetadata(req, f); err != nil {
		return plan{}, err
	}
	for _, part := range []*request.LV{req.DB, req.WAL} {
		if part == nil {
			continue
		}
		missing, err := p.metadata(req, *part, f)
		if err != nil {
			return plan{}, err
		}
		if missing {
			p.remake = append(p.remake, *part)
		}
	}
	if f.slot == request.SlotGone {
		p.warnings = append(p.warnings, fmt.Sprintf("Ceph has no osd.%d any more: its CRUSH place and weight are gone, and are those of a new OSD", req.OSD))
	}
	return p, nil
}

// onDisk checks the disk: it is the one meant, and blank but for our own.
func onDisk(req request.Replace, f facts) (plan, error) {
	i := device.Find(f.seen.Devices, req.Device)
	if i < 0 {
		return plan{}, refuse(request.DiskMissing, "this node has no %s", req.Device)
	}
	d := f.seen.Devices[i]
	switch {
	case req.Serial != "" && d.Serial != req.Serial:
		return plan{}, refuse(request.WrongDisk, "%s has the serial %q, not %q", req.Device, d.Serial, req.Serial)
	case d.Type != device.Disk && (d.Type != device.Loop || !req.AllowLoop):
		return plan{}, refuse(request.WrongDisk, "%s is of type %s, which is no whole disk", req.Device, d.Type)
	case d.Size < max(req.MinSize, choice.MinSize):
		return plan{}, refuse(request.DiskTooSmall, "%s has %d bytes, %d are needed", req.Device, d.Size, max(req.MinSize, choice.MinSize))
	case d.ReadOnly:
		return plan{}, refuse(request.DiskInUse, "%s is read-only", req.Device)
	case len(d.Mounts) > 0:
		return plan{}, refuse(request.DiskInUse, "%s is mounted at %s", req.Device, strings.Join(d.Mounts, ", "))
	case f.seen.Unreadable[d.Name] != nil:
		return plan{}, refuse(request.DiskBroken, "%s: %w", req.Device, f.seen.Unreadable[d.Name])
	}
	p := plan{disk: d, slots: max(len(req.Set), 1), below: map[string][]device.Device{}}
	if req.Mode == "lvm" {
		p.vg, p.lv = names(req, req.OldUUID)
		return p, p.group(req, f)
	}
	return p, p.bare(req, f)
}

// bare checks a disk for a raw OSD. What an earlier attempt has left there is told by
// its uuid: an unfinished label has no id yet.
func (p *plan) bare(req request.Replace, f facts) error {
	d := p.disk
	for _, o := range d.OSDs {
		if !volume.IsAttempt(o.UUID, req.FSID, req.OldUUID) || f.live[o.UUID] {
			return refuse(request.DiskInUse, "%s holds the %s of osd.%d (%s)", req.Device, o.Role, o.ID, o.UUID)
		}
		p.staleRaw = true
	}
	if p.staleRaw && d.FSType == "ceph_bluestore" {
		d.FSType = ""
	}
	return blank(req.Device, d)
}

// group checks a disk for OSDs on volumes. A volume group on it is ours if it has the
// name that this replacement gives, lies on this disk alone, and holds nothing but
// volumes of this replacement.
func (p *plan) group(req request.Replace, f facts) error {
	vg := volume.FindVG(f.vgs, p.vg)
	if req.Data != nil && vg == nil {
		if vg = volume.FindVG(f.vgs, req.Data.VG); vg != nil {
			p.vg, p.size = vg.Name, req.Data.Size
		}
	}
	if vg == nil {
		if len(p.disk.OSDs) > 0 {
			o := p.disk.OSDs[0]
			return refuse(request.DiskInUse, "%s holds the %s of osd.%d (%s)", req.Device, o.Role, o.ID, o.UUID)
		}
		return blank(req.Device, p.disk)
	}
	if len(vg.PVs) != 1 || !p.disk.Answers(vg.PVs[0]) {
		return refuse(request.DiskInUse, "the volume group %s lies on %s, not on %s alone", vg.Name, strings.Join(vg.PVs, ", "), req.Device)
	}
	p.haveVG = true
	ours := map[string]bool{}
	for _, u := range req.Set {
		_, lv := names(req, u)
		ours[lv] = true
	}
	for _, l := range f.lvs {
		switch {
		case l.VG != p.vg:
		case l.Name == p.lv && f.live[l.OSDUUID()]:
			return refuse(request.DiskInUse, "%s holds a live OSD (%s)", l.Full(), l.OSDUUID())
		case l.Name == p.lv:
			p.stale = &l
		case req.Data != nil && l.Name == req.Data.Name && p.vg == req.Data.VG:
			if l.UUID != req.Data.UUID || l.OSD() != req.OSD || l.OSDUUID() != req.OldUUID {
				return refuse(request.DiskInUse, "%s is not the destroyed osd.%d's volume: its uuid is %s, and it is tagged as of osd.%d (%s)", l.Full(), req.OSD, l.UUID, l.OSD(), l.OSDUUID())
			}
			p.old = &l
		case req.Data != nil && p.vg == req.Data.VG:
			// Another OSD's, which has its share of this disk and keeps it.
		case !ours[l.Name]:
			return refuse(request.DiskInUse, "%s holds the volume %s, which is not of this replacement", req.Device, l.Full())
		}
	}
	return nil
}

// blank finds anything that somebody may miss.
func blank(ref string, d device.Device) error {
	switch {
	case len(d.Children) > 0:
		return refuse(request.DiskInUse, "%s has partitions or volumes on it: %s", ref, strings.Join(d.Children, ", "))
	case d.FSType != "":
		return refuse(request.DiskInUse, "%s holds a %s signature", ref, d.FSType)
	case d.PartTable != "":
		return refuse(request.DiskInUse, "%s holds a %s partition table", ref, d.PartTable)
	}
	return nil
}

// metadata checks the database's or WAL's volume; missing says that it has to be made
// again, for which there is room.
func (p *plan) metadata(req request.Replace, want request.LV, f facts) (missing bool, err error) {
	full := want.VG + "/" + want.Name
	lv := volume.FindLV(f.lvs, want.VG, want.Name)
	vg := volume.FindVG(f.vgs, want.VG)
	if vg != nil {
		p.below[want.VG] = disks(f, vg.PVs)
	}
	if lv == nil {
		if vg == nil && p.dbDisk == nil && want.Device != "" {
			if err := p.regroup(want, f); err != nil {
				return false, err
			}
		}
		switch {
		case p.dbDisk != nil && want.VG == p.dbVG && want.Size > 0:
			return true, nil // the group is made first; lvcreate tells whether there is room
		case vg == nil:
			return false, refuse(request.DBMissing, "the volume group %s of the database is not on this node: its device is lost", want.VG)
		case slices.Contains(vg.PVs, "[unknown]"):
			return false, refuse(request.DBMissing, "a device of the database's volume group %s is missing", want.VG)
		case want.Size == 0:
			return false, refuse(request.DBMissing, "%s is missing, and how large it was is not recorded", full)
		case vg.Free < want.Size:
			return false, refuse(request.DBMissing, "%s is missing, and %s has %d bytes free; %d are needed to make it again", full, want.VG, vg.Free, want.Size)
		}
		return true, nil
	}
	remade := lv.Tags[volume.RemadeTag] == req.OldUUID
	owner := lv.OSDUUID()
	switch {
	case want.UUID != "" && lv.UUID != want.UUID && !remade:
		return false, refuse(request.DBForeign, "%s has the uuid %s, the recorded one had %s", full, lv.UUID, want.UUID)
	case want.Size > 0 && lv.Size != want.Size:
		return false, refuse(request.DBForeign, "%s has %d bytes, the recorded one had %d", full, lv.Size, want.Size)
	case owner != "" && (lv.OSD() != req.OSD || owner != req.OldUUID && f.live[owner]):
		return false, refuse(request.DBForeign, "%s is tagged as of osd.%d (%s)", full, lv.OSD(), owner)
	case owner == "" && want.UUID == "" && !remade:
		return false, refuse(request.DBForeign, "nothing says whose %s is: it has no tags, and its uuid is not recorded", full)
	}
	return false, nil
}

// disks are the devices at paths, or none if one of them is not known.
func disks(f facts, paths []string) []device.Device {
	var found []device.Device
	for _, path := range paths {
		i := device.Find(f.seen.Devices, path)
		if i < 0 {
			return nil
		}
		found = append(found, f.seen.Devices[i])
	}
	return found
}

// regroup checks the disk that a volume group was on which is gone: a blank one gets it
// again. It must be that very disk, which only a name by its serial says: another one in
// its slot is nobody's leave to use it.
func (p *plan) regroup(want request.LV, f facts) error {
	i := device.Find(f.seen.Devices, want.Device)
	if i < 0 || !strings.HasPrefix(want.Device, "/dev/disk/by-id/") {
		return nil
	}
	d := f.seen.Devices[i]
	if d.Name == p.disk.Name || d.ReadOnly || len(d.Mounts) > 0 || len(d.OSDs) > 0 {
		return refuse(request.DBMissing, "the volume group %s is gone, and its disk %s is not blank", want.VG, want.Device)
	}
	if err := blank(want.Device, d); err != nil {
		return refuse(request.DBMissing, "the volume group %s is gone: %w", want.VG, err)
	}
	p.dbDisk, p.dbVG = &d, want.VG
	p.below[p.dbVG] = []device.Device{d}
	return nil
}

// moved is the request with the database and WAL in the volume group of the new
// metadata device.
func moved(req request.Replace) request.Replace {
	if req.DBDevice == "" {
		return req
	}
	for _, part := range []**request.LV{&req.DB, &req.WAL} {
		if *part != nil {
			lv := **part
			lv.VG, lv.UUID = "ceph-"+volume.Named("db", req.FSID, lv.VG, req.DBSerial, req.DBDevice), ""
			*part = &lv
		}
	}
	return req
}

// newMetadata checks the disk that takes the lost metadata device's place: blank, or
// with the group that an earlier OSD's rebuild has made on it.
func (p *plan) newMetadata(req request.Replace, f facts) error {
	if req.DBDevice == "" {
		return nil
	}
	switch {
	case req.DB == nil:
		return refuse(request.NodeUnreadable, "a metadata device is given for an OSD without a database")
	case req.WAL != nil && req.WAL.VG != req.DB.VG:
		return refuse(request.NodeUnreadable, "database and WAL were on different devices: only one can be replaced at a time")
	}
	i := device.Find(f.seen.Devices, req.DBDevice)
	if i < 0 {
		return refuse(request.DiskMissing, "this node has no %s", req.DBDevice)
	}
	d := f.seen.Devices[i]
	vg := volume.FindVG(f.vgs, req.DB.VG)
	switch {
	case req.DBSerial != "" && d.Serial != req.DBSerial:
		return refuse(request.WrongDisk, "%s has the serial %q, not %q", req.DBDevice, d.Serial, req.DBSerial)
	case d.Type != device.Disk && (d.Type != device.Loop || !req.AllowLoop) || d.Name == p.disk.Name:
		return refuse(request.WrongDisk, "%s is no whole disk of its own", req.DBDevice)
	case vg != nil && (len(vg.PVs) != 1 || !d.Answers(vg.PVs[0])):
		return refuse(request.DiskInUse, "the volume group %s lies on %s, not on %s alone", vg.Name, strings.Join(vg.PVs, ", "), req.DBDevice)
	case vg != nil:
		return nil
	case d.ReadOnly || len(d.Mounts) > 0 || len(d.OSDs) > 0:
		return refuse(request.DiskInUse, "%s is read-only, mounted or holds an OSD", req.DBDevice)
	}
	if err := blank(req.DBDevice, d); err != nil {
		return err
	}
	need := req.DB.Size + lvmOverhead
	if req.WAL != nil {
		need += req.WAL.Size
	}
	if d.Size < need {
		return refuse(request.DiskTooSmall, "%s has %d bytes; the recorded sizes of database and WAL need %d", req.DBDevice, d.Size, need)
	}
	p.dbDisk, p.dbVG = &d, req.DB.VG
	p.below[p.dbVG] = []device.Device{d}
	return nil
}
