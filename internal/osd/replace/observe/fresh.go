package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// pvcLabel marks an OSD on a volume claim.
const pvcLabel = "ceph.rook.io/pvc"

// fresh makes the checks of a new request, and the note that it would get.
func (s *facts) fresh(ctx context.Context, live client.Reader, cl *cephv1.CephCluster, v *view.View, d *appsv1.Deployment) error {
	uuid, gone := s.UUID, s.Destroyed
	if r, ok := reports.OnDeployment(d); ok && (s.InProgress || s.Ready) && s.Exists && r.ID == s.ID && r.UUID != uuid {
		// The new disk is made already. What is replaced is the OSD of the Deployment: to take
		// the new one for it would destroy that too, and ask for another disk.
		uuid, gone = r.UUID, true
	}
	rec, known := recordOf(v, s.ID, d, uuid, gone)
	c, why := v.Capacity(ctx)
	if why != "" {
		s.Unchecked = why
		s.FreshProblem = why
		return nil
	}
	s.Fresh = noteOf(v, s.ID, rec, c)
	s.Fresh.Whole = wholeOf(v, s.Fresh)
	if s.former != nil {
		// Nothing was ever on the new disk: how it was before is how it was before that.
		replicas := s.Fresh.Before.Replicas
		s.Fresh.Before, s.Fresh.SlotLost = s.former.Before, s.former.SlotLost
		s.Fresh.Before.Replicas = replicas
	}
	if !known {
		s.FreshProblem = fmt.Sprintf("no node has reported the disk of osd.%d", s.ID)
	} else if v.Nodes[rec.Node] == nil {
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
		if _, metadata := d.Annotations[spec.MetadataAnnotation]; metadata || inSet(v, s.ID) || known && (check.Set(requestOf(v, s.ID, rec, d)) != nil || shared(v, s.ID, rec)) {
			s.FreshProblem = fmt.Sprintf("it belongs to OSDs that are replaced together, and the note that says which is gone: write it again, or, as long as it is not destroyed, take the marks away, mark it in (ceph osd in %d) and ask again", s.ID)
		}
		return nil
	}
	copies, err := copies(ctx, live, d)
	if err != nil {
		return err
	}
	req := check.Request{}
	if known {
		req = requestOf(v, s.ID, rec, d)
		s.Fresh.Set = check.Set(req)
		s.Fresh.Whole = wholeOf(v, s.Fresh)
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
		req.Dead = req.Metadata && v.Dead(s.Fresh.Set, rec.Node)
	}
	req.Room, req.Hint = c.Ever().Fits(set)
	s.Refusal, s.Warnings = check.Check(req)
	return nil
}

// noteOf is what would be noted of an OSD now.
func noteOf(v *view.View, id int, rec osdplan.Record, c check.Capacity) plan.Note {
	o, _ := v.OSDMap.Find(id)
	node, _ := c.Tree.OSD(id)
	n := plan.Note{
		// By the second, so that requests of one second are in the order of their ids.
		UUID: rec.UUID, Record: rec.Result, Node: rec.Node, Host: rec.Host, Accepted: v.Now.UTC().Truncate(time.Second),
		Before: plan.Before{
			In: bool(o.In), Reweight: o.Weight, CrushWeight: node.CrushWeight, Class: node.DeviceClass, Location: c.Tree.Location(id), Replicas: 1,
		},
	}
	if d := v.Deployments[id]; d != nil && d.Spec.Replicas != nil {
		n.Before.Replicas = *d.Spec.Replicas
	}
	for _, u := range c.Usage.Nodes {
		if u.ID == id {
			n.Before.Bytes = u.KB * 1024
		}
	}
	return n
}

// wholeOf is the size of the disk that a note is about, as its node has reported it; 0 where
// it has not.
func wholeOf(v *view.View, n plan.Note) uint64 {
	cm, pull := v.Maps[spec.StatusMap(n.Node)], n.Pull()
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

// recordOf finds what is known of the disk of an OSD, by its uuid: in the reports of the
// nodes, or on its Deployment.
func recordOf(v *view.View, id int, d *appsv1.Deployment, uuid string, destroyed bool) (osdplan.Record, bool) {
	for _, r := range v.Records {
		if r.ID == id && r.UUID == uuid {
			return r, true
		}
	}
	r, ok := reports.OnDeployment(d)
	if !ok || r.ID != id || !destroyed && r.UUID != uuid {
		return osdplan.Record{}, false
	}
	for name, n := range v.Nodes {
		if n.Labels[corev1.LabelHostname] == r.Host {
			r.Node = name
		}
	}
	return r, true
}

// othersOn are all OSDs that are known on a node, from its report and its Deployments.
func othersOn(v *view.View, node string) []prepare.Result {
	var out []prepare.Result
	add := func(r prepare.Result) {
		if o, ok := v.OSDMap.Find(r.ID); !ok || o.UUID != r.UUID {
			return // an old disk, whose OSD has another one now
		}
		if !slices.ContainsFunc(out, func(o prepare.Result) bool { return o.UUID == r.UUID }) {
			out = append(out, r)
		}
	}
	for _, r := range v.Records {
		if r.Node == node {
			add(r.Result)
		}
	}
	for _, d := range v.Deployments {
		if r, ok := reports.OnDeployment(d); ok && v.Nodes[node] != nil && r.Host == v.Nodes[node].Labels[corev1.LabelHostname] {
			add(r.Result)
		}
	}
	slices.SortFunc(out, func(a, b prepare.Result) int { return a.ID - b.ID })
	return out
}

// requestOf is what the checks need to know of an OSD's disks and of those that share them.
func requestOf(v *view.View, id int, rec osdplan.Record, d *appsv1.Deployment) check.Request {
	_, metadata := d.Annotations[spec.MetadataAnnotation]
	r := check.Request{ID: id, Metadata: metadata, Record: &rec.Result, Others: othersOn(v, rec.Node), Asked: map[int]bool{}, Busy: map[int]string{}}
	set := check.Set(r)
	host := ""
	if n := v.Nodes[rec.Node]; n != nil {
		host = n.Labels[corev1.LabelHostname]
	}
	for o, other := range v.Deployments {
		if o == id {
			continue
		}
		known := slices.ContainsFunc(r.Others, func(x prepare.Result) bool { return x.ID == o })
		if osd, ok := v.OSDMap.Find(o); ok && !osd.Destroyed() && !known && host != "" && spec.HostOf(other) == host {
			r.Unrecorded = append(r.Unrecorded, o)
		}
		if set == nil || !slices.Contains(set.IDs(), o) {
			continue
		}
		note, err := plan.ReadNote(other.Annotations[spec.NoteAnnotation], o)
		ours := err == nil && note != nil && set.Same(note.Set)
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
		if why := v.WhyNot(plan.Member{ID: o}, other, &plan.Note{Set: &plan.Set{Kind: plan.OnMetadata}}, note, err); why != "" {
			r.Busy[o] = why
		}
	}
	slices.Sort(r.Unrecorded)
	return r
}

// inSet says whether the note of another OSD has this one in its set.
func inSet(v *view.View, id int) bool {
	for other, d := range v.Deployments {
		n, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], other)
		if other != id && err == nil && n != nil && n.Set != nil && slices.Contains(n.Set.IDs(), id) {
			return true
		}
	}
	return false
}

// shared says that another OSD which is being replaced has been on the same disk, or on the
// same metadata device that is asked for, by what is recorded on the Deployments: the notes of
// a whole set may be gone, and in Ceph's map destroyed OSDs are nobody's.
func shared(v *view.View, id int, rec osdplan.Record) bool {
	for other, d := range v.Deployments {
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

// copies are other Deployments with the OSD's id. The cache holds only what is ours,
// so the API server is asked.
func copies(ctx context.Context, live client.Reader, d *appsv1.Deployment) ([]string, error) {
	list, err := kube.List(ctx, live, &appsv1.DeploymentList{}, client.InNamespace(d.Namespace), client.MatchingLabels{spec.IDLabel: d.Labels[spec.IDLabel]})
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

// Enlisted is the Deployment of another OSD of the set, with the note that it gets.
type Enlisted struct {
	Deployment *appsv1.Deployment
	Note       plan.Note
}

// enlist prepares what is written to the Deployment of another OSD of the set; why is what
// keeps it from being written.
func enlist(ctx context.Context, live client.Reader, v *view.View, mine *plan.Note, id int) (*Enlisted, string, error) {
	d := v.Deployments[id]
	if d == nil {
		return nil, "it has no Deployment", nil
	}
	copies, err := copies(ctx, live, d)
	if err != nil {
		return nil, "", err
	}
	if len(copies) > 0 {
		return nil, "it is also used by " + copies[0], nil
	}
	o, _ := v.OSDMap.Find(id)
	rec, known := recordOf(v, id, d, o.UUID, o.Destroyed())
	if !known || !mine.Set.Has(id, rec.UUID) {
		return nil, "its disks are not known any more", nil
	}
	c, why := v.Capacity(ctx)
	if why != "" {
		return nil, why, nil
	}
	n := noteOf(v, id, rec, c)
	n.Set, n.Accepted, n.Whole = mine.Set, mine.Accepted, mine.Whole
	return &Enlisted{Deployment: d, Note: n}, "", nil
}

// enlistments are prepared only when the next step is one.
func enlistments(ctx context.Context, live client.Reader, v *view.View, s *facts) (map[int]*Enlisted, error) {
	out := map[int]*Enlisted{}
	if s.Note == nil || !s.Leads {
		return out, nil
	}
	for i := range s.Mates {
		m := &s.Mates[i]
		if m.Gone || m.Claimed || m.Why != "" {
			continue
		}
		e, why, err := enlist(ctx, live, v, s.Note, m.ID)
		if err != nil {
			return nil, err
		}
		if m.Why = why; e != nil {
			out[m.ID] = e
		}
	}
	return out, nil
}
