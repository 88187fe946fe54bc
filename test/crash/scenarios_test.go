package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

// three is a cluster on three nodes.
func three(bs benches, change ...func(*cephv1.CephCluster)) kittest.Act {
	return bs.act("create", func(ctx context.Context, b *bench) error { return b.c.Create(ctx, b.cluster(3, change...)) })
}

// look checks what an act has led to.
func look(bs benches, osds, mons int, more ...func(ctx context.Context, b *bench) error) kittest.Act {
	return looking(bs.act("look", func(ctx context.Context, b *bench) error {
		err := b.ready(ctx, osds, mons)
		for _, m := range more {
			err = errors.Join(err, m(ctx, b))
		}
		return err
	}))
}

func setup(a kittest.Act) kittest.Act { a.Setup = true; return a }

func looking(a kittest.Act) kittest.Act { a.Look = true; return a }

// shortTimeouts make mons be replaced within a minute.
func shortTimeouts(cl *cephv1.CephCluster) {
	cl.Spec.HealthCheck.DaemonHealth.Monitor.Interval = &metav1.Duration{Duration: 5 * time.Second}
	cl.Spec.HealthCheck.DaemonHealth.Monitor.Timeout = "30s"
}

// monNode is the node that a mon is pinned to.
func monNode(ctx context.Context, b *bench, id string) (string, error) {
	var d appsv1.Deployment
	err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph-mon-" + id}, &d)
	return d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname], err
}

// mons are the ones of the monmap that run.
func monsAre(want string) func(ctx context.Context, b *bench) error {
	return func(_ context.Context, b *bench) error {
		got := b.ceph.RunningMons()
		slices.Sort(got)
		if s := strings.Join(got, ","); s != want {
			return fmt.Errorf("mons %s, want %s", s, want)
		}
		return nil
	}
}

// pool gives the cluster data that has to stay reachable, and from then on no PG may
// be inactive.
func pool(bs benches) kittest.Act {
	return setup(bs.act("pool", func(ctx context.Context, b *bench) error {
		if _, err := b.ceph.Mon(ctx, ceph.Cmd("osd pool create", "pool", "data", "pg_num", 8)); err != nil {
			return err
		}
		b.ceph.Settle()
		b.ceph.PutData("data", 100, 1<<20)
		b.inv.strict = true
		return nil
	}))
}

func TestCreate(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1}, three(bs), look(bs, 3, 3))
}

// TestCreateOnARealAPIServer is a sample of the same runs with the validation,
// defaults and server-side apply of a real one.
func TestCreateOnARealAPIServer(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1, real: true}, three(bs), look(bs, 3, 3))
}

func TestAddANode(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1, begin: "three nodes, a pool"}, setup(three(bs)), pool(bs), bs.act("add a node", func(ctx context.Context, b *bench) error {
		b.addNode(4, options{disks: 2})
		return b.edit(ctx, func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: b.node(4)})
		})
	}), look(bs, 5, 3))
}

// failover has one spare node for the mon that is lost; it holds no OSD, so that
// nothing but mons happens.
func failover(bs benches, lose func(b *bench, node string)) []kittest.Act {
	return []kittest.Act{
		setup(three(bs, shortTimeouts, func(cl *cephv1.CephCluster) { cl.Spec.Storage.Nodes = cl.Spec.Storage.Nodes[:1] })),
		setup(bs.act("keep OSDs in", func(ctx context.Context, b *bench) error {
			_, err := b.ceph.Mon(ctx, ceph.Cmd("osd set", "key", "noout"))
			return err
		})),
		bs.act("lose a mon", func(ctx context.Context, b *bench) error {
			node, err := monNode(ctx, b, "b")
			if err != nil || node == b.node(1) {
				return fmt.Errorf("mon b is on %s: %w", node, err)
			}
			lose(b, node)
			return nil
		}),
		look(bs, 1, 3, monsAre("a,c,d")),
	}
}

func TestFailoverOfAMonThatIsDown(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 4, disks: 1, begin: "failover"}, failover(bs, func(b *bench, node string) { b.sim.Kill(node) })...)
}

func TestFailoverOfAMonWhoseNodeWasDeleted(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 4, disks: 1, begin: "failover"}, failover(bs, func(b *bench, node string) { b.sim.DeleteNode(node) })...)
}

// With no other node, the mon that is lost makes room for its replacement.
func TestFailoverOnTheSameNode(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1},
		setup(three(bs, shortTimeouts)),
		bs.act("break a mon", func(_ context.Context, b *bench) error { b.sim.Break("mon.b", true); return nil }),
		look(bs, 3, 3, monsAre("a,c,d")),
	)
}

func count(bs benches, n int) kittest.Act {
	return bs.act(fmt.Sprintf("%d mons", n), func(ctx context.Context, b *bench) error {
		return b.edit(ctx, func(cl *cephv1.CephCluster) { cl.Spec.Mon.Count = n })
	})
}

func TestMonCount(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 5, disks: 1},
		setup(three(bs)), count(bs, 5), look(bs, 3, 5, monsAre("a,b,c,d,e")), count(bs, 3), look(bs, 3, 3, monsAre("a,b,c")),
	)
}

// A new operator restarts no daemon.
func TestOperatorUpgrade(t *testing.T) {
	bs := benches{}
	upgrade := bs.act("new operator", func(_ context.Context, b *bench) error {
		b.op.Image, b.op.Version = "castellan:two", "two"
		return nil
	})
	upgrade.Restart = true
	run(t, bs, options{nodes: 3, disks: 1, begin: "three nodes, a pool"},
		setup(three(bs)), pool(bs),
		looking(bs.act("note", func(ctx context.Context, b *bench) (err error) { b.noted, err = b.daemonPods(ctx); return err })),
		upgrade,
		look(bs, 3, 3, func(ctx context.Context, b *bench) error {
			now, err := b.daemonPods(ctx)
			if err != nil || !maps.Equal(now, b.noted) {
				return fmt.Errorf("pods were restarted: %v, then %v: %w", b.noted, now, err)
			}
			return nil
		}),
	)
}

// A new Ceph version goes through mons, mgrs and OSDs in this order, and nobody loses
// sight of the data.
func TestCephUpgrade(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1, begin: "three nodes, a pool"},
		setup(three(bs)), pool(bs),
		bs.act("new Ceph", func(ctx context.Context, b *bench) error {
			return b.edit(ctx, func(cl *cephv1.CephCluster) { cl.Spec.CephVersion.Image = newImage })
		}),
		look(bs, 3, 3, func(ctx context.Context, b *bench) error {
			r, err := b.ceph.Mon(ctx, ceph.Cmd("versions"))
			if err != nil || strings.Contains(string(r.Out), "20.2.4") {
				return fmt.Errorf("versions %s: %w", r.Out, err)
			}
			return nil
		}),
	)
}

// What users have put on objects stays, also when mgrs go from 2 to 1 and pods get a
// new template.
func TestSpecEdit(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1},
		setup(three(bs)), pool(bs),
		setup(bs.act("mark", func(ctx context.Context, b *bench) error {
			return b.users(ctx, func(o client.Object) error {
				o.SetLabels(with(o.GetLabels(), "users.example.com/label", "kept"))
				o.SetAnnotations(with(o.GetAnnotations(), "users.example.com/note", "kept"))
				return b.c.Update(ctx, o)
			})
		})),
		bs.act("one mgr", func(ctx context.Context, b *bench) error {
			return b.edit(ctx, func(cl *cephv1.CephCluster) { cl.Spec.Mgr.Count = 1 })
		}),
		bs.act("annotate all pods", func(ctx context.Context, b *bench) error {
			return b.edit(ctx, func(cl *cephv1.CephCluster) {
				cl.Spec.Annotations = cephv1.AnnotationsSpec{"all": {"example.com/x": "1"}}
			})
		}),
		look(bs, 3, 3, func(ctx context.Context, b *bench) error {
			return b.users(ctx, func(o client.Object) error {
				if o.GetLabels()["users.example.com/label"] != "kept" || o.GetAnnotations()["users.example.com/note"] != "kept" {
					return fmt.Errorf("C4: %T %s has lost what the user put on it", o, o.GetName())
				}
				return nil
			})
		}, func(ctx context.Context, b *bench) error {
			pods, err := b.daemonPods(ctx)
			if len(pods) != 7 { // 3 mons, 1 mgr, 3 OSDs
				return fmt.Errorf("daemons %v: %w", pods, err)
			}
			return nil
		}),
	)
}

// users calls f with an object of each kind that users may have put something on.
func (b *bench) users(ctx context.Context, f func(client.Object) error) error {
	for name, o := range map[string]client.Object{
		"rook-ceph-mon-a": &appsv1.Deployment{}, "rook-ceph-osd-0": &appsv1.Deployment{}, "rook-ceph-mon-b": &corev1.Service{},
		"rook-ceph-mon": &corev1.Secret{}, "rook-ceph-mon-endpoints": &corev1.ConfigMap{},
	} {
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: name}, o); err != nil {
			return err
		}
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

func with(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// deleted says what is left of a cluster that was deleted.
func deleted(bs benches, osds int) kittest.Act {
	return looking(bs.act("look", func(ctx context.Context, b *bench) error {
		if _, err := b.get(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the CephCluster is still there: %w", err)
		}
		held := 0
		for _, osd := range b.sim.Held() {
			if osd != "" {
				held++
			}
		}
		if held != osds || (osds == 0) != (len(b.sim.Cleaned()) > 0) {
			return fmt.Errorf("%d disks hold an OSD, %d hosts were cleaned", held, len(b.sim.Cleaned()))
		}
		return nil
	}))
}

func remove(bs benches) kittest.Act {
	return bs.act("delete", func(ctx context.Context, b *bench) error {
		cl, err := b.get(ctx)
		if err != nil {
			return err
		}
		return b.c.Delete(ctx, cl)
	})
}

func confirm(bs benches) kittest.Act {
	return bs.act("confirm", func(ctx context.Context, b *bench) error {
		return b.edit(ctx, func(cl *cephv1.CephCluster) {
			cl.Spec.CleanupPolicy.Confirmation = cephv1.DeleteDataDirOnHostsConfirmation
		})
	})
}

func TestDeletion(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1, begin: "three nodes"}, setup(three(bs)), remove(bs), deleted(bs, 3))
}

func TestDeletionWithItsData(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1, begin: "three nodes"}, setup(three(bs)), confirm(bs), remove(bs), deleted(bs, 0))
}

func TestDeletionOnARealAPIServer(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1, real: true}, setup(three(bs)), confirm(bs), remove(bs), deleted(bs, 0))
}

// Mons in zones, one each, with a zone that is lost to two mons at most.
func TestMonsInZones(t *testing.T) {
	bs := benches{}
	zones := func(cl *cephv1.CephCluster) {
		cl.Spec.Mon.Zones = []cephv1.MonZoneSpec{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	}
	run(t, bs, options{nodes: 6, disks: 0, labels: func(i int) []string {
		return []string{corev1.LabelTopologyZone, []string{"a", "a", "a", "b", "b", "c"}[i-1]}
	}}, bs.act("create", func(ctx context.Context, b *bench) error {
		b.sim.AddDisk(b.node(1), "sdb")
		return b.c.Create(ctx, b.cluster(1, zones))
	}), look(bs, 1, 3, func(ctx context.Context, b *bench) error {
		seen := map[string]string{}
		for _, id := range []string{"a", "b", "c"} {
			node, err := monNode(ctx, b, id)
			if err != nil {
				return err
			}
			var n corev1.Node
			if err := b.c.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
				return err
			}
			seen[n.Labels[corev1.LabelTopologyZone]] = id
		}
		if len(seen) != 3 {
			return fmt.Errorf("mons by zone: %v", seen)
		}
		return nil
	}))
}

// Mons on the host network have their nodes' addresses and no Services.
func TestMonsOnTheHostNetwork(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1}, three(bs, func(cl *cephv1.CephCluster) { cl.Spec.Network.Provider = cephv1.NetworkProviderHost }),
		look(bs, 3, 3, func(ctx context.Context, b *bench) error {
			var list corev1.ConfigMap
			if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph-mon-endpoints"}, &list); err != nil {
				return err
			}
			var svc corev1.Service
			err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph-mon-a"}, &svc)
			if !apierrors.IsNotFound(err) || strings.Count(list.Data["data"], "=192.0.2.") != 3 {
				return fmt.Errorf("list %s, Service %w", list.Data["data"], err)
			}
			return nil
		}))
}

func TestMonsOnIPv6(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1}, three(bs, func(cl *cephv1.CephCluster) { cl.Spec.Network.IPFamily = cephv1.IPv6 }),
		look(bs, 3, 3, func(ctx context.Context, b *bench) error {
			var s corev1.Secret
			if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph-config"}, &s); err != nil {
				return err
			}
			if strings.Count(string(s.Data["mon_host"]), "[v2:[fd00::") != 3 {
				return fmt.Errorf("mon_host %s", s.Data["mon_host"])
			}
			return nil
		}))
}

// Mons on volumes have a claim each, are pinned to no node, and move when theirs is
// deleted: with their store, under the same name.
func TestMonsOnVolumes(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 4, disks: 1}, three(bs, shortTimeouts, func(cl *cephv1.CephCluster) {
		cl.Spec.Mon.VolumeClaimTemplate = &cephv1.VolumeClaimTemplate{}
		cl.Spec.Storage.Nodes = cl.Spec.Storage.Nodes[:1]
	}), bs.act("delete a node", func(ctx context.Context, b *bench) error {
		for _, id := range []string{"a", "b", "c"} {
			var claim corev1.PersistentVolumeClaim
			if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph-mon-" + id}, &claim); err != nil {
				return err
			}
			if node, err := monNode(ctx, b, id); err != nil || node != "" {
				return fmt.Errorf("mon %s is pinned to %q: %w", id, node, err)
			}
		}
		b.sim.DeleteNode(b.node(2))
		return b.dropPods(ctx, b.node(2))
	}), look(bs, 1, 3, monsAre("a,b,c")))
}

// dropPods is Kubernetes' own hand: pods of a node that was deleted go.
func (b *bench) dropPods(ctx context.Context, node string) error {
	var list corev1.PodList
	if err := b.c.List(ctx, &list, client.InNamespace(b.ns)); err != nil {
		return err
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == node {
			if err := client.IgnoreNotFound(b.c.Delete(ctx, p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// A mgr more and a new Ceph version at once: the invariant C5 holds for the new mgr too.
func TestMoreMgrsDuringAnUpgrade(t *testing.T) {
	bs := benches{}
	run(t, bs, options{nodes: 3, disks: 1},
		setup(three(bs, func(cl *cephv1.CephCluster) { cl.Spec.Mgr.Count = 1 })),
		bs.act("new Ceph, two mgrs", func(ctx context.Context, b *bench) error {
			return b.edit(ctx, func(cl *cephv1.CephCluster) { cl.Spec.CephVersion.Image, cl.Spec.Mgr.Count = newImage, 2 })
		}),
		look(bs, 3, 3, func(ctx context.Context, b *bench) error {
			pods, err := b.daemonPods(ctx)
			if len(pods) != 8 {
				return fmt.Errorf("daemons %v: %w", pods, err)
			}
			return nil
		}),
	)
}
