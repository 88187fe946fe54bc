package kittest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
)

var server = envtestx.Server{NoRepositoryCRDs: true}

func TestMain(m *testing.M) { os.Exit(envtestx.Main(m, &server)) }

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

// script is the contract: what it logs must be the same on a real API server and on
// the in-memory one. Where they differ, the in-memory one is wrong.
type script struct {
	context.Context
	c   client.Client
	ns  string
	log []string
}

func (s *script) say(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// result logs how the API server answered.
func (s *script) result(what string, err error) {
	if err == nil {
		s.say("%s: ok", what)
		return
	}
	reason := apierrors.ReasonForError(err)
	s.say("%s: %s", what, reason)
}

func (s *script) configMap(name string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{}
	err := s.c.Get(s, s.key(name), cm)
	if err != nil {
		s.result("get "+name, err)
	}
	return cm
}

func (s *script) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.ns, Name: name}
}

func (s *script) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func (s *script) apply(obj client.Object) error {
	u, err := kube.ToApply(s.c.Scheme(), obj)
	if err != nil {
		return err
	}
	return kube.ServerSideApply(s, s.c, u)
}

func (s *script) run() {
	s.versions()
	s.patches()
	s.applies()
	s.lists()
	s.finalizers()
	s.preconditions()
	s.statuses()
}

func (s *script) versions() {
	cm := &corev1.ConfigMap{ObjectMeta: s.meta("v"), Data: map[string]string{"a": "1"}}
	s.result("create", s.c.Create(s, cm.DeepCopy()))
	s.result("create again", s.c.Create(s, cm.DeepCopy()))
	live := s.configMap("v")
	s.say("uid %v, version %v", live.UID != "", live.ResourceVersion != "")
	stale := live.DeepCopy()
	same := live.DeepCopy()
	s.result("update with nothing", s.c.Update(s, same))
	s.say("version moved: %v", same.ResourceVersion != live.ResourceVersion)
	live.Data["a"] = "2"
	s.result("update", s.c.Update(s, live))
	s.say("version moved: %v", stale.ResourceVersion != live.ResourceVersion)
	stale.Data["a"] = "3"
	s.result("update from a stale read", s.c.Update(s, stale))
	s.result("update what is not there", s.c.Update(s, &corev1.ConfigMap{ObjectMeta: s.meta("none")}))
	s.result("get what is not there", s.c.Get(s, s.key("none"), &corev1.ConfigMap{}))
	withVersion := &corev1.ConfigMap{ObjectMeta: s.meta("w")}
	withVersion.ResourceVersion = "1"
	s.say("create with a version fails: %v", s.c.Create(s, withVersion) != nil)
}

func (s *script) patches() {
	live := s.configMap("v")
	patch := func(what, body string) {
		cm := &corev1.ConfigMap{ObjectMeta: s.meta("v")}
		s.result(what, s.c.Patch(s, cm, client.RawPatch(types.MergePatchType, []byte(body))))
	}
	patch("merge patch", `{"data":{"a":null,"b":"1"}}`)
	s.say("data %v", s.configMap("v").Data)
	patch("merge patch with an old version", `{"metadata":{"resourceVersion":"`+live.ResourceVersion+`"},"data":{"c":"1"}}`)
	now := s.configMap("v")
	patch("merge patch with the version", `{"metadata":{"resourceVersion":"`+now.ResourceVersion+`"},"data":{"c":"1"}}`)
	patch("merge patch with another uid", `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"},"data":{"d":"1"}}`)
	s.say("data %v", s.configMap("v").Data)
	s.result("json patch", s.c.Patch(s, &corev1.ConfigMap{ObjectMeta: s.meta("v")},
		client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/b","value":"2"}]`))))
	s.say("data %v", s.configMap("v").Data)
}

func (s *script) applies() {
	cm := func(data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: s.meta("a"), Data: data}
	}
	s.result("apply makes", s.apply(cm(map[string]string{"one": "1", "two": "2"})))
	first := s.configMap("a")
	s.result("apply again", s.apply(cm(map[string]string{"one": "1", "two": "2"})))
	s.say("version moved: %v", s.configMap("a").ResourceVersion != first.ResourceVersion)
	first.Data["users"] = "3"
	first.Labels["users"] = "l"
	s.result("a user adds", s.c.Update(s, first))
	s.result("apply less", s.apply(cm(map[string]string{"one": "1"})))
	s.say("data %v, user's label %q", s.configMap("a").Data, s.configMap("a").Labels["users"])
	s.result("apply nothing", s.apply(cm(nil)))
	s.say("data %v", s.configMap("a").Data)
}

func (s *script) lists() {
	deployment := func(containers []corev1.Container, args ...string) *appsv1.Deployment {
		labels := map[string]string{"app": "a"}
		d := &appsv1.Deployment{ObjectMeta: s.meta("d")}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = containers
		d.Spec.Template.Spec.Containers[0].Args = args
		return d
	}
	show := func() {
		d := &appsv1.Deployment{}
		s.result("get", s.c.Get(s, s.key("d"), d))
		for _, c := range d.Spec.Template.Spec.Containers {
			var env []string
			for _, e := range c.Env {
				env = append(env, e.Name+"="+e.Value)
			}
			slices.Sort(env)
			s.say("  %s %s args %v env %v ports %d", c.Name, c.Image, c.Args, env, len(c.Ports))
		}
		s.say("  generation %d", d.Generation)
	}
	a := corev1.Container{Name: "a", Image: "1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
		Ports: []corev1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 1, Protocol: "UDP"}}}
	b := corev1.Container{Name: "b", Image: "1"}
	s.result("apply two containers", s.apply(deployment([]corev1.Container{a, b}, "x", "y")))
	show()
	d := &appsv1.Deployment{}
	s.result("get", s.c.Get(s, s.key("d"), d))
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "s"})
	d.Spec.Template.Spec.Containers[0].Env = append(d.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "USERS", Value: "3"})
	s.result("a user adds a sidecar", s.c.Update(s, d))
	show()
	a.Env, a.Ports = a.Env[1:], a.Ports[:1]
	s.result("apply one container with less", s.apply(deployment([]corev1.Container{a}, "z")))
	show()
}

func (s *script) finalizers() {
	cm := &corev1.ConfigMap{ObjectMeta: s.meta("f")}
	cm.Finalizers = []string{"test.castellan.io/f"}
	s.result("create", s.c.Create(s, cm))
	s.result("delete", s.c.Delete(s, cm))
	live := s.configMap("f")
	s.say("being deleted: %v", live.DeletionTimestamp != nil)
	s.result("delete again", s.c.Delete(s, live))
	live.Data = map[string]string{"still": "writable"}
	s.result("update", s.c.Update(s, live))
	s.result("let go", s.c.Patch(s, live, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))))
	s.result("get", s.c.Get(s, s.key("f"), live))
	s.result("delete what is gone", s.c.Delete(s, live))
}

func (s *script) preconditions() {
	cm := &corev1.ConfigMap{ObjectMeta: s.meta("p")}
	s.result("create", s.c.Create(s, cm))
	other, version := types.UID("00000000-0000-0000-0000-000000000000"), "1"
	s.result("delete another uid", s.c.Delete(s, cm, client.Preconditions(metav1.Preconditions{UID: &other})))
	s.result("delete another version", s.c.Delete(s, cm, client.Preconditions(metav1.Preconditions{ResourceVersion: &version})))
	s.result("delete", s.c.Delete(s, cm, client.Preconditions(metav1.Preconditions{UID: &cm.UID})))
}

func (s *script) statuses() {
	d := &appsv1.Deployment{}
	s.result("get", s.c.Get(s, s.key("d"), d))
	generation := d.Generation
	d.Status.Replicas = 7
	d.Labels["ignored"] = "by the status"
	s.result("update the status", s.c.Status().Update(s, d))
	s.result("get", s.c.Get(s, s.key("d"), d))
	s.say("replicas %d, label %q, generation moved %v", d.Status.Replicas, d.Labels["ignored"], d.Generation != generation)
	d.Status.Replicas = 9
	d.Labels["kept"] = "x"
	s.result("update the object", s.c.Update(s, d))
	s.result("get", s.c.Get(s, s.key("d"), d))
	s.say("replicas %d, label %q, generation moved %v", d.Status.Replicas, d.Labels["kept"], d.Generation != generation)
	s.result("patch the status", s.c.Status().Patch(s, d, client.RawPatch(types.MergePatchType, []byte(`{"status":{"readyReplicas":7},"metadata":{"labels":{"x":"y"}}}`))))
	s.say("ready %d, label %q", d.Status.ReadyReplicas, d.Labels["x"])
	list := &appsv1.DeploymentList{}
	s.result("list", s.c.List(s, list, client.InNamespace(s.ns), client.MatchingLabels{kube.OwnedLabel: "true"}))
	s.say("%d owned Deployments", len(list.Items))
	u := &unstructured.UnstructuredList{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMapList")
	s.result("list unstructured", s.c.List(s, u, client.InNamespace(s.ns), client.MatchingFields{"metadata.name": "v"}))
	s.say("%d of kind %q", len(u.Items), kinds(u))
}

func kinds(u *unstructured.UnstructuredList) string {
	var k []string
	for _, o := range u.Items {
		k = append(k, o.GetKind())
	}
	return strings.Join(k, ",")
}

func TestTheStoreIsLikeARealAPIServer(t *testing.T) {
	sch := scheme(t)
	store, err := kittest.NewStore(sch)
	if err != nil {
		t.Fatal(err)
	}
	memory := &script{Context: t.Context(), c: store.Client(), ns: "ns"}
	memory.run()
	if len(memory.log) < 60 {
		t.Fatalf("the script is shorter than it was: %d lines", len(memory.log))
	}
	real := &script{Context: t.Context(), c: server.Client(t, sch), ns: server.Namespace(t)}
	real.run()
	if d := cmp.Diff(real.log, memory.log); d != "" {
		t.Errorf("(-real +in memory):\n%s", d)
	}
}

func TestTheStoreCollectsGarbage(t *testing.T) {
	store, err := kittest.NewStore(scheme(t))
	if err != nil {
		t.Fatal(err)
	}
	c := store.Client()
	parent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "parent"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}
	for _, o := range []client.Object{parent, other} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	ref := func(o client.Object) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.GetName(), UID: o.GetUID()}
	}
	for name, refs := range map[string][]metav1.OwnerReference{"child": {ref(parent)}, "shared": {ref(parent), ref(other)}} {
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: refs}}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, o := range store.All() {
		left = append(left, o.GetKind()+" "+o.GetName())
	}
	if d := cmp.Diff([]string{"ConfigMap other", "Secret shared"}, left); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestALaggingClientReadsThePast(t *testing.T) {
	store, err := kittest.NewStore(scheme(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	c := store.Client()
	for i := range 3 {
		cm := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, cm); err != nil {
			t.Fatal(err)
		}
		cm.Data = map[string]string{"n": fmt.Sprint(i)}
		if err := c.Update(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	for lag, want := range map[int]string{0: "2", 1: "1", 2: "0", 3: ""} {
		cm := &corev1.ConfigMap{}
		if err := store.Lagging(lag).Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, cm); err != nil {
			t.Fatal(err)
		}
		if cm.Data["n"] != want {
			t.Errorf("%d writes behind: %q, not %q", lag, cm.Data["n"], want)
		}
	}
	if err := store.Lagging(4).Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("before it was made: %v", err)
	}
}

func TestFaultsOfTheStore(t *testing.T) {
	store, err := kittest.NewStore(scheme(t))
	if err != nil {
		t.Fatal(err)
	}
	injected := errors.New("injected")
	store.Fail(func(verb, kind string, key types.NamespacedName) error {
		if verb == "create" && kind == "Secret" && key.Name == "a" {
			return injected
		}
		return nil
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	if err := store.Client().Create(t.Context(), secret); !errors.Is(err, injected) {
		t.Errorf("got %v", err)
	}
	if len(store.Writes()) > 0 || len(store.All()) > 0 {
		t.Error("the failed request did something")
	}
	store.Fail(nil)
	if err := store.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"create Secret ns/a"}, store.Writes()); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
}

// A client that fails is one of several: the others are not concerned.
func TestAFailingClient(t *testing.T) {
	store, err := kittest.NewStore(scheme(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}})
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	failing := store.Failing(func(verb, kind string, key types.NamespacedName) error {
		asked = append(asked, verb+" "+kind+" "+key.Name)
		return apierrors.NewInternalError(errors.New("etcd"))
	})
	cm := &corev1.ConfigMap{}
	if err := failing.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, cm); !apierrors.IsInternalError(err) {
		t.Errorf("get: %v", err)
	}
	if err := store.Client().Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, cm); err != nil {
		t.Errorf("another client: %v", err)
	}
	if err := failing.Delete(t.Context(), cm); !apierrors.IsInternalError(err) {
		t.Errorf("delete: %v", err)
	}
	if d := cmp.Diff([]string{"get ConfigMap a", "delete ConfigMap a"}, asked); d != "" {
		t.Errorf("asked about (-want +got):\n%s", d)
	}
	if err := store.Client().Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, cm); err != nil {
		t.Errorf("deleted all the same: %v", err)
	}
}

// Writes share what they do not change with the past; the past stays as it was.
func TestWritesDoNotChangeThePast(t *testing.T) {
	store, err := kittest.NewStore(scheme(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", Labels: map[string]string{"l": "1"}}, Data: map[string]string{"k": "1", "gone": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	c, past := store.Client(), store.Lagging(1)
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	for _, patch := range []client.Patch{
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"2","gone":null,"new":"y"},"metadata":{"labels":{"l":"2"}}}`)),
		client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/k","value":"3"}]`)),
	} {
		before := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), key, before); err != nil {
			t.Fatal(err)
		}
		after := before.DeepCopy()
		if err := c.Patch(t.Context(), after, patch); err != nil {
			t.Fatal(err)
		}
		after.Data["k"], after.Labels["l"] = "mine", "mine" // the answer is the caller's
		seen := &corev1.ConfigMap{}
		if err := past.Get(t.Context(), key, seen); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(before, seen); d != "" {
			t.Errorf("the past has changed (-before +after):\n%s", d)
		}
	}
	now := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), key, now); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"k": "3", "new": "y"}, now.Data); d != "" || now.Labels["l"] != "2" {
		t.Errorf("labels %v, data (-want +got):\n%s", now.Labels, d)
	}
}
