package replace

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// deadAfter is how long all OSDs of a metadata device must have been down, on a node that
// is ready and with Deployments that want them to run, before the device counts as dead.
// A restart of a node, or an OSD that replays a long log, takes minutes.
const deadAfter = 5 * time.Minute

// set looks at the other OSDs of the set.
func (s *facts) set(v *view) {
	note := s.Note
	s.LongDead = note.Dead != nil && v.now.Sub(*note.Dead) >= deadAfter
	s.Need = need(*note, v)
	if note.Set == nil {
		return
	}
	s.Strangers = check.Strangers(*note, v.others(note.Node))
	for _, m := range note.Set.Members {
		if m.ID == s.ID {
			continue
		}
		s.Mates = append(s.Mates, v.mate(m, note, s.Asked))
	}
}

// mate is one other OSD of a set. asked is whether the set on a metadata device is asked
// for, which is asked for as a whole.
func (v *view) mate(m plan.Member, mine *plan.Note, asked bool) plan.Mate {
	out := plan.Mate{Member: m}
	o, exists := v.osdmap.Find(m.ID)
	anew := exists && !o.Destroyed() && o.UUID != m.UUID
	out.Gone = v.silence == "" && (!exists || o.Destroyed() || anew)
	out.In, out.Running = bool(o.In), bool(o.Up)
	d := v.deps[m.ID]
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
	found := anew && slices.ContainsFunc(v.records, func(r osdplan.Record) bool { return r.ID == m.ID && r.UUID == o.UUID })
	job := v.jobs[spec.MakeName(m.ID)]
	if !out.Claimed {
		out.Made = out.Gone && anew
		out.Why = v.whyNot(m, d, mine, note, err)
		return out
	}
	out.Dead, out.Attempt, out.Made = note.Dead != nil, note.Attempt, found
	if job != nil {
		_, _, ended := kube.JobEnd(job)
		out.Making = !ended || job.DeletionTimestamp != nil
	}
	out.Making = out.Making || v.lingers(spec.MakeApp, m.UUID)
	out.Free = job == nil && !out.Making && note.Attempt != nil && note.Attempt.Failed == ""
	return out
}

func (v *view) hasPods(id int) bool {
	return slices.ContainsFunc(v.pods, func(p corev1.Pod) bool { return p.Labels[spec.IDLabel] == fmt.Sprint(id) })
}

// whyNot says what keeps an OSD from being taken into a set; "" if nothing does.
func (v *view) whyNot(m plan.Member, d *appsv1.Deployment, mine, note *plan.Note, err error) string {
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

// left are the OSDs of the set that Ceph still has, this one included.
func (s *facts) left(v *view) []int {
	ids := []int{s.ID}
	for _, m := range s.Mates {
		if !m.Gone {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// together asks about all that are left of a set at once: each of them alone may be safe
// to destroy, and the last copy be on two of them.
func (s *facts) together(ctx context.Context, v *view, ids []int) {
	a, err := cephosd.New(v.stored.Ceph).SafeToDestroy(ctx, ids...)
	for i := range s.Mates {
		m := &s.Mates[i]
		switch {
		case err != nil:
			m.Safe = plan.Unknown
		case a.IsSafe(m.ID):
			m.Safe = plan.Safe
		default:
			m.Safe = plan.Unsafe
		}
	}
	if err == nil && !a.IsSafe(s.ID) {
		s.Safety, s.SafetyWhy = plan.Unsafe, "it is not safe together with the others of its set"
	}
}

// dead: no OSD of a set runs, and their node is well.
func (v *view) dead(set *plan.Set, node string) bool {
	n := v.nodes[node]
	if n == nil || !ready(n) {
		return false
	}
	for _, m := range set.Members {
		o, exists := v.osdmap.Find(m.ID)
		d := v.deps[m.ID]
		if exists && bool(o.Up) || d != nil && d.Status.ReadyReplicas > 0 {
			return false
		}
	}
	return true
}

// request is what the checks need to know of an OSD's disks and of those that share them.
func (v *view) request(id int, rec osdplan.Record, d *appsv1.Deployment) check.Request {
	_, metadata := d.Annotations[spec.MetadataAnnotation]
	r := check.Request{ID: id, Metadata: metadata, Record: &rec.Result, Others: v.others(rec.Node), Asked: map[int]bool{}, Busy: map[int]string{}}
	set := check.Set(r)
	host := ""
	if n := v.nodes[rec.Node]; n != nil {
		host = n.Labels[corev1.LabelHostname]
	}
	for o, other := range v.deps {
		if o == id {
			continue
		}
		known := slices.ContainsFunc(r.Others, func(x prepare.Result) bool { return x.ID == o })
		if osd, ok := v.osdmap.Find(o); ok && !osd.Destroyed() && !known && host != "" && other.Spec.Template.Spec.NodeSelector[corev1.LabelHostname] == host {
			r.Unrecorded = append(r.Unrecorded, o)
		}
		if set == nil || !slices.Contains(set.IDs(), o) {
			continue
		}
		note, err := plan.ReadNote(other.Annotations[spec.NoteAnnotation], o)
		ours := err == nil && set.Same(setOf(note))
		asks := other.Annotations[spec.ReplaceAnnotation] == spec.Confirmation(o)
		_, meta := other.Annotations[spec.MetadataAnnotation]
		switch {
		case ours:
			r.Asked[o] = asks
			continue
		case meta && !metadata || asks && metadata:
			r.Busy[o] = "another kind of replacement is asked for it"
		case other.Labels[pvcLabel] != "":
			r.Busy[o] = "it is on the PersistentVolumeClaim " + other.Labels[pvcLabel]
		default:
			r.Asked[o] = asks
		}
		if why := v.whyNot(plan.Member{ID: o}, other, &plan.Note{Set: &plan.Set{Kind: plan.OnMetadata}}, note, err); why != "" {
			r.Busy[o] = why
		}
	}
	slices.Sort(r.Unrecorded)
	return r
}

// need is the least size of the new disk of a set: what all of its OSDs had on the old one.
func need(n plan.Note, v *view) uint64 {
	if n.Set == nil {
		return 0
	}
	var total uint64
	for _, m := range n.Set.Members {
		rec := n.Record
		if m.ID != n.Record.ID {
			d := v.deps[m.ID]
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
		for _, p := range []*prepare.Part{rec.DB, rec.WAL} {
			if p != nil {
				total += p.Size
			}
		}
	}
	if n.Set.Kind == plan.OnDisk {
		total -= total / 100 // makers differ by less than a hundredth
	}
	return total
}

// dataDevice is the disk that the OSD's data is made on.
func dataDevice(n plan.Note) string {
	if n.Set == nil || n.Set.Kind != plan.OnMetadata {
		if n.Attempt == nil {
			return ""
		}
		return n.Attempt.Device
	}
	d := n.Record.Data
	for _, path := range []string{d.ByID, d.ByPath} {
		if path != "" {
			return path
		}
	}
	if d.Disk != "" {
		return "/dev/" + d.Disk
	}
	return d.Path
}

// enlisted is another OSD of the set with the note that it gets.
type enlisted struct {
	Deployment *appsv1.Deployment
	Note       plan.Note
}

// enlist prepares what is written to the Deployment of another OSD of the set; why is what
// keeps it from being written.
func (b *Base) enlist(ctx context.Context, v *view, mine *plan.Note, id int) (*enlisted, string, error) {
	d := v.deps[id]
	if d == nil {
		return nil, "it has no Deployment", nil
	}
	copies, err := b.copies(ctx, d)
	if err != nil {
		return nil, "", err
	}
	if len(copies) > 0 {
		return nil, "it is also used by " + copies[0], nil
	}
	o, _ := v.osdmap.Find(id)
	rec, known := v.record(id, d, o.UUID, o.Destroyed())
	if !known || !mine.Set.Has(id, rec.UUID) {
		return nil, "its disks are not known any more", nil
	}
	c, why := v.capacity(ctx)
	if why != "" {
		return nil, why, nil
	}
	n := v.note(id, rec, c)
	n.Set, n.Accepted = mine.Set, mine.Accepted
	return &enlisted{Deployment: d, Note: n}, "", nil
}

// enlistments are prepared only when the next step is one.
func (b *Base) enlistments(ctx context.Context, v *view, s *facts) (map[int]*enlisted, error) {
	out := map[int]*enlisted{}
	if s.Note == nil || !s.Leads {
		return out, nil
	}
	for i := range s.Mates {
		m := &s.Mates[i]
		if m.Gone || m.Claimed || m.Why != "" {
			continue
		}
		e, why, err := b.enlist(ctx, v, s.Note, m.ID)
		if err != nil {
			return nil, err
		}
		if m.Why = why; e != nil {
			out[m.ID] = e
		}
	}
	return out, nil
}
