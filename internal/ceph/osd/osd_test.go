package osd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/replay"
)

func client(t *testing.T, prefix, file string) (Client, *replay.Commander) {
	t.Helper()
	r := replay.New(t, map[string]string{prefix: filepath.Join("testdata", file)})
	return New(r), r
}

func TestDump(t *testing.T) {
	c, r := client(t, "osd dump", "osd-dump.json")
	m, err := c.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Epoch != 93 || m.RequireOSDRelease != "tentacle" || m.MaxOSD != 3 || len(m.Pools) != 8 || !m.HasFlag("sortbitwise") || m.HasFlag("noout") {
		t.Errorf("%+v", m)
	}
	if d := cmp.Diff(Pool{ID: 2, Name: "rbdpool", Size: 3, MinSize: 2, PGNum: 32, Type: 1}, m.Pools[1]); d != "" {
		t.Error(d)
	}
	o, ok := m.Find(0)
	if !ok || o.UUID != "9dc8f4d7-0bbb-44fa-9147-6dadec71a49d" || !bool(o.Up) || !bool(o.In) || o.Weight != 1 || o.Destroyed() || o.New() || o.PublicAddrs.Of("v2") != "127.0.0.1:6802" {
		t.Errorf("%+v", o)
	}
	if _, ok := m.Find(3); ok {
		t.Error("osd.3 is there")
	}
	if d := cmp.Diff([]string{`mon {"format":"json","prefix":"osd dump"}`}, r.Sent()); d != "" {
		t.Error(d)
	}
}

func TestDumpOfADestroyedAndOfANewOSD(t *testing.T) {
	c, _ := client(t, "osd dump", "repl-5-destroyed-osd-dump.json")
	m, err := c.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := m.Find(1); !o.Destroyed() || o.UUID != ZeroUUID || bool(o.Up) || bool(o.In) {
		t.Errorf("%+v", o)
	}
	c, _ = client(t, "osd dump", "prepared-osd-dump.json")
	if m, err = c.Dump(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, _ := m.Find(0); !o.New() || o.Destroyed() || !bool(o.In) || o.UpFrom != 0 {
		t.Errorf("%+v", o)
	}
}

func TestTree(t *testing.T) {
	c, r := client(t, "osd tree", "repl-5-osd-tree-destroyed.json")
	tr, err := c.Tree(t.Context(), "destroyed")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{1}, tr.OSDIDs()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"host": "node2", "root": "default"}, tr.Location(1)); d != "" {
		t.Error(d)
	}
	n, ok := tr.OSD(1)
	if !ok || n.Status != "destroyed" || n.DeviceClass != "ssd" || n.CrushWeight != 0.003997802734375 {
		t.Errorf("%+v", n)
	}
	if d := cmp.Diff([]string{`mon {"format":"json","prefix":"osd tree","states":["destroyed"]}`}, r.Sent()); d != "" {
		t.Error(d)
	}
	c, _ = client(t, "osd tree", "prepared-osd-tree.json")
	if tr, err = c.Tree(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 1, 2}, tr.OSDIDs()); d != "" {
		t.Error(d)
	}
	if len(tr.Location(0)) != 0 {
		t.Errorf("a stray OSD is at %v", tr.Location(0))
	}
}

func TestLocationOfAMapThatIsNoTree(t *testing.T) {
	loop := Tree{Nodes: []Node{{ID: -1, Name: "a", Type: "host", Children: []int{-2, 0}}, {ID: -2, Name: "b", Type: "host", Children: []int{-1}}}}
	if d := cmp.Diff(map[string]string{"host": "a"}, loop.Location(0)); d != "" {
		t.Error(d)
	}
}

func TestMetadataAndDF(t *testing.T) {
	c, _ := client(t, "osd metadata", "osd-metadata.json")
	l, err := c.Metadata(t.Context())
	if err != nil || len(l) != 3 || l[0].Hostname != "node1" || l[0].Short != "20.2.4" || l[0].Devices != "loop0" || l[0].DedicatedDB != "0" {
		t.Errorf("%+v %v", l, err)
	}
	c, r := client(t, "osd df", "osd-df.json")
	u, err := c.DF(t.Context())
	if err != nil || len(u.Nodes) != 3 || u.Nodes[0].KB != 6291456 || u.Nodes[0].PGs != 201 || u.Summary.TotalKB != 18874368 {
		t.Errorf("%+v %v", u, err)
	}
	if d := cmp.Diff([]string{`mgr {"format":"json","output_method":"plain","prefix":"osd df"}`}, r.Sent()); d != "" {
		t.Error(d)
	}
	c, _ = client(t, "osd df", "empty-osd-df.json")
	if u, err = c.DF(t.Context()); err != nil || len(u.Nodes) != 0 {
		t.Errorf("%+v %v", u, err)
	}
}

func TestOkToStop(t *testing.T) {
	c, r := client(t, "osd ok-to-stop", "osd-ok-to-stop-0.json")
	a, err := c.OkToStop(t.Context(), 3, 0)
	if err != nil || !a.OK || a.NumOKPGs != 68 || len(a.OKDegraded) != 68 {
		t.Errorf("%+v %v", a, err)
	}
	c, _ = client(t, "osd ok-to-stop", "osd-ok-to-stop-0-1.json")
	c.c.(*replay.Commander).Errors["osd ok-to-stop"] = &ceph.Error{Prefix: "osd ok-to-stop", Errno: syscall.EBUSY}
	if a, err = c.OkToStop(t.Context(), 0, 0, 1); err != nil || a.OK || len(a.BadInactive) == 0 {
		t.Errorf("a refusal is an answer: %+v %v", a, err)
	}
	// Refused with an answer that says yes: believed by nobody.
	lying, _ := client(t, "osd ok-to-stop", "osd-ok-to-stop-0.json")
	lying.c.(*replay.Commander).Errors["osd ok-to-stop"] = &ceph.Error{Prefix: "osd ok-to-stop", Errno: syscall.EBUSY}
	if a, err = lying.OkToStop(t.Context(), 0, 0); err == nil || a.OK {
		t.Errorf("%+v %v", a, err)
	}
	// Any other error is no answer.
	other, _ := client(t, "osd ok-to-stop", "osd-ok-to-stop-0.json")
	other.c.(*replay.Commander).Errors["osd ok-to-stop"] = &ceph.Error{Prefix: "osd ok-to-stop", Errno: syscall.EPERM}
	if a, err = other.OkToStop(t.Context(), 0, 0); err == nil || a.OK {
		t.Errorf("%+v %v", a, err)
	}
	if d := cmp.Diff([]string{`mgr {"format":"json","ids":["0"],"max":3,"prefix":"osd ok-to-stop"}`}, r.Sent()); d != "" {
		t.Error(d)
	}
}

func TestSafeToDestroy(t *testing.T) {
	for _, tc := range []struct {
		file string
		id   int
		safe bool
	}{
		{"repl-safe-to-destroy-2-drained-up.json", 1, true},
		{"osd-safe-to-destroy-0.json", 0, false},
		{"repl-x-safe-to-destroy-3-down-in.json", 3, false},
		{"repl-safe-to-destroy-2-drained-up.json", 2, false},
	} {
		c, _ := client(t, "osd safe-to-destroy", tc.file)
		a, err := c.SafeToDestroy(t.Context(), tc.id)
		if err != nil || a.IsSafe(tc.id) != tc.safe {
			t.Errorf("%s: %+v %v", tc.file, a, err)
		}
	}
	if (SafeAnswer{Safe: []int{1}, StoredPGs: []int{1}}).IsSafe(1) {
		t.Error("an id in two lists is safe")
	}
}

func TestFindAndBlocklist(t *testing.T) {
	c, _ := client(t, "osd find", "osd-find-0.json")
	p, err := c.Find(t.Context(), 0)
	want := Place{UUID: "9dc8f4d7-0bbb-44fa-9147-6dadec71a49d", Host: "node1", CrushLocation: map[string]string{"host": "node1", "root": "default"}}
	if d := cmp.Diff(want, p); err != nil || d != "" {
		t.Error(err, d)
	}
	c, _ = client(t, "osd blocklist ls", "osd-blocklist-ls.json")
	if l, err := c.Blocklist(t.Context()); err != nil || len(l) != 0 {
		t.Errorf("%v %v", l, err)
	}
	if _, err := decodeBlocklist(nil); err == nil {
		t.Error("no list at all is no blocklist")
	}
	if _, err := decodeBlocklist([]byte(`[][{"addr":`)); err == nil {
		t.Error("a list that ends early is no blocklist")
	}
}

// sent collects the commands of mutating calls.
func sent(t *testing.T, f func(Client) error) string {
	t.Helper()
	var got string
	c := New(ceph.Func(func(_ context.Context, to ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
		b, err := cmd.Wire()
		if err != nil {
			t.Fatal(err)
		}
		got = string(to) + " " + string(b) + string(cmd.In)
		return ceph.Reply{Out: []byte(`{"osdid":3}`)}, nil
	}))
	if err := f(c); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCommands(t *testing.T) {
	ctx := t.Context()
	for want, f := range map[string]func(Client) error{
		`mon {"format":"json","ids":["3"],"prefix":"osd out"}`:                                        func(c Client) error { return c.Out(ctx, 3) },
		`mon {"format":"json","ids":["3","4"],"prefix":"osd in"}`:                                     func(c Client) error { return c.In(ctx, 3, 4) },
		`mon {"format":"json","ids":["3"],"prefix":"osd down"}`:                                       func(c Client) error { return c.Down(ctx, 3) },
		`mgr {"format":"json","id":3,"prefix":"osd destroy"}`:                                         func(c Client) error { return c.Destroy(ctx, 3) },
		`mgr {"format":"json","id":3,"prefix":"osd destroy","yes_i_really_mean_it":true}`:             func(c Client) error { return c.DestroyUnchecked(ctx, 3) },
		`mgr {"format":"json","id":3,"prefix":"osd purge"}`:                                           func(c Client) error { return c.Purge(ctx, 3) },
		`mgr {"format":"json","id":3,"prefix":"osd purge","yes_i_really_mean_it":true}`:               func(c Client) error { return c.PurgeUnchecked(ctx, 3) },
		`mon {"format":"json","id":3,"prefix":"osd reweight","weight":1.0}`:                           func(c Client) error { return c.Reweight(ctx, 3, 1) },
		`mon {"flags":"noout","format":"json","prefix":"osd set-group","who":["n1"]}`:                 func(c Client) error { return c.SetGroup(ctx, "noout", "n1") },
		`mon {"format":"json","prefix":"osd set-full-ratio","ratio":0.95}`:                            func(c Client) error { return c.SetFullRatio(ctx, 0.95) },
		`mon {"addr":"a","blocklistop":"add","expire":60.0,"format":"json","prefix":"osd blocklist"}`: func(c Client) error { return c.BlocklistAdd(ctx, "a", time.Minute) },
		`mon {"format":"json","id":3,"prefix":"osd new","uuid":"u"}{"cephx_secret":"k"}`: func(c Client) error {
			_, err := c.NewOSD(ctx, "u", 3, Secrets{CephxSecret: ceph.NewSecret("k")})
			return err
		},
		`mon {"format":"json","prefix":"osd new","uuid":"u"}`: func(c Client) error {
			_, err := c.NewOSD(ctx, "u", -1, Secrets{})
			return err
		},
	} {
		if d := cmp.Diff(want, sent(t, f)); d != "" {
			t.Error(d)
		}
	}
}

func TestNewOSDWithoutAnID(t *testing.T) {
	c := New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
		return ceph.Reply{Out: []byte(`{}`)}, nil
	}))
	if id, err := c.NewOSD(t.Context(), "u", -1, Secrets{}); err == nil {
		t.Errorf("an answer without an id gave %d", id)
	}
}

func fuzz(f *testing.F, try func(Client)) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, n := range files {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(_ *testing.T, in []byte) {
		try(New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
			return ceph.Reply{Out: bytes.Clone(in)}, nil
		})))
	})
}

func FuzzMaps(f *testing.F) {
	ctx := f.Context()
	fuzz(f, func(c Client) {
		if m, err := c.Dump(ctx); err == nil {
			m.Find(0)
			m.HasFlag("noout")
		}
		if tr, err := c.Tree(ctx); err == nil {
			for _, id := range tr.OSDIDs() {
				tr.Location(id)
			}
		}
		_, _ = c.Blocklist(ctx)
		if a, err := c.SafeToDestroy(ctx, 1); err == nil {
			a.IsSafe(1)
		}
		_, _ = c.OkToStop(ctx, 0, 1)
		_, _ = c.Metadata(ctx)
		_, _ = c.DF(ctx)
	})
}
