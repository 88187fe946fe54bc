package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// node is one JSON object of a CRD.
type node = map[string]any

// adjustFile reads a CRD as controller-gen made it and writes it adjusted.
func adjustFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("reading a CRD: %w", err)
	}
	var crd node
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		return fmt.Errorf("decoding %s: %w", from, err)
	}
	if err := adjust(crd); err != nil {
		return fmt.Errorf("adjusting %s: %w", from, err)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", from, err)
	}
	if err := os.WriteFile(to, append([]byte("---\n"), out...), 0o644); err != nil {
		return fmt.Errorf("writing a CRD: %w", err)
	}
	return nil
}

// adjust changes a CRD in place.
func adjust(crd node) error {
	spec, ok := crd["spec"].(node)
	if !ok {
		return fmt.Errorf("no spec")
	}
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(node)
		schema, err := at(version, "schema", "openAPIV3Schema")
		if err != nil {
			return err
		}
		dropForeignDescriptions(schema)
		forgiveOldObjects(schema, true)
		if names, _ := spec["names"].(node); names["kind"] == "CephCluster" {
			if err := preserveDeviceSetAnnotations(schema); err != nil {
				return err
			}
		}
	}
	return nil
}

// foreign are fields whose type is a type of Kubernetes: their descriptions
// are in the Kubernetes API reference, and repeating them for each daemon
// would make the CRDs many times larger.
func foreign(name string, schema node) bool {
	properties, _ := schema["properties"].(node)
	has := func(keys ...string) bool {
		for _, k := range keys {
			if _, ok := properties[k]; !ok {
				return false
			}
		}
		return true
	}
	switch name {
	case "nodeAffinity", "podAffinity", "podAntiAffinity", "tolerations", "topologySpreadConstraints", "affinity":
		return true
	case "hostPath", "emptyDir", "secret", "configMap", "projected", "persistentVolumeClaim", "ephemeral":
		return true
	}
	return has("failureThreshold", "periodSeconds") || // corev1.Probe
		has("accessModes", "storageClassName") || // corev1.PersistentVolumeClaimSpec
		has("claims", "limits", "requests") || // corev1.ResourceRequirements
		has("fieldPath", "resourceVersion") || // corev1.ObjectReference
		has("key", "optional") // corev1.SecretKeySelector
}

// dropForeignDescriptions removes the descriptions inside Kubernetes' own types.
func dropForeignDescriptions(schema node) {
	eachChild(schema, func(name string, child node) {
		target := innermost(child)
		if foreign(name, target) {
			stripDescriptions(target)
			return
		}
		dropForeignDescriptions(child)
	})
}

// innermost goes through lists and maps to the type that they hold.
func innermost(schema node) node {
	for {
		if items, ok := schema["items"].(node); ok {
			schema = items
			continue
		}
		if values, ok := schema["additionalProperties"].(node); ok {
			schema = values
			continue
		}
		return schema
	}
}

func stripDescriptions(schema node) {
	eachChild(schema, func(_ string, child node) {
		delete(child, "description")
		stripDescriptions(child)
	})
}

func eachChild(schema node, do func(name string, child node)) {
	properties, _ := schema["properties"].(node)
	for name, p := range properties {
		if child, ok := p.(node); ok {
			do(name, child)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if child, ok := schema[key].(node); ok {
			do(key, child)
		}
	}
}

// forgiveOldObjects lets an object that broke a rule before the rule was there
// go on living: a rule about several fields of an object holds when the object
// is made, and whenever it held before, but does not keep the other fields of
// an object that broke it already from changing. (For a rule about one value
// the API server does so by itself, as long as the value stays the same.)
//
// Rules that are part of the contract stay as they are, and so do rules that
// speak about the old object themselves. Inside a list whose items the API
// server cannot match with the old ones there is no old object to look at.
func forgiveOldObjects(schema node, comparable bool) {
	if schema["x-kubernetes-map-type"] == "atomic" {
		comparable = false
	}
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, r := range rules {
		rule, ok := r.(node)
		text, _ := rule["rule"].(string)
		if !ok || !comparable || schema["properties"] == nil || aboutOldSelf.MatchString(text) || isContractRule(text) {
			continue
		}
		before := aboutSelf.ReplaceAllString(text, "oldSelf.value()")
		rule["rule"] = fmt.Sprintf("(%s) || (oldSelf.hasValue() && !(%s))", text, before)
		rule["optionalOldSelf"] = true
	}
	properties, _ := schema["properties"].(node)
	for _, p := range properties {
		if child, ok := p.(node); ok {
			forgiveOldObjects(child, comparable)
		}
	}
	if values, ok := schema["additionalProperties"].(node); ok {
		forgiveOldObjects(values, comparable)
	}
	if items, ok := schema["items"].(node); ok {
		forgiveOldObjects(items, comparable && schema["x-kubernetes-list-type"] == "map")
	}
}

var (
	aboutSelf    = regexp.MustCompile(`\bself\b`)
	aboutOldSelf = regexp.MustCompile(`\boldSelf\b`)
)

// isContractRule reports whether a rule over several fields is one that users
// of Rook and of its CSI operator know; such rules stay word for word.
func isContractRule(rule string) bool {
	switch rule {
	case "has(self.crushNumFailureDomains) == has(self.crushOSDsPerFailureDomain)",
		"!has(self.zones) || (has(self.zones) && (size(self.zones) <= self.count))",
		"!has(self.stretchCluster) || (has(self.stretchCluster) && (size(self.stretchCluster.zones) > 0) && (size(self.stretchCluster.zones) == 3))",
		"!has(self.provider) || (self.provider != 'multus' || (self.provider == 'multus' && size(self.selectors) > 0))",
		`!has(self.hostNetwork) || self.hostNetwork == false || !has(self.provider) || self.provider == ""`,
		"!(has(self.defaultRealm) && self.defaultRealm == true && has(self.zone) && size(self.zone.name) > 0)",
		"(has(self.export) && !has(self.distributed) && !has(self.random)) || (!has(self.export) && has(self.distributed) && !has(self.random)) || (!has(self.export) && !has(self.distributed) && has(self.random)) || (!has(self.export) && !has(self.distributed) && !has(self.random))",
		`self.name != ""`,
		"(has(self.maxLogSize)) || (has(self.periodicity))",
		`self.metadata.name.matches('^(.+\\.)?(rbd|cephfs|nfs|nvmeof)?\\.csi\\.ceph\\.com$')`:
		return true
	}
	return false
}

// preserveDeviceSetAnnotations: annotations of a device set's claim templates
// carry crushDeviceClass and its like, and manifests write numbers there
// without quotes. The type is metav1.ObjectMeta, on which no marker can be put.
func preserveDeviceSetAnnotations(schema node) error {
	const path = "properties spec properties storage properties storageClassDeviceSets items" +
		" properties volumeClaimTemplates items properties metadata properties annotations"
	annotations, err := at(schema, strings.Fields(path)...)
	if err != nil {
		return err
	}
	annotations["x-kubernetes-preserve-unknown-fields"] = true
	return nil
}

// at walks down by keys.
func at(from node, keys ...string) (node, error) {
	here := from
	for i, key := range keys {
		next, ok := here[key].(node)
		if !ok {
			return nil, fmt.Errorf("there is no %s", strings.Join(keys[:i+1], "."))
		}
		here = next
	}
	return here, nil
}
