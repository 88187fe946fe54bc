package selection

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/choice"
)

func node(name string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

func names(r Result) []string {
	var out []string
	for _, n := range r.Nodes {
		out = append(out, n.Name)
	}
	return out
}

func TestAllNodesByPlacement(t *testing.T) {
	nodes := []corev1.Node{
		node("n1"), node("n2", func(n *corev1.Node) { n.Labels["role"] = "storage" }),
		node("control", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "control", Effect: corev1.TaintEffectNoSchedule}}
		}),
		node("cordoned", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}}
		}),
	}
	spec := cephv1.ClusterSpec{Storage: cephv1.StorageScopeSpec{UseAllNodes: true, Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}}}
	r := Resolve(&spec, nodes, corev1.LabelHostname)
	if diff := cmp.Diff([]string{"cordoned", "n1", "n2"}, names(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Waiting["cordoned"] == "" || len(r.Waiting) != 1 {
		t.Errorf("waiting = %v", r.Waiting)
	}
	spec.Placement = cephv1.PlacementSpec{"osd": {
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "role", Operator: corev1.NodeSelectorOpIn, Values: []string{"storage"}}}},
		}}},
	}}
	if diff := cmp.Diff([]string{"n2"}, names(Resolve(&spec, nodes, corev1.LabelHostname))); diff != "" {
		t.Errorf("by affinity (-want +got):\n%s", diff)
	}
}

func TestSettingsMergeFromClusterOverNodeToDevice(t *testing.T) {
	spec := cephv1.ClusterSpec{Storage: cephv1.StorageScopeSpec{
		Config: map[string]string{"osdsPerDevice": "2", "deviceClass": "hdd"},
		Nodes: []cephv1.Node{{
			Name: "n1", Config: map[string]string{"deviceClass": "ssd"},
			Selection: cephv1.Selection{Devices: []cephv1.Device{
				{Name: "sdb"}, {FullPath: "/dev/disk/by-id/x", Config: map[string]string{"encryptedDevice": "true", "osdsPerDevice": "1"}},
			}},
		}},
	}}
	r := Resolve(&spec, []corev1.Node{node("n1")}, corev1.LabelHostname)
	if len(r.Problems) != 0 || len(r.Nodes) != 1 {
		t.Fatalf("%+v", r)
	}
	sel := r.Nodes[0].Selection
	if diff := cmp.Diff(choice.Config{OSDsPerDevice: 2, DeviceClass: "ssd"}, sel.Named[0].Config); diff != "" {
		t.Errorf("sdb (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(choice.Config{OSDsPerDevice: 1, DeviceClass: "ssd", Encrypted: true}, sel.Named[1].Config); diff != "" {
		t.Errorf("by-id (-want +got):\n%s", diff)
	}
}

func TestProblemsNameTheFieldAndCostOneNodeOnly(t *testing.T) {
	ok := cephv1.Node{Name: "n1", Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}}
	cases := []struct {
		name  string
		bad   cephv1.Node
		field string
	}{
		{"no such node", cephv1.Node{Name: "nowhere"}, "spec.storage.nodes[1].name"},
		{"unknown key", cephv1.Node{Name: "n2", Config: map[string]string{"osdPerDevice": "2"}}, "spec.storage.nodes[1].config[osdPerDevice]"},
		{"bad number", cephv1.Node{Name: "n2", Config: map[string]string{"databaseSizeMB": "10G"}}, "spec.storage.nodes[1].config[databaseSizeMB]"},
		{"bad pattern", cephv1.Node{Name: "n2", Selection: cephv1.Selection{DeviceFilter: "sd["}}, "spec.storage.nodes[1]"},
		{"nameless device", cephv1.Node{Name: "n2", Selection: cephv1.Selection{Devices: []cephv1.Device{{}}}}, "spec.storage.nodes[1].devices[0]"},
		{"class against label", cephv1.Node{Name: "n2", Config: map[string]string{"deviceClass": "hdd"}}, "spec.storage.nodes[1].config[deviceClass]"},
	}
	nodes := []corev1.Node{node("n1"), node("n2", func(n *corev1.Node) { n.Labels[DeviceClassLabel] = "ssd" })}
	for _, c := range cases {
		spec := cephv1.ClusterSpec{Storage: cephv1.StorageScopeSpec{Nodes: []cephv1.Node{ok, c.bad}}}
		r := Resolve(&spec, nodes, corev1.LabelHostname)
		if diff := cmp.Diff([]string{"n1"}, names(r)); diff != "" {
			t.Errorf("%s: the other node must get its OSDs (-want +got):\n%s", c.name, diff)
		}
		if len(r.Problems) != 1 || r.Problems[0].Field != c.field || r.Problems[0].Message == "" {
			t.Errorf("%s: %+v, want one about %s", c.name, r.Problems, c.field)
		}
	}
}

func TestTopology(t *testing.T) {
	got, err := Topology(map[string]string{corev1.LabelTopologyZone: "zone.a", "topology.rook.io/rack": "r1"}, "node1.example.com", "", false)
	if err != nil || got != "root=default host=node1-example-com zone=zone-a rack=r1" {
		t.Errorf("%q, %v", got, err)
	}
	for _, labels := range []map[string]string{
		{corev1.LabelTopologyZone: "x", "topology.rook.io/rack": "x"},
		{"topology.rook.io/rack": "node1"},
	} {
		if _, err := Topology(labels, "node1", "", false); err == nil || !strings.Contains(err.Error(), "two places") {
			t.Errorf("%v: %v", labels, err)
		}
		if got, err := Topology(labels, "node1", "", true); err != nil || !strings.Contains(got, "rack=") {
			t.Errorf("%v, unchecked: %q, %v", labels, got, err)
		}
	}
}

// Nodes may be named by another label; pods are pinned by kubernetes.io/hostname.
func TestPodsArePinnedByTheHostname(t *testing.T) {
	n := node("n1", func(n *corev1.Node) { n.Labels["example.com/name"] = "one" })
	spec := cephv1.ClusterSpec{Storage: cephv1.StorageScopeSpec{
		Nodes: []cephv1.Node{{Name: "one"}}, Selection: cephv1.Selection{UseAllDevices: ptr.To(true)},
	}}
	r := Resolve(&spec, []corev1.Node{n}, "example.com/name")
	if len(r.Nodes) != 1 || r.Nodes[0].Host != "n1" {
		t.Errorf("%+v", r)
	}
}

// A pod is pinned by a label. Where two nodes have the same, what is asked of the one could
// be done to the disks of the other.
func TestNodesWithOneHostnameGetNoOSDs(t *testing.T) {
	twin := func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "twin" }
	nodes := []corev1.Node{node("n1"), node("n2", twin), node("n3", twin), node("n4", twin, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "control", Effect: corev1.TaintEffectNoSchedule}}
	})}
	for name, c := range map[string]struct {
		storage cephv1.StorageScopeSpec
		names   []string
		field   string
	}{
		"all nodes":   {cephv1.StorageScopeSpec{UseAllNodes: true}, []string{"n1"}, "spec.storage.useAllNodes"},
		"named nodes": {cephv1.StorageScopeSpec{Nodes: []cephv1.Node{{Name: "n1"}, {Name: "twin"}}}, []string{"n1"}, "spec.storage.nodes[1].name"},
		"others":      {cephv1.StorageScopeSpec{Nodes: []cephv1.Node{{Name: "n1"}}}, []string{"n1"}, ""},
	} {
		c.storage.UseAllDevices = ptr.To(true)
		r := Resolve(&cephv1.ClusterSpec{Storage: c.storage}, nodes, corev1.LabelHostname)
		if diff := cmp.Diff(c.names, names(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (len(r.Problems) > 0) != (c.field != "") || c.field != "" && (r.Problems[0].Field != c.field || !strings.Contains(r.Problems[0].Message, "n2, n3")) {
			t.Errorf("%s: %+v", name, r.Problems)
		}
	}
}
