package replace

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

// event is something that comes in the midst of a replacement of osd.3.
type event struct {
	name string
	// happen is called at each step of the world from the event on, n counts from 0;
	// over says that that was all.
	happen func(ctx context.Context, b *bench, n int) (over bool, err error)
	// end says what is wrong when everything is over; nil: osd.3 is replaced as ever.
	end func(ctx context.Context, b *bench) error
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
	}
}

// What comes in the midst of a replacement, after any of its effects, breaks none of
// D1 to D6, and the replacement comes to its end all the same.
func TestInTheMidstOfAReplacement(t *testing.T) {
	bs := benches{}
	_, base := bs.play(t, two, bs.replace(3), bs.swap(3), bs.done(3))
	own := len(base.Effects) - base.Setup
	// One of so many effects.
	every, pick := kittest.Sample(t, 17, 41)
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
	s := kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return bs.world(t, two) }, Settle: 65 * time.Second,
		Acts: append(bs.begin(two), watch, bs.replace(3), bs.swap(3), bs.act("come to rest", func(context.Context, *bench) error { return nil }),
			bs.look("end", end)),
	}
	if _, err := kittest.Play(t, s, 0, kittest.Before); err != nil {
		t.Error(err)
	}
	if !over {
		t.Errorf("%s did not come", e.name)
	}
}
