// Package cephcluster tests a whole CephCluster: all of its controllers, on a real
// API server, with simulated nodes and an in-memory Ceph.
package cephcluster

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
	mgrspec "github.com/castellan-storage/castellan/internal/mgr/spec"
	"github.com/castellan-storage/castellan/test/operator"
	"github.com/castellan-storage/castellan/test/sim"
)

var api envtestx.Server

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtestx.Main(m, &api))
}

// rig is a namespace with nodes, an in-memory Ceph, and an operator that can be
// killed and started again.
type rig struct {
	t      *testing.T
	ns     string
	c      client.Client
	ceph   *cephtest.Cluster
	world  *sim.World
	writes *envtestx.Writes
	cfg    *rest.Config
	stop   func()
	hook   kit.Hook
}

// nodes are unique to a test, since nodes have no namespace.
func newRig(t *testing.T, nodes, disks int) *rig {
	t.Helper()
	cfg, writes := envtestx.CountWrites(api.Config(t))
	r := &rig{t: t, ns: api.Namespace(t), c: api.Client(t, operator.Scheme(t)), cfg: cfg, writes: writes, ceph: cephtest.New(t)}
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("%s-n%d", r.ns, i+1)
	}
	r.world = sim.New(t, r.c, r.ns, r.ceph, names...)
	for _, n := range names {
		for d := range disks {
			r.world.AddDisk(n, "sd"+string(rune('b'+d)))
		}
	}
	r.start()
	t.Cleanup(func() { r.kill() })
	return r
}

func (r *rig) node(i int) string { return fmt.Sprintf("%s-n%d", r.ns, i) }

// start runs an operator with empty memory.
func (r *rig) start() {
	r.t.Helper()
	m, err := ctrl.NewManager(r.cfg, operator.ManagerOptions(r.t, operator.Cache(r.t, r.ns)))
	if err != nil {
		r.t.Fatalf("making the operator: %v", err)
	}
	env := operator.EnvOf(m)
	env.Hook = r.hook
	operator.Parts{
		Access:   access.Reader{Live: env.Live, Dial: func(_ string, cfg conn.Config) ceph.Commander { return sim.Founded{Cluster: r.ceph, As: cfg.FSID} }},
		Operator: pods.Operator{Image: "castellan:test", Namespace: r.ns, Version: "test"},
		Settings: operator.DefaultSettings,
	}.Register(r.t, m, env)
	r.stop = operator.Start(r.t, m)
}

func (r *rig) kill() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// create makes the CephCluster, changed as the test wants it.
func (r *rig) create(change ...func(*cephv1.CephCluster)) *cephv1.CephCluster {
	r.t.Helper()
	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: r.ns},
		Spec: cephv1.ClusterSpec{
			CephVersion:     cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"},
			DataDirHostPath: "/var/lib/rook",
			Mgr:             cephv1.MgrSpec{Count: 2},
			CrashCollector:  cephv1.CrashCollectorSpec{Disable: true},
			Storage:         cephv1.StorageScopeSpec{Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}},
		},
	}
	for i := range 9 {
		if n := r.node(i + 1); r.has(n) {
			cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: n})
		}
	}
	cl.Spec.Placement = cephv1.PlacementSpec{}
	for _, c := range change {
		c(cl)
	}
	if err := r.c.Create(r.t.Context(), cl); err != nil {
		r.t.Fatalf("creating the CephCluster: %v", err)
	}
	return cl
}

func (r *rig) has(node string) bool {
	return r.c.Get(r.t.Context(), client.ObjectKey{Name: node}, &corev1.Node{}) == nil
}

func (r *rig) get() *cephv1.CephCluster {
	r.t.Helper()
	var cl cephv1.CephCluster
	if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph"}, &cl); err != nil {
		r.t.Fatalf("reading the CephCluster: %v", err)
	}
	return &cl
}

// ready waits for phase Ready with so many OSDs up.
func (r *rig) ready(osds int) {
	r.t.Helper()
	sim.Eventually(r.t, 60*time.Second, "cluster ready", func() error {
		cl := r.get()
		if cl.Status.Phase != cephv1.ConditionReady || cl.Status.OSD == nil || cl.Status.OSD.Up != osds {
			return fmt.Errorf("phase %s: %s; blocked by %+v; osd %+v", cl.Status.Phase, cl.Status.Message, cl.Status.BlockedBy, cl.Status.OSD)
		}
		// Standby mgrs come when the cluster is ready.
		for i := range cl.Spec.Mgr.EffectiveCount() {
			var d appsv1.Deployment
			if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: mgrspec.Name(mgrspec.ID(i))}, &d); err != nil {
				return err
			}
			if d.Status.ReadyReplicas == 0 {
				return fmt.Errorf("%s does not run", d.Name)
			}
		}
		return nil
	})
}

// condition waits for a condition to have a status, and returns it.
func (r *rig) condition(kind, want, says string) {
	r.t.Helper()
	sim.Eventually(r.t, 30*time.Second, kind+" "+want, func() error {
		c := cephv1.FindCondition(r.get().Status.Conditions, cephv1.ConditionType(kind))
		if c == nil || string(c.Status) != want || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestFromManifestToReady(t *testing.T) {
	r := newRig(t, 3, 2)
	begun := time.Now()
	r.create()
	r.ready(6)
	t.Logf("ready after %v", time.Since(begun))
	cl := r.get()
	if got := cl.Status.Mon.Summary; got != "3/3" {
		t.Errorf("mons %s", got)
	}
	if got := r.ceph.RunningMons(); len(got) != 3 {
		t.Errorf("mons %v", got)
	}
	if v := cl.Status.CephVersion; v == nil || v.Version != "20.2.4-0" {
		t.Errorf("version %+v", v)
	}
	for _, name := range []string{"rook-ceph-mon-a", "rook-ceph-mon-b", "rook-ceph-mon-c", "rook-ceph-mgr-a", "rook-ceph-mgr-b", "rook-ceph-osd-0", "rook-ceph-osd-5"} {
		var d appsv1.Deployment
		if err := r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: name}, &d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var podList corev1.PodList
	if err := r.c.List(t.Context(), &podList, client.InNamespace(r.ns), client.MatchingLabels{"mon_canary": "true"}); err != nil || len(podList.Items) != 0 {
		t.Errorf("canaries left: %d, %v", len(podList.Items), err)
	}
}

// A steady cluster costs nothing: no write to Kubernetes, no change to Ceph.
func TestASteadyClusterIsLeftAlone(t *testing.T) {
	r := newRig(t, 3, 1)
	r.create()
	r.ready(3)
	// The status says at its next look, a minute later or when the operator starts, that a
	// standby mgr has come.
	r.kill()
	r.start()
	quiet := func() ([]string, cephtest.Counters) {
		r.writes.Reset()
		r.ceph.Reset()
		time.Sleep(4 * time.Second)
		return r.writes.Lines(), r.ceph.Counters()
	}
	var lines []string
	var count cephtest.Counters
	for range 5 { // what has been started is let end
		if lines, count = quiet(); len(lines) == 0 && count.Mutations == 0 {
			break
		}
	}
	if len(lines) != 0 || count.Mutations != 0 {
		t.Fatalf("a steady cluster gets %d writes %v and %d Ceph mutations", len(lines), lines, count.Mutations)
	}
	// A restart of the operator looks at everything once, and still changes nothing.
	r.kill()
	before := r.get()
	r.writes.Reset()
	r.ceph.Reset()
	r.start()
	time.Sleep(5 * time.Second)
	if diff := cmp.Diff(before.Status, r.get().Status); diff != "" {
		t.Errorf("a restart changes the status (-before +after):\n%s", diff)
	}
	if lines, count := r.writes.Lines(), r.ceph.Counters(); len(lines) != 0 || count.Mutations != 0 {
		for _, s := range r.ceph.Commands() {
			if s.Mutating {
				t.Log(s.Command)
			}
		}
		t.Errorf("a restart costs %d writes %v and %d Ceph mutations", len(lines), lines, count.Mutations)
	} else {
		t.Logf("a pass over everything costs %d Ceph commands, 0 writes", count.Reads)
	}
}

// The operator dies at random while the cluster comes up, and it comes up all the
// same, with one identity.
func TestKilledAtRandomDuringBringUp(t *testing.T) {
	r := newRig(t, 3, 1)
	r.create()
	fsids := map[string]bool{}
	for i := range 12 {
		time.Sleep(time.Duration(40+i*35) * time.Millisecond)
		r.kill()
		var s corev1.Secret
		if r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph-mon"}, &s) == nil {
			fsids[string(s.Data["fsid"])] = true
		}
		r.start()
	}
	r.ready(3)
	if len(fsids) > 1 {
		t.Errorf("the cluster was founded %d times", len(fsids))
	}
	if r.ceph.DataLost() != nil {
		t.Errorf("data lost: %v", r.ceph.DataLost())
	}
}

func TestALostIdentityIsNotMadeAnew(t *testing.T) {
	r := newRig(t, 3, 1)
	r.create()
	r.ready(3)
	r.kill()
	var s corev1.Secret
	if err := r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph-mon"}, &s); err != nil {
		t.Fatal(err)
	}
	saved := s.DeepCopy()
	s.Finalizers = nil
	if err := r.c.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	if err := r.c.Delete(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.condition("FoundationReady", "False", "a new cluster is not founded beside it")
	if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(saved), &s); err == nil {
		t.Fatal("a new identity was made")
	}
	saved.ResourceVersion, saved.UID = "", ""
	if err := r.c.Create(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	r.ready(3)
}

func TestANodeThatHangsDelaysNoOther(t *testing.T) {
	r := newRig(t, 3, 1)
	r.world.Hold(r.node(2), true)
	r.create()
	sim.Eventually(t, 40*time.Second, "the other nodes' OSDs", func() error {
		if n := len(r.ceph.RunningOSDs()); n != 2 {
			return fmt.Errorf("%d OSDs", n)
		}
		return nil
	})
	r.condition("ProvisioningReady", "False", r.node(2))
	if r.get().Status.Phase == cephv1.ConditionReady {
		t.Error("Ready while a node's OSDs are missing")
	}
	r.world.Hold(r.node(2), false)
	r.ready(3)
}

func TestMonFailover(t *testing.T) {
	r := newRig(t, 4, 1)
	r.create(func(cl *cephv1.CephCluster) {
		cl.Spec.HealthCheck.DaemonHealth.Monitor.Interval = &metav1.Duration{Duration: time.Second}
		cl.Spec.HealthCheck.DaemonHealth.Monitor.Timeout = "5s"
	})
	r.ready(4)
	var d appsv1.Deployment
	if err := r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph-mon-b"}, &d); err != nil {
		t.Fatal(err)
	}
	r.world.Kill(d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname])
	sim.Eventually(t, 60*time.Second, "mon d in place of mon b", func() error {
		got := r.ceph.RunningMons()
		slices.Sort(got)
		if strings.Join(got, ",") != "a,c,d" {
			return fmt.Errorf("mons %v; %+v", got, r.get().Status.BlockedBy)
		}
		var cm corev1.ConfigMap
		if err := r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph-mon-endpoints"}, &cm); err != nil {
			return err
		}
		if strings.Contains(cm.Data["data"], "b=") || !strings.Contains(cm.Data["data"], "d=") {
			return fmt.Errorf("endpoints %s", cm.Data["data"])
		}
		return nil
	})
}

func TestSpecEdits(t *testing.T) {
	r := newRig(t, 3, 1)
	r.create()
	r.ready(3)
	edit := func(change func(*cephv1.CephCluster)) time.Time {
		t.Helper()
		sim.Eventually(t, 5*time.Second, "edit", func() error {
			cl := r.get()
			change(cl)
			return r.c.Update(t.Context(), cl)
		})
		return time.Now()
	}
	begun := edit(func(cl *cephv1.CephCluster) { cl.Spec.Mgr.Count = 1 })
	sim.Eventually(t, 10*time.Second, "one mgr", func() error {
		var list appsv1.DeploymentList
		if err := r.c.List(t.Context(), &list, client.InNamespace(r.ns), client.MatchingLabels{"app": "rook-ceph-mgr"}); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d mgrs", len(list.Items))
		}
		return nil
	})
	t.Logf("mgr count 2 to 1: Deployment gone after %v", time.Since(begun))
	// A change of the pods' template rolls mons and OSDs one set at a time.
	edit(func(cl *cephv1.CephCluster) {
		cl.Spec.Annotations = cephv1.AnnotationsSpec{"all": {"example.com/x": "1"}}
	})
	sim.Eventually(t, 60*time.Second, "all daemons restarted", func() error {
		var list appsv1.DeploymentList
		if err := r.c.List(t.Context(), &list, client.InNamespace(r.ns)); err != nil {
			return err
		}
		for _, d := range list.Items {
			if d.Spec.Template.Annotations["example.com/x"] != "1" {
				return fmt.Errorf("%s is not updated; %+v", d.Name, r.get().Status.BlockedBy)
			}
		}
		return nil
	})
	r.ready(3)
	if lost := r.ceph.DataLost(); lost != nil {
		t.Errorf("data lost: %v", lost)
	}
}

// What can never work, or what would have to be guessed, ends in a condition that names
// the field within seconds, and nothing is made for it.
func TestBadSpecsNameTheField(t *testing.T) {
	// What must not be there after it: mons, mgrs, OSDs and prepare Jobs by label app.
	const nothing, noOSDs = "rook-ceph-mon", "rook-ceph-osd-prepare"
	cases := []struct {
		name, condition, says string
		change                func(*cephv1.CephCluster)
		absent                string
	}{
		{"forbidden directory", "FoundationReady", "spec.dataDirHostPath", func(cl *cephv1.CephCluster) { cl.Spec.DataDirHostPath = "/etc/ceph" }, nothing},
		{"2 mons", "MonReady", "spec.mon.count", func(cl *cephv1.CephCluster) { cl.Spec.Mon.Count = 2 }, nothing},
		{"4 mons", "MonReady", "spec.mon.count", func(cl *cephv1.CephCluster) { cl.Spec.Mon.Count = 4 }, nothing},
		{"no such node", "ProvisioningReady", "spec.storage.nodes[1].name", func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: "nowhere"})
		}, ""},
		{"unknown setting", "ProvisioningReady", "spec.storage.config[osdsPerDisk]", func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.Config = map[string]string{"osdsPerDisk": "2"}
		}, noOSDs},
		{"unknown setting of a node", "ProvisioningReady", "spec.storage.nodes[0].config[colour]", func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.Nodes[0].Config = map[string]string{"colour": "red"}
		}, noOSDs},
		{"filter that is no regexp", "ProvisioningReady", "deviceFilter", func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.UseAllDevices, cl.Spec.Storage.DeviceFilter = nil, "sd["
		}, noOSDs},
		{"path filter that is no regexp", "ProvisioningReady", "devicePathFilter", func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.UseAllDevices, cl.Spec.Storage.DevicePathFilter = nil, "(/dev"
		}, noOSDs},
		{"no such device", "ProvisioningReady", "/dev/nowhere", func(cl *cephv1.CephCluster) {
			cl.Spec.Storage.UseAllDevices, cl.Spec.Storage.Devices = nil, []cephv1.Device{{Name: "/dev/nowhere"}}
		}, "rook-ceph-osd"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 1)
			begun := time.Now()
			r.create(func(cl *cephv1.CephCluster) { cl.Spec.Mon.Count = 1; cl.Spec.Mgr.Count = 1 }, c.change)
			r.condition(c.condition, "False", c.says)
			t.Logf("named after %v", time.Since(begun).Round(10*time.Millisecond))
			if c.absent == "" {
				return
			}
			time.Sleep(2 * time.Second) // what comes by mistake comes at once
			for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &batchv1.JobList{}, &corev1.PodList{}} {
				if err := r.c.List(t.Context(), list, client.InNamespace(r.ns), client.MatchingLabels{"app": c.absent}); err != nil || meta.LenList(list) != 0 {
					t.Errorf("%d of %T with app %s: %v", meta.LenList(list), list, c.absent, err)
				}
			}
		})
	}
}

func TestASecondClusterInANamespaceIsRefused(t *testing.T) {
	r := newRig(t, 1, 1)
	r.create(func(cl *cephv1.CephCluster) { cl.Spec.Mon.Count = 1; cl.Spec.Mgr.Count = 1 })
	r.ready(1)
	second := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: r.ns}, Spec: *r.get().Spec.DeepCopy()}
	if err := r.c.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	sim.Eventually(t, 20*time.Second, "refusal", func() error {
		var cl cephv1.CephCluster
		if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(second), &cl); err != nil {
			return err
		}
		c := cephv1.FindCondition(cl.Status.Conditions, "FoundationReady")
		if c == nil || c.Status != "False" || !strings.Contains(c.Message, "rook-ceph came first") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	r.ready(1)
}
