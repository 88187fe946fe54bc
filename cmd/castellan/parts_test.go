package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crypto/sha256"
)

func jobObject() *batchv1.Job { return &batchv1.Job{} }

func TestScopeOf(t *testing.T) {
	tests := []struct {
		name      string
		data, env map[string]string
		want      []string
	}{
		{"nothing said", nil, nil, nil},
		{"own by environment", nil, map[string]string{envCurrentOnly: "true"}, []string{"own"}},
		{"own by ConfigMap", map[string]string{envCurrentOnly: "true"}, map[string]string{envCurrentOnly: "false"}, []string{"own"}},
		{"all by ConfigMap", map[string]string{envCurrentOnly: "false"}, map[string]string{envCurrentOnly: "true"}, nil},
		{"a word that is no bool", map[string]string{envCurrentOnly: "yes please"}, map[string]string{envCurrentOnly: "true"}, []string{"own"}},
		{"a list", nil, map[string]string{envWatch: " b ,a,,own"}, []string{"a", "b", "own"}},
		{"own before a list", map[string]string{envCurrentOnly: "1"}, map[string]string{envWatch: "a"}, []string{"own"}},
		{"a list of nothing", nil, map[string]string{envWatch: " , "}, nil},
		{"only the own in the list", nil, map[string]string{envWatch: "own"}, []string{"own"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := scopeOf("own", tt.data, func(k string) string { return tt.env[k] })
			if diff := cmp.Diff(tt.want, got.namespaces); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectControllers(t *testing.T) {
	list := []entry{{name: "a", group: groupCeph}, {name: "b", group: groupCeph}, {name: "c", group: groupCSI}}
	tests := map[string]string{
		"all": "a b c", "ceph": "a b", "csi": "c", "b,c": "b c", " a , csi ": "a c", "a,a": "a",
		"": "error", "x": "error", "a,x": "error",
	}
	for words, want := range tests {
		got, err := selectControllers(list, words)
		s := strings.Join(names(got), " ")
		if err != nil {
			s = "error"
		}
		if s != want {
			t.Errorf("selectControllers(%q) = %q (%v), want %q", words, s, err, want)
		}
	}
}

// Every controller has a name of its own, and no name is that of a group.
func TestControllerNames(t *testing.T) {
	seen := map[string]bool{"all": true, groupCeph: true, groupCSI: true}
	for _, e := range controllers() {
		if seen[e.name] {
			t.Errorf("the name %q is taken", e.name)
		}
		seen[e.name] = true
		if e.group != groupCeph && e.group != groupCSI {
			t.Errorf("%s is of group %q", e.name, e.group)
		}
	}
}

type fakeLock struct {
	resourcelock.Interface
	err error
}

func (f *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return f.err }
func (f *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return f.err }

func TestFence(t *testing.T) {
	now := time.Now()
	lock := &fakeLock{}
	l := &lease{Interface: lock, identity: "me", started: now, now: func() time.Time { return now }}
	ctx := t.Context()
	mine, none := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	check := func(when string, open bool) {
		t.Helper()
		if err := l.Fence(ctx); (err == nil) != open {
			t.Errorf("%s: Fence() = %v, want open %v", when, err, open)
		}
	}
	check("before the lease", false)
	if err := l.Create(ctx, mine); err != nil {
		t.Fatal(err)
	}
	check("at once after taking it", true)
	now = now.Add(renewDeadline)
	check("at the deadline", true)
	now = now.Add(time.Second)
	check("after the deadline", false)
	lock.err = errors.New("cut off")
	if err := l.Update(ctx, mine); err == nil {
		t.Error("the lock's error is lost")
	}
	check("after a failed renewal", false)
	lock.err = nil
	if err := l.Update(ctx, mine); err != nil {
		t.Fatal(err)
	}
	check("renewed", true)
	if err := l.Update(ctx, none); err != nil {
		t.Fatal(err)
	}
	check("given up", false)
}

func TestLogs(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	log := startLogging(&out, level)
	log.V(1).Info("detail")
	log.Info("a name\n{\"level\":\"error\"}\x1b[31m", "cluster", "x\ny")
	log.Error(errors.New("no"), "broken")
	log.WithName("x").WithValues("controller", "mon").Info("Starting EventSource")
	level.Set(levelOf("DEBUG"))
	log.V(4).Info("debug")
	log.V(5).Info("trace")
	level.Set(levelOf("ERROR"))
	log.Info("quiet")
	level.Set(levelOf("TRACE"))
	log.V(10).Info("all")
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q is not one JSON object: %v", line, err)
		}
		if strings.Contains(line, "\x1b") {
			t.Errorf("%q holds a control character", line)
		}
		got = append(got, m["level"].(string)+" "+strings.SplitN(m["msg"].(string), "\n", 2)[0])
	}
	want := []string{"info a name", "error broken", "debug debug", "trace all"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fakeReviewer is an API server that knows one token and one user.
type fakeReviewer struct {
	calls int
	err   error
}

func (f *fakeReviewer) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	f.calls++
	switch r := obj.(type) {
	case *authenticationv1.TokenReview:
		if r.Spec.Token == "good" || r.Spec.Token == "poor" {
			r.Status.Authenticated = true
			r.Status.User.Username = r.Spec.Token
		}
	case *authorizationv1.SubjectAccessReview:
		r.Status.Allowed = r.Spec.User == "good" && r.Spec.NonResourceAttributes.Path == "/metrics" && r.Spec.NonResourceAttributes.Verb == "get"
	}
	return f.err
}

func TestGate(t *testing.T) {
	now := time.Now()
	api := &fakeReviewer{}
	g := &gate{reviewer: api, known: map[[sha256.Size]byte]verdict{}, now: func() time.Time { return now }}
	check := func(method, path, header string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		status, err := g.check(req)
		if (err != nil) != (status == http.StatusInternalServerError) {
			t.Errorf("%d with error %v", status, err)
		}
		return status
	}
	for _, tt := range []struct {
		method, path, header string
		want                 int
	}{
		{"GET", "/metrics", "", 401}, {"GET", "/metrics", "Basic good", 401}, {"GET", "/metrics", "Bearer ", 401},
		{"GET", "/metrics", "Bearer bad", 401}, {"GET", "/metrics", "Bearer poor", 403}, {"GET", "/metrics", "bearer good", 200},
		{"GET", "/debug", "Bearer good", 403}, {"POST", "/metrics", "Bearer good", 403},
	} {
		if got := check(tt.method, tt.path, tt.header); got != tt.want {
			t.Errorf("%s %s %q = %d, want %d", tt.method, tt.path, tt.header, got, tt.want)
		}
	}
	before := api.calls
	if check("GET", "/metrics", "Bearer good"); api.calls != before {
		t.Error("a known token is asked about again")
	}
	now = now.Add(verdictAge)
	if check("GET", "/metrics", "Bearer good"); api.calls == before {
		t.Error("a token is trusted for ever")
	}
	now = now.Add(verdictAge)
	api.err = errors.New("away")
	if got := check("GET", "/metrics", "Bearer good"); got != http.StatusInternalServerError {
		t.Errorf("without an answer the gate says %d", got)
	}
	api.err = nil
	for i := range 3 * maxVerdicts {
		check("GET", "/metrics", "Bearer "+strings.Repeat("x", i+1))
	}
	if len(g.known) > maxVerdicts {
		t.Errorf("%d verdicts are kept", len(g.known))
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{"version"})
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(out.String()) == "" {
		t.Error("no version")
	}
}
