// Package operator is the operator as tests of whole clusters run it: the controllers
// of a CephCluster, in a manager on a real API server or driven one pass at a time, with
// the Ceph, the settings and the randomness that the test gives.
//
// It must not decide anything, and nothing but tests may use it. What cmd/castellan
// registers is there; a test of it holds the list here against its own.
package operator

import (
	"context"
	"io"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/config"
	"github.com/castellan-storage/castellan/internal/crushupdate"
	"github.com/castellan-storage/castellan/internal/csiusers"
	"github.com/castellan-storage/castellan/internal/discover"
	"github.com/castellan-storage/castellan/internal/disruption"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mgr"
	"github.com/castellan-storage/castellan/internal/mon"
	"github.com/castellan-storage/castellan/internal/nodedaemon"
	"github.com/castellan-storage/castellan/internal/osd"
	"github.com/castellan-storage/castellan/internal/osd/replace"
	"github.com/castellan-storage/castellan/internal/osd/replace/observe"
	"github.com/castellan-storage/castellan/internal/osd/replace/overview"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/poolmapping"
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
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme, csiv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// DefaultSettings are those of an operator without a ConfigMap.
func DefaultSettings(context.Context) (settings.Settings, error) { return settings.Default(), nil }

// Cache selects as the operator's does, for one namespace: other tests have theirs on
// the same server.
func Cache(t testing.TB, namespace string) cache.Options {
	t.Helper()
	req, err := labels.NewRequirement("rook_cluster", selection.Exists, nil)
	if err != nil {
		t.Fatal(err)
	}
	return kube.CacheOptions(kube.CacheConfig{
		Namespaces: []string{namespace},
		Ours: []client.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{}, &appsv1.Deployment{}, &appsv1.DaemonSet{},
			&batchv1.Job{}, &batchv1.CronJob{}, &policyv1.PodDisruptionBudget{}, &discoveryv1.EndpointSlice{},
		},
		Selected: []kube.Selected{{Object: &corev1.Pod{}, Label: labels.NewSelector().Add(*req)}},
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
	return kit.Env{Client: m.GetClient(), Live: m.GetAPIReader(), Recorder: m.GetEventRecorder("castellan"), Board: kit.NewBoard(), Writers: kit.NewWriters()}
}

// Parts is what the controllers are made of, beside what kit.Env has.
type Parts struct {
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
	// Random is nil for real randomness.
	Random io.Reader
}

// Controller is one line of the operator's list: for a manager, and one pass at a time.
type Controller struct {
	// Name is that of the list in cmd/castellan.
	Name    string
	Options kit.Options
	// Register adds it to a manager.
	Register func(m ctrl.Manager, env kit.Env) error
	// Drive has a scenario of kittest run it.
	Drive kittest.Driver
}

// Elsewhere are the controllers of the operator's list that are not here, and why.
func Elsewhere() map[string]string {
	return map[string]string{
		"csi-drivers":     "no part of a CephCluster; internal/csi has crash runs of its own",
		"csi-replication": "no part of a CephCluster; internal/replication has its own tests",
	}
}

// Controllers are all of the operator's controllers that have to do with a CephCluster
// in the operator's namespace, in the order of the operator's list.
func (p Parts) Controllers() []Controller {
	clusters := kittest.KeysOf(&cephv1.CephClusterList{}, p.Operator.Namespace)
	return []Controller{
		of(cluster.Options(), clusters, p.cluster),
		of(mon.Options(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, mon.Seen] {
			return &mon.Controller{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
		}),
		of(mgr.Options(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, mgr.Seen] {
			return &mgr.Controller{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings, Write: e.Client, Random: p.Random}
		}),
		of(osd.ProvisionOptions(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, osd.ProvisionSeen] {
			return &osd.Provisioner{Base: p.osds(e)}
		}),
		of(osd.DaemonOptions(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, osd.DaemonSeen] {
			return &osd.Daemons{Base: p.osds(e)}
		}),
		of(replace.Options(), p.replacements, func(e kit.Env) kit.Controller[*cephv1.CephCluster, observe.Seen] {
			return &replace.Controller{Reader: p.swaps(e), Write: e.Client}
		}),
		of(overview.Options(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, overview.Seen] {
			return &overview.Controller{Reader: p.swaps(e)}
		}),
		of(config.Options(), clusters, func(kit.Env) kit.Controller[*cephv1.CephCluster, config.Seen] {
			return &config.Controller{Access: p.Access, Operator: p.Operator, Settings: p.Settings}
		}),
		of(nodedaemon.Options(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, nodedaemon.Seen] {
			return &nodedaemon.Controller{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
		}),
		of(disruption.Options(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, disruption.Seen] {
			return &disruption.Controller{Cache: e.Client, Access: p.Access}
		}),
		of(crushupdate.Options(), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, crushupdate.Seen] {
			return &crushupdate.Controller{Cache: e.Client, Access: p.Access, Settings: p.Settings}
		}),
		p.discovery(),
		of(status.Options(), clusters, func(kit.Env) kit.Controller[*cephv1.CephCluster, status.Seen] {
			return &status.Controller{Access: p.Access, Settings: p.Settings}
		}),
		of(csiusers.Options(true), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, csiusers.Seen] {
			return &csiusers.Controller{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
		}),
		of(poolmapping.Options(true), clusters, func(e kit.Env) kit.Controller[*cephv1.CephCluster, poolmapping.Seen] {
			return &poolmapping.Controller{Cache: e.Client, Access: p.Access, Operator: p.Operator, Peers: nobody}
		}),
	}
}

// of makes a line of the list.
func of[T kit.Object, S any](opt kit.Options, keys Keys, controller func(kit.Env) kit.Controller[T, S]) Controller {
	with := func(env kit.Env) kit.Controller[T, S] {
		if env.Live == nil {
			env.Live = env.Client
		}
		return controller(env)
	}
	return Controller{
		Name: opt.Name, Options: opt, Drive: kittest.Drive(with, opt, keys),
		Register: func(m ctrl.Manager, env kit.Env) error { return kit.Register(m, env, with(env), opt) },
	}
}

// Keys gives what is to be reconciled.
type Keys = func(context.Context, client.Reader) ([]kit.Key, error)

func (p Parts) cluster(e kit.Env) kit.Controller[*cephv1.CephCluster, cluster.Seen] {
	c := &cluster.Controller{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings, Random: p.Random}
	return cluster.Releaser{Controller: c, Write: e.Client}
}

func (p Parts) osds(e kit.Env) osd.Base {
	return osd.Base{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
}

func (p Parts) swaps(e kit.Env) view.Reader {
	return view.Reader{Cache: e.Client, Access: p.Access, Operator: p.Operator, Settings: p.Settings}
}

// replacements are the Deployments of OSDs that have to do with one.
func (p Parts) replacements(ctx context.Context, c client.Reader) ([]kit.Key, error) {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(p.Operator.Namespace)); err != nil {
		return nil, err
	}
	var keys []kit.Key
	for i := range list.Items {
		if view.Concerned(&list.Items[i]) {
			keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
	return keys, nil
}

// discovery is told once at the start, as the operator's is.
func (p Parts) discovery() Controller {
	key := discover.Key(p.Operator.Namespace)
	opt := discover.Options(p.Operator.Namespace)
	opt.Sources = append(opt.Sources, source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(reconcile.Request{NamespacedName: key})
		return nil
	}))
	keys := func(context.Context, client.Reader) ([]kit.Key, error) { return []kit.Key{key}, nil }
	return of(opt, keys, func(e kit.Env) kit.Controller[*corev1.ConfigMap, discover.Seen] {
		return &discover.Controller{Cache: e.Client, Live: e.Live, Operator: p.Operator, Settings: p.Settings}
	})
}

// nobody is the peer of no cluster here: there is no mirrored pool.
func nobody(conn.Config) (ceph.Commander, func()) { panic("there are no peers in these tests") }

// Register registers all controllers with a manager.
func (p Parts) Register(t testing.TB, m ctrl.Manager, env kit.Env) {
	t.Helper()
	for _, c := range p.Controllers() {
		if err := c.Register(m, env); err != nil {
			t.Fatalf("registering %s: %v", c.Name, err)
		}
	}
}

// Drivers has a scenario of kittest run all controllers.
func (p Parts) Drivers() []kittest.Driver {
	var list []kittest.Driver
	for _, c := range p.Controllers() {
		list = append(list, c.Drive)
	}
	return list
}
