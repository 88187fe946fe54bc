package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) node {
	t.Helper()
	var n node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestForgiveOldObjects(t *testing.T) {
	const before = `
properties:
  both:
    properties: {a: {}, b: {}}
    x-kubernetes-validations: [{rule: "!(has(self.a) && has(self.b))", message: m}]
  value: {type: string, x-kubernetes-validations: [{rule: self != 'x'}]}
  fixed:
    properties: {a: {}}
    x-kubernetes-validations: [{rule: self.a == oldSelf.a}]
  contract:
    properties: {a: {}}
    x-kubernetes-validations: [{rule: 'self.name != ""'}]
  plain: {type: array, items: {properties: {a: {}}, x-kubernetes-validations: [{rule: has(self.a)}]}}
  keyed: {type: array, x-kubernetes-list-type: map, items: {properties: {a: {}}, x-kubernetes-validations: [{rule: has(self.a)}]}}
  named: {additionalProperties: {properties: {a: {}}, x-kubernetes-validations: [{rule: has(self.a)}]}}
  whole: {x-kubernetes-map-type: atomic, properties: {a: {}}, x-kubernetes-validations: [{rule: has(self.a)}]}
`
	want := parse(t, before)
	properties := want["properties"].(node)
	forgive := func(schema any, rule string) {
		r := schema.(node)["x-kubernetes-validations"].([]any)[0].(node)
		r["rule"], r["optionalOldSelf"] = rule, true
	}
	forgive(properties["both"], "(!(has(self.a) && has(self.b))) || (oldSelf.hasValue() && !(!(has(oldSelf.value().a) && has(oldSelf.value().b))))")
	forgive(properties["keyed"].(node)["items"], "(has(self.a)) || (oldSelf.hasValue() && !(has(oldSelf.value().a)))")
	forgive(properties["named"].(node)["additionalProperties"], "(has(self.a)) || (oldSelf.hasValue() && !(has(oldSelf.value().a)))")

	got := parse(t, before)
	forgiveOldObjects(got, true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestDropForeignDescriptions(t *testing.T) {
	got := parse(t, `
properties:
  ours: {description: keep, properties: {inner: {description: keep}}}
  nodeAffinity: {description: keep, properties: {x: {description: drop, items: {properties: {y: {description: drop}}}}}}
  tolerations: {description: keep, items: {description: keep, properties: {key: {description: drop}}}}
  limits: {additionalProperties: {properties: {claims: {description: drop}, limits: {}, requests: {}}}}
  words: {properties: {description: {type: string, description: keep}}}
`)
	dropForeignDescriptions(got)
	want := parse(t, `
properties:
  ours: {description: keep, properties: {inner: {description: keep}}}
  nodeAffinity: {description: keep, properties: {x: {items: {properties: {y: {}}}}}}
  tolerations: {description: keep, items: {description: keep, properties: {key: {}}}}
  limits: {additionalProperties: {properties: {claims: {}, limits: {}, requests: {}}}}
  words: {properties: {description: {type: string, description: keep}}}
`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestRulesOf(t *testing.T) {
	got := rulesOf("", parse(t, `
x-kubernetes-validations: [{rule: a}]
properties:
  b: {items: {x-kubernetes-validations: [{rule: r, message: "x | y <z"}]}}
  a: {additionalProperties: {properties: {c: {x-kubernetes-validations: [{rule: r, message: m}]}}}}
`))
	want := []string{"| `the object` | `a` |\n", "| `a{}.c` | m |\n", "| `b[]` | x \\| y &lt;z |\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
