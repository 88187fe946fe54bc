package api_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
)

// TestExamples: every example keeps every rule and has no unknown field, and
// every kind has an example. TestExamplesOnServer says the same with a real
// API server.
func TestExamples(t *testing.T) {
	crds := loadCRDs(t)
	byKind := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range crds {
		byKind[crd.Spec.Group+"/"+crd.Spec.Names.Kind] = crd
	}
	checkers := map[string]*checker{}
	seen := map[string]bool{}
	for _, ex := range examples(t) {
		gvk := ex.obj.GroupVersionKind()
		crd := byKind[gvk.Group+"/"+gvk.Kind]
		if crd == nil {
			continue // a StorageClass, a Namespace, a Secret, ...
		}
		seen[crd.Name] = true
		if checkers[crd.Name] == nil {
			checkers[crd.Name] = newChecker(t, crd)
		}
		c := checkers[crd.Name]
		for _, e := range c.check(ex.obj.Object, nil) {
			t.Errorf("%s: %s %s: %v", ex.file, gvk.Kind, ex.obj.GetName(), e)
		}
		for _, path := range pruning.PruneWithOptions(ex.obj.DeepCopy().Object, c.structural, true,
			structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
			t.Errorf("%s: %s %s: unknown field %s", ex.file, gvk.Kind, ex.obj.GetName(), path)
		}
	}
	for _, crd := range crds {
		if crd.Spec.Names.Kind == "ObjectBucket" {
			continue // made by the provisioner, not by people
		}
		if !seen[crd.Name] {
			t.Errorf("there is no example of %s", crd.Spec.Names.Kind)
		}
	}
}
