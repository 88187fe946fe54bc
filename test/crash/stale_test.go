package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

// Caches that are behind (F3), also at the start of a process (F4): every kind by itself
// up to 40 writes, differently with each seed. All invariants hold and the end is that
// of a cluster whose controllers see everything at once.
func TestCachesThatAreBehind(t *testing.T) {
	for _, c := range []struct {
		name string
		o    options
		acts func(bs benches) []kittest.Act
	}{
		{"create", options{nodes: 3, disks: 1}, func(bs benches) []kittest.Act { return []kittest.Act{three(bs), look(bs, 3, 3)} }},
		{"mon failover", options{nodes: 4, disks: 1, begin: "failover"}, func(bs benches) []kittest.Act {
			return failover(bs, func(b *bench, node string) { b.sim.Kill(node) })
		}},
		{"delete", options{nodes: 3, disks: 1, begin: "three nodes"}, func(bs benches) []kittest.Act {
			return []kittest.Act{setup(three(bs)), confirm(bs), remove(bs), deleted(bs, 0)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bs := benches{}
			s := kittest.Scenario{
				World: func(t testing.TB) *kittest.World { return bs.world(t, c.o) }, Acts: c.acts(bs), Settle: 65 * time.Second,
				Setups: &setups, Begin: c.o.begin,
			}
			want, err := kittest.Play(t, s, 0, kittest.Before)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range kittest.Random(t, 1) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					got, err := kittest.Play(t, bs.behind(s, c.o, uint64(seed+1)), 0, kittest.Before)
					if err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(want.Digest, got.Digest); d != "" {
						t.Errorf("the end differs from that without lag (-without +with):\n%s\n%s", d, got.Trace())
					}
				})
			}
		})
	}
}

// behind is a scenario whose own acts are seen through a cache that is behind.
func (bs benches) behind(s kittest.Scenario, o options, seed uint64) kittest.Scenario {
	o.lag, o.seed = 40, seed
	late := kittest.Scenario{Settle: s.Settle, Rounds: 3000, Acts: s.Acts, World: func(t testing.TB) *kittest.World { return bs.world(t, o) }}
	if s.Begin == "" {
		return late
	}
	late.World = func(t testing.TB) *kittest.World {
		begun, now := kittest.Begin(t, s)
		w := begun.Data.(*bench).live(&kittest.World{}, o)
		w.Start = now
		return w
	}
	late.Acts = nil
	for _, a := range s.Acts {
		if !a.Setup {
			late.Acts = append(late.Acts, a)
		}
	}
	return late
}
