package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
)

// healthy is a settled cluster, as Ceph and the other controllers tell it.
func healthy(now time.Time) (*cephv1.CephCluster, Seen) {
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: "rook-ceph", Generation: 1}}
	seen := Seen{
		Now: now, Asked: true, Classes: []string{"hdd"},
		Ceph:   cephstatus.Status{FSID: "676955e9-1441-4b85-aa27-40cd43dabd73", QuorumNames: []string{"a", "b", "c"}},
		Health: cephstatus.Health{Status: cephstatus.HealthOK},
		Versions: cephstatus.Versions{
			"mon": {"ceph version 20.2.4": 3}, "mgr": {"ceph version 20.2.4": 2}, "osd": {"ceph version 20.2.4": 6},
		},
	}
	seen.Ceph.OSDMap.NumOSDs, seen.Ceph.OSDMap.NumUp, seen.Ceph.OSDMap.NumIn = 6, 6, 6
	seen.Ceph.PGMap.BytesTotal, seen.Ceph.PGMap.BytesUsed, seen.Ceph.PGMap.BytesAvail = 60<<30, 1<<30, 59<<30
	for _, name := range expected {
		seen.Subjects = append(seen.Subjects, Subject{Name: name, Ready: true, Current: true})
	}
	return cl, seen
}

// TestClockIsNoNews holds a steady cluster to no write at all.
func TestClockIsNoNews(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cl, seen := healthy(now)
	c := &Controller{}
	first := c.Plan(cl, seen).Status.(*cephv1.CephCluster)
	if got := first.Status.CephStatus.LastChecked; got != "2026-01-01T12:00:00Z" {
		t.Fatalf("the first look is noted as %q", got)
	}
	_, seen = healthy(now.Add(time.Minute)) // the same again, in other memory
	second := c.Plan(first, seen).Status.(*cephv1.CephCluster)
	if diff := cmp.Diff(first.Status, second.Status); diff != "" {
		t.Errorf("a minute later nothing has changed, and the status has:\n%s", diff)
	}
	seen.Health = cephstatus.Health{Status: cephstatus.HealthWarn}
	third := c.Plan(second, seen).Status.(*cephv1.CephCluster)
	if got := third.Status.CephStatus; got.LastChecked != "2026-01-01T12:01:00Z" || got.PreviousHealth != cephstatus.HealthOK {
		t.Errorf("after the health has changed the status is %+v", got)
	}
}
