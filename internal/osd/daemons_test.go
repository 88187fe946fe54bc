package osd

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

func deployment(id int, image string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Name, d.Annotations = spec.Name(id), map[string]string{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "osd", Image: image}}
	return d
}

// While mons and mgrs are not upgraded, no OSD gets the new version: not one that is
// down, and not a new one.
func TestNoOSDGoesBeforeTheGate(t *testing.T) {
	cl := &cephv1.CephCluster{}
	cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "new", Version: "20.2.4-0"}
	seen := func(gate string) DaemonSeen {
		return DaemonSeen{
			Founded: true, Cluster: podspec.Cluster{CephImage: "new"}, Gate: gate, StartGate: gate,
			State:  plan.State{Answered: true, Known: map[int]plan.Known{0: {UUID: "u"}, 1: {UUID: "v"}}, Live: map[int]plan.Live{0: {UUID: "u"}}},
			Live:   map[int]*appsv1.Deployment{0: deployment(0, "old")},
			Wanted: map[int]*appsv1.Deployment{0: deployment(0, "new"), 1: deployment(1, "new")},
			Decisions: []plan.Decision{
				{ID: 0, What: plan.Keep}, {ID: 1, What: plan.Create},
			},
			Outdated: []int{0}, Down: []int{0}, Roll: plan.Rolling{Left: 1},
		}
	}
	c := &Daemons{}
	p := c.Plan(cl, seen("1 mon at 19.2.3"))
	if len(p.Apply) != 0 || len(p.Do) != 0 || p.Wait == nil || p.Wait.Reason != "UpgradeOrder" {
		t.Errorf("closed gate: %d applied, %d done, %+v", len(p.Apply), len(p.Do), p.Wait)
	}
	p = c.Plan(cl, seen(""))
	if len(p.Apply) != 2 {
		t.Fatalf("open gate: %d applied", len(p.Apply))
	}
	marked := map[string]bool{}
	for _, o := range p.Apply {
		marked[o.GetName()] = o.GetAnnotations()[spec.WasDownAnnotation] != ""
	}
	if !marked[spec.Name(0)] || marked[spec.Name(1)] {
		t.Errorf("only the OSD that was down is marked so: %v", marked)
	}
}

// A Deployment that was deleted by hand leaves its pod on a node that does not answer: a
// second one would run the same OSD while the first may still write.
func TestAnOSDWhosePodIsThereIsNotStartedAgain(t *testing.T) {
	pod := func(name, id string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": spec.App, spec.IDLabel: id}},
			Spec:       corev1.PodSpec{NodeName: "lost"},
		}
	}
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "new", Version: "20.2.4-0"}
	seen := DaemonSeen{
		Founded: true, Live: map[int]*appsv1.Deployment{0: deployment(0, "new")},
		State:     plan.State{Answered: true, Known: map[int]plan.Known{1: {UUID: "v"}, 2: {UUID: "w"}}},
		Wanted:    map[int]*appsv1.Deployment{1: deployment(1, "new"), 2: deployment(2, "new")},
		Decisions: []plan.Decision{{ID: 1, What: plan.Create}, {ID: 2, What: plan.Create}},
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	store, err := kittest.NewStore(scheme, pod("runs", "0"), pod("stuck", "1"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Daemons{Base: Base{Access: access.Reader{Live: store.Client()}}}
	if err := c.lingering(t.Context(), cl, &seen); err != nil {
		t.Fatal(err)
	}
	p := c.Plan(cl, seen)
	if len(p.Apply) != 1 || p.Apply[0].GetName() != spec.Name(2) {
		t.Errorf("started: %v", p.Apply)
	}
	if p.Wait == nil || p.Wait.Object != "osd.1" || !strings.Contains(p.Wait.Message, "stuck on node lost") {
		t.Errorf("wait %+v", p.Wait)
	}
}

// The fence of a replacement can be all that is left of its marks: then an OSD that has
// never run is waited for, and only this says by what it is held.
func TestAFenceThatKeepsAnOSDFromStartingIsNamed(t *testing.T) {
	live := plan.Live{UUID: "old", Skipped: true}
	for _, tc := range []struct {
		name  string
		live  plan.Live
		known plan.Known
		want  string
	}{
		{"left over", live, plan.Known{UUID: "new"}, "osd.0 are not up yet; osd.0 is left alone, as its Deployment has the label ceph.rook.io/do-not-reconcile, and is for uuid old, which is new now: remove the label, and the Deployment is made for the disk that carries it"},
		{"of the same disk", live, plan.Known{UUID: "old"}, "osd.0 are not up yet; osd.0 is left alone, as its Deployment has the label ceph.rook.io/do-not-reconcile"},
		{"none", plan.Live{UUID: "new"}, plan.Known{UUID: "new"}, "osd.0 are not up yet"},
		{"has run", live, plan.Known{UUID: "new", Booted: true}, ""},
	} {
		seen := DaemonSeen{
			State:     plan.State{Answered: true, Known: map[int]plan.Known{0: tc.known}, Live: map[int]plan.Live{0: tc.live}},
			Decisions: []plan.Decision{{ID: 0, What: plan.Leave}},
		}
		got := ""
		if w := starting(seen); w != nil {
			got = w.Message
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
