package replace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/test/sim"
)

var (
	// small is what crash runs use: hundreds of worlds.
	small     = options{nodes: 3, disks: 2}
	two       = options{nodes: 4, disks: 2}
	encrypted = options{nodes: 3, disks: 2, name: "encrypted", change: func(cl *cephv1.CephCluster) { cl.Spec.Storage.Config = map[string]string{"encryptedDevice": "true"} }}
)

func TestCrashAtEveryEffect(t *testing.T) {
	bs := benches{}
	bs.crash(t, small, bs.guard(true), bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swap(3), bs.done(3))
}

func TestCrashAtEveryEffectEncrypted(t *testing.T) {
	bs := benches{}
	bs.crash(t, encrypted, bs.guard(true), bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swap(3), bs.done(3))
}

func TestCrashWhileADiskFails(t *testing.T) {
	bs := benches{}
	for _, c := range []struct {
		name string
		how  sim.Failure
	}{
		{"the slot stays", sim.Failure{Message: "mkfs failed"}},
		{"the slot is lost", sim.Failure{Message: "mkfs failed", Gone: true}},
		{"the slot is claimed", sim.Failure{Message: "the Job was killed", Claimed: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var free []int
			if c.how.Gone {
				free = []int{3}
			}
			bs.crash(t, small, bs.guard(false, free...), bs.replace(3), bs.act("the next disk fails once", func(_ context.Context, b *bench) error {
				b.sim.Replacing(func(r *sim.Replacements) { r.FailMake = []sim.Failure{c.how} })
				return nil
			}), bs.swap(3), bs.done(3))
		})
	}
}

func TestCrashWhileCancelled(t *testing.T) {
	bs := benches{}
	slow := bs.act("hold the recovery", func(ctx context.Context, b *bench) error {
		return cephosd.New(b.ceph).SetFlag(ctx, "norecover")
	})
	bs.crash(t, small, bs.guard(true), slow, bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, "moved"), bs.takeBack(3), bs.asBefore(3))
}

func TestCrashWhileAbandoned(t *testing.T) {
	bs := benches{}
	bs.crash(t, small, bs.guard(true, 3), bs.replace(3), bs.annotate(spec.AbandonAnnotation, spec.AbandonConfirmation(3), 3), bs.act("nothing is left", func(ctx context.Context, b *bench) error {
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if err != nil {
			return err
		}
		if _, there := m.Find(3); there {
			return fmt.Errorf("osd.3 is still there: %s", b.phase(ctx, 3))
		}
		err = b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(3)}, &appsv1.Deployment{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("the Deployment: %w", err)
		}
		return nil
	}))
}

// Again and again, at once.
func TestReplacedTwice(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.replace(3), bs.swap(3), bs.done(3), bs.replace(3), bs.swap(3), bs.done(3))
}

func TestTwoAtOnceOnOneNode(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.replace(2, 3), bs.swap(2, 3), bs.done(2, 3))
}

func TestTwoAtOnceOnTwoNodes(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.replace(1, 6), bs.swap(6), bs.done(6), bs.is(1, cephv1.OSDReplacementReadyForSwap, ""), bs.swap(1), bs.done(1))
}

// With four hosts of one OSD and three copies, only one can be drained at a time, and
// the second waits by name until the first is back.
func TestQueuedByFailureDomain(t *testing.T) {
	bs := benches{}
	one := options{nodes: 4, disks: 1}
	bs.play(t, one, bs.replace(0, 1),
		bs.is(0, cephv1.OSDReplacementReadyForSwap, "pull"), bs.is(1, cephv1.OSDReplacementAccepted, "without it only 2 are left"),
		bs.swap(0), bs.done(0), bs.is(1, cephv1.OSDReplacementReadyForSwap, "pull"), bs.swap(1), bs.done(1))
}

func TestAKilledOSD(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.act("break it", func(_ context.Context, b *bench) error { b.sim.Break("osd.3", true); return nil }), bs.replace(3),
		bs.is(3, cephv1.OSDReplacementReadyForSwap, "pull"), bs.act("mend", func(_ context.Context, b *bench) error { b.sim.Break("osd.3", false); return nil }), bs.swap(3), bs.done(3))
}

// A spare disk that was put in meanwhile is nobody's replacement, and becomes an OSD
// of its own.
func TestASpareDiskIsNotTaken(t *testing.T) {
	bs := benches{}
	b, _ := bs.play(t, two, bs.replace(3), bs.act("a spare", func(_ context.Context, b *bench) error {
		node, _ := b.sim.DiskOfOSD(b.uuid[3])
		b.taboo[b.plug(node, "sdx", 7).Serial] = true
		return nil
	}), bs.act("still waiting", func(ctx context.Context, b *bench) error {
		if p := b.phase(ctx, 3); !strings.HasPrefix(p, string(cephv1.OSDReplacementReadyForSwap)) {
			return fmt.Errorf("osd.3: %s", p)
		}
		return nil
	}), bs.swap(3), bs.done(3))
	if err := b.check(t.Context(), kitEffect()); err != nil {
		t.Error(err)
	}
}

// The old disk, wiped and never pulled, is not the new one.
func TestTheOldDiskWipedIsNotTaken(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.replace(3), bs.act("wipe it in place", func(_ context.Context, b *bench) error {
		node, old := b.pull(3)
		b.sim.Replacing(func(*sim.Replacements) { old.OSD = nil })
		b.taboo[old.Serial] = true
		b.sim.Put(node, old)
		return nil
	}), bs.act("still waiting", func(ctx context.Context, b *bench) error {
		if p := b.phase(ctx, 3); !strings.HasPrefix(p, string(cephv1.OSDReplacementReadyForSwap)) {
			return fmt.Errorf("osd.3: %s", p)
		}
		var made int
		b.sim.Replacing(func(r *sim.Replacements) { made = len(r.Made) })
		if made > 0 {
			return fmt.Errorf("an OSD was made")
		}
		return nil
	}))
}

// A disk in another slot that the user has named.
func TestANamedDisk(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.replace(3), bs.act("another slot", func(ctx context.Context, b *bench) error {
		node, _ := b.pull(3)
		d := b.plug(node, "sdy", 9)
		return b.change(ctx, 3, func(dep *appsv1.Deployment) {
			dep.Annotations[spec.WithAnnotation] = "/dev/disk/by-id/ata-SIM_" + d.Serial
		})
	}), bs.done(3))
}

func TestCancelTooLate(t *testing.T) {
	bs := benches{}
	b, _ := bs.play(t, two, bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.takeBack(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.swap(3), bs.done(3))
	if n := b.told(spec.Name(3), "OSDReplaceCancelRefused", "destroyed already"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// Another value confirms nothing: it counts as taken back.
func TestAnotherValueIsACancel(t *testing.T) {
	bs := benches{}
	hold := bs.act("hold the recovery", func(ctx context.Context, b *bench) error { return cephosd.New(b.ceph).SetFlag(ctx, "norecover") })
	bs.play(t, two, hold, bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, ""), bs.annotate(spec.ReplaceAnnotation, "no", 3), bs.asBefore(3))
}

// An OSD that the user had out before is left out by a cancel.
func TestCancelLeavesOutWhatWasOut(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.act("out by hand, and nothing moves", func(ctx context.Context, b *bench) error {
		b.asked[3] = true
		if err := cephosd.New(b.ceph).SetFlag(ctx, "norecover"); err != nil {
			return err
		}
		return cephosd.New(b.ceph).Out(ctx, 3)
	}), bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, ""), bs.takeBack(3), bs.act("still out", func(ctx context.Context, b *bench) error {
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if o, _ := m.Find(3); err != nil || bool(o.In) || !bool(o.Up) {
			return fmt.Errorf("%+v, %w", o, errors.Join(err, errors.New("not as it was")))
		}
		return nil
	}))
}

func TestRefused(t *testing.T) {
	set := func(change func(*cephv1.CephCluster)) func(bs benches) kittest.Act {
		return func(bs benches) kittest.Act {
			return bs.act("spec", func(ctx context.Context, b *bench) error {
				var cl cephv1.CephCluster
				if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
					return err
				}
				change(&cl)
				return b.c.Update(ctx, &cl)
			})
		}
	}
	none := func(bs benches) kittest.Act {
		return bs.act("nothing", func(context.Context, *bench) error { return nil })
	}
	dep := func(change func(*appsv1.Deployment)) func(bs benches) kittest.Act {
		return func(bs benches) kittest.Act {
			return bs.act("Deployment", func(ctx context.Context, b *bench) error { return b.change(ctx, 3, change) })
		}
	}
	for _, c := range []struct {
		name    string
		o       options
		prepare func(bs benches) kittest.Act
		value   string
		says    string
		silent  bool // no event, since the Deployment may not be written
	}{
		{name: "wrong confirmation", o: two, prepare: none, value: "yes-really-replace-osd-5", says: "yes-really-replace-osd-3"},
		{name: "on a claim", o: two, prepare: dep(func(d *appsv1.Deployment) { d.Labels["ceph.rook.io/pvc"] = "data-0" }), value: "yes", says: "data-0"},
		{name: "Deployments are taken away", o: two, prepare: set(func(cl *cephv1.CephCluster) { cl.Spec.RemoveOSDsIfOutAndSafeToRemove = true }), value: "yes", says: "removeOSDsIfOutAndSafeToRemove"},
		{name: "health check is off", o: two, prepare: set(func(cl *cephv1.CephCluster) { cl.Spec.HealthCheck.DaemonHealth.ObjectStorageDaemon.Disabled = true }), value: "yes", says: "daemonHealth.osd.disabled"},
		{name: "as many hosts as copies", o: options{nodes: 3, disks: 1}, prepare: none, value: "yes", says: "only 2 are left"},
		{name: "fenced by somebody", o: two, prepare: dep(func(d *appsv1.Deployment) { d.Labels["ceph.rook.io/do-not-reconcile"] = "true" }), value: "yes", says: "do-not-reconcile", silent: true},
		{name: "under maintenance", o: two, prepare: func(bs benches) kittest.Act {
			return bs.act("clone", func(ctx context.Context, b *bench) error {
				var d appsv1.Deployment
				if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(3)}, &d); err != nil {
					return err
				}
				zero := int32(0)
				clone := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-maintenance", Namespace: d.Namespace, Labels: d.Labels}, Spec: d.Spec}
				clone.Spec.Replicas = &zero
				return b.c.Create(ctx, clone)
			})
		}, value: "yes", says: "rook-ceph-osd-3-maintenance"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bs := benches{}
			id := 3
			if c.o.disks == 1 {
				id = 2
			}
			b, _ := bs.play(t, c.o, bs.act("note", func(ctx context.Context, b *bench) error { b.note(ctx, id); return nil }), c.prepare(bs),
				bs.annotate(spec.ReplaceAnnotation, c.value, id), bs.is(id, cephv1.OSDReplacementRefused, c.says), bs.act("untouched", func(ctx context.Context, b *bench) error {
					m, err := cephosd.New(b.ceph).Dump(ctx)
					if o, _ := m.Find(id); err != nil || !bool(o.Up) || !bool(o.In) {
						return fmt.Errorf("%+v, %w", o, errors.Join(err, errors.New("not as it was")))
					}
					var cl cephv1.CephCluster
					if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
						return err
					}
					for _, cond := range cl.Status.Conditions {
						if cond.Type == "OSDReplacement" && cond.Status == "False" && cond.Reason == "Refused" && strings.Contains(cond.Message, c.says) {
							return nil
						}
					}
					return fmt.Errorf("no condition says so: %+v", cl.Status.Conditions)
				}))
			want := 1
			if c.silent {
				want = 0
			}
			for _, on := range []string{"rook-ceph", spec.Name(id)} {
				if n := b.told(on, "OSDReplaceRefused", c.says); n != want {
					t.Errorf("%s was told %d times: %v", on, n, b.events)
				}
			}
		})
	}
}

// A refused request that holds later is carried out then.
func TestRefusedUntilItHolds(t *testing.T) {
	bs := benches{}
	bs.play(t, options{nodes: 3, disks: 1}, bs.replace(2), bs.is(2, cephv1.OSDReplacementRefused, "only 2 are left"), bs.act("a fourth host", func(ctx context.Context, b *bench) error {
		b.sim.AddNode("n4")
		b.plug("n4", "sdb", 0)
		var cl cephv1.CephCluster
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
			return err
		}
		cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: "n4"})
		return b.c.Update(ctx, &cl)
	}), bs.is(2, cephv1.OSDReplacementReadyForSwap, ""), bs.swap(2), bs.done(2))
}

// The report of a look that began before the OSD was destroyed still has the old uuid:
// it brings nothing back.
func TestAStaleReport(t *testing.T) {
	bs := benches{}
	var old map[string]string
	bs.play(t, two, bs.act("keep the report", func(ctx context.Context, b *bench) error {
		b.note(ctx, 3)
		node, _ := b.sim.DiskOfOSD(b.uuid[3])
		var cm corev1.ConfigMap
		err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.StatusMap(node)}, &cm)
		old = cm.Data
		return err
	}), bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.act("it comes late", func(ctx context.Context, b *bench) error {
		node, _ := b.sim.DiskOfOSD(b.uuid[3])
		var cm corev1.ConfigMap
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.StatusMap(node)}, &cm); err != nil {
			return err
		}
		cm.Data = old
		return b.c.Update(ctx, &cm)
	}), bs.act("nothing comes back", func(ctx context.Context, b *bench) error {
		var d appsv1.Deployment
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(3)}, &d); err != nil {
			return err
		}
		if _, ok := d.Annotations[spec.ReadyAnnotation]; !ok || *d.Spec.Replicas != 0 {
			return fmt.Errorf("replicas %d, %v", *d.Spec.Replicas, d.Annotations)
		}
		return nil
	}), bs.swap(3), bs.done(3))
}

// Ceph says safe now and not safe next: nothing is destroyed on the first word.
func TestALyingCeph(t *testing.T) {
	bs := benches{}
	lies := 0
	bs.play(t, two, bs.act("hold the recovery, and lie twice", func(ctx context.Context, b *bench) error {
		b.ceph.Inject(cephtestLie(3))
		lies++
		return cephosd.New(b.ceph).SetFlag(ctx, "norecover")
	}), bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, ""), bs.act("still there", func(ctx context.Context, b *bench) error {
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if o, _ := m.Find(3); err != nil || o.UUID != b.uuid[3] || !bool(o.Up) {
			return fmt.Errorf("%+v, %w", o, errors.Join(err, errors.New("not as it was")))
		}
		return cephosd.New(b.ceph).UnsetFlag(ctx, "norecover")
	}), bs.swap(3), bs.done(3))
	if lies == 0 {
		t.Error("nobody lied")
	}
}

// Somebody purges the OSD while its disk is awaited.
func TestPurgedByHand(t *testing.T) {
	bs := benches{}
	bs.play(t, two, bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.act("purge", func(ctx context.Context, b *bench) error {
		return cephosd.New(b.ceph).PurgeUnchecked(ctx, 3)
	}), bs.act("its Deployment is gone", func(ctx context.Context, b *bench) error {
		err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(3)}, &appsv1.Deployment{})
		if err == nil || client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%w: %s", err, b.phase(ctx, 3))
		}
		return nil
	}))
}

// Closing the mappings fails twice: nothing is destroyed before it is proven.
func TestClosingFails(t *testing.T) {
	bs := benches{}
	bs.play(t, encrypted, bs.act("closing fails", func(_ context.Context, b *bench) error {
		b.sim.Replacing(func(r *sim.Replacements) { r.FailClose = 2 })
		return nil
	}), bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.act("closed at last", func(_ context.Context, b *bench) error {
		var closed []int
		b.sim.Replacing(func(r *sim.Replacements) { closed = r.Closed })
		if len(closed) == 0 {
			return fmt.Errorf("destroyed without a closed mapping")
		}
		return nil
	}), bs.swap(3), bs.done(3))
}

// The prepare Job of a spec edit and the Job that prepares the new disk do not run on
// one node at a time.
func TestOneJobOnANodeAtATime(t *testing.T) {
	bs := benches{}
	together := 0
	b, _ := bs.play(t, two, bs.act("look", func(_ context.Context, b *bench) error {
		b.goblin = func(ctx context.Context) {
			var jobs batchv1.JobList
			if b.c.List(ctx, &jobs, client.InNamespace(b.ns)) != nil {
				return
			}
			busy := map[string]int{}
			for _, j := range jobs.Items {
				if app := j.Labels["app"]; j.Status.Succeeded+j.Status.Failed == 0 && (app == spec.PrepareApp || app == spec.MakeApp) {
					busy[j.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]]++
				}
			}
			for _, n := range busy {
				if n > 1 {
					together++
				}
			}
		}
		return nil
	}), bs.replace(3), bs.swap(3), bs.done(3), bs.act("a rescan", func(ctx context.Context, b *bench) error {
		var cl cephv1.CephCluster
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
			return err
		}
		cl.Annotations = map[string]string{"castellan.ceph.io/rescan": "1"}
		return b.c.Update(ctx, &cl)
	}))
	if together > 0 {
		t.Errorf("%d times two Jobs were on one node", together)
	}
	_ = b
}

// Writing the marks fails now and then; reads too. Nothing comes of an error.
func TestAPIErrors(t *testing.T) {
	bs := benches{}
	n := 0
	faults := func(b *bench) {
		b.store.Fail(func(verb, kind string, _ types.NamespacedName) error {
			if b.looking || kind != "Deployment" && kind != "Job" && kind != "Pod" && kind != "ConfigMap" {
				return nil
			}
			if n++; n%13 != 0 || n > 13*120 {
				return nil
			}
			switch (n / 13) % 3 {
			case 0:
				return apierrors.NewInternalError(fmt.Errorf("etcd"))
			case 1:
				return apierrors.NewConflict(schema.GroupResource{Resource: kind}, "x", fmt.Errorf("later"))
			}
			return apierrors.NewTooManyRequests("slow", 1)
		})
	}
	ask := bs.replace(3)
	bs.play(t, two, kittest.Act{Name: "replace, with errors", Do: func(ctx context.Context, w *kittest.World) error {
		if err := ask.Do(ctx, w); err != nil {
			return err
		}
		faults(w.Data.(*bench))
		return nil
	}}, bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.act("swap, with errors", func(_ context.Context, b *bench) error {
		n = 0
		node, old := b.pull(3)
		b.plug(node, old.Name, int(old.Name[2]-'b'))
		return nil
	}), bs.act("no errors", func(_ context.Context, b *bench) error { b.store.Fail(nil); return nil }), bs.done(3))
	if n < 100 {
		t.Errorf("only %d requests", n)
	}
}

func kitEffect() kit.Effect { return kit.Effect{} }

// cephtestLie says once each time that an OSD is safe to destroy, whatever is on it.
func cephtestLie(id int) cephtest.Fault {
	return cephtest.Fault{Prefix: "osd safe-to-destroy", Times: 1, Answer: []byte(fmt.Sprintf(`{"safe_to_destroy":[%d],"active":[],"missing_stats":[],"stored_pgs":[]}`, id))}
}
