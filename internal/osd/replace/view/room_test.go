package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Requests of one second are in the order of their ids, in whatever order they were
// looked at, and one that was not looked at yet counts.
func TestTheOrderOfRequests(t *testing.T) {
	now := time.Unix(1790000000, 700e6)
	second := now.UTC().Truncate(time.Second)
	note := func(id int, at time.Time, set *plan.Set) *plan.Note {
		return &plan.Note{UUID: "u", Node: "n", Record: prepare.Result{ID: id, UUID: "u"}, Accepted: at, Set: set}
	}
	pair := &plan.Set{Kind: plan.OnDisk, Leader: 3, Members: []plan.Member{{ID: 3, UUID: "u"}, {ID: 5, UUID: "u"}}}
	for _, c := range []struct {
		name  string
		notes map[int]*plan.Note // nil is asked for and not accepted
		out   int                // an OSD that is out already, or -1
		mine  *plan.Note
		want  []int
	}{
		{"the same second, a higher id", map[int]*plan.Note{7: note(7, second, nil)}, -1, note(5, second, nil), []int{}},
		{"the same second, a lower id", map[int]*plan.Note{3: note(3, second, nil)}, -1, note(5, second, nil), []int{3}},
		{"the same second, a lower id that is not accepted yet", map[int]*plan.Note{3: nil}, -1, note(5, second, nil), []int{3}},
		{"a later second", map[int]*plan.Note{3: nil}, -1, note(5, second.Add(-time.Second), nil), []int{}},
		{"an earlier second", map[int]*plan.Note{7: note(7, second.Add(-time.Second), nil), 3: note(3, second, nil)}, -1, note(5, second, nil), []int{7, 3}},
		{"a higher id that is out", map[int]*plan.Note{7: note(7, second, nil)}, 7, note(5, second, nil), []int{7}},
		{"one of the same set", map[int]*plan.Note{3: note(3, second, pair)}, 3, note(5, second, pair), []int{}},
	} {
		v := &View{Now: now, Deployments: map[int]*appsv1.Deployment{}}
		for id, n := range c.notes {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{spec.ReplaceAnnotation: spec.Confirmation(id)}}}
			if n != nil {
				d.Annotations[spec.NoteAnnotation] = n.Encode()
			}
			v.Deployments[id] = d
			v.OSDMap.OSDs = append(v.OSDMap.OSDs, cephosd.OSD{ID: id, UUID: "u", In: id != c.out, Up: true})
		}
		if diff := cmp.Diff(c.want, v.Ahead(5, c.mine)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
