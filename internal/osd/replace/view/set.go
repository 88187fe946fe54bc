package view

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/castellan-storage/castellan/internal/kube"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// DeadAfter is how long all OSDs of a metadata device must have been down, on a node that
// is ready and with Deployments that want them to run, before the device counts as dead.
// A restart of a node, or an OSD that replays a long log, takes minutes.
const DeadAfter = 5 * time.Minute

// Mate is one other OSD of the set of a note, as it is now. asked is whether the set on a
// metadata device is asked for, which is asked for as a whole.
func (v *View) Mate(m plan.Member, mine *plan.Note, asked bool) plan.Mate {
	out := plan.Mate{Member: m}
	o, anew := MadeAnew(v.OSDMap, m.ID, m.UUID)
	_, held := Holds(v.OSDMap, m.ID, m.UUID)
	out.Gone = v.Silence == "" && !held
	out.In, out.Running = bool(o.In), bool(o.Up)
	d := v.Deployments[m.ID]
	if d == nil {
		out.Why, out.Stopped = "it has no Deployment", !v.hasPods(m.ID)
		out.Made = anew
		return out
	}
	out.Running = out.Running || d.Status.ReadyReplicas > 0
	out.Stopped = d.Spec.Replicas != nil && *d.Spec.Replicas == 0 && !v.hasPods(m.ID) && !bool(o.Up)
	note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], m.ID)
	out.Claimed = err == nil && note != nil && note.UUID == m.UUID && mine.Set.Same(note.Set)
	out.Asked = asked
	if mine.Set.Kind == plan.OnDisk {
		out.Asked = d.Annotations[spec.ReplaceAnnotation] == spec.Confirmation(m.ID)
	}
	found := anew && slices.ContainsFunc(v.Records, func(r osdplan.Record) bool { return r.ID == m.ID && r.UUID == o.UUID })
	job := v.Jobs[spec.MakeName(m.ID)]
	if !out.Claimed {
		out.Made = out.Gone && anew
		out.Lost = out.Gone && !anew && (err != nil || note == nil)
		out.Why = v.WhyNot(m, d, mine, note, err)
		return out
	}
	out.Dead, out.Attempt, out.Made = note.Dead != nil, note.Attempt, found
	if job != nil {
		_, _, ended := kube.JobEnd(job)
		out.Making = !ended || job.DeletionTimestamp != nil
	}
	out.Making = out.Making || jobs.Lingers(v.Pods, spec.MakeApp, m.UUID)
	out.Free = job == nil && !out.Making && note.Attempt != nil && note.Attempt.Failed == ""
	return out
}

func (v *View) hasPods(id int) bool {
	return slices.ContainsFunc(v.Pods, func(p corev1.Pod) bool { return p.Labels[spec.IDLabel] == fmt.Sprint(id) })
}

// WhyNot says what keeps an OSD from being taken into a set; "" if nothing does.
func (v *View) WhyNot(m plan.Member, d *appsv1.Deployment, mine, note *plan.Note, err error) string {
	asked := d.Annotations[spec.ReplaceAnnotation] == spec.Confirmation(m.ID)
	switch {
	case err != nil:
		return err.Error()
	case note != nil && note.Set != nil && mine.Set.Kind == note.Set.Kind:
		return "it is being replaced together with others than these"
	case note != nil:
		return "it is being replaced on its own"
	case spec.Replacing(d.Annotations):
		return "it has marks of a replacement, and no note"
	case kube.Skipped(d):
		return "somebody has set the label " + kube.SkipLabel + " on its Deployment"
	case mine.Set.Kind == plan.OnDisk && !asked:
		return "the annotation " + spec.ReplaceAnnotation + " of its Deployment does not ask for it"
	case mine.Set.Kind == plan.OnDisk && d.Annotations[spec.RefusedAnnotation] != "":
		return d.Annotations[spec.RefusedAnnotation]
	}
	return ""
}

// Dead reports whether no OSD of a set runs while their node is well.
func (v *View) Dead(set *plan.Set, node string) bool {
	n := v.Nodes[node]
	if n == nil || !Ready(n) {
		return false
	}
	for _, m := range set.Members {
		o, exists := v.OSDMap.Find(m.ID)
		d := v.Deployments[m.ID]
		if exists && bool(o.Up) || d != nil && d.Status.ReadyReplicas > 0 {
			return false
		}
	}
	return true
}

// AskedMetadata says that a Deployment asks for the replacement of its OSD's metadata
// device by one of the values that confirm it.
func AskedMetadata(d *appsv1.Deployment, id int) bool {
	if d == nil {
		return false
	}
	v := d.Annotations[spec.MetadataAnnotation]
	return v == spec.MetadataConfirmation(id) || v == spec.LossConfirmation(id)
}

// LossAccepted says that a Deployment asks for it by the value that accepts the loss of
// data. It may be nil.
func LossAccepted(d *appsv1.Deployment, id int) bool {
	return d != nil && d.Annotations[spec.MetadataAnnotation] == spec.LossConfirmation(id)
}

// Ready reports whether a node is ready.
func Ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
