package view

import (
	"context"
	"slices"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Capacity asks Ceph what says where data could go; why is what could not be read, "" where
// all was.
func (v *View) Capacity(ctx context.Context) (c check.Capacity, why string) {
	c.Map, c.Held, c.Coming = v.OSDMap, map[int]int64{}, map[int]bool{}
	osds := cephosd.New(v.Stored.Ceph)
	var err error
	if c.Tree, err = osds.Tree(ctx); err != nil {
		return c, err.Error()
	}
	if c.Usage, err = osds.DF(ctx); err != nil {
		return c, err.Error()
	}
	if c.Rules, err = crush.New(v.Stored.Ceph).Rules(ctx); err != nil {
		return c, err.Error()
	}
	for id, d := range v.Deployments {
		note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], id)
		if o, ok := v.OSDMap.Find(id); err == nil && note != nil && note.Drain != nil && ok && !bool(o.In) && o.UUID == note.UUID {
			c.Held[id] = note.Drain.Bytes / 1024
		}
		_, replaced := d.Annotations[spec.ReplacedAnnotation]
		c.Coming[id] = replaced || err == nil && note != nil && note.Before.In
	}
	return c, ""
}

// Ahead are, for the OSD with the id and its note, the ids of replacements whose request was
// accepted earlier, and of those that are out already, in the order of their requests. A request that is not accepted yet, and
// not refused, counts as of now: it may have been made in the same second. OSDs of the
// same set are not ahead.
func (v *View) Ahead(id int, mine *plan.Note) []int {
	type other struct {
		id   int
		when time.Time
	}
	var others []other
	for o, d := range v.Deployments {
		note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], o)
		if o == id || err != nil || mine.Set.Same(setOf(note)) {
			continue
		}
		osd, ok := v.OSDMap.Find(o)
		when := v.Now.UTC().Truncate(time.Second)
		switch {
		case note == nil && (d.Annotations[spec.ReplaceAnnotation] != spec.Confirmation(o) || d.Annotations[spec.RefusedAnnotation] != "" || kube.Skipped(d) || spec.Replacing(d.Annotations) || !ok || osd.Destroyed()):
			continue
		case note == nil:
		case !ok || osd.Destroyed() || osd.UUID != note.UUID:
			continue // it has nothing left to move
		default:
			when = note.Accepted
		}
		earlier := when.Before(mine.Accepted) || when.Equal(mine.Accepted) && o < id
		if earlier || !bool(osd.In) {
			others = append(others, other{o, when})
		}
	}
	slices.SortFunc(others, func(a, b other) int {
		if c := a.when.Compare(b.when); c != 0 {
			return c
		}
		return a.id - b.id
	})
	ids := make([]int, len(others))
	for i, o := range others {
		ids[i] = o.id
	}
	return ids
}

func setOf(n *plan.Note) *plan.Set {
	if n == nil {
		return nil
	}
	return n.Set
}
