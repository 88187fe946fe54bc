package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// MapFunc gives the keys that a change of obj concerns. It may read from the cache.
type MapFunc = func(ctx context.Context, cache client.Reader, obj client.Object) []types.NamespacedName

// ToSelf maps an object to its own key.
func ToSelf() MapFunc {
	return func(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
		return []types.NamespacedName{client.ObjectKeyFromObject(obj)}
	}
}

// ToName maps every object to the object of one name in its namespace.
func ToName(name string) MapFunc {
	return func(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
		return []types.NamespacedName{{Namespace: obj.GetNamespace(), Name: name}}
	}
}

// ToLabel maps an object to the name that its label holds, in its namespace.
// Objects without the label are passed over.
func ToLabel(label string) MapFunc {
	return func(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
		name := obj.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []types.NamespacedName{{Namespace: obj.GetNamespace(), Name: name}}
	}
}

// ToOwner maps an object to its owners of a kind, whether or not they control it.
func ToOwner(gk schema.GroupKind) MapFunc {
	return func(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
		var keys []types.NamespacedName
		for _, ref := range obj.GetOwnerReferences() {
			if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && gv.Group == gk.Group && ref.Kind == gk.Kind {
				keys = append(keys, types.NamespacedName{Namespace: obj.GetNamespace(), Name: ref.Name})
			}
		}
		return keys
	}
}

// ToAll maps an object to all objects of a kind: those of its namespace, or
// everywhere if it has none (a Node). list is an empty list of the kind.
func ToAll(list client.ObjectList) MapFunc {
	return func(ctx context.Context, cache client.Reader, obj client.Object) []types.NamespacedName {
		return KeysIn(ctx, cache, list, obj.GetNamespace())
	}
}

// KeysIn are the keys of a kind's objects in a namespace, everywhere if it is empty:
// for maps of objects that tell the namespace by something else than their own. list is
// an empty list of the kind.
func KeysIn(ctx context.Context, cache client.Reader, list client.ObjectList, namespace string) []types.NamespacedName {
	fresh, ok := list.DeepCopyObject().(client.ObjectList)
	if !ok {
		return nil
	}
	if err := cache.List(ctx, fresh, client.InNamespace(namespace)); err != nil {
		// The cache answers from memory; it fails only while it is not filled yet, and
		// then every object leads to a pass of its own.
		log.FromContext(ctx).Error(err, "listing for a watch", "list", fmt.Sprintf("%T", list))
		return nil
	}
	var keys []types.NamespacedName
	_ = meta.EachListItem(fresh, func(o runtime.Object) error {
		if m, ok := o.(metav1.Object); ok {
			keys = append(keys, types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()})
		}
		return nil
	})
	return keys
}

// OnlyApp passes objects whose label app has this value on to next.
func OnlyApp(app string, next MapFunc) MapFunc {
	return func(ctx context.Context, cache client.Reader, obj client.Object) []types.NamespacedName {
		if obj.GetLabels()["app"] != app {
			return nil
		}
		return next(ctx, cache, obj)
	}
}

// Named says of a name whether it is one of names, or begins with one of them that ends
// in a dash.
func Named(names ...string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			return name == n || strings.HasSuffix(n, "-") && strings.HasPrefix(name, n)
		})
	}
}

// SpecChanged passes what a user has changed (generation, labels, annotations,
// finalizers, deletion) and not what only the status says. For kinds without
// generation use no predicate.
func SpecChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if e.ObjectOld == nil || e.ObjectNew == nil {
			return false
		}
		a, b := e.ObjectOld, e.ObjectNew
		return a.GetUID() != b.GetUID() ||
			a.GetGeneration() != b.GetGeneration() ||
			a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(a.GetLabels(), b.GetLabels()) ||
			!maps.Equal(a.GetAnnotations(), b.GetAnnotations()) ||
			!slices.Equal(a.GetFinalizers(), b.GetFinalizers())
	}}
}

// Gone passes only deletions.
func Gone() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Changed passes all but the repetitions of an informer's resync.
func Changed() predicate.Predicate { return predicate.ResourceVersionChangedPredicate{} }

// typeOf tells kinds apart by their Go type, or by their kind where one Go type
// serves for many.
func typeOf(obj client.Object) string {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return fmt.Sprintf("%T %s", obj, gvk.GroupKind())
	}
	return fmt.Sprintf("%T", obj)
}
