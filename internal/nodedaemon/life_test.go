package nodedaemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/access/accesstest"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
	"github.com/castellan-storage/castellan/internal/nodedaemon/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

const (
	ns       = "rook-ceph"
	oldImage = "quay.io/ceph/ceph:v20.2.4"
	newImage = "quay.io/ceph/ceph:v20.2.5"
)

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// world is a cluster that runs: its identity, two nodes with a mon, a mgr and an OSD
// each, and the kubelet as far as it counts.
type world struct {
	*kittest.World
	c    client.Client
	ceph *cephtest.Cluster
	// exporter says which images have ceph-exporter.
	exporter map[string]bool
	deaf     bool // images do not answer
}

func newWorld(t testing.TB) *world {
	t.Helper()
	store, err := kittest.NewStore(scheme(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{c: store.Client(), ceph: cephtest.Healthy(t, 2, 1), exporter: map[string]bool{oldImage: true, newImage: true}}
	w.make(t, accesstest.Founded(t, ns)...)
	w.make(t,
		node("n1"), node("n2"), node("bystander"),
		daemon("n1", "mon", "a"), daemon("n1", "osd", "0"), daemon("n2", "mgr", "a"),
	)
	w.World = &kittest.World{
		Env: kit.Env{Client: w.c},
		Drivers: []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*cephv1.CephCluster, Seen] {
			return &Controller{
				Cache: env.Client, Access: access.Reader{Live: env.Client, Dial: func(string, conn.Config) ceph.Commander { return w.ceph }},
				Operator: pods.Operator{Image: "castellan:1", Namespace: ns, Version: "1"},
				Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil },
			}
		}, Options(), kittest.KeysOf(&cephv1.CephClusterList{}, ns))},
		Step: w.answer,
		Digest: func(ctx context.Context) (string, error) {
			s, err := kittest.Digest(ctx, w.c, ns, &appsv1.DeploymentList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &batchv1.CronJobList{}, &batchv1.JobList{}, &corev1.ServiceList{})
			return s + strings.Join(w.users(ctx), "\n"), err
		},
	}
	return w
}

func (w *world) make(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := w.c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: "host-" + name}}}
}

func daemon(node, kind, id string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-" + kind + "-" + id, Namespace: ns, Labels: map[string]string{"app": "rook-ceph-" + kind, "rook_cluster": ns, "ceph_daemon_type": kind}},
		Spec:       corev1.PodSpec{NodeName: node, Tolerations: []corev1.Toleration{{Key: kind, Operator: corev1.TolerationOpExists}, {Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// cephCluster is founded and was ready.
func cephCluster(change ...func(*cephv1.CephCluster)) *cephv1.CephCluster {
	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "my", Namespace: ns},
		Spec:       cephv1.ClusterSpec{CephVersion: cephv1.CephVersionSpec{Image: oldImage}, DataDirHostPath: "/var/lib/rook", CrashCollector: cephv1.CrashCollectorSpec{DaysToRetain: 7}},
		Status:     cephv1.ClusterStatus{ObservedGeneration: 1, CephVersion: &cephv1.ClusterVersion{Image: oldImage, Version: "20.2.4-0"}},
	}
	for _, c := range change {
		c(cl)
	}
	return cl
}

// create makes the CephCluster, with its status.
func create(cl *cephv1.CephCluster) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		st := cl.Status
		made := cl.DeepCopy()
		if err := w.Env.Client.Create(ctx, made); err != nil {
			return err
		}
		made.Status = st
		return w.Env.Client.Status().Update(ctx, made)
	}
}

func edit(change func(*cephv1.CephCluster)) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		var cl cephv1.CephCluster
		if err := w.Env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "my"}, &cl); err != nil {
			return err
		}
		change(&cl)
		st := cl.Status
		if err := w.Env.Client.Update(ctx, &cl); err != nil {
			return err
		}
		cl.Status = st
		return w.Env.Client.Status().Update(ctx, &cl)
	}
}

// answer is an image's: the pod of a facts Job, and its message.
func (w *world) answer(ctx context.Context) (bool, error) {
	var jobs batchv1.JobList
	if err := w.c.List(ctx, &jobs, client.InNamespace(ns)); err != nil {
		return false, err
	}
	var list corev1.PodList
	if err := w.c.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{"app": spec.FactsApp}); err != nil {
		return false, err
	}
	for i := range list.Items { // what the garbage collector does
		if len(jobs.Items) == 0 || list.Items[i].OwnerReferences[0].UID != jobs.Items[0].UID {
			return true, w.c.Delete(ctx, &list.Items[i])
		}
	}
	if w.deaf || len(jobs.Items) == 0 || len(list.Items) > 0 {
		return false, nil
	}
	j := jobs.Items[0]
	f := facts.Facts{UID: 167, GID: 167, Exporter: w.exporter[j.Annotations[spec.ImageAnnotation]]}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name + "-" + string(j.UID), Namespace: ns, Labels: j.Spec.Template.Labels, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: j.Name, UID: j.UID}}},
		Spec:       j.Spec.Template.Spec,
	}
	if err := w.c.Create(ctx, p); err != nil {
		return false, err
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{Name: spec.FactsContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: f.String()}}}}}
	return true, w.c.Status().Update(ctx, p)
}

func (w *world) users(ctx context.Context) []string {
	var out []string
	for _, name := range []string{"client.crash", "client.ceph-exporter"} {
		if e, err := auth.New(w.ceph).Get(ctx, name); err == nil {
			out = append(out, fmt.Sprint(e.Name, e.Caps))
		}
	}
	return out
}

// names of the Deployments, and the images that they run.
func (w *world) deployments(t testing.TB) map[string]string {
	t.Helper()
	var list appsv1.DeploymentList
	if err := w.c.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, d := range list.Items {
		out[d.Name] = d.Spec.Template.Spec.Containers[0].Image
	}
	return out
}

// after plays acts in a world and returns it when it is quiet and steady.
func after(t *testing.T, change func(*world), acts ...kittest.Act) *world {
	t.Helper()
	var w *world
	if _, err := kittest.Play(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World {
			w = newWorld(t)
			if change != nil {
				change(w)
			}
			return w.World
		},
		Acts: acts, Settle: 10 * time.Minute,
	}, 0, kittest.Before); err != nil {
		t.Fatal(err)
	}
	return w
}

// A life with a crash at every effect.
func TestLife(t *testing.T) {
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return newWorld(t).World },
		Acts: []kittest.Act{
			{Name: "create", Do: create(cephCluster())},
			{Name: "upgrade", Do: edit(func(cl *cephv1.CephCluster) {
				cl.Spec.CephVersion.Image = newImage
				cl.Status.CephVersion = &cephv1.ClusterVersion{Image: newImage, Version: "20.2.5-0"}
			})},
			{Name: "a node loses its daemons", Do: func(ctx context.Context, w *kittest.World) error {
				return w.Env.Client.Delete(ctx, daemon("n2", "mgr", "a"))
			}},
			{Name: "disable", Do: edit(func(cl *cephv1.CephCluster) { cl.Spec.CrashCollector.Disable = true })},
			{Name: "no metrics", Do: edit(func(cl *cephv1.CephCluster) { cl.Spec.Monitoring.MetricsDisabled = true })},
		},
		Settle: 10 * time.Minute,
	})
	if len(res.Effects) < 10 {
		t.Errorf("only %d effects", len(res.Effects))
	}
}

func TestOneOnEachNodeWithDaemons(t *testing.T) {
	w := after(t, nil, kittest.Act{Name: "create", Do: create(cephCluster())})
	want := map[string]string{
		"rook-ceph-crashcollector-n1": oldImage, "rook-ceph-crashcollector-n2": oldImage,
		"rook-ceph-exporter-n1": oldImage, "rook-ceph-exporter-n2": oldImage,
	}
	if diff := cmp.Diff(want, w.deployments(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var d appsv1.Deployment
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "rook-ceph-crashcollector-n1"}, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if diff := cmp.Diff([]corev1.Toleration{{Key: "mon", Operator: "Exists"}, {Key: "osd", Operator: "Exists"}}, pod.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
	if pod.NodeSelector[corev1.LabelHostname] != "host-n1" || *pod.Containers[0].SecurityContext.RunAsUser != 167 {
		t.Errorf("runs on %v as %v", pod.NodeSelector, *pod.Containers[0].SecurityContext.RunAsUser)
	}
	if diff := cmp.Diff([]string{
		"client.crashmap[mgr:allow rw mon:allow profile crash]",
		"client.ceph-exportermap[mds:allow r mgr:allow r mon:allow profile ceph-exporter osd:allow r]",
	}, w.users(t.Context())); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

func TestAnImageWithoutExporterHasNone(t *testing.T) {
	w := after(t, func(w *world) { w.exporter[oldImage] = false }, kittest.Act{Name: "create", Do: create(cephCluster())})
	want := map[string]string{"rook-ceph-crashcollector-n1": oldImage, "rook-ceph-crashcollector-n2": oldImage}
	if diff := cmp.Diff(want, w.deployments(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var svc corev1.ServiceList
	if err := w.c.List(t.Context(), &svc); err != nil || len(svc.Items) > 0 {
		t.Errorf("%d Services, %v", len(svc.Items), err)
	}
}

// While the new image has said nothing, what runs goes on as it is.
func TestASilentImageChangesNothing(t *testing.T) {
	var w *world
	w = after(t, func(x *world) { w = x }, kittest.Act{Name: "create", Do: create(cephCluster())},
		kittest.Act{Name: "upgrade", Do: func(ctx context.Context, k *kittest.World) error {
			w.deaf = true
			return edit(func(cl *cephv1.CephCluster) { cl.Status.CephVersion.Image = newImage })(ctx, k)
		}})
	for name, image := range w.deployments(t) {
		if image != oldImage {
			t.Errorf("%s runs %s", name, image)
		}
	}
	if n := len(w.deployments(t)); n != 4 {
		t.Errorf("%d Deployments", n)
	}
}

// A new cluster's own daemons come first; one that does not get ready gets its crash
// collectors nevertheless.
func TestWaitsForTheCluster(t *testing.T) {
	now := time.Now()
	cl := cephCluster(func(cl *cephv1.CephCluster) {
		cl.Status.ObservedGeneration = 0
		cl.CreationTimestamp = metav1.NewTime(now)
	})
	c := &Controller{}
	p := c.Plan(cl, Seen{Now: now.Add(time.Minute)})
	if p.Wait == nil || p.Wait.Reason != "ClusterStarting" || p.Wait.For != 2*time.Minute || len(p.Create) > 0 {
		t.Errorf("after a minute: %s", p)
	}
	if p = c.Plan(cl, Seen{Now: now.Add(3 * time.Minute)}); len(p.Create) != 1 {
		t.Errorf("after three: %s", p)
	}
}

// A node that has lost its last daemon keeps its node daemons for a while, and one
// that is gone does not.
func TestIdle(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	cl := cephCluster()
	base := func() Seen {
		s := Seen{Now: now, Facts: &facts.Facts{UID: 167, GID: 167}, FactsImage: oldImage, Keys: map[string]string{spec.CrashSecret: "1"}, Nodes: map[string]*corev1.Node{"n1": node("n1")}}
		s.Cluster.Namespace = ns
		return s
	}
	live := spec.CrashCollector(base().Cluster, spec.Place{Node: "n1", Host: "host-n1"}, "1", podUser())
	with := func(change func(*Seen, *appsv1.Deployment)) kit.Plan {
		s, d := base(), live.DeepCopy()
		change(&s, d)
		s.Crash = map[string]*appsv1.Deployment{d.Name: d}
		return (&Controller{}).Plan(cl, s)
	}
	p := with(func(*Seen, *appsv1.Deployment) {})
	if len(p.Apply) != 2 || p.Apply[0].GetAnnotations()[spec.IdleAnnotation] != now.UTC().Format(time.RFC3339) || p.Next != idleGrace {
		t.Errorf("at first: %s, next %v", p, p.Next)
	}
	p = with(func(_ *Seen, d *appsv1.Deployment) {
		d.Annotations[spec.IdleAnnotation] = now.Add(-idleGrace).UTC().Format(time.RFC3339)
	})
	if !strings.Contains(p.String(), "delete Deployment rook-ceph/rook-ceph-crashcollector-n1") {
		t.Errorf("after the grace: %s", p)
	}
	p = with(func(s *Seen, _ *appsv1.Deployment) { s.Nodes = nil })
	if !strings.Contains(p.String(), "delete Deployment rook-ceph/rook-ceph-crashcollector-n1") {
		t.Errorf("without the node: %s", p)
	}
	p = with(func(s *Seen, d *appsv1.Deployment) {
		s.Nodes = nil
		d.Labels["ceph.rook.io/do-not-reconcile"] = "x"
	})
	if strings.Contains(p.String(), "delete Deployment") {
		t.Errorf("left alone: %s", p)
	}
	// A Deployment of a former operator has another selector.
	p = with(func(s *Seen, d *appsv1.Deployment) {
		s.Daemons = map[string][]corev1.Pod{"n1": {*daemon("n1", "osd", "0")}}
		d.Spec.Selector.MatchLabels = map[string]string{"app": spec.CrashApp, "kubernetes.io/hostname": "n1"}
	})
	if !strings.Contains(p.String(), "delete Deployment") || strings.Contains(p.String(), "apply Deployment") {
		t.Errorf("taken over: %s", p)
	}
}

func TestMonitors(t *testing.T) {
	cl := cephCluster(func(cl *cephv1.CephCluster) { cl.Spec.Monitoring.Enabled = true })
	seen := Seen{Now: time.Now(), Facts: &facts.Facts{UID: 1, GID: 1, Exporter: true}, FactsImage: oldImage, Keys: map[string]string{spec.CrashSecret: "1", spec.ExporterSecret: "1"}}
	seen.Cluster.Namespace = ns
	c := &Controller{}
	if p := c.Plan(cl, seen); p.Wait == nil || p.Wait.Reason != "NoServiceMonitors" || !p.Wait.Blocked {
		t.Errorf("without the kind: %s", p)
	}
	seen.Monitors = true
	if p := c.Plan(cl, seen); p.Wait != nil || !strings.Contains(p.String(), "apply ServiceMonitor rook-ceph/rook-ceph-mgr") || !strings.Contains(p.String(), "apply ServiceMonitor rook-ceph/rook-ceph-exporter") {
		t.Errorf("with the kind: %s", p)
	}
	cl.Spec.Monitoring.Enabled = false
	seen.OurMonitors = map[string]bool{spec.MgrMonitor: true}
	if p := c.Plan(cl, seen); !strings.Contains(p.String(), "delete ServiceMonitor rook-ceph/rook-ceph-mgr") || strings.Contains(p.String(), "rook-ceph/rook-ceph-exporter\n") && strings.Contains(p.String(), "delete ServiceMonitor rook-ceph/rook-ceph-exporter") {
		t.Errorf("switched off: %s", p)
	}
}

func podUser() podspec.User { return podspec.User{} }
