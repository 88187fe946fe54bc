package replace

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// behind plays acts in a cluster whose controllers read from caches that are up to 40
// writes behind, each kind by itself and differently with each seed.
func (bs benches) behind(t *testing.T, o options, seed uint64, acts ...kittest.Act) (kittest.Result, error) {
	t.Helper()
	return kittest.Play(t, kittest.Scenario{World: func(t testing.TB) *kittest.World {
		begun, now := kittest.Begin(t, bs.scenario(o))
		lagging := o
		lagging.lag, lagging.seed = 40, seed
		w := begun.Data.(*bench).live(lagging)
		w.Start = now
		return w
	}, Acts: acts, Settle: settle, Rounds: 3000}, 0, kittest.Before)
}

// conditions of the CephCluster, for the message of a failure.
func (b *bench) conditions(ctx context.Context) string {
	var cl cephv1.CephCluster
	if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
		return err.Error()
	}
	out := fmt.Sprintf("phase %s: %s\n", cl.Status.Phase, cl.Status.Message)
	for _, c := range cl.Status.Conditions {
		out += fmt.Sprintf("%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return out
}

// Caches that are behind, also at the start of a process: no step of a replacement is
// taken on what has long changed, and the end is that of a run that sees everything.
func TestReplacedWithCachesThatAreBehind(t *testing.T) {
	bs := benches{}
	hold := func(on bool) kittest.Act {
		return bs.act("hold the recovery", func(ctx context.Context, b *bench) error {
			if on {
				return cephosd.New(b.ceph).SetFlag(ctx, "norecover")
			}
			return cephosd.New(b.ceph).UnsetFlag(ctx, "norecover")
		})
	}
	for name, c := range map[string]struct {
		o    options
		acts []kittest.Act
	}{
		"raw":             {small, []kittest.Act{bs.replace(3), bs.swap(3), bs.done(3)}},
		"encrypted":       {encrypted, []kittest.Act{bs.replace(3), bs.swap(3), bs.done(3)}},
		"cancelled":       {small, []kittest.Act{hold(true), bs.replace(3), bs.takeBack(3), hold(false), bs.asBefore(3)}},
		"two on a disk":   {shared, []kittest.Act{bs.noteSet(isBlock), bs.askAll(), bs.swapShared(isBlock), bs.allDone()}},
		"metadata device": {fast, []kittest.Act{bs.noteSet(isDB), bs.askMetadata(spec.MetadataConfirmation(0)), bs.swapShared(isDB), bs.allDone()}},
		"abandoned":       {small, []kittest.Act{bs.replace(3), bs.annotate(spec.AbandonAnnotation, spec.AbandonConfirmation(3), 3)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, want := bs.play(t, c.o, c.acts...)
			for seed := range kittest.Random(t, 1) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					got, err := bs.behind(t, c.o, uint64(seed+1), c.acts...)
					if err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(want.Digest, got.Digest); d != "" {
						t.Errorf("the end differs from that without lag (-without +with):\n%s\n%s", d, got.End.Data.(*bench).conditions(t.Context())+got.Trace())
					}
				})
			}
		})
	}
}
