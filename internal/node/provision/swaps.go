package provision

import (
	"maps"
	"slices"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/swap"
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
func swaps(pending []swap.Pending, devices []device.Device) *swap.Outcome {
	if len(pending) == 0 {
		return nil
	}
	out := swap.Find(pending, devices)
	return &out
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
