package replace

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/osd/replace/overview"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/test/sim"
)

// place is what a replacement must keep.
type place struct {
	Weight   float64
	Class    string
	Location map[string]string
}

func (r *rig) place(id int) place {
	r.t.Helper()
	tree, err := cephosd.New(r.ceph).Tree(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	n, ok := tree.OSD(id)
	if !ok {
		r.t.Fatalf("osd.%d is not in the tree", id)
	}
	return place{n.CrushWeight, n.DeviceClass, tree.Location(id)}
}

// From annotation to a new disk, with the time of each step.
func TestReplace(t *testing.T) {
	r := newRig(t, 4, 2)
	const id = 3
	before, _ := r.osd(id)
	kept := r.place(id)
	uid := r.deployment(id).UID
	_, disk := r.world.DiskOfOSD(before.UUID)
	r.guard.ask(id)
	r.replace(id)
	accepted := r.until(10*time.Second, "accepted", func() bool { return r.marked(id, spec.InProgressAnnotation) })
	out := r.until(10*time.Second, "out", func() bool { o, _ := r.osd(id); return !bool(o.In) })
	drained := r.until(60*time.Second, "drained", func() bool {
		s, err := cephosd.New(r.ceph).Safety(t.Context(), id)
		return err == nil && s.Safe
	})
	ready := r.until(10*time.Second, "ready for swap", func() bool { return r.marked(id, spec.ReadyAnnotation) })
	d := r.deployment(id)
	if *d.Spec.Replicas != 0 || d.Labels["ceph.rook.io/do-not-reconcile"] == "" || d.Annotations[spec.InProgressAnnotation] != "true" {
		t.Errorf("replicas %d, labels %v, annotations %v", *d.Spec.Replicas, d.Labels, d.Annotations)
	}
	if o, _ := r.osd(id); !o.Destroyed() {
		t.Errorf("osd.%d is not destroyed: %+v", id, o)
	}
	r.until(5*time.Second, "the disk to pull in the status", func() bool {
		e := r.entry(id)
		return e != nil && e.Phase == cephv1.OSDReplacementReadyForSwap && e.Disk != nil && e.Disk.Serial == disk.Serial && e.Disk.Path == "/dev/disk/by-path/"+disk.Slot
	})
	told := r.events("OSDReplaceReadyForSwap", spec.Name(id))
	if len(told) != 1 || !strings.Contains(told[0], disk.Serial) || !strings.Contains(told[0], disk.Slot) {
		t.Errorf("ready for swap is told as %q", told)
	}
	// The node is watched, and while nothing changes nothing is written.
	r.until(20*time.Second, "a watch", func() bool { return r.job(spec.WatchName(r.nodeOf(before.UUID))) != nil })
	time.Sleep(2 * time.Second)
	r.writes.Reset()
	time.Sleep(4 * time.Second)
	if lines := r.writes.Lines(); len(lines) > 0 {
		t.Errorf("waiting for the disk costs %d writes: %v", len(lines), lines)
	}
	r.swapDisk(id, before.UUID)
	seen := r.until(10*time.Second, "the new disk seen", func() bool {
		e := r.entry(id)
		return e != nil && e.Phase == cephv1.OSDReplacementProvisioning
	})
	up := r.until(30*time.Second, "up and in", func() bool { o, _ := r.osd(id); return bool(o.Up) && bool(o.In) && o.UUID != before.UUID })
	done := r.until(10*time.Second, "no marks", func() bool {
		d := r.deployment(id)
		return d != nil && !view.Concerned(d) && d.Labels["ceph.rook.io/do-not-reconcile"] == "" && r.entry(id) == nil
	})
	t.Logf("accepted %v, out %v, drained %v, ready for swap %v after that; new disk seen %v, up and in %v, marks gone %v", accepted, out, drained, ready, seen, up, done)
	for what, took := range map[string]time.Duration{"accepted": accepted, "out": out} {
		if took > 2*time.Second {
			t.Errorf("%s after %v", what, took)
		}
	}
	if ready > 5*time.Second {
		t.Errorf("ready for swap %v after the last PG has moved", ready)
	}
	if diff := cmp.Diff(kept, r.place(id)); diff != "" {
		t.Errorf("place, weight or class (-before +after):\n%s", diff)
	}
	sim.Eventually(t, 5*time.Second, "completion is told", func() error {
		for _, on := range []string{spec.Name(id), "rook-ceph"} {
			if n := len(r.events("OSDReplaceCompleted", on)); n != 1 {
				return fmt.Errorf("%d events on %s", n, on)
			}
		}
		return nil
	})
	if r.deployment(id).UID != uid {
		t.Log("the Deployment was made anew")
	}
	r.ready(8)
	r.until(10*time.Second, "no watch is left", func() bool { return r.job(spec.WatchName(r.nodeOfID(id))) == nil })
	if c := cephv1.FindCondition(r.get().Status.Conditions, overview.ConditionType); c != nil {
		t.Errorf("condition %+v", c)
	}
}
