package images_test

import (
	"encoding/hex"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/images"
)

func cluster(t *testing.T) *cephtest.Cluster {
	t.Helper()
	c := cephtest.Healthy(t, 3, 1)
	for _, p := range []string{"rbd", "empty"} {
		if _, err := c.Mon(t.Context(), ceph.Cmd("osd pool create", "pool", p, "pool_type", "replicated")); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestReader(t *testing.T) {
	c, ctx := cluster(t), t.Context()
	a := c.PutImage(cephtest.Image{Pool: "rbd", Name: "a", Mirrored: true})
	b := c.PutImage(cephtest.Image{Pool: "rbd", Name: "b"})
	inside := c.PutImage(cephtest.Image{Pool: "rbd", Namespace: "tenant", Name: "a"})
	pool := c.PoolID("rbd")
	c.PutGroup("rbd", "", "g", map[int][]string{pool: {a, b}})
	r, at := images.New(c), images.Place{Pool: "rbd"}

	if id, err := r.ID(ctx, at, "a"); err != nil || id != a {
		t.Errorf("ID = %q, %v, want %q", id, err, a)
	}
	if id, err := r.ID(ctx, images.Place{Pool: "rbd", Namespace: "tenant"}, "a"); err != nil || id != inside {
		t.Errorf("ID in a namespace = %q, %v, want %q", id, err, inside)
	}
	names, err := r.Names(ctx, at)
	if d := cmp.Diff(map[string]string{a: "a", b: "b"}, names); d != "" || err != nil {
		t.Errorf("Names: %v\n%s", err, d)
	}
	state, err := r.Mirrored(ctx, at)
	if d := cmp.Diff(map[string]bool{a: true}, state); d != "" || err != nil {
		t.Errorf("Mirrored: %v\n%s", err, d)
	}
	groups, err := r.Groups(ctx, at)
	if err != nil || len(groups) != 1 {
		t.Fatalf("Groups = %v, %v", groups, err)
	}
	for id, name := range groups {
		members, err := r.Members(ctx, at, id)
		want := []images.Member{{Pool: int64(pool), ID: a}, {Pool: int64(pool), ID: b}}
		if b < a {
			want[0], want[1] = want[1], want[0]
		}
		if d := cmp.Diff(want, members); d != "" || err != nil || name != "g" {
			t.Errorf("Members of %s: %v\n%s", name, err, d)
		}
	}
}

func TestAbsent(t *testing.T) {
	c, ctx := cluster(t), t.Context()
	r := images.New(c)
	for _, at := range []images.Place{{Pool: "empty"}, {Pool: "nowhere"}} {
		if _, err := r.ID(ctx, at, "a"); !ceph.NotFound(err) {
			t.Errorf("%v: ID: %v", at, err)
		}
		if _, err := r.Names(ctx, at); !ceph.NotFound(err) {
			t.Errorf("%v: Names: %v", at, err)
		}
		if _, err := r.Groups(ctx, at); !ceph.NotFound(err) {
			t.Errorf("%v: Groups: %v", at, err)
		}
		if _, err := r.Members(ctx, at, "x"); !ceph.NotFound(err) {
			t.Errorf("%v: Members: %v", at, err)
		}
		if state, err := r.Mirrored(ctx, at); err != nil || len(state) != 0 {
			t.Errorf("%v: Mirrored = %v, %v", at, state, err)
		}
	}
}

// Without an answer nothing follows: an image is not "not mirrored" because Ceph is
// silent.
func TestSilence(t *testing.T) {
	c := cluster(t)
	c.PutImage(cephtest.Image{Pool: "rbd", Name: "a", Mirrored: true})
	for _, m := range []string{"a", "b", "c"} {
		c.StopMon(m)
	}
	r, at := images.New(c), images.Place{Pool: "rbd"}
	if _, err := r.Mirrored(t.Context(), at); !ceph.Unreachable(err) {
		t.Errorf("Mirrored: %v, want no answer", err)
	}
	if _, err := r.ID(t.Context(), at, "a"); !ceph.Unreachable(err) || ceph.NotFound(err) {
		t.Errorf("ID: %v, want no answer", err)
	}
}

// What is not in the format is an error and not an absent image.
func TestBroken(t *testing.T) {
	ctx := t.Context()
	for name, hexed := range map[string]string{
		"nothing": "", "half a length": "0500", "a length beyond the end": "ff00000041",
	} {
		c := cluster(t)
		raw, err := hex.DecodeString(hexed)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteObject(ctx, ceph.Object{Pool: "rbd", Name: "rbd_id.a"}, raw); err != nil {
			t.Fatal(err)
		}
		for object, key := range map[string]string{"rbd_directory": "id_1", "rbd_mirroring": "image_1", "rbd_group_header.g": "image_zz_1"} {
			if err := c.SetOmap(ctx, ceph.Object{Pool: "rbd", Name: object}, map[string][]byte{key: raw}); err != nil {
				t.Fatal(err)
			}
		}
		r, at := images.New(c), images.Place{Pool: "rbd"}
		for what, read := range map[string]func() error{
			"ID":       func() error { _, err := r.ID(ctx, at, "a"); return err },
			"Names":    func() error { _, err := r.Names(ctx, at); return err },
			"Mirrored": func() error { _, err := r.Mirrored(ctx, at); return err },
			"Members":  func() error { _, err := r.Members(ctx, at, "g"); return err },
		} {
			if err := read(); err == nil || ceph.Errno(err) != syscall.Errno(0) {
				t.Errorf("%s: %s: %v, want an error that is no errno", name, what, err)
			}
		}
	}
}
