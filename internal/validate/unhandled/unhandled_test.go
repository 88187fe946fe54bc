package unhandled

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

var cases = []struct {
	path  string
	shape bool
	set   func(*cephv1.ClusterSpec)
}{
	{"spec.mon.stretchCluster", true, func(s *cephv1.ClusterSpec) {
		s.Mon.StretchCluster = &cephv1.StretchClusterSpec{Zones: []cephv1.MonZoneSpec{{Name: "a", Arbiter: true}, {Name: "b"}, {Name: "c"}}}
	}},
	{"spec.storage.config[walSizeMB]", false, func(s *cephv1.ClusterSpec) {
		s.Storage.Config = map[string]string{"walSizeMB": "2048", "storeType": "bluestore"}
	}},
	{"spec.storage.devices[1].config[walSizeMB]", false, func(s *cephv1.ClusterSpec) {
		s.Storage.Devices = []cephv1.Device{{Name: "sda"}, {Name: "sdb", Config: map[string]string{"walSizeMB": "2048"}}}
	}},
	{"spec.storage.nodes[1].config[storeType]", false, func(s *cephv1.ClusterSpec) {
		s.Storage.Nodes = []cephv1.Node{{Name: "a"}, {Name: "b", Config: map[string]string{"storeType": "bluestore-rdr"}}}
	}},
	{"spec.storage.nodes[1].devices[0].config[storeType]", false, func(s *cephv1.ClusterSpec) {
		s.Storage.Nodes = []cephv1.Node{{Name: "a"}, {Name: "b", Selection: cephv1.Selection{
			Devices: []cephv1.Device{{Name: "sda", Config: map[string]string{"storeType": "bluestore-rdr"}}},
		}}}
	}},
	{"spec.mon.floatingMon", true, func(s *cephv1.ClusterSpec) {
		s.Mon.FloatingMon = &cephv1.FloatingMonSpec{Name: "c", ConfigMapName: "m"}
	}},
	{"spec.network.provider", true, func(s *cephv1.ClusterSpec) { s.Network.Provider = cephv1.NetworkProviderMultus }},
	{"spec.network.multiClusterService", true, func(s *cephv1.ClusterSpec) { s.Network.MultiClusterService.Enabled = true }},
	{"spec.monitoring.externalMgrEndpoints", false, func(s *cephv1.ClusterSpec) {
		s.Monitoring.ExternalMgrEndpoints = []corev1.EndpointAddress{{IP: "192.0.2.1"}}
	}},
	{"spec.removeOSDsIfOutAndSafeToRemove", false, func(s *cephv1.ClusterSpec) { s.RemoveOSDsIfOutAndSafeToRemove = true }},
	{"spec.storage.nodes[1].volumeClaimTemplates", false, func(s *cephv1.ClusterSpec) {
		s.Storage.Nodes = []cephv1.Node{{Name: "a"}, {Name: "b", Selection: cephv1.Selection{VolumeClaimTemplates: make([]cephv1.VolumeClaimTemplate, 1)}}}
	}},
	{"spec.storage.volumeClaimTemplates", false, func(s *cephv1.ClusterSpec) { s.Storage.VolumeClaimTemplates = make([]cephv1.VolumeClaimTemplate, 1) }},
	{"spec.storage.storageClassDeviceSets", false, func(s *cephv1.ClusterSpec) {
		s.Storage.StorageClassDeviceSets = make([]cephv1.StorageClassDeviceSet, 1)
	}},
	{"spec.storage.flappingRestartIntervalHours", false, func(s *cephv1.ClusterSpec) { s.Storage.FlappingRestartIntervalHours = 24 }},
	{"spec.storage.store.type", false, func(s *cephv1.ClusterSpec) { s.Storage.Store.Type = string(cephv1.StoreTypeBlueStoreRDR) }},
	{"spec.storage.store.updateStore", false, func(s *cephv1.ClusterSpec) { s.Storage.Store.UpdateStore = "yes-really-update-store" }},
	{"spec.storage.migration", false, func(s *cephv1.ClusterSpec) { s.Storage.Migration.Confirmation = "yes-really-migrate-osds" }},
	{"spec.security.kms", false, func(s *cephv1.ClusterSpec) {
		s.Security.KeyManagementService.ConnectionDetails = map[string]string{"KMS_PROVIDER": "vault"}
	}},
	{"spec.security.keyRotation", false, func(s *cephv1.ClusterSpec) { s.Security.KeyRotation.Enabled = true }},
	{"spec.security.cephx.daemon", false, func(s *cephv1.ClusterSpec) { s.Security.CephX.Daemon.KeyRotationPolicy = "KeyGeneration" }},
	{"spec.security.cephx.rbdMirrorPeer", false, func(s *cephv1.ClusterSpec) { s.Security.CephX.RBDMirrorPeer.KeyRotationPolicy = "KeyGeneration" }},
	{"spec.security.cephx.allowedCiphers", false, func(s *cephv1.ClusterSpec) { s.Security.CephX.AllowedCiphers = []cephv1.CephxKeyType{"aes"} }},
	{"spec.cleanupPolicy.wipeDevicesFromOtherClusters", false, func(s *cephv1.ClusterSpec) { s.CleanupPolicy.WipeDevicesFromOtherClusters = true }},
}

func TestWhatIsSetInVainIsTold(t *testing.T) {
	for _, c := range cases {
		var spec cephv1.ClusterSpec
		c.set(&spec)
		got := Fields(&spec)
		if len(got) != 1 || got[0].Path != c.path || got[0].Founding != c.shape || got[0].Instead == "" {
			t.Errorf("%s: got %+v", c.path, got)
		}
		if (Blocking(&spec) != nil) != c.shape {
			t.Errorf("%s: blocking %v", c.path, Blocking(&spec))
		}
	}
	if got := Fields(&cephv1.ClusterSpec{}); got != nil {
		t.Errorf("nothing is set: %+v", got)
	}
}

// nothing lists fields that never had an effect, or have none any more, as their
// documentation says.
var nothing = map[string]bool{
	"spec.disruptionManagement.pgHealthCheckTimeout":             true,
	"spec.disruptionManagement.manageMachineDisruptionBudgets":   true,
	"spec.disruptionManagement.machineDisruptionBudgetNamespace": true,
	// Only for what is told already: multus, device sets, external clusters.
	"spec.network.selectors":                    true,
	"spec.storage.onlyApplyOSDPlacement":        true,
	"spec.monitoring.externalMgrPrometheusPort": true,
}

// Every field of the spec is either read by the operator or told of here. The test
// knows fields by their names only, so it finds what nobody reads at all.
func TestEveryFieldIsReadOrTold(t *testing.T) {
	read := selectors(t)
	told := map[string]bool{}
	for _, c := range cases {
		told[strings.ReplaceAll(c.path, "[1]", "")] = true
	}
	seen := map[reflect.Type]bool{}
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || !strings.HasSuffix(typ.PkgPath(), "/api/ceph/v1") {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			at := path + "." + name
			if f.Anonymous || strings.Contains(options, "inline") {
				walk(f.Type, path)
				continue
			}
			if !read[f.Name] && !nothing[at] {
				t.Errorf("%s is not read anywhere, and its user is not told so: handle it, or list it in Fields", at)
				continue // what is below it is not read either
			}
			if !told[at] {
				walk(f.Type, at)
			}
		}
	}
	walk(reflect.TypeFor[cephv1.ClusterSpec](), "spec")
}

// selectors are the names x in v.x anywhere in the operator, and in those methods of
// the API types that it calls.
func selectors(t *testing.T) map[string]bool {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	used := map[string]bool{}
	for _, dir := range []string{"internal", "cmd"} {
		for _, f := range parsed(t, filepath.Join(root, dir)) {
			collect(f, used)
		}
	}
	methods := map[string][]ast.Node{}
	for _, f := range parsed(t, filepath.Join(root, "api", "ceph", "v1")) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				methods[fn.Name.Name] = append(methods[fn.Name.Name], fn.Body)
			}
		}
	}
	for again := true; again; {
		again = false
		for name, bodies := range methods {
			if used[name] {
				for _, b := range bodies {
					collect(b, used)
				}
				delete(methods, name)
				again = true
			}
		}
	}
	return used
}

func collect(n ast.Node, into map[string]bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			into[s.Sel.Name] = true
		}
		return true
	})
}

func parsed(t *testing.T, dir string) []*ast.File {
	t.Helper()
	var out []*ast.File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(d.Name(), "zz_generated") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		out = append(out, f)
		return err
	})
	if err != nil {
		t.Fatalf("reading the sources in %s: %v", dir, err)
	}
	if len(out) == 0 {
		t.Fatalf("no sources in %s", dir)
	}
	return out
}
