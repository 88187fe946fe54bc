package replace

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// deadAfter is how long all OSDs of a metadata device must have been down, on a node that
// is ready and with Deployments that want them to run, before the device counts as dead.
// A restart of a node, or an OSD that replays a long log, takes minutes.
const deadAfter = 5 * time.Minute

// set looks at the other OSDs of the set.
func (s *facts) set(v *view) {
	note := s.Note
	if note.Dead != nil {
		s.DeadDue = note.Dead.Add(deadAfter)
		s.LongDead = !v.now.Before(s.DeadDue)
	}
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
	for _, n := range v.joined(*note) {
		s.Joined = append(s.Joined, v.mate(plan.Member{ID: n.Record.ID, UUID: n.UUID}, &n, true))
		s.Need += metadataSize(n.Record)
	}
	if a := note.Attempt; a != nil && note.Set.Kind == plan.OnMetadata {
		s.Begun = slices.ContainsFunc(v.records, func(r osdplan.Record) bool { return r.Node == note.Node && v.lives(r) && on(r.Result, *a) })
	}
}

// inSet says whether the note of another OSD has this one in its set.
func (v *view) inSet(id int) bool {
	for other, d := range v.deps {
		n, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], other)
		if set := setOf(n); other != id && err == nil && set != nil && slices.Contains(set.IDs(), id) {
			return true
		}
	}
	return false
}

// shared says that another OSD which is being replaced has been on the same disk, or on the
// same metadata device that is asked for, by what is recorded on the Deployments: the notes of
// a whole set may be gone, and in Ceph's map destroyed OSDs are nobody's.
func (v *view) shared(id int, rec osdplan.Record) bool {
	for other, d := range v.deps {
		r, ok := reports.OnDeployment(d)
		if other == id || !ok || r.Host != rec.Host || !spec.Replacing(d.Annotations) {
			continue
		}
		if check.SameDisk(r.Data, rec.Data) {
			return true
		}
		if _, metadata := d.Annotations[spec.MetadataAnnotation]; metadata && r.DB != nil && rec.DB != nil && check.SameDisk(*r.DB, *rec.DB) {
			return true
		}
	}
	return false
}

// joined are the notes of OSDs of other sets that wait for the same metadata device, and
// may be told to pull what is in its place.
func (v *view) joined(mine plan.Note) []plan.Note {
	var out []plan.Note
	for _, n := range v.readyNotes() {
		if mine.Joins(n) {
			out = append(out, n)
		}
	}
	return out
}

// readyNotes are the notes of all OSDs whose disks may be pulled, in the order of their ids.
func (v *view) readyNotes() []plan.Note {
	var out []plan.Note
	for _, id := range slices.Sorted(maps.Keys(v.deps)) {
		d := v.deps[id]
		n, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], id)
		if _, ready := d.Annotations[spec.ReadyAnnotation]; err == nil && n != nil && ready {
			out = append(out, *n)
		}
	}
	return out
}

// lives says that a record is of an OSD that Ceph has.
func (v *view) lives(r osdplan.Record) bool {
	_, ok := holds(v.osdmap, r.ID, r.UUID)
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
func (s *facts) behind(v *view, named bool) {
	note, a := s.Note, s.Note.Attempt
	if note.Set == nil || note.Set.Kind != plan.OnMetadata || a == nil || a.Failed == "" {
		return
	}
	for _, m := range note.Set.Members {
		o, anew := madeAnew(v.osdmap, m.ID, m.UUID)
		d := v.deps[m.ID]
		if m.ID == s.ID || d == nil || !anew {
			continue // not rebuilt, or destroyed once more
		}
		again, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], m.ID)
		rec, known := v.record(m.ID, d, o.UUID, false)
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
		case askedMetadata(d, m.ID) && refused == "":
			s.Behind, s.BehindHint = fmt.Sprintf("the replacement of %s, which was rebuilt on %s too, is being checked", name, a.Device), ""
		default:
			s.Behind = fmt.Sprintf("%s was rebuilt on %s before that failed, and is down", name, a.Device)
			if refused != "" && askedMetadata(d, m.ID) {
				s.Behind += "; its replacement is refused: " + refused
			}
			s.BehindHint = fmt.Sprintf("ask for it too, and it comes along: %s; or name the disk, to go on without it: %s=/dev/disk/by-id/... on the Deployment of osd.%d", request, spec.WithAnnotation, s.ID)
		}
		return
	}
}

// mate is one other OSD of a set. asked is whether the set on a metadata device is asked
// for, which is asked for as a whole.
func (v *view) mate(m plan.Member, mine *plan.Note, asked bool) plan.Mate {
	out := plan.Mate{Member: m}
	o, anew := madeAnew(v.osdmap, m.ID, m.UUID)
	_, held := holds(v.osdmap, m.ID, m.UUID)
	out.Gone = v.silence == "" && !held
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
		out.Lost = out.Gone && !anew && (err != nil || note == nil)
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
		if osd, ok := v.osdmap.Find(o); ok && !osd.Destroyed() && !known && host != "" && spec.HostOf(other) == host {
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
	n.Set, n.Accepted, n.Whole = mine.Set, mine.Accepted, mine.Whole
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
