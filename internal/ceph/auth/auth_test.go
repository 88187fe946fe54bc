package auth

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/replay"
)

func client(t *testing.T, prefix, file string) (Client, *replay.Commander) {
	t.Helper()
	r := replay.New(t, map[string]string{prefix: filepath.Join("testdata", file)})
	return New(r), r
}

const key = "AgAOvQxrMDHgASAAiThwj08V24ConfBxiJmpK91Jq/FWkM/shturspTW+Ks="

func TestList(t *testing.T) {
	c, _ := client(t, "auth ls", "auth-ls.json")
	l, err := c.List(t.Context())
	if err != nil || len(l) != 15 {
		t.Fatalf("%d %v", len(l), err)
	}
	for _, e := range l {
		if len(e.Key.Reveal()) != 60 {
			t.Errorf("%s has a key of %d characters", e.Name, len(e.Key.Reveal()))
		}
	}
	if s := fmt.Sprintf("%+v %v", l, l[0]); strings.Contains(s, "AgB") || !strings.Contains(s, ceph.Redacted) {
		t.Errorf("printed: %s", s)
	}
}

func TestGetOrCreate(t *testing.T) {
	c, r := client(t, "auth get-or-create", "auth-get-or-create.json")
	caps := Caps{"osd": "profile rbd pool=rbdpool", "mon": "profile rbd"}
	e, err := c.WithKeyType("aes256k").GetOrCreate(t.Context(), "client.fixture", caps)
	want := Entity{Name: "client.fixture", Key: ceph.NewSecret(key), Caps: caps}
	if d := cmp.Diff(want, e); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if d := cmp.Diff([]string{`mon {"caps":["mon","profile rbd","osd","profile rbd pool=rbdpool"],"entity":"client.fixture","format":"json","key_type":"aes256k","prefix":"auth get-or-create"}`}, r.Sent()); d != "" {
		t.Error(d)
	}
}

func TestGetKey(t *testing.T) {
	c, _ := client(t, "auth get-key", "auth-get-or-create-key.json")
	k, err := c.GetKey(t.Context(), "client.fixture")
	if err != nil || k.Reveal() != key {
		t.Errorf("%v", err)
	}
}

func TestAReplyWithoutAKeyIsAnError(t *testing.T) {
	for _, out := range []string{`[]`, `[{"entity":"client.x","caps":{}}]`, `[{"key":""}]`, `{}`, `[{"key":"a"},{"key":"b"}]`} {
		c := New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
			return ceph.Reply{Out: []byte(out)}, nil
		}))
		var de *ceph.DecodeError
		if _, err := c.Get(t.Context(), "client.x"); !errors.As(err, &de) {
			t.Errorf("%s: %v", out, err)
		}
		if _, err := c.GetKey(t.Context(), "client.x"); !errors.As(err, &de) {
			t.Errorf("%s: %v", out, err)
		}
	}
}

func TestKeysTravelAsInput(t *testing.T) {
	var got ceph.Command
	c := New(ceph.Func(func(_ context.Context, _ ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
		got = cmd
		return ceph.Reply{}, nil
	}))
	e := Entity{Name: "client.x", Key: ceph.NewSecret(key), Caps: Caps{"mon": "allow r"}}
	for _, f := range []func() error{
		func() error { return c.Add(t.Context(), e) },
		func() error { return c.Import(t.Context(), e.Keyring()) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(got.In), key) || strings.Contains(fmt.Sprint(got.Args), key) || strings.Contains(got.String(), key) {
			t.Errorf("%v", got)
		}
	}
	want := "[client.x]\n\tkey = " + key + "\n\tcaps mon = \"allow r\"\n"
	if d := cmp.Diff(want, e.Keyring().Reveal()); d != "" {
		t.Error(d)
	}
}

func FuzzEntities(f *testing.F) {
	f.Add([]byte(`{"auth_dump":[{"entity":"a","key":"k","caps":{"mon":"allow"}}]}`))
	f.Add([]byte(`[{"entity":"a","key":"k","pending_key":"p"}]`))
	ctx := f.Context()
	f.Fuzz(func(t *testing.T, in []byte) {
		c := New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
			return ceph.Reply{Out: in}, nil
		}))
		_, _ = c.List(ctx)
		if e, err := c.Get(ctx, "x"); err == nil && e.Key.IsZero() {
			t.Error("an entity without a key")
		}
	})
}
