package provision

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/swap"
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
