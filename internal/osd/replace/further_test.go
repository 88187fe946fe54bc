package replace

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

var begun = time.Unix(1790000000, 0).UTC()

// half is a node whose metadata device OLD was lost, and whose new one, X, has failed when
// osd.4 was on it: osd.5 and osd.6 still wait.
type half struct {
	v     *view
	notes map[int]*plan.Note
}

func withDatabase(id int, uuid, serial string) prepare.Result {
	return prepare.Result{ID: id, UUID: uuid, Mode: "lvm", FSID: "f",
		Data: prepare.Part{Path: "/dev/sd" + string(rune('a'+id)), Serial: "HDD" + string(rune('0'+id)), VG: "data", LV: "block", LVUUID: "lv", Size: 1 << 40},
		DB:   &prepare.Part{Serial: serial, ByPath: "/dev/disk/by-path/nvme-1", VG: "vg-" + serial, LV: "db" + string(rune('0'+id)), LVUUID: "db-" + uuid, Size: 1 << 30}}
}

func newHalf(t *testing.T) *half {
	t.Helper()
	set := &plan.Set{Kind: plan.OnMetadata, Leader: 4, Members: []plan.Member{{ID: 4, UUID: "u4"}, {ID: 5, UUID: "u5"}, {ID: 6, UUID: "u6"}}}
	h := &half{v: &view{now: begun, deps: map[int]*appsv1.Deployment{}, jobs: map[string]*batchv1.Job{}, nodes: map[string]*corev1.Node{}}, notes: map[int]*plan.Note{}}
	h.v.nodes["n1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for _, id := range []int{5, 6} {
		u := map[int]string{5: "u5", 6: "u6"}[id]
		h.notes[id] = &plan.Note{UUID: u, Node: "n1", Host: "n1", Record: withDatabase(id, u, "OLD"), Accepted: begun, Set: set,
			Attempt: &plan.Attempt{Number: 1, Device: "/dev/nvme1n1", Serial: "X", Failed: "this node has no /dev/nvme1n1"}}
		h.v.osdmap.OSDs = append(h.v.osdmap.OSDs, cephosd.OSD{ID: id, UUID: "0", State: []string{"destroyed", "exists"}})
	}
	h.v.osdmap.OSDs = append(h.v.osdmap.OSDs, cephosd.OSD{ID: 4, UUID: "v4", In: true, State: []string{"exists"}})
	h.deployment(t, 4)
	record, err := json.Marshal(withDatabase(4, "v4", "X"))
	if err != nil {
		t.Fatal(err)
	}
	h.v.deps[4].Annotations[spec.RecordAnnotation] = string(record)
	h.deployment(t, 5)
	h.deployment(t, 6)
	return h
}

// deployment makes the OSD's Deployment from its note.
func (h *half) deployment(t *testing.T, id int) {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: spec.Name(id), Labels: map[string]string{"app": spec.App, spec.IDLabel: string(rune('0' + id))}, Annotations: map[string]string{}}}
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
	d.Spec.Replicas = ptr.To[int32](1)
	if n := h.notes[id]; n != nil {
		d.Annotations[spec.NoteAnnotation], d.Annotations[spec.ReadyAnnotation], d.Annotations[spec.InProgressAnnotation] = n.Encode(), "true", "true"
		d.Spec.Replicas = ptr.To[int32](0)
	}
	h.v.deps[id] = d
}

// again: osd.4 is asked for once more, and destroyed or not.
func (h *half) again(t *testing.T, destroyed bool) {
	t.Helper()
	h.notes[4] = &plan.Note{UUID: "v4", Node: "n1", Host: "n1", Record: withDatabase(4, "v4", "X"), Accepted: begun.Add(time.Hour),
		Set: &plan.Set{Kind: plan.OnMetadata, Leader: 4, Members: []plan.Member{{ID: 4, UUID: "v4"}}}}
	h.deployment(t, 4)
	h.v.deps[4].Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(4)
	if !destroyed {
		delete(h.v.deps[4].Annotations, spec.ReadyAnnotation)
		return
	}
	h.v.osdmap.OSDs[2] = cephosd.OSD{ID: 4, UUID: "0", State: []string{"destroyed", "exists"}}
}

// state of an OSD as the replacement sees it.
func (h *half) state(id int) facts {
	s := facts{State: plan.State{ID: id, Answered: true, Note: h.notes[id]}}
	s.set(h.v)
	return s
}

// An OSD that was rebuilt on the new metadata device before it failed is not left behind:
// the next device waits for it, unless it works, or the user has decided.
func TestAnOSDThatIsStillOnTheFailedDevice(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*half)
		named  bool
		says   string
		hint   string
	}{
		{"down", func(*half) {}, false, "osd.4 was rebuilt on /dev/nvme1n1 before that failed, and is down", "rook-ceph-osd-4 osd.rook.io/replace-metadata-device=yes-really-replace-metadata-of-osd-4"},
		{"down, and the disk is named", func(*half) {}, true, "", ""},
		{"up", func(h *half) { h.v.osdmap.OSDs[2].Up = true }, false, "", ""},
		{"its pod is ready", func(h *half) { h.v.deps[4].Status.ReadyReplicas = 1 }, false, "", ""},
		{"on another device", func(h *half) {
			b, _ := json.Marshal(withDatabase(4, "v4", "Z"))
			h.v.deps[4].Annotations[spec.RecordAnnotation] = string(b)
		}, false, "", ""},
		{"asked for", func(h *half) { h.v.deps[4].Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(4) }, false, "is being checked", ""},
		{"refused", func(h *half) {
			h.v.deps[4].Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(4)
			h.v.deps[4].Annotations[spec.RefusedAnnotation] = "NoRoom: full"
		}, false, "NoRoom: full", "comes along"},
		{"accepted", func(h *half) { h.again(t, false) }, true, "is being replaced again", "cancel it"},
		{"destroyed again", func(h *half) { h.again(t, true) }, false, "", ""},
		{"the attempt has not failed", func(h *half) { h.notes[5].Attempt.Failed = "" }, false, "", ""},
	} {
		h := newHalf(t)
		c.change(h)
		s := h.state(5)
		s.behind(h.v, c.named)
		if (s.Behind == "") != (c.says == "") || !strings.Contains(s.Behind, c.says) || !strings.Contains(s.BehindHint, c.hint) {
			t.Errorf("%s: %q (%s)", c.name, s.Behind, s.BehindHint)
		}
	}
}

// Once it is destroyed again it waits for the same device as the others, and all know of
// each other.
func TestOSDsOfTwoSetsWaitForOneDevice(t *testing.T) {
	h := newHalf(t)
	h.again(t, true)
	var deps []appsv1.Deployment
	for _, id := range []int{6, 4, 5} {
		deps = append(deps, *h.v.deps[id])
	}
	slots := pending.Of(deps)["n1"]
	old := swap.Disk{Serial: "OLD", ByPath: "/dev/disk/by-path/nvme-1"}
	var ids []int
	for _, p := range slots {
		if ids = append(ids, p.OSD); p.Old != old {
			t.Errorf("osd.%d waits for what takes the place of %+v", p.OSD, p.Old)
		}
	}
	if diff := cmp.Diff([]int{4, 5, 6}, ids); diff != "" {
		t.Error(diff)
	}
	joined := func(id int) (out []int) {
		for _, m := range h.state(id).Joined {
			if !m.Claimed || !m.Gone {
				t.Errorf("osd.%d sees %+v", id, m)
			}
			out = append(out, m.ID)
		}
		return out
	}
	if diff := cmp.Diff([][]int{{5, 6}, {4}, {4}}, [][]int{joined(4), joined(5), joined(6)}); diff != "" {
		t.Error(diff)
	}
	if a, b := h.state(4).Need, h.state(5).Need; a != 3<<30 || b != 3<<30 {
		t.Errorf("the new device needs %d and %d bytes", a, b)
	}
	// The databases of all come into one volume group, whatever group each was in last.
	s4 := h.state(4)
	s4.Note.Attempt = &plan.Attempt{Number: 1, Device: "/dev/nvme2n1", Serial: "Y", VG: "vg-OLD"}
	r := jobs{}.replaceRequest(Seen{State: s4.State, Cluster: podspec.Cluster{}})
	if r.DB == nil || r.DB.VG != "vg-OLD" || r.DBSerial != "Y" || r.DB.Name != "db4" {
		t.Errorf("the request for osd.4: %+v", r.DB)
	}
	s5 := h.state(5)
	s5.Note.Attempt = &plan.Attempt{Number: 2, Device: "/dev/nvme2n1", Serial: "Y"}
	if r := (jobs{}).replaceRequest(Seen{State: s5.State, Cluster: podspec.Cluster{}}); r.DB == nil || r.DB.VG != "vg-OLD" {
		t.Errorf("the request for osd.5: %+v", r.DB)
	}
	// One on the next device: it is not blank any more.
	h.v.osdmap.OSDs[0] = cephosd.OSD{ID: 5, UUID: "v5", State: []string{"exists"}}
	h.v.records = append(h.v.records, osdplan.Record{Result: withDatabase(5, "v5", "Y"), Node: "n1"})
	h.notes[6].Attempt = &plan.Attempt{Number: 2, Device: "/dev/nvme2n1", Serial: "Y"}
	if s := h.state(6); !s.Begun {
		t.Error("the device of osd.5 counts as blank")
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
