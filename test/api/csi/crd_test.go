// Package csi_test checks the CRDs of csi.ceph.io and objectbucket.io: that the
// API server would accept them within its cost budget, and, on a real API
// server, that they refuse what cannot work and accept what must.
package csi_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

// crdDir is where the generated CRDs are, seen from this package.
const crdDir = "../../../deploy/crds"

// kinds are the CRDs that this package speaks of.
func kinds() []string {
	return []string{
		"csi.ceph.io_cephconnections", "csi.ceph.io_clientprofilemappings",
		"csi.ceph.io_clientprofilereplications", "csi.ceph.io_clientprofiles",
		"csi.ceph.io_drivers", "csi.ceph.io_operatorconfigs",
		"objectbucket.io_objectbucketclaims", "objectbucket.io_objectbuckets",
	}
}

// TestCRDsWithinCostBudget runs the validation of the API server on each CRD,
// which includes the cost of its CEL rules.
func TestCRDsWithinCostBudget(t *testing.T) {
	for _, name := range kinds() {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(crdDir, name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var v1crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.UnmarshalStrict(raw, &v1crd); err != nil {
				t.Fatal(err)
			}
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&v1crd)
			v1crd.Status.StoredVersions = []string{v1crd.Spec.Versions[0].Name}
			var crd apiextensions.CustomResourceDefinition
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1crd, &crd, nil); err != nil {
				t.Fatal(err)
			}
			for _, e := range validation.ValidateCustomResourceDefinition(context.Background(), &crd) {
				t.Error(e)
			}
		})
	}
}
