package replace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// event is something that comes in the midst of a replacement of osd.3.
type event struct {
	name string
	// happen is called at each step of the world from the event on, n counts from 0;
	// over says that that was all.
	happen func(ctx context.Context, b *bench, n int) (over bool, err error)
	// end says what is wrong when everything is over; nil: osd.3 is replaced as ever.
	end func(ctx context.Context, b *bench) error
	// ends says that there may be nothing to replace any more after it.
	ends bool
}

// edit changes the CephCluster once.
func edit(change func(*cephv1.CephCluster)) func(context.Context, *bench, int) (bool, error) {
	return func(ctx context.Context, b *bench, _ int) (bool, error) {
		var cl cephv1.CephCluster
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
			return false, err
		}
		change(&cl)
		return true, b.c.Update(ctx, &cl)
	}
}

const later = "quay.io/ceph/ceph:v20.2.5"

// nodeOf3 is the node of osd.3, also while its disk is not there.
const nodeOf3 = "n2"

func events() []event {
	return []event{
		{name: "its node reboots", happen: func(_ context.Context, b *bench, n int) (bool, error) {
			switch n {
			case 0:
				b.sim.Kill(nodeOf3)
			case 6:
				b.sim.Revive(nodeOf3)
			}
			return n == 6, nil
		}},
		{name: "another node reboots", happen: func(_ context.Context, b *bench, n int) (bool, error) {
			switch n {
			case 0:
				b.sim.Kill("n1")
			case 6:
				b.sim.Revive("n1")
			}
			return n == 6, nil
		}},
		{name: "a second OSD fails", happen: func(_ context.Context, b *bench, n int) (bool, error) {
			b.sim.Break("osd.6", n < 10)
			return n == 10, nil
		}},
		{name: "new Ceph", happen: func(ctx context.Context, b *bench, n int) (bool, error) {
			b.sim.Versions = map[string]string{later: "20.2.5"}
			return edit(func(cl *cephv1.CephCluster) { cl.Spec.CephVersion.Image = later })(ctx, b, n)
		}, end: func(ctx context.Context, b *bench) error {
			var list appsv1.DeploymentList
			if err := b.c.List(ctx, &list, client.InNamespace(b.ns), client.HasLabels{"ceph_daemon_type"}); err != nil {
				return err
			}
			for _, d := range list.Items {
				if img := d.Spec.Template.Spec.Containers[0].Image; img != later {
					return fmt.Errorf("%s runs %s", d.Name, img)
				}
			}
			return b.isDone(ctx, 3)
		}},
		{name: "another choice of disks", happen: edit(func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.UseAllDevices, cl.Spec.Storage.DeviceFilter = nil, "^sd[bc]$"
		})},
		{name: "no disks are chosen any more", happen: edit(func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.UseAllDevices, cl.Spec.Storage.DeviceFilter = nil, "^nothing$"
		})},
		{name: "placement and resources", happen: edit(func(cl *cephv1.CephCluster) {
			cl.Spec.Resources = cephv1.ResourceSpec{"osd": {Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("5Gi")}}}
			cl.Spec.Placement = cephv1.PlacementSpec{"osd": {Tolerations: []corev1.Toleration{{Key: "storage", Operator: corev1.TolerationOpExists}}}}
		})},
		{name: "sets of claims", happen: edit(func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.StorageClassDeviceSets = []cephv1.StorageClassDeviceSet{{Name: "set", Count: 1, VolumeClaimTemplates: []cephv1.VolumeClaimTemplate{{}}}}
		})},
		fenced(), copied(), purged(), goes(false), goes(true),
	}
}

// fenced is an admin's own label and out on another OSD.
func fenced() event {
	return event{name: "an admin's fence and out on another OSD", happen: func(ctx context.Context, b *bench, _ int) (bool, error) {
		err := b.change(ctx, 6, func(d *appsv1.Deployment) { d.Labels["ceph.rook.io/do-not-reconcile"] = "mine" })
		if err != nil {
			return false, err
		}
		b.asked[6] = true
		defer func() { b.asked[6] = false }()
		return true, cephosd.New(b.ceph).Out(ctx, 6)
	}, end: func(ctx context.Context, b *bench) error {
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if err != nil {
			return err
		}
		var d appsv1.Deployment
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(6)}, &d); err != nil {
			return err
		}
		if o, _ := m.Find(6); bool(o.In) || d.Labels["ceph.rook.io/do-not-reconcile"] != "mine" {
			return fmt.Errorf("osd.6 was out and fenced by its admin: in %v, labels %v", bool(o.In), d.Labels)
		}
		return b.isDone(ctx, 3)
	}}
}

// copied is the kubectl plugin's copy of an OSD's Deployment for its maintenance, with the
// same labels and without annotations, which is there for a while.
func copied() event {
	name := spec.Name(3) + "-maintenance"
	return event{name: "a copy for maintenance", happen: func(ctx context.Context, b *bench, n int) (bool, error) {
		switch n {
		case 0:
			var d appsv1.Deployment
			if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(3)}, &d); err != nil {
				return false, err
			}
			zero := int32(0)
			c := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.ns, Labels: d.Labels}, Spec: d.Spec}
			c.Spec.Replicas = &zero
			return false, b.c.Create(ctx, c)
		case 12:
			var c appsv1.Deployment
			if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: name}, &c); err != nil {
				return false, err
			}
			if c.Generation != 1 || len(c.Annotations) > 0 {
				b.say("the copy for maintenance was changed: generation %d, annotations %v", c.Generation, c.Annotations)
			}
			return true, b.c.Delete(ctx, &c)
		}
		return false, nil
	}}
}

// purged is an OSD that the admin purges. Ceph refuses that while it is up.
func purged() event {
	done := "purged by hand"
	return event{name: "a purge by hand", ends: true, happen: func(ctx context.Context, b *bench, _ int) (bool, error) {
		if err := cephosd.New(b.ceph).PurgeUnchecked(ctx, 3); err == nil {
			b.events = append(b.events, done)
		}
		return true, nil
	}, end: func(ctx context.Context, b *bench) error {
		if !slices.Contains(b.events, done) {
			return b.isDone(ctx, 3)
		}
		if p := b.phase(ctx, 3); p != "" {
			return fmt.Errorf("osd.3 was purged, and its replacement is %s", p)
		}
		var list appsv1.DeploymentList
		if err := b.c.List(ctx, &list, client.InNamespace(b.ns), client.MatchingLabels{"app": spec.App}); err != nil {
			return err
		}
		for i := range list.Items {
			if d := &list.Items[i]; view.Concerned(d) || *d.Spec.Replicas != 1 {
				return fmt.Errorf("%s is left with %v and %d replicas", d.Name, d.Annotations, *d.Spec.Replicas)
			}
		}
		return nil
	}}
}

// goes is the deletion of the CephCluster, with its data if that is confirmed.
func goes(confirmed bool) event {
	name := "the CephCluster is deleted"
	if confirmed {
		name += " with its data"
	}
	return event{name: name, ends: true, happen: func(ctx context.Context, b *bench, n int) (bool, error) {
		if n == 0 && confirmed {
			_, err := edit(func(cl *cephv1.CephCluster) {
				cl.Spec.CleanupPolicy.Confirmation = cephv1.DeleteDataDirOnHostsConfirmation
			})(ctx, b, n)
			return false, err
		}
		// With data on it and without the word, pools hold a CephCluster only as objects of
		// their own; here it has none.
		return true, b.c.Delete(ctx, &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: b.ns}})
	}, end: func(ctx context.Context, b *bench) error {
		var cl cephv1.CephCluster
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the CephCluster is still there: %s, %+v, %w", cl.Status.Message, cl.Status.BlockedBy, err)
		}
		held := 0
		for _, osd := range b.sim.Held() {
			if osd != "" {
				held++
			}
		}
		switch {
		case confirmed && held > 0:
			return fmt.Errorf("%d disks still hold an OSD", held)
		case !confirmed && held < 7: // all but that of osd.3
			return fmt.Errorf("only %d disks still hold their OSD", held)
		}
		return nil
	}}
}

// What comes in the midst of a replacement, after any of its effects, breaks none of
// D1 to D6, and the replacement comes to its end all the same.
func TestInTheMidstOfAReplacement(t *testing.T) {
	bs := benches{}
	_, base := bs.play(t, two, bs.replace(3), bs.swap(3), bs.done(3))
	own := len(base.Effects) - base.Setup
	// One of so many effects.
	every, pick := kittest.Sample(t, 23, 41)
	for i, e := range events() {
		t.Run(e.name, func(t *testing.T) {
			runs := 0
			for k := i % min(every, 5); k < own; k += every {
				if pick != nil && !pick(k) {
					continue
				}
				runs++
				t.Run(fmt.Sprintf("%03d-%s", k, strings.ReplaceAll(base.Effects[base.Setup+k].What, " ", "_")), func(t *testing.T) {
					t.Parallel()
					bs.during(t, e, k)
				})
			}
			t.Logf("COMBINATION %s: %d of %d effects", e.name, runs, own)
		})
	}
}

// during plays a replacement in which an event comes after effect k.
func (bs benches) during(t *testing.T, e event, k int) {
	n, over := 0, false
	watch := bs.look("watch", func(_ context.Context, b *bench) error {
		from := b.effects
		b.goblin = func(ctx context.Context) {
			if over || b.effects < from+k {
				return
			}
			var err error
			if over, err = e.happen(ctx, b, n); err != nil && !apierrors.IsConflict(err) {
				b.say("%s: %v", e.name, err)
				over = true
			}
			n++
		}
		return nil
	})
	end := e.end
	if end == nil {
		end = func(ctx context.Context, b *bench) error { return b.isDone(ctx, 3) }
	}
	swap := bs.swap(3)
	if e.ends {
		swap = bs.act("swap the disk if there is one", func(ctx context.Context, b *bench) error {
			if _, d := b.sim.DiskOfOSD(b.uuid[3]); d == nil || b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cephv1.CephCluster{}) != nil {
				return nil
			}
			return bs.swap(3).Do(ctx, &kittest.World{Data: b})
		})
	}
	s := bs.scenario(two, watch, bs.replace(3), swap, bs.act("come to rest", func(context.Context, *bench) error { return nil }), bs.look("end", end))
	if _, err := kittest.Play(t, s, 0, kittest.Before); err != nil {
		t.Error(err)
	}
	if !over {
		t.Errorf("%s did not come", e.name)
	}
}
