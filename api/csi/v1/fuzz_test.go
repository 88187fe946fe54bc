package v1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// FuzzDecode decodes arbitrary JSON into every kind: it must not panic, and what
// was decoded must survive encoding, decoding and copying unchanged.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"rbd.csi.ceph.com"},"spec":{"log":{"rotation":{"maxLogSize":"500Mi"}},"nodePlugin":{"topology":{"domainLabels":["a"]}}}}`,
		`{"spec":{"driverSpecDefaults":{"controllerPlugin":{"hostNetwork":true,"replicas":3}}}}`,
		`{"spec":{"monitors":["10.0.0.1:3300"],"rbdMirrorDaemonCount":2}}`,
		`{"spec":{"cephConnectionRef":{"name":"c"},"cephFs":{"kernelMountOptions":{"noatime":""}}}}`,
		`{"spec":{"mappings":[{"localClientProfile":"a","remoteClientProfile":"b","blockPoolIdMapping":[["1","2"]]}]}}`,
		`{"spec":{"localClientProfile":"a","remoteClientProfile":"b","rbd":{"poolMapping":[{"name":"p","remoteID":"5"}]}},"status":{"conditions":[{"type":"Ready"}]}}`,
		`{"spec":null}`, `[]`, `{"spec":{"log":{"rotation":{"maxLogSize":1.5e300}}}}`,
	} {
		f.Add([]byte(seed))
	}
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		f.Fatal(err)
	}
	kinds := []string{"Driver", "OperatorConfig", "CephConnection", "ClientProfile", "ClientProfileMapping", "ClientProfileReplication"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range kinds {
			gvk := schema.GroupVersionKind{Group: v1.GroupName, Version: "v1", Kind: kind}
			first, second := mustNew(t, scheme, gvk), mustNew(t, scheme, gvk)
			if json.Unmarshal(raw, first) != nil {
				continue
			}
			encoded, err := json.Marshal(first)
			if err != nil {
				t.Fatalf("%s: encoding what was decoded: %v", kind, err)
			}
			if err := json.Unmarshal(encoded, second); err != nil {
				t.Fatalf("%s: decoding what was encoded: %v", kind, err)
			}
			again, err := json.Marshal(second.DeepCopyObject())
			if err != nil {
				t.Fatalf("%s: encoding a copy: %v", kind, err)
			}
			if d := cmp.Diff(string(encoded), string(again)); d != "" {
				t.Errorf("%s changes on the way (-first +second):\n%s", kind, d)
			}
		}
	})
}

func mustNew(t *testing.T, s *runtime.Scheme, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	obj, err := s.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}
