package kittest

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// objects are those of one moment, by kind. A write makes the next moment out of the
// last one and shares with it all kinds but the one that it changes.
type objects map[schema.GroupKind]*kindOf

// kindOf are the objects of one kind; keys are theirs in order.
type kindOf struct {
	byKey map[types.NamespacedName]*unstructured.Unstructured
	keys  []types.NamespacedName
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// get gives an object, or nil.
func (o objects) get(id ident) *unstructured.Unstructured {
	if k := o[id.gk]; k != nil {
		return k.byKey[id.key]
	}
	return nil
}

// with gives the next moment, in which one object is another one, or is gone (nil).
func (o objects) with(id ident, obj *unstructured.Unstructured) objects {
	next := maps.Clone(o)
	old := o[id.gk]
	if old == nil {
		old = &kindOf{}
	}
	k := &kindOf{byKey: maps.Clone(old.byKey), keys: old.keys}
	if k.byKey == nil {
		k.byKey = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	i, there := slices.BinarySearchFunc(k.keys, id.key, compareKeys)
	switch {
	case obj == nil && there:
		k.keys = slices.Delete(slices.Clone(k.keys), i, i+1)
	case obj != nil && !there:
		k.keys = slices.Insert(slices.Clone(k.keys), i, id.key)
	}
	if k.byKey[id.key] = obj; obj == nil {
		delete(k.byKey, id.key)
	}
	next[id.gk] = k
	return next
}

// in gives the objects of a kind, in a namespace ("" for all), in order.
func (o objects) in(gk schema.GroupKind, namespace string) iter.Seq[*unstructured.Unstructured] {
	return func(yield func(*unstructured.Unstructured) bool) {
		k := o[gk]
		if k == nil {
			return
		}
		for _, key := range k.keys {
			if namespace != "" && key.Namespace != namespace {
				continue
			}
			if !yield(k.byKey[key]) {
				return
			}
		}
	}
}

// idents are all that there are, in order.
func (o objects) idents() []ident {
	kinds := slices.SortedFunc(maps.Keys(o), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
	var ids []ident
	for _, gk := range kinds {
		for _, key := range o[gk].keys {
			ids = append(ids, ident{gk: gk, key: key})
		}
	}
	return ids
}

// Fork gives a store of its own in the state of this one, without its faults and its
// clock.
func (s *Store) Fork() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Store{
		scheme: s.scheme, objects: s.objects, history: slices.Clone(s.history), moment: s.moment, rv: s.rv, uids: s.uids,
		applied: map[ident]map[string]map[string]any{}, writes: slices.Clip(s.writes), decoded: s.decoded,
	}
	for id, byManager := range s.applied {
		f.applied[id] = maps.Clone(byManager) // what was applied is never changed
	}
	return f
}
