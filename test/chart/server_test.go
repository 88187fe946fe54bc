package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// server is the API server of these tests, started by the first that asks.
var server struct {
	once sync.Once
	env  *envtest.Environment
	cfg  *rest.Config
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.env != nil {
		if err := server.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	os.Exit(code)
}

// apiServer gives a client of a real API server with the CRDs of deploy/crds.
func apiServer(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("no real API server: KUBEBUILDER_ASSETS is not set")
	}
	server.once.Do(func() {
		server.env = &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(deploy, "crds")}, ErrorIfCRDPathMissing: true}
		server.cfg, server.err = server.env.Start()
	})
	if server.err != nil {
		t.Fatalf("starting an API server: %v", server.err)
	}
	server.cfg.QPS, server.cfg.Burst = -1, -1
	c, err := client.New(server.cfg, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return server.cfg, c
}

func makeNamespaces(t *testing.T, c client.Client, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}); err != nil {
			t.Fatal(err)
		}
	}
}

// helm is Helm's configuration for a namespace; releases are kept in memory.
func helm(t *testing.T, cfg *rest.Config, namespace string) *action.Configuration {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(*rest.Config) *rest.Config { return rest.CopyConfig(cfg) })
	flags.Namespace = &namespace
	flags.APIServer = &cfg.Host
	c := &action.Configuration{}
	if err := c.Init(flags, namespace, "memory", t.Logf); err != nil {
		t.Fatal(err)
	}
	return c
}

func install(t *testing.T, h *action.Configuration, namespace, values string, more func(*action.Install)) *release.Release {
	t.Helper()
	i := action.NewInstall(h)
	i.ReleaseName, i.Namespace = "csi", namespace
	if more != nil {
		more(i)
	}
	c, err := loader.LoadDir(drivers)
	if err != nil {
		t.Fatal(err)
	}
	r, err := i.Run(c, valuesOf(t, values))
	if err != nil {
		t.Fatalf("helm install: %v", err)
	}
	return r
}

func upgrade(t *testing.T, h *action.Configuration, namespace, values string) *release.Release {
	t.Helper()
	u := action.NewUpgrade(h)
	u.Namespace = namespace
	c, err := loader.LoadDir(drivers)
	if err != nil {
		t.Fatal(err)
	}
	r, err := u.Run("csi", c, valuesOf(t, values))
	if err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
	return r
}

func uninstall(t *testing.T, h *action.Configuration) {
	t.Helper()
	if _, err := action.NewUninstall(h).Run("csi"); err != nil {
		t.Fatalf("helm uninstall: %v", err)
	}
}

func get(t *testing.T, c client.Client, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("csi.ceph.io/v1")
	u.SetKind(kind)
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, u); err != nil {
		t.Fatal(err)
	}
	return u
}

// Every rendered object is taken by the API server (an apply is always strict) as it
// stands: no field is unknown,
// none is dropped or changed by a rule of the CRDs.
func TestServerTakesAll(t *testing.T) {
	_, c := apiServer(t)
	made := map[string]bool{}
	for _, cs := range cases {
		t.Run(cs.name, func(t *testing.T) {
			for _, u := range objects(t, render(t, cs.namespace, cs.values, cs.apis...).Manifest) {
				if ns := u.GetNamespace(); ns != "" && !made[ns] {
					made[ns] = true
					makeNamespaces(t, c, ns)
				}
				got := u.DeepCopy()
				err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(got), client.FieldOwner("test"), client.DryRunAll)
				if err != nil {
					t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
					continue
				}
				if got.GetUID() == "" {
					t.Fatalf("%s %s: the server's answer was not read", u.GetKind(), u.GetName())
				}
				if u.GetAPIVersion() == "csi.ceph.io/v1" {
					if diff := cmp.Diff(u.Object["spec"], got.Object["spec"]); diff != "" {
						t.Errorf("%s %s is not stored as it was sent (-sent +stored):\n%s", u.GetKind(), u.GetName(), diff)
					}
				}
			}
		})
	}
}

// The static manifests are taken as well.
func TestServerTakesManifests(t *testing.T) {
	_, c := apiServer(t)
	made := map[string]bool{"rook-ceph": true}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(deploy, "csi", "rbac", "*.yaml"))
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		for _, u := range readManifests(t, filepath.Base(f)) {
			if ns := u.GetNamespace(); ns != "" && !made[ns] {
				made[ns] = true
				if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); client.IgnoreAlreadyExists(err) != nil {
					t.Fatal(err)
				}
			}
			if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.DryRunAll); err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(f), u.GetKind(), u.GetName(), err)
			}
		}
	}
}

// An upgrade changes what the values change, and leaves what users have set in the
// cluster.
func TestUpgradeKeepsUsersFields(t *testing.T) {
	cfg, c := apiServer(t)
	const ns = "upgrade"
	makeNamespaces(t, c, ns)
	h := helm(t, cfg, ns)
	const names = `drivers: {rbd: {name: up.rbd.csi.ceph.com}, cephfs: {name: up.cephfs.csi.ceph.com}}`
	install(t, h, ns, names, nil)
	driver := get(t, c, "Driver", ns, "up.rbd.csi.ceph.com")
	edit := `{"metadata":{"labels":{"mine":"yes"},"annotations":{"addons.csi.ceph.io/volume-condition":"true"}},
		"spec":{"clusterName":"east","nodePlugin":{"tolerations":[{"operator":"Exists"}]}}}`
	if err := c.Patch(t.Context(), driver, client.RawPatch(types.MergePatchType, []byte(edit))); err != nil {
		t.Fatal(err)
	}
	upgrade(t, h, ns, `
operatorConfig: {driverSpecDefaults: {grpcTimeout: 99, log: {rotation: null}}}
drivers: {rbd: {name: up.rbd.csi.ceph.com, deployCsiAddons: true}, cephfs: {enabled: false}}`)
	driver = get(t, c, "Driver", ns, "up.rbd.csi.ceph.com")
	wantSpec := map[string]any{
		"clusterName": "east", "deployCsiAddons": true, "snapshotPolicy": "none",
		"controllerPlugin": map[string]any{"serviceAccountName": "up-rbd-csi-ceph-com-ctrlplugin-sa"},
		"nodePlugin":       map[string]any{"serviceAccountName": "up-rbd-csi-ceph-com-nodeplugin-sa", "tolerations": []any{map[string]any{"operator": "Exists"}}},
	}
	if diff := cmp.Diff(wantSpec, driver.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if driver.GetLabels()["mine"] != "yes" || driver.GetAnnotations()["addons.csi.ceph.io/volume-condition"] != "true" {
		t.Errorf("labels %v, annotations %v", driver.GetLabels(), driver.GetAnnotations())
	}
	config := get(t, c, "OperatorConfig", ns, "ceph-csi-operator-config")
	if diff := cmp.Diff(map[string]any{"grpcTimeout": int64(99), "log": map[string]any{"verbosity": int64(0)}}, config.Object["spec"].(map[string]any)["driverSpecDefaults"]); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	var list unstructured.UnstructuredList
	list.SetAPIVersion("csi.ceph.io/v1")
	list.SetKind("DriverList")
	if err := c.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Errorf("%d Drivers are left, not one", len(list.Items))
	}
	uninstall(t, h)
}

// What an earlier way of installing has made is taken over with its fields.
func TestTakeOver(t *testing.T) {
	cfg, c := apiServer(t)
	const ns = "takeover"
	makeNamespaces(t, c, ns)
	old := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "csi.ceph.io/v1", "kind": "Driver",
		"metadata": map[string]any{"name": "takeover.rbd.csi.ceph.com", "namespace": ns},
		"spec":     map[string]any{"snapshotPolicy": "volumeSnapshot", "clusterName": "kept", "controllerPlugin": map[string]any{"replicas": int64(3)}},
	}}
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	h := helm(t, cfg, ns)
	const values = `{operatorConfig: {create: false}, drivers: {rbd: {name: takeover.rbd.csi.ceph.com, snapshotPolicy: volumeSnapshot}, cephfs: {enabled: false}}}`
	install(t, h, ns, values, func(i *action.Install) { i.TakeOwnership = true })
	got := get(t, c, "Driver", ns, old.GetName())
	if got.GetUID() != old.GetUID() {
		t.Fatal("the Driver was made anew: its pods would have been deleted")
	}
	want := map[string]any{
		"snapshotPolicy": "volumeSnapshot", "clusterName": "kept",
		"controllerPlugin": map[string]any{"replicas": int64(3), "serviceAccountName": "takeover-rbd-csi-ceph-com-ctrlplugin-sa"},
		"nodePlugin":       map[string]any{"serviceAccountName": "takeover-rbd-csi-ceph-com-nodeplugin-sa"},
	}
	if diff := cmp.Diff(want, got.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	uninstall(t, h)
}

// Namespaces of Secrets that StorageClasses name are found; those that nobody can know
// beforehand, and drivers that are not there, are warned of.
func TestStorageClasses(t *testing.T) {
	cfg, c := apiServer(t)
	const ns = "classes"
	makeNamespaces(t, c, ns, "ceph-one", "ceph-two", "ceph-other")
	class := func(name, provisioner, secretNamespace string) {
		sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, Parameters: map[string]string{
			"csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/provisioner-secret-namespace": secretNamespace,
			"csi.storage.k8s.io/node-stage-secret-namespace": secretNamespace,
		}}
		if err := c.Create(t.Context(), sc); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(t.Context(), sc); client.IgnoreNotFound(err) != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
	}
	class("one", "classes.rbd.csi.ceph.com", "ceph-one")
	class("by-claim", "classes.rbd.csi.ceph.com", "${pvc.namespace}")
	class("not-ours", "other.csi.example.com", "ceph-other")
	class("lost", "rook-ceph.rbd.csi.ceph.com", "ceph-other")
	h := helm(t, cfg, ns)
	r := install(t, h, ns, `
drivers: {rbd: {name: classes.rbd.csi.ceph.com}, cephfs: {enabled: false}}
rbac: {secretNamespaces: [ceph-two]}`, nil)
	var roles rbacv1.RoleList
	if err := c.List(t.Context(), &roles, client.MatchingLabels{"app.kubernetes.io/instance": "csi"}); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			if rule.Resources[0] == "secrets" {
				found[role.Namespace] = true
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{ns: true, "ceph-one": true, "ceph-two": true}, found); diff != "" {
		t.Errorf("namespaces whose Secrets can be read (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"these namespaces only: ceph-one, ceph-two, classes.", "StorageClass by-claim takes Secrets of namespaces that are not known",
		"StorageClass lost is of the driver rook-ceph.rbd.csi.ceph.com",
	} {
		if !strings.Contains(r.Info.Notes, want) {
			t.Errorf("the notes are without %q:\n%s", want, r.Info.Notes)
		}
	}
	if strings.Contains(r.Info.Notes, "not-ours") {
		t.Errorf("the notes speak of somebody else's StorageClass:\n%s", r.Info.Notes)
	}
	uninstall(t, h)
}
