package spec

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// MonitorKind is the kind by which the Prometheus operator knows what to scrape.
func MonitorKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
}

// Names of the ServiceMonitors: those of the Services that they are about.
const (
	MgrMonitor      = "rook-ceph-mgr"
	ExporterMonitor = ExporterApp
)

// managedByLabel among the user's labels for monitoring tells the metrics of several
// operators apart.
const managedByLabel = "rook.io/managedBy"

// ServiceMonitor has Prometheus scrape the Service app, on its port of that name.
func ServiceMonitor(c podspec.Cluster, app, port string, interval *metav1.Duration, labels cephv1.Labels) *unstructured.Unstructured {
	endpoint := map[string]any{"port": port, "path": "/metrics"}
	if interval != nil && interval.Duration > 0 {
		endpoint["interval"] = promDuration(interval.Duration)
	}
	if by := labels[managedByLabel]; by != "" {
		endpoint["relabelings"] = []any{map[string]any{"action": "replace", "targetLabel": "managedBy", "replacement": by}}
	}
	if app == ExporterApp {
		// The exporter names the daemon's node itself.
		endpoint["honorLabels"] = true
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"namespaceSelector": map[string]any{"matchNames": []any{c.Namespace}},
			"selector":          map[string]any{"matchLabels": map[string]any{"app": app, "rook_cluster": c.Namespace}},
			"endpoints":         []any{endpoint},
		},
	}}
	u.SetGroupVersionKind(MonitorKind())
	u.SetName(app)
	u.SetNamespace(c.Namespace)
	all := map[string]string{"team": "rook"}
	for k, v := range labels {
		all[k] = v
	}
	u.SetLabels(all)
	u.SetOwnerReferences([]metav1.OwnerReference{c.Owner})
	return u
}

// MonitorRef names a ServiceMonitor to delete.
func MonitorRef(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(MonitorKind())
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

// promDuration writes a duration as Prometheus reads it: whole units, the largest
// first, and none that is nought (Go's 1m0s is an error there in old versions).
func promDuration(d time.Duration) string {
	out := ""
	for _, u := range []struct {
		unit time.Duration
		word string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.unit; n > 0 {
			out += strconv.FormatInt(int64(n), 10) + u.word
			d -= n * u.unit
		}
	}
	return out
}
