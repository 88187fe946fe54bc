package renew

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

func now() time.Time { return time.Unix(0, 0) }

func ask(mode string, db, encrypted bool) request.Replace {
	r := request.Replace{FSID: fsid, OSD: 5, OldUUID: oldID, Device: "/dev/disk/by-id/x-NEW", Serial: "NEW", Mode: mode, Encrypted: encrypted, DeviceClass: "hdd"}
	if db {
		r.DB = &request.LV{VG: "fast", Name: "db5", UUID: "LV-DB5", Size: 20 * gib}
		r.Siblings = []request.Sibling{{OSD: 6, UUID: sibID, LVs: []request.LV{{VG: "fast", Name: "db6"}}}}
	}
	return r
}

// layouts are the ways in which an OSD can lie on disks.
func layouts() map[string][3]bool {
	return map[string][3]bool{"raw": {}, "lvm": {true}, "lvm with DB": {true, true}, "encrypted": {true, false, true}, "encrypted with DB": {true, true, true}}
}

func mode(lvm bool) string { return map[bool]string{true: "lvm", false: "raw"}[lvm] }

func TestEveryLayout(t *testing.T) {
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(mode(l[0]), l[1], l[2])
			before := w.sibling()
			out, err := Run(t.Context(), w, w, ask(mode(l[0]), l[1], l[2]), now)
			if err != nil || out.Result != request.Done || w.made != 1 || out.UUID == "" || out.UUID == oldID {
				t.Fatalf("%+v, %v\n%s", out, err, strings.Join(w.ran, "\n"))
			}
			if out.Slot != request.SlotNew || out.SlotUUID != out.UUID {
				t.Errorf("slot %s %s", out.Slot, out.SlotUUID)
			}
			if w.sibling() != before {
				t.Error("the sibling has changed")
			}
			if i := slices.IndexFunc(out.OSDs, func(o prepare.Result) bool { return o.ID == 5 }); i < 0 || out.OSDs[i].UUID != out.UUID {
				t.Errorf("report %+v", out.OSDs)
			}
			again, err := Run(t.Context(), w, w, ask(mode(l[0]), l[1], l[2]), now)
			if err != nil || again.UUID != out.UUID || w.made != 1 {
				t.Errorf("a second run: %+v, %v, made %d", again.Replaced, err, w.made)
			}
		})
	}
}

func TestCommandsOfASharedDatabase(t *testing.T) {
	w := newWorld("lvm", true, true)
	if _, err := Run(t.Context(), w, w, ask("lvm", true, true), now); err != nil {
		t.Fatal(err)
	}
	vg, lv := names(ask("lvm", true, true), oldID)
	var did []string
	for _, r := range w.ran {
		if strings.HasPrefix(r, "vgcreate") || strings.HasPrefix(r, "lvcreate") || strings.HasPrefix(r, "ceph-volume") {
			did = append(did, r)
		}
	}
	want := []string{
		"vgcreate --yes " + vg + " /dev/sdb",
		"lvcreate --yes --wipesignatures y --extents 100%FREE --name " + lv + " " + vg,
		"ceph-volume lvm prepare --bluestore --no-systemd --osd-id 5 --data " + vg + "/" + lv + " --dmcrypt --block.db fast/db5 --crush-device-class hdd",
	}
	if diff := cmp.Diff(want, did); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every refusal leaves the slot, the disks and the volumes as they were.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		world func(w *world)
		ask   func(r *request.Replace)
		want  request.Reason
	}{
		"no such disk":               {func(w *world) { delete(w.disks, newDev) }, nil, request.DiskMissing},
		"another serial":             {func(w *world) { w.disks[newDev].Serial = "X" }, nil, request.WrongDisk},
		"a partition":                {func(w *world) { w.disks[newDev].Type = device.Partition }, nil, request.WrongDisk},
		"a loop device":              {func(w *world) { w.disks[newDev].Type = device.Loop }, nil, request.WrongDisk},
		"too small":                  {nil, func(r *request.Replace) { r.MinSize = 200 * gib }, request.DiskTooSmall},
		"too small for any OSD":      {func(w *world) { w.disks[newDev].Size = gib }, nil, request.DiskTooSmall},
		"read-only":                  {func(w *world) { w.disks[newDev].ReadOnly = true }, nil, request.DiskInUse},
		"mounted":                    {func(w *world) { w.disks[newDev].Mounts = []string{"/mnt"} }, nil, request.DiskInUse},
		"a file system":              {func(w *world) { w.disks[newDev].FSType = "xfs" }, nil, request.DiskInUse},
		"a partition table":          {func(w *world) { w.disks[newDev].PartTable = "gpt" }, nil, request.DiskInUse},
		"somebody's volume group":    {func(w *world) { w.vgs["data"] = newDev }, nil, request.DiskInUse},
		"another OSD":                {func(w *world) { w.raw[newDev] = labelOf(sibID, 6, true) }, nil, request.DiskInUse},
		"the old OSD":                {func(w *world) { w.raw[newDev] = labelOf(oldID, 5, true) }, nil, request.DiskInUse},
		"rejected by ceph-volume":    {func(w *world) { w.rejects[newDev] = "locked" }, nil, request.DiskInUse},
		"cannot be read":             {func(w *world) { w.broken[newDev] = true }, nil, request.DiskBroken},
		"mapping in use":             {func(w *world) { w.open["m"] = "fast/db5"; w.held["m"] = true }, nil, request.MappingOpen},
		"the metadata device gone":   {func(w *world) { clear(w.vgs); clear(w.lvs) }, nil, request.DBMissing},
		"no room for the database":   {func(w *world) { delete(w.lvs, "fast/db5") }, nil, request.DBMissing},
		"another database":           {func(w *world) { w.lvs["fast/db5"].uuid = "X" }, nil, request.DBForeign},
		"a database of another":      {func(w *world) { w.lvs["fast/db5"].tags = tagsOf(6, sibID, "db", false) }, nil, request.DBForeign},
		"a database of another size": {func(w *world) { w.lvs["fast/db5"].size++ }, nil, request.DBForeign},
		"alive":                      {func(w *world) { w.slot, w.uuid = "used", oldID }, nil, request.SlotLive},
		"claimed and nothing made":   {func(w *world) { w.slot, w.uuid = "new", "u" }, nil, request.SlotClaimed},
		"half a request":             {nil, func(r *request.Replace) { r.OldUUID = "" }, request.NodeUnreadable},
		"ceph-volume refuses":        {func(w *world) { w.failAt = "before" }, nil, request.PrepareFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("lvm", true, false)
			r := ask("lvm", true, false)
			if c.world != nil {
				c.world(w)
			}
			if c.ask != nil {
				c.ask(&r)
			}
			slot, db, sib, lvs := w.slot, fmt.Sprint(w.lvs["fast/db5"]), w.sibling(), len(w.lvs)
			out, err := Run(t.Context(), w, w, r, now)
			if err == nil || out.Result != request.Refused || out.Reason != c.want || out.Message == "" {
				t.Errorf("%s %s %q, %v; want refused, %s", out.Result, out.Reason, out.Message, err, c.want)
			}
			if w.slot != slot || fmt.Sprint(w.lvs["fast/db5"]) != db || w.sibling() != sib || len(w.lvs) != lvs || w.made != 0 {
				t.Errorf("something has changed: slot %s, volumes %v", w.slot, w.lvs)
			}
			if c.want != request.PrepareFailed && slices.ContainsFunc(w.ran, func(s string) bool { return strings.HasPrefix(s, "ceph-volume") }) {
				t.Error("ceph-volume was run")
			}
		})
	}
}

// DANGER 2: the rollback takes the id and the database's volume.
func TestRollback(t *testing.T) {
	for _, at := range []string{"claimed", "mkfs"} {
		for name, l := range layouts() {
			t.Run(at+" "+name, func(t *testing.T) {
				w := newWorld(mode(l[0]), l[1], l[2])
				w.failAt = at
				sib := w.sibling()
				r := ask(mode(l[0]), l[1], l[2])
				out, err := Run(t.Context(), w, w, r, now)
				slot := request.SlotGone
				if !l[0] {
					slot = request.SlotNew // nothing is rolled back: the id keeps its weight and place
				}
				if err == nil || out.Result != request.Failed || out.Reason != request.PrepareFailed || out.Slot != slot || len(w.raw) > 0 {
					t.Errorf("%+v, %v, on disks %v", out.Replaced, err, w.raw)
				}
				if l[1] {
					if db := w.lvs["fast/db5"]; db == nil || db.size != 20*gib || !slices.Equal(out.Remade, []string{"fast/db5"}) {
						t.Errorf("the database's volume is %+v, remade %v", db, out.Remade)
					}
				}
				if w.sibling() != sib {
					t.Error("the sibling has changed")
				}
				// The next disk, or the same one, under the same id.
				w.failAt = ""
				out, err = settle(t, w, r, err)
				if err != nil || out.Result != request.Done || w.made != 1 || w.sibling() != sib {
					t.Errorf("the next try: %+v, %v", out.Replaced, err)
				}
			})
		}
	}
}

// A database that has its device to itself: the rollback takes the volume group too,
// and it is made again, also when the run is killed in between.
func TestRollbackOfTheOnlyVolume(t *testing.T) {
	for name, kill := range map[string]bool{"": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("lvm", true, false)
			delete(w.lvs, "fast/db6")
			w.free["fast"], w.failAt = 0, "mkfs"
			r := ask("lvm", true, false)
			r.DB.Device = "/dev/disk/by-id/x-FAST"
			if kill {
				w.crashAfter = "ceph-volume"
			}
			out, err := Run(t.Context(), w, w, r, now)
			w.crashAt, w.failAt, w.crashAfter = 0, "", ""
			db := w.lvs["fast/db5"]
			switch {
			case err == nil || out.Slot == request.SlotNew:
				t.Fatalf("%+v, %v", out.Replaced, err)
			case kill && (db != nil || w.vgs["fast"] != ""):
				t.Fatalf("the rollback has left %v in %v", w.lvs, w.vgs)
			case !kill && (db == nil || db.size != 20*gib || w.vgs["fast"] != "/dev/nvm" || !slices.Equal(out.Remade, []string{"fast/db5"})):
				t.Fatalf("volumes %v in %v, remade %v", w.lvs, w.vgs, out.Remade)
			}
			if out, err = settle(t, w, r, err); err != nil || out.Result != request.Done || w.made != 1 || w.lvs["fast/db5"].size != 20*gib {
				t.Errorf("the next try: %+v, %v", out.Replaced, err)
			}
		})
	}
	// What is not blank any more is somebody's, and so is another disk in the same slot.
	for device, fs := range map[string]string{"/dev/disk/by-id/x-FAST": "xfs", "/dev/nvm": ""} {
		w := newWorld("lvm", true, false)
		clear(w.lvs)
		clear(w.vgs)
		w.disks["/dev/nvm"].FSType = fs
		r := ask("lvm", true, false)
		r.DB.Device, r.Siblings = device, nil
		if out, err := Run(t.Context(), w, w, r, now); err == nil || out.Result != request.Refused || out.Reason != request.DBMissing || len(w.vgs) > 0 {
			t.Errorf("%s: %+v, %v, groups %v", device, out.Replaced, err, w.vgs)
		}
	}
}

// DANGER 1: ceph-volume says that it succeeded, and the old key is still in use.
func TestALieIsNotDone(t *testing.T) {
	w := newWorld("lvm", true, true)
	w.lies = true
	out, err := Run(t.Context(), w, w, ask("lvm", true, true), now)
	if err == nil || out.Result != request.Failed || out.Reason != request.NotProven || !strings.Contains(out.Message, "encrypted anew") {
		t.Errorf("%+v, %v", out.Replaced, err)
	}
	// Nor is it when it is run again, or when the run ended before it looked.
	if out, err = Run(t.Context(), w, w, ask("lvm", true, true), now); err == nil || out.Result != request.Refused || out.Reason != request.SlotClaimed {
		t.Errorf("again: %+v, %v", out.Replaced, err)
	}
	w.lies = false
	if out, err = settle(t, w, ask("lvm", true, true), err); err != nil || out.Result != request.Done || !strings.Contains(string(w.lvs["fast/db5"].head), out.UUID) {
		t.Errorf("after it was destroyed again: %+v, %v", out.Replaced, err)
	}
}

// A run that was killed before it looked at the database leaves that to the next one.
func TestDatabaseOfAnOSDThatIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		encrypted bool
		change    func(w *world, l *lv)
		want      request.Reason
	}{
		"whole":                           {false, func(*world, *lv) {}, ""},
		"whole, encrypted":                {true, func(*world, *lv) {}, ""},
		"the label of another":            {false, func(_ *world, l *lv) { l.head = labelOf(oldID, 5, true) }, request.SlotClaimed},
		"no label":                        {false, func(_ *world, l *lv) { l.head = make([]byte, HeadSize) }, request.SlotClaimed},
		"tagged as of the old one":        {false, func(_ *world, l *lv) { l.tags = tagsOf(5, oldID, "db", false) }, request.SlotClaimed},
		"gone":                            {false, func(w *world, _ *lv) { delete(w.lvs, "fast/db5") }, request.SlotClaimed},
		"encrypted with the old key":      {true, func(_ *world, l *lv) { l.head = []byte(luks + "old") }, request.SlotClaimed},
		"not encrypted":                   {true, func(w *world, l *lv) { l.head = labelOf(w.uuid, 5, true) }, request.SlotClaimed},
		"encrypted, and cannot be read":   {true, func(w *world, _ *lv) { w.fail = "head /dev/fast/db5" }, request.NodeUnreadable},
		"cannot be read":                  {false, func(w *world, _ *lv) { w.fail = "head /dev/fast/db5" }, request.NodeUnreadable},
		"cannot be activated":             {false, func(w *world, _ *lv) { w.fail = "vgchange --activate y fast" }, request.NodeUnreadable},
		"encrypted, and no mon answers":   {true, func(w *world, _ *lv) { w.fail = "fits" }, request.NodeUnreadable},
		"the OSD's volume cannot be read": {true, func(w *world, _ *lv) { w.fail = "head /dev/ceph-" }, request.NodeUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("lvm", true, c.encrypted)
			first, err := Run(t.Context(), w, w, ask("lvm", true, c.encrypted), now)
			if err != nil {
				t.Fatal(err)
			}
			c.change(w, w.lvs["fast/db5"])
			out, err := Run(t.Context(), w, w, ask("lvm", true, c.encrypted), now)
			if out.Reason != c.want || (err == nil) != (c.want == "") || c.want == "" && out.UUID != first.UUID || w.made != 1 {
				t.Errorf("%+v, %v, made %d; want %q", out.Replaced, err, w.made, c.want)
			}
		})
	}
}

func TestMappingIsClosedFirst(t *testing.T) {
	w := newWorld("lvm", true, true)
	w.open["m"] = "fast/db5"
	if out, err := Run(t.Context(), w, w, ask("lvm", true, true), now); err != nil || out.Result != request.Done {
		t.Errorf("%+v, %v", out.Replaced, err)
	}
	if slices.Index(w.ran, "close") > slices.IndexFunc(w.ran, func(s string) bool { return strings.HasPrefix(s, "ceph-volume") }) {
		t.Errorf("closed too late: %v", w.ran)
	}
}

// A mapping that is opened after all were closed is seen right before ceph-volume is run,
// also on a volume whose uuid is not the recorded one.
func TestMappingOpenedMeanwhile(t *testing.T) {
	for _, uuid := range []string{"LV-DB5", "LV-AGAIN"} {
		w := newWorld("lvm", true, true)
		w.opens, w.lvs["fast/db5"].uuid = "fast/db5", uuid
		if uuid != "LV-DB5" {
			w.lvs["fast/db5"].tags[volume.RemadeTag] = oldID
		}
		disks := fmt.Sprint(w.vgs)
		out, err := Run(t.Context(), w, w, ask("lvm", true, true), now)
		if err == nil || out.Result != request.Refused || out.Reason != request.MappingOpen || w.slot != "destroyed" || fmt.Sprint(w.vgs) != disks {
			t.Errorf("%s: %+v, %v, groups %v", uuid, out.Replaced, err, w.vgs)
		}
		if slices.ContainsFunc(w.ran, func(s string) bool { return strings.HasPrefix(s, "ceph-volume") }) {
			t.Errorf("%s: ceph-volume was run", uuid)
		}
	}
}

// DANGER 1 once more: the database's volume was made again after a rollback, so it has not
// the recorded uuid, and the next attempt is killed while the mapping on it is open. The
// attempt after that has to find that mapping by the volume that is there.
func TestMappingOfAVolumeMadeAgain(t *testing.T) {
	w := newWorld("lvm", true, true)
	r := ask("lvm", true, true)
	w.failAt = "mkfs"
	out, err := Run(t.Context(), w, w, r, now)
	if err == nil || !slices.Equal(out.Remade, []string{"fast/db5"}) {
		t.Fatalf("%+v, %v", out.Replaced, err)
	}
	w.slot, w.failAt = "destroyed", "killed"
	if _, err = Run(t.Context(), w, w, r, now); err == nil || w.open[w.lvs["fast/db5"].uuid] != "fast/db5" {
		t.Fatalf("%v, open %v", err, w.open)
	}
	held := w.lvs["fast/db5"].uuid
	w.slot, w.uuid, w.failAt, w.held[held] = "destroyed", "", "", true
	if out, err = Run(t.Context(), w, w, r, now); err == nil || out.Reason != request.MappingOpen || w.made != 0 {
		t.Errorf("while somebody holds it: %+v, %v", out.Replaced, err)
	}
	delete(w.held, held)
	out, err = Run(t.Context(), w, w, r, now)
	if err != nil || out.Result != request.Done || !strings.Contains(string(w.lvs["fast/db5"].head), out.UUID) {
		t.Errorf("%+v, %v", out.Replaced, err)
	}
}

// A kill before every single step, then runs until it is over: it ends with one OSD,
// the sibling untouched, and nothing written that is not ours.
func TestCrashes(t *testing.T) {
	for name, l := range layouts() {
		for _, fail := range []string{"", "mkfs"} {
			t.Run(name+" "+fail, func(t *testing.T) {
				runs := 0
				for at := 1; ; at++ {
					w := newWorld(mode(l[0]), l[1], l[2])
					w.failAt, w.crashAt = fail, at
					sib := w.sibling()
					r := ask(mode(l[0]), l[1], l[2])
					_, err := Run(t.Context(), w, w, r, now)
					crashed := w.calls >= at
					w.crashAt, w.failAt = 0, ""
					out, err := settle(t, w, r, err)
					if err != nil || out.Result != request.Done || w.made != 1 {
						t.Fatalf("killed before call %d: %+v, %v, made %d\n%s", at, out.Replaced, err, w.made, strings.Join(w.ran, "\n"))
					}
					if w.sibling() != sib {
						t.Fatalf("killed before call %d: the sibling has changed", at)
					}
					for _, p := range w.writes {
						vg, _ := names(r, oldID)
						if p != newDev && p != "fast/db5" && !strings.HasPrefix(p, vg+"/") {
							t.Fatalf("killed before call %d: wrote to %s", at, p)
						}
					}
					if runs++; !crashed {
						break
					}
				}
				t.Logf("%d runs", runs)
			})
		}
	}
}

// settle is the operator: it runs the node again, and destroys a claimed id again.
func settle(t *testing.T, w *world, r request.Replace, err error) (Outcome, error) {
	t.Helper()
	var out Outcome
	for range 4 {
		if out, err = Run(context.Background(), w, w, r, now); err == nil {
			return out, nil
		}
		if out.Reason == request.SlotClaimed {
			w.slot, w.uuid, w.made = "destroyed", "", 0
		}
	}
	return out, err
}

// ceph-volume is killed in the middle: the id is claimed, volumes are tagged, mkfs has
// not finished.
func TestCephVolumeIsKilled(t *testing.T) {
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(mode(l[0]), l[1], l[2])
			r := ask(mode(l[0]), l[1], l[2])
			vg, lvName := names(r, oldID)
			w.slot, w.uuid = "new", "33333333-0000-4000-8000-000000000001"
			half := labelOf(w.uuid, 5, false)
			if !l[0] {
				w.uuid = volume.AttemptUUID([8]byte{3}, fsid, oldID)
				half = labelOf(w.uuid, -1, false)
			}
			if l[0] {
				w.vgs[vg] = newDev
				w.lvs[vg+"/"+lvName] = &lv{uuid: "HALF", size: 100 * gib, dev: newDev, tags: tagsOf(5, w.uuid, "block", l[2]), head: half}
				if l[2] {
					w.lvs[vg+"/"+lvName].head, w.lvs[vg+"/"+lvName].half = []byte(luks+w.uuid), true
				}
			} else {
				w.raw[newDev] = half
			}
			if l[1] {
				w.lvs["fast/db5"].tags = tagsOf(5, w.uuid, "db", l[2])
			}
			out, err := Run(t.Context(), w, w, r, now)
			if err == nil || out.Reason != request.SlotClaimed {
				t.Fatalf("%+v, %v", out.Replaced, err)
			}
			out, err = settle(t, w, r, err)
			if err != nil || out.Result != request.Done || w.made != 1 {
				t.Errorf("%+v, %v", out.Replaced, err)
			}
		})
	}
}

// A plain OSD is made without ceph-volume. What an attempt for it has left is known by
// its uuid; any other OSD's label on the disk, also one under the same id, is refused.
func TestPlain(t *testing.T) {
	for name, c := range map[string]struct {
		label []byte
		want  request.Result
	}{
		"blank":                  {nil, request.Done},
		"an attempt":             {labelOf(volume.AttemptUUID([8]byte{1}, fsid, oldID), 5, true), request.Done},
		"a begun attempt":        {labelOf(volume.AttemptUUID([8]byte{2}, fsid, oldID), -1, false), request.Done},
		"an attempt for another": {labelOf(volume.AttemptUUID([8]byte{1}, fsid, sibID), 5, true), request.Refused},
		"an older disk of osd.5": {labelOf("44444444-0000-4000-8000-000000000001", 5, true), request.Refused},
		"the old disk":           {labelOf(oldID, 5, true), request.Refused},
		"a label without its id": {labelOf("44444444-0000-4000-8000-000000000001", -1, false), request.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("raw", false, false)
			if c.label != nil {
				w.raw[newDev] = c.label
			}
			out, err := Run(t.Context(), w, w, ask("raw", false, false), now)
			if out.Result != c.want || (err == nil) != (c.want == request.Done) {
				t.Fatalf("%+v, %v", out.Replaced, err)
			}
			if c.want == request.Refused && (out.Reason != request.DiskInUse || string(w.raw[newDev]) != string(c.label) || w.slot != "destroyed") {
				t.Errorf("%s; slot %s", out.Reason, w.slot)
			}
			if c.want == request.Done && !volume.IsAttempt(out.UUID, fsid, oldID) {
				t.Errorf("the new uuid %s does not say whom it replaces", out.UUID)
			}
			if slices.ContainsFunc(w.ran, func(s string) bool { return strings.HasPrefix(s, "ceph-volume") }) {
				t.Error("ceph-volume was run")
			}
		})
	}
}

// An encrypted OSD whose mapping is closed is whole only if its own key opens it and
// mkfs has finished in it.
func TestClosedMapping(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *lv)
		whole  bool
	}{
		"whole":         {func(*lv) {}, true},
		"half a store":  {func(l *lv) { l.half = true }, false},
		"the old key":   {func(l *lv) { l.head = []byte(luks + "old") }, false},
		"not encrypted": {func(l *lv) { l.head = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("lvm", true, true)
			r := ask("lvm", true, true)
			first, err := Run(t.Context(), w, w, r, now)
			if err != nil {
				t.Fatal(err)
			}
			vg, lvName := names(r, oldID)
			clear(w.open)
			c.change(w.lvs[vg+"/"+lvName])
			out, err := Run(t.Context(), w, w, r, now)
			if c.whole && (err != nil || out.UUID != first.UUID || w.made != 1) || !c.whole && (err == nil || out.Reason != request.SlotClaimed) {
				t.Errorf("%+v, %v", out.Replaced, err)
			}
		})
	}
}

// Several OSDs of one disk: each takes its share of the new one.
func TestSet(t *testing.T) {
	other := "11111111-0000-4000-8000-000000000007"
	w := newWorld("lvm", false, false)
	r := ask("lvm", false, false)
	r.Set = []string{oldID, other}
	vg, mine := names(r, oldID)
	out, err := Run(t.Context(), w, w, r, now)
	if err != nil || w.lvs[vg+"/"+mine].size != 50*gib {
		t.Fatalf("%+v, %v", out.Replaced, err)
	}
	// The second OSD's run finds the group of the first.
	_, theirs := names(r, other)
	r.OldUUID = other
	w.lvs[vg+"/"+mine].tags = tagsOf(7, w.uuid, "block", false)
	w.slot, w.uuid = "destroyed", ""
	if out, err = Run(t.Context(), w, w, r, now); err != nil || w.lvs[vg+"/"+theirs] == nil || w.made != 2 {
		t.Errorf("%+v, %v", out.Replaced, err)
	}
	// A stranger's volume in the group is not written to.
	w.lvs[vg+"/x"] = &lv{uuid: "X", dev: newDev}
	w.slot, w.uuid = "destroyed", ""
	if out, err = Run(t.Context(), w, w, r, now); err == nil || out.Reason != request.DiskInUse {
		t.Errorf("%+v, %v", out.Replaced, err)
	}
}

func TestParseSlot(t *testing.T) {
	for dump, want := range map[string]request.Slot{
		`{"osds":[{"osd":5,"uuid":"` + zeroUUID + `","state":["destroyed","exists"]}]}`: request.SlotDestroyed,
		`{"osds":[{"osd":5,"uuid":"u","state":["exists","new"]}]}`:                      request.SlotNew,
		`{"osds":[{"osd":5,"uuid":"u","state":["exists","up"]}]}`:                       request.SlotUsed,
		`{"osds":[{"osd":5,"uuid":"u","state":["exists"]}]}`:                            request.SlotUsed,
		`{"osds":[{"osd":6,"uuid":"u","state":["exists","up"]}]}`:                       request.SlotGone,
		`{"osds":[{"uuid":"u"}]}`:                                                       request.SlotUnknown,
		`{"osds":[`:                                                                     request.SlotUnknown,
	} {
		got, _, _, err := parseSlot([]byte(dump), 5)
		if got != want || (err != nil) != (want == request.SlotUnknown) {
			t.Errorf("%s: %s, %v, want %s", dump, got, err, want)
		}
	}
}
