package kube

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Selected is a kind of which the cache holds only some objects.
type Selected struct {
	Object client.Object
	// Label and Field select the objects; nil selects all.
	Label labels.Selector
	Field fields.Selector
	// Keep, if set, is called for each object before it enters the cache and may drop
	// from it what is never read (a big status, container images).
	Keep func(obj client.Object)
}

// CacheConfig says what the cache holds.
type CacheConfig struct {
	// Namespaces limits the cache; empty means all namespaces.
	Namespaces []string
	// Ours are kinds that everybody uses (Secrets, ConfigMaps, Deployments, Pods):
	// only objects with OwnedLabel are cached.
	Ours []client.Object
	// Selected are kinds with a selection of their own. A kind that is also in Ours
	// goes by what stands here.
	Selected []Selected
}

// OwnedSelector selects what we have applied or created.
func OwnedSelector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{OwnedLabel: "true"})
}

// CacheOptions gives the options of a manager's cache: managedFields are stripped
// from everything, and the kinds of c are selected as it says.
func CacheOptions(c CacheConfig) cache.Options {
	opts := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{},
	}
	if len(c.Namespaces) > 0 {
		opts.DefaultNamespaces = map[string]cache.Config{}
		for _, ns := range c.Namespaces {
			opts.DefaultNamespaces[ns] = cache.Config{}
		}
	}
	special := map[string]bool{}
	for _, s := range c.Selected {
		special[typeOf(s.Object)] = true
		by := cache.ByObject{Label: s.Label, Field: s.Field}
		if s.Keep != nil {
			by.Transform = func(in any) (any, error) {
				if obj, ok := in.(client.Object); ok {
					obj.SetManagedFields(nil)
					s.Keep(obj)
				}
				return in, nil
			}
		}
		opts.ByObject[s.Object] = by
	}
	for _, obj := range c.Ours {
		if !special[typeOf(obj)] {
			opts.ByObject[obj] = cache.ByObject{Label: OwnedSelector()}
		}
	}
	return opts
}
