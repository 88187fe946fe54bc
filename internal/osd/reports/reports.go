// Package reports reads what nodes have reported of their disks, from the status
// ConfigMaps and from the records on OSD Deployments. It must not judge which
// record counts: internal/osd/plan and internal/osd/replace/plan do.
package reports

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// StatusMaps are the nodes' status ConfigMaps by name.
func StatusMaps(ctx context.Context, r client.Reader, ns string) (map[string]*corev1.ConfigMap, error) {
	list, err := kube.List(ctx, r, &corev1.ConfigMapList{}, client.InNamespace(ns), client.MatchingLabels{"app": "rook-ceph-osd", "status": "provisioning"})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes' reports: %w", err)
	}
	byName := map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// Records are the OSDs of a node's status ConfigMap.
func Records(cm *corev1.ConfigMap) ([]plan.Record, error) {
	var osds []prepare.Result
	if err := json.Unmarshal([]byte(cm.Data["osds"]), &osds); err != nil {
		if cm.Data["osds"] == "" {
			return nil, nil // the node has only begun
		}
		return nil, fmt.Errorf("ConfigMap %s: its list of OSDs cannot be read: %w", cm.Name, err)
	}
	var status struct {
		OSDs []struct {
			Node string `json:"nodeName"`
		} `json:"osds"`
	}
	node := cm.Labels["node"]
	if json.Unmarshal([]byte(cm.Data["status"]), &status) == nil && len(status.OSDs) > 0 {
		node = status.OSDs[0].Node // a label may be too short for a node's name
	}
	records := make([]plan.Record, 0, len(osds))
	for _, o := range osds {
		records = append(records, plan.Record{Result: o, Node: node, Host: node})
	}
	return records, nil
}

// OnDeployment is the record on an OSD's Deployment; false when there is none that
// can be read. Node is not known of it, only the host.
func OnDeployment(d *appsv1.Deployment) (plan.Record, bool) {
	var r prepare.Result
	if json.Unmarshal([]byte(d.Annotations[spec.RecordAnnotation]), &r) != nil || r.UUID == "" {
		return plan.Record{}, false
	}
	host := spec.HostOf(d)
	return plan.Record{Result: r, Node: host, Host: host}, true
}

// Swaps is what the node has found out about pending replacements. No entry is no
// outcome; one that cannot be read is an error.
func Swaps(cm *corev1.ConfigMap) (swap.Outcome, error) {
	var o swap.Outcome
	value := cm.Data["swaps"]
	if value == "" {
		return o, nil
	}
	if err := json.Unmarshal([]byte(value), &o); err != nil {
		return swap.Outcome{}, fmt.Errorf("ConfigMap %s: its swaps cannot be read: %w", cm.Name, err)
	}
	return o, nil
}

// Devices are the lines of a node's device report.
func Devices(cm *corev1.ConfigMap) ([]provision.Device, error) {
	var d []provision.Device
	if err := json.Unmarshal([]byte(cm.Data["devices"]), &d); err != nil && cm.Data["devices"] != "" {
		return nil, fmt.Errorf("ConfigMap %s: its devices cannot be read: %w", cm.Name, err)
	}
	return d, nil
}

// Replaced is what the node has reported of its last replacement; nil when there is
// nothing that can be read.
func Replaced(cm *corev1.ConfigMap) *request.Replaced {
	if cm == nil || cm.Data[request.ReplacedKey] == "" {
		return nil
	}
	var r request.Replaced
	if json.Unmarshal([]byte(cm.Data[request.ReplacedKey]), &r) != nil {
		return nil
	}
	return &r
}
