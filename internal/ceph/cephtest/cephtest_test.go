package cephtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/ceph/config"
	"github.com/castellan-storage/castellan/internal/ceph/fs"
	"github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/ceph/mon"
	"github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/ceph/pool"
	"github.com/castellan-storage/castellan/internal/ceph/status"
)

// recorder is a testing.TB whose errors are the thing tested.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}

func cluster(t *testing.T, hosts int) *Cluster {
	t.Helper()
	return Healthy(t, hosts, 1)
}

func TestSignaturesAreThoseOfRealCeph(t *testing.T) {
	f, err := os.Open("testdata/commands-20.2.4.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	type sig struct {
		target, perm string
		params       map[string]param
	}
	real := map[string][]sig{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		col := strings.Split(sc.Text(), "\t")
		real[col[0]] = append(real[col[0]], sig{col[1], col[2], params(col[3])})
	}
	// Not in the recording: the dashboard is a package of its own.
	for name, sp := range commands {
		if strings.HasPrefix(name, "dashboard ") {
			continue
		}
		var close []string
		ok := false
		for _, s := range real[name] {
			mutates := strings.Contains(s.perm, "w")
			d := ""
			if s.target == "mgr" != sp.mgr {
				d += fmt.Sprintf("it goes to the %s; ", s.target)
			}
			if mutates != sp.mutates {
				d += fmt.Sprintf("its permission is %s; ", s.perm)
			}
			for p, have := range sp.params {
				want, there := s.params[p]
				if !there || want.kind != have.kind || want.optional && !have.optional {
					d += fmt.Sprintf("%s is %+v, not %+v; ", p, want, have)
				}
			}
			for p, want := range s.params {
				if _, there := sp.params[p]; !there && !want.optional {
					d += fmt.Sprintf("%s is missing; ", p)
				}
			}
			ok = ok || d == ""
			close = append(close, d)
		}
		if !ok {
			t.Errorf("%s: %v", name, close)
		}
	}
}

func TestUnknownCommandsAndBadArgumentsFailTheTest(t *testing.T) {
	for _, cmd := range []ceph.Command{
		ceph.Cmd("no such command"),
		ceph.Cmd("osd out", "ids", "3"),
		ceph.Cmd("osd out", "id", []string{"3"}),
		ceph.Cmd("osd out"),
		ceph.Cmd("osd reweight", "id", "3", "weight", ceph.Float(1)),
		ceph.Cmd("osd reweight", "id", 3, "weight", 1),
		ceph.Cmd("pg stat"), // a mgr command, sent to the mons
	} {
		r := &recorder{TB: t}
		c := New(r)
		c.BootMon("a", MonAddrs("10.0.0.1", false))
		c.BootMgr("x")
		if _, err := c.Mon(t.Context(), cmd); !errors.Is(err, syscall.EINVAL) || len(r.errors) != 1 {
			t.Errorf("%v: %v %v", cmd, err, r.errors)
		}
	}
}

func TestQuorum(t *testing.T) {
	c := New(t)
	m := mon.New(c)
	if _, err := m.QuorumStatus(t.Context()); !ceph.Unreachable(err) {
		t.Fatalf("no mon at all: %v", err)
	}
	for i, n := range []string{"a", "b", "c"} {
		c.BootMon(n, MonAddrs(fmt.Sprintf("10.0.0.%d", i+1), true))
	}
	q, err := m.QuorumStatus(t.Context())
	if err != nil || !slices.Equal(q.Names, []string{"a", "b", "c"}) || q.Leader != "a" {
		t.Fatalf("%+v %v", q, err)
	}
	c.StopMon("a")
	if q, err = m.QuorumStatus(t.Context()); err != nil || q.Leader != "b" || q.In("a") {
		t.Fatalf("%+v %v", q, err)
	}
	if v, err := m.OkToStop(t.Context(), "b"); err != nil || v.OK {
		t.Errorf("%+v %v", v, err)
	}
	// A fourth mon makes the majority three of four.
	c.BootMon("d", MonAddrs("10.0.0.4", true))
	if q, err = m.QuorumStatus(t.Context()); err != nil || !q.In("d") || len(q.Monmap.Mons) != 4 {
		t.Fatalf("%+v %v", q, err)
	}
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	c.StopMon("b")
	c.StopMon("c")
	if _, err := m.QuorumStatus(t.Context()); !ceph.Unreachable(err) || !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("one of three: %v", err)
	}
	// A mon that starts meanwhile waits until there is a quorum to join.
	c.BootMon("e", MonAddrs("10.0.0.5", true))
	c.BootMon("c", MonAddrs("10.0.0.3", true))
	if q, err = m.QuorumStatus(t.Context()); err != nil || !slices.Equal(q.Names, []string{"c", "d", "e"}) {
		t.Errorf("%+v %v", q, err)
	}
}

func TestMgrFailover(t *testing.T) {
	c := cluster(t, 3)
	m := mgr.New(c)
	c.StopMgr("a")
	if _, err := pg.New(c).Stat(t.Context()); !ceph.Unreachable(err) {
		t.Errorf("the active mgr is dead: %v", err)
	}
	if s, err := m.Stat(t.Context()); err != nil || s.Active != "a" {
		t.Errorf("the mons know already: %+v %v", s, err)
	}
	c.Tick(1)
	if s, err := m.Stat(t.Context()); err != nil || s.Active != "b" || !s.Available || s.NumStandby != 0 {
		t.Errorf("%+v %v", s, err)
	}
	if err := m.Fail(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if s, err := m.Stat(t.Context()); err != nil || s.Active != "b" {
		t.Errorf("the only mgr comes back: %+v %v", s, err)
	}
}

func TestNewClusterBecomesHealthy(t *testing.T) {
	c := cluster(t, 3)
	s, err := status.New(c).Status(t.Context())
	if err != nil || s.Health.Status != status.HealthOK || !s.PGMap.AllClean() || s.PGMap.NumPGs != 1 {
		t.Errorf("%+v %v", s, err)
	}
	if d := cmp.Diff([]string{".mgr"}, c.Pools()); d != "" {
		t.Error(d)
	}
}

// drained marks an OSD out and ticks until it is safe to destroy.
func drained(t *testing.T, c *Cluster, id, ticks int) bool {
	t.Helper()
	o := osd.New(c)
	if err := o.Out(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range ticks {
		a, err := o.SafeToDestroy(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if a.IsSafe(id) {
			return true
		}
		c.Tick(1)
	}
	return false
}

func withData(t *testing.T, c *Cluster) {
	t.Helper()
	p := pool.New(c)
	if err := p.Create(t.Context(), pool.Spec{Name: "data", PGNum: 32, Size: 3}); err != nil {
		t.Fatal(err)
	}
	if err := p.EnableApplication(t.Context(), "data", "rbd"); err != nil {
		t.Fatal(err)
	}
	c.PutData("data", 1000, 1<<30)
	c.Settle()
}

func TestOutWithTooFewHostsNeverBecomesSafe(t *testing.T) {
	c := cluster(t, 3)
	withData(t, c)
	if drained(t, c, 1, 300) {
		t.Fatal("drained with nowhere to go")
	}
	s, err := status.New(c).Status(t.Context())
	if err != nil || s.Health.Status != status.HealthOK || s.PGMap.MisplacedRatio < 0.3 || s.PGMap.ByState[0].State != "active+clean+remapped" {
		t.Errorf("%+v %v", s, err)
	}
	c.AddOSD(OSDSpec{Host: "n3"})
	if !drained(t, c, 1, 300) {
		t.Errorf("a fourth host does not help: %v", c)
	}
}

func TestReplacement(t *testing.T) {
	c := cluster(t, 4)
	withData(t, c)
	ctx := t.Context()
	o := osd.New(c)
	before, _ := mustTree(t, o).OSD(1)
	if err := o.Destroy(ctx, 1); !ceph.Busy(err) {
		t.Fatalf("destroying an OSD in use: %v", err)
	}
	if !drained(t, c, 1, 300) {
		t.Fatalf("never drained: %v", c)
	}
	if err := o.DestroyUnchecked(ctx, 1); !ceph.Busy(err) {
		t.Fatalf("destroying an OSD that is up: %v", err)
	}
	c.StopOSD(1)
	if err := o.Destroy(ctx, 1); err != nil {
		t.Fatal(err)
	}
	m, err := o.Dump(ctx)
	if x, ok := m.Find(1); err != nil || !ok || !x.Destroyed() || x.UUID != osd.ZeroUUID {
		t.Fatalf("%+v %v", x, err)
	}
	if err := c.BootOSD(1, before.Name, OSDSpec{Host: "n1"}); err == nil {
		t.Error("a destroyed OSD booted")
	}
	u := c.NewUUID()
	id, err := o.NewOSD(ctx, u, 1, osd.Secrets{CephxSecret: ceph.NewSecret("key")})
	if err != nil || id != 1 {
		t.Fatalf("%d %v", id, err)
	}
	if err := c.BootOSD(1, c.NewUUID(), OSDSpec{Host: "n1"}); err == nil {
		t.Error("an OSD with another uuid booted")
	}
	if err := c.BootOSD(1, u, OSDSpec{Host: "n1", Bytes: 20 << 30}); err != nil {
		t.Fatal(err)
	}
	c.Settle()
	m, err = o.Dump(ctx)
	if x, _ := m.Find(1); err != nil || x.UUID != u || !bool(x.Up) || !bool(x.In) || x.New() {
		t.Errorf("%+v %v", x, err)
	}
	after, _ := mustTree(t, o).OSD(1)
	if after.CrushWeight != before.CrushWeight || after.DeviceClass != before.DeviceClass {
		t.Errorf("weight or class changed: %+v %+v", before, after)
	}
	if lost := c.DataLost(); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
}

func mustTree(t *testing.T, o osd.Client) osd.Tree {
	t.Helper()
	tr, err := o.Tree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestSafety(t *testing.T) {
	c := Healthy(t, 4, 1)
	withData(t, c)
	o := osd.New(c)
	ask := func(id int, want osd.Safety) {
		t.Helper()
		got, err := o.Safety(t.Context(), id)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Error(err, d)
		}
	}
	ask(77, osd.Safety{Why: "osd.77 does not exist"})
	ask(1, osd.Safety{Exists: true, Up: true, Why: "PGs are mapped to it"})
	if !drained(t, c, 1, 300) {
		t.Fatal("never drained")
	}
	ask(1, osd.Safety{Exists: true, Up: true, Safe: true})
	c.StopOSD(1)
	ask(1, osd.Safety{Exists: true, Safe: true})
	if err := o.Destroy(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ask(1, osd.Safety{Exists: true, Destroyed: true, Safe: true})
	c.StopOSD(2)
	ask(2, osd.Safety{Exists: true, Unreported: true, Why: "it is down, and not all PGs are active+clean"})
	c.Inject(Fault{Prefix: "osd safe-to-destroy", Answer: []byte("{}"), Times: 1})
	ask(2, osd.Safety{Exists: true, Why: "Ceph's answer does not mention it"})
	c.Inject(Fault{Prefix: "osd safe-to-destroy", Errno: syscall.EAGAIN, Times: 1})
	ask(2, osd.Safety{Exists: true, Unreported: true, Why: "injected"})
	c.Inject(Fault{Prefix: "osd safe-to-destroy", ReplyLost: true, Times: 1})
	if got, err := o.Safety(t.Context(), 2); !ceph.Unreachable(err) || got.Safe {
		t.Errorf("%+v %v", got, err)
	}
}

func TestStoppedBeforePeeringIsAgain(t *testing.T) {
	c := cluster(t, 4)
	withData(t, c)
	c.StopOSD(2)
	a, err := osd.New(c).SafeToDestroy(t.Context(), 2)
	if err != nil || !slices.Contains(a.MissingStats, 2) {
		t.Errorf("%+v %v", a, err)
	}
	if err := osd.New(c).Destroy(t.Context(), 2); !ceph.Again(err) {
		t.Errorf("%v", err)
	}
}

func TestDestroyingTheLastCopyIsSeen(t *testing.T) {
	c := cluster(t, 3)
	withData(t, c)
	for _, id := range []int{0, 1, 2} {
		c.StopOSD(id)
		if err := osd.New(c).DestroyUnchecked(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.DataLost()) == 0 {
		t.Error("nobody noticed that all copies are gone")
	}
}

func TestOkToStopLooksAtTheWholeSet(t *testing.T) {
	c := cluster(t, 3)
	withData(t, c)
	o := osd.New(c)
	for _, tc := range []struct {
		ids []int
		ok  bool
	}{{[]int{0}, true}, {[]int{0, 1}, false}, {[]int{77}, true}} {
		a, err := o.OkToStop(t.Context(), 0, tc.ids...)
		if err != nil || a.OK != tc.ok {
			t.Errorf("%v: %+v %v", tc.ids, a, err)
		}
	}
	// With a second OSD on the host, both may stop together.
	c.AddOSD(OSDSpec{Host: "n0"})
	c.Settle()
	a, err := o.OkToStop(t.Context(), 4, 0)
	if err != nil || !a.OK || !slices.Equal(a.OSDs, []int{0, 3}) {
		t.Errorf("%+v %v", a, err)
	}
}

func TestDownForLongIsMarkedOut(t *testing.T) {
	c := cluster(t, 4)
	c.StopOSD(3)
	c.Tick(int(600*time.Second/TickLength) - 1)
	in := func() bool {
		m, err := osd.New(c).Dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x, _ := m.Find(3)
		return bool(x.In)
	}
	if !in() {
		t.Fatal("out too early")
	}
	if err := osd.New(c).SetGroup(t.Context(), "noout", "n3"); err != nil {
		t.Fatal(err)
	}
	c.Tick(10)
	if !in() {
		t.Fatal("out in spite of noout")
	}
	if err := osd.New(c).UnsetGroup(t.Context(), "noout", "n3"); err != nil {
		t.Fatal(err)
	}
	c.Tick(1)
	if in() {
		t.Fatal("still in")
	}
}

func TestFaults(t *testing.T) {
	c := cluster(t, 3)
	o := osd.New(c)
	ctx := t.Context()
	c.Inject(Fault{Prefix: "osd out", Errno: syscall.EAGAIN, Times: 1})
	if err := o.Out(ctx, 1); !ceph.Again(err) {
		t.Errorf("%v", err)
	}
	c.Inject(Fault{Prefix: "osd out", ReplyLost: true, Times: 1})
	if err := o.Out(ctx, 1); !ceph.Unreachable(err) {
		t.Errorf("%v", err)
	}
	if m, err := o.Dump(ctx); err != nil || bool(m.OSDs[1].In) {
		t.Errorf("a lost reply must not undo the command: %v", err)
	}
	c.Inject(Fault{Prefix: "osd dump", Truncate: 20, Times: 1})
	var de *ceph.DecodeError
	if _, err := o.Dump(ctx); !errors.As(err, &de) {
		t.Errorf("%v", err)
	}
	remove := c.Inject(Fault{Prefix: "osd safe-to-destroy", Answer: []byte(`{"safe_to_destroy":[1],"active":[],"missing_stats":[],"stored_pgs":[]}`)})
	if a, err := o.SafeToDestroy(ctx, 1); err != nil || !a.IsSafe(1) {
		t.Errorf("%+v %v", a, err)
	}
	remove()
	if a, err := o.SafeToDestroy(ctx, 1); err != nil || a.IsSafe(1) {
		t.Errorf("%+v %v", a, err)
	}
	c.Inject(Fault{Prefix: "status", Hang: true, Times: 1})
	start := time.Now()
	if _, err := c.Mon(ctx, ceph.Cmd("status").WithTimeout(20*time.Millisecond)); !ceph.Unreachable(err) || time.Since(start) < 20*time.Millisecond {
		t.Errorf("%v", err)
	}
	c.Inject(Fault{Prefix: "osd in", Errno: syscall.EPERM, Skip: 1, Times: 1})
	for _, want := range []syscall.Errno{0, syscall.EPERM, 0} {
		if err := o.In(ctx, 1); ceph.Errno(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestCounters(t *testing.T) {
	c := cluster(t, 3)
	c.Reset()
	_, _ = status.New(c).Status(t.Context())
	_, _ = osd.New(c).Dump(t.Context())
	if d := cmp.Diff(Counters{Reads: 2}, c.Counters()); d != "" {
		t.Error(d)
	}
	_ = osd.New(c).Out(t.Context(), 1)
	if d := cmp.Diff(Counters{Reads: 2, Mutations: 1}, c.Counters()); d != "" {
		t.Error(d)
	}
	l := c.Commands()
	if d := cmp.Diff(Sent{To: ceph.ToMon, Command: "osd out ids=[1]", Prefix: "osd out", Mutating: true}, l[len(l)-1]); d != "" {
		t.Error(d)
	}
}

func TestSecretsAreNotInTheTrace(t *testing.T) {
	c := cluster(t, 0)
	if err := auth.New(c).Add(t.Context(), auth.Entity{Name: "client.x", Key: ceph.NewSecret("canary"), Caps: auth.Caps{"mon": "allow r"}}); err != nil {
		t.Fatal(err)
	}
	if err := config.New(c).SetSecret(t.Context(), "client.x", "rgw_crypt_s3_kms_backend", ceph.NewSecret("canary")); err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%+v", c.Commands()); strings.Contains(s, "canary") {
		t.Error(s)
	}
	if c.Key("client.x") != "canary" {
		t.Error("the key did not arrive")
	}
}

func TestSameSeedSameCluster(t *testing.T) {
	a, b, other := New(t, Seed(7)), New(t, Seed(7)), New(t, Seed(8))
	if a.FSID() != b.FSID() || a.Key("client.admin") != b.Key("client.admin") {
		t.Error("two clusters of one seed differ")
	}
	if a.FSID() == other.FSID() {
		t.Error("two seeds give one fsid")
	}
}

func TestHook(t *testing.T) {
	c := cluster(t, 3)
	n := 0
	c.OnCommand(func(to ceph.Target, cmd ceph.Command) {
		if n++; n == 1 {
			c.StopOSD(2) // the hook may change the cluster
		}
	})
	m, err := osd.New(c).Dump(t.Context())
	if x, _ := m.Find(2); err != nil || bool(x.Up) {
		t.Errorf("%+v %v", x, err)
	}
}

func TestAutoTick(t *testing.T) {
	c := cluster(t, 4)
	withData(t, c)
	AutoTick()(c)
	o := osd.New(c)
	if err := o.Out(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if a, err := o.SafeToDestroy(t.Context(), 0); err == nil && a.IsSafe(0) {
			return
		}
	}
	t.Error("polling alone does not make progress")
}

func TestObjects(t *testing.T) {
	c := cluster(t, 3)
	at := ceph.Object{Pool: ".mgr", Namespace: "n", Name: "o"}
	var store ceph.Objects = c
	if _, err := store.ReadObject(t.Context(), at, 10); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
	if err := store.WriteObject(t.Context(), ceph.Object{Pool: "none", Name: "o"}, nil); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
	if err := store.WriteObject(t.Context(), at, []byte("data")); err != nil {
		t.Fatal(err)
	}
	if b, err := store.ReadObject(t.Context(), at, 10); err != nil || string(b) != "data" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := store.ReadObject(t.Context(), at, 3); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("%v", err)
	}
	if err := store.SetOmap(t.Context(), at, map[string][]byte{"k": []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if m, err := store.Omap(t.Context(), at); err != nil || string(m["k"]) != "v" {
		t.Errorf("%v %v", m, err)
	}
	if err := store.RemoveObject(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := store.RemoveObject(t.Context(), at); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
}

func TestFilesystem(t *testing.T) {
	c := cluster(t, 3)
	ctx := t.Context()
	for _, n := range []string{"meta", "data"} {
		if err := pool.New(c).Create(ctx, pool.Spec{Name: n, PGNum: 4}); err != nil {
			t.Fatal(err)
		}
	}
	f := fs.New(c)
	if err := f.Create(ctx, "myfs", "meta", "data", false); err != nil {
		t.Fatal(err)
	}
	c.BootMDS("myfs-a", "myfs")
	if ok, why, err := f.OkToStop(ctx, "myfs-a"); err != nil || ok {
		t.Errorf("%v %s %v", ok, why, err)
	}
	c.BootMDS("myfs-b", "myfs")
	if ok, why, err := f.OkToStop(ctx, "myfs-a"); err != nil || !ok {
		t.Errorf("%v %s %v", ok, why, err)
	}
	c.StopMDS("myfs-a")
	g, err := f.Get(ctx, "myfs")
	if m, ok := g.MDSMap.Rank(0); err != nil || !ok || m.Name != "myfs-b" {
		t.Errorf("%+v %v", g, err)
	}
	if err := f.Remove(ctx, "myfs"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v", err)
	}
	if err := f.Fail(ctx, "myfs"); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(ctx, "myfs"); err != nil {
		t.Error(err)
	}
}

func TestCancelledContext(t *testing.T) {
	c := cluster(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := status.New(c).FSID(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestUpgradeGates(t *testing.T) {
	c := New(t, Release("19.2.3"))
	for i, n := range []string{"a", "b", "c"} {
		c.BootMon(n, MonAddrs(fmt.Sprintf("10.0.0.%d", i+1), false))
	}
	c.BootMgr("a")
	for i := range 3 {
		c.AddOSD(OSDSpec{Host: fmt.Sprintf("n%d", i)})
	}
	c.Settle()
	o := osd.New(c)
	if err := o.RequireRelease(t.Context(), "tentacle"); !errors.Is(err, syscall.EPERM) {
		t.Errorf("with old OSDs: %v", err)
	}
	m, err := o.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []string{"a", "b", "c"} {
		c.BootMon(n, MonAddrs(fmt.Sprintf("10.0.0.%d", i+1), false), Version("20.2.4"))
	}
	for _, x := range m.OSDs {
		c.StopOSD(x.ID)
		if err := c.BootOSD(x.ID, x.UUID, OSDSpec{Host: fmt.Sprintf("n%d", x.ID)}, Version("20.2.4")); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.RequireRelease(t.Context(), "tentacle"); err != nil {
		t.Error(err)
	}
	v, err := status.New(c).Versions(t.Context())
	if err != nil || len(v["osd"]) != 1 || len(v["overall"]) != 2 {
		t.Errorf("%v %v", v, err)
	}
	q, err := mon.New(c).QuorumStatus(t.Context())
	if err != nil || q.Monmap.MinMonReleaseName != "tentacle" {
		t.Errorf("%+v %v", q.Monmap, err)
	}
}

// BenchmarkLargeCluster is one change of the OSD map and one status of 300 OSDs.
func BenchmarkLargeCluster(b *testing.B) {
	c := New(b)
	c.BootMon("a", MonAddrs("10.0.0.1", true))
	c.BootMgr("a")
	for i := range 300 {
		c.AddOSD(OSDSpec{Host: fmt.Sprintf("n%d", i/10)})
	}
	if err := pool.New(c).Create(b.Context(), pool.Spec{Name: "p", PGNum: 2048}); err != nil {
		b.Fatal(err)
	}
	c.Settle()
	for b.Loop() {
		if err := osd.New(c).Out(b.Context(), 7); err != nil {
			b.Fatal(err)
		}
		if _, err := status.New(c).Status(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
