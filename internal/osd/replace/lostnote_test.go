package replace

import (
	"strings"
	"testing"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// An OSD whose note was taken away is not taken for one that is replaced alone while
// another one's note has it in its set: its own disk would be the one to pull.
func TestAMemberOfASetWithoutItsNote(t *testing.T) {
	for _, c := range []struct {
		name  string
		alone bool
	}{{"the other's note is there", false}, {"no note has it in its set", true}} {
		h := newHalf(t)
		h.v.stored = access.Cluster{Ceph: cephtest.Healthy(t, 3, 3)}
		delete(h.v.deps[5].Annotations, spec.NoteAnnotation)
		if c.alone {
			delete(h.v.deps[6].Annotations, spec.NoteAnnotation)
		}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: "0", InProgress: true, Ready: true}}
		if err := s.fresh(t.Context(), &Base{}, &cephv1.CephCluster{}, h.v, h.v.deps[5]); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(s.FreshProblem, "replaced together"); got == c.alone {
			t.Errorf("%s: %q", c.name, s.FreshProblem)
		}
	}
}
