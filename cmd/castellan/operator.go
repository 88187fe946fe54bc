package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/settings"
)

// flags of the operator.
type flags struct {
	kubeconfig, namespace, controllers, health string
	metrics                                    metricsOptions
	leaderElection                             bool
	// log is where lines go; standard error but for tests.
	log io.Writer
}

func operatorCmd() *cobra.Command {
	f := flags{log: os.Stderr}
	cmd := &cobra.Command{
		Use: "operator", Short: "Run the operator (the default)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "file to reach Kubernetes by; the pod's own identity, or KUBECONFIG, where it is not given")
	fs.StringVar(&f.namespace, "namespace", "", "namespace of the operator; POD_NAMESPACE where it is not given")
	fs.StringVar(&f.controllers, "controllers", "all", "which controllers run: all, "+groupCeph+", "+groupCSI+", or names separated by commas")
	fs.StringVar(&f.health, "health-bind-address", ":8081", "address of /healthz and /readyz; 0 serves none")
	fs.StringVar(&f.metrics.address, "metrics-bind-address", ":8443", "address of /metrics; 0 serves none")
	fs.BoolVar(&f.metrics.secure, "metrics-secure", true, "serve metrics by TLS, to those who may get /metrics; without it, to everybody and in the clear")
	fs.StringVar(&f.metrics.certDir, "metrics-cert-dir", "", "directory with tls.crt and tls.key for metrics; self-signed where it is not given")
	fs.BoolVar(&f.leaderElection, "leader-election", true, "let one of several replicas lead")
	return cmd
}

// errScope ends a manager whose namespaces are no longer the wanted ones.
var errScope = errors.New("the namespaces to work in have changed")

// run runs managers until ctx ends: one, unless the namespaces to work in change.
// That is the one setting which a running cache cannot follow; the process goes
// on, with its connections to Ceph.
func run(ctx context.Context, f flags) error {
	// Before the first connection to Ceph loads anything more.
	go tidy(ctx, fixedMappings())
	p, err := newProcess(ctx, f)
	if err != nil {
		return err
	}
	defer p.pool.Close()
	for {
		err := p.manage(ctx)
		if !errors.Is(err, errScope) && !errors.Is(err, errInstalled) {
			return err
		}
		p.log.Info("starting anew: " + err.Error())
	}
}

// process is what stays from one manager to the next.
type process struct {
	flags    flags
	scheme   *runtime.Scheme
	log      logr.Logger
	level    *slog.LevelVar
	cfg      *rest.Config
	mapper   meta.RESTMapper
	live     client.Client
	operator pods.Operator
	pool     *conn.Pool
	lease    *lease
}

func newProcess(ctx context.Context, f flags) (*process, error) {
	p := &process{flags: f, scheme: scheme(), level: new(slog.LevelVar), pool: conn.New()}
	setLevel(p.level, settings.Default().LogLevel)
	p.log = startLogging(f.log, p.level)
	var err error
	if p.cfg, err = kubeConfig(f.kubeconfig); err != nil {
		return nil, err
	}
	if p.mapper, err = kube.NewMapper(p.cfg); err != nil {
		return nil, err
	}
	if p.live, err = client.New(p.cfg, client.Options{Scheme: p.scheme, Mapper: p.mapper}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if p.operator, err = self(ctx, p.live, f.namespace); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding this machine's name: %w", err)
	}
	identity := fmt.Sprintf("%s_%d", host, os.Getpid())
	if uid := os.Getenv("POD_UID"); uid != "" {
		identity = cmp.Or(os.Getenv("POD_NAME"), host) + "_" + uid
	}
	p.lease, err = newLease(p.cfg, p.operator.Namespace, identity)
	return p, err
}

// kubeConfig is how to reach Kubernetes. The API server's own flow control bounds
// the requests; a second bound here would only make a pass slow.
func kubeConfig(file string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if file != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", file)
	} else {
		cfg, err = ctrlconfig.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("finding how to reach Kubernetes: %w", err)
	}
	cfg.QPS, cfg.Burst = -1, -1
	// Each watch that is compressed keeps some 80 KiB here, and more in the API server,
	// for answers that are small.
	cfg.DisableCompression = true
	cfg.UserAgent = "castellan/" + ownVersion()
	return cfg, nil
}

// self finds out where this process runs and in which image: by the environment,
// or by its own pod.
func self(ctx context.Context, live client.Reader, namespace string) (pods.Operator, error) {
	op := pods.Operator{
		Namespace: cmp.Or(namespace, os.Getenv("POD_NAMESPACE"), os.Getenv("OPERATOR_NAMESPACE")),
		Image:     os.Getenv("CASTELLAN_IMAGE"), Version: naming.LabelValue(ownVersion()),
	}
	if op.Namespace == "" {
		return op, fmt.Errorf("the operator's namespace is not known: set POD_NAMESPACE or --namespace")
	}
	if op.Image != "" {
		return op, nil
	}
	name := os.Getenv("POD_NAME")
	if name == "" {
		return op, fmt.Errorf("the operator's image is not known: set CASTELLAN_IMAGE, or POD_NAME")
	}
	pod, err := kube.Lookup[corev1.Pod](ctx, live, types.NamespacedName{Namespace: op.Namespace, Name: name})
	switch {
	case err != nil:
		return op, fmt.Errorf("finding the operator's image: %w", err)
	case pod == nil || len(pod.Spec.Containers) == 0:
		return op, fmt.Errorf("finding the operator's image: there is no pod %s in namespace %s; set CASTELLAN_IMAGE", name, op.Namespace)
	}
	op.Image = pod.Spec.Containers[0].Image
	for _, c := range pod.Spec.Containers {
		if strings.HasPrefix(c.Name, "rook-ceph-operator") || strings.HasPrefix(c.Name, "castellan") {
			op.Image = c.Image
		}
	}
	return op, nil
}

// manage runs one manager to its end: nil when ctx ends, errScope or errInstalled when
// another one is to follow.
func (p *process) manage(ctx context.Context) error {
	list, err := selectControllers(controllers(), p.flags.controllers)
	if err != nil {
		return err
	}
	wanted, err := p.scope(ctx)
	if err != nil {
		return err
	}
	got, narrowed, err := permitted(ctx, p.live, p.operator.Namespace, wanted)
	if err != nil {
		return err
	}
	p.log.Info("starting", "version", ownVersion(), "namespace", p.operator.Namespace, "image", p.operator.Image, "scope", got.String(), "controllers", names(list))
	if narrowed {
		p.log.Info("all namespaces are asked for, but Secrets may not be read in all of them: working in the operator's own only",
			"hint", "name the others in "+envWatch+" and give the operator its Role in each; see deploy/README.md")
	}
	mgr, err := p.manager(got)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := p.fill(ctx, mgr, got, list, func(data map[string]string) {
		if p.moves(ctx, got, scopeOf(p.operator.Namespace, data, os.Getenv)) {
			cancel(errScope)
		}
	}, func() { cancel(errInstalled) }); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	for _, again := range []error{errScope, errInstalled} {
		if errors.Is(context.Cause(ctx), again) {
			return again
		}
	}
	p.log.Info("stopped")
	return nil
}

// moves says whether wanted leads to other namespaces than those of this manager. If
// that cannot be found out, the next manager will.
func (p *process) moves(ctx context.Context, now, wanted scope) bool {
	if wanted.String() == now.String() {
		return false
	}
	next, _, err := permitted(ctx, p.live, p.operator.Namespace, wanted)
	return err != nil || next.String() != now.String()
}

// scope reads the wanted scope, live.
func (p *process) scope(ctx context.Context) (scope, error) {
	cm, err := kube.Lookup[corev1.ConfigMap](ctx, p.live, types.NamespacedName{Namespace: p.operator.Namespace, Name: settings.ConfigMap})
	if err != nil {
		return scope{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	if cm == nil {
		cm = &corev1.ConfigMap{}
	}
	return scopeOf(p.operator.Namespace, cm.Data, os.Getenv), nil
}

// manager makes a manager without controllers.
func (p *process) manager(s scope) (ctrl.Manager, error) {
	opts := ctrl.Options{
		Scheme: p.scheme, Logger: p.log, Cache: cacheOptions(s),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.mapper, nil },
		Metrics:        p.flags.metrics.server(p.scheme), HealthProbeBindAddress: p.flags.health,
		LeaderElection: p.flags.leaderElection, LeaderElectionResourceLockInterface: p.lease,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseDuration), RenewDeadline: ptr.To(renewDeadline), RetryPeriod: ptr.To(retryPeriod),
		// A pass that is under way may finish its effect.
		GracefulShutdownTimeout: ptr.To(20 * time.Second),
		Controller: config.Controller{
			// Caches fill while the lease is waited for, so that a replica takes over at once.
			EnableWarmup: ptr.To(true),
			// Names are unique by the list; a second manager in this process uses them again.
			SkipNameValidation: ptr.To(true),
		},
	}
	mgr, err := ctrl.NewManager(p.cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	return mgr, nil
}

// fill puts everything into a manager that runs in it.
func (p *process) fill(ctx context.Context, mgr ctrl.Manager, s scope, list []entry, settingsChanged func(map[string]string), installed func()) error {
	env, err := kit.EnvOf(mgr)
	if err != nil {
		return err
	}
	if p.flags.leaderElection {
		env.Fence = p.lease.Fence
	}
	set, err := newOperatorSettings(mgr, p.operator.Namespace)
	if err != nil {
		return err
	}
	follow := func(value settings.Settings, data map[string]string) {
		p.pool.SetTimeout(value.CommandTimeout)
		settingsChanged(data)
	}
	if err := set.OnChange(ctx, p.level, follow); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("caches", ready(mgr)); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	c := &common{
		ctx: ctx, mgr: mgr, env: env, operator: p.operator, settings: set, scope: s,
		access: access.Reader{Live: mgr.GetAPIReader(), Dial: func(name string, cfg conn.Config) ceph.Commander { return p.pool.Cluster(name, cfg).Shared() }},
	}
	if err := c.skipCSI(installed); err != nil {
		return err
	}
	for _, e := range list {
		if c.without[e.group] {
			continue
		}
		if err := e.register(c); err != nil {
			return fmt.Errorf("registering %s: %w", e.name, err)
		}
	}
	// Without Ceph's controllers its kinds may not be installed at all.
	if !slices.ContainsFunc(list, func(e entry) bool { return e.group == groupCeph }) {
		return nil
	}
	return forgetClusters(ctx, mgr, p.pool)
}

// forgetClusters closes the connection to a cluster when its CephCluster goes.
func forgetClusters(ctx context.Context, mgr ctrl.Manager, pool interface{ Forget(name string) }) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &cephv1.CephCluster{})
	if err != nil {
		return fmt.Errorf("watching CephClusters: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if cl, ok := obj.(*cephv1.CephCluster); ok {
			pool.Forget(cl.Namespace)
		}
	}})
	if err != nil {
		return fmt.Errorf("watching CephClusters: %w", err)
	}
	return nil
}
