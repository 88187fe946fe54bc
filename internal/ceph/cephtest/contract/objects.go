package contract

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// objects: single RADOS objects, their omap and their namespaces.
func (s *suite) objects(t *testing.T) {
	o, ok := s.c.(ceph.Objects)
	if !ok {
		t.Fatalf("%T does not give access to objects", s.c)
	}
	ctx, pool := context.Background(), "contract-objects"
	s.monOK(t, ceph.Cmd("osd pool create", "pool", pool, "pool_type", "replicated", "pg_num", 8))
	defer s.monOK(t, ceph.Cmd("osd pool rm", "pool", pool, "pool2", pool, "yes_i_really_really_mean_it", true))
	at := ceph.Object{Pool: pool, Name: "x"}
	inside := ceph.Object{Pool: pool, Namespace: "ns", Name: "x"}
	nowhere := ceph.Object{Pool: "contract-no-such-pool", Name: "x"}

	absent := func(what string, err error) {
		t.Helper()
		if ceph.Errno(err) != syscall.ENOENT {
			t.Errorf("%s: %v, want ENOENT", what, err)
		}
	}
	for name, obj := range map[string]ceph.Object{"no object": at, "no pool": nowhere} {
		_, err := o.ReadObject(ctx, obj, 10)
		absent(name+": read", err)
		_, err = o.Omap(ctx, obj)
		absent(name+": omap", err)
		absent(name+": remove", o.RemoveObject(ctx, obj))
	}
	absent("no pool: write", o.WriteObject(ctx, nowhere, []byte("x")))

	if err := o.WriteObject(ctx, at, []byte("content")); err != nil {
		t.Fatal(err)
	}
	if got, err := o.ReadObject(ctx, at, 7); err != nil || string(got) != "content" {
		t.Errorf("read: %q, %v", got, err)
	}
	if _, err := o.ReadObject(ctx, at, 6); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("reading more than allowed: %v, want EFBIG", err)
	}
	if kv, err := o.Omap(ctx, at); err != nil || len(kv) != 0 {
		t.Errorf("omap of an object without one: %v, %v", kv, err)
	}
	absent("another namespace", func() error { _, err := o.ReadObject(ctx, inside, 10); return err }())

	for _, kv := range []map[string][]byte{{"a": []byte("1"), "b": []byte("2")}, {"b": []byte("3"), "c": {0, 255}}} {
		if err := o.SetOmap(ctx, inside, kv); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := o.Omap(ctx, inside)
	if d := cmp.Diff(map[string][]byte{"a": []byte("1"), "b": []byte("3"), "c": {0, 255}}, kv); d != "" || err != nil {
		t.Errorf("omap: %v\n%s", err, d)
	}
	if got, err := o.ReadObject(ctx, inside, 10); err != nil || len(got) != 0 {
		t.Errorf("content of an object that has an omap only: %q, %v", got, err)
	}
	if err := o.RemoveObject(ctx, inside); err != nil {
		t.Error(err)
	}
	_, err = o.Omap(ctx, inside)
	absent("after its removal", err)
}
