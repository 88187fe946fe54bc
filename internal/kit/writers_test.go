package kit_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kit"
)

// refusals counts writes of a status that were refused, and can hold them up.
type refusals struct {
	client.Client
	refused *int
	hold    func(ctx context.Context)
}

func (r refusals) Status() client.SubResourceWriter {
	return refusedStatus{SubResourceWriter: r.Client.Status(), r: r}
}

type refusedStatus struct {
	client.SubResourceWriter
	r refusals
}

func (s refusedStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	s.r.hold(ctx)
	err := s.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	if apierrors.IsConflict(err) {
		*s.r.refused++
	}
	return err
}

// Two controllers look at the same copy of an object, and both have something to say. The
// second one writes onto what the first has written.
func TestControllersOfOneObjectWriteOneAfterAnother(t *testing.T) {
	for _, tc := range []struct {
		name    string
		writers *kit.Writers
		refused int
	}{
		{"each for itself", nil, 1},
		{"in turns", kit.NewWriters(), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, keepOptions(), newKeep("ns", "a", 2))
			b.settle()
			stale, refused := b.keep(), 0
			env := b.env()
			env.Client = staleFor{Client: refusals{b.store.Client(), &refused, func(context.Context) {}}, obj: stale}
			env.Live, env.Writers = b.c, tc.writers
			reconciler := func(condition string, meanwhile func()) *kit.Reconciler[*Keep, keepState] {
				k := &keeper{client: b.c, depot: b.depot, plan: func(*Keep, keepState) kit.Plan {
					meanwhile()
					return kit.Plan{Conditions: []kit.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Told"}}}
				}}
				return kit.NewReconciler(kit.Controller[*Keep, keepState](k), env, keepOptions())
			}
			pass := func(r *kit.Reconciler[*Keep, keepState]) {
				if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
					t.Fatal(err)
				}
			}
			first := reconciler("First", func() {})
			pass(reconciler("Second", func() { pass(first) }))
			if refused != tc.refused {
				t.Errorf("%d writes were refused, want %d", refused, tc.refused)
			}
			for _, kind := range []string{"First", "Second"} {
				if b.condition(kind).Reason != "Told" {
					t.Errorf("condition %s is missing: %+v", kind, b.keep().Status.Conditions)
				}
			}
		})
	}
}

// A write that hangs holds up others of the same object no longer than their own time, and
// no other object at all.
func TestAWriteThatHangsHoldsUpItsOwnObjectOnly(t *testing.T) {
	b := newBench(t, keepOptions(), newKeep("ns", "a", 2), newKeep("ns", "b", 2))
	refused := 0
	ctx, cancel := context.WithCancel(t.Context())
	hangs, begun := true, make(chan struct{})
	env := b.env()
	env.Client = refusals{b.store.Client(), &refused, func(ctx context.Context) {
		if hangs {
			hangs = false
			close(begun)
			<-ctx.Done()
		}
	}}
	env.Live, env.Writers = b.c, kit.NewWriters()
	plain := func(*Keep, keepState) kit.Plan { return kit.Plan{} }
	r := kit.NewReconciler(kit.Controller[*Keep, keepState](&keeper{client: b.c, depot: b.depot, plan: plain}), env, kit.Options{Name: "keep", PerNamespace: 4})
	hung := make(chan error)
	go func() {
		_, err := r.Reconcile(ctx, request("ns", "a"))
		hung <- err
	}()
	<-begun
	if _, err := r.Reconcile(t.Context(), request("ns", "b")); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if res, err := r.Reconcile(short, request("ns", "a")); err == nil && res.RequeueAfter == 0 {
		t.Error("the pass that could not write its status does not come again")
	}
	cancel()
	if err := <-hung; err != nil {
		t.Logf("the pass that hung: %v", err)
	}
	if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
		t.Fatalf("the turn was not given back: %v", err)
	}
	if c := b.condition("Ready"); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
}
