package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authenticationv1 "k8s.io/api/authentication/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/settings"
)

var server envtestx.Server

func TestMain(m *testing.M) { os.Exit(envtestx.Main(m, &server)) }

// kubeconfigFile writes cfg as a kubeconfig, since that is how the operator is told.
func kubeconfigFile(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	api.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	api.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*api, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start runs the operator and stops it at the end of the test, which it has to do
// without an error.
func start(t *testing.T, f flags) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, f) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the operator ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the operator has not stopped")
		}
	}
	t.Cleanup(stop)
	return stop
}

// eventually asks until it is told that all is well.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func get(ctx context.Context, c *http.Client, url, token string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func testFlags(t *testing.T, ns string) flags {
	return flags{
		kubeconfig: kubeconfigFile(t, server.Config(t)), namespace: ns, controllers: "all", leaderElection: true,
		log: logOf(t), health: freeAddress(t), metrics: metricsOptions{address: freeAddress(t), secure: true},
	}
}

// logOf keeps the log, and shows it when the test fails.
func logOf(t *testing.T) *lockedBuffer {
	b := &lockedBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.String())
		}
	})
	return b
}

func waitReady(t *testing.T, f flags) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "readyz", func() error {
		code, body, err := get(t.Context(), http.DefaultClient, "http://"+f.health+"/readyz", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	return time.Since(began)
}

// The whole process: ready, reporting on a cluster, following its settings, giving
// metrics to whom it may, stopping, and giving the lease back.
func TestOperator(t *testing.T) {
	ns := server.Namespace(t)
	c := server.Client(t, scheme())
	t.Setenv("CASTELLAN_IMAGE", "castellan:test")
	t.Setenv("POD_NAME", "operator-0")
	t.Setenv("POD_UID", "uid-0")
	t.Setenv(envCurrentOnly, "true")
	f := testFlags(t, ns)
	stop := start(t, f)
	t.Logf("ready after %s", waitReady(t, f))

	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: ns},
		Spec: cephv1.ClusterSpec{
			CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook",
			Mon: cephv1.MonSpec{Count: 3},
		},
	}
	if err := c.Create(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is taken up", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cl), cl); err != nil {
			return err
		}
		if cl.Status.Phase == "" || len(cl.Finalizers) == 0 {
			return fmt.Errorf("phase %q, finalizers %v", cl.Status.Phase, cl.Finalizers)
		}
		return c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "rook-ceph-detect-version"}, jobObject())
	})

	checkMetrics(t, c, ns, f.metrics.address)

	var l coordinationv1.Lease
	key := types.NamespacedName{Namespace: ns, Name: leaseName}
	if err := c.Get(t.Context(), key, &l); err != nil {
		t.Fatal(err)
	}
	if got := *l.Spec.HolderIdentity; got != "operator-0_uid-0" {
		t.Errorf("the lease is held by %q", got)
	}
	stop()
	if err := c.Get(t.Context(), key, &l); err != nil {
		t.Fatal(err)
	}
	if got := *l.Spec.HolderIdentity; got != "" {
		t.Errorf("a stopped operator leaves the lease with %q", got)
	}
	// The next one finds all as it is and leads at once.
	f = testFlags(t, ns)
	start(t, f)
	waitReady(t, f)
	began := time.Now()
	eventually(t, "the lease is taken again", func() error {
		if err := c.Get(t.Context(), key, &l); err != nil {
			return err
		}
		if *l.Spec.HolderIdentity == "" {
			return fmt.Errorf("it is held by nobody")
		}
		return nil
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("taking the lease again took %s", took)
	}
}

// checkMetrics reads metrics as nobody, as somebody, and as one who may.
func checkMetrics(t *testing.T, c client.Client, ns, address string) {
	t.Helper()
	tlsClient := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	url := "https://" + address + "/metrics"
	want := map[string]int{"nobody": http.StatusUnauthorized, "stranger": http.StatusForbidden, "scraper": http.StatusOK}
	if err := c.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-metrics"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns + "-metrics"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "scraper"}},
	}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for who := range want {
		token := ""
		if who != "nobody" {
			token = tokenOf(t, c, ns, who)
		}
		eventually(t, "metrics as "+who, func() error {
			code, _, err := get(t.Context(), tlsClient, url, token)
			got[who] = code
			return err
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if _, _, err := get(t.Context(), http.DefaultClient, "http://"+address+"/metrics", ""); err == nil {
		code, _, _ := get(t.Context(), http.DefaultClient, "http://"+address+"/metrics", "")
		if code == http.StatusOK {
			t.Error("metrics are served in the clear")
		}
	}
}

func tokenOf(t *testing.T, c client.Client, ns, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	if err := c.Create(t.Context(), sa); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	req := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), sa, req); err != nil {
		t.Fatal(err)
	}
	return req.Status.Token
}

// A change of the namespaces starts a new manager in the same process; a change of
// the log level starts nothing.
func TestScopeChanges(t *testing.T) {
	ns, other := server.Namespace(t), server.Namespace(t)
	c := server.Client(t, scheme())
	t.Setenv("CASTELLAN_IMAGE", "castellan:test")
	t.Setenv(envWatch, other)
	f := testFlags(t, ns)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: settings.ConfigMap, Namespace: ns},
		Data:       map[string]string{envCurrentOnly: "true"},
	}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	start(t, f)
	waitReady(t, f)
	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: other},
		Spec:       cephv1.ClusterSpec{CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook", Mon: cephv1.MonSpec{Count: 1}},
	}
	if err := c.Create(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	mine := cl.DeepCopy()
	mine.Namespace, mine.ResourceVersion, mine.UID = ns, "", ""
	if err := c.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster in the operator's namespace is taken up", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil {
			return err
		}
		if len(mine.Finalizers) == 0 {
			return fmt.Errorf("no finalizer")
		}
		return nil
	})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cl), cl); err != nil {
		t.Fatal(err)
	}
	if len(cl.Finalizers) > 0 {
		t.Error("the operator has touched a cluster outside of its namespaces")
	}
	cm.Data = map[string]string{envCurrentOnly: "false"}
	if err := c.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other namespace is taken up", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cl), cl); err != nil {
			return err
		}
		if len(cl.Finalizers) == 0 {
			return fmt.Errorf("no finalizer")
		}
		return nil
	})
}
