// Package envtestx gives tests a real Kubernetes API server: one etcd and one
// kube-apiserver per test package, started by the first test that asks, with the
// CRDs of the repository, and a fresh namespace for every test.
//
// It is for tests only. It never fails for want of binaries: it skips and says why.
package envtestx

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assetsEnv names the directory that holds etcd and kube-apiserver.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Server is the API server of a test package. The zero value is ready; it is kept in
// a variable of the test package and handed to Main:
//
//	var server envtestx.Server
//
//	func TestMain(m *testing.M) { os.Exit(envtestx.Main(m, &server)) }
//
//	func TestX(t *testing.T) {
//		ns := server.Namespace(t)
//		c := server.Client(t, scheme)
//	}
type Server struct {
	// CRDs are installed beside those of the repository's deploy/crds.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// NoRepositoryCRDs leaves deploy/crds out, for packages that do not need them:
	// the start is faster.
	NoRepositoryCRDs bool

	once  sync.Once
	env   *envtest.Environment
	cfg   *rest.Config
	err   error
	count atomic.Int64
}

// Main runs the tests of a package and stops the server afterwards.
func Main(m *testing.M, s *Server) int {
	code := m.Run()
	if s.env != nil {
		if err := s.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	return code
}

// Config gives a copy of the configuration of an administrator's client without
// rate limits. It starts the server if need be, and skips the test if there are no
// binaries.
func (s *Server) Config(t testing.TB) *rest.Config {
	t.Helper()
	if os.Getenv(assetsEnv) == "" {
		t.Skipf("no real API server: %s is not set", assetsEnv)
	}
	for _, binary := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(os.Getenv(assetsEnv), binary)); err != nil {
			t.Skipf("no real API server: %s: %v", assetsEnv, err)
		}
	}
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatalf("starting the API server: %v", s.err)
	}
	cfg := rest.CopyConfig(s.cfg)
	cfg.QPS, cfg.Burst = -1, -1
	return cfg
}

func (s *Server) start() {
	env := &envtest.Environment{
		CRDs:                     s.CRDs,
		ControlPlaneStartTimeout: 2 * time.Minute, // a machine under load is slow, not broken
		ControlPlaneStopTimeout:  30 * time.Second,
	}
	if !s.NoRepositoryCRDs {
		if dir, ok := repositoryCRDs(); ok {
			env.CRDDirectoryPaths = []string{dir}
		}
	}
	env.ControlPlane.GetAPIServer().Configure().
		Set("max-requests-inflight", "0").
		Set("max-mutating-requests-inflight", "0").
		Set("enable-priority-and-fairness", "false")
	etcd := &envtest.Etcd{}
	etcd.Configure().Append("unsafe-no-fsync")
	env.ControlPlane.Etcd = etcd
	s.env = env
	s.cfg, s.err = env.Start()
}

// repositoryCRDs finds deploy/crds from the directory of the test.
func repositoryCRDs() (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			crds := filepath.Join(dir, "deploy", "crds")
			_, err := os.Stat(crds)
			return crds, err == nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// Client gives a client without a cache.
func (s *Server) Client(t testing.TB, scheme *runtime.Scheme) client.WithWatch {
	t.Helper()
	return NewClient(t, s.Config(t), scheme)
}

// NewClient gives a client without a cache for a configuration that the test has
// changed (a wrapped transport, an impersonated user).
func NewClient(t testing.TB, cfg *rest.Config, scheme *runtime.Scheme) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return c
}

// Namespace makes a namespace for the test and deletes it at its end. There is no
// namespace controller, so what the test has left in it stays until the server
// stops.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := s.Client(t, scheme)
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(t.Name()), "-")
	if len(name) > 40 {
		name = name[:40]
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", strings.Trim(name, "-"), s.count.Add(1))}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatalf("making the namespace of the test: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), ns); err != nil {
			t.Logf("deleting the namespace of the test: %v", err)
		}
	})
	return ns.Name
}

// Writes counts the mutating requests of a client, and keeps what they were. Events
// and leases are not counted: they are no writes of objects.
//
//	cfg, writes := envtestx.CountWrites(server.Config(t))
type Writes struct {
	mu    sync.Mutex
	lines []string
	// Fault, if set, may answer a request in the API server's place: a status code
	// of 400 or more with an optional Retry-After, or an error of the transport.
	fault func(*http.Request) (code int, err error)
}

// CountWrites gives a copy of a configuration whose writes are counted.
func CountWrites(cfg *rest.Config) (*rest.Config, *Writes) {
	w := &Writes{}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) { return w.roundTrip(next, req) })
	})
	return cfg, w
}

// Lines gives the writes so far: "PATCH /apis/apps/v1/namespaces/x/deployments/y".
func (w *Writes) Lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...)
}

// Reset forgets the writes so far.
func (w *Writes) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = nil
}

// Fail has f asked about every request: a code of 400 or more, or an error, is what
// the client gets, and the API server never sees the request. nil ends it.
func (w *Writes) Fail(f func(*http.Request) (code int, err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

func (w *Writes) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	fault := w.fault
	w.mu.Unlock()
	if fault != nil {
		code, err := fault(req)
		if err != nil {
			return nil, err
		}
		if code >= 400 {
			return answer(req, code), nil
		}
	}
	counted := req.Method != http.MethodGet && req.Method != http.MethodHead && req.Method != http.MethodOptions
	for _, other := range []string{"/events", "/leases", "/selfsubject"} {
		counted = counted && !strings.Contains(req.URL.Path, other)
	}
	if counted {
		w.mu.Lock()
		w.lines = append(w.lines, req.Method+" "+req.URL.Path)
		w.mu.Unlock()
	}
	return next.RoundTrip(req)
}

// answer makes an error answer as the API server writes it.
func answer(req *http.Request, code int) *http.Response {
	reason := map[int]metav1.StatusReason{
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
	}[code]
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected fault","reason":%q,"code":%d}`, reason, code)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: readCloser{strings.NewReader(body)}, ContentLength: int64(len(body)),
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
