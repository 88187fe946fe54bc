package csi_test

import (
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/internal/envtestx"
)

var server envtestx.Server

func TestMain(m *testing.M) { os.Exit(envtestx.Main(m, &server)) }

// TestRefusedAndAccepted sends manifests to a real API server, with strict
// validation: what cannot work is refused with a word that helps, and what looks
// odd and works is accepted.
func TestRefusedAndAccepted(t *testing.T) {
	c := client.WithFieldValidation(server.Client(t, runtime.NewScheme()), "Strict")
	ns := server.Namespace(t)
	for _, tt := range []struct {
		name, manifest string
		refused        string // empty: accepted
	}{
		{name: "connection without monitors", manifest: `{kind: CephConnection, spec: {monitors: []}}`, refused: "spec.monitors"},
		{name: "connection with an empty monitor", manifest: `{kind: CephConnection, spec: {monitors: [""]}}`, refused: "a monitor address is empty"},
		{name: "connection with no mirror daemon", manifest: `{kind: CephConnection, spec: {monitors: [a], rbdMirrorDaemonCount: 0}}`, refused: "rbdMirrorDaemonCount"},
		{name: "read affinity without labels", manifest: `{kind: CephConnection, spec: {monitors: [a], readAffinity: {crushLocationLabels: []}}}`, refused: "crushLocationLabels"},
		{name: "connection", manifest: `{kind: CephConnection, spec: {monitors: ["[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"]}}`},
		{name: "profile without connection", manifest: `{kind: ClientProfile, spec: {cephConnectionRef: {name: ""}}}`, refused: "cephConnectionRef.name must not be empty"},
		{name: "profile with an option without a name", manifest: `{kind: ClientProfile, spec: {cephConnectionRef: {name: c}, cephFs: {kernelMountOptions: {"": x}}}}`, refused: "the name of a mount option must not be empty"},
		{name: "profile with an unknown field", manifest: `{kind: ClientProfile, spec: {cephConnectionRef: {name: c}, cephfs: {}}}`, refused: `unknown field "spec.cephfs"`},
		{name: "profile with everything empty", manifest: `{kind: ClientProfile, spec: {cephConnectionRef: {name: c}, cephFs: {}, rbd: {radosNamespace: ""}, nfs: {}, nvmeof: {}}}`},
		{name: "mapping with one id", manifest: `{kind: ClientProfileMapping, spec: {mappings: [{localClientProfile: a, remoteClientProfile: b, blockPoolIdMapping: [["1"]]}]}}`, refused: "blockPoolIdMapping"},
		{name: "mapping with a word as id", manifest: `{kind: ClientProfileMapping, spec: {mappings: [{localClientProfile: a, remoteClientProfile: b, blockPoolIdMapping: [["1", "two"]]}]}}`, refused: "each pair must hold two pool ids, decimal numbers"},
		{name: "mapping with id zero", manifest: `{kind: ClientProfileMapping, spec: {mappings: [{localClientProfile: a, remoteClientProfile: b, blockPoolIdMapping: [["0", "1"]]}]}}`, refused: "each pair must hold two pool ids"},
		{name: "mapping with an id out of range", manifest: `{kind: ClientProfileMapping, spec: {mappings: [{localClientProfile: a, remoteClientProfile: b, blockPoolIdMapping: [["1", "9223372036854775808"]]}]}}`, refused: "each pair must hold two pool ids"},
		{name: "mapping without a name", manifest: `{kind: ClientProfileMapping, spec: {mappings: [{localClientProfile: "", remoteClientProfile: b}]}}`, refused: "localClientProfile must not be empty"},
		{name: "mapping of equal names and ids", manifest: `{kind: ClientProfileMapping, spec: {mappings: [{localClientProfile: a, remoteClientProfile: a, blockPoolIdMapping: [["1", "1"]]}]}}`},
		{name: "mapping of nothing", manifest: `{kind: ClientProfileMapping, spec: {mappings: []}}`},
		{name: "client type fuse", manifest: `{kind: OperatorConfig, spec: {driverSpecDefaults: {cephFsClientType: fuse}}}`, refused: "cephFsClientType"},
		{name: "rotation without a limit", manifest: `{kind: OperatorConfig, spec: {driverSpecDefaults: {log: {rotation: {maxFiles: 3}}}}}`, refused: "set maxLogSize, periodicity or both"},
		{name: "verbosity", manifest: `{kind: OperatorConfig, spec: {log: {verbosity: 4}}}`, refused: "verbosity"},
		{name: "liveness port", manifest: `{kind: OperatorConfig, spec: {driverSpecDefaults: {liveness: {metricsPort: 80}}}}`, refused: "metricsPort"},
		{name: "image set without a name", manifest: `{kind: OperatorConfig, spec: {driverSpecDefaults: {imageSet: {name: ""}}}}`, refused: "imageSet.name must not be empty"},
		{name: "replication without a spec", manifest: `{kind: ClientProfileReplication}`, refused: "spec"},
		{name: "replication without a mapping", manifest: `{kind: ClientProfileReplication, spec: {localClientProfile: a, remoteClientProfile: a, rbd: {}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tt.manifest), &u.Object); err != nil {
				t.Fatal(err)
			}
			u.SetAPIVersion("csi.ceph.io/v1")
			u.SetNamespace(ns)
			u.SetGenerateName("x-")
			err := c.Create(t.Context(), u)
			switch {
			case tt.refused == "" && err != nil:
				t.Error(err)
			case tt.refused != "" && (!apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("got %v, want a refusal that says %q", err, tt.refused)
			}
		})
	}
}

// TestImmutable: a RADOS namespace cannot be changed once it is set.
func TestImmutable(t *testing.T) {
	c := server.Client(t, runtime.NewScheme())
	ns := server.Namespace(t)
	for _, part := range []string{"cephFs", "rbd", "nvmeof"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "csi.ceph.io/v1", "kind": "ClientProfile",
			"metadata": map[string]any{"generateName": "x-", "namespace": ns},
			"spec":     map[string]any{"cephConnectionRef": map[string]any{"name": "c"}, part: map[string]any{"radosNamespace": "one"}}}}
		if err := c.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedField(u.Object, "two", "spec", part, "radosNamespace"); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), part+".radosNamespace is immutable") {
			t.Errorf("%s: %v", part, err)
		}
	}
}
