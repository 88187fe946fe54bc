package replace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Whatever is told is told on the Deployment, which the user has annotated, and on the
// CephCluster, where monitoring looks.
func TestEventsAreOnBothObjects(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: spec.Name(5), UID: "uid", ResourceVersion: "1"}}
	note := plan.Note{UUID: "u", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u", Data: prepare.Part{Path: "/dev/sdb", Serial: "S"}}, Attempt: &plan.Attempt{Number: 1, Device: "/dev/sdx"}}
	seen := Seen{Deployment: d, Jobs: jobs{close: endedJob("c", begun, false), zap: endedJob("z", begun, false)}, State: plan.State{ID: 5, Note: &note, Fresh: note, Refusal: &plan.Refusal{Reason: "R", Message: "m"}, Warnings: []string{"a kernel name"},
		Match: &swap.Match{OSD: 5, Device: "/dev/sdx", Warnings: []string{"it is smaller"}}}}
	events := 0
	for _, k := range []plan.Kind{plan.Refuse, plan.Unrefuse, plan.Accept, plan.Adopt, plan.Fence, plan.Unready, plan.Begin, plan.Out, plan.Stop, plan.Halt, plan.Down, plan.Destroy, plan.Show,
		plan.TooLate, plan.Remember, plan.Claim, plan.Failure, plan.Lost, plan.Reclaim, plan.Handover, plan.Complete, plan.Drop, plan.In, plan.Reweight, plan.Release, plan.Purge, plan.Remove,
		plan.Mourn, plan.Revive, plan.Bury, plan.Force, plan.Weigh, plan.Unclosed, plan.Unzapped, plan.Tell} {
		p := effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: k, Message: "what is done"})
		if p.Err != nil {
			t.Errorf("%s: %v", k, p.Err)
		}
		on := map[bool][]string{}
		for _, e := range p.Events {
			if e.Object != nil && e.Object != kit.Object(d) {
				t.Errorf("%s: an event on %T", k, e.Object)
			}
			if !strings.HasPrefix(e.Message, "osd.5: ") {
				t.Errorf("%s does not say which OSD: %q", k, e.Message)
			}
			on[e.Object != nil] = append(on[e.Object != nil], e.Reason+" "+e.Message)
			events++
		}
		if diff := cmp.Diff(on[false], on[true]); diff != "" {
			t.Errorf("%s (-on the CephCluster +on the Deployment):\n%s", k, diff)
		}
	}
	if events < 40 {
		t.Errorf("only %d events", events)
	}
}

// Every reason of an event is in the documentation.
func TestReasonsOfEventsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "osd-replacement.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range []string{"act.go", "setact.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range regexp.MustCompile(`"OSDReplace[A-Za-z]+"`).FindAllString(string(source), -1) {
			found++
			if !strings.Contains(string(doc), "`"+strings.Trim(reason, `"`)+"`") {
				t.Errorf("%s of %s is not in docs/osd-replacement.md", reason, file)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d reasons", found)
	}
}

// The record that is written before anything is destroyed has all that the OSD is made
// again from.
func TestTheRecord(t *testing.T) {
	rec := osdplan.Record{Node: "n1", Host: "h1", Result: prepare.Result{ID: 5, UUID: "u5", Mode: "lvm", Encrypted: true,
		Data: prepare.Part{Path: "/dev/sdb", ByID: "/dev/disk/by-id/x", ByPath: "/dev/disk/by-path/p", Serial: "S", WWN: "0x5", Slot: "3", Size: 1 << 40, VG: "vg", LV: "block", LVUUID: "lvu"},
		DB:   &prepare.Part{VG: "fast", LV: "db", LVUUID: "dbu", Size: 1 << 30}, WAL: &prepare.Part{VG: "fast", LV: "wal", LVUUID: "walu", Size: 1 << 20}}}
	c := check.Capacity{}
	c.Tree.Nodes = []cephosd.Node{
		{ID: -1, Name: "default", Type: "root", Children: []int{-2}}, {ID: -2, Name: "h1", Type: "host", Children: []int{5}},
		{ID: 5, Name: "osd.5", Type: "osd", CrushWeight: 0.75, DeviceClass: "hdd"},
	}
	v := &view{now: time.Unix(1790000000, 0)}
	v.osdmap.OSDs = []cephosd.OSD{{ID: 5, UUID: "u5", In: true, Weight: 0.5}}
	var got map[string]any
	if err := json.Unmarshal([]byte(v.note(5, rec, c).Encode()), &got); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"uuid": "u5", "node": "n1", "host": "h1", "record.encrypted": true, "record.mode": "lvm",
		"record.data.byID": "/dev/disk/by-id/x", "record.data.byPath": "/dev/disk/by-path/p", "record.data.serial": "S", "record.data.wwn": "0x5", "record.data.slot": "3", "record.data.size": float64(1 << 40),
		"record.db.vg": "fast", "record.db.lv": "db", "record.db.lvUUID": "dbu", "record.db.size": float64(1 << 30),
		"record.wal.vg": "fast", "record.wal.lv": "wal", "record.wal.lvUUID": "walu", "record.wal.size": float64(1 << 20),
		"before.in": true, "before.reweight": 0.5, "before.crushWeight": 0.75, "before.class": "hdd", "before.location.host": "h1", "before.location.root": "default", "before.replicas": float64(1),
	} {
		var at any = got
		for _, k := range strings.Split(path, ".") {
			m, _ := at.(map[string]any)
			at = m[k]
		}
		if at != want {
			t.Errorf("%s is %v, want %v", path, at, want)
		}
	}
}

func TestProgress(t *testing.T) {
	begun := time.Unix(1790000000, 0)
	e := Entry{State: plan.State{Note: &plan.Note{Drain: &plan.Drain{Since: begun, PGs: 32, Bytes: 3 << 30}}}, Action: plan.Action{Phase: cephv1.OSDReplacementDraining}, Left: 12, Counted: true}
	at := begun.Add(20 * time.Second)
	want := "62% (12 of 32 PGs left, about 1.12 GiB of 3 GiB, 96 MiB/s, 12s to go)"
	got := progress(e, at, "")
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// In steps of a hundredth: time alone is not written.
	if again := progress(e, at.Add(time.Minute), got); again != got {
		t.Errorf("%q", again)
	}
	e.Counted = false
	if unknown := progress(e, at, got); unknown != got {
		t.Errorf("while Ceph is silent: %q", unknown)
	}
	e.Counted, e.Left = true, 40
	if more := progress(e, at, ""); !strings.HasPrefix(more, "0% (40 of 40 PGs left") {
		t.Errorf("PGs came: %q", more)
	}
}

// While it drains the user reads more than that it drains, if there is more.
func TestWhatIsAwaitedWhileDraining(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"Draining", "its data is being moved to other OSDs"},
		{"DeviceSeemsDead", "the message (the hint)"},
		{"SafetyUnknown", "the message (the hint)"},
		{"NowhereToDrain", "the message (the hint)"},
	} {
		seen := OverviewSeen{Now: time.Unix(1790000000, 0), Entries: []Entry{{State: plan.State{ID: 5}, Action: plan.Action{Kind: plan.Wait, Phase: cephv1.OSDReplacementDraining, Reason: c.reason, Message: "the message", Hint: "the hint"}}}}
		if got := replacements(seen, nil); len(got) != 1 || got[0].WaitingFor != c.want {
			t.Errorf("%s: %+v", c.reason, got)
		}
	}
}

// How the node has left the volumes after a failed attempt.
func TestVolumesThatAreLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		r    request.Replaced
		want string
	}{
		{"none", request.Replaced{}, ""},
		{"kept", request.Replaced{DB: &request.LV{VG: "fast", Name: "db5", UUID: "dbu"}}, "its database volume fast/db5 is kept"},
		{"another one, on a new metadata device", request.Replaced{DB: &request.LV{VG: "fast2", Name: "db5", UUID: "new"}}, ""},
		{"made again, siblings as they were", request.Replaced{DB: &request.LV{VG: "fast", Name: "db5"}, Remade: []string{"fast/db5"}, Siblings: []request.SiblingLV{{OSD: 6, VG: "fast", LV: "db6"}, {OSD: 6, VG: "fast", LV: "wal6"}, {OSD: 7, VG: "fast", LV: "db7"}}},
			"made again with the same size, since the rollback had removed them: fast/db5; the volumes of osd.6, osd.7 beside it were checked and are as they were"},
		{"a sibling has changed", request.Replaced{Siblings: []request.SiblingLV{{OSD: 6, VG: "fast", LV: "db6", Changed: "its uuid"}}}, "WARNING: the volume fast/db6 of osd.6 is not as it was: its uuid"},
	} {
		if got := volumes(&c.r, &prepare.Part{VG: "fast", LV: "db5", LVUUID: "dbu"}); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// The old disk of an OSD on a volume, wiped in its slot, is not taken for another one
// because a volume is smaller than its disk. Nothing else tells it: it has no serial.
func TestTheOldDiskOfAVolumeWithoutASerial(t *testing.T) {
	n := plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5", Mode: "lvm", Data: prepare.Part{Path: "/dev/vg/block", ByPath: "/dev/disk/by-path/p1", VG: "vg", LV: "block", Size: 1<<40 - 4<<20}}}
	wiped := device.Device{Name: "sdb", Path: "/dev/sdb", Type: device.Disk, HasNode: true, Size: 1 << 40, Links: []string{"/dev/disk/by-path/p1"}}
	out := swap.Find([]swap.Pending{n.Pending("")}, []device.Device{wiped})
	if len(out.Matches) > 0 || !strings.Contains(out.Questions[5], "nothing tells the disk") {
		t.Errorf("%+v", out)
	}
}
