package provision

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// waiting is osd.7 of /dev/sdb, destroyed: its disk had another serial.
func waiting() swap.Pending {
	return swap.Pending{OSD: 7, UUID: "old-uuid", Before: []string{"serial OLD"}, Old: swap.Disk{
		Serial: "OLD", ByPath: "/dev/disk/by-path/slot-1", Size: 10 << 30,
	}}
}

func TestTheReplacementIsReservedAndReported(t *testing.T) {
	f := node("sdb", "sdc")
	f.devices[0].Links = []string{"/dev/disk/by-path/slot-1"}
	r, err := Run(t.Context(), f, f, choice.Selection{UseAll: true}, choice.Facts{FSID: fsid, Pending: []swap.Pending{waiting()}}, store)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.ran) != 1 || len(r.OSDs) != 1 || r.OSDs[0].Data.Path != "/dev/sdc" {
		t.Errorf("the other disk becomes an OSD, this one must not: ran %v, %+v", f.ran, r.OSDs)
	}
	if v := r.Devices[0]; v.Use || v.Reason != choice.Held {
		t.Errorf("verdict on the replacement: %+v", v)
	}
	if r.Swaps == nil || r.Swaps.Matches[7].Serial != "S-sdb" || r.Swaps.Matches[7].Device != "/dev/disk/by-path/slot-1" {
		t.Errorf("swaps %+v", r.Swaps)
	}
}

func TestTheOldOSDIsNotReported(t *testing.T) {
	f := node("sdb", "sdc")
	f.osds["/dev/sdb"] = device.OSD{ID: 7, UUID: "old-uuid", FSID: fsid, Role: device.RoleBlock}
	f.osds["/dev/sdc"] = device.OSD{ID: 8, UUID: "other", FSID: fsid, Role: device.RoleBlock}
	r, err := Run(t.Context(), f, f, choice.Selection{UseAll: true}, choice.Facts{FSID: fsid, Pending: []swap.Pending{waiting()}}, store)
	if err != nil || len(r.OSDs) != 1 || r.OSDs[0].ID != 8 || r.State != Completed {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestKnownAndIdentities(t *testing.T) {
	devices := []Device{
		{Path: "/dev/sdb", Type: device.Disk, Size: 5, Serial: "S"},
		{Path: "/dev/sdc", Type: device.Disk, Size: 6, WWN: "w"},
		{Path: "/dev/loop1", Type: device.Loop, Size: 7},
		{Path: "/dev/loop2", Type: device.Loop},
		{Path: "/dev/loop3", Type: device.Loop, Size: 7, Reason: choice.NoDeviceNode},
		{Path: "/dev/mapper/x", Type: device.LVM, Size: 7},
		{Path: "/dev/sdz", Reason: choice.NoSuchDevice},
	}
	if diff := cmp.Diff([]string{"/dev/loop1  7", "/dev/sdb S 5", "/dev/sdc  6"}, Known(devices)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"place /dev/loop1  7", "serial S", "wwn w"}, Identities(devices)); diff != "" {
		t.Error(diff)
	}
}

func store(context.Context, Report) error { return nil }

// What a replacement that was cut off has left on the new disk does not keep the next
// attempt from it; anything else does.
func TestLeftoversOfAnAttempt(t *testing.T) {
	lvName := volume.BlockName(fsid, "old-uuid")
	for name, c := range map[string]struct {
		change func(d *device.Device, lv *device.Device)
		match  bool
	}{
		"its volume":             {func(*device.Device, *device.Device) {}, true},
		"its volume, not tagged": {func(d *device.Device, _ *device.Device) { d.OSDs = nil }, true},
		"its volume, not active": {func(d *device.Device, _ *device.Device) { d.Children = nil }, true},
		"its label": {func(d *device.Device, _ *device.Device) {
			d.Children, d.FSType, d.OSDs[0].UUID = nil, "ceph_bluestore", volume.AttemptUUID([8]byte{1}, fsid, "old-uuid")
		}, true},
		"its label, just begun": {func(d *device.Device, _ *device.Device) {
			d.Children, d.FSType, d.OSDs[0] = nil, "", device.OSD{ID: -1, UUID: volume.AttemptUUID([8]byte{1}, fsid, "old-uuid"), Role: device.RoleBlock}
		}, true},
		"an older disk of the same OSD": {func(d *device.Device, _ *device.Device) { d.Children, d.FSType = nil, "ceph_bluestore" }, false},
		"another cluster's":             {func(d *device.Device, _ *device.Device) { d.OSDs[0].FSID = "x" }, false},
		"the old OSD":                   {func(d *device.Device, _ *device.Device) { d.OSDs[0].UUID = "old-uuid" }, false},
		"another OSD":                   {func(d *device.Device, _ *device.Device) { d.OSDs[0].ID = 8 }, false},
		"a database":                    {func(d *device.Device, _ *device.Device) { d.OSDs[0].Role = device.RoleDB }, false},
		"a stranger's volume":           {func(_ *device.Device, lv *device.Device) { lv.Path = "/dev/mapper/vg-data" }, false},
		"a partition":                   {func(_ *device.Device, lv *device.Device) { lv.Type = device.Partition }, false},
		"a partition table as well":     {func(d *device.Device, _ *device.Device) { d.PartTable = "gpt" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, lv := disk("sdb"), device.Device{Name: "dm-0", Path: "/dev/mapper/" + volume.Mangled("ceph-a", lvName), Type: device.LVM}
			d.Links, d.FSType, d.Children = []string{"/dev/disk/by-path/slot-1"}, "LVM2_member", []string{"dm-0"}
			d.OSDs = []device.OSD{{ID: 7, UUID: "new", FSID: fsid, Role: device.RoleBlock}}
			c.change(&d, &lv)
			out := find([]swap.Pending{waiting()}, []device.Device{d, lv}, fsid)
			if _, ok := out.Matches[7]; ok != c.match {
				t.Errorf("%+v", out)
			}
		})
	}
}
