// Package deepcopy copies the state of a simulation, so that a test can go on from one
// point many times. It follows pointers, maps, slices and interfaces, also in
// unexported fields, and keeps what is shared shared: a field that is added to a
// simulation later is copied without anybody having to think of it.
//
// It is for tests only. What must not be copied (the test itself, clients, other
// simulations) is named by type; functions and channels cannot be copied and are an
// error unless they are named too.
package deepcopy

import (
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"
)

// Of copies what p points to. Values of the types in shared, or of types that
// implement an interface among them, are taken over as they are.
func Of[T any](p *T, shared ...reflect.Type) *T {
	c := &copier{seen: map[pointer]reflect.Value{}, shared: shared}
	out := new(T)
	c.seen[pointer{unsafe.Pointer(p), reflect.TypeFor[T]()}] = reflect.ValueOf(out)
	c.copy(reflect.ValueOf(out).Elem(), reflect.ValueOf(p).Elem())
	return out
}

// pointer and what it points to: a struct and its first field have one address.
type pointer struct {
	at unsafe.Pointer
	of reflect.Type
}

type copier struct {
	seen   map[pointer]reflect.Value
	shared []reflect.Type
}

// plain says that a type is taken over as it is.
func (c *copier) plain(t reflect.Type) bool {
	if t == reflect.TypeFor[time.Time]() {
		return true
	}
	for _, s := range c.shared {
		if t == s || s.Kind() == reflect.Interface && t.Implements(s) {
			return true
		}
	}
	return false
}

// copy writes a copy of src to dst. Both can be addressed.
func (c *copier) copy(dst, src reflect.Value) {
	t := src.Type()
	if c.plain(t) {
		dst.Set(src)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		c.pointer(dst, src)
	case reflect.Struct:
		if t == reflect.TypeFor[sync.Mutex]() || t == reflect.TypeFor[sync.RWMutex]() {
			return // the copy is held by nobody
		}
		for i := range t.NumField() {
			c.copy(open(dst.Field(i)), open(src.Field(i)))
		}
	case reflect.Map:
		c.mapping(dst, src)
	case reflect.Slice:
		if src.IsNil() {
			return
		}
		dst.Set(reflect.MakeSlice(t, src.Len(), src.Len()))
		for i := range src.Len() {
			c.copy(dst.Index(i), src.Index(i))
		}
	case reflect.Array:
		for i := range src.Len() {
			c.copy(dst.Index(i), src.Index(i))
		}
	case reflect.Interface:
		if !src.IsNil() {
			dst.Set(c.value(src.Elem()))
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if !src.IsNil() {
			panic(fmt.Sprintf("deepcopy: a %s cannot be copied", t))
		}
	default:
		dst.Set(src)
	}
}

func (c *copier) pointer(dst, src reflect.Value) {
	if src.IsNil() {
		return
	}
	key := pointer{src.UnsafePointer(), src.Type().Elem()}
	known, ok := c.seen[key]
	if !ok {
		known = reflect.New(src.Type().Elem())
		c.seen[key] = known
		c.copy(known.Elem(), src.Elem())
	}
	dst.Set(known.Convert(dst.Type()))
}

func (c *copier) mapping(dst, src reflect.Value) {
	if src.IsNil() {
		return
	}
	key := pointer{src.UnsafePointer(), src.Type()}
	if known, ok := c.seen[key]; ok {
		dst.Set(known)
		return
	}
	m := reflect.MakeMapWithSize(src.Type(), src.Len())
	c.seen[key] = m
	for k, v := range src.Seq2() {
		m.SetMapIndex(c.value(k), c.value(v))
	}
	dst.Set(m)
}

// value copies a value that has no address.
func (c *copier) value(v reflect.Value) reflect.Value {
	from, to := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	from.Set(v)
	c.copy(to, from)
	return to
}

// open lets a field be read and written although it is unexported.
func open(v reflect.Value) reflect.Value {
	if v.CanSet() {
		return v
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}
