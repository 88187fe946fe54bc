// Package kube asks a lab's API server for what a user would have kubectl ask, from
// within this process: each start of kubectl takes half a second of a processor, which
// is as much as a daemon of Ceph takes to start.
//
// It must not know what the objects are, and does nothing that kubectl could not.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client talks to one API server. Its methods can be called at the same time.
type Client struct {
	cfg  *rest.Config
	http *http.Client

	mu    sync.Mutex
	kinds map[string][]kind // what was found, by apiVersion
}

// New makes a client of what a kubeconfig says.
func New(kubeconfig string) (*Client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	return newClient(cfg)
}

func newClient(cfg *rest.Config) (*Client, error) {
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return &Client{cfg: cfg, http: h, kinds: map[string][]kind{}}, nil
}

// Error is an answer other than success.
type Error struct {
	Status  int // of HTTP
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the API server says %d: %s", e.Status, e.Message)
}

// IsNotFound reports whether the API server says that something is not there.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// open sends a request and gives the answer's body, if the server is content.
func (c *Client) open(ctx context.Context, method, path string, header http.Header, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.cfg.Host, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var s struct{ Message string }
	if json.Unmarshal(b, &s) != nil || s.Message == "" {
		s.Message = strings.TrimSpace(string(b))
	}
	return nil, &Error{Status: resp.StatusCode, Message: s.Message}
}

// Get reads the object or the list at a path of the API.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	body, err := c.open(ctx, http.MethodGet, path, http.Header{"Accept": {"application/json"}}, nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// Merge changes the object at a path by a JSON merge patch.
func (c *Client) Merge(ctx context.Context, path string, patch []byte) error {
	body, err := c.open(ctx, http.MethodPatch, path, http.Header{"Content-Type": {"application/merge-patch+json"}, "Accept": {metadataOnly}}, patch)
	if err != nil {
		return fmt.Errorf("changing %s: %w", path, err)
	}
	return body.Close()
}

// metadataOnly asks for an answer that is as short as can be.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// Watch tells each of all objects at a path, with the query that may be there ("" or
// "labelSelector=..."), as they are now and whenever they change, except that they are
// gone. It returns when each does with false or an error, when ctx ends, or when the
// server has ended the watch: the last with an error that is not ctx's.
func Watch[T any](ctx context.Context, c *Client, path, query string, each func(T) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := c.open(ctx, http.MethodGet, path+"?"+strings.TrimPrefix(query+"&watch=true", "&"), http.Header{"Accept": {"application/json"}}, nil)
	if err != nil {
		return fmt.Errorf("watching %s: %w", path, err)
	}
	defer func() { _ = body.Close() }()
	for dec := json.NewDecoder(body); ; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("watching %s: %w", path, err)
		}
		switch e.Type {
		case "ERROR":
			return fmt.Errorf("watching %s: the API server ended it: %s", path, e.Object)
		case "DELETED", "BOOKMARK":
			continue
		}
		var o T
		if err := json.Unmarshal(e.Object, &o); err != nil {
			return fmt.Errorf("watching %s: %w", path, err)
		}
		if more, err := each(o); err != nil || !more {
			return err
		}
	}
}

// kind is how the API has objects of one kind.
type kind struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"` // in paths
	Namespaced bool   `json:"namespaced"`
}

// groupPath is where the API has the kinds of an apiVersion.
func groupPath(apiVersion string) string {
	if strings.Contains(apiVersion, "/") {
		return "/apis/" + apiVersion
	}
	return "/api/" + apiVersion
}

// find says how the API has a kind.
func (c *Client) find(ctx context.Context, apiVersion, name string) (kind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	look := func() (kind, bool) {
		for _, k := range c.kinds[apiVersion] {
			// Subresources are listed with the kinds that are written there.
			if k.Kind == name && !strings.Contains(k.Name, "/") {
				return k, true
			}
		}
		return kind{}, false
	}
	if k, ok := look(); ok {
		return k, nil
	}
	var list struct{ Resources []kind }
	if err := c.Get(ctx, groupPath(apiVersion), &list); err != nil {
		return kind{}, err
	}
	c.kinds[apiVersion] = list.Resources
	if k, ok := look(); ok {
		return k, nil
	}
	return kind{}, fmt.Errorf("the API server knows no %s of %s", name, apiVersion)
}

// askEvery is how often the API server is asked whether it serves a kind. It answers in
// a millisecond or two.
const askEvery = 100 * time.Millisecond

// Served waits until the API server serves the kinds of these CustomResourceDefinitions
// ("cephclusters.ceph.rook.io"). It asks for the list that users find kinds by, which is
// short: to watch the definitions would be to read them several times over.
func (c *Client) Served(ctx context.Context, names []string) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	last := errors.New("it did not answer")
	for {
		missing, err := c.missing(ctx, names)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("not served: %s", strings.Join(missing, ", "))
		}
		if ctx.Err() == nil { // else it says only that the time is over
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server to know all kinds: %w; last: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// missing are those of the names that are not served yet.
func (c *Client) missing(ctx context.Context, names []string) ([]string, error) {
	served := map[string]map[string]bool{} // by group
	var out []string
	for _, name := range names {
		plural, group, _ := strings.Cut(name, ".")
		if served[group] == nil {
			now, err := c.plurals(ctx, group)
			if err != nil {
				return nil, err
			}
			served[group] = now
		}
		if !served[group][plural] {
			out = append(out, name)
		}
	}
	return out, nil
}

// plurals are the names by which the API serves kinds of a group, in all its versions.
func (c *Client) plurals(ctx context.Context, group string) (map[string]bool, error) {
	out := map[string]bool{}
	var g struct {
		Versions []struct{ GroupVersion string }
	}
	if err := c.Get(ctx, "/apis/"+url.PathEscape(group), &g); IsNotFound(err) {
		return out, nil
	} else if err != nil {
		return nil, err
	}
	for _, v := range g.Versions {
		var list struct{ Resources []kind }
		if err := c.Get(ctx, "/apis/"+v.GroupVersion, &list); IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, k := range list.Resources {
			out[k.Name] = true
		}
	}
	return out, nil
}
