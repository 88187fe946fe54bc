package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// fake is an API server of which tests say what it answers.
type fake struct {
	mu       sync.Mutex
	requests []string
	bodies   map[string]string
	answers  map[string]string // by path and query; a leading number is the code
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Content-Type"))
	f.bodies[r.URL.Path] = string(body)
	answer, ok := f.answers[r.URL.RequestURI()]
	f.mu.Unlock()
	switch {
	case r.Method == http.MethodPatch && !ok:
		answer = "{}"
	case !ok:
		answer = `404 {"message":"there is no ` + r.URL.Path + `"}`
	}
	if code, rest, found := strings.Cut(answer, " "); found && len(code) == 3 {
		n := 0
		if _, err := fmt.Sscan(code, &n); err == nil {
			w.WriteHeader(n)
			answer = rest
		}
	}
	_, _ = io.WriteString(w, answer)
}

func (f *fake) answer(path, with string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[path] = with
}

func serve(t *testing.T, answers map[string]string) (*fake, *Client) {
	t.Helper()
	f := &fake{bodies: map[string]string{}, answers: answers}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	c, err := newClient(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

const manifest = `# Of what a reader needs to know.
apiVersion: v1
kind: Namespace
metadata:
  name: storage
---
# Only a comment.
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: operator
  # Not at the left.
  namespace: storage
spec:
  template:
    metadata:
      name: not-this
    kind: Nor
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: storage}
data:
  text: |
    kind: Other
`

func TestRead(t *testing.T) {
	got, err := Read([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range got {
		names = append(names, fmt.Sprintf("%s %s %s/%s", o.APIVersion, o.Kind, o.Namespace, o.Name))
	}
	want := []string{"v1 Namespace /storage", "apps/v1 Deployment storage/operator", "v1 ConfigMap storage/settings"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if y := string(got[2].YAML); !strings.Contains(y, "kind: Other") {
		t.Errorf("of the document is left:\n%s", y)
	}
	for _, bad := range []string{"kind: Pod\nmetadata: {name: a}\n", "apiVersion: v1\nkind: Pod\n", "kind: [\n"} {
		if got, err := Read([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// Every manifest that the lab applies is read as all its objects.
func TestReadWhatIsInstalled(t *testing.T) {
	for _, pattern := range []string{"crds/*.yaml", "*.yaml"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", "..", "deploy", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, p := range paths {
			if filepath.Base(p) == "kustomization.yaml" {
				continue // not an object of the API
			}
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(b)
			if want := strings.Count("\n"+string(b), "\nkind: "); err != nil || len(got) != want {
				t.Errorf("%s: %d of %d objects, %v", p, len(got), want, err)
			}
		}
	}
}

func TestApply(t *testing.T) {
	f, c := serve(t, map[string]string{
		"/api/v1":       `{"resources":[{"kind":"Namespace","name":"namespaces/status"},{"kind":"Namespace","name":"namespaces"},{"kind":"ConfigMap","name":"configmaps","namespaced":true}]}`,
		"/apis/apps/v1": `{"resources":[{"kind":"Deployment","name":"deployments","namespaced":true}]}`,
	})
	objects, err := Read([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	const how = "?fieldManager=kubectl&force=true application/apply-patch+yaml"
	want := []string{
		"GET /api/v1 ", "PATCH /api/v1/namespaces/storage" + how,
		"GET /apis/apps/v1 ", "PATCH /apis/apps/v1/namespaces/storage/deployments/operator" + how,
		"PATCH /api/v1/namespaces/storage/configmaps/settings" + how,
	}
	if diff := cmp.Diff(want, f.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := f.bodies["/api/v1/namespaces/storage/configmaps/settings"]; got != string(objects[2].YAML) {
		t.Errorf("applied:\n%s", got)
	}
}

// The first of several that fails is told, whichever it is.
func TestApplyAnyTellsWhatFails(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps/"
	f, c := serve(t, map[string]string{
		"/api/v1": `{"resources":[{"kind":"ConfigMap","name":"configmaps","namespaced":true}]}`,
		path + "c3?fieldManager=kubectl&force=true": `422 {"message":"that is not a name"}`,
	})
	var objects []Object
	for i := range 10 {
		objects = append(objects, Object{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("c%d", i)})
	}
	err := c.ApplyAny(t.Context(), objects)
	var e *Error
	if !errors.As(err, &e) || e.Status != 422 || err.Error() != "applying ConfigMap c3: the API server says 422: that is not a name" {
		t.Errorf("error %v", err)
	}
	if err := c.ApplyAny(t.Context(), append(objects[:3:3], objects[4:]...)); err != nil {
		t.Error(err)
	}
	for i := range 10 {
		if p := "PATCH " + path + fmt.Sprintf("c%d?", i); !slices.ContainsFunc(f.requests, func(r string) bool { return strings.HasPrefix(r, p) }) {
			t.Errorf("c%d was not applied", i)
		}
	}
	err = c.Apply(t.Context(), []Object{{APIVersion: "v1", Kind: "Pot", Name: "tea"}})
	if err == nil || err.Error() != "applying Pot tea: the API server knows no Pot of v1" {
		t.Errorf("error %v", err)
	}
}

// A kind is served when the API server lists it, and a group that is not there yet is
// waited for.
func TestServed(t *testing.T) {
	f, c := serve(t, map[string]string{})
	names := []string{"pots.kitchen.example", "cups.kitchen.example"}
	done := make(chan error, 1)
	go func() { done <- c.Served(t.Context(), names) }()
	for _, step := range []struct{ path, answer string }{
		{"/apis/kitchen.example", `{"versions":[{"groupVersion":"kitchen.example/v1"},{"groupVersion":"kitchen.example/v2"}]}`},
		{"/apis/kitchen.example/v1", `{"resources":[{"name":"pots"},{"name":"cups/status"}]}`},
	} {
		f.answer(step.path, step.answer)
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(3 * askEvery):
		}
	}
	f.answer("/apis/kitchen.example/v2", `{"resources":[{"name":"cups"}]}`)
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*askEvery)
	defer cancel()
	err := c.Served(ctx, []string{"pots.kitchen.example", "pans.kitchen.example"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not served: pans.kitchen.example") || strings.Contains(err.Error(), "pots") {
		t.Errorf("error %v", err)
	}
}

func TestWatch(t *testing.T) {
	type pot struct{ Metadata struct{ Name string } }
	object := func(what, name string) string {
		return `{"type":"` + what + `","object":{"metadata":{"name":"` + name + `"}}}` + "\n"
	}
	const path = "/api/v1/pots"
	_, c := serve(t, map[string]string{
		path + "?watch=true":                 object("ADDED", "a") + object("DELETED", "a") + object("BOOKMARK", "") + object("MODIFIED", "b"),
		path + "?labelSelector=x&watch=true": object("ADDED", "c") + `{"type":"ERROR","object":{"message":"too old"}}`,
	})
	watch := func(query, last string) (got []string, err error) {
		err = Watch(t.Context(), c, path, query, func(p pot) (bool, error) {
			got = append(got, p.Metadata.Name)
			return p.Metadata.Name != last, nil
		})
		return got, err
	}
	if got, err := watch("", "b"); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := watch("", "none"); !errors.Is(err, io.EOF) || len(got) != 2 {
		t.Errorf("a watch that the server ends: %v, %v", got, err)
	}
	if got, err := watch("labelSelector=x", "none"); err == nil || !strings.Contains(err.Error(), "too old") || len(got) != 1 {
		t.Errorf("a watch that fails: %v, %v", got, err)
	}
}

func TestRunning(t *testing.T) {
	pod := func(name, phase, ready, more string) string {
		return `{"metadata":{"name":"` + name + `"` + more + `},"status":{"phase":"` + phase + `","conditions":[{"type":"Ready","status":"` + ready + `"}]}}`
	}
	const gone = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	for name, tc := range map[string]struct {
		pods []string
		want string
	}{
		"none":                  {nil, ""},
		"none that runs":        {[]string{pod("a", "Pending", "False", ""), pod("b", "Running", "True", gone)}, ""},
		"the one that is ready": {[]string{pod("a", "Running", "True", ""), pod("b", "Running", "False", ""), pod("c", "Failed", "False", "")}, "a"},
		"one that runs at all":  {[]string{pod("a", "Running", "False", "")}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := serve(t, map[string]string{
				"/api/v1/namespaces/storage/pods?labelSelector=app%3Dtools": `{"items":[` + strings.Join(tc.pods, ",") + `]}`,
			})
			p, err := c.running(t.Context(), "storage", "app=tools")
			if tc.want == "" {
				if !errors.Is(err, errNoPod) {
					t.Errorf("%v, %v", p, err)
				}
				return
			}
			if err != nil || p.Name != tc.want {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}
