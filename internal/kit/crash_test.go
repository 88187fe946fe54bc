package kit_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

// lifeOfAKeep is created, grown, shrunk and deleted. world gives a client and a
// namespace.
func lifeOfAKeep(world func(t testing.TB) (client.Client, string)) kittest.Scenario {
	edit := func(rooms int) func(context.Context, *kittest.World) error {
		return func(ctx context.Context, w *kittest.World) error {
			list := &KeepList{}
			if err := w.Env.Client.List(ctx, list); err != nil {
				return err
			}
			for i := range list.Items {
				if list.Items[i].Name == "a" && list.Items[i].Spec.Image == "image:1" {
					list.Items[i].Spec.Rooms = rooms
					if err := w.Env.Client.Update(ctx, &list.Items[i]); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	var namespaceOf = map[*kittest.World]string{}
	return kittest.Scenario{
		World: func(t testing.TB) *kittest.World {
			c, ns := world(t)
			d := newDepot()
			w := &kittest.World{Env: kit.Env{Client: c}}
			namespaceOf[w] = ns
			w.Drivers = []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*Keep, keepState] {
				return &keeper{client: env.Client, depot: d}
			}, keepOptions(), kittest.KeysOf(&KeepList{}, ns))}
			w.Step = func(ctx context.Context) (bool, error) { return servePods(ctx, c, ns) }
			w.Check = func(ctx context.Context, _ kit.Effect) error { return keepInvariants(ctx, c, d, ns) }
			w.Digest = func(ctx context.Context) (string, error) {
				s, err := kittest.Digest(ctx, c, ns, &KeepList{}, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}, &corev1.SecretList{})
				return s + fmt.Sprint(d.rooms, d.made), err
			}
			return w
		},
		Acts: []kittest.Act{
			{Name: "create", Do: func(ctx context.Context, w *kittest.World) error {
				return w.Env.Client.Create(ctx, newKeep(namespaceOf[w], "a", 2))
			}},
			{Name: "create another that stays", Do: func(ctx context.Context, w *kittest.World) error {
				b := newKeep(namespaceOf[w], "b", 1)
				b.Spec.Image = "image:2"
				return w.Env.Client.Create(ctx, b)
			}},
			{Name: "grow", Do: edit(5)},
			{Name: "shrink", Do: edit(1)},
			{Name: "delete", Do: func(ctx context.Context, w *kittest.World) error {
				return w.Env.Client.Delete(ctx, newKeep(namespaceOf[w], "a", 0))
			}},
		},
	}
}

// keepInvariants must hold after every effect: nothing is made for a keep without a
// finalizer, the depot knows no keep that is not there, and no name is made twice.
func keepInvariants(ctx context.Context, c client.Client, d *depot, ns string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.rooms {
		k := &Keep{}
		if err := c.Get(ctx, key(ns, name), k); err != nil {
			return fmt.Errorf("the depot has rooms for %s: %w", name, err)
		}
		if len(k.Finalizers) != 1 {
			return fmt.Errorf("the depot has rooms for %s, which no finalizer holds", name)
		}
	}
	for name, n := range d.made {
		if n > 1 {
			return fmt.Errorf("%s was made %d times", name, n)
		}
	}
	return nil
}

func TestCrashAtEveryEffect(t *testing.T) {
	scheme := keepScheme(t)
	res := kittest.Run(t, lifeOfAKeep(func(t testing.TB) (client.Client, string) {
		s, err := kittest.NewStore(scheme)
		if err != nil {
			t.Fatal(err)
		}
		return s.Client(), "ns"
	}))
	if len(res.Effects) < 20 || res.Runs != 3*len(res.Effects) {
		t.Errorf("%d effects, %d runs: the scenario is smaller than it should be", len(res.Effects), res.Runs)
	}
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
}

// forgetful makes the rooms before it has a finalizer, and makes them anew in every
// process: what the crash runs are there to find.
type forgetful struct {
	keeper
	done bool
}

func (c *forgetful) Plan(k *Keep, s keepState) kit.Plan {
	p := c.keeper.Plan(k, s)
	if !c.done && s.There {
		// A decision from memory instead of from what was seen.
		p.Do = []kit.Action{removeRooms{k.Name}, setRooms{k.Name, k.Spec.Rooms}}
		c.done = true
	}
	return p
}

// TestCrashRunsFindDecisionsFromMemory makes sure that the harness sees a controller
// that is not re-entrant: its steady round has effects.
func TestCrashRunsFindDecisionsFromMemory(t *testing.T) {
	scheme := keepScheme(t)
	store, err := kittest.NewStore(scheme, newKeep("ns", "a", 1))
	if err != nil {
		t.Fatal(err)
	}
	d := newDepot()
	env := kit.Env{Client: store.Client()}
	for range 2 { // two processes
		c := &forgetful{keeper: keeper{client: store.Client(), depot: d}}
		r := kit.NewReconciler(kit.Controller[*Keep, keepState](c), env, keepOptions())
		for range 6 {
			if _, err := r.Reconcile(t.Context(), request("ns", "a")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d.made["a"] < 3 {
		t.Fatalf("the bad controller made the rooms %d times; it is to show what a crash does", d.made["a"])
	}
	if err := keepInvariants(t.Context(), store.Client(), d, "ns"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("the invariants do not see it: %v", err)
	}
}
