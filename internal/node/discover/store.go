package discover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

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
	name := MapName(s.Node)
	body, err := json.Marshal(Map(s.Namespace, s.Node, devices))
	if err != nil {
		return fmt.Errorf("encoding ConfigMap %s: %w", name, err)
	}
	token, err := os.ReadFile(s.Client.TokenFile)
	if err != nil {
		return fmt.Errorf("reading the pod's token: %w", err)
	}
	u := fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps/%s?fieldManager=%s&force=true",
		s.Client.Server, url.PathEscape(s.Namespace), url.PathEscape(name), statusmap.FieldManager)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, u, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("applying ConfigMap %s: %w", name, err)
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := s.Client.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("applying ConfigMap %s: %w", name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
		return fmt.Errorf("applying ConfigMap %s: %s: %s", name, resp.Status, said)
	}
	return nil
}
