package operator

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
)

const ns = "rook-ceph"

// woken are the controllers that have a pass after an update, by what they say about
// their watches: the same as kit.Register tells controller-runtime.
func woken(t *testing.T, c client.Client, cl *cephv1.CephCluster, old, now client.Object) []string {
	t.Helper()
	var names []string
	u := event.UpdateEvent{ObjectOld: old, ObjectNew: now}
	for _, ctl := range (Parts{Operator: pods.Operator{Namespace: ns}, Settings: DefaultSettings}).Controllers() {
		if wakes(t.Context(), c, ctl, cl, u) {
			names = append(names, ctl.Name)
		}
	}
	slices.Sort(names)
	return names
}

func wakes(ctx context.Context, c client.Client, ctl Controller, cl *cephv1.CephCluster, u event.UpdateEvent) bool {
	kind := kit.KindOf(u.ObjectNew)
	if _, driving := u.ObjectNew.(*cephv1.CephCluster); driving && ctl.Name != "discover" && ctl.Name != "osd-replace" {
		when := ctl.Options.When
		if when == nil {
			when = kube.SpecChanged()
		}
		if when.Update(u) {
			return true
		}
	}
	for _, o := range ctl.Options.Owns {
		owned := slices.ContainsFunc(u.ObjectNew.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == cl.UID })
		if owned && kit.KindOf(o) == kind && ctl.Options.OwnsWhen().Update(u) {
			return true
		}
	}
	for _, w := range ctl.Options.Watches {
		if kit.KindOf(w.Object) != kind || w.When != nil && !w.When.Update(u) {
			continue
		}
		if len(w.Map(ctx, c, u.ObjectNew)) > 0 {
			return true
		}
	}
	return false
}

// What users and nodes do reaches the controllers that have to do with it, at once and
// no others: a controller that is not told waits for its next regular look.
func TestWiring(t *testing.T) {
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: ns}}
	store, err := kittest.NewStore(Scheme(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	c := store.Client()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cl), cl); err != nil {
		t.Fatal(err)
	}
	owner := []metav1.OwnerReference{pods.Owner(cl)}
	meta := func(name string, labels map[string]string, owner []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: ns, UID: types.UID(name), ResourceVersion: "1", Generation: 1, Labels: labels, OwnerReferences: owner}
	}
	osd := &appsv1.Deployment{ObjectMeta: meta("rook-ceph-osd-3", map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "3"}, owner)}
	job := &batchv1.Job{ObjectMeta: meta("rook-ceph-osd-prepare-n1", map[string]string{"app": "rook-ceph-osd-prepare"}, owner)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1", ResourceVersion: "1", Labels: map[string]string{corev1.LabelHostname: "n1"}}}
	monPod := &corev1.Pod{ObjectMeta: meta("rook-ceph-mon-a-1", map[string]string{"app": "rook-ceph-mon", "mon": "a", "rook_cluster": ns, "ceph_daemon_type": "mon", "ceph_daemon_id": "a"}, nil)}
	endpoints := &corev1.ConfigMap{ObjectMeta: meta("rook-ceph-mon-endpoints", nil, owner)}
	report := &corev1.ConfigMap{ObjectMeta: meta("rook-ceph-osd-n1-status", map[string]string{"app": "rook-ceph-osd", "node": "n1", "rook_cluster": ns}, nil)}
	mgrs := &appsv1.Deployment{ObjectMeta: meta("rook-ceph-mgr-a", map[string]string{"app": "rook-ceph-mgr", "mgr": "a"}, owner)}
	mons := &appsv1.Deployment{ObjectMeta: meta("rook-ceph-mon-a", map[string]string{"app": "rook-ceph-mon", "mon": "a"}, owner)}
	mgrPod := &corev1.Pod{ObjectMeta: meta("rook-ceph-mgr-a-1", map[string]string{"app": "rook-ceph-mgr", "mgr": "a", "mgr_role": "active", "rook_cluster": ns}, nil)}
	secret := func(name string) *corev1.Secret { return &corev1.Secret{ObjectMeta: meta(name, nil, owner)} }
	mgrKey, password, csiKey, bootstrap, record := secret("rook-ceph-mgr-a-keyring"), secret("rook-ceph-dashboard-password"), secret("rook-csi-rbd-node"), secret("rook-ceph-bootstrap-osd-keyring"), secret("rook-ceph-config-record")
	crashKey, monKey, clients := secret("rook-ceph-crash-collector-keyring"), secret("rook-ceph-mons-keyring"), secret("rook-ceph-config")
	changed := func(o client.Object) { o.(*corev1.Secret).Data = map[string][]byte{"key": []byte("x")} }
	foreign := &corev1.ConfigMap{ObjectMeta: meta("of-a-user", nil, nil)}

	for _, e := range []struct {
		name   string
		old    client.Object
		change func(client.Object)
		// must be woken, must not be.
		must, not []string
	}{
		{"the spec", cl, func(o client.Object) { o.SetGeneration(o.GetGeneration() + 1) },
			[]string{"cluster", "config", "csi-pool-mapping", "csi-users", "disruption", "mgr", "mon", "nodedaemon", "osd", "osd-provision", "osd-replacements", "osd-settings", "status"}, []string{"discover"}},
		{"the status", cl, func(o client.Object) { o.(*cephv1.CephCluster).Status.Message = "x" }, nil, []string{"osd-provision", "osd-replacements", "config", "disruption", "osd-settings"}},
		{"an OSD is asked to be replaced", osd, func(o client.Object) {
			o.SetAnnotations(map[string]string{"osd.rook.io/replace": "yes-really-replace-osd-3"})
		}, []string{"osd", "osd-replace", "osd-replacements"}, []string{"disruption", "config", "csi-users"}},
		{"an OSD comes up", osd, func(o client.Object) { o.(*appsv1.Deployment).Status.ReadyReplicas = 1 }, []string{"osd", "disruption", "osd-settings"}, []string{"osd-replace", "osd-replacements", "mon", "mgr", "nodedaemon", "cluster"}},
		{"a mgr comes up", mgrs, func(o client.Object) { o.(*appsv1.Deployment).Status.ReadyReplicas = 1 }, []string{"mgr"}, []string{"mon", "osd", "nodedaemon", "cluster"}},
		{"a mon comes up", mons, func(o client.Object) { o.(*appsv1.Deployment).Status.ReadyReplicas = 1 }, []string{"mon"}, []string{"mgr", "osd", "nodedaemon", "cluster"}},
		{"a mon's pod is initialized", monPod, func(o client.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
		}, nil, []string{"mon", "mgr"}},
		{"a mon's pod is ready", monPod, func(o client.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, []string{"mon"}, []string{"mgr"}},
		{"a mon has no place", monPod, func(o client.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes"}}
		}, []string{"mon"}, nil},
		{"a mgr is ready", mgrPod, func(o client.Object) {
			o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, nil, []string{"mon", "mgr"}},
		{"a mgr's label is lost", mgrPod, func(o client.Object) { delete(o.GetLabels(), "mgr_role") }, []string{"mgr"}, []string{"mon"}},
		// Restored by hand it wakes all that could not talk to Ceph without it.
		{"the identity of the cluster", secret("rook-ceph-mon"), changed, []string{"cluster", "mon", "mgr", "osd-provision", "config", "csi-users", "nodedaemon"}, nil},
		{"the key of a mgr", mgrKey, changed, []string{"mgr"}, []string{"mon", "osd", "osd-provision", "config", "csi-users", "nodedaemon"}},
		{"the dashboard's password", password, changed, []string{"mgr"}, []string{"mon", "osd-provision", "config", "csi-users", "nodedaemon"}},
		{"the key of a CSI user", csiKey, changed, []string{"csi-users"}, []string{"mon", "mgr", "osd-provision", "config", "nodedaemon"}},
		{"the key that OSDs are made with", bootstrap, changed, []string{"osd-provision"}, []string{"mon", "mgr", "config", "csi-users", "nodedaemon"}},
		{"the record of settings", record, changed, []string{"config"}, []string{"mon", "mgr", "osd-provision", "csi-users", "nodedaemon"}},
		{"the key of crash collectors", crashKey, changed, []string{"nodedaemon"}, []string{"mon", "mgr", "osd-provision", "config", "csi-users"}},
		{"the mons' keyring", monKey, changed, []string{"cluster", "mon"}, []string{"mgr", "osd-provision", "config", "csi-users", "nodedaemon"}},
		{"what clients are told of the mons", clients, changed, []string{"mon"}, []string{"mgr", "osd-provision", "config", "csi-users", "nodedaemon"}},
		{"a prepare Job ends", job, func(o client.Object) { o.(*batchv1.Job).Status.Succeeded = 1 }, []string{"osd-provision"}, []string{"mon", "disruption"}},
		{"a node is cordoned", node, func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true }, []string{"disruption"}, []string{"osd-settings", "config", "csi-users"}},
		{"a node's kubelet reports", node, func(o client.Object) {
			o.(*corev1.Node).Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		}, nil, []string{"disruption", "osd-settings", "osd-provision", "nodedaemon", "config", "csi-users"}},
		{"a mon's pod moves", monPod, func(o client.Object) { o.(*corev1.Pod).Spec.NodeName = "n2" }, []string{"mon", "nodedaemon"}, []string{"csi-users", "config", "osd-settings"}},
		{"the list of mons", endpoints, func(o client.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"data": "a=1"} }, []string{"csi-users", "mon"}, []string{"osd-settings"}},
		{"a node's report", report, func(o client.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"status": "x"} }, []string{"osd", "osd-provision", "osd-replacements"}, []string{"mon", "csi-users"}},
		{"a ConfigMap of a user", foreign, func(o client.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"a": "b"} }, nil, []string{"mon", "osd", "csi-users", "osd-replacements"}},
	} {
		t.Run(e.name, func(t *testing.T) {
			now, ok := e.old.DeepCopyObject().(client.Object)
			if !ok {
				t.Fatal("not an object")
			}
			now.SetResourceVersion("2")
			e.change(now)
			if _, deployment := now.(*appsv1.Deployment); deployment {
				// Watches look for the OSDs beside it.
				stored, ok := now.DeepCopyObject().(client.Object)
				if !ok {
					t.Fatal("not an object")
				}
				stored.SetResourceVersion("")
				if err := client.IgnoreAlreadyExists(c.Create(t.Context(), stored)); err != nil {
					t.Fatal(err)
				}
			}
			got := woken(t, c, cl, e.old, now)
			t.Logf("wakes %v", got)
			var missing, wrong []string
			for _, n := range e.must {
				if !slices.Contains(got, n) {
					missing = append(missing, n)
				}
			}
			for _, n := range e.not {
				if slices.Contains(got, n) {
					wrong = append(wrong, n)
				}
			}
			if diff := cmp.Diff([2][]string{}, [2][]string{missing, wrong}); diff != "" {
				t.Errorf("woken are %v (-want +not woken, woken in vain):\n%s", got, diff)
			}
		})
	}
}
