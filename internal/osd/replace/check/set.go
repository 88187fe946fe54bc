package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Metadata is the part of an OSD that lies on another device than its data: the
// database, or the WAL of one whose database is with the data; nil for none.
func Metadata(rec prepare.Result) *prepare.Part {
	for _, p := range []*prepare.Part{rec.DB, rec.WAL} {
		if p != nil && !SameDisk(*p, rec.Data) {
			return p
		}
	}
	return nil
}

// Set are the OSDs that have to be replaced together with the one of the request; nil
// if it can be replaced alone. It is meant for a request whose disks are recorded.
func Set(r Request) *plan.Set {
	if r.Record == nil {
		return nil
	}
	set := &plan.Set{Kind: plan.OnDisk, Members: []plan.Member{{ID: r.ID, UUID: r.Record.UUID}}}
	others := onData(*r.Record, r.Others)
	if r.Metadata {
		set.Kind = plan.OnMetadata
		others = nil
		if device := Metadata(*r.Record); device != nil {
			others = onMetadata(r.ID, *device, r.Others)
		}
	}
	for _, o := range others {
		set.Members = append(set.Members, plan.Member{ID: o.ID, UUID: o.UUID})
	}
	if len(set.Members) == 1 && !r.Metadata {
		return nil
	}
	slices.SortFunc(set.Members, func(a, b plan.Member) int { return a.ID - b.ID })
	if set.Leader = r.ID; !r.Metadata {
		set.Leader = set.Members[0].ID
	}
	return set
}

// onData are the other OSDs whose data lies on the disk of rec's data.
func onData(rec prepare.Result, others []prepare.Result) []prepare.Result {
	return pick(rec.ID, others, func(o prepare.Result) bool { return SameDisk(o.Data, rec.Data) })
}

// onMetadata are the other OSDs that have their database or WAL on a device.
func onMetadata(id int, device prepare.Part, others []prepare.Result) []prepare.Result {
	return pick(id, others, func(o prepare.Result) bool { return has(o, device) })
}

func has(o prepare.Result, device prepare.Part) bool {
	for _, p := range []*prepare.Part{o.DB, o.WAL} {
		if p != nil && sameDevice(*p, device) {
			return true
		}
	}
	return false
}

func pick(id int, others []prepare.Result, f func(prepare.Result) bool) (out []prepare.Result) {
	for _, o := range others {
		if o.ID != id && f(o) {
			out = append(out, o)
		}
	}
	return out
}

// sameDevice goes by the disk, and where one of two volumes does not say which it is on,
// by the volume group: it lies on one device, or the request is refused.
func sameDevice(a, b prepare.Part) bool {
	if identified(a) && identified(b) {
		return SameDisk(a, b)
	}
	return a.VG != "" && a.VG == b.VG || SameDisk(a, b)
}

func identified(p prepare.Part) bool { return p.Serial != "" || p.WWN != "" || p.Disk != "" }

// alone: whatever else is on the disk must be replaced with it, and must be asked for.
// What counts is what the nodes have recorded of the disks: `ceph osd metadata` is empty
// or old for an OSD that is down.
func alone(r Request) *plan.Refusal {
	if r.Metadata {
		return nil
	}
	if meta := pick(r.ID, r.Others, func(o prepare.Result) bool { return !SameDisk(o.Data, r.Record.Data) && has(o, r.Record.Data) }); len(meta) > 0 {
		return refuse("SharedDisk", "the disk %s holds the database of %s too, so it cannot be pulled for osd.%d: move that away first", r.Record.Data.Path, names(ids(meta)), r.ID)
	}
	mates := onData(*r.Record, r.Others)
	var missing, commands []string
	for _, o := range mates {
		if why := r.Busy[o.ID]; why != "" {
			return refuse("SharedDisk", "the disk %s holds osd.%d too, which cannot be replaced now: %s", r.Record.Data.Path, o.ID, why)
		}
		if !r.Asked[o.ID] {
			missing = append(missing, fmt.Sprintf("osd.%d", o.ID))
			commands = append(commands, fmt.Sprintf("rook-ceph-osd-%d %s=%s", o.ID, spec.ReplaceAnnotation, spec.Confirmation(o.ID)))
		}
	}
	if len(missing) > 0 {
		return refuse("SharedDisk", "the disk %s holds %s too, which goes with it when it is pulled: ask for the replacement of all OSDs on it, each by its own annotation (%s); they are then replaced together",
			disk(r.Record.Data), strings.Join(missing, ", "), strings.Join(commands, "; "))
	}
	if len(mates) > 0 {
		return onVolumes(append(slices.Clone(mates), *r.Record), false)
	}
	return nil
}

// together checks what is particular to a metadata device.
func together(r Request) *plan.Refusal {
	if !r.Metadata {
		return nil
	}
	device := Metadata(*r.Record)
	if device == nil {
		return refuse("NoMetadataDevice", "osd.%d has no database or WAL on another device than its data", r.ID)
	}
	if len(r.Unrecorded) > 0 {
		return refuse("DiskUnknown", "nothing is known of the disks of %s on the same node, which may have a database on %s too; make the nodes look again by changing the annotation castellan.ceph.io/rescan of the CephCluster", names(r.Unrecorded), disk(*device))
	}
	if data := pick(r.ID, r.Others, func(o prepare.Result) bool { return sameDevice(o.Data, *device) }); len(data) > 0 {
		return refuse("SharedDisk", "the metadata device %s holds the data of %s too: replace that OSD first, onto another disk", disk(*device), names(ids(data)))
	}
	if far := pick(r.ID, r.Others, func(o prepare.Result) bool {
		return slices.ContainsFunc([]*prepare.Part{o.DB, o.WAL}, func(p *prepare.Part) bool {
			return p != nil && p.VG != "" && p.VG == device.VG && !sameDevice(*p, *device)
		})
	}); len(far) > 0 {
		return refuse("ManyDevices", "the volume group %s lies on several devices: that of %s is not that of osd.%d", device.VG, names(ids(far)), r.ID)
	}
	members := append(onMetadata(r.ID, *device, r.Others), *r.Record)
	for _, o := range members {
		if why := r.Busy[o.ID]; why != "" && o.ID != r.ID {
			return refuse("SharedDisk", "the metadata device %s holds the database of osd.%d too, which cannot be replaced now: %s", disk(*device), o.ID, why)
		}
	}
	return onVolumes(members, true)
}

// onVolumes: only of OSDs on volumes of LVM can some be told from others, and made anew.
func onVolumes(all []prepare.Result, metadata bool) *plan.Refusal {
	for _, o := range all {
		switch {
		case o.Mode != "lvm" || o.Data.LV == "" || o.Data.LVUUID == "" || o.Data.Size == 0:
			return refuse("NotOnVolumes", "osd.%d is not on a volume of LVM, or the volume is not recorded, so it cannot be rebuilt together with others", o.ID)
		case !metadata:
		case o.DB == nil:
			return refuse("NoDatabase", "osd.%d has only its WAL on the metadata device: remove that first (ceph-volume lvm migrate), or replace the OSD on its own", o.ID)
		case o.WAL != nil && !sameDevice(*o.WAL, *o.DB):
			return refuse("ManyDevices", "osd.%d has its database and its WAL on different devices, of which only one could be replaced", o.ID)
		case o.DB.LV == "" || o.DB.VG == "" || o.DB.Size == 0 || o.WAL != nil && (o.WAL.LV == "" || o.WAL.Size == 0):
			return refuse("NotOnVolumes", "the database of osd.%d is not on a volume of LVM, or how large it is was not recorded, so it cannot be made again", o.ID)
		}
	}
	return nil
}

// Strangers are OSDs on what the set of a note has in common that are not in the set.
func Strangers(n plan.Note, others []prepare.Result) []string {
	if n.Set == nil {
		return nil
	}
	device := n.Pull()
	var out []string
	for _, o := range others {
		on := sameDevice(o.Data, device) || has(o, device)
		// A member with another uuid is one that was rebuilt.
		if on && !slices.Contains(n.Set.IDs(), o.ID) {
			out = append(out, fmt.Sprintf("osd.%d", o.ID))
		}
	}
	return out
}

// disk names a disk for a person.
func disk(p prepare.Part) string {
	path := p.ByPath
	for _, s := range []string{p.ByID, p.Path} {
		if path == "" {
			path = s
		}
	}
	if p.Serial != "" {
		return path + " (serial " + p.Serial + ")"
	}
	return path
}

func ids(all []prepare.Result) []int {
	out := make([]int, len(all))
	for i, o := range all {
		out[i] = o.ID
	}
	slices.Sort(out)
	return out
}
