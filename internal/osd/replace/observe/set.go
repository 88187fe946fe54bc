package observe

import (
	"fmt"
	"maps"
	"slices"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// set looks at the other OSDs of the set.
func (s *facts) set(v *view.View) {
	note := s.Note
	if note.Dead != nil {
		s.DeadDue = note.Dead.Add(view.DeadAfter)
		s.LongDead = !v.Now.Before(s.DeadDue)
	}
	s.Need = need(*note, v)
	if note.Set == nil {
		return
	}
	s.Strangers = check.Strangers(*note, othersOn(v, note.Node))
	for _, m := range note.Set.Members {
		if m.ID == s.ID {
			continue
		}
		s.Mates = append(s.Mates, v.Mate(m, note, s.Asked))
	}
	for _, n := range joinedTo(v, *note) {
		s.Joined = append(s.Joined, v.Mate(plan.Member{ID: n.Record.ID, UUID: n.UUID}, &n, true))
		s.Need += metadataSize(n.Record)
	}
	if a := note.Attempt; a != nil && note.Set.Kind == plan.OnMetadata {
		s.Begun = slices.ContainsFunc(v.Records, func(r osdplan.Record) bool { return r.Node == note.Node && lives(v, r) && on(r.Result, *a) })
	}
}

// joinedTo are the notes of OSDs of other sets that wait for the same metadata device, and
// may be told to pull what is in its place.
func joinedTo(v *view.View, mine plan.Note) []plan.Note {
	var out []plan.Note
	for _, n := range readyNotes(v) {
		if mine.Joins(n) {
			out = append(out, n)
		}
	}
	return out
}

// readyNotes are the notes of all OSDs whose disks may be pulled, in the order of their ids.
func readyNotes(v *view.View) []plan.Note {
	var out []plan.Note
	for _, id := range slices.Sorted(maps.Keys(v.Deployments)) {
		d := v.Deployments[id]
		n, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], id)
		if _, ready := d.Annotations[spec.ReadyAnnotation]; err == nil && n != nil && ready {
			out = append(out, *n)
		}
	}
	return out
}

// lives says that a record is of an OSD that Ceph has.
func lives(v *view.View, r osdplan.Record) bool {
	_, ok := view.Holds(v.OSDMap, r.ID, r.UUID)
	return ok
}

// on says that an OSD has its database or WAL on the disk of an attempt.
func on(r prepare.Result, a plan.Attempt) bool {
	return slices.ContainsFunc([]*prepare.Part{r.DB, r.WAL}, func(p *prepare.Part) bool {
		switch {
		case p == nil:
			return false
		case a.Serial != "" && p.Serial != "":
			return a.Serial == p.Serial
		}
		return a.Device != "" && (a.Device == p.ByID || a.Device == p.ByPath || p.Disk != "" && a.Device == "/dev/"+p.Disk)
	})
}

// behind looks for OSDs of the set that were rebuilt on the new metadata device before it
// failed. They are down with it, and would be left without a device if the next were filled
// without them: each needs a confirmation of its own before it is destroyed once more.
func (s *facts) behind(v *view.View, named bool) {
	note, a := s.Note, s.Note.Attempt
	if note.Set == nil || note.Set.Kind != plan.OnMetadata || a == nil || a.Failed == "" {
		return
	}
	for _, m := range note.Set.Members {
		o, anew := view.MadeAnew(v.OSDMap, m.ID, m.UUID)
		d := v.Deployments[m.ID]
		if m.ID == s.ID || d == nil || !anew {
			continue // not rebuilt, or destroyed once more
		}
		again, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], m.ID)
		rec, known := recordOf(v, m.ID, d, o.UUID, false)
		if again != nil {
			rec.Result, known = again.Record, true
		}
		if !known || !on(rec.Result, *a) {
			continue
		}
		name := fmt.Sprintf("osd.%d", m.ID)
		request := fmt.Sprintf("kubectl annotate deployment %s %s=%s", spec.Name(m.ID), spec.MetadataAnnotation, spec.MetadataConfirmation(m.ID))
		refused := d.Annotations[spec.RefusedAnnotation]
		switch {
		case err != nil || again != nil:
			s.Behind = fmt.Sprintf("%s, which was rebuilt on %s too, is being replaced again and is not destroyed yet", name, a.Device)
			s.BehindHint = fmt.Sprintf("status.storage.replacements says what that waits for; cancel it (annotation %s of %s) to go on without it", spec.MetadataAnnotation, name)
		case bool(o.Up) || d.Status.ReadyReplicas > 0 || named:
			continue // it works where it is, or the user has decided
		case view.AskedMetadata(d, m.ID) && refused == "":
			s.Behind, s.BehindHint = fmt.Sprintf("the replacement of %s, which was rebuilt on %s too, is being checked", name, a.Device), ""
		default:
			s.Behind = fmt.Sprintf("%s was rebuilt on %s before that failed, and is down", name, a.Device)
			if refused != "" && view.AskedMetadata(d, m.ID) {
				s.Behind += "; its replacement is refused: " + refused
			}
			s.BehindHint = fmt.Sprintf("ask for it too, and it comes along: %s; or name the disk, to go on without it: %s=/dev/disk/by-id/... on the Deployment of osd.%d", request, spec.WithAnnotation, s.ID)
		}
		return
	}
}

// need is the least size of the new disk of a set: what all of its OSDs had on the old one.
func need(n plan.Note, v *view.View) uint64 {
	if n.Set == nil {
		return 0
	}
	var total uint64
	for _, m := range n.Set.Members {
		rec := n.Record
		if m.ID != n.Record.ID {
			d := v.Deployments[m.ID]
			if d == nil {
				continue
			}
			other, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], m.ID)
			if err != nil || other == nil || !n.Set.Same(other.Set) {
				continue // it is given up, or back already
			}
			rec = other.Record
		}
		if n.Set.Kind == plan.OnDisk {
			total += rec.Data.Size
			continue
		}
		total += metadataSize(rec)
	}
	if n.Set.Kind == plan.OnDisk {
		total -= total / 100 // makers differ by less than a hundredth
	}
	return total
}

// metadataSize is what an OSD needs of a metadata device.
func metadataSize(rec prepare.Result) (total uint64) {
	for _, p := range []*prepare.Part{rec.DB, rec.WAL} {
		if p != nil {
			total += p.Size
		}
	}
	return total
}
