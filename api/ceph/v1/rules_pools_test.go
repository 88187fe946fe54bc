package v1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

const crdDir = "../../../deploy/crds"

// crdChecker validates objects of one kind as an API server does: the OpenAPI
// schema first, then the CEL rules.
type crdChecker struct {
	schema   *structuralschema.Structural
	validate func(obj map[string]any) field.ErrorList
	rules    *cel.Validator // nil when the kind has no rule
}

func newChecker(t *testing.T, plural string) *crdChecker {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(crdDir, "ceph.rook.io_"+plural+".yaml"))
	if err != nil {
		t.Fatalf("reading the CRD: %v", err)
	}
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &external); err != nil {
		t.Fatalf("decoding the CRD: %v", err)
	}
	var schema apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		external.Spec.Versions[0].Schema, &schema, nil); err != nil {
		t.Fatalf("converting the schema: %v", err)
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("the schema is not structural: %v", err)
	}
	openAPI, _, err := validation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("making a validator: %v", err)
	}
	return &crdChecker{
		schema:   structural,
		validate: func(obj map[string]any) field.ErrorList { return validation.ValidateCustomResource(nil, obj, openAPI) },
		rules:    cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

func (c *crdChecker) check(obj, old map[string]any) []string {
	errs := c.validate(obj)
	if len(errs) == 0 && c.rules != nil {
		var before any
		if old != nil {
			before = old
		}
		errs, _ = c.rules.Validate(context.Background(), nil, c.schema, obj, before, celconfig.RuntimeCELCostBudget)
	}
	out := make([]string, 0, len(errs))
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

func object(t *testing.T, spec string) map[string]any {
	t.Helper()
	if spec == "" {
		return nil
	}
	return decode(t, []byte("{metadata: {name: a, namespace: b}, spec: "+spec+"}"))
}

// decode reads YAML as the API server does, whole numbers as int64.
func decode(t *testing.T, doc []byte) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(doc)
	if err != nil {
		t.Fatalf("converting %s: %v", doc, err)
	}
	var obj map[string]any
	if err := utiljson.Unmarshal(asJSON, &obj); err != nil {
		t.Fatalf("decoding %s: %v", doc, err)
	}
	return obj
}

func TestRules(t *testing.T) {
	// Each bad spec breaks one rule, and the message must hold these words; an
	// empty message means that the spec is good.
	type rule struct{ title, old, spec, message string }
	fs := `metadataServer: {activeCount: 1}, `
	for plural, rules := range map[string][]rule{
		"cephblockpools": {
			{title: "replicated", spec: `{replicated: {size: 3}}`},
			{title: "nothing at all", spec: `{}`},
			{title: "size 0 beside erasure coding, as charts write it", spec: `{replicated: {size: 0}, erasureCoded: {dataChunks: 2, codingChunks: 1}}`},
			{title: "both kinds", spec: `{replicated: {size: 3}, erasureCoded: {dataChunks: 2, codingChunks: 1}}`, message: "replicated and erasureCoded"},
			{title: "a name of the user's own", spec: `{name: mine, replicated: {size: 3}}`, message: "spec.name"},
			{title: "a device class that looks like a flag", spec: `{deviceClass: --yes-i-really-mean-it}`, message: "deviceClass must be"},
		},
		"cephblockpoolradosnamespaces": {
			{title: "plain", spec: `{blockPoolName: replicapool}`},
			{title: "builtin pool", spec: `{blockPoolName: .nfs}`},
			{title: "implicit", spec: `{blockPoolName: p, name: <implicit>}`},
			{title: "a flag for a name", spec: `{blockPoolName: p, name: --force}`, message: "name must be 1 to 253"},
			{title: "a newline in the name", spec: `{blockPoolName: p, name: "a\nb"}`, message: "name must be 1 to 253"},
			{title: "a shell word for a pool", spec: `{blockPoolName: "p;$(id)"}`, message: "blockPoolName must be"},
			{title: "a bad remote", spec: `{blockPoolName: p, mirroring: {mode: image, remoteNamespace: "a b"}}`, message: "remoteNamespace must be"},
			{title: "another pool later", old: `{blockPoolName: p}`, spec: `{blockPoolName: q}`, message: "blockPoolName cannot change"},
			{title: "another name later", old: `{blockPoolName: p, name: a}`, spec: `{blockPoolName: p, name: b}`, message: "name cannot change"},
			{title: "another id later", old: `{blockPoolName: p, clusterID: a}`, spec: `{blockPoolName: p, clusterID: b}`, message: "clusterID cannot change"},
			{title: "mirroring later", old: `{blockPoolName: p}`, spec: `{blockPoolName: p, mirroring: {mode: ""}}`},
		},
		"cephfilesystems": {
			{title: "plain", spec: `{` + fs + `metadataPool: {replicated: {size: 3}}, dataPools: [{replicated: {size: 3}}]}`},
			{title: "one that exists already", spec: `{` + fs + `metadataPool: null, dataPools: null}`},
			{title: "pools without names", spec: `{` + fs + `metadataPool: {replicated: {size: 3}}, dataPools: [{}, {}, {name: ""}]}`},
			{title: "erasure coded metadata", spec: `{` + fs + `metadataPool: {erasureCoded: {dataChunks: 2, codingChunks: 1}}, dataPools: []}`, message: "metadataPool must be replicated"},
			{title: "two pools of one name", spec: `{` + fs + `metadataPool: {}, dataPools: [{name: a}, {name: b}, {name: a}]}`, message: "needs a name of its own"},
			{title: "a flag for a pool", spec: `{` + fs + `metadataPool: {}, dataPools: [{name: "-a"}]}`, message: "name must be 1 to 253"},
			{title: "no rank", spec: `{metadataServer: {activeCount: 0}, metadataPool: {}, dataPools: []}`, message: "activeCount"},
			{title: "more cache than memory", spec: `{metadataServer: {activeCount: 1, cacheMemoryLimitFactor: 1.5}, metadataPool: {}, dataPools: []}`, message: "cacheMemoryLimitFactor"},
		},
		"cephfilesystemsubvolumegroups": {
			{title: "plain", spec: `{filesystemName: myfs, quota: 10Gi}`},
			{title: "quota in bytes", spec: `{filesystemName: myfs, quota: 10737418240}`},
			{title: "negative quota", spec: `{filesystemName: myfs, quota: -10Gi}`, message: "quota must not be negative"},
			{title: "negative quota in bytes", spec: `{filesystemName: myfs, quota: -1}`, message: "quota must not be negative"},
			{title: "two pins", spec: `{filesystemName: myfs, pinning: {export: 1, random: 0.1}}`, message: "at most one of export"},
			{title: "the parent directory", spec: `{filesystemName: myfs, name: ..}`, message: "name must be 1 to 253"},
			{title: "a path for a name", spec: `{filesystemName: myfs, name: a/b}`, message: "name must be 1 to 253"},
			{title: "a flag for a filesystem", spec: `{filesystemName: --fs}`, message: "filesystemName must be"},
			{title: "a bad pool", spec: `{filesystemName: myfs, dataPoolName: "a b"}`, message: "dataPoolName must be"},
			{title: "a bad journal namespace", spec: `{filesystemName: myfs, csiMetadataRadosNamespace: -x}`, message: "csiMetadataRadosNamespace must be"},
			{title: "another filesystem later", old: `{filesystemName: a}`, spec: `{filesystemName: b}`, message: "filesystemName cannot change"},
			{title: "another quota later", old: `{filesystemName: a, quota: 1Gi}`, spec: `{filesystemName: a, quota: 2Gi}`},
		},
		"cephrbdmirrors": {
			{title: "plain", spec: `{count: 1}`},
			{title: "none", spec: `{count: 0}`, message: "count"},
			{title: "too many", spec: `{count: 101}`, message: "count must be from 1 to 100"},
		},
		"cephfilesystemmirrors": {
			{title: "empty", spec: `{}`},
			{title: "nulls, as charts write them", spec: `{placement: null, resources: null, annotations: null, labels: null}`},
		},
		"cephnfses": {
			{title: "plain", spec: `{server: {active: 1}}`},
			{title: "as of old", spec: `{rados: {pool: nfs-ganesha, namespace: nfs-ns}, server: {active: 1, logLevel: "", hostNetwork: null}}`},
			{title: "none", spec: `{server: {active: 0}}`, message: "active must be from 1 to 64"},
			{title: "a log level with an option behind it", spec: `{server: {active: 1, logLevel: "NIV_INFO -x"}}`, message: "logLevel must be"},
			{title: "Kerberos", spec: `{server: {active: 1}, security: {kerberos: {principalName: nfs, domainName: EXAMPLE.com}}}`},
			{title: "a config line in the domain", spec: `{server: {active: 1}, security: {kerberos: {domainName: "a;\nb"}}}`, message: "domainName must be"},
			{title: "a config line in the principal", spec: `{server: {active: 1}, security: {kerberos: {principalName: "a;}"}}}`, message: "principalName must be"},
		},
		"cephnvmeofgateways": {
			{title: "plain", spec: `{group: g, instances: 1}`},
			{title: "ports apart", spec: `{group: g, instances: 1, ports: {ioPort: 4421}}`},
			{title: "no port given", spec: `{group: g, instances: 1, ports: {}}`},
			{title: "one port twice", spec: `{group: g, instances: 1, ports: {ioPort: 9000, gatewayPort: 9000}}`, message: "ports must all differ"},
			{title: "a port on another's default", spec: `{group: g, instances: 1, ports: {ioPort: 8009}}`, message: "ports must all differ"},
			{title: "too many", spec: `{group: g, instances: 33}`, message: "instances must be from 1 to 32"},
			{title: "a flag for a group", spec: `{group: --g, instances: 1}`, message: "group must be"},
			{title: "a path for a ConfigMap", spec: `{group: g, instances: 1, configMapRef: ../x}`, message: "configMapRef must be"},
		},
		"cephclients": {
			{title: "plain", spec: `{caps: {mon: allow r}}`},
			{title: "a name with the type before it is a name as well", spec: `{name: client.a, caps: {}}`},
			{title: "a flag for a name", spec: `{name: --a, caps: {}}`, message: "name must be 1 to 253"},
			{title: "a bad Secret", spec: `{secretName: A_b, caps: {}}`, message: "secretName must be"},
			{title: "another Secret later", old: `{secretName: a, caps: {}}`, spec: `{secretName: b, caps: {}}`, message: "secretName cannot change"},
			{title: "an older generation", old: `{caps: {}, security: {cephx: {keyGeneration: 2}}}`, spec: `{caps: {}, security: {cephx: {keyGeneration: 1}}}`, message: "keyGeneration cannot go down"},
		},
	} {
		t.Run(plural, func(t *testing.T) {
			c := newChecker(t, plural)
			for _, r := range rules {
				t.Run(r.title, func(t *testing.T) {
					got := c.check(object(t, r.spec), object(t, r.old))
					switch {
					case r.message == "" && len(got) > 0:
						t.Errorf("a good spec was refused: %q", got)
					case r.message != "" && len(got) != 1:
						t.Errorf("want one error with %q, got %q", r.message, got)
					case r.message != "" && !strings.Contains(got[0], r.message):
						t.Errorf("want an error with %q, got %q", r.message, got[0])
					}
				})
			}
		})
	}
}

// An object that Rook stored and that breaks a rule of ours must stay open to
// changes elsewhere, and to the change that mends it.
func TestRulesLeaveOldObjectsOpen(t *testing.T) {
	for _, tc := range []struct{ plural, old, spec string }{
		{"cephblockpoolradosnamespaces", `{blockPoolName: p, mirroring: {mode: image, remoteNamespace: "a b"}}`, `{blockPoolName: p, mirroring: {mode: pool, remoteNamespace: "a b"}}`},
		{"cephnfses", `{server: {active: 0}}`, `{server: {active: 0, port: 2050}}`},
		{"cephnvmeofgateways", `{group: g, instances: 33}`, `{group: g, instances: 33, hostNetwork: true}`},
		{"cephfilesystemsubvolumegroups", `{filesystemName: a, dataPoolName: "x y"}`, `{filesystemName: a, dataPoolName: "x y", quota: 1Gi}`},
	} {
		t.Run(tc.plural, func(t *testing.T) {
			c := newChecker(t, tc.plural)
			old, obj := object(t, tc.old), object(t, tc.spec)
			if len(c.check(old, nil)) == 0 {
				t.Fatal("the old object breaks no rule: the test shows nothing")
			}
			correlated := cel.WithRatcheting(common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.schema}))
			errs, _ := c.rules.Validate(context.Background(), nil, c.schema, obj, old, celconfig.RuntimeCELCostBudget, correlated)
			if len(errs) > 0 {
				t.Errorf("a change elsewhere was refused: %v", errs)
			}
		})
	}
}

// Every example of these kinds decodes without an unknown field and breaks no
// rule.
func TestExamplesOfPoolsAndGateways(t *testing.T) {
	plurals := map[string]string{
		"CephBlockPool": "cephblockpools", "CephBlockPoolRadosNamespace": "cephblockpoolradosnamespaces",
		"CephFilesystem": "cephfilesystems", "CephFilesystemSubVolumeGroup": "cephfilesystemsubvolumegroups",
		"CephFilesystemMirror": "cephfilesystemmirrors", "CephRBDMirror": "cephrbdmirrors",
		"CephNFS": "cephnfses", "CephNVMeOFGateway": "cephnvmeofgateways", "CephClient": "cephclients",
	}
	scheme := runtime.NewScheme()
	if err := cephv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../deploy/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples found (%v)", err)
	}
	checkers, seen := map[string]*crdChecker{}, map[string]int{}
	for _, file := range files {
		for _, doc := range documents(t, file) {
			obj := decode(t, doc)
			kind, _ := obj["kind"].(string)
			plural, ours := plurals[kind]
			if !ours || obj["apiVersion"] != cephv1.SchemeGroupVersion.String() {
				continue
			}
			seen[kind]++
			typed, err := scheme.New(cephv1.SchemeGroupVersion.WithKind(kind))
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(doc, typed); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(file), kind, err)
			}
			if checkers[plural] == nil {
				checkers[plural] = newChecker(t, plural)
			}
			for _, e := range checkers[plural].check(obj, nil) {
				t.Errorf("%s: %s: %s", filepath.Base(file), kind, e)
			}
		}
	}
	for kind := range plurals {
		if seen[kind] == 0 {
			t.Errorf("no example of %s", kind)
		}
	}
}

func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var out [][]byte
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, doc)
	}
}
