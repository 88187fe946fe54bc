package discover

import (
	"context"

	"github.com/castellan-storage/castellan/internal/node/statusmap"
)

// App is the label app of the daemon's pods and of the ConfigMaps that it writes.
const App = "rook-discover"

// NodeLabel on a ConfigMap is the name of its node, where it fits.
const NodeLabel = "rook.io/node"

// maxLabel is the length that Kubernetes allows for a label's value.
const maxLabel = 63

// MapName is the name of a node's ConfigMap.
func MapName(node string) string { return "local-device-" + node }

// Map is the ConfigMap for what was found. The label "owned" is by what the
// operator's cache selects.
func Map(namespace, node string, devices []byte) map[string]any {
	labels := map[string]any{"app": App, "castellan.ceph.io/owned": "true"}
	if len(node) <= maxLabel {
		labels[NodeLabel] = node
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": MapName(node), "namespace": namespace, "labels": labels},
		"data":     map[string]any{"devices": string(devices)},
	}
}

// Storer writes one ConfigMap by server-side apply.
type Storer struct {
	Client          *statusmap.Client
	Namespace, Node string
}

// Store applies the node's ConfigMap.
func (s Storer) Store(ctx context.Context, devices []byte) error {
	_, err := s.Client.Apply(ctx, s.Namespace, MapName(s.Node), statusmap.FieldManager, Map(s.Namespace, s.Node, devices))
	return err
}
