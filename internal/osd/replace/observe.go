package replace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

const (
	// pvcLabel marks an OSD on a volume claim.
	pvcLabel = "ceph.rook.io/pvc"
	// stuckAfter is how long PGs may be clean and unmoved on an OSD that is out before it
	// counts as stuck: after `osd out` they look so for a moment.
	stuckAfter = time.Minute
	// askTime bounds what is asked of Ceph in one pass.
	askTime = 10 * time.Second
)

// view is what both controllers read of a cluster.
type view struct {
	now     time.Time
	ns      string
	set     settings.Settings
	stored  access.Cluster
	cluster podspec.Cluster
	// deps are the OSDs' own Deployments by id, list is all that have the app's label.
	deps  map[int]*appsv1.Deployment
	list  []appsv1.Deployment
	pods  []corev1.Pod
	jobs  map[string]*batchv1.Job
	maps  map[string]*corev1.ConfigMap
	nodes map[string]*corev1.Node
	// records of all nodes.
	records []osdplan.Record
	silence string
	osdmap  cephosd.Map
}

// view reads Kubernetes from the cache and the OSD map from Ceph.
func (b *Base) view(ctx context.Context, cl *cephv1.CephCluster) (*view, error) {
	v := &view{now: kit.Now(ctx), ns: cl.Namespace, deps: map[int]*appsv1.Deployment{}, jobs: map[string]*batchv1.Job{}, nodes: map[string]*corev1.Node{}}
	var err error
	if v.set, err = b.Settings(ctx); err != nil {
		return nil, fmt.Errorf("reading the operator's settings: %w", err)
	}
	if v.stored, err = b.Access.Read(ctx, cl.Namespace); err != nil {
		return nil, err
	}
	version := ""
	if s := cl.Status.CephVersion; s != nil {
		version = s.Version
	}
	v.cluster = pods.Cluster(cl, b.Operator, v.set, v.stored.Identity.FSID, version)
	if s := cl.Status.CephVersion; s != nil && s.Image != "" {
		v.cluster.CephImage = s.Image
	}
	if err := v.kubernetes(ctx, b.Cache); err != nil {
		return nil, err
	}
	v.ceph(ctx)
	return v, nil
}

func (v *view) kubernetes(ctx context.Context, c client.Reader) error {
	deps, err := kube.List(ctx, c, &appsv1.DeploymentList{}, client.InNamespace(v.ns), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return err
	}
	v.list = deps.Items
	for i := range deps.Items {
		d := &deps.Items[i]
		if id, err := spec.IDOf(d); err == nil {
			v.deps[id] = d
		}
	}
	podList, err := kube.List(ctx, c, &corev1.PodList{}, client.InNamespace(v.ns))
	if err != nil {
		return err
	}
	v.pods = podList.Items
	jobList, err := kube.List(ctx, c, &batchv1.JobList{}, client.InNamespace(v.ns))
	if err != nil {
		return err
	}
	for i := range jobList.Items {
		v.jobs[jobList.Items[i].Name] = &jobList.Items[i]
	}
	if v.maps, err = reports.StatusMaps(ctx, c, v.ns); err != nil {
		return err
	}
	nodes, err := kube.List(ctx, c, &corev1.NodeList{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		v.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for _, cm := range v.maps {
		records, err := reports.Records(cm)
		if err != nil {
			continue // the osd controller says so; here the record is just not known
		}
		for _, r := range records {
			if n := v.nodes[r.Node]; n != nil {
				r.Host = n.Labels[corev1.LabelHostname]
			}
			if d := v.deps[r.ID]; d != nil {
				if before, ok := reports.OnDeployment(d); ok {
					r = osdplan.KeepParts(r, before)
				}
			}
			if r.FSID == v.cluster.FSID {
				v.records = append(v.records, r)
			}
		}
	}
	slices.SortFunc(v.records, func(a, b osdplan.Record) int {
		return strings.Compare(fmt.Sprintf("%06d %s %s", a.ID, a.UUID, a.Node), fmt.Sprintf("%06d %s %s", b.ID, b.UUID, b.Node))
	})
	return nil
}

// ceph reads the OSD map. Silence is no answer, and never an empty one.
func (v *view) ceph(ctx context.Context) {
	if v.stored.Ceph == nil {
		v.silence = "the cluster has no mons yet"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := cephosd.New(v.stored.Ceph).Dump(ctx)
	switch {
	case err != nil:
		v.silence = err.Error()
	case m.FSID != v.stored.Identity.FSID:
		v.silence = "the OSD map is that of cluster " + m.FSID
	default:
		v.osdmap = m
	}
}

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	key := kit.PassOf(ctx).Key
	d, err := kube.Lookup[appsv1.Deployment](ctx, c.Cache, key)
	if err != nil || d == nil || !Concerned(d) {
		return Seen{}, err
	}
	id, err := spec.IDOf(d)
	if err != nil {
		return Seen{}, nil // somebody's copy of an OSD is not ours
	}
	v, err := c.view(ctx, cl)
	if err != nil {
		return Seen{}, err
	}
	v.deps[id] = d // as it was read first, so that its version guards what was read after it
	return c.look(ctx, cl, v, id, d)
}

// look collects the state of one OSD.
func (b *Base) look(ctx context.Context, cl *cephv1.CephCluster, v *view, id int, d *appsv1.Deployment) (Seen, error) {
	s := facts{State: plan.State{ID: id, Answered: v.silence == "", Silence: v.silence}}
	s.marks(d, v.deps)
	if o, exists := v.osdmap.Find(id); s.Answered {
		s.Exists, s.Destroyed, s.New, s.Up, s.In, s.UUID, s.Weight = exists, o.Destroyed(), o.New(), bool(o.Up), bool(o.In), o.UUID, o.Weight
	}
	s.again(d)
	seen := Seen{Deployment: d, Cluster: v.cluster}
	node := ""
	if s.Note != nil {
		node = s.Note.Node
	}
	seen.Jobs = v.jobsOf(id, node)
	s.pods(v)
	if s.Note != nil {
		s.node(v, d, &seen.Jobs)
	}
	if s.Answered {
		if err := s.ask(ctx, b, cl, v, d); err != nil {
			return Seen{}, err
		}
	}
	var err error
	if seen.Enlist, err = b.enlistments(ctx, v, &s); err != nil {
		return Seen{}, err
	}
	seen.State = s.State
	return seen, nil
}
