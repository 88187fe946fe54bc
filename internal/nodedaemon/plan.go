package nodedaemon

import (
	"maps"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
	"github.com/castellan-storage/castellan/internal/nodedaemon/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// idleGrace is how long node daemons stay on a node that has lost its last daemon:
// what that one left is still posted, and a daemon that only restarts takes nothing
// with it.
const idleGrace = 5 * time.Minute

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	switch {
	case !pods.Founded(cl) || image(cl) == "":
		return kit.Plan{Wait: pods.NotFounded()}
	case !due(cl, seen.Now):
		return kit.Plan{Wait: &kit.Wait{Reason: "ClusterStarting", Message: "node daemons follow when the cluster is ready", For: grace - seen.Now.Sub(cl.CreationTimestamp.Time)}}
	}
	p := kit.Plan{}
	crash, metrics, exporters := wanted(cl, seen)
	if crash || metrics {
		learn(cl, seen, &p)
	}
	if seen.Facts != nil {
		seen.Cluster.CephImage, seen.Cluster.CephUID = seen.FactsImage, seen.Facts.UID
	}
	users(cl, seen, &p)
	crashCollectors(cl, seen, crash, &p)
	pruner(cl, seen, crash, &p)
	exporterPods(cl, seen, metrics, exporters, &p)
	monitors(cl, seen, metrics, exporters, &p)
	return p
}

// learn keeps the facts of the accepted image.
func learn(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) {
	want := image(cl)
	if seen.Facts != nil && seen.FactsImage == want {
		if seen.Job != nil {
			p.Delete = append(p.Delete, jobRef(cl))
		}
		return
	}
	about := seen.Job != nil && seen.Job.Annotations[spec.ImageAnnotation] == want
	if f, err := facts.Parse(seen.Said); about && seen.Said != "" {
		if err == nil {
			p.Apply = append(p.Apply, spec.FactsMap(seen.Cluster, want, f))
			return
		}
		seen.JobError = err.Error()
	}
	switch {
	case seen.Job == nil:
		p.Create = append(p.Create, spec.FactsJob(seen.Cluster, want, podspec.UserOf(&cl.Spec, cephv1.KeyCmdReporter, cephv1.ResourcesKeyCmdReporter)))
	case !about, over(seen.Job) && seen.Now.Sub(seen.Job.CreationTimestamp.Time) > retryAfter:
		p.Delete = append(p.Delete, jobRef(cl))
	}
	p.Wait = &kit.Wait{Reason: "AskingImage", Message: "asking " + want + " for Ceph's user and programs", Object: "Job " + spec.FactsApp, For: time.Minute}
	if seen.JobError != "" {
		p.Wait.Message, p.Wait.Blocked = want+" does not tell Ceph's user and programs: "+seen.JobError, true
	}
}

// retryAfter is when a Job that has ended without an answer is made again.
const retryAfter = 10 * time.Minute

// over says that a Job has ended.
func over(j *batchv1.Job) bool {
	_, _, ended := kube.JobEnd(j)
	return ended
}

// wanted says which daemons the spec asks for, and whether the image has the exporter.
func wanted(cl *cephv1.CephCluster, seen Seen) (crash, metrics, exporters bool) {
	crash, metrics = !cl.Spec.CrashCollector.Disable, !cl.Spec.Monitoring.MetricsDisabled
	return crash, metrics, metrics && seen.Facts != nil && seen.Facts.Exporter
}

// needed are the users of daemons that are wanted, as long as they have no Secret.
func needed(cl *cephv1.CephCluster, seen Seen) []keyring.User {
	crash, _, exporters := wanted(cl, seen)
	var need []keyring.User
	for _, u := range []struct {
		on   bool
		user keyring.User
	}{{crash, spec.CrashUser()}, {exporters, spec.ExporterUser()}} {
		if u.on && seen.Keys[u.user.Secret] == "" {
			need = append(need, u.user)
		}
	}
	return need
}

// users makes the users that are needed.
func users(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) {
	need := needed(cl, seen)
	if len(need) == 0 {
		return
	}
	if seen.Silence != "" {
		p.Wait = &kit.Wait{Reason: "MonsNotReady", Message: "node daemons wait for the mons: " + seen.Silence, For: 5 * time.Second}
		return
	}
	apply, do := keyring.Plan(seen.Cluster, seen.Users, need)
	p.Apply, p.Do = append(p.Apply, apply...), append(p.Do, do...)
}

// crashCollectors keeps one on each node with daemons.
func crashCollectors(cl *cephv1.CephCluster, seen Seen, on bool, p *kit.Plan) {
	user := podspec.UserOf(&cl.Spec, cephv1.KeyCrashCollector, cephv1.ResourcesKeyCrashCollector)
	ready := on && seen.Facts != nil && seen.Keys[spec.CrashSecret] != ""
	keep(seen, on, ready, seen.Crash, p, func(at spec.Place) *appsv1.Deployment {
		return spec.CrashCollector(seen.Cluster, at, seen.Keys[spec.CrashSecret], user)
	})
}

// exporterPods keeps one on each node with daemons, and their Service.
func exporterPods(cl *cephv1.CephCluster, seen Seen, metrics, on bool, p *kit.Plan) {
	e := spec.ExporterOf(&cl.Spec.Monitoring, seen.Cluster.HostNetwork)
	user := podspec.UserOf(&cl.Spec, cephv1.KeyCephExporter, cephv1.ResourcesKeyCephExporter)
	// An image that has not been asked yet takes no exporter away.
	wanted := on || metrics && seen.Facts == nil
	keep(seen, wanted, on && seen.Keys[spec.ExporterSecret] != "", seen.Exporters, p, func(at spec.Place) *appsv1.Deployment {
		return spec.CephExporter(seen.Cluster, e, at, seen.Keys[spec.ExporterSecret], user)
	})
	switch {
	case on:
		p.Apply = append(p.Apply, spec.ExporterService(seen.Cluster, e))
	case !wanted:
		p.Delete = append(p.Delete, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: spec.ExporterApp, Namespace: seen.Cluster.Namespace}})
	}
}

// keep makes the Deployments of one kind follow the daemons. on says that the kind
// is wanted, ready that it can be built.
func keep(seen Seen, on, ready bool, live map[string]*appsv1.Deployment, p *kit.Plan, build func(spec.Place) *appsv1.Deployment) {
	wanted := map[string]bool{}
	if ready {
		for _, node := range slices.Sorted(maps.Keys(seen.Daemons)) {
			n := seen.Nodes[node]
			if n == nil || n.Labels[corev1.LabelHostname] == "" {
				continue
			}
			want := build(spec.Place{Node: node, Host: n.Labels[corev1.LabelHostname], Tolerations: tolerations(seen.Daemons[node])})
			wanted[want.Name] = true
			put(seen, want, live[want.Name], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(live)) {
		d := live[name]
		node := d.Annotations[spec.NodeAnnotation]
		switch {
		case wanted[name] || kube.Skipped(d) || on && !ready:
		case !on || seen.Nodes[node] == nil && node != "":
			p.Delete = append(p.Delete, ref(d))
		case len(seen.Daemons[node]) == 0:
			idle(seen, d, node, p, build)
		}
	}
}

// put applies a Deployment as it should be.
func put(seen Seen, want, live *appsv1.Deployment, p *kit.Plan) {
	pods.Stamp(want, seen.Cluster.NodeImage)
	switch {
	case live == nil:
	case kube.Skipped(live):
		return
	case !reflect.DeepEqual(live.Spec.Selector, want.Spec.Selector):
		// Of a former operator. A selector cannot be changed, and nothing is lost with
		// the pod.
		p.Delete = append(p.Delete, ref(live))
		return
	case pods.UpToDate(live, want):
		pods.KeepNodeImage(want, live, seen.Cluster.NodeImage)
	}
	p.Apply = append(p.Apply, want)
}

// idle notes since when a node has no daemon, and ends with its grace.
func idle(seen Seen, d *appsv1.Deployment, node string, p *kit.Plan, build func(spec.Place) *appsv1.Deployment) {
	if node == "" {
		p.Delete = append(p.Delete, ref(d)) // of a former operator
		return
	}
	since, err := time.Parse(time.RFC3339, d.Annotations[spec.IdleAnnotation])
	if err != nil {
		since = seen.Now
	}
	left := idleGrace - seen.Now.Sub(since)
	if left <= 0 {
		p.Delete = append(p.Delete, ref(d))
		return
	}
	if p.Next == 0 || left < p.Next {
		p.Next = left
	}
	pod := d.Spec.Template.Spec
	put(seen, build(spec.Place{
		Node: node, Host: pod.NodeSelector[corev1.LabelHostname], Tolerations: pod.Tolerations, IdleSince: since.UTC().Format(time.RFC3339),
	}), d, p)
}

func ref(d *appsv1.Deployment) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, UID: d.UID}}
}

// pruner keeps the CronJob that deletes old crash reports.
func pruner(cl *cephv1.CephCluster, seen Seen, on bool, p *kit.Plan) {
	days := cl.Spec.CrashCollector.DaysToRetain
	switch {
	case !on || days == 0:
		p.Delete = append(p.Delete, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: spec.Pruner, Namespace: seen.Cluster.Namespace}})
	case seen.Facts != nil && seen.Keys[spec.CrashSecret] != "":
		p.Apply = append(p.Apply, spec.CrashPruner(seen.Cluster, days, podspec.UserOf(&cl.Spec, cephv1.KeyCrashCollector, cephv1.ResourcesKeyCrashCollector)))
	}
}

// monitors keeps the ServiceMonitors, where their kind exists.
func monitors(cl *cephv1.CephCluster, seen Seen, metrics, exporters bool, p *kit.Plan) {
	m := &cl.Spec.Monitoring
	if m.Enabled && metrics && !seen.Monitors && p.Wait == nil {
		p.Wait = &kit.Wait{
			Reason: "NoServiceMonitors", Message: "spec.monitoring.enabled asks for ServiceMonitors, and Kubernetes does not know that kind", Blocked: true, For: 5 * time.Minute,
			Hint: "install the Prometheus operator, or set spec.monitoring.enabled to false; metrics are served without it",
		}
	}
	if !seen.Monitors {
		return
	}
	labels := cl.Spec.Labels.ForDaemon(cephv1.KeyMonitoring)
	for _, s := range []struct {
		on         bool
		name, port string
	}{{metrics, spec.MgrMonitor, "http-metrics"}, {exporters, spec.ExporterMonitor, spec.ExporterPort}} {
		switch {
		case m.Enabled && s.on:
			p.Apply = append(p.Apply, spec.ServiceMonitor(seen.Cluster, s.name, s.port, m.Interval, labels))
		case seen.OurMonitors[s.name]:
			p.Delete = append(p.Delete, spec.MonitorRef(seen.Cluster.Namespace, s.name))
		}
	}
}
