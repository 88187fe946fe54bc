package renew

import (
	"fmt"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/request"
)

// lost is a node whose metadata device is gone: the destroyed OSD's data volume is
// still there, and a blank disk has come.
func lost(encrypted bool) (*world, request.Replace) {
	w := newWorld("lvm", false, encrypted)
	w.disks["/dev/new"] = &device.Device{Name: "new", Path: "/dev/new", Type: device.Disk, Size: 60 * gib, HasNode: true, Serial: "FAST2", Links: []string{"/dev/disk/by-id/x-FAST2"}}
	w.vgs["hdd"] = newDev
	w.lvs["hdd/block5"] = &lv{uuid: "LV-B5", size: 90 * gib, dev: newDev, tags: tagsOf(5, oldID, "block", encrypted), head: headOf(encrypted, "old", oldID, 5)}
	w.free["hdd"] = 10 * gib
	r := ask("lvm", true, encrypted)
	r.Siblings = nil
	r.Data = &request.LV{VG: "hdd", Name: "block5", UUID: "LV-B5", Size: 90 * gib}
	r.DBDevice, r.DBSerial = "/dev/disk/by-id/x-FAST2", "FAST2"
	return w, r
}

func TestMetadataDeviceLost(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint(encrypted), func(t *testing.T) {
			w, r := lost(encrypted)
			out, err := Run(t.Context(), w, w, r, now)
			if err != nil || out.Result != request.Done || out.DB == nil || out.DB.Name != "db5" || out.DB.Size != 20*gib || w.vgs[out.DB.VG] != "/dev/new" {
				t.Fatalf("%+v, DB %+v, %v\n%s", out.Replaced, out.DB, err, strings.Join(w.ran, "\n"))
			}
			if w.lvs["hdd/block5"] != nil || len(w.lvs) != 2 {
				t.Errorf("volumes %v", w.lvs)
			}
			if again, err := Run(t.Context(), w, w, r, now); err != nil || again.UUID != out.UUID || w.made != 1 {
				t.Errorf("a second run: %+v, %v", again.Replaced, err)
			}
			// The next OSD of the lost device finds the group on the new one.
			next := r
			other := "11111111-0000-4000-8000-000000000007"
			next.OldUUID, next.Data = other, &request.LV{VG: "hdd2", Name: "block7", UUID: "LV-B7", Size: 90 * gib}
			next.Device, next.Serial = "/dev/sdc", "HDD2"
			next.DB = &request.LV{VG: "fast", Name: "db7", UUID: "LV-DB7", Size: 20 * gib}
			w.disks["/dev/sdc"] = &device.Device{Name: "sdc", Path: "/dev/sdc", Type: device.Disk, Size: 100 * gib, HasNode: true, Serial: "HDD2"}
			w.vgs["hdd2"], w.free["hdd2"] = "/dev/sdc", 10*gib
			w.lvs["hdd2/block7"] = &lv{uuid: "LV-B7", size: 90 * gib, dev: "/dev/sdc", tags: tagsOf(5, other, "block", encrypted)}
			for _, l := range w.lvs {
				if l.tags["ceph.osd_fsid"] == out.UUID {
					l.tags["ceph.osd_id"] = "8" // the model knows one id only
				}
			}
			w.slot, w.uuid = "destroyed", ""
			out2, err := Run(t.Context(), w, w, next, now)
			if err != nil || out2.DB.VG != out.DB.VG || out2.DB.Name != "db7" || len(out2.Siblings) != 1 {
				t.Errorf("the next OSD: %+v, DB %+v, %v", out2.Replaced, out2.DB, err)
			}
		})
	}
}

func TestMetadataRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, r *request.Replace)
		want   request.Reason
	}{
		"no such disk":             {func(w *world, _ *request.Replace) { delete(w.disks, "/dev/new") }, request.DiskMissing},
		"another serial":           {func(w *world, _ *request.Replace) { w.disks["/dev/new"].Serial = "X" }, request.WrongDisk},
		"the data disk":            {func(_ *world, r *request.Replace) { r.DBDevice, r.DBSerial = newDev, "NEW" }, request.WrongDisk},
		"not blank":                {func(w *world, _ *request.Replace) { w.disks["/dev/new"].FSType = "xfs" }, request.DiskInUse},
		"too small":                {func(w *world, _ *request.Replace) { w.disks["/dev/new"].Size = 20 * gib }, request.DiskTooSmall},
		"broken":                   {func(w *world, _ *request.Replace) { w.broken["/dev/new"] = true }, request.DiskBroken},
		"the data volume's uuid":   {func(w *world, _ *request.Replace) { w.lvs["hdd/block5"].uuid = "X" }, request.DiskInUse},
		"the data volume's OSD":    {func(w *world, _ *request.Replace) { w.lvs["hdd/block5"].tags = tagsOf(6, sibID, "block", false) }, request.DiskInUse},
		"the data volume untagged": {func(w *world, _ *request.Replace) { w.lvs["hdd/block5"].tags = map[string]string{} }, request.DiskInUse},
		"not destroyed":            {func(w *world, _ *request.Replace) { w.slot, w.uuid = "used", oldID }, request.SlotLive},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := lost(false)
			c.change(w, &r)
			lvs := fmt.Sprint(len(w.lvs), w.lvs["hdd/block5"])
			out, err := Run(t.Context(), w, w, r, now)
			if err == nil || out.Result != request.Refused || out.Reason != c.want {
				t.Errorf("%s %s %q; want refused, %s", out.Result, out.Reason, out.Message, c.want)
			}
			if fmt.Sprint(len(w.lvs), w.lvs["hdd/block5"]) != lvs {
				t.Error("a volume has changed")
			}
		})
	}
}

// A kill before every step.
func TestMetadataCrashes(t *testing.T) {
	for at := 1; ; at++ {
		w, r := lost(true)
		w.crashAt = at
		_, err := Run(t.Context(), w, w, r, now)
		crashed := w.calls >= at
		w.crashAt = 0
		out, err := settle(t, w, r, err)
		if err != nil || out.Result != request.Done || w.made != 1 {
			t.Fatalf("killed before call %d: %+v, %v\n%s", at, out.Replaced, err, strings.Join(w.ran, "\n"))
		}
		if !crashed {
			return
		}
	}
}
