package kittest

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/castellan-storage/castellan/internal/kube"
)

// mergeApplied is server-side apply for one manager: what it applied last and does
// not want any more goes, what it wants is set, all else stays. Lists are merged by
// key where Kubernetes does so.
func mergeApplied(path string, live, last, want any) any {
	switch want := want.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return runtime.DeepCopyJSONValue(want)
		}
		before, _ := last.(map[string]any)
		for key := range before {
			if _, still := want[key]; !still {
				removeApplied(have, key, before[key])
			}
		}
		for key, val := range want {
			have[key] = mergeApplied(join(path, key), have[key], before[key], val)
		}
		return have
	case []any:
		keys := kube.MergeKeys(path)
		have, ok := live.([]any)
		if keys == nil || !ok {
			return runtime.DeepCopyJSONValue(want)
		}
		before, _ := last.([]any)
		return mergeList(path, keys, have, before, want)
	}
	return want
}

// removeApplied takes out what was applied at a key, and leaves what others have put
// beside it.
func removeApplied(have map[string]any, key string, before any) {
	sub, ok := before.(map[string]any)
	now, isMap := have[key].(map[string]any)
	if !ok || !isMap {
		delete(have, key)
		return
	}
	for k := range sub {
		removeApplied(now, k, sub[k])
	}
	if len(now) == 0 {
		delete(have, key)
	}
}

func mergeList(path string, keys []string, have, before, want []any) []any {
	wanted, was := index(want, keys), index(before, keys)
	seen := map[string]bool{}
	var out []any
	for _, e := range have {
		key := kube.ElementKey(e, keys)
		if val, ok := wanted[key]; ok {
			out = append(out, mergeApplied(path+"["+key+"]", e, was[key], val))
			seen[key] = true
			continue
		}
		if _, ours := was[key]; !ours {
			out = append(out, e)
		}
	}
	for _, e := range want {
		if key := kube.ElementKey(e, keys); !seen[key] {
			out = append(out, runtime.DeepCopyJSONValue(e))
			seen[key] = true
		}
	}
	return out
}

func index(list []any, keys []string) map[string]any {
	m := map[string]any{}
	for _, e := range list {
		m[kube.ElementKey(e, keys)] = e
	}
	return m
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
