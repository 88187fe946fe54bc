package kube_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/internal/kube"
)

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func deployment() *appsv1.Deployment {
	replicas := int32(1)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{"app": "a"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "a", Image: "image:1",
						Env:       []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1000m")}},
					}},
					Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		},
	}
}

func TestToApplyHoldsOnlyWhatIsSet(t *testing.T) {
	d := deployment()
	d.ResourceVersion, d.UID, d.Generation = "7", "u", 3
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	d.Status.Replicas = 4
	u, err := kube.ToApply(scheme(t), d)
	if err != nil {
		t.Fatal(err)
	}
	want := `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: a
  namespace: ns
  labels: {app: a, castellan.ceph.io/owned: "true"}
  annotations: {castellan.ceph.io/applied-hash: ` + u.GetAnnotations()[kube.AppliedHash] + `}
spec:
  replicas: 1
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - name: a
        image: image:1
        env: [{name: A, value: "1"}, {name: B, value: "2"}]
        resources: {limits: {cpu: "1"}}
      volumes: [{name: tmp, emptyDir: {}}]
`
	var m map[string]any
	if err := yaml.Unmarshal([]byte(want), &m); err != nil {
		t.Fatal(err)
	}
	m["spec"].(map[string]any)["replicas"] = int64(1)
	if diff := cmp.Diff(m, u.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Labels[kube.OwnedLabel] != "" || d.ResourceVersion != "7" {
		t.Error("the object handed in was changed")
	}
	if u.GetAnnotations()[kube.AppliedHash] == "" {
		t.Error("no hash")
	}
}

func TestTheHashChangesWithWhatIsWanted(t *testing.T) {
	hash := func(d *appsv1.Deployment) string {
		u, err := kube.ToApply(scheme(t), d)
		if err != nil {
			t.Fatal(err)
		}
		return u.GetAnnotations()[kube.AppliedHash]
	}
	base := hash(deployment())
	same := deployment()
	same.UID, same.ResourceVersion = "other", "9"
	same.Annotations = map[string]string{kube.AppliedHash: "something old"}
	if hash(same) != base {
		t.Error("the hash depends on what the server sets")
	}
	less := deployment()
	less.Spec.Template.Spec.Containers[0].Env = less.Spec.Template.Spec.Containers[0].Env[:1]
	order := deployment()
	env := order.Spec.Template.Spec.Containers[0].Env
	env[0], env[1] = env[1], env[0]
	for name, d := range map[string]*appsv1.Deployment{"a field less": less, "another order": order} {
		if hash(d) == base {
			t.Errorf("%s has the same hash", name)
		}
	}
}

func TestChanges(t *testing.T) {
	tests := map[string]struct {
		live func(d *appsv1.Deployment)
		want string
	}{
		"the same":               {func(*appsv1.Deployment) {}, ""},
		"defaults of the server": {func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32) }, ""},
		"a label of a user":      {func(d *appsv1.Deployment) { d.Labels["users"] = "x" }, ""},
		"a sidecar": {func(d *appsv1.Deployment) {
			c := &d.Spec.Template.Spec
			c.Containers = append([]corev1.Container{{Name: "0"}}, c.Containers...)
		}, ""},
		"an env variable of others": {func(d *appsv1.Deployment) {
			c := &d.Spec.Template.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "C"})
		}, ""},
		"a quantity spelt otherwise": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1")
		}, ""},
		"status":           {func(d *appsv1.Deployment) { d.Status.Replicas = 9 }, ""},
		"another image":    {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "x" }, "spec.template.spec.containers[a].image"},
		"replicas":         {func(d *appsv1.Deployment) { *d.Spec.Replicas = 0 }, "spec.replicas"},
		"a label gone":     {func(d *appsv1.Deployment) { delete(d.Labels, "app") }, "metadata.labels.app"},
		"owned label gone": {func(d *appsv1.Deployment) { delete(d.Labels, kube.OwnedLabel) }, "metadata.labels.castellan.ceph.io/owned"},
		"a container gone": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil }, "spec.template.spec.containers"},
		"more cpu": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2")
		}, "spec.template.spec.containers[a].resources.limits.cpu"},
		"an env variable changed": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env[1].Value = "3" }, "spec.template.spec.containers[a].env[B].value"},
		"another hash":            {func(d *appsv1.Deployment) { d.Annotations[kube.AppliedHash] = "x" }, "metadata.annotations.castellan.ceph.io/applied-hash"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u, err := kube.ToApply(scheme(t), deployment())
			if err != nil {
				t.Fatal(err)
			}
			live := deployment()
			live.Labels[kube.OwnedLabel] = "true"
			live.Annotations = map[string]string{kube.AppliedHash: u.GetAnnotations()[kube.AppliedHash]}
			tt.live(live)
			got, err := kube.Changes(scheme(t), live, u)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSecretsAreComparedAsData(t *testing.T) {
	s := scheme(t)
	want, err := kube.ToApply(s, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, StringData: map[string]string{"key": "value"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := want.Object["stringData"]; ok {
		t.Error("stringData is applied")
	}
	live := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: want.GetLabels(), Annotations: want.GetAnnotations()},
		Data:       map[string][]byte{"key": []byte("value")}, Type: corev1.SecretTypeOpaque,
	}
	if d, err := kube.Changes(s, live, want); d != "" || err != nil {
		t.Errorf("differs in %q, %v", d, err)
	}
	live.Data["key"] = []byte("other")
	if d, _ := kube.Changes(s, live, want); d != "data.key" {
		t.Errorf("differs in %q", d)
	}
}

func TestFromApplyConfiguration(t *testing.T) {
	u, err := kube.FromApplyConfiguration(applycorev1.ConfigMap("a", "ns").WithData(map[string]string{"k": "v"}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "ns"}, "data": map[string]any{"k": "v"}}
	if d := cmp.Diff(want, u.Object); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := kube.FromApplyConfiguration(&applycorev1.ConfigMapApplyConfiguration{}); err == nil {
		t.Error("an apply configuration without a name is taken")
	}
}

type failing struct {
	client.Reader
	err error
}

func (f failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return f.err
}

func TestAnErrorIsNeverAbsent(t *testing.T) {
	gr := schema.GroupResource{Resource: "secrets"}
	tests := map[string]struct {
		err    error
		absent bool
	}{
		"not found":     {apierrors.NewNotFound(gr, "a"), true},
		"forbidden":     {apierrors.NewForbidden(gr, "a", errors.New("no")), false},
		"gone":          {apierrors.NewResourceExpired("a"), false},
		"server error":  {apierrors.NewInternalError(errors.New("no")), false},
		"timeout":       {context.DeadlineExceeded, false},
		"any other one": {errors.New("not found"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := kube.Lookup[corev1.Secret](t.Context(), failing{err: tt.err}, types.NamespacedName{Name: "a"})
			if s != nil || (err == nil) != tt.absent {
				t.Errorf("got %v, %v", s, err)
			}
			if err != nil && !errors.Is(err, tt.err) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}

func TestImmutableField(t *testing.T) {
	gk := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(gk, "a", field.ErrorList{field.Invalid(path, "x", "any text")})
	}
	tests := map[string]struct {
		err   error
		kind  string
		field string
	}{
		"selector":         {invalid(field.NewPath("spec", "selector")), "Deployment", "spec.selector"},
		"below":            {invalid(field.NewPath("spec", "template", "spec")), "Job", "spec.template.spec"},
		"a wrong value":    {invalid(field.NewPath("spec", "replicas")), "Deployment", ""},
		"not a prefix":     {invalid(field.NewPath("spec", "selectors")), "Deployment", ""},
		"another kind":     {invalid(field.NewPath("spec", "selector")), "Keep", ""},
		"no answer at all": {errors.New("spec.selector: field is immutable"), "Deployment", ""},
		"nothing":          {nil, "Deployment", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := kube.ImmutableField(tt.err, tt.kind)
			if got != tt.field || ok != (tt.field != "") {
				t.Errorf("got %q %v", got, ok)
			}
		})
	}
}

func TestCacheOptions(t *testing.T) {
	heavy := false
	opts := kube.CacheOptions(kube.CacheConfig{
		Namespaces: []string{"rook-ceph"},
		Ours:       []client.Object{&corev1.Secret{}, &corev1.Pod{}},
		Selected:   []kube.Selected{{Object: &corev1.Pod{}, Keep: func(client.Object) { heavy = true }}},
	})
	if _, ok := opts.DefaultNamespaces["rook-ceph"]; !ok || len(opts.DefaultNamespaces) != 1 {
		t.Errorf("namespaces are %v", opts.DefaultNamespaces)
	}
	kinds := 0
	for obj, by := range opts.ByObject {
		kinds++
		switch obj.(type) {
		case *corev1.Secret:
			if by.Label == nil || by.Label.String() != kube.OwnedLabel+"=true" {
				t.Errorf("Secrets are selected by %v", by.Label)
			}
		case *corev1.Pod:
			if by.Label != nil {
				t.Errorf("Pods are selected by %v: their own selection goes first", by.Label)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
			if _, err := by.Transform(pod); err != nil || pod.ManagedFields != nil || !heavy {
				t.Errorf("the transformation did not work: %v %v", err, pod.ManagedFields)
			}
		}
	}
	if kinds != 2 {
		t.Errorf("%d kinds", kinds)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	if _, err := opts.DefaultTransform(cm); err != nil || cm.ManagedFields != nil {
		t.Errorf("managedFields are not stripped by default: %v", err)
	}
}

func TestSpecChanged(t *testing.T) {
	base := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "1", Labels: map[string]string{"a": "b"}}}
	}
	now := metav1.Now()
	tests := map[string]struct {
		change func(*corev1.ConfigMap)
		want   bool
	}{
		"status only": {func(c *corev1.ConfigMap) { c.ResourceVersion = "2" }, false},
		"generation":  {func(c *corev1.ConfigMap) { c.Generation = 2 }, true},
		"label":       {func(c *corev1.ConfigMap) { c.Labels["a"] = "c" }, true},
		"annotation":  {func(c *corev1.ConfigMap) { c.Annotations = map[string]string{"x": ""} }, true},
		"finalizer":   {func(c *corev1.ConfigMap) { c.Finalizers = []string{"x"} }, true},
		"deletion":    {func(c *corev1.ConfigMap) { c.DeletionTimestamp = &now }, true},
		"made anew":   {func(c *corev1.ConfigMap) { c.UID = "other" }, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			after := base()
			tt.change(after)
			if got := kube.SpecChanged().Update(event.UpdateEvent{ObjectOld: base(), ObjectNew: after}); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestMaps(t *testing.T) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", Labels: map[string]string{"cluster": "c"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Name: "owner"},
			{APIVersion: "v1", Kind: "CephCluster", Name: "not-this"},
		},
	}}
	tests := map[string]struct {
		m    kube.MapFunc
		want []types.NamespacedName
	}{
		"self":        {kube.ToSelf(), []types.NamespacedName{{Namespace: "ns", Name: "a"}}},
		"name":        {kube.ToName("x"), []types.NamespacedName{{Namespace: "ns", Name: "x"}}},
		"label":       {kube.ToLabel("cluster"), []types.NamespacedName{{Namespace: "ns", Name: "c"}}},
		"no label":    {kube.ToLabel("none"), nil},
		"owner":       {kube.ToOwner(schema.GroupKind{Group: "ceph.rook.io", Kind: "CephCluster"}), []types.NamespacedName{{Namespace: "ns", Name: "owner"}}},
		"other owner": {kube.ToOwner(schema.GroupKind{Group: "ceph.rook.io", Kind: "CephFilesystem"}), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, tt.m(t.Context(), nil, obj)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestSkipped(t *testing.T) {
	for label, want := range map[string]bool{
		kube.SkipLabel + "=":            true,
		kube.SkipLabel + "=false":       true, // any value
		kube.LegacySkipLabel + "=true":  true,
		kube.LegacySkipLabel + "=false": false,
		"other=":                        false,
	} {
		name, value, _ := cut(label)
		u := &unstructured.Unstructured{}
		u.SetLabels(map[string]string{name: value})
		if got := kube.Skipped(u); got != want {
			t.Errorf("%s: %v", label, got)
		}
	}
}

func cut(s string) (string, string, bool) {
	for i := range s {
		if s[i] == '=' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
