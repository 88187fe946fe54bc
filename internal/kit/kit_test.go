package kit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
)

func request(ns, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}}
}

// bench is a store with one Keep and a reconciler on it.
type bench struct {
	*testing.T
	store  *kittest.Store
	c      client.Client
	depot  *depot
	keeper *keeper
	events *kittest.Events
	clock  *clocktesting.FakeClock
	r      reconcile.Reconciler
}

func newBench(t *testing.T, opt kit.Options, objs ...client.Object) *bench {
	t.Helper()
	store, err := kittest.NewStore(keepScheme(t), objs...)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, store: store, c: store.Client(), depot: newDepot(), events: &kittest.Events{}, clock: clocktesting.NewFakeClock(kittest.Stopped())}
	b.keeper = &keeper{client: b.c, depot: b.depot}
	b.r = kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), b.env(), opt)
	return b
}

func (b *bench) env() kit.Env {
	return kit.Env{Client: b.c, Recorder: b.events, Clock: b.clock}
}

func (b *bench) pass() (reconcile.Result, error) {
	b.Helper()
	return b.r.Reconcile(b.Context(), request("ns", "a"))
}

// settle makes passes, with the world moving, until nothing is written any more.
func (b *bench) settle() {
	b.Helper()
	for range 30 {
		before := b.store.Revision()
		if _, err := servePods(b.Context(), b.c, "ns"); err != nil {
			b.Fatal(err)
		}
		if _, err := b.pass(); err != nil {
			b.Fatal(err)
		}
		if b.store.Revision() == before {
			return
		}
	}
	b.Fatalf("does not settle: %v", b.store.Writes())
}

func (b *bench) keep() *Keep {
	b.Helper()
	k := &Keep{}
	if err := b.c.Get(b.Context(), key("ns", "a"), k); err != nil {
		b.Fatal(err)
	}
	return k
}

func (b *bench) condition(kind string) KeepCondition {
	b.Helper()
	for _, c := range b.keep().Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return KeepCondition{}
}

// skipWorkload sets the label by which the Deployment is left alone, with another change of
// it, and forgets what was written until then.
func (b *bench) skipWorkload(change func(*appsv1.Deployment)) *appsv1.Deployment {
	b.Helper()
	d := &appsv1.Deployment{}
	if err := b.c.Get(b.Context(), key("ns", "a"), d); err != nil {
		b.Fatal(err)
	}
	d.Labels[kube.SkipLabel] = "yes"
	change(d)
	if err := b.c.Update(b.Context(), d); err != nil {
		b.Fatal(err)
	}
	b.store.ResetWrites()
	return d
}

func TestALifeInOrder(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	want := []string{
		"patch Keep ns/a", // the finalizer, before anything is made
		"create Secret ns/a-key",
		"apply ConfigMap ns/a", // before the Deployment, though the plan has it after
		"apply Deployment ns/a",
	}
	if d := cmp.Diff(want, b.store.Writes()[:4]); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"set a 2"}, b.depot.calls); d != "" {
		t.Errorf("calls of the depot (-want +got):\n%s", d)
	}
	k := b.keep()
	k.Status.Conditions = nil
	if d := cmp.Diff(KeepStatus{Phase: "Ready", Rooms: 2, ObservedGeneration: 1}, k.Status); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	if c := b.condition("Ready"); c.Status != metav1.ConditionTrue || c.Reason != kit.ReasonSucceeded {
		t.Errorf("Ready is %+v", c)
	}
	if c := b.condition("Progressing"); c.Status != metav1.ConditionFalse {
		t.Errorf("Progressing is %+v", c)
	}
}

func TestASteadyPassWritesNothing(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	b.store.ResetWrites()
	b.events.Take()
	calls := len(b.depot.calls)
	for range 5 {
		b.clock.Step(time.Hour)
		res, err := b.pass()
		if err != nil || res.RequeueAfter != 0 {
			t.Fatal(res, err)
		}
	}
	// A new process has no memory, and nothing to do either.
	b.r = kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), b.env(), keepOptions())
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	if w := b.store.Writes(); len(w) > 0 {
		t.Errorf("writes in a steady pass: %v", w)
	}
	if ev := b.events.Take(); len(ev) > 0 {
		t.Errorf("events in a steady pass: %v", ev)
	}
	if len(b.depot.calls) != calls {
		t.Errorf("calls of the depot in a steady pass: %v", b.depot.calls[calls:])
	}
}

func TestOnlyOwnedFieldsAreWritten(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	d := &appsv1.Deployment{}
	if err := b.c.Get(t.Context(), key("ns", "a"), d); err != nil {
		t.Fatal(err)
	}
	d.Labels["users"] = "label"
	d.Annotations["users"] = "annotation"
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "x"})
	d.Spec.Template.Spec.Containers[0].Image = "wrong"
	if err := b.c.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if err := b.c.Get(t.Context(), key("ns", "a"), d); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range d.Spec.Template.Spec.Containers {
		got = append(got, c.Name+" "+c.Image)
	}
	if diff := cmp.Diff([]string{"keep image:1", "sidecar x"}, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	if d.Labels["users"] != "label" || d.Annotations["users"] != "annotation" {
		t.Errorf("the user's label or annotation is gone: %v %v", d.Labels, d.Annotations)
	}
}

func TestWaitIsNotAnError(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	var res reconcile.Result
	for range 3 {
		var err error
		if res, err = b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if res.RequeueAfter != 10*time.Second {
		t.Errorf("the next pass is in %s, not in 10s", res.RequeueAfter)
	}
	want := KeepCondition{Type: "Progressing", Status: metav1.ConditionTrue, Reason: "DeploymentNotReady", Message: "Deployment a: no pod is ready"}
	got := b.condition("Progressing")
	since := got.LastTransitionTime
	got.LastHeartbeatTime, got.LastTransitionTime = metav1.Time{}, metav1.Time{}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Progressing (-want +got):\n%s", d)
	}
	if b.keep().Status.Phase != "Progressing" {
		t.Errorf("phase is %q", b.keep().Status.Phase)
	}
	// The time says since when, however often it is looked at.
	b.clock.Step(time.Minute)
	b.store.ResetWrites()
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	now := b.condition("Progressing").LastTransitionTime
	if !now.Equal(&since) || len(b.store.Writes()) > 0 {
		t.Errorf("waiting on is no news, but: %v", b.store.Writes())
	}
}

// TestSinceIsKeptWhenOnlyTheMessageChanges has the blocker stay and its details move:
// the time still says since when.
func TestSinceIsKeptWhenOnlyTheMessageChanges(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	message := "3 to go"
	b.keeper.plan = func(*Keep, keepState) kit.Plan {
		return kit.Plan{Wait: &kit.Wait{Reason: "Moving", Message: message}}
	}
	started := metav1.NewTime(b.clock.Now())
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(time.Minute)
	message = "2 to go"
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	c := b.condition("Ready")
	beat := metav1.NewTime(b.clock.Now())
	if c.Message != "2 to go" || !c.LastTransitionTime.Equal(&started) || !c.LastHeartbeatTime.Equal(&beat) {
		t.Errorf("Ready is %+v; it is so since %s, and was last written at %s", c, started, beat)
	}
	// Another reason is another since.
	b.keeper.plan = func(*Keep, keepState) kit.Plan { return kit.Plan{Wait: &kit.Wait{Reason: "Resting"}} }
	b.clock.Step(time.Minute)
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(b.clock.Now())
	if c := b.condition("Ready"); !c.LastTransitionTime.Equal(&now) {
		t.Errorf("Ready is %+v; the reason is another since %s", c, now)
	}
}

func TestTerminalNamesTheFieldAndIsNotRetried(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", -3))
	res, err := b.pass()
	if err != nil || res != (reconcile.Result{}) {
		t.Fatalf("a terminal error is not retried, but: %v %v", res, err)
	}
	c := b.condition("Ready")
	if c.Status != metav1.ConditionFalse || c.Reason != kit.ReasonInvalidSpec || c.Message != "spec.rooms: -3 is not a number of rooms" {
		t.Errorf("Ready is %+v", c)
	}
	if p := b.condition("Progressing"); p.Status != metav1.ConditionFalse {
		t.Errorf("Progressing is %+v", p)
	}
	if d := cmp.Diff([]string{"Keep a Warning InvalidSpec: spec.rooms: -3 is not a number of rooms"}, b.events.Take()); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if len(b.depot.calls) > 0 {
		t.Errorf("something was done for a wrong spec: %v", b.depot.calls)
	}
	// Put right, it goes on.
	k := b.keep()
	k.Spec.Rooms = 1
	if err := b.c.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if c := b.condition("Ready"); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
}

func TestAPanicIsAnErrorWithAStack(t *testing.T) {
	tests := map[string]func(k *keeper){
		"in Observe": func(k *keeper) { k.observe = func(context.Context, *Keep) (keepState, error) { panic("boom") } },
		"in Plan":    func(k *keeper) { k.plan = func(*Keep, keepState) kit.Plan { panic("boom") } },
		"in Confirm": func(k *keeper) {
			k.confirm = func() (*kit.Wait, error) { panic("boom") }
			k.plan = func(k *Keep, _ keepState) kit.Plan {
				return kit.Plan{Do: []kit.Action{kit.Confirmed{Check: nobodyIn{k.Name}, Then: removeRooms{k.Name}}}}
			}
		},
	}
	for name, tune := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
			tune(b.keeper)
			_, err := b.pass()
			p, ok := errors.AsType[*kit.PanicError](err)
			if !ok || !strings.Contains(p.Stack, "kit_test.go") {
				t.Fatalf("want a PanicError with the stack, got %v", err)
			}
			if c := b.condition("Ready"); c.Status != metav1.ConditionFalse || c.Reason != kit.ReasonPanic || strings.Contains(c.Message, "goroutine") {
				t.Errorf("Ready is %+v", c)
			}
		})
	}
}

func TestAFailedReadHasNoEffects(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	b.depot.broken = errDepot
	b.store.ResetWrites()
	_, err := b.pass()
	if !errors.Is(err, errDepot) {
		t.Fatalf("want the error of the depot for back-off, got %v", err)
	}
	if d := cmp.Diff([]string{"patch Keep ns/a"}, b.store.Writes()); d != "" {
		t.Errorf("only the status may be written (-want +got):\n%s", d)
	}
	c := b.condition("Ready")
	if c.Status != metav1.ConditionFalse || c.Reason != kit.ReasonFailed || c.Message != "asking the depot: the depot does not answer" {
		t.Errorf("Ready is %+v", c)
	}
	if rooms := b.keep().Status.Rooms; rooms != 2 {
		t.Errorf("status.rooms is %d: what was known is lost", rooms)
	}
}

// TestFaultsOfTheAPIServer is F7 in small: whatever fails, nothing is done that
// would not be done without the fault.
func TestFaultsOfTheAPIServer(t *testing.T) {
	gr := schema.GroupResource{Resource: "x"}
	faults := map[string]error{
		"500": apierrors.NewInternalError(errors.New("injected")),
		"503": apierrors.NewServiceUnavailable("injected"),
		"429": apierrors.NewTooManyRequests("injected", 7),
		"403": apierrors.NewForbidden(gr, "x", errors.New("injected")),
		"504": apierrors.NewTimeoutError("injected", 0),
	}
	for name, fault := range faults {
		for _, verb := range []string{"get", "list"} {
			t.Run(name+"-"+verb, func(t *testing.T) {
				for _, deleting := range []bool{false, true} {
					b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
					b.settle()
					if deleting {
						if err := b.c.Delete(t.Context(), b.keep()); err != nil {
							t.Fatal(err)
						}
					}
					b.store.ResetWrites()
					calls := len(b.depot.calls)
					failed := false
					b.store.Fail(func(v, kind string, _ types.NamespacedName) error {
						if v == verb && kind != "Keep" {
							failed = true
							return fault
						}
						return nil
					})
					res, err := b.pass()
					if verb == "list" && !deleting {
						continue // nothing is listed
					}
					if !failed {
						t.Fatal("the fault did not come")
					}
					if err == nil && res.RequeueAfter == 0 {
						t.Errorf("deleting=%v: the pass is taken for a success", deleting)
					}
					if name == "429" && res.RequeueAfter != 7*time.Second {
						t.Errorf("deleting=%v: Retry-After was 7 s, the next pass is in %s (%v)", deleting, res.RequeueAfter, err)
					}
					for _, w := range b.store.Writes() {
						if w != "patch Keep ns/a" {
							t.Errorf("deleting=%v: %s", deleting, w)
						}
					}
					if len(b.depot.calls) != calls {
						t.Errorf("deleting=%v: %v", deleting, b.depot.calls[calls:])
					}
					if len(b.keep().Finalizers) != 1 {
						t.Errorf("deleting=%v: the finalizer is gone", deleting)
					}
				}
			})
		}
	}
}

// TestTheFirstFailedEffectEndsThePass fails each write of a first pass in turn: what
// comes before it is done, what comes after it is not, and the status tells.
func TestTheFirstFailedEffectEndsThePass(t *testing.T) {
	order := []string{"patch Keep ns/a", "create Secret ns/a-key", "apply ConfigMap ns/a", "apply Deployment ns/a", "set a 2"}
	for i, fail := range order {
		t.Run(fail, func(t *testing.T) {
			b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
			if fail == "set a 2" {
				good := b.keeper.Observe
				b.keeper.observe = func(ctx context.Context, k *Keep) (keepState, error) {
					b.keeper.observe = nil
					s, err := good(ctx, k)
					b.depot.broken = errDepot
					return s, err
				}
			}
			failed := false
			b.store.Fail(func(verb, kind string, key types.NamespacedName) error {
				if !failed && verb+" "+kind+" "+key.String() == fail {
					failed = true
					return apierrors.NewInternalError(errDepot)
				}
				return nil
			})
			if _, err := b.pass(); err == nil {
				t.Fatal("the pass is taken for a success")
			}
			got := append(b.store.Writes(), b.depot.calls...)
			// The last write is that of the status.
			want := append(append([]string(nil), order[:i]...), "patch Keep ns/a")
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("effects (-want +got):\n%s", d)
			}
			if c := b.condition("Ready"); c.Reason != kit.ReasonFailed {
				t.Errorf("Ready is %+v", c)
			}
			b.depot.broken = nil
			b.store.Fail(nil)
			b.settle()
			if c := b.condition("Ready"); c.Status != metav1.ConditionTrue {
				t.Errorf("afterwards Ready is %+v", c)
			}
		})
	}
}

func TestCreateOnceIsNotChangedAndLosesGracefully(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	// Somebody makes the Secret between the look and the write.
	raced := false
	b.store.Fail(func(verb, kind string, _ types.NamespacedName) error {
		if verb == "create" && kind == "Secret" && !raced {
			raced = true
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, "a-key")
		}
		return nil
	})
	res, err := b.pass()
	if err != nil || res.RequeueAfter == 0 || res.RequeueAfter > time.Second {
		t.Fatalf("want another look at once, got %v %v", res, err)
	}
	if c := b.condition("Ready"); c.Type != "" {
		t.Errorf("losing a race is no news: %+v", c)
	}
	b.settle()
	s := &corev1.Secret{}
	if err := b.c.Get(t.Context(), key("ns", "a-key"), s); err != nil {
		t.Fatal(err)
	}
	s.Data["key"] = []byte("rotated by the user")
	if err := b.c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if err := b.c.Get(t.Context(), key("ns", "a-key"), s); err != nil || string(s.Data["key"]) != "rotated by the user" {
		t.Errorf("what is created once was written again: %q %v", s.Data["key"], err)
	}
}

func TestConfirmIsAskedLiveAndStopsTheEffect(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	k := b.keep()
	k.Spec.Rooms = 1
	if err := b.c.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	b.depot.busy["a"] = true
	calls := len(b.depot.calls)
	var res reconcile.Result
	for range 3 {
		if _, err := servePods(t.Context(), b.c, "ns"); err != nil {
			t.Fatal(err)
		}
		var err error
		if res, err = b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.depot.calls) != calls {
		t.Fatalf("done though the check says no: %v", b.depot.calls[calls:])
	}
	c := b.condition("Progressing")
	if c.Status != metav1.ConditionFalse || c.Reason != "RoomsBusy" || res.RequeueAfter != 5*time.Second {
		t.Errorf("Progressing is %+v, next pass in %s", c, res.RequeueAfter)
	}
	b.keeper.confirm = func() (*kit.Wait, error) { return nil, errDepot }
	if _, err := b.pass(); !errors.Is(err, errDepot) || len(b.depot.calls) != calls {
		t.Errorf("a check that cannot be made is not a yes: %v %v", err, b.depot.calls[calls:])
	}
	b.keeper.confirm, b.depot.busy["a"] = nil, false
	b.settle()
	if d := cmp.Diff([]string{"set a 1"}, b.depot.calls[calls:]); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

func TestDeletionWaitsForDependentsAndNamesThem(t *testing.T) {
	guest := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{"needs-keep": "a"}}}
	}
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2), guest("guest-2"), guest("guest-1"))
	b.settle()
	if err := b.c.Delete(t.Context(), b.keep()); err != nil {
		t.Fatal(err)
	}
	b.store.ResetWrites()
	res, err := b.pass()
	if err != nil || res.RequeueAfter != 10*time.Second {
		t.Fatal(res, err)
	}
	if d := cmp.Diff([]string{"patch Keep ns/a"}, b.store.Writes()); d != "" {
		t.Errorf("only the status may be written (-want +got):\n%s", d)
	}
	c := b.condition("DeletionIsBlocked")
	if c.Status != metav1.ConditionTrue || c.Reason != kit.ReasonHasDependents || c.Message != "deletion waits for ConfigMap ns/guest-1, ConfigMap ns/guest-2" {
		t.Errorf("DeletionIsBlocked is %+v", c)
	}
	if b.keep().Status.Phase != "Deleting" {
		t.Errorf("phase is %q", b.keep().Status.Phase)
	}
	for _, name := range []string{"guest-1", "guest-2"} {
		if err := b.c.Delete(t.Context(), guest(name)); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if all := b.store.All(); len(all) != 0 {
		t.Errorf("left behind: %v", all)
	}
	if d := cmp.Diff([]string{"set a 2", "remove a"}, b.depot.calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// TestTheFinalizerStaysUntilAllIsGone has something that is to be deleted held by a
// finalizer of somebody else.
func TestTheFinalizerStaysUntilAllIsGone(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 0))
	b.keeper.plan = func(k *Keep, _ keepState) kit.Plan { return kit.Plan{Apply: []kit.Object{keepConfig(k)}} }
	b.settle()
	cm := &corev1.ConfigMap{}
	hold := func(finalizers ...string) {
		t.Helper()
		if err := b.c.Get(t.Context(), key("ns", "a"), cm); err != nil {
			t.Fatal(err)
		}
		cm.Finalizers = finalizers
		if err := b.c.Update(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	hold("somebody.else/holds")
	if err := b.c.Delete(t.Context(), b.keep()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.keep().Finalizers) != 1 {
		t.Fatal("the finalizer has gone before the ConfigMap")
	}
	if c := b.condition("Progressing"); c.Reason != kit.ReasonTerminating || c.Message != "ConfigMap ns/a is being deleted and not gone yet" {
		t.Errorf("Progressing is %+v", c)
	}
	hold()
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	if all := b.store.All(); len(all) != 0 {
		t.Errorf("left behind: %v", all)
	}
}

// TestATeardownAsksTheAPIServer has a cache that holds nothing of what is to go: the
// finalizer must not go by that.
func TestATeardownAsksTheAPIServer(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	if err := b.c.Delete(t.Context(), b.keep()); err != nil {
		t.Fatal(err)
	}
	env := b.env()
	env.Client, env.Live = onlyKeeps{b.c}, b.c
	b.keeper.client = env.Client
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), env, keepOptions())
	for range 10 {
		if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
			t.Fatal(err)
		}
	}
	if all := b.store.All(); len(all) != 0 {
		t.Errorf("the finalizer went by an empty cache, and left behind: %v", all)
	}
}

// onlyKeeps is a cache that holds Keeps and nothing else.
type onlyKeeps struct{ client.Client }

func (c onlyKeeps) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*Keep); ok {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// TestDependentsAreReadLive has the cache not know of the dependent yet.
func TestDependentsAreReadLive(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	if err := b.c.Delete(t.Context(), b.keep()); err != nil {
		t.Fatal(err)
	}
	env := b.env()
	env.Client, env.Live = b.store.Lagging(1), b.c
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), env, keepOptions())
	guest := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "guest", Annotations: map[string]string{"needs-keep": "a"}}}
	if err := b.c.Create(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	b.store.ResetWrites()
	if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
		t.Fatal(err)
	}
	for _, w := range b.store.Writes() {
		if w != "patch Keep ns/a" {
			t.Errorf("a dependent that the cache does not know was passed over: %s", w)
		}
	}
}

func TestSkipLabel(t *testing.T) {
	t.Run("on the object", func(t *testing.T) {
		k := newKeep("ns", "a", 2)
		k.Labels = map[string]string{kube.SkipLabel: ""}
		b := newBench(t, keepOptions(), k)
		for range 3 {
			if _, err := b.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if w := b.store.Writes(); len(w) > 0 {
			t.Errorf("writes: %v", w)
		}
		if ev := b.events.Take(); len(ev) != 1 || !strings.Contains(ev[0], kit.ReasonSkipped) {
			t.Errorf("events: %v", ev)
		}
	})
	t.Run("on what is applied or deleted", func(t *testing.T) {
		b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
		b.settle()
		b.skipWorkload(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "debug" })
		b.settle()
		if err := b.c.Delete(t.Context(), b.keep()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := b.pass(); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range b.store.Writes() {
			if w == "apply Deployment ns/a" || w == "delete Deployment ns/a" {
				t.Errorf("the Deployment was to be left alone: %s", w)
			}
		}
	})
	t.Run("set by us", func(t *testing.T) {
		b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
		b.settle()
		d := b.skipWorkload(func(*appsv1.Deployment) {})
		b.keeper.plan = func(*Keep, keepState) kit.Plan {
			return kit.Plan{Do: []kit.Action{kit.Delete{Object: d, Ours: true}}}
		}
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
		if w := b.store.Writes(); !slices.Contains(w, "delete Deployment ns/a") {
			t.Errorf("writes: %v", w)
		}
	})
}

func TestStatusIsPutOntoWhatOthersWrote(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	stale := b.keep()
	// Another controller writes its field and its condition.
	other := b.keep()
	other.Status.Note = "from another"
	other.Status.Conditions = append(other.Status.Conditions, KeepCondition{Type: "Other", Status: "True", Reason: "X"})
	if err := b.c.Status().Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b.depot.rooms["a"] = 3
	b.keeper.plan = func(k *Keep, s keepState) kit.Plan {
		want := k.DeepCopyObject().(*Keep)
		want.Status.Rooms = s.Rooms
		return kit.Plan{Status: want, Conditions: []kit.Condition{{Type: "Rooms", Status: "True", Reason: "Counted"}}}
	}
	env := b.env()
	env.Client = staleFor{Client: b.c, obj: stale}
	env.Live = b.c
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), env, keepOptions())
	if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
		t.Fatal(err)
	}
	got := b.keep().Status
	var types []string
	for _, c := range got.Conditions {
		types = append(types, c.Type)
	}
	if got.Note != "from another" || got.Rooms != 3 {
		t.Errorf("status is %+v", got)
	}
	if d := cmp.Diff([]string{"Ready", "Progressing", "Other", "Rooms"}, types); d != "" {
		t.Errorf("conditions (-want +got):\n%s", d)
	}
}

// staleFor reads one object as it was.
type staleFor struct {
	client.Client
	obj *Keep
}

func (s staleFor) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if k, ok := obj.(*Keep); ok {
		*k = *s.obj.DeepCopyObject().(*Keep)
		return nil
	}
	return s.Client.Get(ctx, key, obj, opts...)
}

// TestALaggingCacheLeadsToNoWrongWrite runs with caches that are 1 to 6 writes behind.
func TestALaggingCacheLeadsToNoWrongWrite(t *testing.T) {
	for lag := 1; lag <= 6; lag++ {
		t.Run(fmt.Sprint(lag), func(t *testing.T) {
			b := newBench(t, keepOptions(), newKeep("ns", "a", 2), newKeep("ns", "z", 0))
			lagging := b.store.Lagging(lag)
			env := b.env()
			env.Client, env.Live = lagging, b.c
			b.keeper.client = lagging
			r := kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), env, keepOptions())
			for i := range 40 {
				if _, err := servePods(t.Context(), b.c, "ns"); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
					t.Fatalf("pass %d: %v", i, err)
				}
				// The cache catches up while others write.
				z := &Keep{}
				if err := b.c.Get(t.Context(), key("ns", "z"), z); err != nil {
					t.Fatal(err)
				}
				z.Spec.Rooms = i + 1
				if err := b.c.Update(t.Context(), z); err != nil {
					t.Fatal(err)
				}
			}
			counts := map[string]int{}
			for _, w := range b.store.Writes() {
				counts[w]++
			}
			for _, once := range []string{"create Secret ns/a-key", "apply ConfigMap ns/a", "apply Deployment ns/a"} {
				if counts[once] != 1 {
					t.Errorf("%s: %d times", once, counts[once])
				}
			}
			if c := b.condition("Ready"); c.Status != metav1.ConditionTrue {
				t.Errorf("Ready is %+v", c)
			}
		})
	}
}

func TestEventsTellStepsOnce(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.settle()
	b.settle()
	want := []string{
		"Deployment a Normal Moved: the rooms were changed",
		"Keep a Normal ReconcileSucceeded: all is as it should be",
	}
	var got []string
	for _, ev := range b.events.Take() {
		if !strings.Contains(ev, "DeploymentNotReady") { // depends on the order of passes
			got = append(got, ev)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestAnEventOfAStepIsSentThoughTheNextStepFails(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.keeper.plan = func(k *Keep, s keepState) kit.Plan {
		p := kit.Plan{Do: []kit.Action{kit.Confirmed{Check: nobodyIn{"a"}, Then: removeRooms{"a"}}}}
		if !s.There {
			step := kit.Told{Then: setRooms{"a", 2}, Event: kit.Event{Reason: "Moved", Message: "2 rooms"}}
			p.Do = append([]kit.Action{step}, p.Do...)
		}
		return p
	}
	b.keeper.confirm = func() (*kit.Wait, error) { return nil, errDepot }
	for range 3 {
		if _, err := b.pass(); !errors.Is(err, errDepot) {
			t.Fatal(err)
		}
	}
	want := []string{
		"Keep a Warning ReconcileFailed: confirming that nobody is in a: the depot does not answer",
		"Keep a Normal Moved: 2 rooms",
	}
	if d := cmp.Diff(want, b.events.Take()); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestPlanString(t *testing.T) {
	k := newKeep("ns", "a", 1)
	p := kit.Plan{
		Create: []kit.Object{keepSecret(k)}, Apply: []kit.Object{keepDeployment(k), keepConfig(k)},
		Do:         []kit.Action{kit.Confirmed{Check: nobodyIn{"a"}, Then: kit.Delete{Object: keepDeployment(k)}}},
		Conditions: []kit.Condition{{Type: "X", Status: "True", Reason: "Y", Message: "z"}},
		Wait:       &kit.Wait{Reason: "W", Message: "for it", Hint: "wait"}, Err: kit.Terminal("spec.x", "no"),
	}
	want := `create Secret ns/a-key
apply ConfigMap ns/a
apply Deployment ns/a
do: deleting Deployment ns/a, if nobody is in a
condition X=True Y: z
wait: W: for it (wait)
error: spec.x: no`
	if d := cmp.Diff(want, p.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := (kit.Plan{}).String(); got != "nothing to do" {
		t.Errorf("the zero plan is %q", got)
	}
}

func TestWhatDoesNotConvergeIsDampedAndTold(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	b.keeper.plan = func(k *Keep, _ keepState) kit.Plan {
		return kit.Plan{Do: []kit.Action{setRooms{k.Name, 2}}}
	}
	var last time.Duration
	for range 20 {
		res, err := b.pass()
		if err != nil {
			t.Fatal(err)
		}
		last = res.RequeueAfter
	}
	if last < 5*time.Second {
		t.Errorf("after 20 passes that all did something the next is in %s", last)
	}
	c := b.condition("Ready")
	if c.Reason != kit.ReasonNotConverging || !strings.Contains(c.Message, "setting a to 2 rooms") {
		t.Errorf("Ready is %+v", c)
	}
}

func TestExplainDoesNothing(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), b.env(), keepOptions())
	effects, plan, err := r.Explain(t.Context(), key("ns", "a"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range effects {
		got = append(got, e.What)
	}
	want := []string{
		"adding the finalizer",
		"creating Secret ns/a-key",
		"applying ConfigMap ns/a",
		"applying Deployment ns/a",
		"setting a to 2 rooms",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("effects (-want +got):\n%s", d)
	}
	if plan.Wait == nil || plan.Wait.Reason != "DeploymentNotReady" {
		t.Errorf("wait is %v", plan.Wait)
	}
	if len(b.store.Writes())+len(b.depot.calls) > 0 {
		t.Errorf("done: %v %v", b.store.Writes(), b.depot.calls)
	}
}

func TestAFenceStopsEveryEffect(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	env := b.env()
	lost := errors.New("the lease is lost")
	env.Fence = func(context.Context) error { return lost }
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), env, keepOptions())
	if _, err := r.Reconcile(t.Context(), request("ns", "a")); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
	if len(b.store.Writes())+len(b.depot.calls) > 0 {
		t.Errorf("done without a lease: %v %v", b.store.Writes(), b.depot.calls)
	}
}

func TestANamespaceThatHangsLeavesRoomForOthers(t *testing.T) {
	opt := keepOptions()
	opt.PerNamespace = 2
	b := newBench(t, opt, newKeep("ns", "a", 2), newKeep("other", "a", 2))
	entered, release := make(chan struct{}), make(chan struct{})
	b.keeper.observe = func(_ context.Context, k *Keep) (keepState, error) {
		if k.Namespace == "ns" {
			entered <- struct{}{}
			<-release
		}
		return keepState{}, nil
	}
	ended := make(chan error)
	for range 2 {
		go func() { _, err := b.pass(); ended <- err }()
		<-entered
	}
	// The third does not hang: it gives its worker back.
	res, err := b.pass()
	if err != nil || res.RequeueAfter == 0 || res.RequeueAfter > time.Second {
		t.Errorf("want to come again soon, got %v %v", res, err)
	}
	if _, err := b.r.Reconcile(t.Context(), request("other", "a")); err != nil {
		t.Error(err)
	}
	k := &Keep{}
	if err := b.c.Get(t.Context(), key("other", "a"), k); err != nil || len(k.Status.Conditions) == 0 {
		t.Errorf("the other namespace made no progress: %v %v", k.Status, err)
	}
	close(release)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	// Now there is room again.
	go func() { _, err := b.pass(); ended <- err }()
	<-entered
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDeleteIsForTheObjectThatWasSeen(t *testing.T) {
	victim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "victim"}}
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2), victim)
	seen := victim.DeepCopy()
	seen.UID = "of one that is gone"
	b.keeper.plan = func(*Keep, keepState) kit.Plan { return kit.Plan{Delete: []kit.Object{seen}} }
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Get(t.Context(), key("ns", "victim"), victim); err != nil {
		t.Errorf("another object of the same name was deleted: %v", err)
	}
	seen.UID = victim.UID
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Get(t.Context(), key("ns", "victim"), victim); !apierrors.IsNotFound(err) {
		t.Errorf("not deleted: %v", err)
	}
}

func TestAPassHasADeadline(t *testing.T) {
	opt := keepOptions()
	opt.Timeout = 20 * time.Millisecond
	b := newBench(t, opt, newKeep("ns", "a", 2))
	b.keeper.observe = func(ctx context.Context, _ *Keep) (keepState, error) {
		<-ctx.Done()
		return keepState{}, nil // swallows it
	}
	_, err := b.pass()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if c := b.condition("Ready"); c.Reason != kit.ReasonFailed {
		t.Errorf("the report has a deadline of its own, but Ready is %+v", c)
	}
}

// roomKeeper is keyed on a room of a Keep.
type roomKeeper struct {
	keeper
	busy func(ctx context.Context, room kit.Key) (bool, error)
}

func (c *roomKeeper) Fetch(ctx context.Context, k kit.Key) (*Keep, error) {
	name, _, _ := strings.Cut(k.Name, "-room-")
	keep := &Keep{}
	return keep, c.client.Get(ctx, key(k.Namespace, name), keep)
}

func (c *roomKeeper) Observe(ctx context.Context, _ *Keep) (keepState, error) {
	busy, err := c.busy(ctx, kit.PassOf(ctx).Key)
	return keepState{There: busy}, err
}

func (c *roomKeeper) Plan(_ *Keep, s keepState) kit.Plan {
	if s.There {
		return kit.Plan{Wait: &kit.Wait{Reason: "RoomBusy", Message: "somebody sleeps here", Blocked: true}}
	}
	return kit.Plan{}
}

func TestKeyedControllersShowTheirWaitsOnTheBoard(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	env := b.env()
	env.Board = kit.NewBoard()
	var changed []kit.Key
	env.Board.OnChange(func(owner kit.Key) { changed = append(changed, owner) })
	busy := map[string]bool{"a-room-1": true}
	c := &roomKeeper{keeper: keeper{client: b.c}, busy: func(_ context.Context, k kit.Key) (bool, error) { return busy[k.Name], nil }}
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](c), env, kit.Options{Name: "room", Report: kit.Report{None: true}})
	for _, name := range []string{"a-room-1", "a-room-2", "gone-room-1", "a-room-1"} {
		if _, err := r.Reconcile(t.Context(), request("ns", name)); err != nil {
			t.Fatal(err)
		}
	}
	want := []kit.Line{{
		Controller: "room", Key: key("ns", "a-room-1"), Owner: key("ns", "a"), Since: kittest.Stopped(),
		Wait: kit.Wait{Reason: "RoomBusy", Message: "somebody sleeps here", Blocked: true},
	}}
	if d := cmp.Diff(want, env.Board.Of(key("ns", "a"))); d != "" {
		t.Errorf("board (-want +got):\n%s", d)
	}
	if len(b.store.Writes()) > 0 {
		t.Errorf("a controller with Report.None wrote a status: %v", b.store.Writes())
	}
	if d := cmp.Diff([]string{"Keep a Warning RoomBusy: a-room-1: somebody sleeps here"}, b.events.Take()); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	clear(busy)
	if _, err := r.Reconcile(t.Context(), request("ns", "a-room-1")); err != nil {
		t.Fatal(err)
	}
	if lines := env.Board.Of(key("ns", "a")); len(lines) > 0 || len(changed) != 2 {
		t.Errorf("lines %v, changes %v", lines, changed)
	}
}

func TestMetricsCountEndsAndEffects(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := kit.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kit.NewMetrics(reg); err != nil {
		t.Fatalf("a second set in one registry: %v", err)
	}
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
	env := b.env()
	env.Metrics = m
	b.r = kit.NewReconciler(kit.Controller[*Keep, keepState](b.keeper), env, keepOptions())
	b.settle()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if c := metric.GetCounter(); c != nil {
				got[f.GetName()+" "+strings.Join(labels, " ")] = c.GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"castellan_effects_total keep apply ok":   2,
		"castellan_effects_total keep create ok":  1,
		"castellan_effects_total keep setting ok": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, not %v; all: %v", name, got[name], want, got)
		}
	}
	if got["castellan_passes_total keep done"] == 0 {
		t.Errorf("no pass is counted as done: %v", got)
	}
}

// An object with a resourceVersion is applied onto that version or not at all.
func TestApplyOntoWhatWasRead(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 1))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "list"}, Data: map[string]string{"x": "1"}}
	if err := b.c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	read := cm.DeepCopy()
	read.Data["x"] = "2"
	b.keeper.plan = func(*Keep, keepState) kit.Plan { return kit.Plan{Apply: []kit.Object{read.DeepCopy()}} }
	cm.Data["x"] = "somebody's"
	if err := b.c.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	value := func() string {
		t.Helper()
		got := &corev1.ConfigMap{}
		if err := b.c.Get(t.Context(), key("ns", "list"), got); err != nil {
			t.Fatal(err)
		}
		return got.Data["x"]
	}
	if res, err := b.pass(); err != nil || res.RequeueAfter == 0 || value() != "somebody's" {
		t.Errorf("want another look and nothing written: %v %v %q", res, err, value())
	}
	read.ResourceVersion = cm.ResourceVersion
	if _, err := b.pass(); err != nil || value() != "2" {
		t.Errorf("%v %q", err, value())
	}
}
