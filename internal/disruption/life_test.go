package disruption

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/access/accesstest"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

const ns = "rook-ceph"

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// world is three hosts with two OSDs each, in Kubernetes and in Ceph.
type world struct {
	*kittest.World
	c    client.Client
	ceph *cephtest.Cluster
	tree cephosd.Tree
}

func (w *world) host(id int) string { return w.tree.Location(id)["host"] }

func newWorld(t testing.TB) *world {
	t.Helper()
	store, err := kittest.NewStore(scheme(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{c: store.Client(), ceph: cephtest.Healthy(t, 3, 2)}
	if w.tree, err = cephosd.New(w.ceph).Tree(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The budget is not ours, and not of OSDs.
	objs := append(accesstest.Founded(t, ns), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-osd-users-own", Namespace: ns}})
	for osd := range 6 {
		if osd%2 == 0 {
			objs = append(objs, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + w.host(osd), Labels: map[string]string{corev1.LabelHostname: w.host(osd)}}})
		}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-osd-" + strconv.Itoa(osd), Namespace: ns, Labels: map[string]string{"app": App, idLabel: strconv.Itoa(osd)}}}
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: w.host(osd)}
		d.Status.ReadyReplicas = 1
		objs = append(objs, d)
	}
	for _, o := range objs {
		made := o.DeepCopyObject().(client.Object)
		if err := w.c.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		if d, ok := o.(*appsv1.Deployment); ok {
			live := made.(*appsv1.Deployment)
			live.Status = d.Status
			if err := w.c.Status().Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.World = &kittest.World{
		Env: kit.Env{Client: w.c},
		Drivers: []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*cephv1.CephCluster, Seen] {
			return &Controller{Cache: env.Client, Access: access.Reader{Live: env.Client, Dial: func(string, conn.Config) ceph.Commander { return w.ceph }}}
		}, Options(), kittest.KeysOf(&cephv1.CephClusterList{}, ns))},
		Check: w.check,
		Digest: func(ctx context.Context) (string, error) {
			s, err := kittest.Digest(ctx, w.c, ns, &policyv1.PodDisruptionBudgetList{})
			return s + fmt.Sprint(w.flags(ctx)), err
		},
	}
	return w
}

func (w *world) flags(ctx context.Context) map[string][]string {
	m, err := cephosd.New(w.ceph).Dump(ctx)
	if err != nil {
		return map[string][]string{"error": {err.Error()}}
	}
	return m.CrushNodeFlags
}

// check: at every moment, OSDs of at most one domain are without a budget, and all
// have one that knows of the others or is for none.
func (w *world) check(ctx context.Context, _ kit.Effect) error {
	var list policyv1.PodDisruptionBudgetList
	if err := w.c.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return err
	}
	if len(list.Items) < 2 {
		return nil // before the first, and after the last
	}
	free := map[string]bool{}
	for osd := range 6 {
		covered := false
		for _, b := range list.Items {
			if b.Spec.Selector == nil {
				continue
			}
			sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil {
				return err
			}
			covered = covered || sel.Matches(labelSet{"app": App, "rook_cluster": ns, idLabel: strconv.Itoa(osd)})
		}
		if !covered {
			free[w.host(osd)] = true
		}
	}
	if len(free) > 1 {
		return fmt.Errorf("OSDs of %v are without a budget", free)
	}
	return nil
}

type labelSet map[string]string

func (l labelSet) Has(k string) bool              { _, ok := l[k]; return ok }
func (l labelSet) Get(k string) string            { return l[k] }
func (l labelSet) Lookup(k string) (string, bool) { v, ok := l[k]; return v, ok }

func create(managed bool) kittest.Act {
	return kittest.Act{Name: "create", Do: func(ctx context.Context, w *kittest.World) error {
		cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "my", Namespace: ns}, Spec: cephv1.ClusterSpec{DisruptionManagement: cephv1.DisruptionManagementSpec{ManagePodBudgets: managed}}}
		if err := w.Env.Client.Create(ctx, cl); err != nil {
			return err
		}
		cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "x", Version: "20.2.4-0"}
		return w.Env.Client.Status().Update(ctx, cl)
	}}
}

func (w *world) cordon(ctx context.Context, host string, on bool) error {
	var n corev1.Node
	if err := w.c.Get(ctx, client.ObjectKey{Name: "node-" + host}, &n); err != nil {
		return err
	}
	n.Spec.Unschedulable = on
	return w.c.Update(ctx, &n)
}

// run starts or stops an OSD, in Kubernetes and in Ceph.
func (w *world) run(ctx context.Context, id int, on bool) error {
	var d appsv1.Deployment
	if err := w.c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "rook-ceph-osd-" + strconv.Itoa(id)}, &d); err != nil {
		return err
	}
	d.Status.ReadyReplicas = 0
	if on {
		d.Status.ReadyReplicas = 1
		m, err := cephosd.New(w.ceph).Dump(ctx)
		if err != nil {
			return err
		}
		o, _ := m.Find(id)
		if err := w.ceph.BootOSD(id, o.UUID, cephtest.OSDSpec{Host: w.host(id), Bytes: 10 << 30}); err != nil {
			return err
		}
	} else {
		w.ceph.StopOSD(id)
	}
	w.ceph.Tick(3)
	return w.c.Status().Update(ctx, &d)
}

func (w *world) budgets(t testing.TB) map[string]string {
	t.Helper()
	var list policyv1.PodDisruptionBudgetList
	if err := w.c.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, b := range list.Items {
		if b.Spec.MaxUnavailable != nil {
			out[b.Name] = b.Spec.MaxUnavailable.String()
			for _, e := range b.Spec.Selector.MatchExpressions {
				out[b.Name] += fmt.Sprint(" of ", e.Values)
			}
		}
	}
	return out
}

// script is a drain; the world of a run is found by its kittest.World.
func script(worlds map[*kittest.World]*world) (func(t testing.TB) *kittest.World, []kittest.Act) {
	act := func(name string, f func(ctx context.Context, w *world) error) kittest.Act {
		return kittest.Act{Name: name, Do: func(ctx context.Context, k *kittest.World) error { return f(ctx, worlds[k]) }}
	}
	return func(t testing.TB) *kittest.World {
			w := newWorld(t)
			worlds[w.World] = w
			return w.World
		}, []kittest.Act{
			create(true),
			act("cordon", func(ctx context.Context, w *world) error { return w.cordon(ctx, w.host(0), true) }),
			act("evict", func(ctx context.Context, w *world) error { return w.run(ctx, 0, false) }),
			act("evict the other", func(ctx context.Context, w *world) error { return w.run(ctx, 1, false) }),
			act("uncordon", func(ctx context.Context, w *world) error { return w.cordon(ctx, w.host(0), false) }),
			act("up again", func(ctx context.Context, w *world) error {
				if err := w.run(ctx, 0, true); err != nil {
					return err
				}
				return w.run(ctx, 1, true)
			}),
			act("recovered", func(_ context.Context, w *world) error { w.ceph.Settle(); return nil }),
		}
}

// A drain with a crash at every effect: no two domains are ever free, and nothing is
// left behind.
func TestDrain(t *testing.T) {
	make, acts := script(map[*kittest.World]*world{})
	res := kittest.Run(t, kittest.Scenario{World: make, Acts: acts, Settle: 90 * time.Second})
	if len(res.Effects) < 8 {
		t.Errorf("effects: %v", res.Effects)
	}
}

func TestBudgets(t *testing.T) {
	for _, c := range []struct {
		acts  int
		want  map[string]string
		flags map[string][]string
	}{
		{1, map[string]string{"rook-ceph-osd": "1"}, map[string][]string{}},
		{4, map[string]string{"rook-ceph-osd-host-B": "0 of [2 3]", "rook-ceph-osd-host-C": "0 of [4 5]"}, map[string][]string{"A": {"noout"}}},
		{6, map[string]string{"rook-ceph-osd": "1"}, map[string][]string{}},
		{7, map[string]string{"rook-ceph-osd": "1"}, map[string][]string{}},
	} {
		worlds := map[*kittest.World]*world{}
		var w *world
		mk, acts := script(worlds)
		if _, err := kittest.Play(t, kittest.Scenario{World: func(t testing.TB) *kittest.World { k := mk(t); w = worlds[k]; return k }, Acts: acts[:c.acts], Settle: 90 * time.Second}, 0, kittest.Before); err != nil {
			t.Fatal(err)
		}
		rename := strings.NewReplacer("-A", "-"+w.host(0), "-B", "-"+w.host(2), "-C", "-"+w.host(4))
		want, flags := map[string]string{}, map[string][]string{}
		for k, v := range c.want {
			want[rename.Replace(k)] = v
		}
		for range c.flags {
			flags[w.host(0)] = []string{"noout"}
		}
		if diff := cmp.Diff(want, w.budgets(t)); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", acts[c.acts-1].Name, diff)
		}
		if diff := cmp.Diff(flags, w.flags(t.Context())); diff != "" {
			t.Errorf("flags after %q (-want +got):\n%s", acts[c.acts-1].Name, diff)
		}
	}
}

// Switched off in the middle of a drain, everything goes, the flag too.
func TestOff(t *testing.T) {
	worlds := map[*kittest.World]*world{}
	var w *world
	mk, acts := script(worlds)
	acts = append(acts[:4:4], kittest.Act{Name: "off", Do: func(ctx context.Context, k *kittest.World) error {
		var cl cephv1.CephCluster
		if err := k.Env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "my"}, &cl); err != nil {
			return err
		}
		cl.Spec.DisruptionManagement.ManagePodBudgets = false
		return k.Env.Client.Update(ctx, &cl)
	}})
	if _, err := kittest.Play(t, kittest.Scenario{World: func(t testing.TB) *kittest.World { k := mk(t); w = worlds[k]; k.Check = nil; return k }, Acts: acts}, 0, kittest.Before); err != nil {
		t.Fatal(err)
	}
	if got := w.budgets(t); len(got) > 0 || len(w.flags(t.Context())) > 0 {
		t.Errorf("left: %v, flags %v", got, w.flags(t.Context()))
	}
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: StateMap}, &corev1.ConfigMap{}); err == nil {
		t.Error("the note stays")
	}
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "rook-ceph-osd-users-own"}, &policyv1.PodDisruptionBudget{}); err != nil {
		t.Errorf("the user's own budget: %v", err)
	}
}

// A steady cluster asks Ceph nothing.
func TestSteadyAsksNothing(t *testing.T) {
	var w *world
	if _, err := kittest.Play(t, kittest.Scenario{World: func(t testing.TB) *kittest.World {
		w = newWorld(t)
		w.Digest = func(context.Context) (string, error) { return "", nil } // it asks, too
		w.ceph.Reset()
		return w.World
	}, Acts: []kittest.Act{create(true)}}, 0, kittest.Before); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.ceph.Commands() {
		t.Errorf("asked %v", c)
	}
}

func TestFailureDomain(t *testing.T) {
	tree := cephosd.Tree{Nodes: []cephosd.Node{{Type: "root", TypeID: 11}, {Type: "zone", TypeID: 9}, {Type: "rack", TypeID: 3}, {Type: "host", TypeID: 1}, {Type: "osd", TypeID: 0}}}
	step := func(op, kind string) crush.Step { return crush.Step{Op: op, Type: kind} }
	rules := []crush.Rule{
		{ID: 0, Steps: []crush.Step{{Op: "take"}, step("chooseleaf_firstn", "host"), {Op: "emit"}}},
		{ID: 1, Steps: []crush.Step{{Op: "take"}, step("chooseleaf_firstn", "zone"), {Op: "emit"}}},
		{ID: 2, Steps: []crush.Step{{Op: "set_chooseleaf_tries"}, {Op: "take"}, step("choose_indep", "osd"), {Op: "emit"}}},
		{ID: 3, Steps: []crush.Step{{Op: "take"}, step("choose_indep", "rack"), step("choose_indep", "osd"), {Op: "emit"}}},
	}
	for want, ids := range map[string][]int{"host": {0, 1}, "zone": {1}, "osd": {2, 1}, "rack": {3, 1}} {
		var pools []cephosd.Pool
		for _, id := range ids {
			pools = append(pools, cephosd.Pool{CrushRule: id})
		}
		if got := FailureDomain(pools, rules, tree); got != want {
			t.Errorf("rules %v: %s, want %s", ids, got, want)
		}
	}
	if got := FailureDomain(nil, rules, tree); got != "host" {
		t.Errorf("without pools: %s", got)
	}
}

func TestName(t *testing.T) {
	if a, b := Name("rack", "Rack_1"), Name("rack", "rack-1"); a == b || b != "rook-ceph-osd-rack-rack-1" || strings.ContainsAny(a, "_R") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestBadPattern(t *testing.T) {
	cl := &cephv1.CephCluster{Spec: cephv1.ClusterSpec{DisruptionManagement: cephv1.DisruptionManagementSpec{ManagePodBudgets: true, PGHealthyRegex: "("}}}
	cl.Status.CephVersion = &cephv1.ClusterVersion{Version: "20.2.4-0"}
	if bad, ok := kit.AsTerminal((&Controller{}).Plan(cl, Seen{}).Err); !ok || bad.Field != "spec.disruptionManagement.pgHealthyRegex" {
		t.Errorf("%v", bad)
	}
}
