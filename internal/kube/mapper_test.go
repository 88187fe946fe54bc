package kube_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/castellan-storage/castellan/internal/kube"
)

// asked counts what is asked of a mapper.
type asked struct {
	meta.RESTMapper
	n int
}

func (a *asked) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	a.n++
	return a.RESTMapper.RESTMapping(gk, versions...)
}

func TestRemembering(t *testing.T) {
	known := meta.NewDefaultRESTMapper(nil)
	known.Add(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "A"}, meta.RESTScopeNamespace)
	inner := &asked{RESTMapper: known}
	m := kube.Remembering(inner)
	for range 3 {
		got, err := m.RESTMapping(schema.GroupKind{Group: "g", Kind: "A"}, "v1")
		if err != nil || got.Resource.Resource != "as" {
			t.Fatalf("%+v %v", got, err)
		}
	}
	if inner.n != 1 {
		t.Errorf("asked %d times for one kind", inner.n)
	}
	b := schema.GroupKind{Group: "g", Kind: "B"}
	if _, err := m.RESTMapping(b, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not there: %v", err)
	}
	known.Add(b.WithVersion("v1"), meta.RESTScopeRoot)
	if got, err := m.RESTMapping(b, "v1"); err != nil || got.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("a kind that has been installed since: %+v %v", got, err)
	}
	if _, err := m.RESTMapping(b, "v2"); err == nil {
		t.Error("a version that is not there is taken for another")
	}
}
