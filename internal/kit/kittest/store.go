// Package kittest tests controllers of kit: an in-memory API server with the
// semantics that controllers meet (resourceVersion, 409, generation, finalizers,
// garbage collection, server-side apply, status as a subresource), and scenarios that
// are run once without faults and then with a crash at every effect.
//
// It is for tests only. The in-memory server does not validate or default; what
// depends on that is tested on a real API server (package envtestx), where the same
// scenarios run.
package kittest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// epoch is the time at which every object of a store was made that has no clock.
const epoch = "2026-01-01T00:00:00Z"

// Store is the state of an in-memory API server. Clients are made by Client.
type Store struct {
	scheme *runtime.Scheme

	mu      sync.Mutex
	objects objects
	// history holds the objects after each of the last writes, for clients that lag
	// behind; the last one is that after write number moment. Objects in it are never
	// changed.
	history []objects
	moment  int64
	rv      int64
	uids    int
	applied map[ident]map[string]map[string]any // by object, by field manager
	writes  []string
	fault   func(verb, kind string, key types.NamespacedName) error
	clock   func() time.Time
	decoded *decoded
}

type ident struct {
	gk  schema.GroupKind
	key types.NamespacedName
}

// NewStore makes a store that holds objs.
func NewStore(scheme *runtime.Scheme, objs ...client.Object) (*Store, error) {
	s := &Store{scheme: scheme, objects: objects{}, applied: map[ident]map[string]map[string]any{}, decoded: &decoded{m: map[decodedKey]runtime.Object{}}}
	c := s.Client()
	for _, obj := range objs {
		copied, ok := obj.DeepCopyObject().(client.Object)
		if !ok {
			return nil, fmt.Errorf("copying %T: not an object", obj)
		}
		status, err := toUnstructured(scheme, copied)
		if err != nil {
			return nil, err
		}
		if err := c.Create(context.Background(), copied); err != nil {
			return nil, err
		}
		if status.Object["status"] == nil {
			continue
		}
		status.SetResourceVersion("")
		if err := c.Status().Update(context.Background(), status); err != nil {
			return nil, err
		}
	}
	s.writes = nil
	return s, nil
}

// Client gives a client that reads what is there.
func (s *Store) Client() client.Client { return &storeClient{s: s} }

// Lagging gives a client that reads what was there n writes ago, as a cache does, and
// writes to what is there now.
func (s *Store) Lagging(n int) client.Client { return &storeClient{s: s, lag: n} }

// Fail has f asked about every request ("get", "list", "create", "update", "patch",
// "delete"); its error is the answer, and nothing is done. nil ends it.
func (s *Store) Fail(f func(verb, kind string, key types.NamespacedName) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Failing gives a client all of whose requests f is asked about, as by Fail; those of
// others are not concerned.
func (s *Store) Failing(f func(verb, kind string, key types.NamespacedName) error) client.Client {
	return &storeClient{s: s, fault: f}
}

// Clock gives the time at which objects are made and deleted from now on; without
// one it is always the same.
func (s *Store) Clock(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = now
}

// now is the time as objects carry it. The lock is held.
func (s *Store) now() string {
	if s.clock == nil {
		return epoch
	}
	return s.clock().UTC().Format(time.RFC3339)
}

// Writes gives the writes so far that changed something or could have: "apply
// Deployment ns/name".
func (s *Store) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// ResetWrites forgets the writes so far.
func (s *Store) ResetWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = nil
}

// Revision gives the resourceVersion of the last change.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

// All gives a copy of every object, ordered by kind, namespace and name.
func (s *Store) All() []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, id := range s.objects.idents() {
		all = append(all, s.objects.get(id).DeepCopy())
	}
	return all
}

// at gives the objects after a write, or what is closest to it of what is remembered.
// The lock is held.
func (s *Store) at(moment int64) objects {
	n := int64(len(s.history))
	switch i := n - 1 - (s.moment - moment); {
	case n == 0 || i >= n:
		return s.objects
	case moment <= 0:
		return objects{}
	default:
		return s.history[max(i, 0)]
	}
}

// begin asks for a fault and logs a write. The lock is held.
func (s *Store) begin(verb string, id ident, write bool) error {
	if s.fault != nil {
		if err := s.fault(verb, id.gk.Kind, id.key); err != nil {
			return err
		}
	}
	if write {
		s.writes = append(s.writes, verb+" "+id.gk.Kind+" "+strings.TrimPrefix(id.key.String(), "/"))
	}
	return nil
}

// put stores a new state of an object, with what the API server sees to: version,
// generation, finalizers. It gives nil if the object has gone by this. The lock is
// held.
func (s *Store) put(id ident, old, obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	if old == nil {
		s.uids++
		obj.SetUID(types.UID("uid-" + strconv.Itoa(s.uids)))
		obj.SetGeneration(1)
		setMeta(obj, "creationTimestamp", s.now())
	} else {
		obj.SetUID(old.GetUID())
		obj.SetGeneration(old.GetGeneration())
		obj.SetCreationTimestamp(old.GetCreationTimestamp())
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
		obj.SetResourceVersion(old.GetResourceVersion())
		if reflect.DeepEqual(old.Object, obj.Object) {
			return old // a write that changes nothing makes no version and no event
		}
		if !reflect.DeepEqual(content(old), content(obj)) {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
	}
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		s.drop(id, obj)
		return nil
	}
	s.rv++
	obj.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	s.change(id, obj)
	return obj
}

// drop removes an object and what it alone owned. The lock is held.
func (s *Store) drop(id ident, obj *unstructured.Unstructured) {
	s.rv++
	s.change(id, nil)
	delete(s.applied, id)
	for _, child := range s.objects.idents() {
		o := s.objects.get(child)
		if o == nil {
			continue // it went with another one
		}
		refs := o.GetOwnerReferences()
		left := slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool { return r.UID == obj.GetUID() })
		if len(left) == len(refs) {
			continue
		}
		if len(left) > 0 {
			next := o.DeepCopy()
			next.SetOwnerReferences(left)
			s.put(child, o, next)
			continue
		}
		s.remove(child, o)
	}
}

// remove deletes an object, or marks it if finalizers hold it. The lock is held.
func (s *Store) remove(id ident, obj *unstructured.Unstructured) {
	if len(obj.GetFinalizers()) == 0 {
		s.drop(id, obj)
		return
	}
	if obj.GetDeletionTimestamp() != nil {
		return
	}
	marked := obj.DeepCopy()
	setMeta(marked, "deletionTimestamp", s.now())
	marked.SetGeneration(obj.GetGeneration() + 1)
	s.rv++
	marked.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	s.change(id, marked)
}

// memory is how many writes a reader can be behind.
const memory = 64

// change makes the next state out of the last: an object is another one, or is gone
// (nil). The lock is held.
func (s *Store) change(id ident, obj *unstructured.Unstructured) {
	s.objects = s.objects.with(id, obj)
	s.moment++
	s.history = append(s.history, s.objects)
	if len(s.history) > memory {
		s.history = s.history[len(s.history)-memory:]
	}
}

// content is what counts for the generation.
func content(u *unstructured.Unstructured) map[string]any {
	m := maps.Clone(u.Object)
	delete(m, "metadata")
	delete(m, "status")
	return m
}

func setMeta(u *unstructured.Unstructured, field, value string) {
	// The metadata of an unstructured object is always a map here.
	_ = unstructured.SetNestedField(u.Object, value, "metadata", field)
}

func toUnstructured(scheme *runtime.Scheme, obj runtime.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, err
	}
	m, err := plain(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	if status, ok := m["status"].(map[string]any); ok && len(status) == 0 {
		delete(m, "status")
	}
	if md, ok := m["metadata"].(map[string]any); ok && md["creationTimestamp"] == nil {
		delete(md, "creationTimestamp")
	}
	return u, nil
}

// plain gives an object as JSON values that are nobody else's.
func plain(obj any) (map[string]any, error) {
	if u, ok := obj.(interface{ UnstructuredContent() map[string]any }); ok {
		return runtime.DeepCopyJSON(u.UnstructuredContent()), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// decodedKey is a stored object, which is never changed, as a Go type.
type decodedKey struct {
	u *unstructured.Unstructured
	t reflect.Type
}

// decoded are stored objects as Go types, to be copied. Stores that come from one by
// Fork have it in common, since they have most objects in common.
type decoded struct {
	mu sync.Mutex
	m  map[decodedKey]runtime.Object
}

// decodedMost bounds what is kept: a world has some hundred objects.
const decodedMost = 1024

// typed gives a stored object as a Go type of the scheme, to be copied. It is decoded
// once: tests read far more than they write.
func (d *decoded) typed(u *unstructured.Unstructured, t reflect.Type) (runtime.Object, error) {
	k := decodedKey{u, t}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.m[k]; o != nil {
		return o, nil
	}
	o, ok := reflect.New(t).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("reading as %v: not an object", t)
	}
	if err := into(u, o); err != nil {
		return nil, err
	}
	if len(d.m) > decodedMost {
		clear(d.m)
	}
	d.m[k] = o
	return o, nil
}

// read writes a stored object into the caller's. The lock is held.
func (s *Store) read(u *unstructured.Unstructured, obj runtime.Object) error {
	switch obj.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return into(u, obj)
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	o, err := s.decoded.typed(u, reflect.TypeOf(obj).Elem())
	if err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return nil
}

// readList is read for lists. The lock is held.
func (s *Store) readList(gvk schema.GroupVersionKind, us []*unstructured.Unstructured, list client.ObjectList) error {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	slice := reflect.ValueOf(items).Elem()
	_, isTyped := reflect.New(slice.Type().Elem()).Interface().(runtime.Object)
	switch list.(type) {
	case *unstructured.UnstructuredList, *metav1.PartialObjectMetadataList:
		isTyped = false
	}
	if !isTyped {
		var plain []any
		for _, u := range us {
			plain = append(plain, u.Object)
		}
		return intoList(gvk, plain, s.rv, list)
	}
	reflect.ValueOf(list).Elem().SetZero()
	slice.Set(reflect.MakeSlice(slice.Type(), 0, len(us)))
	for _, u := range us {
		o, err := s.decoded.typed(u, slice.Type().Elem())
		if err != nil {
			return err
		}
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		slice.Set(reflect.Append(slice, reflect.ValueOf(o).Elem()))
	}
	list.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	return nil
}

// into writes a stored object into the caller's.
func into(u *unstructured.Unstructured, obj runtime.Object) error {
	if target, ok := obj.(*unstructured.Unstructured); ok {
		target.Object = runtime.DeepCopyJSON(u.Object)
		return nil
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(obj).Elem().SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return err
	}
	if _, partial := obj.(*metav1.PartialObjectMetadata); partial {
		kind = u.GroupVersionKind()
	}
	// Typed objects come without a kind, as from a typed client.
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return nil
}

// storeClient implements client.Client on a Store.
type storeClient struct {
	s   *Store
	lag int
	// cache is where it reads, if it is not the store.
	cache *Cache
	fault func(verb, kind string, key types.NamespacedName) error
}

// begin asks for faults and logs a write. The lock is held.
func (c *storeClient) begin(verb string, id ident, write bool) error {
	if c.fault != nil {
		if err := c.fault(verb, id.gk.Kind, id.key); err != nil {
			return err
		}
	}
	return c.s.begin(verb, id, write)
}

// view is where a reader finds the objects of a kind. The lock is held.
func (c *storeClient) view(gk schema.GroupKind) objects {
	switch {
	case c.cache != nil:
		return c.cache.view(gk)
	case c.lag > 0:
		return c.s.at(c.s.moment - int64(c.lag))
	}
	return c.s.objects
}

var _ client.Client = (*storeClient)(nil)

func (c *storeClient) ident(obj runtime.Object, key types.NamespacedName) (ident, error) {
	gvk, err := apiutil.GVKForObject(obj, c.s.scheme)
	if err != nil {
		return ident{}, err
	}
	return ident{gk: gvk.GroupKind(), key: key}, nil
}

func notFound(id ident) error {
	return apierrors.NewNotFound(resource(id), id.key.Name)
}

func conflict(id ident, format string, args ...any) error {
	return apierrors.NewConflict(resource(id), id.key.Name, fmt.Errorf(format, args...))
}

func resource(id ident) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(id.gk.WithVersion("v1"))
	return plural.GroupResource()
}

// Get implements client.Reader.
func (c *storeClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	id, err := c.ident(obj, key)
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("get", id, false); err != nil {
		return err
	}
	u := c.view(id.gk).get(id)
	if u == nil {
		return notFound(id)
	}
	return c.s.read(u, obj)
}

// List implements client.Reader. Field selectors know metadata.name and
// metadata.namespace.
func (c *storeClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, c.s.scheme)
	if err != nil {
		return err
	}
	gk := schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}
	lo := client.ListOptions{}
	lo.ApplyOptions(opts)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("list", ident{gk: gk, key: types.NamespacedName{Namespace: lo.Namespace}}, false); err != nil {
		return err
	}
	var items []*unstructured.Unstructured
	for u := range c.view(gk).in(gk, lo.Namespace) {
		if lo.LabelSelector != nil && !lo.LabelSelector.Matches(labelsOf(u)) {
			continue
		}
		if lo.FieldSelector != nil {
			ok, err := fieldsMatch(lo, u)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
		}
		items = append(items, u)
	}
	return c.s.readList(gvk, items, list)
}

func fieldsMatch(lo client.ListOptions, u *unstructured.Unstructured) (bool, error) {
	for _, req := range lo.FieldSelector.Requirements() {
		have := map[string]string{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()}
		val, known := have[req.Field]
		if !known {
			return false, apierrors.NewBadRequest("field selector on " + req.Field + " is not supported by the in-memory API server")
		}
		if (val == req.Value) == (req.Operator == "!=") {
			return false, nil
		}
	}
	return true, nil
}

func intoList(gvk schema.GroupVersionKind, items []any, rv int64, list client.ObjectList) error {
	if items == nil {
		items = []any{}
	}
	data, err := json.Marshal(map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(rv, 10)}, "items": items})
	if err != nil {
		return err
	}
	if target, ok := list.(*unstructured.UnstructuredList); ok {
		return target.UnmarshalJSON(data)
	}
	reflect.ValueOf(list).Elem().SetZero()
	if err := json.Unmarshal(data, list); err != nil {
		return err
	}
	if _, partial := list.(*metav1.PartialObjectMetadataList); partial {
		return nil
	}
	return meta.EachListItem(list, func(o runtime.Object) error {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return nil
	})
}

// labelSet are the labels of a stored object, without a copy.
type labelSet map[string]any

func labelsOf(u *unstructured.Unstructured) labelSet {
	md, _ := u.Object["metadata"].(map[string]any)
	l, _ := md["labels"].(map[string]any)
	return l
}

// Has, Get and Lookup implement labels.Labels.
func (l labelSet) Has(k string) bool              { _, ok := l[k]; return ok }
func (l labelSet) Get(k string) string            { v, _ := l.Lookup(k); return v }
func (l labelSet) Lookup(k string) (string, bool) { v, ok := l[k].(string); return v, ok }

// Create implements client.Writer.
func (c *storeClient) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		c.s.mu.Lock()
		obj.SetName(obj.GetGenerateName() + strconv.Itoa(c.s.uids))
		c.s.mu.Unlock()
	}
	id, err := c.ident(obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	u, err := toUnstructured(c.s.scheme, obj)
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("create", id, true); err != nil {
		return err
	}
	if u.GetName() == "" {
		return apierrors.NewBadRequest("an object needs a name")
	}
	if u.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if c.s.objects.get(id) != nil {
		return apierrors.NewAlreadyExists(resource(id), id.key.Name)
	}
	delete(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "deletionTimestamp")
	return into(c.s.put(id, nil, u), obj)
}

// Update implements client.Writer.
func (c *storeClient) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return c.update(obj, false)
}

func (c *storeClient) update(obj client.Object, status bool) error {
	id, err := c.ident(obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	u, err := toUnstructured(c.s.scheme, obj)
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("update", id, true); err != nil {
		return err
	}
	return c.s.write(id, status, obj, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) { return u, nil })
}

// write replaces an object by what next makes of it, without changing it. The lock is
// held.
func (s *Store) write(id ident, status bool, obj runtime.Object, next func(old *unstructured.Unstructured) (*unstructured.Unstructured, error)) error {
	old := s.objects.get(id)
	if old == nil {
		return notFound(id)
	}
	u, err := next(old)
	if err != nil {
		return err
	}
	if rv := u.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() {
		return conflict(id, "the object has been modified; please apply your changes to the latest version and try again")
	}
	if uid := u.GetUID(); uid != "" && uid != old.GetUID() {
		return conflict(id, "Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.GetUID())
	}
	if status {
		u = withStatus(old, u)
	} else {
		u = withStatus(u, old)
	}
	stored := s.put(id, old, u)
	if stored == nil {
		stored = u
	}
	return into(stored, obj)
}

// withStatus is an object with the status of another one. It has its parts in common
// with both.
func withStatus(u, of *unstructured.Unstructured) *unstructured.Unstructured {
	m := maps.Clone(u.Object)
	delete(m, "status")
	if v, ok := of.Object["status"]; ok {
		m["status"] = v
	}
	return &unstructured.Unstructured{Object: m}
}

// Patch implements client.Writer.
func (c *storeClient) Patch(_ context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	po := client.PatchOptions{}
	po.ApplyOptions(opts)
	return c.patch(obj, patch, po.FieldManager, false)
}

func (c *storeClient) patch(obj client.Object, patch client.Patch, manager string, status bool) error {
	id, err := c.ident(obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if patch.Type() == types.ApplyPatchType {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			return err
		}
		return c.apply(id, u, obj, manager, status)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("patch", id, true); err != nil {
		return err
	}
	return c.s.write(id, status, obj, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		next, err := patched(old, patch.Type(), data)
		if err != nil {
			return nil, err
		}
		if rv := next.GetResourceVersion(); rv == old.GetResourceVersion() && next.GetUID() != old.GetUID() {
			return nil, apierrors.NewInvalid(id.gk, id.key.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "uid"), next.GetUID(), "field is immutable")})
		}
		return next, nil
	})
}

func patched(old *unstructured.Unstructured, kind types.PatchType, data []byte) (*unstructured.Unstructured, error) {
	switch kind {
	case types.MergePatchType:
		patch := map[string]any{}
		if err := utiljson.Unmarshal(data, &patch); err != nil {
			return nil, apierrors.NewBadRequest("reading the patch: " + err.Error())
		}
		return &unstructured.Unstructured{Object: mergePatch(old.Object, patch)}, nil
	case types.JSONPatchType:
		after, err := jsonPatch(old.Object, data)
		if err != nil {
			return nil, apierrors.NewBadRequest("applying the patch: " + err.Error())
		}
		return &unstructured.Unstructured{Object: after}, nil
	}
	return nil, apierrors.NewBadRequest("patch type " + string(kind) + " is not supported by the in-memory API server")
}

func jsonPatch(old map[string]any, data []byte) (map[string]any, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	p, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	after, err := p.Apply(before)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	return m, utiljson.Unmarshal(after, &m)
}

// mergePatch is RFC 7386. What is not patched is shared with old.
func mergePatch(old, patch map[string]any) map[string]any {
	next := maps.Clone(old)
	if next == nil {
		next = map[string]any{}
	}
	for key, val := range patch {
		sub, isMap := val.(map[string]any)
		switch {
		case val == nil:
			delete(next, key)
		case isMap:
			have, _ := old[key].(map[string]any)
			next[key] = mergePatch(have, sub)
		default:
			next[key] = val
		}
	}
	return next
}

// Apply implements client.Writer.
func (c *storeClient) Apply(_ context.Context, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	ao := client.ApplyOptions{}
	ao.ApplyOptions(opts)
	return c.applyConfiguration(ac, ao.FieldManager, false)
}

func (c *storeClient) applyConfiguration(ac runtime.ApplyConfiguration, manager string, status bool) error {
	u := &unstructured.Unstructured{}
	if content, ok := ac.(interface{ UnstructuredContent() map[string]any }); ok {
		u.Object = runtime.DeepCopyJSON(content.UnstructuredContent())
	} else {
		data, err := json.Marshal(ac)
		if err != nil {
			return err
		}
		if err := u.UnmarshalJSON(data); err != nil {
			return err
		}
	}
	id := ident{gk: u.GroupVersionKind().GroupKind(), key: client.ObjectKeyFromObject(u)}
	answer := &unstructured.Unstructured{}
	if err := c.apply(id, u, answer, manager, status); err != nil {
		return err
	}
	if content, ok := ac.(interface{ SetUnstructuredContent(m map[string]any) }); ok {
		content.SetUnstructuredContent(answer.Object)
		return nil
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, ac)
}

// apply merges what a manager applies, always with force: other managers of the same
// fields are not known to the store.
func (c *storeClient) apply(id ident, u *unstructured.Unstructured, answer runtime.Object, manager string, status bool) error {
	if manager == "" {
		return apierrors.NewBadRequest("apply needs a field manager")
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("apply", id, true); err != nil {
		return err
	}
	if status {
		manager += "/status"
	} else {
		delete(u.Object, "status")
	}
	last := c.s.applied[id][manager]
	want := runtime.DeepCopyJSON(u.Object)
	old := c.s.objects.get(id)
	if old == nil {
		if status {
			return notFound(id)
		}
		stored := c.s.put(id, nil, u)
		c.s.remember(id, manager, want)
		return into(stored, answer)
	}
	err := c.s.write(id, status, answer, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		merged, ok := mergeApplied("", runtime.DeepCopyJSON(old.Object), last, want).(map[string]any)
		if !ok {
			return nil, apierrors.NewBadRequest("an object is wanted")
		}
		return &unstructured.Unstructured{Object: merged}, nil
	})
	if err == nil {
		if now := c.s.objects.get(id); now != nil && now.GetUID() == old.GetUID() {
			c.s.remember(id, manager, want)
		}
	}
	return err
}

func (s *Store) remember(id ident, manager string, applied map[string]any) {
	if s.applied[id] == nil {
		s.applied[id] = map[string]map[string]any{}
	}
	s.applied[id][manager] = applied
}

// Delete implements client.Writer. Dependents go by the garbage collector at once,
// whatever the propagation.
func (c *storeClient) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	id, err := c.ident(obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	do := client.DeleteOptions{}
	do.ApplyOptions(opts)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.begin("delete", id, true); err != nil {
		return err
	}
	u := c.s.objects.get(id)
	if u == nil {
		return notFound(id)
	}
	if pre := do.Preconditions; pre != nil {
		if pre.UID != nil && *pre.UID != u.GetUID() || pre.ResourceVersion != nil && *pre.ResourceVersion != u.GetResourceVersion() {
			return conflict(id, "Precondition failed")
		}
	}
	c.s.remove(id, u)
	return nil
}

// DeleteAllOf implements client.Writer.
func (c *storeClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	gvk, err := apiutil.GVKForObject(obj, c.s.scheme)
	if err != nil {
		return err
	}
	do := client.DeleteAllOfOptions{}
	do.ApplyOptions(opts)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.List(ctx, list, &do.ListOptions); err != nil {
		return err
	}
	for i := range list.Items {
		if err := c.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// Status implements client.Client.
func (c *storeClient) Status() client.SubResourceWriter { return statusClient{c} }

// SubResource implements client.Client; only "status" is there.
func (c *storeClient) SubResource(string) client.SubResourceClient { return statusClient{c} }

// Scheme implements client.Client.
func (c *storeClient) Scheme() *runtime.Scheme { return c.s.scheme }

// RESTMapper implements client.Client. The in-memory server has no discovery.
func (c *storeClient) RESTMapper() meta.RESTMapper { return meta.MultiRESTMapper{} }

// GroupVersionKindFor implements client.Client.
func (c *storeClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.s.scheme)
}

// IsObjectNamespaced implements client.Client: by whether the object has a
// namespace.
func (c *storeClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return false, err
	}
	return m.GetNamespace() != "", nil
}

// statusClient writes the status.
type statusClient struct{ c *storeClient }

// Get implements client.SubResourceReader.
func (statusClient) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return apierrors.NewBadRequest("reading a subresource is not supported by the in-memory API server")
}

// Create implements client.SubResourceWriter.
func (statusClient) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return apierrors.NewBadRequest("creating a subresource is not supported by the in-memory API server")
}

// Update implements client.SubResourceWriter.
func (s statusClient) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.c.update(obj, true)
}

// Patch implements client.SubResourceWriter.
func (s statusClient) Patch(_ context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	po := client.SubResourcePatchOptions{}
	po.ApplyOptions(opts)
	return s.c.patch(obj, patch, po.FieldManager, true)
}

// Apply implements client.SubResourceWriter.
func (s statusClient) Apply(_ context.Context, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	ao := client.SubResourceApplyOptions{}
	ao.ApplyOpts(opts)
	return s.c.applyConfiguration(ac, ao.FieldManager, true)
}

// Stopped is a time for clocks of tests.
func Stopped() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
