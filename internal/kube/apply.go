package kube

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FromApplyConfiguration turns a typed apply configuration of client-go into an
// object that a plan can hold.
func FromApplyConfiguration(ac runtime.ApplyConfiguration) (*unstructured.Unstructured, error) {
	m, err := toMap(ac)
	if err != nil {
		return nil, fmt.Errorf("converting apply configuration %T: %w", ac, err)
	}
	u := &unstructured.Unstructured{Object: m}
	if u.GetKind() == "" || u.GetAPIVersion() == "" || u.GetName() == "" {
		return nil, fmt.Errorf("converting apply configuration %T: kind, apiVersion or name is not set", ac)
	}
	return u, nil
}

// ToApply gives the apply configuration of obj: only what is set, without what the
// API server fills in, without status and without the zero values that typed
// objects carry; with OwnedLabel and AppliedHash. obj may be typed, unstructured or
// from FromApplyConfiguration, and is not changed.
func ToApply(scheme *runtime.Scheme, obj client.Object) (*unstructured.Unstructured, error) {
	u, err := wanted(scheme, obj)
	if err != nil {
		return nil, err
	}
	hash, err := hashOf(u.Object)
	if err != nil {
		return nil, fmt.Errorf("hashing %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	annotations := maps.Clone(u.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AppliedHash] = hash
	u.SetAnnotations(annotations)
	return u, nil
}

// ToCreate gives obj as it is to be created once: like ToApply, but without the
// hash, since a created object is not applied again.
func ToCreate(scheme *runtime.Scheme, obj client.Object) (*unstructured.Unstructured, error) {
	return wanted(scheme, obj)
}

// wanted is obj as plain JSON values, cleaned, with the OwnedLabel.
func wanted(scheme *runtime.Scheme, obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T %s: %w", obj, obj.GetName(), err)
	}
	m, err := toMap(obj)
	if err != nil {
		return nil, fmt.Errorf("converting %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	clean(u.Object)
	if gvk.Group == "" && gvk.Kind == "Secret" {
		encodeStringData(u.Object)
	}
	labels := maps.Clone(u.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[OwnedLabel] = "true"
	u.SetLabels(labels)
	return u, nil
}

// toMap gives a value as it is in JSON: quantities, durations and times in their
// canonical form, integers as int64.
func toMap(v any) (map[string]any, error) {
	_, object := v.(runtime.Object)
	_, untyped := v.(runtime.Unstructured)
	if object && !untyped {
		// The same without text in between, which is most of what a comparison costs.
		return runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	}
	return throughJSON(v)
}

func throughJSON(v any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	if err := utiljson.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	return m, nil
}

// clean removes what must not be part of an apply configuration.
func clean(m map[string]any) {
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		for _, key := range []string{"resourceVersion", "uid", "generation", "creationTimestamp",
			"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"} {
			delete(meta, key)
		}
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			delete(annotations, AppliedHash)
		}
	}
	dropNoise(m)
}

// dropNoise removes nulls everywhere, and empty structs where a typed object has one
// though nobody has set it. Elsewhere an empty struct can mean something
// (emptyDir: {}, podSelector: {}).
func dropNoise(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, val := range v {
			dropNoise(val)
			if val == nil {
				delete(v, key)
				continue
			}
			if n, ok := number(val); ok && n == 0 && key == "targetPort" {
				delete(v, key) // a Service's, which defaults to port
				continue
			}
			if sub, ok := val.(map[string]any); ok && len(sub) == 0 {
				switch key {
				case "metadata", "resources", "strategy", "updateStrategy", "labels", "annotations":
					delete(v, key)
				}
			}
		}
	case []any:
		for _, e := range v {
			dropNoise(e)
		}
	}
}

// encodeStringData moves a Secret's stringData into data. The API server would do
// the same, but fields applied as stringData are owned as such, and a key removed
// later would stay in data.
func encodeStringData(m map[string]any) {
	plain, ok := m["stringData"].(map[string]any)
	if !ok {
		return
	}
	delete(m, "stringData")
	data, ok := m["data"].(map[string]any)
	if !ok {
		data = map[string]any{}
		m["data"] = data
	}
	for key, val := range plain {
		if s, ok := val.(string); ok {
			data[key] = base64.StdEncoding.EncodeToString([]byte(s))
		}
	}
}

// hashOf hashes JSON values; encoding/json orders the keys of maps.
func hashOf(m map[string]any) (string, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), nil
}

// Changes says whether applying want (made by ToApply) would change live, and names
// the first field that differs; "" means that nothing would change. A field that
// somebody else has set and that is not wanted is not a difference, unless it was
// applied by us before.
func Changes(scheme *runtime.Scheme, live client.Object, want *unstructured.Unstructured) (string, error) {
	m, err := toMap(live)
	if err != nil {
		return "", fmt.Errorf("converting %T %s: %w", live, live.GetName(), err)
	}
	// A typed object read from the API server carries no kind.
	m["kind"], m["apiVersion"] = want.GetKind(), want.GetAPIVersion()
	// Secret data etc. are base64 strings on both sides here.
	return difference("", m, want.Object), nil
}
