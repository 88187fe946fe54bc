package kubeapi

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/lab/cluster/pki"
)

// server answers what an API server would for a few paths.
func server(t *testing.T) *Client {
	t.Helper()
	answers := map[string]string{
		"GET /readyz": "ok",
		"GET /api/v1/nodes": `{"items":[
			{"metadata":{"name":"node1"},"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True","message":"fine"}]}},
			{"metadata":{"name":"node2"},"status":{"conditions":[{"type":"Ready","status":"Unknown","message":"silent"}]}},
			{"metadata":{"name":"node3"}}]}`,
		"GET /api/v1/pods": `{"items":[{"metadata":{"namespace":"a","name":"b"},"spec":{"nodeName":"node1"},"status":{"phase":"Running","containerStatuses":[
			{"containerID":"containerd://abc","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}},
			{"containerID":"containerd://old","state":{"terminated":{"exitCode":1}}},
			{"state":{"waiting":{"reason":"x"}}}]}}]}`,
		"PATCH /x": `{}`,
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			a = `{"kind":"Status","message":"no such thing"}`
		}
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("labelSelector") != "app=x,b in (c)" {
			t.Errorf("selector %q", r.URL.Query().Get("labelSelector"))
		}
		if r.Method == http.MethodPatch {
			b, _ := io.ReadAll(r.Body)
			if string(b) != "a: 1\n" || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("fieldManager") != "castellan-lab" {
				t.Errorf("applied %q as %s, %s", b, r.Header.Get("Content-Type"), r.URL.RawQuery)
			}
		}
		_, _ = io.WriteString(w, a)
	}))
	t.Cleanup(srv.Close)
	ca, err := pki.NewCA("x", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	user, err := ca.Issue(pki.Subject{CommonName: "u"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(srv.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), user, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClient(t *testing.T) {
	c, ctx := server(t), t.Context()
	if err := c.Ready(ctx); err != nil {
		t.Error(err)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Node{{"node1", true, "fine"}, {"node2", false, "silent"}, {Name: "node3"}}, nodes); d != "" {
		t.Error(d)
	}
	pods, err := c.Pods(ctx, "app=x,b in (c)")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Pod{{Namespace: "a", Name: "b", Node: "node1", Phase: "Running", Containers: []string{"abc"}}}, pods); d != "" {
		t.Error(d)
	}
	if err := c.Apply(ctx, "/x", []byte("a: 1\n")); err != nil {
		t.Error(err)
	}
	var e *Error
	if err := c.Apply(ctx, "/y", []byte("a: 1\n")); !errors.As(err, &e) || e.Status != http.StatusNotFound || e.Message != "no such thing" {
		t.Errorf("applying where nothing is: %v", err)
	}
	for path, want := range map[string]bool{"/readyz": true, "/nothing": false} {
		if got, err := c.Exists(ctx, path); err != nil || got != want {
			t.Errorf("%s exists: %v, %v", path, got, err)
		}
	}
}

// TestExistsErr: a server that cannot be asked is not "absent".
func TestExistsErr(t *testing.T) {
	c := server(t)
	c.base = "https://127.0.0.1:1"
	if _, err := c.Exists(t.Context(), "/x"); err == nil {
		t.Error("no error")
	}
}
