package mgr

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/config"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	cephmgr "github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/access/accesstest"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/settings"
)

const ns = "rook-ceph"

// always is a source of randomness that gives the same, so that all runs end alike.
type always struct{}

func (always) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'p'
	}
	return len(b), nil
}

// life is a cluster that runs, and what its dashboard was told.
type life struct {
	*kittest.World
	c    client.Client
	ceph *cephtest.Cluster
}

func newLife(t testing.TB) *life {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	store, err := kittest.NewStore(scheme)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{c: store.Client(), ceph: cephtest.Healthy(t, 2, 1)}
	for _, o := range accesstest.Founded(t, ns) {
		if err := l.c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	l.World = &kittest.World{
		Env: kit.Env{Client: l.c},
		Drivers: []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*cephv1.CephCluster, Seen] {
			return &Controller{
				Cache: env.Client, Access: access.Reader{Live: env.Client, Dial: func(string, conn.Config) ceph.Commander { return l.ceph }},
				Operator: pods.Operator{Image: "castellan:1", Namespace: ns, Version: "1"}, Write: env.Client,
				Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil },
				Random:   always{},
			}
		}, Options(), kittest.KeysOf(&cephv1.CephClusterList{}, ns))},
		Digest: func(ctx context.Context) (string, error) {
			s, err := kittest.Digest(ctx, l.c, ns, &appsv1.DeploymentList{}, &corev1.SecretList{}, &corev1.ServiceList{})
			return s + l.says(ctx), err
		},
	}
	return l
}

// says is what Ceph has of the dashboard.
func (l *life) says(ctx context.Context) string {
	var out []string
	mods, err := cephmgr.New(l.ceph).Modules(ctx)
	out = append(out, fmt.Sprint(mods.On("dashboard"), err))
	opts, err := config.New(l.ceph).Dump(ctx)
	for _, o := range opts {
		if strings.HasPrefix(o.Name, "mgr/") {
			out = append(out, o.Who()+" "+o.Name+"="+o.Value)
		}
	}
	slices.Sort(out[1:])
	password, made := l.ceph.DashboardPassword("admin")
	crt, _ := cephmgr.New(l.ceph).HasDashboardCertificate(ctx)
	return strings.Join(append(out, fmt.Sprintf("%v %s %v %v", err, password, made, crt)), "\n")
}

func withDashboard(d cephv1.DashboardSpec) func(context.Context, *kittest.World) error {
	return change(func(cl *cephv1.CephCluster) { cl.Spec.Dashboard = d })
}

// change makes the CephCluster, or edits the one that is there.
func change(f func(*cephv1.CephCluster)) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		cl := &cephv1.CephCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "my", Namespace: ns},
			Spec:       cephv1.ClusterSpec{DataDirHostPath: "/var/lib/rook", Mgr: cephv1.MgrSpec{Count: 1}},
		}
		err := w.Env.Client.Get(ctx, client.ObjectKeyFromObject(cl), cl)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		f(cl)
		if err == nil {
			st := cl.Status
			if err := w.Env.Client.Update(ctx, cl); err != nil {
				return err
			}
			cl.Status = st
			return w.Env.Client.Status().Update(ctx, cl)
		}
		if err := w.Env.Client.Create(ctx, cl); err != nil {
			return err
		}
		cl.Status = cephv1.ClusterStatus{ObservedGeneration: 1, Phase: cephv1.ConditionReady, CephVersion: &cephv1.ClusterVersion{Image: "quay.io/ceph/ceph:v20.2.4", Version: "20.2.4-0"}}
		return w.Env.Client.Status().Update(ctx, cl)
	}
}

// secret puts a password into the Secret, or deletes it.
func secret(password string) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		var s corev1.Secret
		if err := w.Env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: PasswordSecret}, &s); err != nil {
			return err
		}
		if password == "" {
			return w.Env.Client.Delete(ctx, &s)
		}
		s.Data = map[string][]byte{"password": []byte(password)}
		return w.Env.Client.Update(ctx, &s)
	}
}

func play(t *testing.T, acts ...kittest.Act) *life {
	t.Helper()
	var l *life
	if _, err := kittest.Play(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World { l = newLife(t); return l.World }, Acts: acts, Settle: time.Minute,
	}, 0, kittest.Before); err != nil {
		t.Fatal(err)
	}
	return l
}

// The life of a dashboard, with a crash at every effect.
func TestLifeOfADashboard(t *testing.T) {
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return newLife(t).World },
		Acts: []kittest.Act{
			{Name: "off", Do: change(func(*cephv1.CephCluster) {}), Setup: true},
			{Name: "on", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, SSL: true})},
			{Name: "another prefix", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, SSL: true, URLPrefix: "/ceph"})},
			{Name: "another password", Do: secret("correct horse battery\n")},
			{Name: "without TLS", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, Port: 7001, URLPrefix: "/ceph"})},
			{Name: "off again", Do: withDashboard(cephv1.DashboardSpec{})},
		},
		Settle: time.Minute,
	})
	if len(res.Effects) < 20 {
		t.Errorf("only %d effects:\n%s", len(res.Effects), res.Trace())
	}
}

func TestDashboard(t *testing.T) {
	const made = "obyha4dqobyha4dqobyha4dq-A1" // of always
	on := kittest.Act{Name: "on", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, SSL: true})}
	for _, tc := range []struct {
		name string
		acts []kittest.Act
		want string
	}{
		{"on", []kittest.Act{on}, "true <nil>\nmgr mgr/dashboard/ssl=true\nmgr mgr/dashboard/ssl_server_port=8443\n<nil> " + made + " true true"},
		{"the password is changed", []kittest.Act{on, {Name: "edit", Do: secret("correct horse\n")}},
			"true <nil>\nmgr mgr/dashboard/ssl=true\nmgr mgr/dashboard/ssl_server_port=8443\n<nil> correct horse true true"},
		{"the password is lost", []kittest.Act{on, {Name: "edit", Do: secret("correct horse")}, {Name: "lost", Do: secret("")}},
			"true <nil>\nmgr mgr/dashboard/ssl=true\nmgr mgr/dashboard/ssl_server_port=8443\n<nil> " + made + " true true"},
		{"no TLS", []kittest.Act{{Name: "on", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, URLPrefix: "/c"})}},
			"true <nil>\nmgr mgr/dashboard/server_port=7000\nmgr mgr/dashboard/ssl=false\nmgr mgr/dashboard/url_prefix=/c\n<nil> " + made + " true false"},
		{"off again", []kittest.Act{on, {Name: "off", Do: withDashboard(cephv1.DashboardSpec{})}}, "false <nil>\n<nil> " + made + " true true"},
		{"the user's own options stay", []kittest.Act{{Name: "own", Do: func(ctx context.Context, w *kittest.World) error {
			return change(func(cl *cephv1.CephCluster) {
				cl.Spec.CephConfig = map[string]map[string]string{"mgr": {"mgr/dashboard/url_prefix": "/own", "mgr/prometheus/server_port": "9999"}}
			})(ctx, w)
		}}}, "false <nil>\nmgr mgr/dashboard/url_prefix=/own\nmgr mgr/prometheus/server_port=9999\n<nil>  false false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l *life
			acts := tc.acts
			if tc.acts[0].Name == "own" {
				first := acts[0].Do
				acts = []kittest.Act{{Name: "own", Do: func(ctx context.Context, w *kittest.World) error {
					l.ceph.SetOption("mgr", "mgr/dashboard/url_prefix", "/own")
					l.ceph.SetOption("mgr", "mgr/prometheus/server_port", "9999")
					return first(ctx, w)
				}}}
			}
			if _, err := kittest.Play(t, kittest.Scenario{
				World: func(t testing.TB) *kittest.World { l = newLife(t); return l.World }, Acts: acts, Settle: time.Minute,
			}, 0, kittest.Before); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, l.says(t.Context())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What the dashboard reads when it starts is set while it is off.
func TestTheDashboardStartsAfterItsOptionsAreSet(t *testing.T) {
	l := play(t,
		kittest.Act{Name: "on", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, SSL: true, Port: 9000})},
		kittest.Act{Name: "prefix", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, SSL: true, Port: 9000, URLPrefix: "/x"})},
		kittest.Act{Name: "a Prometheus", Do: withDashboard(cephv1.DashboardSpec{Enabled: true, SSL: true, Port: 9000, URLPrefix: "/x", PrometheusEndpoint: "http://p"})},
	)
	re := regexp.MustCompile(`\bmgr/dashboard/\w+|\bdashboard\b`)
	var got []string
	for _, s := range l.ceph.Commands() {
		if m := re.FindString(s.Command); s.Mutating && m != "" {
			got = append(got, s.Prefix+" "+m)
		}
	}
	want := []string{
		"config set mgr/dashboard/ssl", "config set mgr/dashboard/ssl_server_port", "mgr module enable dashboard",
		"dashboard create-self-signed-cert dashboard", "dashboard ac-user-create dashboard",
		"mgr module disable dashboard", "config set mgr/dashboard/url_prefix", "mgr module enable dashboard",
		"config set mgr/dashboard/PROMETHEUS_API_HOST", "config set mgr/dashboard/PROMETHEUS_API_SSL_VERIFY",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSamePassword(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		hash, password string
		want           bool
	}{
		{string(hash), "right", true}, {string(hash), "wrong", false}, {string(hash), "right", true},
		{"a hash of another kind", "right", true}, {"", "right", true}, {string(hash), "", true},
	} {
		var p passwords
		for range 2 { // the second answer is the remembered one
			if got := p.same(ns, ceph.NewSecret(tc.hash), ceph.NewSecret(tc.password)); got != tc.want {
				t.Errorf("%q, %q: %v", tc.hash, tc.password, got)
			}
		}
	}
}

// A Secret that a person has emptied is named, and nobody is locked out by it.
func TestASecretWithoutPasswordIsTold(t *testing.T) {
	cl := &cephv1.CephCluster{}
	cl.Spec.Dashboard.Enabled = true
	var p kit.Plan
	modules(cl, Seen{Dashboard: Dashboard{Empty: true}, Modules: cephmgr.Modules{Enabled: []string{"dashboard"}}, Stat: cephmgr.Stat{Available: true}}, &p)
	if c := p.Conditions[0]; c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, PasswordSecret) || len(p.Create) > 0 {
		t.Errorf("%s", p)
	}
	for _, a := range p.Do {
		if _, ok := a.(AdminUser); ok {
			t.Errorf("%s", p)
		}
	}
}
