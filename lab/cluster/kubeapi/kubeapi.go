// Package kubeapi asks the lab's API server the few things that the lab itself
// needs, with nothing but net/http: the supervisor of a lab runs as long as the
// lab, and must stay small.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/pki"
)

// Client talks to one API server.
type Client struct {
	base string
	http *http.Client
}

// DialFunc connects to an address, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// callLimit bounds one call.
const callLimit = 10 * time.Second

// New returns a client for the server, as this user. dial may be nil.
func New(server string, ca []byte, user pki.Pair, dial DialFunc) (*Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the lab's authority is not PEM")
	}
	cert, err := tls.X509KeyPair(user.Cert, user.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's key: %w", err)
	}
	return &Client{base: server, http: &http.Client{Timeout: callLimit, Transport: &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}}}, nil
}

// Error is an answer other than success.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the API server says %d: %s", e.Status, e.Message)
}

// do calls the server; a non-nil out gets the answer's JSON.
func (c *Client) do(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		var s struct{ Message string }
		if json.Unmarshal(b, &s) != nil || s.Message == "" {
			s.Message = strings.TrimSpace(string(b))
		}
		return &Error{Status: resp.StatusCode, Message: s.Message}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// Ready returns nil once the server is ready.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", "", nil, nil)
}

// Exists reports whether there is an object at the path.
func (c *Client) Exists(ctx context.Context, path string) (bool, error) {
	err := c.do(ctx, http.MethodGet, path, "", nil, nil)
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

// Apply makes the object at the path what the YAML says (server-side apply).
func (c *Client) Apply(ctx context.Context, path string, yaml []byte) error {
	if err := c.do(ctx, http.MethodPatch, path+"?fieldManager=castellan-lab&force=true", "application/apply-patch+yaml", yaml, nil); err != nil {
		return fmt.Errorf("applying %s: %w", path, err)
	}
	return nil
}

// Node is a node as Kubernetes knows it.
type Node struct {
	Name  string
	Ready bool
	Why   string // the message of its Ready condition
}

// Nodes lists the nodes.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
	}
	if err := c.do(ctx, http.MethodGet, "/api/v1/nodes?resourceVersion=0", "", nil, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var out []Node
	for _, i := range list.Items {
		n := Node{Name: i.Metadata.Name}
		for _, cond := range i.Status.Conditions {
			if cond.Type == "Ready" {
				n.Ready, n.Why = cond.Status == "True", cond.Message
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// Pod is a pod with what it takes to find its processes.
type Pod struct {
	Namespace, Name, Node string
	Phase                 string
	Containers            []string // ids, without the runtime's prefix, of those that run
}

// Pods lists the pods of all namespaces with these labels
// ("app=rook-ceph-operator").
func (c *Client) Pods(ctx context.Context, selector string) ([]Pod, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name string }
			Spec     struct{ NodeName string }
			Status   struct {
				Phase             string
				ContainerStatuses []struct {
					ContainerID string
					State       struct{ Running *struct{} }
				}
			}
		}
	}
	if err := c.do(ctx, http.MethodGet, "/api/v1/pods?labelSelector="+url.QueryEscape(selector), "", nil, &list); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var out []Pod
	for _, i := range list.Items {
		p := Pod{Namespace: i.Metadata.Namespace, Name: i.Metadata.Name, Node: i.Spec.NodeName, Phase: i.Status.Phase}
		for _, s := range i.Status.ContainerStatuses {
			if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && s.State.Running != nil {
				p.Containers = append(p.Containers, id)
			}
		}
		out = append(out, p)
	}
	return out, nil
}
