package osd

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
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
