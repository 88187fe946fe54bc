package replace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// facts is the state while it is put together.
type facts struct{ plan.State }

// marks reads the Deployment.
func (s *facts) marks(d *appsv1.Deployment) {
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
	s.Asked = asked
	if s.Note != nil || s.InProgress {
		s.Asked = value == spec.Confirmation(s.ID) // another value confirms nothing: it was taken back
	}
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
	s.Close, s.CloseProblem = closeState(j.close, note.UUID, d.Generation, v.now)
	tries := 1
	if note.Attempt != nil {
		tries = note.Attempt.Number
	}
	s.Make, s.MakeProblem = jobState(j.make, note.UUID, tries, v.now)
	s.Zap, s.ZapProblem = jobState(j.zap, note.UUID, 1, v.now)
	for _, x := range []struct {
		app   string
		state *plan.JobState
	}{{spec.CloseApp, &s.Close}, {spec.MakeApp, &s.Make}, {spec.ZapApp, &s.Zap}} {
		if *x.state == plan.NoJob && v.lingers(x.app, note.UUID) {
			*x.state = plan.Ending
		}
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
			s.Found = true
		}
		if r.Node == note.Node {
			j.others = append(j.others, r.Result)
		}
	}
	slots := pending.Of(v.list)[note.Node]
	j.pending = slots
	cm := v.maps[spec.StatusMap(note.Node)]
	j.report = cm
	if r := reports.Replaced(cm); r != nil && r.OSD == s.ID && r.OldUUID == note.UUID && note.Attempt != nil && r.Device == note.Attempt.Device && r.Result != request.Done {
		j.replaced = r
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
		if _, named := d.Annotations[spec.WithAnnotation]; named || m.Serial == "" || m.Serial != note.Record.Data.Serial {
			s.Match = &m
		}
	}
}

// ask asks Ceph what the next step may depend on.
func (s *facts) ask(ctx context.Context, b *Base, cl *cephv1.CephCluster, v *view, d *appsv1.Deployment) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	switch {
	case s.Note == nil && (s.Asked || s.InProgress || s.Ready):
		return s.fresh(ctx, b, cl, v, d)
	case s.Note == nil || s.Note.Replaced != "":
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
			s.Turn = c.Turn(s.ID, v.ahead(s.ID, s.Note))
		}
	}
	if s.In {
		return nil
	}
	s.safety(ctx, v)
	if s.Safety == plan.Unsafe && s.Up && s.Note.Drain != nil && v.now.Sub(s.Note.Drain.Since) > stuckAfter {
		if stat, err := pg.New(v.stored.Ceph).Stat(ctx); err == nil {
			s.Stuck = stat.AllClean()
		}
	}
	return nil
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

// safety asks whether the OSD is safe to destroy. No answer stays unknown.
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
}

// capacity reads what says where data could go; why is what could not be read.
func (v *view) capacity(ctx context.Context) (c check.Capacity, why string) {
	c.Map, c.Held = v.osdmap, map[int]int64{}
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
	}
	return c, ""
}

// ahead are the replacements whose request was accepted earlier, and those that are
// out already, in the order of their requests.
func (v *view) ahead(id int, mine *plan.Note) []int {
	type other struct {
		id   int
		note *plan.Note
	}
	var others []other
	for o, d := range v.deps {
		note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], o)
		if o == id || err != nil || note == nil {
			continue
		}
		osd, ok := v.osdmap.Find(o)
		if !ok || osd.Destroyed() || osd.UUID != note.UUID {
			continue // it has nothing left to move
		}
		earlier := note.Accepted.Before(mine.Accepted) || note.Accepted.Equal(mine.Accepted) && o < id
		if earlier || !bool(osd.In) {
			others = append(others, other{o, note})
		}
	}
	slices.SortFunc(others, func(a, b other) int {
		if c := a.note.Accepted.Compare(b.note.Accepted); c != 0 {
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

// fresh makes the checks of a new request, and the note that it would get.
func (s *facts) fresh(ctx context.Context, b *Base, cl *cephv1.CephCluster, v *view, d *appsv1.Deployment) error {
	rec, known := v.record(s.ID, d, s.UUID, s.Destroyed)
	c, why := v.capacity(ctx)
	if why != "" {
		s.Unchecked = why
		s.FreshProblem = why
		return nil
	}
	node, _ := c.Tree.OSD(s.ID)
	s.Fresh = plan.Note{
		UUID: rec.UUID, Record: rec.Result, Node: rec.Node, Host: rec.Host, Accepted: v.now.UTC(),
		Before: plan.Before{
			In: s.In, Reweight: s.Weight, CrushWeight: node.CrushWeight, Class: node.DeviceClass, Location: c.Tree.Location(s.ID), Replicas: s.Replicas,
		},
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
		return nil
	}
	copies, err := b.copies(ctx, d)
	if err != nil {
		return err
	}
	req := check.Request{
		ID: s.ID, Value: d.Annotations[spec.ReplaceAnnotation], PVC: d.Labels[pvcLabel], Copies: copies, Spec: &cl.Spec,
		Exists: s.Exists, Destroyed: s.Destroyed, Host: rec.Host,
	}
	if known {
		req.Record = &rec.Result
		req.Others = append(req.Others, v.others(rec.Node)...)
	}
	req.Room, req.Hint = c.Fits([]int{s.ID})
	s.Refusal, s.Warnings = check.Check(req)
	return nil
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
