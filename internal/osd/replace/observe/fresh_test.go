package observe

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// An OSD whose note was taken away is not taken for one that is replaced alone while
// another one's note has it in its set: its own disk would be the one to pull.
func TestAMemberOfASetWithoutItsNote(t *testing.T) {
	for _, c := range []struct {
		name  string
		alone bool
	}{{"the other's note is there", false}, {"no note has it in its set", true}} {
		h := newHalf(t)
		h.v.Stored = access.Cluster{Ceph: cephtest.Healthy(t, 3, 3)}
		delete(h.v.Deployments[5].Annotations, spec.NoteAnnotation)
		if c.alone {
			delete(h.v.Deployments[6].Annotations, spec.NoteAnnotation)
		}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: "0", InProgress: true, Ready: true}}
		if err := s.fresh(t.Context(), nil, &cephv1.CephCluster{}, h.v, h.v.Deployments[5]); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(s.FreshProblem, "replaced together"); got == c.alone {
			t.Errorf("%s: %q", c.name, s.FreshProblem)
		}
	}
}

// The notes of a whole set may be gone: what is recorded on the Deployments says that they had
// one disk, where Ceph's map has only destroyed OSDs.
func TestASetWithoutAnyNote(t *testing.T) {
	for name, together := range map[string]bool{"one disk": true, "two disks": false} {
		h := newHalf(t)
		h.v.Stored = access.Cluster{Ceph: cephtest.Healthy(t, 3, 3)}
		for _, id := range []int{5, 6} {
			rec := withDatabase(id, map[int]string{5: "u5", 6: "u6"}[id], "OLD")
			if together {
				rec.Data.Serial = "SHARED"
			}
			b, err := json.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			h.v.Deployments[id].Annotations[spec.RecordAnnotation] = string(b)
			delete(h.v.Deployments[id].Annotations, spec.NoteAnnotation)
		}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: "0", InProgress: true, Ready: true}}
		if err := s.fresh(t.Context(), nil, &cephv1.CephCluster{}, h.v, h.v.Deployments[5]); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(s.FreshProblem, "replaced together"); got != together {
			t.Errorf("%s: %q", name, s.FreshProblem)
		}
	}
}

// A new request for an OSD that has not come up on its new disk is a request; how it was
// before is how it was before the first.
func TestANewRequestWhileTheOSDStarts(t *testing.T) {
	former := plan.Note{UUID: "u4", Replaced: "v4", Node: "n1", Record: withDatabase(4, "u4", "OLD"), Before: plan.Before{In: true, Reweight: 0.8, CrushWeight: 2, Replicas: 1}}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		osd         cephosd.OSD
		want        bool
	}{
		{"no request", nil, cephosd.OSD{ID: 4, UUID: "v4", State: []string{"exists", "new"}}, false},
		{"by its disk", map[string]string{spec.ReplaceAnnotation: "x"}, cephosd.OSD{ID: 4, UUID: "v4", State: []string{"exists", "new"}}, true},
		{"by its metadata device", map[string]string{spec.MetadataAnnotation: spec.LossConfirmation(4)}, cephosd.OSD{ID: 4, UUID: "v4", In: true}, true},
		{"up and in: that one ends first", map[string]string{spec.ReplaceAnnotation: spec.Confirmation(4)}, cephosd.OSD{ID: 4, UUID: "v4", Up: true, In: true}, false},
		{"another OSD by now", map[string]string{spec.ReplaceAnnotation: spec.Confirmation(4)}, cephosd.OSD{ID: 4, UUID: "w4"}, false},
		{"destroyed by somebody", map[string]string{spec.ReplaceAnnotation: spec.Confirmation(4)}, cephosd.OSD{ID: 4, UUID: "v4", State: []string{"destroyed"}}, false},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: spec.Name(4), Annotations: map[string]string{spec.ReplacedAnnotation: former.Encode()}}}
		for k, v := range c.annotations {
			d.Annotations[k] = v
		}
		s := facts{State: plan.State{ID: 4, Answered: true, Exists: true, Destroyed: c.osd.Destroyed(), Up: bool(c.osd.Up), In: bool(c.osd.In), UUID: c.osd.UUID}}
		s.marks(d, nil)
		s.again(d)
		if got := s.former != nil && s.Note == nil && s.Asked; got != c.want || !c.want && s.Note == nil {
			t.Errorf("%s: %+v", c.name, s.State)
		}
		if c.want && (s.former.Before.Reweight != 0.8 || plan.Next(s.State).Kind == plan.None) {
			t.Errorf("%s: %+v", c.name, plan.Next(s.State))
		}
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
	v := &view.View{Now: time.Unix(1790000000, 0)}
	v.OSDMap.OSDs = []cephosd.OSD{{ID: 5, UUID: "u5", In: true, Weight: 0.5}}
	var got map[string]any
	if err := json.Unmarshal([]byte(noteOf(v, 5, rec, c).Encode()), &got); err != nil {
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

// The size of the disk to pull is that of the disk, not of what lies on it.
func TestTheSizeOfTheDiskToPull(t *testing.T) {
	set := &plan.Set{Kind: plan.OnMetadata, Leader: 5, Members: []plan.Member{{ID: 5, UUID: "u5"}}}
	n := plan.Note{UUID: "u5", Node: "n1", Record: withDatabase(5, "u5", "OLD"), Set: set}
	v := &view.View{Maps: map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{"devices": `[
		{"path":"/dev/nvme0n1p1","type":"part","size":1,"serial":"OLD"},{"path":"/dev/nvme0n1","type":"disk","size":4096,"serial":"OLD"},{"path":"/dev/sdf","type":"disk","size":9,"serial":"HDD5"}]`}}}}
	n.Whole = wholeOf(v, n)
	if n.Whole != 4096 || n.Old().Size != 4096 {
		t.Errorf("%d, %+v", n.Whole, n.Old())
	}
	n.Set = nil
	if got := wholeOf(v, n); got != 9 {
		t.Errorf("of the data's disk: %d", got)
	}
	n.Record.Data.Serial = "ELSE"
	if got := wholeOf(v, n); got != 0 {
		t.Errorf("of a disk that is not reported: %d", got)
	}
}
