package replace

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

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
		ctl := &Controller{Base{Access: access.Reader{Live: store.Client()}}}
		w, err := ctl.noJob(t.Context(), Still{For: plan.Reclaim, ID: 5, Namespace: "ns", Job: seen})
		if err != nil || (w != nil) != c.waits {
			t.Errorf("%s: %+v, %v", c.name, w, err)
		}
	}
}
