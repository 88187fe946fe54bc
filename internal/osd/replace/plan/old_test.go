package plan

import (
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// The old disk of an OSD on a volume, wiped in its slot, is not taken for another one
// because a volume is smaller than its disk. Nothing else tells it: it has no serial.
func TestTheOldDiskOfAVolumeWithoutASerial(t *testing.T) {
	n := Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5", Mode: "lvm", Data: prepare.Part{Path: "/dev/vg/block", ByPath: "/dev/disk/by-path/p1", VG: "vg", LV: "block", Size: 1<<40 - 4<<20}}}
	wiped := device.Device{Name: "sdb", Path: "/dev/sdb", Type: device.Disk, HasNode: true, Size: 1 << 40, Links: []string{"/dev/disk/by-path/p1"}}
	out := swap.Find([]swap.Pending{n.Pending("")}, []device.Device{wiped})
	if len(out.Matches) > 0 || !strings.Contains(out.Questions[5], "nothing tells the disk") {
		t.Errorf("%+v", out)
	}
}
