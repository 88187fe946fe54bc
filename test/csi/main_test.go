// Package csi_test runs the controllers of csi.ceph.io against a real API server.
// There is no garbage collector, no namespace controller and no kubelet; where a
// test needs what they do, it does it itself and says so.
package csi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/csi"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/publish"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/csiusers"
	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/replication"
	"github.com/castellan-storage/castellan/internal/replication/local"
	"github.com/castellan-storage/castellan/internal/settings"
)

// operatorNamespace is where the OperatorConfig of the tests is.
const operatorNamespace = "castellan-system"

var (
	server  envtestx.Server
	manager struct {
		once   sync.Once
		err    error
		cancel context.CancelFunc
		done   chan error
		writes *envtestx.Writes
	}
)

func TestMain(m *testing.M) {
	logger := logr.Discard()
	if os.Getenv("CASTELLAN_TEST_LOG") != "" {
		logger = funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{Verbosity: 1})
	}
	log.SetLogger(logger)
	ctrl.SetLogger(logger)
	os.Exit(stopping(m))
}

func stopping(m *testing.M) int {
	defer func() {
		if manager.cancel != nil {
			manager.cancel()
			if err := <-manager.done; err != nil {
				fmt.Fprintln(os.Stderr, "stopping the controllers:", err)
			}
		}
	}()
	return envtestx.Main(m, &server)
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, csiv1.AddToScheme, cephv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// world is what a test works with: a namespace of its own, and a client without a
// cache. The controllers run for all namespaces.
type world struct {
	testing.TB
	client.WithWatch
	ns string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	cfg := server.Config(t)
	manager.once.Do(func() { manager.err = startManager(t) })
	if manager.err != nil {
		t.Fatalf("starting the controllers: %v", manager.err)
	}
	_ = cfg
	return &world{TB: t, WithWatch: server.Client(t, scheme(t)), ns: server.Namespace(t)}
}

func startManager(t testing.TB) error {
	cfg, writes := envtestx.CountWrites(server.Config(t))
	manager.writes = writes
	s := scheme(t)
	c := envtestx.NewClient(t, server.Config(t), s)
	ctx, cancel := context.WithCancel(context.Background())
	manager.cancel = cancel
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: kube.CacheOptions(kube.CacheConfig{Ours: []client.Object{&appsv1.Deployment{}, &appsv1.DaemonSet{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}, &corev1.Secret{}, &corev1.ConfigMap{}}}),
	})
	if err != nil {
		return err
	}
	env, err := kit.EnvOf(mgr)
	if err != nil {
		return err
	}
	if err := publish.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	files, err := store.New(mgr)
	if err != nil {
		return err
	}
	if err := csi.Register(mgr, env, files, csi.Options{OperatorNamespace: operatorNamespace, ServiceAccountPrefix: "ceph-csi-operator-", OperatorImage: "registry.example/castellan:1"}); err != nil {
		return err
	}
	reader := access.Reader{Live: mgr.GetAPIReader(), Dial: cephs.dial}
	if err := replication.Register(mgr, env, files, local.Lister{Access: reader, Namespace: operatorNamespace}); err != nil {
		return err
	}
	users := &csiusers.Controller{Cache: mgr.GetClient(), Access: reader, Operator: pods.Operator{Namespace: operatorNamespace, Image: "castellan:1"},
		Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil }}
	if err := kit.Register(mgr, env, users, csiusers.Options(true)); err != nil {
		return err
	}
	manager.done = make(chan error, 1)
	go func() { manager.done <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the cache does not fill")
	}
	return nil
}

// eventually asks until the answer is "", and fails with the last one.
func (w *world) eventually(what string, f func() string) {
	w.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		problem := f()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: %s", what, problem)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *world) create(objs ...client.Object) {
	w.Helper()
	for _, o := range objs {
		if o.GetNamespace() == "" {
			o.SetNamespace(w.ns)
		}
		if err := w.Create(w.Context(), o); err != nil {
			w.Fatalf("creating %s: %v", kit.Name(o), err)
		}
	}
}

func (w *world) delete(o client.Object) {
	w.Helper()
	if err := w.Delete(w.Context(), o); err != nil {
		w.Fatalf("deleting %s: %v", kit.Name(o), err)
	}
}

// change reads, changes and updates an object, again if somebody else was faster.
func change[T client.Object](w *world, obj T, f func(T)) {
	w.Helper()
	for {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			w.Fatalf("reading %s: %v", kit.Name(obj), err)
		}
		f(obj)
		err := w.Update(w.Context(), obj)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatalf("updating %s: %v", kit.Name(obj), err)
		}
	}
}

func (w *world) connection(name string) *csiv1.CephConnection {
	return &csiv1.CephConnection{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns}, Spec: csiv1.CephConnectionSpec{Monitors: []string{"10.0.0.1:3300"}}}
}

func (w *world) profile(name string) *csiv1.ClientProfile {
	p := &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns}}
	p.Spec.CephConnectionRef.Name = "c"
	return p
}

// start makes a connection and profiles, and waits until they are published.
func (w *world) start(profiles ...string) {
	w.Helper()
	w.create(w.connection("c"))
	for _, name := range profiles {
		w.create(w.profile(name))
	}
	w.eventually("config.json", func() string {
		got := brief(w.files().Data[clusterconfig.ConfigKey])
		for _, name := range profiles {
			if !strings.HasPrefix(got, name) && !strings.Contains(got, " "+name) {
				return fmt.Sprintf("%q has no %s", got, name)
			}
		}
		return ""
	})
}

func (w *world) replication(name, local, remote string, pools ...string) *csiv1.ClientProfileReplication {
	r := &csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns},
		Spec: csiv1.ClientProfileReplicationSpec{LocalClientProfile: local, RemoteClientProfile: remote}}
	if len(pools) > 0 {
		r.Spec.RBD = &csiv1.RBDReplicationSpec{}
	}
	for i := 0; i < len(pools); i += 2 {
		r.Spec.RBD.PoolMapping = append(r.Spec.RBD.PoolMapping, csiv1.PoolMappingSpec{Name: pools[i], RemoteID: pools[i+1]})
	}
	return r
}

// nextSecond waits until objects made now are younger than those made before.
func (w *world) nextSecond() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1010 * time.Millisecond)))
}

// files reads the drivers' configuration of the namespace.
func (w *world) files() *corev1.ConfigMap {
	w.Helper()
	cm := &corev1.ConfigMap{}
	err := w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: clusterconfig.ConfigMapName}, cm)
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return cm
}

// brief is config.json as "id>remote(pool=id,...) ...", sorted.
func brief(text string) string {
	f, err := clusterconfig.Parse(text)
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, id := range f.IDs() {
		r, _, err := f.Get(id)
		if err != nil {
			return err.Error()
		}
		part := id
		if d := r.ReplicationDestination; d != nil {
			part += ">" + d.RemoteClusterID
			if d.RBD != nil {
				var pools []string
				for name, p := range d.RBD.RemotePoolMapping {
					pools = append(pools, name+"="+p.PoolID)
				}
				slices.Sort(pools)
				part += "(" + strings.Join(pools, ",") + ")"
			}
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// published waits until config.json is, in brief, as wanted.
func (w *world) published(want string) {
	w.Helper()
	w.eventually("config.json", func() string {
		if got := brief(w.files().Data[clusterconfig.ConfigKey]); got != want {
			return fmt.Sprintf("%q, want %q", got, want)
		}
		return ""
	})
}

const accepted = "Ready: accepted"

func notFound(profile string) string {
	return "Rejected: rejected: ClientProfile '" + profile + "' not found"
}

func lostTo(winner, profile string) string {
	return "Rejected: rejected: another ClientProfileReplication '" + winner + "' is already active for localClientProfile '" + profile + "'"
}

// judged waits until replications have the phases and messages wanted, given as
// name, "phase: message", ...
func (w *world) judged(want ...string) {
	w.Helper()
	for i := 0; i < len(want); i += 2 {
		w.eventually("replication "+want[i], func() string {
			var r csiv1.ClientProfileReplication
			if err := w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: want[i]}, &r); err != nil {
				return err.Error()
			}
			if got := r.Status.Phase + ": " + r.Status.Message; got != want[i+1] {
				return fmt.Sprintf("%q, want %q", got, want[i+1])
			}
			return ""
		})
	}
}

// condition waits until an object has a condition with a status and reason.
func (w *world) condition(obj client.Object, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	w.Helper()
	var found *metav1.Condition
	w.eventually(kit.Name(obj)+" "+kind, func() string {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err.Error()
		}
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return err.Error()
		}
		var st struct {
			Status csiv1.CommonStatus `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &st); err != nil {
			return err.Error()
		}
		found = meta.FindStatusCondition(st.Status.Conditions, kind)
		if found == nil || found.Status != status || found.Reason != reason {
			return fmt.Sprintf("%+v, want %s %s", found, status, reason)
		}
		return ""
	})
	return found
}

// gone waits until an object does not exist.
func (w *world) gone(obj client.Object) {
	w.Helper()
	w.eventually(kit.Name(obj), func() string {
		err := w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("still there: finalizers %v (%v)", obj.GetFinalizers(), err)
	})
}

// quiet fails if the controllers write anything to the namespace for a while.
func (w *world) quiet(d time.Duration) {
	w.Helper()
	time.Sleep(300 * time.Millisecond) // let what is under way end
	before := len(w.writesHere())
	time.Sleep(d)
	if after := w.writesHere(); len(after) > before {
		w.Errorf("writes without a change:\n%s", strings.Join(after[before:], "\n"))
	}
}

func (w *world) writesHere() []string {
	var here []string
	for _, line := range manager.writes.Lines() {
		if strings.Contains(line, "/namespaces/"+w.ns+"/") {
			here = append(here, line)
		}
	}
	return here
}
