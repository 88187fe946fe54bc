package observe

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

var begun = time.Unix(1790000000, 0).UTC()

// half is a node whose metadata device OLD was lost, and whose new one, X, has failed when
// osd.4 was on it: osd.5 and osd.6 still wait.
type half struct {
	v     *view.View
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
	h := &half{v: &view.View{Now: begun, Deployments: map[int]*appsv1.Deployment{}, Jobs: map[string]*batchv1.Job{}, Nodes: map[string]*corev1.Node{}}, notes: map[int]*plan.Note{}}
	h.v.Nodes["n1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for _, id := range []int{5, 6} {
		u := map[int]string{5: "u5", 6: "u6"}[id]
		h.notes[id] = &plan.Note{UUID: u, Node: "n1", Host: "n1", Record: withDatabase(id, u, "OLD"), Accepted: begun, Set: set,
			Attempt: &plan.Attempt{Number: 1, Device: "/dev/nvme1n1", Serial: "X", Failed: "this node has no /dev/nvme1n1"}}
		h.v.OSDMap.OSDs = append(h.v.OSDMap.OSDs, cephosd.OSD{ID: id, UUID: "0", State: []string{"destroyed", "exists"}})
	}
	h.v.OSDMap.OSDs = append(h.v.OSDMap.OSDs, cephosd.OSD{ID: 4, UUID: "v4", In: true, State: []string{"exists"}})
	h.deployment(t, 4)
	record, err := json.Marshal(withDatabase(4, "v4", "X"))
	if err != nil {
		t.Fatal(err)
	}
	h.v.Deployments[4].Annotations[spec.RecordAnnotation] = string(record)
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
	h.v.Deployments[id] = d
}

// again: osd.4 is asked for once more, and destroyed or not.
func (h *half) again(t *testing.T, destroyed bool) {
	t.Helper()
	h.notes[4] = &plan.Note{UUID: "v4", Node: "n1", Host: "n1", Record: withDatabase(4, "v4", "X"), Accepted: begun.Add(time.Hour),
		Set: &plan.Set{Kind: plan.OnMetadata, Leader: 4, Members: []plan.Member{{ID: 4, UUID: "v4"}}}}
	h.deployment(t, 4)
	h.v.Deployments[4].Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(4)
	if !destroyed {
		delete(h.v.Deployments[4].Annotations, spec.ReadyAnnotation)
		return
	}
	h.v.OSDMap.OSDs[2] = cephosd.OSD{ID: 4, UUID: "0", State: []string{"destroyed", "exists"}}
}

// state of an OSD as the replacement sees it.
func (h *half) state(id int) facts {
	s := facts{State: plan.State{ID: id, Answered: true, Note: h.notes[id]}}
	s.set(h.v)
	return s
}

func endedJob(uid string, at time.Time, ok bool) *batchv1.Job {
	kind := batchv1.JobFailed
	if ok {
		kind = batchv1.JobComplete
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: spec.MakeName(5), UID: types.UID(uid), Labels: map[string]string{spec.UUIDLabel: "u5"}},
		Status:     batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}},
	}
}
