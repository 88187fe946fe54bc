package replace

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/test/sim"
)

// killer lets the operator die after a random number of effects: before the effect, after
// it, or after it with the reply lost. Once it is dead it does nothing more.
type killer struct {
	mu    sync.Mutex
	rng   *rand.Rand
	most  int
	left  int
	mode  int
	dying bool
	kills int
	// at are the effects at which it died.
	at []string
}

var errDied = errors.New("the operator has died")

// arm is for a new process. It says whether the last one has died.
func (k *killer) arm() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	died := k.dying
	k.dying, k.left, k.mode = false, 1+k.rng.IntN(3), k.rng.IntN(3)
	return died
}

func (k *killer) dead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dying
}

// Before implements kit.Hook.
func (k *killer) Before(_ context.Context, e kit.Effect) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dying {
		return errDied
	}
	if k.kills >= k.most {
		return nil
	}
	if k.left--; k.left == 0 && k.mode == 0 {
		k.die(e)
		return errDied
	}
	return nil
}

// After implements kit.Hook.
func (k *killer) After(_ context.Context, e kit.Effect, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.dying:
		return errDied
	case k.left > 0 || k.kills >= k.most:
		return nil
	}
	k.die(e)
	if k.mode == 2 && err == nil {
		return &kit.ReplyLostError{Effect: e}
	}
	return errDied
}

func (k *killer) die(e kit.Effect) {
	k.dying = true
	k.kills++
	k.at = append(k.at, []string{"before ", "after ", "without the reply of "}[k.mode]+e.Controller+": "+e.What)
}

// onePodEach is D4: no two pods run one OSD.
func (r *rig) onePodEach() {
	r.t.Helper()
	var list corev1.PodList
	if err := r.c.List(r.t.Context(), &list, client.InNamespace(r.ns), client.HasLabels{spec.IDLabel}); err != nil {
		r.t.Fatal(err)
	}
	seen := map[string]string{}
	for _, p := range list.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		if other := seen[p.Labels[spec.IDLabel]]; other != "" {
			r.t.Errorf("D4: pods %s and %s run one OSD", p.Name, other)
		}
		seen[p.Labels[spec.IDLabel]] = p.Name
	}
}

// uuids of all OSDs but one.
func (r *rig) uuids(but int) map[int]string {
	r.t.Helper()
	m, err := cephosd.New(r.ceph).Dump(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[int]string{}
	for _, o := range m.OSDs {
		if o.ID != but {
			all[o.ID] = o.UUID
		}
	}
	return all
}

// The operator dies again and again over one replacement, on a real API server with real
// caches: the replacement comes to its end, D1 to D6 hold on the way.
func TestKilledAgainAndAgain(t *testing.T) {
	r := newRig(t, 4, 2)
	const id = 3
	k := &killer{rng: rand.New(rand.NewPCG(7, 20)), most: 6}
	if os.Getenv("CASTELLAN_CRASH") == "full" {
		k.most = 20
	}
	before, _ := r.osd(id)
	kept, others := r.place(id), r.uuids(id)
	r.guard.ask(id)
	spare := r.plug(r.nodeOf(before.UUID), "sdz", 9) // an OSD of its own, once somebody looks at the node
	r.kill()
	k.arm()
	r.hook = k
	r.start()
	r.replace(id)
	swapped, begun := false, time.Now()
	sim.Eventually(t, 5*time.Minute, "replaced", func() error {
		if k.dead() {
			r.kill()
			k.arm()
			r.start()
		}
		r.onePodEach()
		if !swapped && r.marked(id, spec.ReadyAnnotation) {
			r.swapDisk(id, before.UUID)
			swapped = true
		}
		o, _ := r.osd(id)
		if d := r.deployment(id); !swapped || !bool(o.Up) || !bool(o.In) || o.UUID == before.UUID || d == nil || view.Concerned(d) {
			return r.describe()
		}
		return nil
	})
	t.Logf("KILLED %d times over one replacement in %v: %q", k.kills, time.Since(begun).Round(time.Second), k.at)
	if k.kills < k.most {
		t.Errorf("only %d deaths", k.kills)
	}
	if k.dead() {
		r.kill()
		k.arm()
		r.start()
	}
	if diff := cmp.Diff(kept, r.place(id)); diff != "" {
		t.Errorf("D6: place, weight or class (-before +after):\n%s", diff)
	}
	now := r.uuids(id)
	maps.DeleteFunc(now, func(id int, _ string) bool { return others[id] == "" }) // the spare's
	if diff := cmp.Diff(others, now); diff != "" {
		t.Errorf("D5: other OSDs (-before +after):\n%s", diff)
	}
	r.world.Replacing(func(p *sim.Replacements) {
		for _, serial := range p.Made {
			if serial == spare.Serial {
				t.Errorf("D1: osd.%d was made on the disk of another OSD", id)
			}
		}
		if len(p.Made) != 1 {
			t.Errorf("OSDs were made on %v", p.Made)
		}
	})
	r.ready(9)
}
