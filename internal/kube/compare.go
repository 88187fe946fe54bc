package kube

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// difference gives the path of the first wanted field that live does not have, in
// the order of the field names, or "".
func difference(path string, live, want any) string {
	switch want := want.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			// {} is wanted where the server keeps nothing.
			if live == nil && len(want) == 0 {
				return ""
			}
			return or(path)
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			val, ok := have[key]
			if !ok && !isEmpty(want[key]) {
				return join(path, key)
			}
			if d := difference(join(path, key), val, want[key]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		have, ok := live.([]any)
		if !ok {
			if live == nil && len(want) == 0 {
				return ""
			}
			return or(path)
		}
		return listDifference(path, have, want)
	default:
		if equalScalar(path, live, want) {
			return ""
		}
		return or(path)
	}
}

// listDifference compares lists the way server-side apply merges them: by key where
// the schema says so, as a whole otherwise. The order of keyed lists is not
// compared, since others may have added elements; when the order wanted changes,
// AppliedHash does.
func listDifference(path string, live, want []any) string {
	keys := MergeKeys(path)
	if keys == nil || !keyed(want, keys) {
		if len(live) != len(want) {
			return or(path)
		}
		for i := range want {
			if d := difference(path+"["+strconv.Itoa(i)+"]", live[i], want[i]); d != "" {
				return d
			}
		}
		return ""
	}
	have := map[string]any{}
	for _, e := range live {
		have[ElementKey(e, keys)] = e
	}
	for _, e := range want {
		key := ElementKey(e, keys)
		val, ok := have[key]
		at := path + "[" + strings.TrimSuffix(key, "/") + "]"
		if !ok {
			return at
		}
		if d := difference(at, val, e); d != "" {
			return d
		}
	}
	return ""
}

// MergeKeys gives the keys by which server-side apply merges the list at a path
// ("spec.template.spec.containers"), from the OpenAPI schema of Kubernetes
// (x-kubernetes-list-map-keys). The element itself is the key for "". nil means an
// atomic list.
func MergeKeys(path string) []string {
	field := path[strings.LastIndexByte(path, '.')+1:]
	switch field {
	case "containers", "initContainers", "ephemeralContainers", "volumes", "env", "imagePullSecrets":
		return []string{"name"}
	case "ports":
		if strings.Contains(path, "ontainers[") {
			return []string{"containerPort", "protocol"}
		}
		if path == "spec.ports" {
			return []string{"port", "protocol"}
		}
		return nil // EndpointSlice, NetworkPolicy: atomic
	case "volumeMounts":
		return []string{"mountPath"}
	case "volumeDevices":
		return []string{"devicePath"}
	case "topologySpreadConstraints":
		return []string{"topologyKey", "whenUnsatisfiable"}
	case "hostAliases":
		return []string{"ip"}
	case "ownerReferences":
		return []string{"uid"}
	case "finalizers":
		return []string{""}
	}
	return nil
}

// keyed says whether every element has what the merge needs.
func keyed(list []any, keys []string) bool {
	for _, e := range list {
		if _, ok := e.(map[string]any); !ok && keys[0] != "" {
			return false
		}
	}
	return true
}

// ElementKey gives the identity of a list's element under keys of MergeKeys.
func ElementKey(e any, keys []string) string {
	m, ok := e.(map[string]any)
	if !ok {
		return fmt.Sprint(e)
	}
	var b strings.Builder
	for _, key := range keys {
		val, ok := m[key]
		if !ok && key == "protocol" {
			val = "TCP" // the default of the schema, which is part of the key
		}
		fmt.Fprint(&b, val, "/")
	}
	return b.String()
}

// equalScalar compares numbers as numbers, and quantities as quantities where a
// field holds them.
func equalScalar(path string, live, want any) bool {
	if live == want {
		return true
	}
	if live == nil {
		return isEmpty(want)
	}
	if a, ok := number(live); ok {
		b, ok := number(want)
		return ok && a == b
	}
	a, aok := live.(string)
	b, bok := want.(string)
	if !aok || !bok || !isQuantity(path) {
		return false
	}
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(b)
	return err == nil && x.Cmp(y) == 0
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case int:
		return float64(v), true
	}
	return 0, false
}

// isQuantity says whether a field holds a quantity, by the names that Kubernetes
// gives such fields.
func isQuantity(path string) bool {
	for part := range strings.SplitSeq(path, ".") {
		switch part {
		case "limits", "requests", "capacity", "sizeLimit", "hard", "overhead":
			return true
		}
	}
	return false
}

// isEmpty says whether a wanted value is what the server leaves out: an empty
// struct, list or string, false or 0.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	case bool:
		return !v
	}
	n, ok := number(v)
	return ok && n == 0
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func or(path string) string {
	if path == "" {
		return "(root)"
	}
	return path
}
