package kit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

// lifeOfAKeep is created, grown, shrunk and deleted. world gives a client and a
// namespace.
func lifeOfAKeep(world func(t testing.TB) (client.Client, string)) *keepLife {
	life := &keepLife{}
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
	life.Scenario = kittest.Scenario{
		World: func(t testing.TB) *kittest.World {
			c, ns := world(t)
			d := newDepot()
			w := &kittest.World{Env: kit.Env{Client: c}}
			namespaceOf[w] = ns
			w.Drivers = []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*Keep, keepState] {
				c := &keeper{client: env.Client, depot: d}
				if life.bad != nil {
					life.bad(c)
				}
				return c
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
	return life
}

// keepLife is a scenario whose controller can be made bad.
type keepLife struct {
	kittest.Scenario
	bad func(c *keeper)
}

func (l *keepLife) spoil(bad func(c *keeper)) { l.bad = bad }

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
	}).Scenario)
	if len(res.Effects) < 20 || res.Runs != 3*len(res.Effects) {
		t.Errorf("%d effects, %d runs: the scenario is smaller than it should be", len(res.Effects), res.Runs)
	}
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
}

// TestTheHarnessFindsBadControllers plants the mistakes that the crash runs are
// there to find, one at a time.
func TestTheHarnessFindsBadControllers(t *testing.T) {
	scheme := keepScheme(t)
	tests := map[string]struct {
		// spoil makes the controller of a new process bad.
		spoil func(c *keeper)
		// found is part of the error, or of the difference.
		found string
	}{
		"decides from memory": {
			spoil: func(c *keeper) {
				told := false
				good := *c
				c.plan = func(k *Keep, s keepState) kit.Plan {
					p := good.Plan(k, s)
					if !told && s.There {
						p.Do = []kit.Action{setRooms{k.Name, k.Spec.Rooms}}
						told = true
					}
					return p
				}
			},
			found: "a new process still did",
		},
		"takes an error for absence": {
			spoil: func(c *keeper) {
				good := *c
				first := true
				c.observe = func(ctx context.Context, k *Keep) (keepState, error) {
					s, err := good.Observe(ctx, k)
					if first {
						s.There, first = false, false
					}
					return s, err
				}
			},
			found: "a new process still did",
		},
		"is not the same when done twice": {
			spoil: func(c *keeper) {
				good := *c
				c.plan = func(k *Keep, s keepState) kit.Plan {
					p := good.Plan(k, s)
					if p.Err == nil && !s.There {
						// Two mutations, of which the second is never made up for.
						p.Do = []kit.Action{setRooms{k.Name, k.Spec.Rooms}, setRooms{k.Name + "-spare", 1}}
					}
					return p
				}
			},
			found: "-spare",
		},
		"makes something before the finalizer is there": {
			spoil: func(c *keeper) {
				good := *c
				c.observe = func(ctx context.Context, k *Keep) (keepState, error) {
					if k.Name == "a" && k.DeletionTimestamp != nil {
						_ = c.depot.set("nobody", 1) // a mutation in Observe
					}
					return good.Observe(ctx, k)
				}
			},
			found: "the depot has rooms for nobody",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := lifeOfAKeep(func(t testing.TB) (client.Client, string) {
				store, err := kittest.NewStore(scheme)
				if err != nil {
					t.Fatal(err)
				}
				return store.Client(), "ns"
			})
			s.spoil(tt.spoil)
			if got := findings(t, s.Scenario); !strings.Contains(got, tt.found) {
				t.Errorf("not found; the harness says: %s", got)
			}
		})
	}
}

// findings plays a scenario in all ways until something is found.
func findings(t *testing.T, s kittest.Scenario) string {
	t.Helper()
	base, err := kittest.Play(t, s, 0, kittest.Before)
	if err != nil {
		return err.Error()
	}
	for k := range base.Effects {
		for _, mode := range []kittest.Mode{kittest.Before, kittest.After, kittest.ReplyLost} {
			got, err := kittest.Play(t, s, k+1, mode)
			if err != nil {
				return err.Error()
			}
			if d := cmp.Diff(base.Digest, got.Digest); d != "" {
				return d
			}
		}
	}
	return "nothing"
}
