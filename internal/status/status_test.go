package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// all is a cluster whose every subject is ready, and what Ceph says of it.
func all(t *testing.T) (*cephv1.CephCluster, Seen) {
	t.Helper()
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	for _, name := range expected {
		cl.Status.Conditions = append(cl.Status.Conditions, cephv1.Condition{
			Type: cephv1.ConditionType(name + "Ready"), Status: "True", ObservedGeneration: 2,
		})
	}
	seen := Seen{Now: time.Unix(1790000000, 0), Subjects: subjects(cl), Asked: true, Interval: time.Minute}
	seen.Health.Status = cephstatus.HealthOK
	seen.Versions = cephstatus.Versions{"mon": {"ceph version 20.2.4": 3}, "overall": {"ceph version 20.2.4": 3}}
	seen.Ceph.OSDMap.NumOSDs, seen.Ceph.OSDMap.NumUp, seen.Ceph.OSDMap.NumIn = 3, 3, 3
	seen.Ceph.PGMap.BytesTotal, seen.Ceph.PGMap.BytesUsed, seen.Ceph.PGMap.BytesAvail = 1000, 100, 900
	return cl, seen
}

// planned is the object as it is after a pass.
func planned(t *testing.T, cl *cephv1.CephCluster, seen Seen) *cephv1.CephCluster {
	t.Helper()
	next, ok := (&Controller{}).Plan(cl, seen).Status.(*cephv1.CephCluster)
	if !ok {
		t.Fatal("no status")
	}
	return next
}

func TestAClockAloneIsNotWritten(t *testing.T) {
	cl, seen := all(t)
	first := planned(t, cl, seen)
	seen.Now = seen.Now.Add(time.Hour)
	seen.Ceph.PGMap.BytesUsed += 5 // below a hundredth
	second := planned(t, first, seen)
	if diff := cmp.Diff(first.Status, second.Status); diff != "" {
		t.Errorf("nothing has happened, and the status changes:\n%s", diff)
	}
	seen.Ceph.PGMap.BytesUsed += 50
	if third := planned(t, second, seen); third.Status.CephStatus.LastChecked == second.Status.CephStatus.LastChecked || third.Status.CephStatus.Capacity.UsedBytes != 155 {
		t.Errorf("usage has moved: %+v", third.Status.CephStatus)
	}
}

// Ceph tells nobody that a warning is over. Looked at by the interval alone, a cluster that
// had just been founded was said to be degraded for a minute after it was clean.
func TestAHealthThatIsNotOKIsLookedAtSoon(t *testing.T) {
	cl, seen := all(t)
	next := func() time.Duration { return (&Controller{}).Plan(cl, seen).Next }
	if got := next(); got != time.Minute {
		t.Errorf("HEALTH_OK is looked at again after %s", got)
	}
	seen.Interval = 3 * time.Minute // the operator's settings
	if got := next(); got != seen.Interval {
		t.Errorf("HEALTH_OK is looked at again after %s, and %s is set", got, seen.Interval)
	}
	seen.Interval = time.Minute
	seen.Health.Status = cephstatus.HealthWarn
	cl = planned(t, cl, seen)
	since := seen.Now
	for _, c := range []struct{ age, want time.Duration }{
		{0, 2 * time.Second}, {32 * time.Second, 2 * time.Second}, {4 * time.Minute, 15 * time.Second}, {time.Hour, time.Minute}, {30 * 24 * time.Hour, time.Minute},
	} {
		seen.Now = since.Add(c.age)
		if got := next(); got != c.want {
			t.Errorf("HEALTH_WARN for %s is looked at again after %s, not %s", c.age, got, c.want)
		}
	}
	cl.Spec.HealthCheck.DaemonHealth.Status.Interval = &metav1.Duration{Duration: 10 * time.Second}
	if got := next(); got != 10*time.Second {
		t.Errorf("the interval of the spec is 10 s, and the next look after %s", got)
	}
	cl.Status.CephStatus.LastChanged = "yesterday"
	if got := next(); got != 10*time.Second {
		t.Errorf("without a time that can be read, the next look is after %s", got)
	}
}

func TestReadyIsWhatEverySubjectSays(t *testing.T) {
	cl, seen := all(t)
	if p := (&Controller{}).Plan(cl, seen); p.Wait != nil {
		t.Errorf("all is well: %+v", p.Wait)
	}
	for i, name := range expected {
		late := seen
		late.Subjects = append([]Subject(nil), seen.Subjects...)
		late.Subjects[i].Current = false
		if p := (&Controller{}).Plan(cl, late); p.Wait == nil {
			t.Errorf("%s speaks of an older spec, and the cluster is ready", name)
		}
		late.Subjects[i] = Subject{Name: name, Reason: "R", Message: "osd.3 is in the way"}
		p := (&Controller{}).Plan(cl, late)
		next := planned(t, cl, late)
		if p.Wait == nil || p.Wait.Message != "osd.3 is in the way" || len(next.Status.BlockedBy) != 1 {
			t.Errorf("%s is not ready: %+v %+v", name, p.Wait, next.Status.BlockedBy)
		}
	}
	for _, change := range []func(*Seen){
		func(s *Seen) { s.Asked, s.Silence = false, "timeout" },
		func(s *Seen) { s.Ceph.OSDMap.NumOSDs = 0 },
		func(s *Seen) { s.Ceph.OSDMap.NumUp = 0 },
	} {
		bad := seen
		change(&bad)
		if p := (&Controller{}).Plan(cl, bad); p.Wait == nil {
			t.Errorf("ready with %+v", bad.Ceph.OSDMap)
		}
	}
}

// A field that nothing acts on is told by name, also by a cluster that is ready.
func TestFieldsThatAreSetInVainAreTold(t *testing.T) {
	cl, seen := all(t)
	find := func() *kit.Condition {
		for _, c := range (&Controller{}).Plan(cl, seen).Conditions {
			if c.Type == "SpecHandled" {
				return &c
			}
		}
		return nil
	}
	if c := find(); c == nil || c.Status != "" {
		t.Errorf("nothing is set in vain, and the condition must go: %+v", c)
	}
	cl.Spec.RemoveOSDsIfOutAndSafeToRemove = true
	if c := find(); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "spec.removeOSDsIfOutAndSafeToRemove: ") {
		t.Errorf("%+v", c)
	}
	if next := planned(t, cl, seen); !strings.Contains(next.Status.Message, "spec.removeOSDsIfOutAndSafeToRemove") {
		t.Errorf("the message says that all is as the spec says: %q", next.Status.Message)
	}
}

// A device that is not there is named, and keeps nothing else back; OSDs that are still to
// come do.
func TestAMissingDeviceIsNamedAndTheClusterReady(t *testing.T) {
	cl, seen := all(t)
	i := slices.IndexFunc(seen.Subjects, func(s Subject) bool { return s.Name == "Provisioning" })
	const says = "n1: spec.storage.nodes[0].devices: the node has no device /dev/nowhere"
	seen.Subjects[i] = Subject{Name: "Provisioning", Reason: spec.ReasonDeviceMissing, Message: says, Current: true}
	p := (&Controller{}).Plan(cl, seen)
	next := planned(t, cl, seen)
	if p.Wait != nil || !strings.Contains(next.Status.Message, says) || len(next.Status.BlockedBy) != 1 || next.Status.BlockedBy[0].Message != says {
		t.Errorf("%+v %q %+v", p.Wait, next.Status.Message, next.Status.BlockedBy)
	}
	for what, change := range map[string]func(*Seen){
		"no OSD exists":       func(s *Seen) { s.Ceph.OSDMap.NumOSDs = 0 },
		"of an older spec":    func(s *Seen) { s.Subjects[i].Current = false },
		"more than that":      func(s *Seen) { s.Subjects[i].Reason = "StorageProblem" },
		"another is not up":   func(s *Seen) { s.Subjects[len(expected)-1] = Subject{Name: "OSD", Reason: "OSDsNotUp", Current: true} },
		"not of provisioning": func(s *Seen) { s.Subjects[i].Name = "OSD" },
	} {
		bad := seen
		bad.Subjects = slices.Clone(seen.Subjects)
		change(&bad)
		if p := (&Controller{}).Plan(cl, bad); p.Wait == nil {
			t.Errorf("%s: ready", what)
		}
	}
}
