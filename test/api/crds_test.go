// Package api_test checks the API as users meet it: that the generated
// CustomResourceDefinitions fit into the limits of an API server, cover the
// contract, accept every example in deploy/examples under strict field
// validation, refuse what can never work with a word that helps, and let
// objects from before a rule go on living.
//
// Tests named ...OnServer need a real API server; they take its binaries from
// KUBEBUILDER_ASSETS and are skipped without it.
package api_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

const (
	crdDir     = "../../deploy/crds"
	exampleDir = "../../deploy/examples"

	// kindsOfTheContract: 19 of ceph.rook.io, 6 of csi.ceph.io, 2 of
	// objectbucket.io.
	kindsOfTheContract = 27

	// annotationLimit is the size of all annotations of an object; `kubectl
	// apply` without --server-side keeps the whole object in one.
	annotationLimit = 256 << 10
)

// loadCRDs reads every CRD, by the plural of its kind.
func loadCRDs(t testing.TB) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(crdDir, "*.yaml"))
	if err != nil {
		t.Fatalf("listing the CRDs: %v", err)
	}
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("reading a CRD: %v", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, crd); err != nil {
			t.Fatalf("decoding %s: %v", file, err)
		}
		crds[crd.Spec.Names.Plural] = crd
	}
	if len(crds) != kindsOfTheContract {
		t.Fatalf("deploy/crds holds %d kinds, want %d", len(crds), kindsOfTheContract)
	}
	return crds
}

// TestCRDsAreValid runs the checks that an API server makes before it takes a
// CRD, the cost budget of CEL rules included.
func TestCRDsAreValid(t *testing.T) {
	for plural, external := range loadCRDs(t) {
		t.Run(plural, func(t *testing.T) {
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(external)
			external.Status.StoredVersions = []string{external.Spec.Versions[0].Name}
			var crd apiextensions.CustomResourceDefinition
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external, &crd, nil); err != nil {
				t.Fatal(err)
			}
			for _, e := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), &crd) {
				t.Error(e)
			}
		})
	}
}

// TestCRDSizes keeps every CRD small enough for either way of `kubectl apply`.
func TestCRDSizes(t *testing.T) {
	for plural, crd := range loadCRDs(t) {
		raw, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-32s %7d bytes", plural, len(raw))
		if len(raw) >= annotationLimit {
			t.Errorf("%s has %d bytes: kubectl apply would have to keep it in an annotation of at most %d", plural, len(raw), annotationLimit)
		}
	}
}

// TestPrinterColumns: every kind shows its age, and its phase when it has one.
func TestPrinterColumns(t *testing.T) {
	for plural, crd := range loadCRDs(t) {
		for _, v := range crd.Spec.Versions {
			paths := map[string]bool{}
			for _, c := range v.AdditionalPrinterColumns {
				paths[c.JSONPath] = true
			}
			if !paths[".metadata.creationTimestamp"] {
				t.Errorf("%s shows no age", plural)
			}
			status, ok := v.Schema.OpenAPIV3Schema.Properties["status"]
			if _, hasPhase := status.Properties["phase"]; ok && hasPhase && !paths[".status.phase"] {
				t.Errorf("%s has a phase and does not show it", plural)
			}
		}
	}
}

// checker validates objects of one kind as an API server does, in this process.
type checker struct {
	structural *structuralschema.Structural
	schema     apiservervalidation.SchemaValidator
	rules      *cel.Validator // nil when the kind has no rule
}

func newChecker(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) *checker {
	t.Helper()
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		crd.Spec.Versions[0].Schema, &internal, nil); err != nil {
		t.Fatalf("converting the schema of %s: %v", crd.Name, err)
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("the schema of %s is not structural: %v", crd.Name, err)
	}
	schema, _, err := apiservervalidation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("making a validator of %s: %v", crd.Name, err)
	}
	return &checker{
		structural: structural,
		schema:     schema,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

// check gives what is wrong with an object, beside what was stored before it.
func (c *checker) check(obj, old map[string]any) field.ErrorList {
	errs := apiservervalidation.ValidateCustomResource(nil, obj, c.schema)
	if len(errs) > 0 || c.rules == nil {
		return errs
	}
	var before any
	if old != nil {
		before = old
	}
	errs, _ = c.rules.Validate(context.Background(), nil, c.structural, obj, before, celconfig.RuntimeCELCostBudget)
	return errs
}
