// Package statusmap stores a node's provisioning report in the ConfigMap
// rook-ceph-osd-<node>-status, where the operator and the user read it.
//
// It speaks to the API server with one kind of request, a server-side apply of a
// ConfigMap, so that castellan-node stays a small static program; the discovery
// daemon applies its own with the same Client. It must not read or write anything
// else. In a key of its own the ConfigMap also keeps which
// OSDs a node has begun to make.
package statusmap

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/internal/node/provision"
)

// FieldManager owns the report's fields.
const FieldManager = "castellan-node"

// maxAnswer bounds what is read of the API server's answer; a ConfigMap has at most
// 1 MiB.
const maxAnswer = 4 << 20

// tokenDir is where Kubernetes mounts a pod's identity.
const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Client stores reports.
type Client struct {
	// Server is the API server's URL.
	Server string
	// TokenFile is read for each request: the token is renewed under the pod.
	TokenFile string
	HTTP      *http.Client
}

// InCluster is the client of a pod, made of what Kubernetes gives every pod.
func InCluster() (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, fmt.Errorf("this process does not run in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
	}
	ca, err := os.ReadFile(tokenDir + "/ca.crt")
	if err != nil {
		return nil, fmt.Errorf("reading the API server's certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("reading the API server's certificate authority: no certificate in %s/ca.crt", tokenDir)
	}
	return &Client{
		Server:    "https://" + net.JoinHostPort(host, port),
		TokenFile: tokenDir + "/token",
		HTTP: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}},
	}, nil
}

// Target names the ConfigMap to write.
type Target struct {
	Namespace, Name, Node string
	// Labels beside the ones that make it a provisioning status.
	Labels map[string]string
}

// Map is the ConfigMap for a report. data.status has the shape that users of
// Rook know; data.devices is the full device report, data.osds the records that
// replacement needs.
func Map(t Target, r provision.Report) (map[string]any, error) {
	status, err := json.Marshal(rookStatus(t, r))
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	data := map[string]any{"status": string(status)}
	more := map[string]any{"devices": r.Devices, "osds": r.OSDs, "problems": r.Problems}
	if r.Swaps != nil {
		more["swaps"] = r.Swaps
	}
	for key, v := range more {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return nil, fmt.Errorf("encoding the report's %s: %w", key, err)
		}
		data[key] = string(b)
	}
	labels := map[string]any{"app": "rook-ceph-osd", "status": "provisioning", "node": t.Node}
	for k, v := range t.Labels {
		labels[k] = v
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": t.Name, "namespace": t.Namespace, "labels": labels},
		"data":     data,
	}, nil
}

type rookOSD struct {
	ID           int    `json:"id"`
	Cluster      string `json:"cluster"`
	UUID         string `json:"uuid"`
	DeviceClass  string `json:"device-class"`
	BlockPath    string `json:"lv-path"`
	MetadataPath string `json:"metadata-path"`
	WALPath      string `json:"wal-path"`
	Mode         string `json:"lv-mode"`
	Store        string `json:"store"`
	Encrypted    bool   `json:"encrypted"`
	NodeName     string `json:"nodeName"`
}

func rookStatus(t Target, r provision.Report) any {
	osds := make([]rookOSD, 0, len(r.OSDs))
	for _, o := range r.OSDs {
		x := rookOSD{
			ID: o.ID, Cluster: "ceph", UUID: o.UUID, DeviceClass: o.DeviceClass, BlockPath: o.Data.Path,
			Mode: o.Mode, Store: "bluestore", Encrypted: o.Encrypted, NodeName: t.Node,
		}
		if o.DB != nil {
			x.MetadataPath = o.DB.Path
		}
		if o.WAL != nil {
			x.WALPath = o.WAL.Path
		}
		osds = append(osds, x)
	}
	return map[string]any{"status": r.State, "osds": osds, "message": r.Message, "pvc-backed-osd": false}
}

// Store applies the ConfigMap for the report.
func (c *Client) Store(ctx context.Context, t Target, r provision.Report) error {
	m, err := Map(t, r)
	if err != nil {
		return err
	}
	_, err = c.Apply(ctx, t.Namespace, t.Name, FieldManager, m)
	return err
}

// Apply applies a ConfigMap for a field manager, and gives it as it then is, as JSON.
// object must carry the same namespace and name.
func (c *Client) Apply(ctx context.Context, namespace, name, manager string, object map[string]any) ([]byte, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding ConfigMap %s: %w", name, err)
	}
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the pod's token: %w", err)
	}
	u := fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps/%s?fieldManager=%s&force=true",
		c.Server, url.PathEscape(namespace), url.PathEscape(name), manager)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, u, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("applying ConfigMap %s: %w", name, err)
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("applying ConfigMap %s: %w", name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("applying ConfigMap %s: %w", name, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("applying ConfigMap %s: %s: %s", name, resp.Status, out[:min(len(out), 2048)])
	}
	return out, nil
}
