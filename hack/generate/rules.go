package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const rulesIntro = `# Rules of the API

This page is made from the CustomResourceDefinitions. The schemas say which
fields there are, and their types, limits and words; these rules go further.
Each is shown with the message that the API server gives when it is broken.

A rule holds when an object is made. An object that broke a rule before the rule
was there can still be changed: a value that stays the same is not held against
it, and a rule over several fields lets be what it finds.
`

// writeRules makes a page of all CEL rules, from the CRDs.
func writeRules(root string) error {
	files, err := filepath.Glob(filepath.Join(root, "deploy", "crds", "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the CRDs: %w", err)
	}
	slices.Sort(files)
	var page bytes.Buffer
	page.WriteString(rulesIntro)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		var crd node
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			return fmt.Errorf("decoding %s: %w", file, err)
		}
		names, err := at(crd, "spec", "names")
		if err != nil {
			return err
		}
		spec, _ := crd["spec"].(node)
		versions, _ := spec["versions"].([]any)
		var lines []string
		for _, v := range versions {
			version, _ := v.(node)
			schema, err := at(version, "schema", "openAPIV3Schema")
			if err != nil {
				return err
			}
			lines = append(lines, rulesOf("", schema)...)
		}
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&page, "\n## %v\n\n| Field | Rule |\n| --- | --- |\n%s", names["kind"], strings.Join(lines, ""))
	}
	out := filepath.Join(root, "docs", "reference", "rules.md")
	if err := os.WriteFile(out, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the page of rules: %w", err)
	}
	return nil
}

// rulesOf gives a line of the table for each rule of a schema and of all that
// is in it, in the order of the paths.
func rulesOf(path string, schema node) []string {
	var lines []string
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, r := range rules {
		rule, _ := r.(node)
		text, ok := rule["message"].(string)
		if !ok {
			text = fmt.Sprintf("`%v`", rule["rule"])
		}
		field := path
		if field == "" {
			field = "the object"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s |\n", field, strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(text)))
	}
	properties, _ := schema["properties"].(node)
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if child, ok := properties[name].(node); ok {
			lines = append(lines, rulesOf(strings.TrimPrefix(path+"."+name, "."), child)...)
		}
	}
	if items, ok := schema["items"].(node); ok {
		lines = append(lines, rulesOf(path+"[]", items)...)
	}
	if values, ok := schema["additionalProperties"].(node); ok {
		lines = append(lines, rulesOf(path+"{}", values)...)
	}
	return lines
}
