// Package nodedaemon runs what serves the nodes of a cluster and not the cluster:
// one crash collector and one exporter on each node with Ceph daemons, and what
// Prometheus needs to find the metrics.
//
// It must not hold up anything else: a cluster without its crash collectors is
// whole, so what goes wrong here is a condition of its own that keeps no cluster
// from being Ready.
package nodedaemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
	"github.com/castellan-storage/castellan/internal/nodedaemon/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Condition tells how the node daemons are. Its name does not end as those do by
// which the phase of the cluster goes.
const Condition = "NodeDaemonsRunning"

// Controller runs the node daemons of CephClusters.
type Controller struct {
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	toAll := kube.ToAll(&cephv1.CephClusterList{})
	return kit.Options{
		Name:      "nodedaemon",
		Report:    kit.Report{Ready: Condition, Shared: true},
		Owns:      []kit.Object{&appsv1.Deployment{}, &corev1.Secret{}, &corev1.ConfigMap{}, &batchv1.Job{}, &batchv1.CronJob{}, &corev1.Service{}},
		OwnsNamed: access.Named(spec.CrashApp+"-", spec.ExporterApp, spec.ExporterApp+"-", spec.CrashSecret, spec.FactsApp),
		Watches: []kit.Watch{
			{Object: &corev1.Pod{}, When: podMoved(), Map: func(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
				if app := obj.GetLabels()["app"]; !isDaemon(app) && app != spec.FactsApp {
					return nil
				}
				return toAll(ctx, cache, obj)
			}},
			{Object: &corev1.Node{}, When: kube.Gone(), Map: toAll},
		},
		// The first start waits for the cluster's own daemons.
		When: predicate.Or(kube.SpecChanged(), firstReady()),
	}
}

// podMoved passes what changes where daemons run, and the end of a pod.
func podMoved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*corev1.Pod)
		b, okB := e.ObjectNew.(*corev1.Pod)
		return !okA || !okB || a.Spec.NodeName != b.Spec.NodeName || a.Status.Phase != b.Status.Phase || a.Labels["app"] == spec.FactsApp
	}}
}

// firstReady passes the moment in which a cluster is ready for the first time, and
// a change of the accepted version.
func firstReady() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*cephv1.CephCluster)
		b, okB := e.ObjectNew.(*cephv1.CephCluster)
		if !okA || !okB {
			return true
		}
		return (a.Status.ObservedGeneration == 0) != (b.Status.ObservedGeneration == 0) || image(a) != image(b)
	}}
}

// image is the accepted one.
func image(cl *cephv1.CephCluster) string {
	if v := cl.Status.CephVersion; v != nil {
		return v.Image
	}
	return ""
}

// isDaemon says that pods of an app are Ceph daemons, which can crash and count.
func isDaemon(app string) bool {
	switch app {
	case "rook-ceph-mon", "rook-ceph-mgr", "rook-ceph-osd", "rook-ceph-mds", "rook-ceph-rgw", "rook-ceph-rbd-mirror", "rook-ceph-fs-mirror", "rook-ceph-nfs":
		return true
	}
	return false
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Now time.Time
	// Cluster builds with the accepted image and, once it is known, Ceph's user.
	Cluster podspec.Cluster
	// Facts of FactsImage; nil while no image has been asked.
	Facts      *facts.Facts
	FactsImage string
	// Job asks the accepted image, Said is its answer, JobError why there is none.
	Job            *batchv1.Job
	Said, JobError string
	// Daemons are the cluster's pods by node, Nodes the nodes that exist, by name.
	Daemons map[string][]corev1.Pod
	Nodes   map[string]*corev1.Node
	// Crash and Exporters are the Deployments by name.
	Crash, Exporters map[string]*appsv1.Deployment
	// Keys are the versions of the users' Secrets by name; Users is what Ceph has of
	// those that have none.
	Keys    map[string]string
	Users   []auth.Entity
	Silence string
	// Monitors says that the kind ServiceMonitor exists, OurMonitors which objects of
	// it this operator has made.
	Monitors    bool
	OurMonitors map[string]bool
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{
		Now: kit.Now(ctx), Daemons: map[string][]corev1.Pod{}, Nodes: map[string]*corev1.Node{},
		Crash: map[string]*appsv1.Deployment{}, Exporters: map[string]*appsv1.Deployment{}, Keys: map[string]string{},
		OurMonitors: map[string]bool{},
	}
	if !pods.Founded(cl) || image(cl) == "" || !due(cl, seen.Now) {
		return seen, nil
	}
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	seen.Cluster = pods.Cluster(cl, c.Operator, set, stored.Identity.FSID, cl.Status.CephVersion.Version)
	for _, look := range []func(context.Context, *cephv1.CephCluster, *Seen) error{c.facts, c.nodes, c.deployments, c.secrets, c.monitors} {
		if err := look(ctx, cl, &seen); err != nil {
			return Seen{}, err
		}
	}
	return seen, c.users(ctx, cl, stored.Ceph, &seen)
}

// grace is how long a new cluster's own daemons have before node daemons start
// beside them. A cluster that does not get ready may do so because daemons crash.
const grace = 3 * time.Minute

// due says whether it is time for node daemons.
func due(cl *cephv1.CephCluster, now time.Time) bool {
	return cl.Status.ObservedGeneration > 0 || now.Sub(cl.CreationTimestamp.Time) >= grace
}

// nodes finds the nodes with daemons of this cluster.
func (c *Controller) nodes(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	list, err := kube.List(ctx, c.Cache, &corev1.PodList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"rook_cluster": cl.Namespace})
	if err != nil {
		return fmt.Errorf("listing the cluster's pods: %w", err)
	}
	for _, p := range list.Items {
		over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if isDaemon(p.Labels["app"]) && p.Labels["mon_canary"] != "true" && p.Spec.NodeName != "" && !over {
			seen.Daemons[p.Spec.NodeName] = append(seen.Daemons[p.Spec.NodeName], p)
		}
	}
	nodes, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		seen.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	return nil
}

// deployments reads the node daemons' Deployments; live, where one is missing,
// since the cache does not hold those of a former operator.
func (c *Controller) deployments(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	read := func(from client.Reader, app string, to map[string]*appsv1.Deployment) error {
		list, err := kube.List(ctx, from, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": app})
		if err != nil {
			return fmt.Errorf("listing the Deployments of %s: %w", app, err)
		}
		for i := range list.Items {
			to[list.Items[i].Name] = &list.Items[i]
		}
		return nil
	}
	for _, kind := range []struct {
		app  string
		name func(string) string
		to   map[string]*appsv1.Deployment
	}{{spec.CrashApp, spec.CrashName, seen.Crash}, {spec.ExporterApp, spec.ExporterName, seen.Exporters}} {
		if err := read(c.Cache, kind.app, kind.to); err != nil {
			return err
		}
		for node := range seen.Daemons {
			if kind.to[kind.name(node)] != nil {
				continue
			}
			if err := read(c.Access.Live, kind.app, kind.to); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// secrets reads the users' Secrets.
func (c *Controller) secrets(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	for _, name := range []string{spec.CrashSecret, spec.ExporterSecret} {
		s, err := kube.Lookup[corev1.Secret](ctx, c.Cache, types.NamespacedName{Namespace: cl.Namespace, Name: name})
		if err != nil {
			return fmt.Errorf("reading the key of a node daemon: %w", err)
		}
		if s != nil {
			seen.Keys[name] = keyring.Version(s)
		}
	}
	return nil
}

// monitors finds out whether the Prometheus operator's kind is there, and which
// objects of it are ours. That the kind does not exist is an answer of the API server
// like any other. Where nobody asks for monitoring, not being allowed to read them
// means that none of them can be ours.
func (c *Controller) monitors(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	for _, name := range []string{spec.MgrMonitor, spec.ExporterMonitor} {
		u := spec.MonitorRef(cl.Namespace, name)
		found, err := kube.Get(ctx, c.Access.Live, client.ObjectKeyFromObject(u), u)
		switch {
		case meta.IsNoMatchError(err), apierrors.IsForbidden(err) && !cl.Spec.Monitoring.Enabled:
			return nil
		case err != nil:
			return fmt.Errorf("looking for ServiceMonitors: %w", err)
		}
		seen.Monitors = true
		seen.OurMonitors[name] = found && u.GetLabels()[kube.OwnedLabel] == "true"
	}
	return nil
}

// users asks Ceph for the users that are needed and have no Secret yet.
func (c *Controller) users(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander, seen *Seen) error {
	if commander == nil {
		seen.Silence = "the cluster has no mons yet"
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, u := range needed(cl, *seen) {
		e, err := auth.New(commander).Get(ctx, u.Entity)
		switch {
		case err == nil:
			seen.Users = append(seen.Users, e)
		case !ceph.NotFound(err):
			seen.Silence = err.Error()
			return nil
		}
	}
	return nil
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	e, ok := action.(keyring.Ensure)
	if !ok {
		return fmt.Errorf("%s: no such action", action)
	}
	commander, err := c.Access.Ceph(ctx, cl.Namespace, action.String())
	if err != nil {
		return err
	}
	return e.Do(ctx, commander)
}

// Teardown implements kit.Controller: everything goes with the CephCluster.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }

// tolerations of the pods on a node, without those that Kubernetes adds and those
// that end.
func tolerations(list []corev1.Pod) []corev1.Toleration {
	byText := map[string]corev1.Toleration{}
	for _, p := range list {
		for _, t := range p.Spec.Tolerations {
			if t.TolerationSeconds == nil && !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
				byText[t.String()] = t
			}
		}
	}
	out := make([]corev1.Toleration, 0, len(byText))
	for _, k := range slices.Sorted(maps.Keys(byText)) {
		out = append(out, byText[k])
	}
	return out
}

func jobRef(cl *cephv1.CephCluster) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: spec.FactsApp, Namespace: cl.Namespace}}
}

// facts reads what is known of the image, and what the Job says that asks it.
func (c *Controller) facts(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	key := types.NamespacedName{Namespace: cl.Namespace, Name: spec.FactsApp}
	cm, err := kube.Lookup[corev1.ConfigMap](ctx, c.Cache, key)
	if err != nil {
		return fmt.Errorf("reading what is known of the image: %w", err)
	}
	if cm != nil {
		// One that cannot be read is asked for again.
		if f, err := facts.Parse(cm.Data["facts"]); err == nil {
			seen.Facts, seen.FactsImage = &f, cm.Data["image"]
		}
	}
	job, err := kube.Lookup[batchv1.Job](ctx, c.Cache, key)
	if err != nil {
		return fmt.Errorf("reading the Job that asks the image: %w", err)
	}
	if job == nil || job.DeletionTimestamp != nil {
		return nil
	}
	seen.Job = job
	list, err := kube.List(ctx, c.Cache, &corev1.PodList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.FactsApp})
	if err != nil {
		return fmt.Errorf("listing the pods that ask the image: %w", err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], job) || owned(&list.Items[i], job) {
			seen.hear(&list.Items[i])
		}
	}
	return nil
}

func owned(p *corev1.Pod, job *batchv1.Job) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == job.UID })
}

// hear takes what a pod of the Job has said.
func (s *Seen) hear(p *corev1.Pod) {
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch t, w := st.State.Terminated, st.State.Waiting; {
		case t != nil && t.ExitCode == 0 && st.Name == spec.FactsContainer:
			s.Said = t.Message
		case t != nil && t.ExitCode != 0:
			s.JobError = fmt.Sprintf("%s ended with exit code %d: %s", st.Name, t.ExitCode, strings.TrimSpace(t.Message))
		case w != nil && w.Message != "":
			s.JobError = w.Reason + ": " + w.Message
		}
	}
}
