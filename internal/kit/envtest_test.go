package kit_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
)

var server = envtestx.Server{CRDs: []*apiextensionsv1.CustomResourceDefinition{keepCRD()}, NoRepositoryCRDs: true}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // faults are injected by the hundred
	os.Exit(envtestx.Main(m, &server))
}

// TestCrashAtEveryEffectOnARealAPIServer is the same life on a real API server.
func TestCrashAtEveryEffectOnARealAPIServer(t *testing.T) {
	c := server.Client(t, keepScheme(t))
	life := lifeOfAKeep(func(t testing.TB) (client.Client, string) {
		ns := server.Namespace(t)
		t.Cleanup(func() { release(t, c, ns) })
		return c, ns
	}).Scenario
	if testing.Short() {
		life.Every = 4
	}
	res := kittest.Run(t, life)
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
}

// release takes the finalizers off what a test has left.
func release(t testing.TB, c client.Client, ns string) {
	list := &KeepList{}
	if err := c.List(context.Background(), list, client.InNamespace(ns)); err != nil {
		t.Log(err)
	}
	for i := range list.Items {
		list.Items[i].Finalizers = nil
		if err := c.Update(context.Background(), &list.Items[i]); client.IgnoreNotFound(err) != nil {
			t.Log(err)
		}
	}
}

// realBench is a manager with the sample controller on a real API server.
type realBench struct {
	*testing.T
	ns     string
	c      client.Client // of the test: not counted
	writes *envtestx.Writes
	depot  *depot
	keeper *keeper
	passes atomic.Int64
}

func newRealBench(t *testing.T, tune func(*kit.Options)) *realBench {
	t.Helper()
	scheme := keepScheme(t)
	b := &realBench{T: t, ns: server.Namespace(t), c: server.Client(t, scheme), depot: newDepot()}
	cfg, writes := envtestx.CountWrites(server.Config(t))
	b.writes = writes
	skip := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
		Cache: kube.CacheOptions(kube.CacheConfig{
			Namespaces: []string{b.ns},
			Ours:       []client.Object{&corev1.Secret{}, &appsv1.Deployment{}},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := kit.EnvOf(mgr)
	if err != nil {
		t.Fatal(err)
	}
	b.keeper = &keeper{client: mgr.GetClient(), depot: b.depot}
	b.keeper.observe = func(ctx context.Context, k *Keep) (keepState, error) {
		b.passes.Add(1)
		plain := keeper{client: mgr.GetClient(), depot: b.depot}
		return plain.Observe(ctx, k)
	}
	opt := keepOptions()
	opt.Owns = []kit.Object{&appsv1.Deployment{}}
	if tune != nil {
		tune(&opt)
	}
	if err := kit.Register(mgr, env, kit.Controller[*Keep, keepState](b.keeper), opt); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the manager: %v", err)
		}
		release(t, b.c, b.ns)
	})
	return b
}

// until waits for a condition to hold, moving the world meanwhile.
func (b *realBench) until(what string, ok func() bool) {
	b.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := servePods(b.Context(), b.c, b.ns); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			b.Fatal(err)
		}
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Fatalf("in 60 s it did not come to this: %s; status %+v, writes %v", what, b.get().Status, b.writes.Lines())
}

func (b *realBench) get() *Keep {
	b.Helper()
	k := &Keep{}
	if err := b.c.Get(b.Context(), key(b.ns, "a"), k); client.IgnoreNotFound(err) != nil {
		b.Fatal(err)
	}
	return k
}

func (b *realBench) create(k *Keep) {
	b.Helper()
	if err := b.c.Create(b.Context(), k); err != nil {
		b.Fatal(err)
	}
}

func (b *realBench) is(kind string, status metav1.ConditionStatus, reason string) func() bool {
	return func() bool {
		for _, c := range b.get().Status.Conditions {
			if c.Type == kind {
				return c.Status == status && (reason == "" || c.Reason == reason)
			}
		}
		return false
	}
}

// calm waits until no pass has been made for a while.
func (b *realBench) calm() {
	b.Helper()
	for last := int64(-1); last != b.passes.Load(); {
		last = b.passes.Load()
		time.Sleep(500 * time.Millisecond)
	}
}

func TestManagerDrivesALife(t *testing.T) {
	b := newRealBench(t, nil)
	started := time.Now()
	b.create(newKeep(b.ns, "a", 2))
	b.until("Ready", b.is("Ready", metav1.ConditionTrue, kit.ReasonSucceeded))
	t.Logf("Ready %s after the create", time.Since(started).Round(time.Millisecond))
	b.calm()

	t.Run("a steady pass writes nothing", func(t *testing.T) {
		b.writes.Reset()
		before := b.passes.Load()
		for i := range 5 {
			// A label of the user leads to a pass, and to nothing else.
			k := b.get()
			k.Labels = map[string]string{"touched": string(rune('a' + i))}
			if err := b.c.Update(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		b.calm()
		if b.passes.Load() == before {
			t.Fatal("no pass was made")
		}
		if w := b.writes.Lines(); len(w) > 0 {
			t.Errorf("%d passes wrote: %v", b.passes.Load()-before, w)
		}
	})

	t.Run("what users set stays, what we set comes back", func(t *testing.T) {
		d := &appsv1.Deployment{}
		if err := b.c.Get(t.Context(), key(b.ns, "a"), d); err != nil {
			t.Fatal(err)
		}
		d.Labels["users"], d.Annotations["users"] = "label", "annotation"
		d.Spec.Template.Spec.Containers[0].Image = "wrong"
		d.Spec.Template.Spec.NodeSelector = map[string]string{"users": "node"}
		if err := b.c.Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		b.until("the image is right again", func() bool {
			if err := b.c.Get(t.Context(), key(b.ns, "a"), d); err != nil {
				t.Fatal(err)
			}
			return d.Spec.Template.Spec.Containers[0].Image == "image:1"
		})
		if d.Labels["users"] != "label" || d.Annotations["users"] != "annotation" || d.Spec.Template.Spec.NodeSelector["users"] != "node" {
			t.Errorf("what the user has set is gone: %v %v %v", d.Labels, d.Annotations, d.Spec.Template.Spec.NodeSelector)
		}
	})

	t.Run("an edit is acted on at once", func(t *testing.T) {
		k := b.get()
		k.Spec.Rooms = 4
		edited := time.Now()
		if err := b.c.Update(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		b.until("4 rooms", func() bool { n, _, _ := b.depot.get("a"); return n == 4 })
		t.Logf("first effect of an edit within %s", time.Since(edited).Round(time.Millisecond))
		b.until("Ready", func() bool { return b.get().Status.Rooms == 4 })
	})

	t.Run("a dependent blocks the deletion, and its end lets go", func(t *testing.T) {
		guest := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "guest", Annotations: map[string]string{"needs-keep": "a"}}}
		if err := b.c.Create(t.Context(), guest); err != nil {
			t.Fatal(err)
		}
		if err := b.c.Delete(t.Context(), newKeep(b.ns, "a", 0)); err != nil {
			t.Fatal(err)
		}
		b.until("blocked", b.is("DeletionIsBlocked", metav1.ConditionTrue, kit.ReasonHasDependents))
		if n, there, _ := b.depot.get("a"); !there || n != 4 {
			t.Fatal("the rooms are gone although somebody needs them")
		}
		b.calm()
		gone := time.Now()
		if err := b.c.Delete(t.Context(), guest); err != nil {
			t.Fatal(err)
		}
		b.until("gone", func() bool { return b.get().Name == "" })
		if d := time.Since(gone); d > 9*time.Second {
			t.Errorf("it took %s: the watch of the dependent did not lead to a pass", d)
		}
		if _, there, _ := b.depot.get("a"); there {
			t.Error("the finalizer went before the rooms")
		}
		for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}} {
			if err := b.c.Get(t.Context(), key(b.ns, "a"), obj); !apierrors.IsNotFound(err) {
				t.Errorf("%T is left behind: %v", obj, err)
			}
		}
	})
}

// TestManagerDrivesAKeyedController has one controller keyed on rooms (ConfigMaps of a
// Keep), and one of the Keep that puts the rooms' waits into its status.
func TestManagerDrivesAKeyedController(t *testing.T) {
	scheme := keepScheme(t)
	ns := server.Namespace(t)
	c := server.Client(t, scheme)
	skip := true
	mgr, err := ctrl.NewManager(server.Config(t), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: kube.CacheOptions(kube.CacheConfig{Namespaces: []string{ns}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := kit.EnvOf(mgr)
	if err != nil {
		t.Fatal(err)
	}
	rooms := &roomKeeper{keeper: keeper{client: env.Client}, busy: func(ctx context.Context, k kit.Key) (bool, error) {
		cm, err := kube.Lookup[corev1.ConfigMap](ctx, env.Client, k)
		return cm != nil && cm.Data["busy"] == "yes", err
	}}
	err = kit.Register(mgr, env, kit.Controller[*Keep, keepState](rooms), kit.Options{
		Name: "room", Report: kit.Report{None: true},
		Watches: []kit.Watch{{Object: &corev1.ConfigMap{}, Map: kube.ToSelf()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	whole := &keeper{client: env.Client, depot: newDepot()}
	whole.plan = func(k *Keep, _ keepState) kit.Plan {
		want := k.DeepCopyObject().(*Keep)
		want.Status.Note = ""
		for _, line := range env.Board.Of(client.ObjectKeyFromObject(k)) {
			want.Status.Note += line.Key.Name + ": " + line.Wait.Message + ";"
		}
		return kit.Plan{Status: want}
	}
	err = kit.Register(mgr, env, kit.Controller[*Keep, keepState](whole), kit.Options{Name: "whole", Sources: []source.Source{env.Board.Source()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	if err := c.Create(t.Context(), newKeep(ns, "a", 1)); err != nil {
		t.Fatal(err)
	}
	room := func(name, busy string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{"busy": busy}}
	}
	for _, r := range []*corev1.ConfigMap{room("a-room-1", "yes"), room("a-room-2", "no"), room("a-room-3", "yes")} {
		if err := c.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	note := func(want string) {
		t.Helper()
		k := &Keep{}
		for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if err := c.Get(t.Context(), key(ns, "a"), k); err != nil {
				t.Fatal(err)
			}
			if k.Status.Note == want {
				return
			}
		}
		t.Fatalf("the note is %q, not %q", k.Status.Note, want)
	}
	note("a-room-1: somebody sleeps here;a-room-3: somebody sleeps here;")
	if err := c.Update(t.Context(), room("a-room-1", "no")); err != nil {
		t.Fatal(err)
	}
	note("a-room-3: somebody sleeps here;")
}

func TestManagerEndsOfAPass(t *testing.T) {
	t.Run("terminal", func(t *testing.T) {
		b := newRealBench(t, nil)
		b.create(newKeep(b.ns, "a", -1))
		b.until("InvalidSpec", b.is("Ready", metav1.ConditionFalse, kit.ReasonInvalidSpec))
		b.calm()
		before := b.passes.Load()
		time.Sleep(3 * time.Second)
		if after := b.passes.Load(); after != before {
			t.Errorf("retried %d times in 3 s", after-before)
		}
	})
	t.Run("panic", func(t *testing.T) {
		b := newRealBench(t, nil)
		var panics atomic.Int64
		b.keeper.plan = func(*Keep, keepState) kit.Plan { panics.Add(1); panic("boom") }
		b.create(newKeep(b.ns, "a", 1))
		b.until("InternalError", b.is("Ready", metav1.ConditionFalse, kit.ReasonPanic))
		b.until("retried", func() bool { return panics.Load() >= 3 })
	})
	t.Run("wait", func(t *testing.T) {
		b := newRealBench(t, nil)
		b.keeper.plan = func(*Keep, keepState) kit.Plan {
			return kit.Plan{Wait: &kit.Wait{Reason: "ForGodot", Message: "he does not come", For: 300 * time.Millisecond}}
		}
		b.create(newKeep(b.ns, "a", 1))
		b.until("waiting", b.is("Progressing", metav1.ConditionTrue, "ForGodot"))
		before := b.passes.Load()
		time.Sleep(3 * time.Second)
		if n := b.passes.Load() - before; n < 3 || n > 12 {
			t.Errorf("%d passes in 3 s at 300 ms each", n)
		}
	})
	t.Run("one that hangs does not hold up others", func(t *testing.T) {
		b := newRealBench(t, func(o *kit.Options) { o.Timeout = 30 * time.Second })
		observe := b.keeper.observe
		b.keeper.observe = func(ctx context.Context, k *Keep) (keepState, error) {
			if strings.HasPrefix(k.Name, "hang") {
				<-ctx.Done()
				return keepState{}, ctx.Err()
			}
			return observe(ctx, k)
		}
		for _, name := range []string{"hang-1", "hang-2", "hang-3"} {
			b.create(newKeep(b.ns, name, 1))
		}
		time.Sleep(500 * time.Millisecond)
		started := time.Now()
		b.create(newKeep(b.ns, "a", 1))
		b.until("Ready", b.is("Ready", metav1.ConditionTrue, ""))
		if d := time.Since(started); d > 25*time.Second {
			t.Errorf("it took %s", d)
		}
	})
}

// TestManagerUnderAPIFaults fails every kind of request for a while, in the middle of
// a life: nothing is done that would not be done without, and it converges.
func TestManagerUnderAPIFaults(t *testing.T) {
	b := newRealBench(t, nil)
	b.create(newKeep(b.ns, "a", 2))
	b.until("Ready", b.is("Ready", metav1.ConditionTrue, ""))
	b.calm()
	for _, code := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusServiceUnavailable, 0} {
		b.writes.Reset()
		var n atomic.Int64
		b.writes.Fail(func(req *http.Request) (int, error) {
			if req.URL.Query().Get("watch") != "" || strings.Contains(req.URL.Path, "/events") {
				return 0, nil
			}
			if n.Add(1) > 10 {
				return 0, nil
			}
			if code == 0 {
				return 0, errors.New("connection reset by peer")
			}
			return code, nil
		})
		k := b.get()
		k.Spec.Rooms++
		if err := b.c.Update(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		b.until("converged", func() bool { s := b.get(); return s.Status.Rooms == s.Spec.Rooms })
		b.writes.Fail(nil)
		b.calm()
		if n.Load() == 0 {
			t.Errorf("%d: no request was failed", code)
		}
		for _, w := range b.writes.Lines() {
			if strings.HasPrefix(w, "DELETE") || strings.HasPrefix(w, "POST") {
				t.Errorf("%d: an effect because of an error: %s", code, w)
			}
		}
	}
	if b.depot.made["a"] != 1 {
		t.Errorf("made %d times", b.depot.made["a"])
	}
}

func TestServerSideApplyOnARealAPIServer(t *testing.T) {
	scheme := keepScheme(t)
	ns := server.Namespace(t)
	c := server.Client(t, scheme)
	k := newKeep(ns, "a", 1)
	if err := c.Create(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	// The store of another operator, made by Update: a field that is wanted no more.
	old := keepDeployment(k)
	old.Spec.Template.Spec.Containers[0].Env = append(old.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "OLD", Value: "1"})
	old.Labels["users"] = "label"
	if err := c.Create(t.Context(), old, client.FieldOwner("rook")); err != nil {
		t.Fatal(err)
	}
	opt := keepOptions()
	opt.AdoptFrom = sets.New("rook")
	ctl := &keeper{client: c, depot: newDepot()}
	pass := func() error {
		_, err := kit.NewReconciler(kit.Controller[*Keep, keepState](ctl), kit.Env{Client: c}, opt).Reconcile(t.Context(), request(ns, "a"))
		return err
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	if err := c.Get(t.Context(), key(ns, "a"), d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "ROOMS", Value: "1"}}, d.Spec.Template.Spec.Containers[0].Env); diff != "" {
		t.Errorf("env after the takeover (-want +got):\n%s", diff)
	}

	// A field that is applied once and wanted no more goes; one of a user stays.
	full := ctl.Plan(k, keepState{})
	ctl.plan = func(*Keep, keepState) kit.Plan {
		p := full
		dep := keepDeployment(k)
		dep.Spec.Template.Spec.Containers[0].Env = nil
		p.Apply = []kit.Object{dep}
		p.Do = nil
		return p
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key(ns, "a"), d); err != nil {
		t.Fatal(err)
	}
	if len(d.Spec.Template.Spec.Containers[0].Env) != 0 {
		t.Errorf("env is %v", d.Spec.Template.Spec.Containers[0].Env)
	}
	for _, entry := range d.ManagedFields {
		if entry.Manager == "rook" {
			t.Errorf("the former manager still owns fields: %+v", entry)
		}
	}

	// A selector cannot be changed: the error says so by its type.
	ctl.plan = func(*Keep, keepState) kit.Plan {
		dep := keepDeployment(k)
		dep.Spec.Selector.MatchLabels["more"] = "x"
		dep.Spec.Template.Labels["more"] = "x"
		return kit.Plan{Apply: []kit.Object{dep}}
	}
	err := pass()
	if im, ok := errors.AsType[*kit.ImmutableError](err); !ok || im.Field != "spec.selector" {
		t.Errorf("want an ImmutableError for spec.selector, got %v", err)
	}
	release(t, c, ns)
}

// TestLateWritesLose has the process act on what it saw before somebody else did
// something: preconditions make the API server refuse.
func TestLateWritesLose(t *testing.T) {
	scheme := keepScheme(t)
	ns := server.Namespace(t)
	c := server.Client(t, scheme)
	k := newKeep(ns, "a", 1)
	if err := c.Create(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "victim"}}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	seen := cm.DeepCopy()
	if err := c.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "victim"}}
	if err := c.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	ctl := &keeper{client: c, depot: newDepot()}
	ctl.plan = func(*Keep, keepState) kit.Plan { return kit.Plan{Delete: []kit.Object{seen}} }
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](ctl), kit.Env{Client: c}, keepOptions())
	if _, err := r.Reconcile(t.Context(), request(ns, "a")); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key(ns, "victim"), again); err != nil {
		t.Errorf("another object of the same name was deleted: %v", err)
	}
	// With the resourceVersion as a precondition a change in between is a 409, and so
	// another look.
	stale := again.DeepCopy()
	again.Data = map[string]string{"x": "y"}
	if err := c.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	ctl.plan = func(*Keep, keepState) kit.Plan { return kit.Plan{Delete: []kit.Object{stale}} }
	res, err := r.Reconcile(t.Context(), request(ns, "a"))
	if err != nil || res.RequeueAfter == 0 {
		t.Errorf("want another look, got %v %v", res, err)
	}
	if err := c.Get(t.Context(), key(ns, "victim"), again); err != nil {
		t.Errorf("deleted in spite of the precondition: %v", err)
	}
	release(t, c, ns)
}
