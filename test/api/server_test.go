package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// settle is how long the API server may take to put a changed CRD into effect.
const settle = 60 * time.Second

// server is a real API server with nothing in it.
type server struct {
	dynamic.Interface
	disco  discovery.DiscoveryInterface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func startServer(t *testing.T) *server {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is unset: no API server to test against")
	}
	env := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	cfg, err := env.Start()
	if err != nil {
		t.Fatalf("starting an API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	cfg.QPS, cfg.Burst = 500, 500
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &server{Interface: client, disco: disco, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}
}

func crdResource() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// applyCRD applies a CRD as `kubectl apply --server-side` does.
func (s *server) applyCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	out := crd.DeepCopy()
	out.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	out.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(out)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(obj, "status")
	unstructured.RemoveNestedField(obj, "metadata", "creationTimestamp")
	raw, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	_, err = s.Resource(crdResource()).Patch(ctx, crd.Name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, Force: new(true)})
	return err
}

// installCRDs applies every CRD and waits until it is served.
func (s *server) installCRDs(ctx context.Context, t *testing.T, crds map[string]*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	for plural, crd := range crds {
		if err := s.applyCRD(ctx, crd); err != nil {
			t.Fatalf("installing the CRD of %s: %v", plural, err)
		}
	}
	for plural, crd := range crds {
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
			got, err := s.Resource(crdResource()).Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			var typed apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &typed); err != nil {
				return false, err
			}
			established := false
			for _, c := range typed.Status.Conditions {
				switch {
				case c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue,
					c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
					return false, fmt.Errorf("%s: %s", c.Type, c.Message)
				case c.Type == apiextensionsv1.Established:
					established = c.Status == apiextensionsv1.ConditionTrue
				}
			}
			return established, nil
		})
		if err != nil {
			t.Fatalf("waiting for %s to be served: %v", plural, err)
		}
	}
	s.mapper.Reset()
}

func (s *server) ensureNamespace(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	_, err := s.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("making the namespace %s: %v", name, err)
	}
}

// fieldErrors gives the causes of a refusal as the errors of fields, or the
// error itself when it is not one about fields.
func fieldErrors(err error) (field.ErrorList, error) {
	if err == nil {
		return nil, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return nil, err
	}
	var out field.ErrorList
	for _, c := range status.Status().Details.Causes {
		out = append(out, &field.Error{Type: field.ErrorTypeInvalid, Field: c.Field, Detail: c.Message, BadValue: field.OmitValueType{}})
	}
	return out, nil
}

func gvr(crd *apiextensionsv1.CustomResourceDefinition) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural}
}

// object makes an object of a kind for the server.
func object(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition, name, spec string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{Object: whole(t, spec)}
	obj.SetAPIVersion(crd.Spec.Group + "/" + crd.Spec.Versions[0].Name)
	obj.SetKind(crd.Spec.Names.Kind)
	obj.SetName(name)
	return obj
}

// TestOnServer is all that needs a real API server; starting one takes seconds,
// so its parts share one.
func TestOnServer(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	crds := loadCRDs(t)
	strict := metav1.FieldValidationStrict

	// Objects from before the rules come first, while the CRDs lack them.
	old := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for plural, crd := range crds {
		old[plural] = loosen(crd)
	}
	s.installCRDs(ctx, t, old)
	for i, u := range updates() {
		obj := object(t, crds[u.plural], fmt.Sprintf("old-%d", i), u.old)
		if _, err := s.Resource(gvr(crds[u.plural])).Namespace("default").Create(ctx, obj, metav1.CreateOptions{FieldValidation: strict}); err != nil {
			t.Fatalf("%s: storing an object from before the rule: %v", u.title, err)
		}
	}
	s.installCRDs(ctx, t, crds)

	t.Run("Manifests", func(t *testing.T) {
		for _, m := range manifests() {
			crd := crds[m.plural]
			create := func(ctx context.Context) error {
				_, err := s.Resource(gvr(crd)).Namespace("default").Create(ctx, object(t, crd, "a", m.spec),
					metav1.CreateOptions{FieldValidation: strict, DryRun: []string{metav1.DryRunAll}})
				return err
			}
			// The server takes a moment to put the CRD with rules into effect, so a
			// refusal is waited for.
			var last string
			_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
				errs, err := fieldErrors(create(ctx))
				if err != nil {
					last = err.Error()
					return false, err
				}
				last = m.verdict(errs)
				return last == "" || m.words == "", nil
			})
			if last != "" {
				t.Errorf("%s: %s: %s", m.plural, m.title, last)
			}
		}
	})

	t.Run("OldObjectsLive", func(t *testing.T) {
		for i, u := range updates() {
			client := s.Resource(gvr(crds[u.plural])).Namespace("default")
			change := func(spec string) error {
				obj, err := client.Get(ctx, fmt.Sprintf("old-%d", i), metav1.GetOptions{})
				if err != nil {
					return err
				}
				obj.Object["spec"] = whole(t, spec)["spec"]
				_, err = client.Update(ctx, obj, metav1.UpdateOptions{FieldValidation: strict})
				return err
			}
			if u.worse != "" {
				if err := change(u.worse); !apierrors.IsInvalid(err) {
					t.Errorf("%s: another breach of the rule: want a refusal, got %v", u.title, err)
				}
			}
			if err := change(u.elsewhere); err != nil {
				t.Errorf("%s: a change elsewhere was refused: %v", u.title, err)
			}
		}
	})

	t.Run("Examples", func(t *testing.T) {
		for _, ex := range examples(t) {
			if ns := ex.obj.GetNamespace(); ns != "" {
				s.ensureNamespace(ctx, t, ns)
			}
			gvk := ex.obj.GroupVersionKind()
			mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				// Kinds of other projects (snapshots) are not installed here.
				t.Logf("%s: %s is not served here", ex.file, gvk)
				continue
			}
			var client dynamic.ResourceInterface = s.Resource(mapping.Resource)
			if ns := ex.obj.GetNamespace(); ns != "" {
				client = s.Resource(mapping.Resource).Namespace(ns)
			}
			// The bytes of the file, so that the server sees a field that is there twice.
			if _, err := client.Patch(ctx, ex.obj.GetName(), types.ApplyPatchType, ex.raw,
				metav1.PatchOptions{FieldManager: "test", FieldValidation: strict}); err != nil {
				t.Errorf("%s: %s %s: %v", ex.file, gvk.Kind, ex.obj.GetName(), err)
			}
		}
	})

	t.Run("StrictMeansStrict", func(t *testing.T) {
		client := s.Resource(gvr(crds["cephobjectrealms"])).Namespace("default")
		for title, doc := range map[string]string{
			"unknown field":   "apiVersion: ceph.rook.io/v1\nkind: CephObjectRealm\nmetadata: {name: x}\nspec: {defaultRelam: true}\n",
			"duplicate field": "apiVersion: ceph.rook.io/v1\nkind: CephObjectRealm\nmetadata: {name: x}\nspec:\n  defaultRealm: true\n  defaultRealm: false\n",
		} {
			_, err := client.Patch(ctx, "x", types.ApplyPatchType, []byte(doc),
				metav1.PatchOptions{FieldManager: "test", FieldValidation: strict})
			if err == nil || !strings.Contains(err.Error(), "defaultRe") {
				t.Errorf("%s: want a refusal that names the field, got %v", title, err)
			}
		}
	})

	t.Run("Scale", func(t *testing.T) {
		client := s.Resource(gvr(crds["cephobjectstores"])).Namespace("default")
		if _, err := client.Create(ctx, object(t, crds["cephobjectstores"], "scaled", `{gateway: {instances: 2}}`), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Patch(ctx, "scaled", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale"); err != nil {
			t.Fatalf("scaling: %v", err)
		}
		got, err := client.Get(ctx, "scaled", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := unstructured.NestedInt64(got.Object, "spec", "gateway", "instances"); n != 5 {
			t.Errorf("after scaling to 5, spec.gateway.instances is %d", n)
		}
	})

	t.Run("Columns", func(t *testing.T) {
		crd := crds["cephclusters"]
		client := s.Resource(gvr(crd)).Namespace("default")
		obj, err := client.Create(ctx, object(t, crd, "shown", `{dataDirHostPath: /var/lib/rook, mon: {count: 3}}`), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		obj.Object["status"] = decode(t, []byte(`
phase: Progressing
message: waiting
ceph: {health: HEALTH_WARN, fsid: f1}
mon: {inQuorum: 2, wanted: 3, summary: 2/3}
osd: {up: 11, in: 12, total: 12, summary: 11/12/12}
version: {version: 20.2.4-0}
blockedBy: [{subject: mon-c, reason: OutOfQuorum}, {subject: osd.5, reason: NotSafeToStop}]
`))
		if _, err := client.UpdateStatus(ctx, obj, metav1.UpdateOptions{FieldValidation: strict}); err != nil {
			t.Fatal(err)
		}
		raw, err := s.disco.RESTClient().Get().AbsPath("/apis/ceph.rook.io/v1/namespaces/default/cephclusters/shown").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
		if err != nil {
			t.Fatal(err)
		}
		var table metav1.Table
		if err := json.Unmarshal(raw, &table); err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		for i, c := range table.ColumnDefinitions {
			got[c.Name] = table.Rows[0].Cells[i]
		}
		for name, want := range map[string]any{
			"Phase": "Progressing", "Health": "HEALTH_WARN", "Mons": "2/3", "OSDs": "11/12/12", "Version": "20.2.4-0",
			"Blocked-By": "mon-c", "DataDirHostPath": "/var/lib/rook", "MonCount": "3", "Message": "waiting", "FSID": "f1",
		} {
			if fmt.Sprint(got[name]) != fmt.Sprint(want) {
				t.Errorf("column %s shows %v, want %v", name, got[name], want)
			}
		}
	})
}
