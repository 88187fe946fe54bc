// Package selection turns spec.storage and the cluster's nodes into one request
// per node: which devices are to be looked at, with which settings.
//
// It is pure. It must not guess: a setting that cannot be read, a node that does
// not exist and a pattern that is none are problems with the name of the field,
// and a node with a problem gets no request.
package selection

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/validate/storageconfig"
)

// DeviceClassLabel on a node is the device class of all OSDs that are made there.
const DeviceClassLabel = "osd.rook.io/device-class"

// Node is a node that holds OSDs.
type Node struct {
	// Name of the Node object, Host its label kubernetes.io/hostname, to which pods are
	// pinned whatever label spec.storage.nodes goes by.
	Name, Host string
	// Index in spec.storage.nodes, -1 with useAllNodes.
	Index     int
	Selection request.Selection
	Resources corev1.ResourceRequirements
	// CrushRoot above the host, "default" unless the user says otherwise.
	CrushRoot string
}

// Problem is a field that cannot be used. A problem of one node does not keep
// the others from their OSDs.
type Problem struct {
	Field   string
	Message string
	// Node that gets no OSDs because of it; "" when it concerns all of storage.
	Node string
}

// Result of resolving spec.storage.
type Result struct {
	Nodes    []Node
	Problems []Problem
	// Waiting are nodes that are selected and cannot take a pod now, with the reason.
	Waiting map[string]string
}

// Resolve decides which nodes hold OSDs and what each is asked. nodes are all
// nodes of the cluster; hostLabel is the label that spec.storage.nodes name.
func Resolve(spec *cephv1.ClusterSpec, nodes []corev1.Node, hostLabel string) Result {
	res := Result{Waiting: map[string]string{}}
	s := &spec.Storage
	base, problems := Config(s.Config, "spec.storage.config", Settings{})
	res.Problems = append(res.Problems, problems...)
	if len(problems) > 0 {
		return res
	}
	placement := spec.Placement.ForDaemon(cephv1.KeyOSD)
	byHost, pinned := map[string]*corev1.Node{}, map[string][]string{}
	for i := range nodes {
		byHost[nodes[i].Labels[hostLabel]] = &nodes[i]
		pinned[nodes[i].Labels[corev1.LabelHostname]] = append(pinned[nodes[i].Labels[corev1.LabelHostname]], nodes[i].Name)
	}
	// A pod for one of these could come to the other, and make OSDs of that one's disks.
	ambiguous := func(n *corev1.Node, field string) bool {
		same := pinned[n.Labels[corev1.LabelHostname]]
		if len(same) > 1 {
			slices.Sort(same)
			res.Problems = append(res.Problems, Problem{Field: field, Node: n.Name, Message: fmt.Sprintf("the nodes %s all have the label %s=%s, so a pod for node %s could come to another one; give each node its own", strings.Join(same, ", "), corev1.LabelHostname, n.Labels[corev1.LabelHostname], n.Name)})
		}
		return len(same) > 1
	}
	if s.UseAllNodes {
		for i := range nodes {
			if ok, _ := fits(&nodes[i], placement); ok && ambiguous(&nodes[i], "spec.storage.useAllNodes") {
				continue
			}
			res.add(&nodes[i], -1, cephv1.Node{}, spec, base, placement, hostLabel)
		}
	} else {
		for i, n := range s.Nodes {
			node := byHost[n.Name]
			if node == nil {
				res.Problems = append(res.Problems, Problem{
					Field: fmt.Sprintf("spec.storage.nodes[%d].name", i), Node: n.Name,
					Message: fmt.Sprintf("no node has the label %s=%s", hostLabel, n.Name),
				})
				continue
			}
			if ambiguous(node, fmt.Sprintf("spec.storage.nodes[%d].name", i)) {
				continue
			}
			res.add(node, i, n, spec, base, placement, hostLabel)
		}
	}
	slices.SortFunc(res.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return res
}

// add resolves one node.
func (r *Result) add(node *corev1.Node, i int, n cephv1.Node, spec *cephv1.ClusterSpec, base Settings, placement cephv1.Placement, hostLabel string) {
	if ok, why := fits(node, placement); !ok {
		if i >= 0 {
			r.Problems = append(r.Problems, Problem{Field: fmt.Sprintf("spec.storage.nodes[%d].name", i), Node: n.Name, Message: "placement keeps OSDs off this node: " + why})
		}
		return
	}
	field := "spec.storage"
	if i >= 0 {
		field = fmt.Sprintf("spec.storage.nodes[%d]", i)
	}
	settings, problems := Config(n.Config, field+".config", base)
	if class := node.Labels[DeviceClassLabel]; class != "" && len(problems) == 0 {
		if settings.Device.DeviceClass != "" && settings.Device.DeviceClass != class {
			problems = append(problems, Problem{Field: field + ".config[deviceClass]",
				Message: fmt.Sprintf("says %q, but the node's label %s says %q; make them agree", settings.Device.DeviceClass, DeviceClassLabel, class)})
		}
		settings.Device.DeviceClass = class
	}
	sel, more := devices(chosen(spec.Storage.Selection, n.Selection), field, settings)
	problems = append(problems, more...)
	if _, err := sel.Compile(); err != nil {
		problems = append(problems, Problem{Field: field, Message: err.Error()})
	}
	for j := range problems {
		problems[j].Node = node.Name
	}
	r.Problems = append(r.Problems, problems...)
	if len(problems) > 0 {
		return
	}
	if why := unavailable(node); why != "" && !spec.Storage.ScheduleAlways {
		r.Waiting[node.Name] = why
	}
	r.Nodes = append(r.Nodes, Node{
		Name: node.Name, Host: node.Labels[corev1.LabelHostname], Index: i, Selection: sel, Resources: n.Resources, CrushRoot: settings.CrushRoot,
	})
}

// chosen is the node's own selection, or the cluster's where the node has none.
func chosen(cluster, node cephv1.Selection) cephv1.Selection {
	if node.UseAllDevices == nil && node.DeviceFilter == "" && node.DevicePathFilter == "" && len(node.Devices) == 0 {
		return cluster
	}
	return node
}

// devices turns the API's selection into the request's.
func devices(s cephv1.Selection, field string, base Settings) (request.Selection, []Problem) {
	sel := request.Selection{
		UseAll: s.UseAllDevices != nil && *s.UseAllDevices, Filter: s.DeviceFilter, PathFilter: s.DevicePathFilter, Config: base.Device,
	}
	var problems []Problem
	for i, d := range s.Devices {
		at := fmt.Sprintf("%s.devices[%d]", field, i)
		ref := d.FullPath
		if ref == "" {
			ref = d.Name
		}
		if ref == "" {
			problems = append(problems, Problem{Field: at, Message: "a device needs a name or a fullpath"})
			continue
		}
		c, more := Config(d.Config, at+".config", base)
		problems = append(problems, more...)
		sel.Named = append(sel.Named, request.Named{Ref: ref, Config: c.Device})
	}
	return sel, problems
}

// Settings are what the config maps say.
type Settings struct {
	Device    choice.Config
	CrushRoot string
}

// Config reads a config map over the settings above it. Keys that are not known
// and values that cannot be read are problems that name the key.
func Config(m map[string]string, field string, over Settings) (Settings, []Problem) {
	s := over
	if s.CrushRoot == "" {
		s.CrushRoot = "default"
	}
	given, bad := storageconfig.Parse(m)
	var problems []Problem
	for _, b := range bad {
		problems = append(problems, Problem{Field: fmt.Sprintf("%s[%s]", field, b.Key), Message: b.Problem + "; " + b.Hint})
	}
	s.take(m, given)
	return s, problems
}

// take lets the keys that the map has replace what was there before.
func (s *Settings) take(m map[string]string, given storageconfig.Settings) {
	d := &s.Device
	for key := range m {
		switch key {
		case storageconfig.DatabaseSizeMB:
			d.DatabaseSizeMB = uint64(given.DatabaseSizeMB)
		case storageconfig.OSDsPerDevice:
			d.OSDsPerDevice = given.OSDsPerDevice
		case storageconfig.EncryptedDevice:
			d.Encrypted = given.EncryptedDevice
		case storageconfig.MetadataDevice:
			d.MetadataDevice = given.MetadataDevice
		case storageconfig.DeviceClass:
			d.DeviceClass = given.DeviceClass
		case storageconfig.CrushRoot:
			s.CrushRoot = given.CrushRoot
		case storageconfig.InitialWeight:
			d.InitialWeight = number(given.InitialWeight)
		case storageconfig.PrimaryAffinity:
			d.PrimaryAffinity = number(given.PrimaryAffinity)
		}
	}
	if s.CrushRoot == "" {
		s.CrushRoot = "default"
	}
}

// number is a setting as Ceph's command line takes it, "" when it is not set.
func number(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

// fits says whether the placement of OSDs lets them run on a node. Affinity and
// tolerations are what decides; a cordon does not, it only delays.
func fits(node *corev1.Node, p cephv1.Placement) (bool, string) {
	if p.NodeAffinity != nil && p.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		sel, err := nodeaffinity.NewNodeSelector(p.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			return false, "its nodeAffinity cannot be read: " + err.Error()
		}
		if !sel.Match(node) {
			return false, "the node does not match its nodeAffinity"
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule || passing(t) {
			continue
		}
		if !slices.ContainsFunc(p.Tolerations, func(tol corev1.Toleration) bool { return tolerates(tol, t) }) {
			return false, fmt.Sprintf("taint %s=%s:%s is not tolerated", t.Key, t.Value, t.Effect)
		}
	}
	return true, ""
}

// passing taints say how a node is today, not what it is for.
func passing(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") }

func tolerates(tol corev1.Toleration, t corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	return tol.Operator == corev1.TolerationOpExists || (tol.Operator == "" || tol.Operator == corev1.TolerationOpEqual) && tol.Value == t.Value
}

// unavailable says why a node cannot take a pod now.
func unavailable(n *corev1.Node) string {
	if n.Spec.Unschedulable {
		return "the node is cordoned"
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "the node is not ready: " + c.Message
		}
	}
	return ""
}

// Topology is the CRUSH location that a node's labels give, as Ceph takes it.
// The host comes last. A value that stands at two levels would put one bucket
// into two places and is a problem, unless unchecked is true.
func Topology(labels map[string]string, host, root string, unchecked bool) (string, error) {
	levels := []struct{ crush, label string }{
		{"region", corev1.LabelTopologyRegion}, {"zone", corev1.LabelTopologyZone},
		{"datacenter", "topology.rook.io/datacenter"}, {"room", "topology.rook.io/room"}, {"pod", "topology.rook.io/pod"},
		{"pdu", "topology.rook.io/pdu"}, {"row", "topology.rook.io/row"}, {"rack", "topology.rook.io/rack"}, {"chassis", "topology.rook.io/chassis"},
	}
	if root == "" {
		root = "default"
	}
	host = strings.ReplaceAll(host, ".", "-")
	parts := []string{"root=" + root, "host=" + host}
	seen := map[string]string{root: "root", host: "host"}
	for _, l := range levels {
		v := strings.ReplaceAll(labels[l.label], ".", "-")
		if v == "" {
			continue
		}
		if other, twice := seen[v]; twice && !unchecked {
			return "", fmt.Errorf("label %s has the value %q, which is also the %s: a CRUSH bucket cannot be in two places", l.label, v, other)
		}
		seen[v] = l.crush
		parts = append(parts, l.crush+"="+v)
	}
	return strings.Join(parts, " "), nil
}
