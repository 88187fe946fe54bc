package replace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// facts is the state while it is put together.
type facts struct {
	plan.State
	// former is the note of a replacement that has ended with a Deployment for the new disk,
	// on which the OSD has not come up: its replacement is asked for once more. nil otherwise.
	former *plan.Note
}

// again looks for such a request. An OSD whose new disk has failed before it was up on it
// would otherwise start for ever.
func (s *facts) again(d *appsv1.Deployment) {
	if s.Note == nil || s.Note.Replaced == "" || !s.Answered || !s.Exists || s.Destroyed || s.UUID != s.Note.Replaced || s.Up && s.In {
		return
	}
	_, plain := d.Annotations[spec.ReplaceAnnotation]
	_, metadata := d.Annotations[spec.MetadataAnnotation]
	if plain || metadata {
		s.former, s.Note, s.Asked = s.Note, nil, true
		s.Leads, s.Loss = false, false
	}
}

// askedMetadata says that a Deployment asks for the replacement of its OSD's metadata
// device by one of the values that confirm it.
func askedMetadata(d *appsv1.Deployment, id int) bool {
	if d == nil {
		return false
	}
	v := d.Annotations[spec.MetadataAnnotation]
	return v == spec.MetadataConfirmation(id) || v == spec.LossConfirmation(id)
}

// lossAccepted says that a Deployment asks for it by the value that accepts the loss of
// data. It may be nil.
func lossAccepted(d *appsv1.Deployment, id int) bool {
	return d != nil && d.Annotations[spec.MetadataAnnotation] == spec.LossConfirmation(id)
}

// holds finds an OSD that Ceph still has as the one that it was: not destroyed, and not made
// anew.
func holds(m cephosd.Map, id int, uuid string) (cephosd.OSD, bool) {
	o, exists := m.Find(id)
	return o, exists && !o.Destroyed() && o.UUID == uuid
}

// madeAnew finds an OSD that Ceph has under another uuid than it had.
func madeAnew(m cephosd.Map, id int, uuid string) (cephosd.OSD, bool) {
	o, exists := m.Find(id)
	return o, exists && !o.Destroyed() && o.UUID != uuid
}

// marks reads the Deployment. deps are all OSDs' Deployments: that of a set's leader says
// whether the set is asked for.
func (s *facts) marks(d *appsv1.Deployment, deps map[int]*appsv1.Deployment) {
	_, s.InProgress = d.Annotations[spec.InProgressAnnotation]
	_, s.Ready = d.Annotations[spec.ReadyAnnotation]
	s.Fenced = kube.Skipped(d)
	s.RefusedText = d.Annotations[spec.RefusedAnnotation]
	s.Replicas = 1
	if d.Spec.Replicas != nil {
		s.Replicas = *d.Spec.Replicas
	}
	note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], s.ID)
	if err == nil && note == nil && !spec.Replacing(d.Annotations) {
		if note, err = plan.ReadNote(d.Annotations[spec.ReplacedAnnotation], s.ID); err == nil && note != nil && note.Replaced == "" {
			err = errors.New("reading the note of the replacement: it has no new uuid")
		}
	}
	if s.Note = note; err != nil {
		s.Note, s.NoteProblem = nil, err.Error()
	}
	value, asked := d.Annotations[spec.ReplaceAnnotation]
	_, metadata := d.Annotations[spec.MetadataAnnotation]
	s.Asked = asked || metadata
	if s.Note != nil || s.InProgress {
		// Another value confirms nothing: it was taken back.
		s.Asked = value == spec.Confirmation(s.ID)
		if s.Note == nil && metadata {
			s.Asked = askedMetadata(d, s.ID)
		}
	}
	if s.Note != nil && s.Note.Set != nil && s.Note.Set.Kind == plan.OnMetadata {
		leader := deps[s.Note.Set.Leader]
		s.Leads = s.Note.Set.Leader == s.ID
		s.Asked = askedMetadata(leader, s.Note.Set.Leader)
		s.Loss = lossAccepted(leader, s.Note.Set.Leader)
	}
	s.PodReady = d.Status.ReadyReplicas > 0
	if v, ok := d.Annotations[spec.AbandonAnnotation]; ok {
		s.Abandon = plan.WrongAbandon
		if v == spec.AbandonConfirmation(s.ID) {
			s.Abandon = plan.ConfirmedAbandon
		}
	}
}

// pods lists all that have the OSD's id, whatever owns them.
func (s *facts) pods(v *view) {
	for i := range v.pods {
		p := &v.pods[i]
		if p.Labels[spec.IDLabel] != fmt.Sprint(s.ID) {
			continue
		}
		s.Pods = append(s.Pods, p.Name)
		if n := v.nodes[p.Spec.NodeName]; p.DeletionTimestamp != nil && (n == nil || !ready(n)) {
			s.PodsHint = fmt.Sprintf("node %s does not answer, so nobody can say that the pod has ended: switch the node off and taint it with node.kubernetes.io/out-of-service, or bring it back", p.Spec.NodeName)
		}
	}
	slices.Sort(s.Pods)
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// node reads what the node has reported and done.
func (s *facts) node(v *view, d *appsv1.Deployment, j *jobs) {
	note := s.Note
	s.Close, s.CloseProblem = closeState(j.close, note.UUID, d.Generation, note.Unclosed.Tries(), v.now)
	s.CloseUncounted, s.CloseRetryAt = failing(j.close, s.Close, note.Unclosed)
	report, told := v.report(s.ID, *note)
	tries := 1
	if note.Attempt != nil {
		tries = note.Attempt.Number
	}
	if said := v.said(j.make); report == nil && said == "" {
		// Nothing speaks against the disk: the run was cut off, or its report written over.
		tries = min(tries, unreportedTries)
	}
	s.Make, s.MakeProblem = jobState(j.make, note.UUID, tries, v.now)
	if s.Make == plan.Failed {
		at, _, _ := kube.JobEnd(j.make)
		s.RetryAt = at.Add(backOff(tries))
	}
	s.Zap, s.ZapProblem = jobState(j.zap, note.UUID, note.Unzapped.Tries(), v.now)
	s.ZapUncounted, s.ZapRetryAt = failing(j.zap, s.Zap, note.Unzapped)
	s.Hung, s.HungHint = v.hung(note.UUID)
	for _, x := range []struct {
		app   string
		state *plan.JobState
	}{{spec.CloseApp, &s.Close}, {spec.MakeApp, &s.Make}, {spec.ZapApp, &s.Zap}} {
		if *x.state == plan.NoJob && v.lingers(x.app, note.UUID) {
			*x.state = plan.Ending
		}
	}
	if _, ok, ended := kube.JobEnd(j.make); report == nil && ended && !ok {
		s.MakeProblem = strings.TrimSuffix(told+"; "+s.MakeProblem, "; ")
	}
	for _, p := range []struct {
		state plan.JobState
		said  string
		into  *string
	}{{s.Close, v.said(j.close), &s.CloseProblem}, {s.Make, v.said(j.make), &s.MakeProblem}, {s.Zap, v.said(j.zap), &s.ZapProblem}} {
		if p.said != "" && (p.state == plan.Failed || p.state == plan.Retry) {
			*p.into = p.said
		}
	}
	switch n := v.nodes[note.Node]; {
	case n == nil:
		s.NodeProblem = "node " + note.Node + " does not exist"
	case !ready(n):
		s.NodeProblem = "node " + note.Node + " is not ready"
	}
	for _, r := range v.records {
		if r.ID == s.ID && r.UUID == s.UUID && r.UUID != note.UUID {
			s.Found, s.FoundOn = true, foundOn(r, *note)
		}
		if r.Node == note.Node {
			j.others = append(j.others, r.Result)
		}
	}
	s.verdict(report, note.Attempt)
	if at, _, _ := kube.JobEnd(j.make); s.Make == plan.Succeeded && s.Found && !s.Proven && v.now.Sub(at) > reportWait {
		s.Make = plan.Retry // its report was written over, as by another OSD's Job that ended with it
	}
	s.set(v)
	s.Taken = v.taken(*note)
	slots := pending.Of(v.list)[note.Node]
	j.pending = slots
	for _, p := range slots {
		if p.With != "" && (p.OSD == s.ID || s.With == "" && note.Set != nil && note.Set.Has(p.OSD, p.UUID)) {
			s.With = p.With
		}
	}
	j.named = s.With != ""
	if j.named && note.Set != nil && note.Set.Kind == plan.OnDisk {
		s.Need = 0 // the user has seen how large it is
	}
	s.behind(v, j.named)
	if joined := v.joined(*note); len(joined) > 0 && note.Record.DB != nil {
		if first := pending.First(*note, joined); first.Record.DB != nil && first.Record.DB.VG != note.Record.DB.VG {
			j.joins = first.Record.DB.VG
		}
	}
	cm := v.maps[spec.StatusMap(note.Node)]
	j.report = cm
	if r := report; r != nil && r.Result != request.Done {
		j.replaced = r
		s.Volumes = volumes(r, note.Record.DB)
		if s.Make == plan.Failed || s.Make == plan.Retry {
			s.MakeProblem = fmt.Sprintf("%s: %s", r.Reason, r.Message)
		}
	}
	if cm == nil || j.busy || pending.Hash(slots) == "" || cm.Labels[pending.SlotsLabel] != pending.Hash(slots) {
		return // the node has not been asked about these slots yet
	}
	if devices, err := reports.Devices(cm); err == nil {
		s.Disks = provision.Identities(devices)
	}
	found, err := reports.Swaps(cm)
	if err != nil {
		s.Question = err.Error()
		return
	}
	s.Question = found.Questions[s.ID]
	if m, ok := found.Matches[s.ID]; ok && m.OSD == s.ID && m.Device != "" {
		if j.named || m.Serial == "" || m.Serial != note.Pull().Serial {
			s.Match = &m
		}
	}
}

// report is what the node has said of the last attempt of an OSD. Where it is nil, why says
// what is there instead: a node keeps one report, of whatever run was the last on it.
func (v *view) report(id int, note plan.Note) (r *request.Replaced, why string) {
	r = reports.Replaced(v.maps[spec.StatusMap(note.Node)])
	const cut = "its Job has ended without a report of this attempt"
	switch a := note.Attempt; {
	case r == nil || a == nil:
		return nil, cut
	case r.OSD != id || r.OldUUID != note.UUID:
		return nil, fmt.Sprintf("%s: the one that node %s has is of osd.%d (uuid %s)", cut, note.Node, r.OSD, r.OldUUID)
	case r.Attempt != 0 && r.Attempt != a.Number:
		return nil, fmt.Sprintf("%s, number %d: the one that node %s has is of number %d", cut, a.Number, note.Node, r.Attempt)
	case r.Device != dataDevice(note):
		return nil, fmt.Sprintf("%s: the one that node %s has is of the disk %s", cut, note.Node, r.Device)
	}
	return r, ""
}

// unproven is the uuid of an OSD that a node has not called whole after it tried to make it.
// A look at the node's disks finds it by its tags all the same: one whose mkfs was cut off, or
// an encrypted one that would be lost with the next restart. "none" for no such uuid.
func unproven(r *request.Replaced) string {
	if r == nil || r.Result == request.Done || r.Reason == request.SiblingChanged || r.SlotUUID == "" {
		return "none"
	}
	return r.SlotUUID
}

// verdict is what the node has said of the new OSD, now or when it was noted.
func (s *facts) verdict(r *request.Replaced, a *plan.Attempt) {
	no := unproven(r) == s.UUID
	s.Unproven = no && a != nil && a.Unproven != s.UUID
	if no || a != nil && a.Unproven == s.UUID {
		s.Found = false
	}
	s.Proven = a != nil && a.Proven != "" && a.Proven == s.UUID
	if r == nil {
		return
	}
	if r.Result == request.Done && r.UUID == s.UUID || r.Reason == request.SiblingChanged && r.SlotUUID == s.UUID {
		s.Proven = true
	}
	s.Fault = fault(*r)
}

// fault reports whether an attempt has failed through its disk after it had changed something
// in Ceph: what kept it from beginning is not counted against the disk, nor that the node or
// Ceph could not be looked at, nor what is wrong with the volumes of others.
func fault(r request.Replaced) bool {
	if r.Result != request.Failed || r.Slot != request.SlotNew && r.Slot != request.SlotGone {
		return false
	}
	switch r.Reason {
	case request.NodeUnreadable, request.SiblingChanged, request.MappingOpen, request.DBMissing, request.DBForeign, request.SlotLive, request.SlotClaimed:
		return false
	}
	return true
}

// foundOn is the disk that carries a new OSD: that of its database, where that is what is
// replaced.
func foundOn(r osdplan.Record, note plan.Note) *swap.Match {
	part := plan.Note{Record: r.Result, Set: note.Set}.Pull()
	device := part.Path
	switch {
	case part.ByID != "":
		device = part.ByID
	case part.ByPath != "":
		device = part.ByPath
	case part.Disk != "":
		device = "/dev/" + part.Disk
	}
	return &swap.Match{OSD: r.ID, Device: device, Serial: part.Serial, Proof: "it carries the OSD"}
}

// taken says which other OSDs are on a disk that is in the slot of the one to pull now. What
// is on the disk to pull itself does not count, nor what is not in Ceph any more.
func (v *view) taken(note plan.Note) string {
	pull := note.Pull()
	if pull.ByPath == "" {
		return ""
	}
	var disk prepare.Part
	var names []string
	for _, r := range v.records {
		if r.Node != note.Node || r.ID == note.Record.ID || !v.lives(r) {
			continue
		}
		for _, p := range []*prepare.Part{&r.Data, r.DB, r.WAL} {
			name := fmt.Sprintf("osd.%d", r.ID)
			if p == nil || p.ByPath != pull.ByPath || check.SameDisk(*p, pull) || slices.Contains(names, name) {
				continue
			}
			disk, names = *p, append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("in the slot %s is %s by now, with %s on it", strings.TrimPrefix(pull.ByPath, "/dev/disk/by-path/"), diskName(disk), strings.Join(names, ", "))
}

func diskName(p prepare.Part) string {
	if p.Serial != "" {
		return "the disk with serial " + p.Serial
	}
	return "another disk"
}

// volumes says how a failed attempt has left the volumes that it did not want to change.
func volumes(r *request.Replaced, db *prepare.Part) string {
	var parts []string
	if len(r.Remade) > 0 {
		parts = append(parts, "made again with the same size, since the rollback had removed them: "+strings.Join(r.Remade, ", "))
	} else if r.DB != nil && db != nil && r.DB.UUID != "" && r.DB.UUID == db.LVUUID {
		parts = append(parts, fmt.Sprintf("its database volume %s/%s is kept", r.DB.VG, r.DB.Name))
	}
	var same []string
	for _, sib := range r.Siblings {
		switch name := fmt.Sprintf("osd.%d", sib.OSD); {
		case sib.Changed != "":
			parts = append(parts, fmt.Sprintf("WARNING: the volume %s/%s of %s is not as it was: %s", sib.VG, sib.LV, name, sib.Changed))
		case !slices.Contains(same, name):
			same = append(same, name)
		}
	}
	if len(same) > 0 {
		parts = append(parts, "the volumes of "+strings.Join(same, ", ")+" beside it were checked and are as they were")
	}
	return strings.Join(parts, "; ")
}

// ask asks Ceph what the next step may depend on.
func (s *facts) ask(ctx context.Context, b *Base, cl *cephv1.CephCluster, v *view, d *appsv1.Deployment) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	switch {
	case s.Note == nil && (s.Asked || s.InProgress || s.Ready):
		return s.fresh(ctx, b, cl, v, d)
	case s.Note == nil:
		return nil
	case s.Note.Replaced != "":
		s.weigh(ctx, v)
		return nil
	case s.Exists && !s.Destroyed && s.UUID == s.Note.UUID:
		return s.draining(ctx, v)
	case s.Exists && (s.Abandon == plan.ConfirmedAbandon || s.New):
		s.safety(ctx, v)
	}
	return nil
}

// draining asks about an OSD that still has its old disk.
func (s *facts) draining(ctx context.Context, v *view) error {
	if s.In || s.Note.Drain == nil {
		c, why := v.capacity(ctx)
		if why != "" {
			s.Turn = "Ceph cannot tell whether there is room: " + why
			return nil
		}
		s.usage(ctx, v, c)
		if s.In {
			s.Turn = c.Turn(s.left(v), v.ahead(s.ID, s.Note))
		}
	}
	if s.In {
		return nil
	}
	s.safety(ctx, v)
	if s.Safety != plan.Safe && s.Note.Drain != nil && v.now.Sub(s.Note.Drain.Since) > stuckAfter {
		if stat, err := pg.New(v.stored.Ceph).Stat(ctx); err == nil {
			s.Stuck = s.Safety == plan.Unsafe && s.Up && stat.AllClean()
			s.Settled = settled(stat)
		}
	}
	return nil
}

// settled: there are PGs, and none of them is on its way to more copies.
func settled(stat pg.Stat) bool {
	for _, n := range stat.ByState {
		for _, word := range []string{"recovering", "recovery_wait", "backfilling", "backfill_wait", "peering", "activating", "creating", "unknown", "forced_recovery", "forced_backfill"} {
			if pg.HasState(n.Name, word) && n.Num > 0 {
				return false
			}
		}
	}
	return stat.NumPGs > 0
}

// weigh asks which weight the new OSD has, and how large it is.
func (s *facts) weigh(ctx context.Context, v *view) {
	if !s.Exists || s.Destroyed || !s.Up || !s.In {
		return
	}
	osds := cephosd.New(v.stored.Ceph)
	tree, err := osds.Tree(ctx)
	if err != nil {
		s.Unweighed = err.Error()
		return
	}
	usage, err := osds.DF(ctx)
	if err != nil {
		s.Unweighed = err.Error()
		return
	}
	node, ok := tree.OSD(s.ID)
	var bytes int64
	for _, n := range usage.Nodes {
		if n.ID == s.ID {
			bytes = n.KB * 1024
		}
	}
	if bytes == 0 {
		bytes = s.bootSize(ctx, osds)
	}
	if !ok || bytes == 0 {
		s.Unweighed = "its size has not been reported yet"
		return
	}
	if w, differs := s.Note.Weight(node.CrushWeight, bytes); differs {
		s.Weigh = w
	}
}

// usage is how much there is on the OSD. Of one that is out Ceph's usage says
// nothing; its PGs are counted then.
func (s *facts) usage(ctx context.Context, v *view, c check.Capacity) {
	s.Usage = true
	for _, n := range c.Usage.Nodes {
		if n.ID == s.ID {
			s.PGs, s.Bytes = n.PGs, n.KBUsedData*1024
		}
	}
	if s.PGs == 0 && s.Up {
		pgs, err := pg.New(v.stored.Ceph).OnOSD(ctx, s.ID)
		s.Usage, s.PGs = err == nil, len(pgs)
	}
}

// safety asks whether the OSD is safe to destroy, and all that are left of its set with
// it. No answer stays unknown.
func (s *facts) safety(ctx context.Context, v *view) {
	a, err := cephosd.New(v.stored.Ceph).Safety(ctx, s.ID)
	switch {
	case err != nil:
		s.SafetyWhy = err.Error()
	case a.Exists && a.Safe:
		s.Safety = plan.Safe
	default:
		s.Safety, s.SafetyWhy = plan.Unsafe, a.Why
	}
	if o, ok := v.osdmap.Find(s.ID); ok && s.Safety == plan.Unsafe {
		s.Void = void(o, a)
	}
	if left := s.left(v); len(left) > 1 && s.Safety == plan.Safe {
		s.together(ctx, v, left)
	}
}

// void reports whether nothing can be lost with an OSD that Ceph does not call safe to
// destroy: the mons' map says that no data was ever on it (empty), and the mgr knows of no PG
// on it. What is left of the mgr's objection is that an OSD that is down does not report
// while PGs elsewhere are not clean, or have not been reported themselves.
func void(o cephosd.OSD, a cephosd.Safety) bool { return empty(o) && a.Unreported }

// empty reports whether the mons' map proves that an OSD has no data: it is destroyed; or it
// was claimed ("new", a flag that goes when an OSD is marked in) and is out, so that it was
// never in since; or it has never been up at all. An id that is claimed for the first time is
// in from the beginning, and one that was destroyed before has been up as what it was then:
// neither flag alone would do.
func empty(o cephosd.OSD) bool {
	if bool(o.Up) {
		return false
	}
	return o.Destroyed() || o.New() && (!bool(o.In) || o.UpFrom == 0)
}

// capacity reads what says where data could go; why is what could not be read.
func (v *view) capacity(ctx context.Context) (c check.Capacity, why string) {
	c.Map, c.Held, c.Coming = v.osdmap, map[int]int64{}, map[int]bool{}
	osds := cephosd.New(v.stored.Ceph)
	var err error
	if c.Tree, err = osds.Tree(ctx); err != nil {
		return c, err.Error()
	}
	if c.Usage, err = osds.DF(ctx); err != nil {
		return c, err.Error()
	}
	if c.Rules, err = crush.New(v.stored.Ceph).Rules(ctx); err != nil {
		return c, err.Error()
	}
	for id, d := range v.deps {
		note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], id)
		if o, ok := v.osdmap.Find(id); err == nil && note != nil && note.Drain != nil && ok && !bool(o.In) && o.UUID == note.UUID {
			c.Held[id] = note.Drain.Bytes / 1024
		}
		_, replaced := d.Annotations[spec.ReplacedAnnotation]
		c.Coming[id] = replaced || err == nil && note != nil && note.Before.In
	}
	return c, ""
}

// ahead are the replacements whose request was accepted earlier, and those that are
// out already, in the order of their requests. A request that is not accepted yet, and
// not refused, counts as of now: it may have been made in the same second. OSDs of the
// same set are not ahead.
func (v *view) ahead(id int, mine *plan.Note) []int {
	type other struct {
		id   int
		when time.Time
	}
	var others []other
	for o, d := range v.deps {
		note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], o)
		if o == id || err != nil || mine.Set.Same(setOf(note)) {
			continue
		}
		osd, ok := v.osdmap.Find(o)
		when := v.now.UTC().Truncate(time.Second)
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

// fresh makes the checks of a new request, and the note that it would get.
func (s *facts) fresh(ctx context.Context, b *Base, cl *cephv1.CephCluster, v *view, d *appsv1.Deployment) error {
	uuid, gone := s.UUID, s.Destroyed
	if r, ok := reports.OnDeployment(d); ok && (s.InProgress || s.Ready) && s.Exists && r.ID == s.ID && r.UUID != uuid {
		// The new disk is made already. What is replaced is the OSD of the Deployment: to take
		// the new one for it would destroy that too, and ask for another disk.
		uuid, gone = r.UUID, true
	}
	rec, known := v.record(s.ID, d, uuid, gone)
	c, why := v.capacity(ctx)
	if why != "" {
		s.Unchecked = why
		s.FreshProblem = why
		return nil
	}
	s.Fresh = v.note(s.ID, rec, c)
	s.Fresh.Whole = v.whole(s.Fresh)
	if s.former != nil {
		// Nothing was ever on the new disk: how it was before is how it was before that.
		replicas := s.Fresh.Before.Replicas
		s.Fresh.Before, s.Fresh.SlotLost = s.former.Before, s.former.SlotLost
		s.Fresh.Before.Replicas = replicas
	}
	if !known {
		s.FreshProblem = fmt.Sprintf("no node has reported the disk of osd.%d", s.ID)
	} else if v.nodes[rec.Node] == nil {
		s.FreshProblem = fmt.Sprintf("the node %s of osd.%d does not exist", rec.Host, s.ID)
	}
	if s.InProgress || s.Ready {
		// Marks without a note: how it was before is not known, so a cancel ends with "in".
		s.Fresh.Before.In, s.Fresh.Before.Replicas = true, 1
		if !s.In {
			s.Fresh.Before.Reweight = 1
		}
		// Taken for one that is replaced alone, a member of a set would have its own disk shown
		// in place of the one that they share.
		if _, metadata := d.Annotations[spec.MetadataAnnotation]; metadata || v.inSet(s.ID) || known && (check.Set(v.request(s.ID, rec, d)) != nil || v.shared(s.ID, rec)) {
			s.FreshProblem = fmt.Sprintf("it belongs to OSDs that are replaced together, and the note that says which is gone: write it again, or, as long as it is not destroyed, take the marks away, mark it in (ceph osd in %d) and ask again", s.ID)
		}
		return nil
	}
	copies, err := b.copies(ctx, d)
	if err != nil {
		return err
	}
	req := check.Request{}
	if known {
		req = v.request(s.ID, rec, d)
		s.Fresh.Set = check.Set(req)
		s.Fresh.Whole = v.whole(s.Fresh)
	}
	value, plain := d.Annotations[spec.ReplaceAnnotation]
	if meta, ok := d.Annotations[spec.MetadataAnnotation]; ok {
		value, req.Metadata, req.Both = meta, true, plain
	}
	req.ID, req.Value, req.PVC, req.Copies, req.Spec = s.ID, value, d.Labels[pvcLabel], copies, &cl.Spec
	req.Exists, req.Destroyed, req.Host = s.Exists, s.Destroyed, rec.Host
	set := []int{s.ID}
	if s.Fresh.Set != nil {
		set = s.Fresh.Set.IDs()
		req.Dead = req.Metadata && v.dead(s.Fresh.Set, rec.Node)
	}
	req.Room, req.Hint = c.Ever().Fits(set)
	s.Refusal, s.Warnings = check.Check(req)
	return nil
}

// note is what would be noted of an OSD now.
func (v *view) note(id int, rec osdplan.Record, c check.Capacity) plan.Note {
	o, _ := v.osdmap.Find(id)
	node, _ := c.Tree.OSD(id)
	n := plan.Note{
		// By the second, so that requests of one second are in the order of their ids.
		UUID: rec.UUID, Record: rec.Result, Node: rec.Node, Host: rec.Host, Accepted: v.now.UTC().Truncate(time.Second),
		Before: plan.Before{
			In: bool(o.In), Reweight: o.Weight, CrushWeight: node.CrushWeight, Class: node.DeviceClass, Location: c.Tree.Location(id), Replicas: 1,
		},
	}
	if d := v.deps[id]; d != nil && d.Spec.Replicas != nil {
		n.Before.Replicas = *d.Spec.Replicas
	}
	for _, u := range c.Usage.Nodes {
		if u.ID == id {
			n.Before.Bytes = u.KB * 1024
		}
	}
	return n
}

// whole is the size of the disk that a note is about, as its node has reported it; 0 where
// it has not.
func (v *view) whole(n plan.Note) uint64 {
	cm, pull := v.maps[spec.StatusMap(n.Node)], n.Pull()
	if cm == nil {
		return 0
	}
	devices, err := reports.Devices(cm)
	if err != nil {
		return 0
	}
	for _, d := range devices {
		if d.Type != device.Disk && d.Type != device.Loop {
			continue
		}
		if pull.Serial != "" && d.Serial == pull.Serial && d.WWN == pull.WWN || pull.Serial == "" && pull.Disk != "" && d.Path == "/dev/"+pull.Disk {
			return d.Size
		}
	}
	return 0
}

// record finds what is known of the disk of an OSD, by its uuid: in the reports of the
// nodes, or on its Deployment.
func (v *view) record(id int, d *appsv1.Deployment, uuid string, destroyed bool) (osdplan.Record, bool) {
	for _, r := range v.records {
		if r.ID == id && r.UUID == uuid {
			return r, true
		}
	}
	r, ok := reports.OnDeployment(d)
	if !ok || r.ID != id || !destroyed && r.UUID != uuid {
		return osdplan.Record{}, false
	}
	for name, n := range v.nodes {
		if n.Labels[corev1.LabelHostname] == r.Host {
			r.Node = name
		}
	}
	return r, true
}

// others are all OSDs that are known on a node, from its report and its Deployments.
func (v *view) others(node string) []prepare.Result {
	var out []prepare.Result
	add := func(r prepare.Result) {
		if o, ok := v.osdmap.Find(r.ID); !ok || o.UUID != r.UUID {
			return // an old disk, whose OSD has another one now
		}
		if !slices.ContainsFunc(out, func(o prepare.Result) bool { return o.UUID == r.UUID }) {
			out = append(out, r)
		}
	}
	for _, r := range v.records {
		if r.Node == node {
			add(r.Result)
		}
	}
	for _, d := range v.deps {
		if r, ok := reports.OnDeployment(d); ok && v.nodes[node] != nil && r.Host == v.nodes[node].Labels[corev1.LabelHostname] {
			add(r.Result)
		}
	}
	slices.SortFunc(out, func(a, b prepare.Result) int { return a.ID - b.ID })
	return out
}

// copies are other Deployments with the OSD's id. The cache holds only what is ours,
// so the API server is asked.
func (b *Base) copies(ctx context.Context, d *appsv1.Deployment) ([]string, error) {
	list, err := kube.List(ctx, b.Access.Live, &appsv1.DeploymentList{}, client.InNamespace(d.Namespace), client.MatchingLabels{spec.IDLabel: d.Labels[spec.IDLabel]})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Name != d.Name {
			names = append(names, "Deployment "+list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
