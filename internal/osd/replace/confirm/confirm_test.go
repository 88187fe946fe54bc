package confirm

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

var begun = time.Unix(1790000000, 0).UTC()

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

// An id is not taken back while a Job prepares a disk for it, or has done so unseen by the cache.
func TestAnIDIsNotTakenBackFromAJob(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		running bool
		live    string
		seen    types.UID
		waits   bool
	}{
		{"there is none", false, "", "", false},
		{"it runs", true, "m", "m", true},
		{"it has ended, as was seen", false, "m", "m", false},
		{"it has ended, and was not seen", false, "m", "", true},
		{"another has ended", false, "m", "l", true},
	} {
		var objects []client.Object
		if c.live != "" {
			job := endedJob(c.live, begun, true)
			job.Namespace, job.Name, job.UID = "ns", spec.MakeName(5), ""
			if c.running {
				job.Status = batchv1.JobStatus{}
			}
			objects = append(objects, job)
		}
		store, err := kittest.NewStore(scheme, objects...)
		if err != nil {
			t.Fatal(err)
		}
		seen := c.seen
		if seen == "m" { // the store gives the uids
			var job batchv1.Job
			if err := store.Client().Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: spec.MakeName(5)}, &job); err != nil {
				t.Fatal(err)
			}
			seen = job.UID
		}
		ctl := Checker{Access: access.Reader{Live: store.Client()}}
		w, err := ctl.noJob(t.Context(), Still{For: plan.Reclaim, ID: 5, Namespace: "ns", Job: seen})
		if err != nil || (w != nil) != c.waits {
			t.Errorf("%s: %+v, %v", c.name, w, err)
		}
	}
}

// That a loss is accepted lets an OSD be marked out without room only while its metadata
// device is really dead: on a node that is ready, with no OSD of it running.
func TestAnAcceptedLossNeedsADeadDeviceToSkipTheQueue(t *testing.T) {
	for _, c := range []struct {
		name                    string
		accepted, stopped, pods bool
		node                    corev1.ConditionStatus
		waits                   bool
	}{
		{"dead, and accepted", true, true, false, corev1.ConditionTrue, false},
		{"it runs", true, false, true, corev1.ConditionTrue, true},
		{"Ceph calls it down, and its pod is ready", true, true, true, corev1.ConditionTrue, true},
		{"its node is not ready", true, true, false, corev1.ConditionUnknown, true},
		{"dead, and not accepted", false, true, false, corev1.ConditionTrue, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := cephtest.Healthy(t, 3, 1)
			if _, err := mem.Mon(t.Context(), ceph.Cmd("osd pool create", "pool", "data", "pg_num", 8, "pool_type", "replicated", "size", 3)); err != nil {
				t.Fatal(err)
			}
			mem.Settle()
			m, err := cephosd.New(mem).Dump(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o, _ := m.Find(0)
			note := plan.Note{UUID: o.UUID, Node: "n0", Host: "n0", Record: prepare.Result{ID: 0, UUID: o.UUID},
				Set: &plan.Set{Kind: plan.OnMetadata, Leader: 0, Members: []plan.Member{{ID: 0, UUID: o.UUID}}}}
			value := spec.MetadataConfirmation(0)
			if c.accepted {
				value = spec.LossConfirmation(0)
			}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: spec.Name(0), Labels: map[string]string{"app": spec.App, spec.IDLabel: "0"},
				Annotations: map[string]string{spec.MetadataAnnotation: value, spec.NoteAnnotation: note.Encode()}}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.node}}}}
			if c.pods {
				d.Status.ReadyReplicas = 1
			}
			scheme := runtime.NewScheme()
			if err := clientgoscheme.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			store, err := kittest.NewStore(scheme, d, node)
			if err != nil {
				t.Fatal(err)
			}
			if c.stopped {
				mem.StopOSD(0)
				mem.Tick(3)
			}
			ctl := Checker{Access: access.Reader{Live: store.Client()}}
			ctx := kit.WithPass(t.Context(), kit.Pass{Now: kittest.Stopped()})
			w, err := ctl.turnNow(ctx, mem, Still{For: plan.Out, ID: 0, UUID: o.UUID, Namespace: "ns", Name: spec.Name(0), Set: note.Set, Node: "n0"})
			if err != nil || (w != nil) != c.waits || w != nil && w.Reason != "Queued" {
				t.Errorf("%+v %v, waits %v", w, err, c.waits)
			}
		})
	}
}
