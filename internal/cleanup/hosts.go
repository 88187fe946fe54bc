// Package cleanup decides what a deleted CephCluster leaves on which hosts, and
// builds the Jobs that remove it.
//
// It is pure. It must not take a host off the list because something could not be
// read or is down: a host leaves it only by a Job that has succeeded or by the
// user's word.
package cleanup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

const (
	// ConfigMap keeps the list of hosts from before the first daemon is deleted until
	// the CephCluster is gone: Deployments that say where things are do not live that
	// long.
	ConfigMap = "rook-ceph-cleanup"
	// hostsKey holds the list, fsidKey the cluster's fsid.
	hostsKey = "hosts"
	fsidKey  = "fsid"
	// SkipAnnotation on a CephCluster names hosts, separated by commas, that are not
	// to be cleaned: machines that are gone for good. What is on them stays.
	SkipAnnotation = "castellan.ceph.io/skip-cleanup-of"
)

// Host is a machine that holds something of the cluster.
type Host struct {
	// Name is the value of the node's label kubernetes.io/hostname.
	Name string `json:"name"`
	// Node is the name of the node, where it is known.
	Node string     `json:"node,omitempty"`
	Mons []string   `json:"mons,omitempty"`
	OSDs []task.OSD `json:"osds,omitempty"`
}

// Hosts by name.
type Hosts map[string]Host

// Facts are the durable objects that say where a cluster's data is.
type Facts struct {
	Namespace, FSID string
	Nodes           []corev1.Node
	Mons            endpoints.List
	// Deployments of mons and OSDs.
	Deployments []appsv1.Deployment
	// Reports are the nodes' status ConfigMaps.
	Reports []corev1.ConfigMap
}

// nodes finds nodes by either name.
type nodes struct{ byName, byHost map[string]string } // each to the other

func index(list []corev1.Node) nodes {
	n := nodes{byName: map[string]string{}, byHost: map[string]string{}}
	for _, node := range list {
		host := cmp.Or(node.Labels[corev1.LabelHostname], node.Name)
		n.byName[node.Name], n.byHost[host] = host, node.Name
	}
	return n
}

// Find gives the hosts that hold a mon's store or an OSD. A report that cannot be
// read is an error: it may name OSDs.
func Find(f Facts) (Hosts, error) {
	found := Hosts{}
	n := index(f.Nodes)
	for _, id := range f.Mons.IDs() {
		if p := f.Mons.Mons[id].Place; p != nil {
			host := cmp.Or(p.Hostname, n.byName[p.Name], p.Name)
			found.add(Host{Name: host, Node: cmp.Or(n.byHost[host], p.Name), Mons: []string{id}})
		}
	}
	for i := range f.Deployments {
		d := &f.Deployments[i]
		host := d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]
		if host == "" {
			continue // its data is on a volume of Kubernetes
		}
		h := Host{Name: host, Node: n.byHost[host]}
		switch d.Labels["app"] {
		case "rook-ceph-mon":
			if id := d.Labels["mon"]; id != "" {
				h.Mons = []string{id}
			}
		case "rook-ceph-osd":
			if o, ok := osdOf(d); ok {
				h.OSDs = []task.OSD{o}
			}
		default:
			continue
		}
		found.add(h)
	}
	for i := range f.Reports {
		h, holds, err := reported(&f.Reports[i], f.FSID, n)
		if err != nil {
			return nil, err
		}
		if holds {
			found.add(h)
		}
	}
	return found, nil
}

// osdOf reads an OSD's number and uuid from what its container is told, which is
// the same in every operator's Deployments.
func osdOf(d *appsv1.Deployment) (task.OSD, bool) {
	var o task.OSD
	if _, err := fmt.Sscan(d.Labels["ceph-osd-id"], &o.ID); err != nil {
		return o, false
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "ROOK_OSD_UUID" {
				o.UUID = e.Value
			}
		}
	}
	return o, o.UUID != ""
}

// reported reads a node's report. A node whose look at its disks has not ended well
// may hold OSDs that it has not reported.
func reported(cm *corev1.ConfigMap, fsid string, n nodes) (Host, bool, error) {
	var status struct {
		Status string `json:"status"`
		OSDs   []struct {
			Node string `json:"nodeName"`
		} `json:"osds"`
	}
	if err := json.Unmarshal([]byte(cm.Data["status"]), &status); err != nil {
		return Host{}, false, fmt.Errorf("reading the report of a node from ConfigMap %s: %w", cm.Name, err)
	}
	var osds []prepare.Result
	if s := cm.Data["osds"]; s != "" {
		if err := json.Unmarshal([]byte(s), &osds); err != nil {
			return Host{}, false, fmt.Errorf("reading the OSDs of a node from ConfigMap %s: %w", cm.Name, err)
		}
	}
	node := cm.Labels["node"]
	if len(status.OSDs) > 0 && status.OSDs[0].Node != "" {
		node = status.OSDs[0].Node // a label may be too short for a node's name
	}
	h := Host{Name: cmp.Or(n.byName[node], node), Node: node}
	for _, o := range osds {
		if o.FSID == fsid {
			h.OSDs = append(h.OSDs, task.OSD{ID: o.ID, UUID: o.UUID})
		}
	}
	return h, node != "" && (len(h.OSDs) > 0 || status.Status != "completed"), nil
}

// add merges a host into the list.
func (hs Hosts) add(h Host) {
	was := hs[h.Name]
	was.Name, was.Node = h.Name, cmp.Or(was.Node, h.Node)
	was.Mons = slices.Compact(slices.Sorted(slices.Values(slices.Concat(was.Mons, h.Mons))))
	was.OSDs = slices.Concat(was.OSDs, h.OSDs)
	slices.SortFunc(was.OSDs, func(a, b task.OSD) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.UUID, b.UUID))
	})
	was.OSDs = slices.Compact(was.OSDs)
	hs[h.Name] = was
}

// With is the union of two lists.
func (hs Hosts) With(more Hosts) Hosts {
	u := Hosts{}
	for _, list := range []Hosts{hs, more} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			u.add(list[name])
		}
	}
	return u
}

// Names in order.
func (hs Hosts) Names() []string { return slices.Sorted(maps.Keys(hs)) }

// Without takes the hosts off that the user has named, by host or node name.
func (hs Hosts) Without(annotation string) Hosts {
	left := maps.Clone(hs)
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.TrimSpace(name)
		maps.DeleteFunc(left, func(_ string, h Host) bool { return name != "" && (h.Name == name || h.Node == name) })
	}
	return left
}

// Data is the content of the ConfigMap.
func (hs Hosts) Data(fsid string) (map[string]string, error) {
	list := make([]Host, 0, len(hs))
	for _, name := range hs.Names() {
		list = append(list, hs[name])
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encoding the list of hosts: %w", err)
	}
	return map[string]string{hostsKey: string(b), fsidKey: fsid}, nil
}

// Parse reads the content of the ConfigMap.
func Parse(data map[string]string) (hs Hosts, fsid string, err error) {
	var list []Host
	if err := json.Unmarshal([]byte(data[hostsKey]), &list); err != nil {
		return nil, "", fmt.Errorf("reading the list of hosts from ConfigMap %s: %w", ConfigMap, err)
	}
	hs = Hosts{}
	for _, h := range list {
		hs.add(h)
	}
	return hs, data[fsidKey], nil
}
