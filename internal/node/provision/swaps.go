package provision

import (
	"maps"
	"path"
	"slices"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// Living are the OSDs of the cluster on the node's disks without those that are
// destroyed and wait for another disk: their old disks may still be plugged in, and
// nothing must be started from them.
func Living(seen inspect.Result, fsid string, pending []swap.Pending) (osds []prepare.Result, skipped []string) {
	osds, skipped = prepare.Results(seen.Found, seen.Devices, fsid)
	old := swap.OldUUIDs(pending)
	return slices.DeleteFunc(osds, func(o prepare.Result) bool { return slices.Contains(old, o.UUID) }), skipped
}

// swaps is the outcome for the report.
func swaps(pending []swap.Pending, devices []device.Device, fsid string) *swap.Outcome {
	if len(pending) == 0 {
		return nil
	}
	out := find(pending, devices, fsid)
	return &out
}

// find asks package swap. A disk that carries nothing but what a replacement that was
// cut off has left there is as good as blank for it: the next attempt clears that.
func find(pending []swap.Pending, devices []device.Device, fsid string) swap.Outcome {
	seen := slices.Clone(devices)
	for i := range seen {
		if leftover(seen[i], devices, pending, fsid) {
			seen[i].OSDs, seen[i].Children, seen[i].FSType = nil, nil, ""
		}
	}
	return swap.Find(pending, seen)
}

// leftover reports whether all that is on a disk was made for pending slots: an OSD
// whose uuid says so, or OSDs of this cluster under their ids that are not the old
// ones, on volumes that a replacement names so.
func leftover(d device.Device, all []device.Device, pending []swap.Pending, fsid string) bool {
	if len(d.OSDs)+len(d.Children) == 0 || d.PartTable != "" || len(d.Mounts) > 0 {
		return false
	}
	old := swap.OldUUIDs(pending)
	if len(d.Children) == 0 && d.FSType != "LVM2_member" {
		return !slices.ContainsFunc(d.OSDs, func(o device.OSD) bool {
			return !slices.ContainsFunc(pending, func(p swap.Pending) bool { return volume.IsAttempt(o.UUID, fsid, p.UUID) })
		})
	}
	for _, o := range d.OSDs {
		ours := slices.ContainsFunc(pending, func(p swap.Pending) bool { return p.OSD == o.ID })
		if !ours || fsid == "" || o.FSID != fsid || slices.Contains(old, o.UUID) || o.Role != device.RoleBlock {
			return false
		}
	}
	for _, c := range d.Children {
		i := slices.IndexFunc(all, func(o device.Device) bool { return o.Name == c })
		ours := i >= 0 && all[i].Type == device.LVM && slices.ContainsFunc(old, func(u string) bool {
			return volume.MangledIs(path.Base(all[i].Path), volume.BlockName(fsid, u))
		})
		if !ours {
			return false
		}
	}
	return true
}

// reserve adds what replacements hold to what the request holds.
func reserve(held, more map[string]string) map[string]string {
	if len(more) == 0 {
		return held
	}
	all := maps.Clone(more)
	maps.Copy(all, held)
	return all
}

// whole reports whether a line of the report is a disk that can be plugged in.
func (d Device) whole() bool {
	return (d.Type == device.Disk || d.Type == device.Loop) && d.Size > 0 && d.Reason != choice.NoDeviceNode && d.Reason != choice.NeverUsed
}

// Known are the disks of a report as a watch compares them (request.Watch.Known).
func Known(devices []Device) []string {
	var known []string
	for _, d := range devices {
		if d.whole() {
			known = append(known, swap.Known(d.Path, d.Serial, d.Size))
		}
	}
	slices.Sort(known)
	return known
}

// Identities are the disks of a report, wherever they are plugged in
// (swap.Pending.Before).
func Identities(devices []Device) []string {
	var ids []string
	for _, d := range devices {
		if d.whole() {
			ids = append(ids, swap.Identity(d.Serial, d.WWN, d.Path, d.Size))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
