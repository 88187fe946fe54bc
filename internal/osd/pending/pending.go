// Package pending collects the slots of a node that wait for another disk, for all who
// ask the node to look at its disks, so that they ask the same question.
//
// It is pure.
package pending

import (
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Labels on a node's report, which say what question it answers.
const (
	// SlotsLabel is the hash of the pending slots that the node knew of.
	SlotsLabel = "castellan.ceph.io/pending"
	// AfterLabel is the watch that has ended before the look.
	AfterLabel = "castellan.ceph.io/after-watch"
	// RetryLabel is the failed attempt before the look.
	RetryLabel = "castellan.ceph.io/after-attempt"
)

// Of are the slots of each node that wait for a disk, by node: those whose Deployment
// says that the disk may be pulled. deps are the Deployments of OSDs.
func Of(deps []appsv1.Deployment) map[string][]swap.Pending {
	out := map[string][]swap.Pending{}
	var notes []plan.Note
	for i := range deps {
		d := &deps[i]
		id, err := spec.IDOf(d)
		if err != nil {
			continue
		}
		note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], id)
		if _, ready := d.Annotations[spec.ReadyAnnotation]; err != nil || note == nil || !ready {
			continue
		}
		notes = append(notes, *note)
	}
	for i := range deps {
		d := &deps[i]
		k := slices.IndexFunc(notes, func(n plan.Note) bool { return d.Name == spec.Name(n.Record.ID) })
		if k < 0 {
			continue
		}
		p := notes[k].Pending(with(d, notes[k], deps))
		p.Old = First(notes[k], notes).Old()
		out[notes[k].Node] = append(out[notes[k].Node], p)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b swap.Pending) int { return a.OSD - b.OSD })
	}
	return out
}

// First is the earliest of the notes that wait for one metadata device with a note, itself
// where it joins none: all of them wait for what takes the place of that one's device.
func First(note plan.Note, all []plan.Note) plan.Note {
	first := note
	for _, n := range all {
		if note.Joins(n) && (n.Accepted.Before(first.Accepted) || n.Accepted.Equal(first.Accepted) && n.Record.ID < first.Record.ID) {
			first = n
		}
	}
	return first
}

// with is the device that the user has named: on the OSD's own Deployment, or for a
// metadata device on that of the OSD that it was asked for.
func with(d *appsv1.Deployment, note plan.Note, deps []appsv1.Deployment) string {
	name := d.Annotations[spec.WithAnnotation]
	if name != "" || note.Set == nil || note.Set.Kind != plan.OnMetadata {
		return name
	}
	for i := range deps {
		if deps[i].Name == spec.Name(note.Set.Leader) {
			return deps[i].Annotations[spec.WithAnnotation]
		}
	}
	return ""
}

// Question is what a node is asked about its slots. What was noted of its disks belongs
// to the answer: that it is known now is no reason to look again.
func Question(slots []swap.Pending) []swap.Pending {
	q := slices.Clone(slots)
	for i := range q {
		q[i].Before = nil
	}
	return q
}

// Hash tells two questions apart; "" for none.
func Hash(slots []swap.Pending) string {
	if len(slots) == 0 {
		return ""
	}
	b, err := json.Marshal(Question(slots))
	if err != nil {
		panic("encoding pending slots: " + err.Error()) // they are plain values
	}
	return naming.Hash(string(b))[:16]
}

// Labels are those of a report that its next writer must keep.
func Labels(of map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range of {
		switch k {
		case "app", "status":
		default:
			out[k] = v
		}
	}
	return out
}
