// Package crash runs whole CephClusters (all controllers, simulated nodes, an
// in-memory Ceph) with a crash of the operator at every effect, before it, after it,
// and after it with the reply lost. Every run must come to the state of the run
// without faults, hold the invariants of the table in invariants_test.go after every
// effect, and be steady afterwards.
//
// The runs have a clock of their own and no real waits. They go against kittest's
// in-memory API server, and a sample of them against a real one. What runs by default
// is a sample that fits CI; kittest.Sample says how to ask for more.
package crash

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/test/operator"
	"github.com/castellan-storage/castellan/test/sim"
)

var api envtestx.Server

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // hundreds of small worlds: memory is cheaper than time
	}
	os.Exit(envtestx.Main(m, &api))
}

// namespaces that were made on the real API server.
var namespaces atomic.Int64

const (
	oldImage = "quay.io/ceph/ceph:v20.2.4"
	newImage = "quay.io/ceph/ceph:v20.2.5"
)

// bench is one world with one cluster.
type bench struct {
	t  testing.TB
	ns string
	c  client.Client
	// store is nil on a real API server.
	store *kittest.Store
	ceph  *cephtest.Cluster
	sim   *sim.World
	real  bool
	op    pods.Operator
	inv   *invariants
	// pods of daemons by uid, noted by an act.
	noted map[string]string
}

// options of a world.
type options struct {
	nodes, disks int
	real         bool
	labels       func(i int) []string
	// begin names all that scenarios with the same acts of Setup have in common; "" for
	// one that begins as no other does.
	begin string
	// lag is how many writes what controllers read may be behind, by seed.
	lag  int
	seed uint64
}

// setups are worlds at the beginning of scenarios.
var setups kittest.Setups

// benches makes worlds; each has its bench in World.Data.
type benches struct{}

func (benches) world(t testing.TB, o options) *kittest.World {
	t.Helper()
	b := &bench{t: t, ns: "rook-ceph", real: o.real, op: pods.Operator{Image: "castellan:one", Version: "one"}}
	b.ceph = cephtest.New(t, cephtest.FSID(operator.FSID), cephtest.Release("20.2.4"))
	w := &kittest.World{}
	if o.real {
		b.c = api.Client(t, operator.Scheme(t))
		// A short name: where it is part of another, that is not cut.
		b.ns = fmt.Sprintf("run%d", namespaces.Add(1))
		if err := b.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.ns}}); err != nil {
			t.Fatal(err)
		}
		b.sim = sim.Stepped(t, b.c, b.ns, b.ceph)
		w.Start = time.Now()
	} else {
		store, err := kittest.NewStore(operator.Scheme(t))
		if err != nil {
			t.Fatal(err)
		}
		b.store, b.c = store, store.Client()
		b.sim = sim.InMemory(t, b.c, b.ns, b.ceph)
	}
	b.op.Namespace = b.ns
	b.sim.Versions = map[string]string{oldImage: "20.2.4", newImage: "20.2.5"}
	b.inv = newInvariants(b)
	for i := range o.nodes {
		b.addNode(i+1, o)
	}
	return b.live(w, o)
}

// live makes a world of what a bench has.
func (b *bench) live(w *kittest.World, o options) *kittest.World {
	b.ceph.OnCommand(b.inv.command)
	w.Env.Client = b.c
	if o.lag > 0 {
		w.Cache = b.store.Cache(o.seed, o.lag)
		w.Env.Client, w.Env.Live = w.Cache.Client(), b.c
	}
	w.Drivers, w.Step, w.Check, w.Digest, w.Data = b.drivers(), b.step, b.inv.after, b.digest, b
	if !b.real {
		w.Time = b.store.Clock
		w.Fork = func(t testing.TB) *kittest.World { return b.fork(t).live(&kittest.World{}, o) }
		w.State = b.state
	}
	return w
}

// state tells two states on the way of one run apart: all that happens is written, is a
// command to Ceph, or takes a step of the world.
func (b *bench) state() string {
	return fmt.Sprint(b.store.Revision(), b.ceph.Counters().Mutations, b.ceph.Now().UnixNano())
}

// fork copies everything that there is.
func (b *bench) fork(t testing.TB) *bench {
	f := *b
	f.t, f.store, f.ceph = t, b.store.Fork(), b.ceph.Fork(t)
	f.c = f.store.Client()
	f.sim = b.sim.Fork(t, f.c, f.ceph)
	f.inv = b.inv.fork(&f)
	f.noted = maps.Clone(b.noted)
	return &f
}

func (b *bench) node(i int) string { return fmt.Sprintf("%s-n%d", b.ns, i) }

func (b *bench) addNode(i int, o options) {
	var labels []string
	if o.labels != nil {
		labels = o.labels(i)
	}
	b.sim.AddNode(b.node(i), labels...)
	for d := range o.disks {
		b.sim.AddDisk(b.node(i), "sd"+string(rune('b'+d)))
	}
}

// step lets the world move and looks at the invariants, since much of what effects
// bring about comes then.
func (b *bench) step(ctx context.Context) (bool, error) {
	changed, err := b.sim.Step(ctx)
	if err == nil && b.real {
		err = b.collect(ctx)
	}
	if err == nil && changed {
		b.inv.moved(ctx)
	}
	return changed, err
}

// parts of the operator as it is now.
func (b *bench) parts() operator.Parts {
	return operator.Parts{
		Access:   access.Reader{Live: b.c, Dial: func(string, conn.Config) ceph.Commander { return b.ceph }},
		Operator: b.op, Settings: operator.DefaultSettings, Random: operator.Sevens{},
	}
}

// drivers are the operator's controllers, made anew with each process.
func (b *bench) drivers() []kittest.Driver {
	var list []kittest.Driver
	for i := range b.parts().Controllers() {
		list = append(list, func(env kit.Env) kittest.Runner { return b.parts().Controllers()[i].Drive(env) })
	}
	return list
}

// cluster is the CephCluster as most scenarios want it.
func (b *bench) cluster(nodes int, change ...func(*cephv1.CephCluster)) *cephv1.CephCluster {
	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: b.ns},
		Spec: cephv1.ClusterSpec{
			CephVersion:     cephv1.CephVersionSpec{Image: oldImage},
			DataDirHostPath: "/var/lib/rook",
			Mon:             cephv1.MonSpec{Count: 3},
			Mgr:             cephv1.MgrSpec{Count: 2},
			CrashCollector:  cephv1.CrashCollectorSpec{Disable: true},
			Storage:         cephv1.StorageScopeSpec{Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}},
		},
	}
	if b.real {
		cl.Spec.DataDirHostPath = "/var/lib/" + b.ns // worlds on one server have its nodes in common
	}
	for i := range nodes {
		cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: b.node(i + 1)})
	}
	for _, c := range change {
		c(cl)
	}
	return cl
}

func (b *bench) get(ctx context.Context) (*cephv1.CephCluster, error) {
	cl := &cephv1.CephCluster{}
	return cl, b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, cl)
}

func (b *bench) edit(ctx context.Context, change func(*cephv1.CephCluster)) error {
	cl, err := b.get(ctx)
	if err != nil {
		return err
	}
	change(cl)
	return b.c.Update(ctx, cl)
}

// ready says why the cluster is not Ready with so many OSDs.
func (b *bench) ready(ctx context.Context, osds, mons int) error {
	cl, err := b.get(ctx)
	if err != nil {
		return err
	}
	st := cl.Status
	if st.Phase != cephv1.ConditionReady || st.OSD == nil || st.OSD.Up != osds || st.Mon == nil || st.Mon.InQuorum != mons {
		return fmt.Errorf("phase %q (%s), OSDs %+v, mons %+v, blocked by %+v", st.Phase, st.Message, st.OSD, st.Mon, st.BlockedBy)
	}
	return nil
}

// daemonPods are the pods of daemons by name of the daemon, with their uids.
func (b *bench) daemonPods(ctx context.Context) (map[string]string, error) {
	var list corev1.PodList
	if err := b.c.List(ctx, &list, client.InNamespace(b.ns), client.HasLabels{"ceph_daemon_type"}); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, p := range list.Items {
		// An exporter serves nobody's data, and comes and goes with its node.
		if p.DeletionTimestamp == nil && p.Labels["mon_canary"] == "" && p.Labels["ceph_daemon_type"] != "exporter" {
			out[p.Labels["ceph_daemon_type"]+"."+p.Labels["ceph_daemon_id"]] = string(p.UID)
		}
	}
	return out, nil
}

// act makes an Act from what a bench does.
func (benches) act(name string, do func(ctx context.Context, b *bench) error) kittest.Act {
	return kittest.Act{Name: name, Do: func(ctx context.Context, w *kittest.World) error { return do(ctx, w.Data.(*bench)) }}
}

// run runs a scenario with crashes and tells what was covered.
func run(t *testing.T, bs benches, o options, acts ...kittest.Act) {
	t.Helper()
	began := time.Now()
	every, pick := kittest.Sample(t, 44, 97)
	s := kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return bs.world(t, o) },
		Acts:  acts, Every: every, Pick: pick, Extra: 40, Parallel: true, Pairs: kittest.Random(t, 0), Seed: 1, Modes: []kittest.Mode{kittest.Before, kittest.After, kittest.ReplyLost},
		// Longer than the slowest regular look of any controller (a minute).
		Settle: 65 * time.Second,
		Setups: &setups, Begin: o.begin, Whole: every == 1 || t.Name() == "TestAddANode", // one proves for all how worlds are copied
	}
	if o.real {
		// A run takes some 15 s there instead of 0.5.
		s.Every, s.Pairs = max(s.Every*6, 12), 0
		s.Modes = []kittest.Mode{kittest.ReplyLost}
	}
	res := kittest.Run(t, s)
	own := len(res.Effects) - res.Setup
	t.Logf("CRASH %s: %d effects of its own (%d with setup), %d crashes (%d of them the same as others, %d second ones, every %d, modes %v), %d rounds a run, %v",
		t.Name(), own, len(res.Effects), res.Runs, res.Same, res.Twice, s.Every, s.Modes, res.Rounds, time.Since(began).Round(time.Millisecond))
}
