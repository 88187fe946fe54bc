package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

// lockedBuffer keeps what the operator logs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// applyFile applies a manifest of deploy/.
func applyFile(t *testing.T, c client.Client, file string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := d.Decode(u); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			t.Fatalf("%s: %s %s: %v", file, u.GetKind(), u.GetName(), err)
		}
	}
}

// The operator with the rights that deploy/ gives it, and no others, fills its caches,
// accepts a Ceph version, founds a cluster and starts a mon. The test stands in for
// the Job controller and the scheduler. The settings ask for all namespaces, as those
// of Rook do, which the rights do not allow.
func TestDeployedRights(t *testing.T) {
	const ns = "rook-ceph"
	c := server.Client(t, scheme())
	ctx := t.Context()
	applyFile(t, c, "common.yaml")
	applyFile(t, c, "operator.yaml")
	cm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "rook-ceph-operator-config", "namespace": ns},
		"data": map[string]any{envCurrentOnly: "false", "NO_SUCH_KEY": "x", "ROOK_ENFORCE_HOST_NETWORK": "maybe"},
	}}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(cm), client.FieldOwner("user"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelHostname: "node1"}}}
	if err := c.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.2.3"}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if err := c.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CASTELLAN_IMAGE", "castellan:test")
	log := logOf(t)
	f := testFlags(t, ns)
	f.kubeconfig, f.log = accountConfig(t, c, ns, "rook-ceph-system"), log
	stop := start(t, f)
	t.Logf("ready after %s", waitReady(t, f))

	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: ns},
		Spec: cephv1.ClusterSpec{
			CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook", Mon: cephv1.MonSpec{Count: 1},
			Storage: cephv1.StorageScopeSpec{UseAllNodes: true},
		},
	}
	if err := c.Create(ctx, cl); err != nil {
		t.Fatal(err)
	}
	sayVersion(ctx, t, c, ns)
	eventually(t, "the mon's canary", func() error {
		pod := &corev1.Pod{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "rook-ceph-mon-a-canary"}, pod); err != nil {
			return fmt.Errorf("%w; conditions %v", err, conditions(ctx, c, cl))
		}
		return c.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node1"}})
	})
	eventually(t, "the mon", func() error {
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "rook-ceph-mon-a"}, &appsv1.Deployment{}); err != nil {
			return fmt.Errorf("%w; conditions %v", err, conditions(ctx, c, cl))
		}
		return c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "rook-ceph-mon-endpoints"}, &corev1.ConfigMap{})
	})
	// The same namespaces in other words are no reason to start anew; the other changes
	// of the settings are seen.
	cm = cm.DeepCopy()
	cm.SetManagedFields(nil)
	cm.SetResourceVersion("")
	if err := unstructured.SetNestedStringMap(cm.Object, map[string]string{envCurrentOnly: "true", "OTHER_KEY": "x"}, "data"); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(cm), client.FieldOwner("user"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed settings", func() error {
		if !strings.Contains(log.String(), `"key":"OTHER_KEY"`) {
			return errors.New("not seen")
		}
		return nil
	})
	stop()
	said := log.String()
	if strings.Contains(said, "starting anew") {
		t.Error("the operator started anew for the same namespaces")
	}
	for _, line := range strings.Split(said, "\n") {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("not allowed: %s", line)
		}
	}
	for _, want := range []string{`"key":"NO_SUCH_KEY"`, `"key":"ROOK_ENFORCE_HOST_NETWORK"`, "Secrets may not be read in all of them"} {
		if n := strings.Count(said, want); n != 1 {
			t.Errorf("%s is in the log %d times", want, n)
		}
	}
	var secret corev1.Secret
	if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "rook-ceph-mon"}, &secret); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"mon-secret", "ceph-secret"} {
		if v := string(secret.Data[key]); v == "" || strings.Contains(said, v) {
			t.Errorf("%s is empty, or in the log", key)
		}
	}
}

// accountConfig is a kubeconfig with the token of a service account.
func accountConfig(t *testing.T, c client.Client, ns, account string) string {
	t.Helper()
	cfg := server.Config(t)
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	api.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: tokenOf(t, c, ns, account)}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	api.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*api, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// sayVersion runs the version Job's pod, as far as the operator can see.
func sayVersion(ctx context.Context, t *testing.T, c client.Client, ns string) {
	t.Helper()
	job := &batchv1.Job{}
	eventually(t, "the version Job", func() error {
		return c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "rook-ceph-detect-version"}, job)
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "detect", Namespace: ns, Labels: job.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID}},
		},
		Spec: job.Spec.Template.Spec,
	}
	if err := c.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "version", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Message: "ceph version 20.2.4 (7f793731f1b39eb4f465e960113d2363c311b964) tentacle (stable - RelWithDebInfo)\n", FinishedAt: metav1.NewTime(time.Now()),
	}}}}
	if err := c.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

func conditions(ctx context.Context, c client.Client, cl *cephv1.CephCluster) []string {
	if err := c.Get(ctx, client.ObjectKeyFromObject(cl), cl); err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, cond := range cl.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message))
	}
	return out
}
