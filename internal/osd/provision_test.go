package osd

import (
	"errors"
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

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/selection"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

func TestWhatAPreparePodWaitsFor(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: "copy-bin", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	for _, c := range []struct {
		name   string
		status corev1.PodStatus
		want   string
	}{
		{"on its way", waiting("PodInitializing", ""), ""},
		{"running", corev1.PodStatus{}, ""},
		{"no node", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: 3 Insufficient memory."}}},
			"has no node: 0/3 nodes are available: 3 Insufficient memory."},
		{"no image", waiting("ImagePullBackOff", "Back-off pulling image\nmore"), "cannot start container copy-bin: ImagePullBackOff: Back-off pulling image"},
		{"no configuration", waiting("CreateContainerConfigError", `secret "x" not found`), `cannot start container copy-bin: CreateContainerConfigError: secret "x" not found`},
	} {
		if got := waitsFor(&corev1.Pod{Status: c.status}); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// A prepare Job that cannot run is a problem with the pod's reason, one that takes long
// says since when and when it ends, and it has a deadline.
func TestAPrepareJobThatDoesNotEnd(t *testing.T) {
	now := time.Unix(1790000000, 0)
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	n := selection.Node{Name: "n1", Host: "n1"}
	seen := ProvisionSeen{
		Now: now, Founded: true, Cluster: podspec.Cluster{Namespace: "ns", FSID: "f", CephImage: "i"},
		Jobs: map[string]*batchv1.Job{}, Stuck: map[string]string{}, Reports: map[string]Report{}, Devices: map[string]string{},
	}
	c := &Provisioner{}
	var p kit.Plan
	if _, _, err := c.node(cl, seen, n, &p); err != nil || len(p.Create) != 1 {
		t.Fatalf("%s %v", p, err)
	}
	job, ok := p.Create[0].(*batchv1.Job)
	if !ok || job.Spec.ActiveDeadlineSeconds == nil || *job.Spec.ActiveDeadlineSeconds != int64(spec.PrepareDeadline.Seconds()) {
		t.Fatalf("no deadline: %+v", p.Create[0])
	}
	job.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
	seen.Jobs["n1"] = job
	look := func(want nodeState, says ...string) {
		t.Helper()
		var p kit.Plan
		state, why, err := c.node(cl, seen, n, &p)
		if err != nil || state != want || len(p.Delete)+len(p.Create) != 0 {
			t.Errorf("%v %q %v %s", state, why, err, p)
		}
		for _, s := range says {
			if !strings.Contains(why, s) {
				t.Errorf("%q does not say %q", why, s)
			}
		}
	}
	look(nodeBusy, "looking at its disks")
	seen.Now = now.Add(10 * time.Minute)
	look(nodeBusy, "since "+job.CreationTimestamp.UTC().Format(time.RFC3339), job.Name, "1h0m0s")
	seen.Stuck["n1"] = "pod x has no node: none"
	look(nodeBroken, "pod x has no node: none")
	// Another request: what has never run is cleared away at once.
	job.Labels[spec.RequestLabel] = "old"
	p = kit.Plan{}
	if state, _, err := c.node(cl, seen, n, &p); err != nil || state != nodeBusy || len(p.Delete) != 1 {
		t.Errorf("%v %v %s", state, err, p)
	}
}

// The label by which spec.storage.nodes names nodes need not be the hostname, and a node
// that is gone leaves the Deployment where it was made for.
func TestNodesByAnotherLabelAndNodesThatAreGone(t *testing.T) {
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	cl.Spec.Storage.Nodes = []cephv1.Node{{Name: "rack1-slot2", Config: map[string]string{"crushRoot": "fast"}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1.example.com", Labels: map[string]string{corev1.LabelHostname: "n1", "example.com/slot": "rack1-slot2"}}}
	record := plan.Record{Node: "n1.example.com", Host: "n1"}
	record.ID, record.UUID, record.Mode = 0, "u", "raw"
	seen := DaemonSeen{
		HostLabel: "example.com/slot", Nodes: nodesOf(node), Live: deployments(), Wanted: deployments(),
		State:     plan.State{Answered: true, Known: map[int]plan.Known{0: {UUID: "u"}}, Live: map[int]plan.Live{}, Records: []plan.Record{record}},
		Decisions: []plan.Decision{{ID: 0, What: plan.Create, Record: record}},
	}
	seen.build(cl)
	if d := seen.Wanted[0]; d == nil || !strings.HasPrefix(d.Annotations[spec.LocationAnnotation], "root=fast host=n1") {
		t.Fatalf("%v %+v", seen.Problems, d)
	}
	// The Node object goes: nothing of the template changes.
	made := seen.Wanted[0]
	record.Host, record.NodeGone = "n1.example.com", true
	seen.Nodes, seen.Live, seen.Outdated = nodesOf(), deployments(), nil
	seen.Live[0] = made
	seen.State.Live[0] = liveOf(made)
	seen.Decisions = []plan.Decision{{ID: 0, What: plan.Keep, Record: record}}
	seen.build(cl)
	if host := seen.Wanted[0].Spec.Template.Spec.NodeSelector[corev1.LabelHostname]; host != "n1" || len(seen.Outdated) != 0 {
		t.Errorf("pinned to %q, outdated %v", host, seen.Outdated)
	}
}

func nodesOf(nodes ...*corev1.Node) map[string]*corev1.Node {
	out := map[string]*corev1.Node{}
	for _, n := range nodes {
		out[n.Name] = n
	}
	return out
}

func deployments() map[int]*appsv1.Deployment { return map[int]*appsv1.Deployment{} }

// A device that the spec names and the node does not have is a problem with its field.
func TestADeviceThatDoesNotExist(t *testing.T) {
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	cl.Spec.Storage.Nodes = []cephv1.Node{{Name: "n1", Selection: cephv1.Selection{Devices: []cephv1.Device{{Name: "/dev/nowhere"}}}}}
	n := selection.Node{Name: "n1", Host: "n1"}
	seen := ProvisionSeen{Founded: true, Cluster: podspec.Cluster{Namespace: "ns", FSID: "f", CephImage: "i"}, Jobs: map[string]*batchv1.Job{}, Reports: map[string]Report{}}
	var p kit.Plan
	if _, _, err := (&Provisioner{}).node(cl, seen, n, &p); err != nil || len(p.Create) != 1 {
		t.Fatalf("%s %v", p, err)
	}
	seen.Reports["n1"] = readReport(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{spec.RequestLabel: p.Create[0].GetLabels()[spec.RequestLabel]}},
		Data:       map[string]string{"status": `{"status":"completed"}`, "problems": "[]", "devices": `[{"path":"/dev/sdb","reason":"NotSelected"},{"path":"/dev/nowhere","reason":"NoSuchDevice"}]`},
	})
	p = kit.Plan{}
	state, why, err := (&Provisioner{}).node(cl, seen, n, &p)
	if err != nil || state != nodeLacks || !strings.Contains(why, "spec.storage.nodes[0].devices: the node has no device /dev/nowhere") {
		t.Errorf("%v %q %v", state, why, err)
	}
}

// Missing devices have a reason of their own only when nothing else is left to do: a node
// that is still looked at, or that has failed, may be about to get an OSD.
func TestMissingDevicesAloneAreTheirOwnReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      outcome
		reason string
		says   []string
	}{
		{"missing alone", outcome{lacks: []string{"n1: no /dev/x"}}, spec.ReasonDeviceMissing, []string{"n1: no /dev/x"}},
		{"another node is busy", outcome{lacks: []string{"n1: no /dev/x"}, busy: []string{"n2: looking"}}, "StorageProblem", []string{"n1: no /dev/x", "n2: looking"}},
		{"another node has failed", outcome{lacks: []string{"n1: no /dev/x"}, broken: []string{"n2: mkfs"}}, "StorageProblem", []string{"n1: no /dev/x", "n2: mkfs"}},
		{"another node's disk is replaced", outcome{lacks: []string{"n1: no /dev/x"}, swaps: []string{"n2: osd.3"}}, "StorageProblem", []string{"n1: no /dev/x", "n2: osd.3"}},
		{"busy alone", outcome{busy: []string{"n2: looking"}}, "PreparingDisks", []string{"n2"}},
	} {
		var p kit.Plan
		finish(ProvisionSeen{}, c.o, &p)
		if p.Wait == nil || p.Wait.Reason != c.reason {
			t.Errorf("%s: %+v", c.name, p.Wait)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(p.Wait.Message, s) {
				t.Errorf("%s: %q does not say %q", c.name, p.Wait.Message, s)
			}
		}
	}
}

// What the discovery daemon sees is in the operator's namespace, and matters to clusters in
// any other.
func TestDiscoveredDevicesReachClustersOfAllNamespaces(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), cephv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	here := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "a"}}
	there := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "b"}}
	store, err := kittest.NewStore(scheme, here, there)
	if err != nil {
		t.Fatal(err)
	}
	found := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "local-device-n1", Labels: map[string]string{"app": "rook-discover"}}}
	keys := map[kit.Key]bool{}
	for _, w := range ProvisionOptions().Watches {
		if _, ok := w.Object.(*corev1.ConfigMap); !ok {
			continue
		}
		for _, k := range w.Map(t.Context(), store.Client(), found) {
			keys[k] = true
		}
	}
	want := map[kit.Key]bool{{Namespace: "rook-ceph", Name: "a"}: true, {Namespace: "elsewhere", Name: "b"}: true}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
