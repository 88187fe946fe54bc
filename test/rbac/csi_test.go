package rbac

import (
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// csiFiles are the manifests of deploy/csi/rbac.
func csiFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "deploy", "csi", "rbac", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, p := range paths {
		files = append(files, filepath.Join("csi", "rbac", filepath.Base(p)))
	}
	return files
}

// exceptions are the rights on the list of what nobody may have that a file of
// deploy/csi/rbac gives nevertheless. Each is in a file of its own that says what it
// means, which nobody applies without having chosen it.
func exceptions() map[string][]string {
	return map[string][]string{
		// For StorageClasses with Secrets in any namespace.
		"csi/rbac/secrets-cluster-wide.yaml": {"secrets outside of a namespace", "configmaps outside of a namespace"},
		// For encryption by Vault with the tenants' own accounts, in their namespaces.
		"csi/rbac/kms-tenants.yaml": {"serviceaccounts/token"},
	}
}

// No account of a CSI driver, nor that of the operator, can get all rights by what the
// manifests of drivers give it; what they give beyond that is listed above, and used.
func TestCSIRules(t *testing.T) {
	rules := 0
	for _, file := range csiFiles(t) {
		allowed := map[string]bool{}
		for _, e := range exceptions()[file] {
			allowed[e] = false
		}
		for _, u := range manifests(t, file) {
			if u.GetKind() != "Role" && u.GetKind() != "ClusterRole" {
				continue
			}
			var r rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &r, true); err != nil {
				t.Fatalf("%s: %s %s: %v", file, u.GetKind(), u.GetName(), err)
			}
			for _, rule := range r.Rules {
				rules++
				for _, bad := range Check(rule, u.GetKind() == "ClusterRole") {
					if _, ok := allowed[bad]; !ok {
						t.Errorf("%s: %s %s allows %s", file, u.GetKind(), u.GetName(), bad)
					}
					allowed[bad] = true
				}
			}
		}
		for e, used := range allowed {
			if !used {
				t.Errorf("%s: the exception %q is not needed any more", file, e)
			}
		}
	}
	if rules < 40 {
		t.Errorf("only %d rules found", rules)
	}
}

// Every binding is of a role of its file and of an account that some file makes.
func TestCSIBindings(t *testing.T) {
	accounts := map[string]bool{"rook-ceph-system": true} // of common.yaml
	for _, u := range manifests(t, csiFiles(t)...) {
		if u.GetKind() == "ServiceAccount" {
			accounts[u.GetName()] = true
		}
	}
	for _, typ := range []string{"rbd", "cephfs", "nfs", "nvmeof"} {
		for _, part := range []string{"ctrlplugin", "nodeplugin"} {
			if name := "ceph-csi-operator-" + typ + "-" + part + "-sa"; !accounts[name] {
				t.Errorf("there is no ServiceAccount %s, which the operator expects", name)
			}
		}
	}
	for _, file := range csiFiles(t) {
		roles := map[string]bool{}
		for _, u := range manifests(t, file) {
			roles[u.GetKind()+"/"+u.GetName()] = true
		}
		for _, u := range manifests(t, file) {
			if u.GetKind() != "RoleBinding" && u.GetKind() != "ClusterRoleBinding" {
				continue
			}
			var b rbacv1.ClusterRoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &b); err != nil {
				t.Fatal(err)
			}
			if !roles[b.RoleRef.Kind+"/"+b.RoleRef.Name] {
				t.Errorf("%s: %s %s: there is no %s %s", file, u.GetKind(), b.Name, b.RoleRef.Kind, b.RoleRef.Name)
			}
			for _, s := range b.Subjects {
				if s.Kind != "ServiceAccount" || !accounts[s.Name] {
					t.Errorf("%s: %s %s: there is no %s %s", file, u.GetKind(), b.Name, s.Kind, s.Name)
				}
			}
		}
	}
}

// The drivers' accounts read the Secrets of their own namespace and of no other, and
// cannot act as anybody else.
func TestCSIRights(t *testing.T) {
	admin := install(t, "common.yaml", "csi/rbac/rbd.yaml", "csi/rbac/cephfs.yaml", "csi/rbac/nfs.yaml", "csi/rbac/nvmeof.yaml")
	other := server.Namespace(t)
	for _, obj := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: other}}, &corev1.Secret{ObjectMeta: named("rook-csi-rbd-node")},
	} {
		if err := admin.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	for _, account := range []string{"ceph-csi-operator-rbd-ctrlplugin-sa", "ceph-csi-operator-rbd-nodeplugin-sa", "ceph-csi-operator-cephfs-ctrlplugin-sa", "ceph-csi-operator-cephfs-nodeplugin-sa"} {
		c := as(t, account)
		if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "rook-csi-rbd-node"}, &corev1.Secret{}); err != nil {
			t.Errorf("%s: reading a Secret of its namespace: %v", account, err)
		}
		token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"x"}}}
		forbidden := map[string]error{
			"reading a Secret elsewhere":    c.Get(ctx, client.ObjectKey{Namespace: other, Name: "tenant"}, &corev1.Secret{}),
			"listing Secrets":               c.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)),
			"writing a Secret":              c.Create(ctx, &corev1.Secret{ObjectMeta: named("x")}),
			"writing the configuration":     c.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("ceph-csi-config")}),
			"a token of another account":    c.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("rook-ceph-system")}, token),
			"making a pod":                  c.Create(ctx, &corev1.Pod{ObjectMeta: named("x"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}),
			"deleting a node":               c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}),
			"making a binding to any role":  c.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}),
			"reading Secrets of the system": c.List(ctx, &corev1.SecretList{}, client.InNamespace("kube-system")),
		}
		for what, err := range forbidden {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %s: %v, want it forbidden", account, what, err)
			}
		}
	}
}

// What the operator makes of csi.ceph.io for a CephCluster it may make, and it removes
// nothing but what it may have made itself.
func TestOperatorCSIRights(t *testing.T) {
	install(t, "common.yaml")
	op := as(t, "rook-ceph-system")
	ctx := t.Context()
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "csi.ceph.io/v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": ns}, "spec": spec}}
	}
	for _, tt := range []struct {
		obj     *unstructured.Unstructured
		deletes bool
	}{
		{object("CephConnection", "rights", map[string]any{"monitors": []any{"10.0.0.1:3300"}}), false},
		{object("ClientProfile", "rights", map[string]any{"cephConnectionRef": map[string]any{"name": "rights"}}), false},
		{object("ClientProfileMapping", "rights", map[string]any{"mappings": []any{}}), true},
		{object("ClientProfileReplication", "rights", map[string]any{"localClientProfile": "rights", "remoteClientProfile": "x"}), true},
	} {
		kind := tt.obj.GetKind()
		if err := op.Apply(ctx, client.ApplyConfigurationFromUnstructured(tt.obj), client.FieldOwner("castellan"), client.ForceOwnership); err != nil {
			t.Errorf("applying %s: %v", kind, err)
			continue
		}
		err := op.Delete(ctx, tt.obj)
		if tt.deletes && err != nil || !tt.deletes && !apierrors.IsForbidden(err) {
			t.Errorf("deleting %s: %v, allowed should be %v", kind, err, tt.deletes)
		}
	}
}
