// Package daemons tests what runs on the nodes of a CephCluster beside its own
// daemons, and what looks after them: crash collectors, device discovery, disruption
// budgets and the settings of OSDs; on a real API server, with simulated nodes and
// an in-memory Ceph.
package daemons

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/disruption"
	"github.com/castellan-storage/castellan/internal/envtestx"
	nodediscover "github.com/castellan-storage/castellan/internal/node/discover"
	"github.com/castellan-storage/castellan/internal/node/statusmap"
	"github.com/castellan-storage/castellan/internal/nodedaemon/spec"
	"github.com/castellan-storage/castellan/internal/settings"
	"github.com/castellan-storage/castellan/test/operator"
	"github.com/castellan-storage/castellan/test/sim"
)

var api envtestx.Server

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtestx.Main(m, &api))
}

// rig is a namespace with three nodes, an in-memory Ceph and an operator.
type rig struct {
	t      *testing.T
	ns     string
	c      client.Client
	ceph   *cephtest.Cluster
	world  *sim.World
	writes *envtestx.Writes
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cfg, writes := envtestx.CountWrites(api.Config(t))
	r := &rig{t: t, ns: api.Namespace(t), c: api.Client(t, operator.Scheme(t)), writes: writes, ceph: cephtest.New(t)}
	r.world = sim.New(t, r.c, r.ns, r.ceph, r.node(1), r.node(2), r.node(3))
	for i := 1; i <= 3; i++ {
		r.world.AddDisk(r.node(i), "sdb")
		r.world.AddDisk(r.node(i), "sdc")
	}
	m, err := ctrl.NewManager(cfg, operator.ManagerOptions(t, operator.Cache(t, r.ns)))
	if err != nil {
		t.Fatalf("making the operator: %v", err)
	}
	r.register(m)
	t.Cleanup(operator.Start(t, m))
	return r
}

func (r *rig) register(m ctrl.Manager) {
	r.t.Helper()
	env := operator.EnvOf(m)
	reader := access.Reader{Live: m.GetAPIReader(), Dial: func(_ string, cfg conn.Config) ceph.Commander { return sim.Founded{Cluster: r.ceph, As: cfg.FSID} }}
	op := pods.Operator{Image: "castellan:test", Namespace: r.ns, Version: "test"}
	set := func(context.Context) (settings.Settings, error) {
		s := settings.Default()
		s.EnableDiscovery = true
		return s, nil
	}
	operator.Parts{Access: reader, Operator: op, Settings: set}.Register(r.t, m, env)
}

func (r *rig) node(i int) string { return fmt.Sprintf("%s-n%d", r.ns, i) }

// create makes the CephCluster.
func (r *rig) create() {
	r.t.Helper()
	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: r.ns},
		Spec: cephv1.ClusterSpec{
			CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook", Mgr: cephv1.MgrSpec{Count: 2},
			CrashCollector:       cephv1.CrashCollectorSpec{DaysToRetain: 30},
			DisruptionManagement: cephv1.DisruptionManagementSpec{ManagePodBudgets: true},
			Storage: cephv1.StorageScopeSpec{
				Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}, Config: map[string]string{"primaryAffinity": "0.5"},
				Nodes: []cephv1.Node{{Name: r.node(1)}, {Name: r.node(2)}, {Name: r.node(3)}},
			},
		},
	}
	if err := r.c.Create(r.t.Context(), cl); err != nil {
		r.t.Fatalf("creating the CephCluster: %v", err)
	}
}

// ready waits for phase Ready with so many OSDs up.
func (r *rig) ready(osds int) {
	r.t.Helper()
	sim.Eventually(r.t, 90*time.Second, "cluster ready", func() error {
		var cl cephv1.CephCluster
		if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph"}, &cl); err != nil {
			return err
		}
		if cl.Status.Phase != cephv1.ConditionReady || cl.Status.OSD == nil || cl.Status.OSD.Up != osds {
			return fmt.Errorf("phase %s: %s; blocked by %+v; osd %+v", cl.Status.Phase, cl.Status.Message, cl.Status.BlockedBy, cl.Status.OSD)
		}
		return nil
	})
}

// names of objects of a kind with a label app.
func (r *rig) names(list client.ObjectList, app string) ([]string, error) {
	if err := r.c.List(r.t.Context(), list, client.InNamespace(r.ns), client.MatchingLabels{"app": app}); err != nil {
		return nil, err
	}
	var out []string
	items, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
	if err != nil {
		return nil, err
	}
	all, _, _ := unstructured.NestedSlice(items, "items")
	for _, i := range all {
		if m, ok := i.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(m, "metadata", "name")
			out = append(out, strings.ReplaceAll(name, r.ns+"-", ""))
		}
	}
	slices.Sort(out)
	return out, nil
}

// has waits until the objects of a kind are these.
func (r *rig) has(list client.ObjectList, app string, want ...string) {
	r.t.Helper()
	sim.Eventually(r.t, 30*time.Second, app, func() error {
		got, err := r.names(list, app)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestDaemonsOfNodes(t *testing.T) {
	r := newRig(t)
	r.create()
	r.ready(6)
	r.has(&appsv1.DeploymentList{}, spec.CrashApp, "rook-ceph-crashcollector-n1", "rook-ceph-crashcollector-n2", "rook-ceph-crashcollector-n3")
	r.has(&appsv1.DeploymentList{}, spec.ExporterApp, "rook-ceph-exporter-n1", "rook-ceph-exporter-n2", "rook-ceph-exporter-n3")
	r.has(&corev1.ServiceList{}, spec.ExporterApp, "rook-ceph-exporter")
	r.has(&batchv1.CronJobList{}, spec.CrashApp, spec.Pruner)
	r.has(&appsv1.DaemonSetList{}, nodediscover.App, "rook-discover")
	r.has(&policyv1.PodDisruptionBudgetList{}, disruption.App, "rook-ceph-osd")
	r.affinity(6)
	r.steady()

	// A disk comes; the node says so, and nobody asks for a rescan.
	r.world.AddDisk(r.node(1), "sdd")
	m := nodediscover.Map(r.ns, r.node(1), []byte(`[{"name":"sdd"}]`))
	if err := r.c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(withLabels(m)), client.FieldOwner(statusmap.FieldManager), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	r.ready(7)
	r.affinity(7)

	// A node is drained: no other may be.
	r.cordon(r.node(2), true)
	r.drain(r.node(2), true)
	r.has(&policyv1.PodDisruptionBudgetList{}, disruption.App, "rook-ceph-osd-host-n1", "rook-ceph-osd-host-n3")
	r.cordon(r.node(2), false)
	r.drain(r.node(2), false)
	r.ready(7)
	r.has(&policyv1.PodDisruptionBudgetList{}, disruption.App, "rook-ceph-osd")
	r.steady()
}

// withLabels makes the node's map an object with labels of the type that it needs.
func withLabels(m map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: m}
	labels := map[string]string{}
	if meta, ok := m["metadata"].(map[string]any); ok {
		if l, ok := meta["labels"].(map[string]any); ok {
			for k, v := range l {
				labels[k] = fmt.Sprint(v)
			}
		}
	}
	u.SetLabels(labels)
	return u
}

// affinity waits until all OSDs have the affinity of the spec.
func (r *rig) affinity(osds int) {
	r.t.Helper()
	sim.Eventually(r.t, 30*time.Second, "primary affinity", func() error {
		m, err := cephosd.New(r.ceph).Dump(r.t.Context())
		if err != nil {
			return err
		}
		n := 0
		for _, o := range m.OSDs {
			if o.PrimaryAffinity > 0.49 && o.PrimaryAffinity < 0.51 {
				n++
			}
		}
		if n != osds {
			return fmt.Errorf("%d OSDs have it", n)
		}
		return nil
	})
}

// steady waits until the operator has nothing more to write.
func (r *rig) steady() {
	r.t.Helper()
	sim.Eventually(r.t, 60*time.Second, "steady", func() error {
		r.writes.Reset()
		<-time.After(3 * time.Second)
		if lines := r.writes.Lines(); len(lines) > 0 {
			return fmt.Errorf("writes: %v", lines)
		}
		return nil
	})
}

func (r *rig) cordon(node string, on bool) {
	r.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":`+strconv.FormatBool(on)+`}}`))
	if err := r.c.Patch(r.t.Context(), n, patch); err != nil {
		r.t.Fatal(err)
	}
}

// drain lets the OSDs of a node go down, or come back.
func (r *rig) drain(node string, gone bool) {
	r.t.Helper()
	var deps appsv1.DeploymentList
	if err := r.c.List(r.t.Context(), &deps, client.InNamespace(r.ns), client.MatchingLabels{"app": disruption.App}); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range deps.Items {
		if d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname] == node {
			r.world.Break("osd."+d.Labels["ceph-osd-id"], gone)
		}
	}
}
