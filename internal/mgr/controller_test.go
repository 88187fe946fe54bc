package mgr

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/kit"
)

func deployment(id string, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Name = "rook-ceph-mgr-" + id
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"mgr": id}}
	d.Status.ReadyReplicas = ready
	return d
}

// Two mgrs that a bad spec has broken do not wait for each other when it is corrected.
func TestBrokenMgrsAreUpdatedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		a, b   int32
		active string
		want   string
	}{
		{"both are up: the standby first", 1, 1, "a", "rook-ceph-mgr-b"},
		{"both are broken", 0, 0, "", "rook-ceph-mgr-a"},
		{"the active one is broken, and still counts as active", 0, 1, "a", "rook-ceph-mgr-a"},
		{"the standby is broken", 1, 0, "a", "rook-ceph-mgr-b"},
	} {
		seen := Seen{Live: map[string]*appsv1.Deployment{"a": deployment("a", tc.a), "b": deployment("b", tc.b)}, Stat: mgr.Stat{Active: tc.active}}
		var p kit.Plan
		update(seen, []*appsv1.Deployment{deployment("a", 0), deployment("b", 0)}, &p)
		if len(p.Apply) != 1 || p.Apply[0].GetName() != tc.want {
			t.Errorf("%s: %v, %+v", tc.name, p.Apply, p.Wait)
		}
	}
	// One that is up waits for the others.
	seen := Seen{Live: map[string]*appsv1.Deployment{"a": deployment("a", 1), "b": deployment("b", 0)}}
	var p kit.Plan
	update(seen, []*appsv1.Deployment{deployment("a", 1)}, &p)
	if len(p.Apply) != 0 || p.Wait == nil {
		t.Errorf("%v, %+v", p.Apply, p.Wait)
	}
}

// The Deployment of a mgr that was just changed still says that its pod is ready: that is
// the pod which is about to go.
func TestAMgrWaitsForTheOneThatWasJustChanged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status appsv1.DeploymentStatus
		want   bool
	}{
		{"nobody has seen the change", appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}, false},
		{"the old pod runs", appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, ReadyReplicas: 1}, false},
		{"the old pod is gone", appsv1.DeploymentStatus{ObservedGeneration: 2}, false},
		{"the new pod starts", appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1}, false},
		{"the new pod is ready", appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}, true},
	} {
		standby := deployment("b", 1)
		standby.Generation, standby.Status = 2, tc.status
		var p kit.Plan
		update(Seen{Live: map[string]*appsv1.Deployment{"a": deployment("a", 1), "b": standby}, Stat: mgr.Stat{Active: "a"}}, []*appsv1.Deployment{deployment("a", 1)}, &p)
		if got := len(p.Apply) == 1; got != tc.want {
			t.Errorf("%s: the active mgr restarts: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A mgr that is added during an upgrade comes after the mons, as those that are there.
func TestANewMgrWaitsForTheMonsOfAnUpgrade(t *testing.T) {
	cl := &cephv1.CephCluster{}
	cl.Spec.Mgr.Count = 2
	seen := Seen{
		Now:  time.Now(),
		Live: map[string]*appsv1.Deployment{"a": deployment("a", 1)}, Keys: map[string]string{"b": "v"},
		Mons: "mgr daemons wait for others to run Ceph 20.2.5 first: 2 mon at 20.2.4",
	}
	var p kit.Plan
	daemons(cl, seen, &p)
	if len(p.Apply) != 0 || p.Wait == nil || p.Wait.Reason != "UpgradeOrder" {
		t.Errorf("%s", p)
	}
	seen.Mons = ""
	p = kit.Plan{}
	daemons(cl, seen, &p)
	if len(p.Apply) != 1 || p.Apply[0].GetName() != "rook-ceph-mgr-b" {
		t.Errorf("%s", p)
	}
}

// A standby starts when a new cluster is ready, or when that takes long.
func TestStandbyWaitsForTheClusterToBeReady(t *testing.T) {
	made := time.Unix(1000, 0)
	first := deployment("a", 1)
	first.CreationTimestamp = metav1.NewTime(made)
	ready := &cephv1.CephCluster{}
	ready.Status.Phase, ready.Status.ObservedGeneration = cephv1.ConditionReady, 1
	live := map[string]*appsv1.Deployment{"a": first}
	for _, tc := range []struct {
		name string
		cl   *cephv1.CephCluster
		seen Seen
		want bool
	}{
		{"nothing is there", &cephv1.CephCluster{}, Seen{Now: made}, true},
		{"the first has just started", &cephv1.CephCluster{}, Seen{Now: made.Add(time.Second), Live: live}, true},
		{"the cluster is ready", ready, Seen{Now: made.Add(time.Second), Live: live}, false},
		{"the first is there for long", &cephv1.CephCluster{}, Seen{Now: made.Add(standbyAfter), Live: live}, false},
	} {
		if got := early(tc.cl, tc.seen); got != tc.want {
			t.Errorf("%s: early = %v", tc.name, got)
		}
	}
}
