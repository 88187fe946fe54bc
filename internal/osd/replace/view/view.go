// Package view reads what a cluster's replacements depend on: Kubernetes from the cache, the
// OSD map from Ceph; and it answers the questions that look at several OSDs at once: how the
// others of a set are, whose turn it is, where data could go.
//
// It must not change anything, must not take silence of Ceph for an answer, and must not
// judge one OSD's replacement: that is in internal/osd/replace/observe.
package view

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
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// AskTime bounds what is asked of Ceph in one pass.
const AskTime = 10 * time.Second

// Reader is what a View is read through.
type Reader struct {
	// Cache is a few writes behind; Access reads live.
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Concerned reports whether a Deployment has anything to do with a replacement.
func Concerned(d client.Object) bool {
	if d.GetLabels()["app"] != spec.App {
		return false
	}
	for _, a := range []string{spec.ReplaceAnnotation, spec.MetadataAnnotation, spec.RefusedAnnotation, spec.ReplacedAnnotation} {
		if _, ok := d.GetAnnotations()[a]; ok {
			return true
		}
	}
	return spec.Replacing(d.GetAnnotations())
}

// View is what was read of a cluster.
type View struct {
	// Now is the time of the pass.
	Now       time.Time
	Namespace string
	Settings  settings.Settings
	// Stored is where the cluster's Ceph is, Cluster what its pods are built from.
	Stored  access.Cluster
	Cluster podspec.Cluster
	// Deployments are the OSDs' own by id, All is every one with the app's label.
	Deployments map[int]*appsv1.Deployment
	All         []appsv1.Deployment
	Pods        []corev1.Pod
	// Jobs of the namespace, the nodes' reports (status ConfigMaps) and all nodes, by name.
	Jobs  map[string]*batchv1.Job
	Maps  map[string]*corev1.ConfigMap
	Nodes map[string]*corev1.Node
	// Records of the OSDs of this cluster that the nodes have reported, by id.
	Records []osdplan.Record
	// Silence is why Ceph's OSD map is not known; "" where OSDMap holds.
	Silence string
	OSDMap  cephosd.Map
}

// Read reads Kubernetes from the cache and the OSD map from Ceph. An error is one of
// Kubernetes or of the settings; that Ceph does not answer is in the View.
func (r Reader) Read(ctx context.Context, cl *cephv1.CephCluster) (*View, error) {
	v := &View{Now: kit.Now(ctx), Namespace: cl.Namespace, Deployments: map[int]*appsv1.Deployment{}, Jobs: map[string]*batchv1.Job{}, Nodes: map[string]*corev1.Node{}}
	var err error
	if v.Settings, err = r.Settings(ctx); err != nil {
		return nil, fmt.Errorf("reading the operator's settings: %w", err)
	}
	if v.Stored, err = r.Access.Read(ctx, cl.Namespace); err != nil {
		return nil, err
	}
	version := ""
	if s := cl.Status.CephVersion; s != nil {
		version = s.Version
	}
	v.Cluster = pods.Cluster(cl, r.Operator, v.Settings, v.Stored.Identity.FSID, version)
	if s := cl.Status.CephVersion; s != nil && s.Image != "" {
		v.Cluster.CephImage = s.Image
	}
	if err := v.kubernetes(ctx, r.Cache); err != nil {
		return nil, err
	}
	v.ceph(ctx)
	return v, nil
}

func (v *View) kubernetes(ctx context.Context, c client.Reader) error {
	deps, err := kube.List(ctx, c, &appsv1.DeploymentList{}, client.InNamespace(v.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return err
	}
	v.All = deps.Items
	for i := range deps.Items {
		d := &deps.Items[i]
		if id, err := spec.IDOf(d); err == nil {
			v.Deployments[id] = d
		}
	}
	podList, err := kube.List(ctx, c, &corev1.PodList{}, client.InNamespace(v.Namespace))
	if err != nil {
		return err
	}
	v.Pods = podList.Items
	jobList, err := kube.List(ctx, c, &batchv1.JobList{}, client.InNamespace(v.Namespace))
	if err != nil {
		return err
	}
	for i := range jobList.Items {
		v.Jobs[jobList.Items[i].Name] = &jobList.Items[i]
	}
	if v.Maps, err = reports.StatusMaps(ctx, c, v.Namespace); err != nil {
		return err
	}
	nodes, err := kube.List(ctx, c, &corev1.NodeList{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		v.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for _, cm := range v.Maps {
		records, err := reports.Records(cm)
		if err != nil {
			continue // the osd controller says so; here the record is just not known
		}
		for _, r := range records {
			if n := v.Nodes[r.Node]; n != nil {
				r.Host = n.Labels[corev1.LabelHostname]
			}
			if d := v.Deployments[r.ID]; d != nil {
				if before, ok := reports.OnDeployment(d); ok {
					r = osdplan.KeepParts(r, before)
				}
			}
			if r.FSID == v.Cluster.FSID {
				v.Records = append(v.Records, r)
			}
		}
	}
	slices.SortFunc(v.Records, func(a, b osdplan.Record) int {
		return strings.Compare(fmt.Sprintf("%06d %s %s", a.ID, a.UUID, a.Node), fmt.Sprintf("%06d %s %s", b.ID, b.UUID, b.Node))
	})
	return nil
}

// ceph reads the OSD map. Silence is no answer, and never an empty one.
func (v *View) ceph(ctx context.Context) {
	if v.Stored.Ceph == nil {
		v.Silence = "the cluster has no mons yet"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	m, err := cephosd.New(v.Stored.Ceph).Dump(ctx)
	switch {
	case err != nil:
		v.Silence = err.Error()
	case m.FSID != v.Stored.Identity.FSID:
		v.Silence = "the OSD map is that of cluster " + m.FSID
	default:
		v.OSDMap = m
	}
}
