package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/image"
	"github.com/castellan-storage/castellan/lab/testlab"
)

func TestMain(m *testing.M) { testlab.Main(m) }

const (
	// envBin says where the binaries are; the default is the repository's bin directory.
	envBin = "CASTELLAN_BIN"
	// repository is its root as seen from this package.
	repository = "../.."
	// first is the operator's namespace, second another one with drivers.
	first, second = "rook-ceph", "storage-b"
	nodes         = 2

	operatorImage = "localhost/castellan:dev"
	standin       = "/usr/local/bin/csi-standin"
	configFile    = "/etc/ceph-csi-config/config.json"
)

// roleImage is the stand-in's image for a role.
func roleImage(role string) string { return "localhost/csi-standin-" + role + ":dev" }

// world is a lab with the operator in it.
type world struct {
	*testlab.Lab
	dyn dynamic.Interface
}

// start starts a lab and the operator in it.
func start(t *testing.T) *world {
	t.Helper()
	loadImages(t)
	w := &world{Lab: testlab.StartNamed(t, "csi", testlab.Options{Nodes: nodes})}
	var err error
	if w.dyn, err = dynamic.NewForConfig(w.Config()); err != nil {
		t.Fatal(err)
	}
	return w
}

func loadImages(t *testing.T) {
	t.Helper()
	unavailable := func(why error) {
		if os.Getenv(testlab.EnvRequire) != "" {
			t.Fatalf("no images, and %s is set: %v", testlab.EnvRequire, why)
		}
		t.Skipf("no images: %v", why)
	}
	if os.Geteuid() != 0 {
		unavailable(errors.New("a lab needs root"))
	}
	if _, err := build.Lookup("bin", "cni", "golden", "images"); err != nil {
		unavailable(err)
	}
	dir := os.Getenv(envBin)
	if dir == "" {
		dir = filepath.Join(repository, "bin")
	}
	load := func(name, base string, cfg image.Config, programs ...string) {
		var adds []image.Add
		for _, p := range programs {
			if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
				unavailable(fmt.Errorf("%w (make binaries csi-standin builds it)", err))
			}
			a, err := image.ParseAdd(filepath.Join(dir, p) + ":/usr/local/bin/" + p)
			if err != nil {
				t.Fatal(err)
			}
			adds = append(adds, a)
		}
		if _, _, err := build.Load(t.Context(), name, base, cfg, adds, build.Options{NoInstall: true}); err != nil {
			t.Fatal(err)
		}
	}
	load(operatorImage, "ceph", image.Config{Cmd: []string{"castellan", "operator"}}, "castellan", "castellan-node")
	for _, role := range []string{"plugin", "registrar", "sidecar"} {
		load(roleImage(role), "pause", image.Config{Entrypoint: []string{standin, role}}, "csi-standin")
	}
}

// file reads a file of the repository's deploy directory.
func file(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{repository, "deploy"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// install installs the operator as deploy/README.md says, for two namespaces and with
// the CSI controllers alone. The CRDs of Ceph are not there.
func (w *world) install(t *testing.T) {
	t.Helper()
	crds, err := filepath.Glob(filepath.Join(repository, "deploy", "crds", "csi.ceph.io_*.yaml"))
	if err != nil || len(crds) != 6 {
		t.Fatal(crds, err)
	}
	args := []string{"apply", "--server-side"}
	for _, c := range crds {
		args = append(args, "-f", c)
	}
	w.MustKubectl(t, args...)
	w.Apply(t, file(t, "common.yaml"))
	w.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+second+"}}")
	w.Apply(t, strings.ReplaceAll(file(t, "csi", "rbac", "operator.yaml"), "namespace: storage", "namespace: "+second))
	operator := replace(t, file(t, "operator.yaml"),
		"ghcr.io/castellan-storage/castellan:latest", operatorImage,
		"command: [castellan, operator]", "command: [castellan, operator, --controllers=csi]",
		`ROOK_CURRENT_NAMESPACE_ONLY: "true"`, `ROOK_CURRENT_NAMESPACE_ONLY: "false"`,
		"            # - name: WATCH_NAMESPACE\n            #   value: rook-ceph-2\n", "            - {name: WATCH_NAMESPACE, value: "+second+"}\n")
	w.Apply(t, operator)
	w.MustKubectl(t, "-n", first, "rollout", "status", "deployment/rook-ceph-operator", "--timeout=90s")
}

// replace replaces texts that must be there.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not there any more", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// until is testlab.Until that ends with what was wrong last, not with the client's
// word that time has run out.
func until(t *testing.T, limit time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	var last error
	testlab.Until(t, limit, what, func(ctx context.Context) error {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil && !strings.Contains(err.Error(), "would exceed context deadline") {
			last = err
		}
		return last
	})
}

// measured prints a figure.
func measured(t *testing.T, name string, d time.Duration) {
	t.Helper()
	t.Logf("MEASURED %s %.2fs", name, d.Seconds())
}

func gvr(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "csi.ceph.io", Version: "v1", Resource: resource}
}

// status is what the kinds of csi.ceph.io report.
type status struct {
	Phase, Message string
	ControllerPlugin, NodePlugin,
	NodePluginAddons struct{ Desired, Available int }
}

func (w *world) status(ctx context.Context, resource, namespace, name string) (status, error) {
	var o struct{ Status status }
	u, err := w.dyn.Resource(gvr(resource)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return o.Status, err
	}
	b, err := u.MarshalJSON()
	if err != nil {
		return o.Status, err
	}
	return o.Status, json.Unmarshal(b, &o)
}

// patch changes an object of csi.ceph.io in the first namespace.
func (w *world) patch(t *testing.T, resource, name, merge string) {
	t.Helper()
	if _, err := w.dyn.Resource(gvr(resource)).Namespace(first).Patch(t.Context(), name, types.MergePatchType, []byte(merge), metav1.PatchOptions{}); err != nil {
		t.Fatalf("patching %s %s: %v", resource, name, err)
	}
}

// untilPhase waits until an object reports a phase, and returns the message.
func (w *world) untilPhase(t *testing.T, resource, namespace, name, phase string) string {
	t.Helper()
	var s status
	until(t, 2*time.Minute, resource+" "+name+" is "+phase, func(ctx context.Context) error {
		var err error
		s, err = w.status(ctx, resource, namespace, name)
		if err == nil && s.Phase != phase {
			err = fmt.Errorf("phase %q: %s", s.Phase, s.Message)
		}
		return err
	})
	return s.Message
}

// registered is nil when the kubelets of all nodes know exactly these drivers, each
// by the node's name.
func (w *world) registered(ctx context.Context, drivers ...string) error {
	list, err := w.Kube().StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != nodes {
		return fmt.Errorf("%d CSINodes", len(list.Items))
	}
	for _, n := range list.Items {
		found := map[string]string{}
		for _, d := range n.Spec.Drivers {
			found[d.Name] = d.NodeID
		}
		if len(found) != len(drivers) {
			return fmt.Errorf("%s has the drivers %v", n.Name, found)
		}
		for _, d := range drivers {
			if found[d] != n.Name {
				return fmt.Errorf("%s has the drivers %v", n.Name, found)
			}
		}
	}
	return nil
}

// pods are those of a workload of a driver, by its label.
func (w *world) pods(t *testing.T, namespace, app string) []corev1.Pod {
	t.Helper()
	list, err := w.Kube().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		t.Fatalf("there are no pods of %s", app)
	}
	return list.Items
}

// read gives what a container sees of a file.
func (w *world) read(ctx context.Context, namespace, pod, container, path string) (string, error) {
	r, err := w.PodExec(ctx, namespace, pod, container, standin, "cat", path)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("reading %s in %s: %s", path, pod, r.Stderr)
	}
	return r.Stdout, err
}

// stored gives a key of the drivers' configuration.
func (w *world) stored(ctx context.Context, namespace, key string) (string, error) {
	cm, err := w.Kube().CoreV1().ConfigMaps(namespace).Get(ctx, "ceph-csi-config", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cm.Data[key], nil
}

// untilStored waits until config.json satisfies want.
func (w *world) untilStored(t *testing.T, namespace, key, what string, want func(text string) bool) string {
	t.Helper()
	var text string
	until(t, 30*time.Second, what, func(ctx context.Context) error {
		var err error
		if text, err = w.stored(ctx, namespace, key); err == nil && !want(text) {
			err = fmt.Errorf("%s holds %s", key, text)
		}
		return err
	})
	return text
}

// poke has the kubelet look at a pod at once, as it does whenever a pod changes: it
// brings the pod's ConfigMaps up to date then, and otherwise about once a minute.
func (w *world) poke(t *testing.T, namespace, pod string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"lab/poked":%q}}}`, time.Now().Format(time.RFC3339Nano))
	if _, err := w.Kube().CoreV1().Pods(namespace).Patch(t.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is still there")
	}
	return err
}
