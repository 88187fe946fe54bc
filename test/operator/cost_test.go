package operator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/test/operator"
	"github.com/castellan-storage/castellan/test/sim"
)

// mostCommands is what a pass of all controllers over a cluster with nothing to do may
// ask of Ceph.
const mostCommands = 12

// A new operator that finds all as it should be has one pass of each controller, writes
// nothing, changes nothing in Ceph and asks it no more than mostCommands times.
func TestAPassOverEverythingAsksLittle(t *testing.T) {
	const namespace = "rook-ceph"
	store, err := kittest.NewStore(operator.Scheme(t))
	if err != nil {
		t.Fatal(err)
	}
	c, cluster := store.Client(), cephtest.New(t)
	nodes := []string{"n1", "n2", "n3"}
	world := sim.InMemory(t, c, namespace, cluster, nodes...)
	for _, n := range nodes {
		world.AddDisk(n, "sdb")
		world.AddDisk(n, "sdc")
	}
	// What a process has of the connection to Ceph goes with it.
	process := func() operator.Parts {
		var shared *ceph.Sharing
		as := ""
		dial := func(_ string, cfg conn.Config) ceph.Commander {
			if shared == nil || as != cfg.FSID {
				as = cfg.FSID
				shared = ceph.NewSharing(sim.Founded{Cluster: cluster, As: as})
			}
			return shared
		}
		return operator.Parts{
			Access:   access.Reader{Live: c, Dial: dial},
			Operator: pods.Operator{Image: "castellan:test", Namespace: namespace, Version: "test"}, Settings: operator.DefaultSettings,
		}
	}
	w := &kittest.World{Env: kit.Env{Client: c}, Drivers: process().Drivers(), Step: world.Step, Time: store.Clock}
	create := func(ctx context.Context, _ *kittest.World) error {
		cl := &cephv1.CephCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: namespace},
			Spec: cephv1.ClusterSpec{
				CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook",
				Mon: cephv1.MonSpec{Count: 3}, Mgr: cephv1.MgrSpec{Count: 2},
				Storage: cephv1.StorageScopeSpec{UseAllNodes: true, Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}},
			},
		}
		return c.Create(ctx, cl)
	}
	if _, err := kittest.Play(t, kittest.Scenario{
		World: func(testing.TB) *kittest.World { return w }, Settle: 65 * time.Second,
		Acts: []kittest.Act{{Name: "create", Do: create}},
	}, 0, kittest.Before); err != nil {
		t.Fatal(err)
	}
	var cl cephv1.CephCluster
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "rook-ceph"}, &cl); err != nil {
		t.Fatal(err)
	}
	if st := cl.Status; st.Phase != cephv1.ConditionReady || st.OSD == nil || st.OSD.Up != 6 {
		t.Fatalf("the cluster is not ready: phase %s, %s, OSDs %+v", st.Phase, st.Message, st.OSD)
	}

	env := w.Env
	env.Hook = nil
	store.ResetWrites()
	cluster.Reset()
	passes := 0
	for _, d := range process().Drivers() {
		r := d(env)
		keys, err := r.Keys(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			passes++
			if _, err := r.Reconcile.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Errorf("%s %s: %v", r.Name, key, err)
			}
		}
	}
	count := map[string]int{}
	for _, s := range cluster.Commands() {
		count[s.Prefix]++
		if s.Mutating {
			t.Errorf("a pass with nothing to do changes Ceph: %s", s.Command)
		}
	}
	if got := store.Writes(); len(got) > 0 {
		t.Errorf("a pass with nothing to do writes %v", got)
	}
	told := make([]string, 0, len(count))
	sum := 0
	for _, prefix := range slices.Sorted(maps.Keys(count)) {
		told = append(told, fmt.Sprintf("%d %s", count[prefix], prefix))
		sum += count[prefix]
	}
	t.Logf("%d passes, %d commands: %s", passes, sum, strings.Join(told, ", "))
	if passes < 13 || sum == 0 {
		t.Errorf("only %d passes and %d commands: not all controllers have been there", passes, sum)
	}
	if sum > mostCommands {
		t.Errorf("%d commands, of which no more than %d are allowed", sum, mostCommands)
	}
}
