package rbac

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/envtestx"
)

var server envtestx.Server

func TestMain(m *testing.M) { os.Exit(envtestx.Main(m, &server)) }

// manifests reads all objects of the named files of deploy/.
func manifests(t *testing.T, files ...string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join("..", "..", "deploy", f))
		if err != nil {
			t.Fatal(err)
		}
		d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096)
		for {
			u := &unstructured.Unstructured{}
			err := d.Decode(u)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if len(u.Object) > 0 {
				list = append(list, u)
			}
		}
	}
	return list
}

// roleFiles are the files of deploy/ with accounts and roles in them.
func roleFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "deploy", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, p := range paths {
		if f := filepath.Base(p); f != "kustomization.yaml" {
			files = append(files, f)
		}
	}
	if !slices.Contains(files, "common.yaml") {
		t.Fatalf("common.yaml is not in %v", files)
	}
	return files
}

// No role of any account allows what would give it all other rights. That goes for
// every account, since who makes pods in a namespace can use all accounts there.
func TestRules(t *testing.T) {
	n := 0
	for _, u := range manifests(t, roleFiles(t)...) {
		if u.GetKind() != "Role" && u.GetKind() != "ClusterRole" {
			continue
		}
		var r rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &r, true); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		for _, rule := range r.Rules {
			n++
			for _, bad := range Check(rule, u.GetKind() == "ClusterRole") {
				t.Errorf("%s %s allows %s", u.GetKind(), u.GetName(), bad)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d rules found", n)
	}
}

// The check finds what it is there to find.
func TestCheckFinds(t *testing.T) {
	rule := func(group, resource, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	for _, r := range []rbacv1.PolicyRule{
		rule("", "pods/exec", "create"), rule("", "nodes/proxy", "get"), rule("rbac.authorization.k8s.io", "roles", "bind"),
		rule("rbac.authorization.k8s.io", "roles", "create"), rule("", "users", "impersonate"), rule("", "*", "get"), rule("*", "pods", "get"),
		rule("apps", "deployments", "*"), rule("", "serviceaccounts/token", "create"), rule("", "secrets", "deletecollection"),
		rule("admissionregistration.k8s.io", "validatingwebhookconfigurations", "patch"), rule("apiextensions.k8s.io", "customresourcedefinitions", "update"),
		rule("", "pods/*", "get"), {NonResourceURLs: []string{"/*"}, Verbs: []string{"get"}},
	} {
		if len(Check(r, false)) == 0 {
			t.Errorf("nothing is found in %v", r)
		}
	}
	for _, res := range []string{"secrets", "pods", "pods/status", "deployments", "configmaps"} {
		if r := rule("", res, "get"); len(Check(r, true)) == 0 || len(Check(r, false)) != 0 {
			t.Errorf("%s: %v in a ClusterRole, %v in a Role", res, Check(r, true), Check(r, false))
		}
	}
}

// Every account with no rights is without a token, every binding is of an account and
// a role that are there, and the operator's pods use one that is.
func TestAccounts(t *testing.T) {
	accounts, roles, bound := map[string]bool{}, map[string]bool{}, map[string]bool{}
	token := map[string]bool{}
	list := manifests(t, roleFiles(t)...)
	for _, u := range list {
		switch u.GetKind() {
		case "ServiceAccount":
			accounts[u.GetName()] = true
			off, found, err := unstructured.NestedBool(u.Object, "automountServiceAccountToken")
			if err != nil {
				t.Fatal(err)
			}
			token[u.GetName()] = !found || off
		case "Role", "ClusterRole":
			roles[u.GetKind()+"/"+u.GetName()] = true
		}
	}
	for _, u := range list {
		switch u.GetKind() {
		case "RoleBinding", "ClusterRoleBinding":
			var b rbacv1.ClusterRoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &b); err != nil {
				t.Fatal(err)
			}
			if !roles[b.RoleRef.Kind+"/"+b.RoleRef.Name] {
				t.Errorf("%s %s: there is no %s %s", u.GetKind(), b.Name, b.RoleRef.Kind, b.RoleRef.Name)
			}
			for _, s := range b.Subjects {
				if s.Kind != "ServiceAccount" || !accounts[s.Name] {
					t.Errorf("%s %s: there is no %s %s", u.GetKind(), b.Name, s.Kind, s.Name)
				}
				bound[s.Name] = true
			}
		case "Deployment":
			name, _, err := unstructured.NestedString(u.Object, "spec", "template", "spec", "serviceAccountName")
			if err != nil || !accounts[name] {
				t.Errorf("Deployment %s: there is no ServiceAccount %q (%v)", u.GetName(), name, err)
			}
		}
	}
	for name := range accounts {
		if bound[name] != token[name] {
			t.Errorf("%s: bound to a role: %v, has a token: %v", name, bound[name], token[name])
		}
	}
	// What builders of pods name.
	for _, name := range []string{"rook-ceph-system", "rook-ceph-default", "rook-ceph-osd", "rook-ceph-mgr"} {
		if !accounts[name] {
			t.Errorf("there is no ServiceAccount %s", name)
		}
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// install applies files to the API server, as kubectl apply --server-side does.
func install(t *testing.T, files ...string) client.Client {
	t.Helper()
	c := server.Client(t, scheme(t))
	for _, u := range manifests(t, files...) {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	return c
}

// as gives a client of a service account of rook-ceph.
func as(t *testing.T, account string) client.Client {
	t.Helper()
	cfg := server.Config(t)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:rook-ceph:" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:rook-ceph", "system:authenticated"},
	}
	return envtestx.NewClient(t, cfg, scheme(t))
}

const ns = "rook-ceph"

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: ns} }

// What the operator does it may do; what it must not do it may not.
func TestOperatorRights(t *testing.T) {
	admin := install(t, "common.yaml", "operator.yaml")
	op := as(t, "rook-ceph-system")
	ctx := t.Context()
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "x", Image: "x"}}},
	}
	deployed := *template.DeepCopy()
	deployed.Spec.RestartPolicy = corev1.RestartPolicyAlways
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	// All that is made for a cluster is made, found, changed and deleted.
	for _, obj := range []client.Object{
		&corev1.Secret{ObjectMeta: named("rights")}, &corev1.ConfigMap{ObjectMeta: named("rights")},
		&corev1.Service{ObjectMeta: named("rights"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		&corev1.Pod{ObjectMeta: named("rights"), Spec: template.Spec},
		&appsv1.Deployment{ObjectMeta: named("rights"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: deployed}},
		&appsv1.DaemonSet{ObjectMeta: named("rights"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: deployed}},
		&batchv1.Job{ObjectMeta: named("rights"), Spec: batchv1.JobSpec{Template: template}},
		&batchv1.CronJob{ObjectMeta: named("rights"), Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: named("rights"), Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "rights.csi.ceph.com"}},
	} {
		kind := fmt.Sprintf("%T", obj)
		if err := op.Create(ctx, obj); err != nil {
			t.Errorf("creating %s: %v", kind, err)
			continue
		}
		if err := op.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Errorf("reading %s: %v", kind, err)
		}
		before := obj.DeepCopyObject().(client.Object)
		obj.SetLabels(map[string]string{"x": "y"})
		if err := op.Patch(ctx, obj, client.MergeFrom(before)); err != nil {
			t.Errorf("patching %s: %v", kind, err)
		}
		if err := op.Delete(ctx, obj, client.GracePeriodSeconds(0)); err != nil {
			t.Errorf("deleting %s: %v", kind, err)
		}
	}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.PersistentVolumeList{}, &storagev1.CSIDriverList{}} {
		if err := op.List(ctx, list); err != nil {
			t.Errorf("listing %T: %v", list, err)
		}
	}
	checkCluster(ctx, t, admin, op)
	if err := op.Create(ctx, &coordinationv1.Lease{ObjectMeta: named("castellan.ceph.io")}); err != nil {
		t.Errorf("making the lease: %v", err)
	}

	other := server.Namespace(t)
	for _, obj := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: other}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rights"}},
	} {
		if err := admin.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	forbidden := map[string]error{
		"reading a Secret elsewhere":    op.Get(ctx, client.ObjectKey{Namespace: other, Name: "tenant"}, &corev1.Secret{}),
		"listing Secrets everywhere":    op.List(ctx, &corev1.SecretList{}),
		"listing Secrets of the system": op.List(ctx, &corev1.SecretList{}, client.InNamespace("kube-system")),
		"making a pod elsewhere":        op.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: other}, Spec: template.Spec}),
		"changing a node":               op.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rights"}}),
		"making a role":                 op.Create(ctx, &rbacv1.Role{ObjectMeta: named("x")}),
		"making an account":             op.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("x")}),
		"deleting the lease":            op.Delete(ctx, &coordinationv1.Lease{ObjectMeta: named("castellan.ceph.io")}),
		"deleting all Secrets at once":  op.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(ns)),
	}
	for what, err := range forbidden {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
}

// checkCluster writes what kit writes to a CephCluster: finalizer and status.
func checkCluster(ctx context.Context, t *testing.T, admin, op client.Client) {
	t.Helper()
	cl := &cephv1.CephCluster{ObjectMeta: named("rights"), Spec: cephv1.ClusterSpec{Mon: cephv1.MonSpec{Count: 3}}}
	if err := admin.Create(ctx, cl); err != nil {
		t.Fatal(err)
	}
	before := cl.DeepCopy()
	cl.Finalizers = []string{"cephcluster.ceph.rook.io"}
	if err := op.Patch(ctx, cl, client.MergeFrom(before)); err != nil {
		t.Errorf("adding the finalizer: %v", err)
	}
	before = cl.DeepCopy()
	cl.Status.Phase = "Progressing"
	if err := op.Status().Patch(ctx, cl, client.MergeFrom(before)); err != nil {
		t.Errorf("writing the status: %v", err)
	}
	if err := op.Delete(ctx, cl); !apierrors.IsForbidden(err) {
		t.Errorf("deleting a CephCluster: %v, want it forbidden", err)
	}
}

// The account of OSD preparation writes the reports of nodes and nothing else.
func TestNodeRights(t *testing.T) {
	admin := install(t, "common.yaml")
	node := as(t, "rook-ceph-osd")
	ctx := t.Context()
	report := func(name string, data map[string]any, owners []any) error {
		meta := map[string]any{"name": name, "namespace": ns}
		if owners != nil {
			meta["ownerReferences"] = owners
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}}
		return node.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("castellan-node"), client.ForceOwnership)
	}
	if err := admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("rook-ceph-mon-endpoints")}); err != nil {
		t.Fatal(err)
	}
	// The policy is in force a moment after it was made.
	deadline := time.Now().Add(time.Minute)
	for {
		err := report("rook-ceph-mon-endpoints", map[string]any{"data": "a=10.0.0.66:3300"}, nil)
		if err != nil && strings.Contains(err.Error(), "castellan-node-reports") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the list of mons can be written: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, name := range []string{"rook-ceph-osd-node1-status", "rook-ceph-osd-0123456789abcdef0123456789abcdef-status", "local-device-node1.example.com"} {
		for _, state := range []string{"starting", "completed"} {
			if err := report(name, map[string]any{"status": state}, nil); err != nil {
				t.Errorf("%s, %s: %v", name, state, err)
			}
		}
	}
	owner := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "1"}}
	forbidden := map[string]error{
		"another name":        report("rook-config-override", map[string]any{"config": "x"}, nil),
		"the settings":        report("rook-ceph-operator-config", map[string]any{"ROOK_LOG_LEVEL": "TRACE"}, nil),
		"a name around it":    report("x-rook-ceph-osd-node1-status", nil, nil),
		"an owner":            report("rook-ceph-osd-node1-status", map[string]any{"status": "x"}, owner),
		"reading a ConfigMap": node.Get(ctx, client.ObjectKey{Namespace: ns, Name: "rook-ceph-mon-endpoints"}, &corev1.ConfigMap{}),
		"reading Secrets":     node.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)),
		"deleting a report":   node.Delete(ctx, &corev1.ConfigMap{ObjectMeta: named("rook-ceph-osd-node1-status")}),
		"making a pod":        node.Create(ctx, &corev1.Pod{ObjectMeta: named("x")}),
	}
	for what, err := range forbidden {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	// The others may do nothing at all.
	for _, account := range []string{"rook-ceph-default", "rook-ceph-mgr", "rook-ceph-rgw", "rook-ceph-cmd-reporter"} {
		c := as(t, account)
		for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.PodList{}, &cephv1.CephClusterList{}} {
			if err := c.List(ctx, list, client.InNamespace(ns)); !apierrors.IsForbidden(err) {
				t.Errorf("%s: listing %T: %v, want it forbidden", account, list, err)
			}
		}
	}
}

// The pods of the operator and of the toolbox run where Pod Security is "restricted".
func TestRestricted(t *testing.T) {
	c := server.Client(t, scheme(t))
	strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := c.Create(t.Context(), strict); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, u := range manifests(t, "operator.yaml", "toolbox.yaml") {
		if u.GetKind() != "Deployment" {
			continue
		}
		n++
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &d, true); err != nil {
			t.Fatalf("Deployment %s: %v", u.GetName(), err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: strict.Name}, Spec: d.Spec.Template.Spec}
		if err := c.Create(t.Context(), pod); err != nil {
			t.Errorf("pod of %s: %v", d.Name, err)
		}
		for _, ctr := range d.Spec.Template.Spec.Containers {
			if s := ctr.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: the root file system of %s can be written", d.Name, ctr.Name)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d Deployments found", n)
	}
	// The namespace does refuse.
	bad := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad", Namespace: strict.Name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
	if err := c.Create(t.Context(), bad); !apierrors.IsForbidden(err) {
		t.Errorf("a pod without a security context: %v, want it forbidden", err)
	}
}

// kustomization.yaml names every file there is to apply.
func TestKustomization(t *testing.T) {
	got := manifests(t, "kustomization.yaml")[0]
	list, _, err := unstructured.NestedStringSlice(got.Object, "resources")
	if err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob("../../deploy/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"common.yaml", "operator.yaml"}
	for _, f := range crds {
		want = append(want, "crds/"+filepath.Base(f))
	}
	slices.Sort(want)
	slices.Sort(list)
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
