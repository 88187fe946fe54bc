package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// node is a JSON schema.
type node map[string]any

// opaque are fields whose form is left to the API server: Kubernetes' own types,
// which would be most of the schema.
var opaque = []string{"affinity", "volume", "mount", "claims", "limits", "requests", "tolerationSeconds"}

// Schema gives values.schema.json of the chart ceph-csi-drivers. crds is the
// directory of the CRDs, from which the fields of all specs are taken. Unknown fields
// are refused: the API server would drop them without a word.
func Schema(crds string) ([]byte, error) {
	specs := map[string]node{}
	for _, plural := range []string{"drivers", "operatorconfigs", "cephconnections", "clientprofiles", "clientprofilemappings", "clientprofilereplications"} {
		spec, err := specOf(filepath.Join(crds, "csi.ceph.io_"+plural+".yaml"))
		if err != nil {
			return nil, err
		}
		specs[plural] = spec
	}
	driver := specs["drivers"]
	operator := properties(specs["operatorconfigs"])
	operator["driverSpecDefaults"] = ref("driverSpec")
	for name, n := range map[string]node{
		"create": typed("boolean"), "name": text(1), "namespace": typed("string"), "labels": texts(), "annotations": texts(),
	} {
		operator[name] = n
	}
	root := object(map[string]any{
		"global":         typed("object"),
		"operatorConfig": object(operator),
		"drivers": object(map[string]any{
			"rbd": ref("driver"), "cephfs": ref("driver"), "nfs": ref("driver"), "nvmeof": ref("driver"),
		}),
		"cephConnections":           entries(specs["cephconnections"]),
		"clientProfiles":            entries(specs["clientprofiles"]),
		"clientProfileMappings":     entries(specs["clientprofilemappings"]),
		"clientProfileReplications": entries(specs["clientprofilereplications"]),
		"imagePullSecrets":          node{"type": "array", "items": node{"anyOf": []any{text(1), object(map[string]any{"name": text(1)}, "name")}}},
		"rbac": object(map[string]any{
			"create": typed("boolean"), "secretNamespaces": list(text(1)), "discoverSecretNamespaces": typed("boolean"),
			"secretsClusterWide": typed("boolean"),
			"kmsTenants":         object(map[string]any{"namespaces": list(text(1)), "clusterWide": typed("boolean")}),
		}),
	})
	own := properties(clone(driver))
	for name, n := range map[string]node{"enabled": typed("boolean"), "name": typed("string"), "labels": texts(), "annotations": texts()} {
		own[name] = n
	}
	own["snapshotPolicy"] = node{"enum": append([]any{""}, policies(driver)...)}
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Values of the chart ceph-csi-drivers; made from the CRDs of csi.ceph.io"
	root["definitions"] = map[string]any{"driverSpec": driver, "driver": object(own)}
	b, err := json.MarshalIndent(root, "", "  ")
	return append(b, '\n'), err
}

// specOf reads the schema of the spec of a CRD.
func specOf(path string) (node, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(b, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	spec, ok := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if !ok {
		return nil, fmt.Errorf("%s: no spec", path)
	}
	return convert("spec", spec), nil
}

// convert gives the JSON schema of what an OpenAPI schema of a CRD allows, without
// rules that need CEL.
func convert(name string, s apiextensionsv1.JSONSchemaProps) node {
	if slices.Contains(opaque, name) {
		return node{}
	}
	if s.XIntOrString {
		return node{"type": []any{"string", "number"}}
	}
	n := node{}
	if s.Type != "" {
		n["type"] = s.Type
	}
	if len(s.Enum) > 0 {
		var enum []any
		for _, e := range s.Enum {
			var v any
			if json.Unmarshal(e.Raw, &v) == nil {
				enum = append(enum, v)
			}
		}
		n["enum"] = enum
	}
	for key, v := range map[string]*float64{"minimum": s.Minimum, "maximum": s.Maximum} {
		if v != nil {
			n[key] = *v
		}
	}
	for key, v := range map[string]*int64{"minLength": s.MinLength, "maxLength": s.MaxLength, "minItems": s.MinItems, "maxItems": s.MaxItems} {
		if v != nil {
			n[key] = *v
		}
	}
	if s.Pattern != "" {
		n["pattern"] = s.Pattern
	}
	if s.Items != nil && s.Items.Schema != nil {
		n["items"] = convert("", *s.Items.Schema)
	}
	if len(s.Required) > 0 {
		n["required"] = s.Required
	}
	if len(s.Properties) > 0 {
		props := map[string]any{}
		for key, p := range s.Properties {
			props[key] = convert(key, p)
		}
		n["properties"], n["additionalProperties"] = props, false
	} else if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		n["additionalProperties"] = convert("", *s.AdditionalProperties.Schema)
	}
	return n
}

// entries is a list of objects with a name and a spec, or the fields of the spec
// beside the name.
func entries(spec node) node {
	meta := map[string]any{"name": text(1), "labels": texts(), "annotations": texts()}
	flat := clone(spec)
	for name, n := range meta {
		properties(flat)[name] = n
	}
	required := []any{"name"}
	if more, ok := flat["required"].([]any); ok {
		required = append(required, more...)
	}
	flat["required"] = required
	nested := object(map[string]any{"name": meta["name"], "labels": meta["labels"], "annotations": meta["annotations"], "spec": spec}, "name", "spec")
	return list(node{
		"if": node{"required": []any{"spec"}}, "then": nested, "else": flat,
	})
}

func policies(driver node) []any {
	n, _ := properties(driver)["snapshotPolicy"].(node)
	if n == nil {
		m, _ := properties(driver)["snapshotPolicy"].(map[string]any)
		n = m
	}
	enum, _ := n["enum"].([]any)
	return enum
}

func object(props map[string]any, required ...string) node {
	n := node{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		n["required"] = required
	}
	return n
}

// properties are those of a schema; changes show in it.
func properties(n node) map[string]any {
	props, _ := n["properties"].(map[string]any)
	return props
}

// clone copies a schema, as plain JSON values.
func clone(n node) node {
	b, err := json.Marshal(n)
	if err != nil {
		return nil
	}
	var c node
	if json.Unmarshal(b, &c) != nil {
		return nil
	}
	return c
}

func list(items node) node   { return node{"type": "array", "items": items} }
func ref(name string) node   { return node{"$ref": "#/definitions/" + name} }
func typed(kind string) node { return node{"type": kind} }
func text(minimum int) node  { return node{"type": "string", "minLength": minimum} }
func texts() node            { return node{"type": "object", "additionalProperties": typed("string")} }
