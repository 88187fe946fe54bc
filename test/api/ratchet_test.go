package api_test

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// update is an object from before our rules, and changes to it.
type update struct {
	title  string
	plural string
	// old breaks one of our rules.
	old string
	// elsewhere is old with a change of another field: accepted.
	elsewhere string
	// worse is old with another value that breaks the rule: refused, or empty
	// where the rule is about several fields and lets an old breach be.
	worse string
}

func updates() []update {
	const cluster, store = "cephclusters", "cephobjectstores"
	return []update{
		{"a device class", store,
			`{dataPool: {deviceClass: "-x", replicated: {size: 3}}}`,
			`{dataPool: {deviceClass: "-x", replicated: {size: 2}}}`,
			`{dataPool: {deviceClass: "-y", replicated: {size: 3}}}`},
		{"copies", store,
			`{dataPool: {replicated: {size: 12}}}`,
			`{dataPool: {replicated: {size: 12, targetSizeRatio: 0.5}}}`,
			`{dataPool: {replicated: {size: 13}}}`},
		{"both kinds of pool", store,
			`{dataPool: {replicated: {size: 3}, erasureCoded: {dataChunks: 2, codingChunks: 1}}}`,
			`{dataPool: {replicated: {size: 3}, erasureCoded: {dataChunks: 2, codingChunks: 1}, parameters: {bulk: "true"}}}`, ""},
		{"pools twice", store,
			`{dataPool: {replicated: {size: 3}}, sharedPools: {dataPoolName: p}}`,
			`{dataPool: {replicated: {size: 3}}, sharedPools: {dataPoolName: p}, gateway: {port: 80}}`, ""},
		{"no mode of mirroring", store,
			`{dataPool: {mirroring: {enabled: true}}}`,
			`{dataPool: {mirroring: {enabled: true, snapshotSchedules: [{interval: 1h}]}}}`, ""},
		{"a shared pool", store,
			`{sharedPools: {dataPoolName: "-p"}}`,
			`{sharedPools: {dataPoolName: "-p", metadataPoolName: m}}`,
			`{sharedPools: {dataPoolName: "-q"}}`},
		{"no arbiter", cluster,
			`{mon: {count: 5, stretchCluster: {zones: [{name: a}, {name: b}, {name: c}]}}}`,
			`{mon: {count: 3, stretchCluster: {zones: [{name: a}, {name: b}, {name: c}]}}}`, ""},
		{"ratios out of order", cluster,
			`{storage: {nearFullRatio: 0.99, fullRatio: 0.9}}`,
			`{storage: {nearFullRatio: 0.99, fullRatio: 0.9, useAllNodes: true}}`, ""},
		{"an unreadable duration", cluster,
			`{healthCheck: {daemonHealth: {mon: {timeout: long}}}}`,
			`{healthCheck: {daemonHealth: {mon: {timeout: long, disabled: true}}}, skipUpgradeChecks: true}`,
			`{healthCheck: {daemonHealth: {mon: {timeout: longer}}}}`},
		{"a device", cluster,
			`{storage: {nodes: [{name: a, devices: [{name: /tmp/x}]}], useAllDevices: false}}`,
			`{storage: {nodes: [{name: a, devices: [{name: /tmp/x}]}], useAllDevices: true}}`,
			`{storage: {nodes: [{name: a, devices: [{name: /tmp/y}]}], useAllDevices: false}}`},
		{"two endpoints", "cephbuckettopics",
			`{objectStoreName: s, objectStoreNamespace: ns, endpoint: {http: {uri: "http://a"}, kafka: {uri: "kafka://a"}}}`,
			`{objectStoreName: s, objectStoreNamespace: ns, persistent: true, endpoint: {http: {uri: "http://b"}, kafka: {uri: "kafka://a"}}}`, ""},
	}
}

// checkUpdate gives what is wrong with an update, as an API server sees it:
// what did not change is not held against the object.
func (c *checker) checkUpdate(obj, old map[string]any) field.ErrorList {
	correlated := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.structural})
	errs := apiservervalidation.ValidateCustomResourceUpdate(nil, obj, old, c.schema, apiservervalidation.WithRatcheting(correlated))
	if c.rules == nil {
		return errs
	}
	more, _ := c.rules.Validate(context.Background(), nil, c.structural, obj, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated))
	return append(errs, more...)
}

func whole(t testing.TB, spec string) map[string]any {
	t.Helper()
	return decode(t, []byte("{metadata: {name: a, namespace: default}, spec: "+spec+"}"))
}

// TestOldObjectsLive: an object that was stored before a rule can be changed in
// other fields, and cannot be made to break the rule in another way.
func TestOldObjectsLive(t *testing.T) {
	crds := loadCRDs(t)
	for _, u := range updates() {
		t.Run(u.title, func(t *testing.T) {
			c := newChecker(t, crds[u.plural])
			if errs := c.check(whole(t, u.old), nil); len(errs) == 0 {
				t.Fatal("the old object breaks no rule: the test shows nothing")
			}
			if errs := c.checkUpdate(whole(t, u.elsewhere), whole(t, u.old)); len(errs) > 0 {
				t.Errorf("a change elsewhere was refused: %v", errs.ToAggregate())
			}
			if u.worse == "" {
				return
			}
			if errs := c.checkUpdate(whole(t, u.worse), whole(t, u.old)); len(errs) == 0 {
				t.Error("another breach of the rule was accepted")
			}
		})
	}
}

// loosen takes every rule, limit and pattern out of a CRD, so that it stands
// for the CRD of an older release.
func loosen(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	out := crd.DeepCopy()
	for i := range out.Spec.Versions {
		loosenSchema(out.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	return out
}

func loosenSchema(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.XValidations, s.Pattern, s.MaxLength, s.MaxItems = nil, "", nil, nil
	for name, p := range s.Properties {
		loosenSchema(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		loosenSchema(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		loosenSchema(s.AdditionalProperties.Schema)
	}
}
