// Package operator is the operator as tests of whole clusters run it: the controllers
// of a CephCluster, in a manager on a real API server or driven one pass at a time, with
// the Ceph, the settings and the randomness that the test gives.
//
// It must not decide anything, and nothing but tests may use it. What cmd/castellan
// registers is there; this is the part of it that most of these tests share.
package operator

import (
	"context"
	"io"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/config"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mgr"
	"github.com/castellan-storage/castellan/internal/mon"
	"github.com/castellan-storage/castellan/internal/osd"
	"github.com/castellan-storage/castellan/internal/settings"
	"github.com/castellan-storage/castellan/internal/status"
)

// FSID is the identity that Sevens makes.
const FSID = "07070707-0707-4707-8707-070707070707"

// Sevens is a source of randomness that makes the same identity in every run.
type Sevens struct{}

// Read implements io.Reader.
func (Sevens) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 7
	}
	return len(p), nil
}

// Scheme has the kinds that a CephCluster's controllers use.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// DefaultSettings are those of an operator without a ConfigMap.
func DefaultSettings(context.Context) (settings.Settings, error) { return settings.Default(), nil }

// Cache selects as the operator's does, for one namespace: other tests have theirs on
// the same server. more are kinds that a test's controllers own besides.
func Cache(t testing.TB, namespace string, more ...client.Object) cache.Options {
	t.Helper()
	req, err := labels.NewRequirement("rook_cluster", selection.Exists, nil)
	if err != nil {
		t.Fatal(err)
	}
	ours := []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &appsv1.Deployment{}, &batchv1.Job{}, &corev1.Service{}}
	return kube.CacheOptions(kube.CacheConfig{
		Namespaces: []string{namespace},
		Ours:       append(ours, more...),
		Selected:   []kube.Selected{{Object: &corev1.Pod{}, Label: labels.NewSelector().Add(*req)}},
	})
}

// ManagerOptions are those of a manager that listens nowhere and may run beside others.
func ManagerOptions(t testing.TB, c cache.Options) ctrl.Options {
	t.Helper()
	return ctrl.Options{
		Scheme: Scheme(t), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, Cache: c,
	}
}

// Start runs a manager until stop is called, which waits for its end.
func Start(t testing.TB, m ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Start(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("the operator ended: %v", err)
		}
	}()
	return func() { cancel(); <-done }
}

// EnvOf is what kit needs of a manager.
func EnvOf(m ctrl.Manager) kit.Env {
	return kit.Env{Client: m.GetClient(), Live: m.GetAPIReader(), Recorder: m.GetEventRecorder("castellan"), Board: kit.NewBoard()}
}

// Parts is what the controllers are made of.
type Parts struct {
	// Client reads, from a cache where there is one, and writes.
	Client   client.Client
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
	// Random is nil for real randomness.
	Random io.Reader
}

func (p Parts) cluster() kit.Controller[*cephv1.CephCluster, cluster.Seen] {
	c := &cluster.Controller{Cache: p.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings, Random: p.Random}
	return cluster.Releaser{Controller: c, Write: p.Client}
}

func (p Parts) mon() *mon.Controller {
	return &mon.Controller{Cache: p.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
}

func (p Parts) mgr() *mgr.Controller {
	return &mgr.Controller{Cache: p.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings, Write: p.Client, Random: p.Random}
}

func (p Parts) osds() osd.Base {
	return osd.Base{Cache: p.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
}

func (p Parts) config() *config.Controller {
	return &config.Controller{Access: p.Access, Operator: p.Operator, Settings: p.Settings}
}

// Register registers the controllers that make a CephCluster Ready.
func (p Parts) Register(t testing.TB, m ctrl.Manager, env kit.Env) {
	t.Helper()
	for _, err := range []error{
		kit.Register(m, env, p.cluster(), cluster.Options()),
		kit.Register(m, env, p.mon(), mon.Options()),
		kit.Register(m, env, p.mgr(), mgr.Options()),
		kit.Register(m, env, &osd.Provisioner{Base: p.osds()}, osd.ProvisionOptions()),
		kit.Register(m, env, &osd.Daemons{Base: p.osds()}, osd.DaemonOptions()),
		kit.Register(m, env, p.config(), config.Options()),
		kit.Register(m, env, &status.Controller{Access: p.Access}, status.Options()),
	} {
		if err != nil {
			t.Fatalf("registering controllers: %v", err)
		}
	}
}

// Keys gives what is to be reconciled.
type Keys = func(context.Context, client.Reader) ([]kit.Key, error)

// Daemons drives the controllers of identity, mons, mgrs and OSDs.
func (p Parts) Daemons(keys Keys) []kittest.Driver {
	return []kittest.Driver{
		kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, cluster.Seen] { return p.cluster() }, cluster.Options(), keys),
		kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, mon.Seen] { return p.mon() }, mon.Options(), keys),
		kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, mgr.Seen] { return p.mgr() }, mgr.Options(), keys),
		kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, osd.ProvisionSeen] {
			return &osd.Provisioner{Base: p.osds()}
		}, osd.ProvisionOptions(), keys),
		kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, osd.DaemonSeen] {
			return &osd.Daemons{Base: p.osds()}
		}, osd.DaemonOptions(), keys),
	}
}

// Config drives the controller of Ceph's settings.
func (p Parts) Config(keys Keys) kittest.Driver {
	return kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, config.Seen] { return p.config() }, config.Options(), keys)
}

// Status drives the controller of what the user sees.
func (p Parts) Status(keys Keys) kittest.Driver {
	return kittest.Drive(func(kit.Env) kit.Controller[*cephv1.CephCluster, status.Seen] {
		return &status.Controller{Access: p.Access}
	}, status.Options(), keys)
}
