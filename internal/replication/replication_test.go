package replication

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/kit"
)

func TestSuspicious(t *testing.T) {
	mapping := func(pairs ...string) *csiv1.ClientProfileReplication {
		r := &csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: csiv1.ClientProfileReplicationSpec{RBD: &csiv1.RBDReplicationSpec{}}}
		for i := 0; i < len(pairs); i += 2 {
			r.Spec.RBD.PoolMapping = append(r.Spec.RBD.PoolMapping, csiv1.PoolMappingSpec{Name: pairs[i], RemoteID: pairs[i+1]})
		}
		return r
	}
	known := mapping("gone", "7")
	known.Status.Conditions = []metav1.Condition{{Type: ConditionSuspicious, Status: "True", Reason: ReasonPoolNotFound, Message: "as it was", ObservedGeneration: 2}}
	stale := known.DeepCopy()
	stale.Generation = 3
	const gone = "pool 'gone' does not exist in the local cluster; if it was renamed, its volumes are looked for under their local pool id in the destination"
	for name, tt := range map[string]struct {
		r     *csiv1.ClientProfileReplication
		state State
		want  kit.Condition
	}{
		"all is well":            {mapping("a", "1", "b", "2"), State{Ours: true, Pools: sets.New("a", "b", "c")}, kit.Condition{Status: "False", Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}},
		"no access":              {mapping("gone", "1"), State{}, kit.Condition{Status: "False", Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}},
		"two to one":             {mapping("a", "1", "b", "1"), State{}, kit.Condition{Status: "True", Reason: ReasonSharedPool, Message: "pools 'a' and 'b' both lead to remote pool 1"}},
		"a pool that is not":     {mapping("a", "1", "gone", "2"), State{Ours: true, Pools: sets.New("a")}, kit.Condition{Status: "True", Reason: ReasonPoolNotFound, Message: gone}},
		"both":                   {mapping("a", "1", "gone", "1"), State{Ours: true, Pools: sets.New("a")}, kit.Condition{Status: "True", Reason: ReasonPoolNotFound, Message: gone + "; pools 'a' and 'gone' both lead to remote pool 1"}},
		"no pools at all":        {mapping("gone", "1"), State{Ours: true, Pools: sets.New[string]()}, kit.Condition{Status: "True", Reason: ReasonPoolNotFound, Message: gone}},
		"silence keeps it":       {known, State{Ours: true}, kit.Condition{Status: "True", Reason: ReasonPoolNotFound, Message: "as it was"}},
		"but not of an old spec": {stale, State{Ours: true}, kit.Condition{Status: "False", Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}},
		"nor of another's":       {known, State{}, kit.Condition{Status: "False", Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}},
		"nothing mapped":         {&csiv1.ClientProfileReplication{}, State{Ours: true, Pools: sets.New("a")}, kit.Condition{Status: "False", Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}},
	} {
		tt.want.Type = ConditionSuspicious
		if d := cmp.Diff(tt.want, suspicious(tt.r, tt.state)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
