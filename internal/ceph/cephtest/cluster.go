// Package cephtest is a Ceph cluster in memory behind the same Commander as the
// real one: monmap and quorum, mgrs and modules, OSD map and CRUSH tree, pools,
// placement groups, auth, config. A simulated node tells it which daemons run
// (BootMon, BootOSD, StopOSD, ...); Tick lets time pass.
//
// It answers with Ceph's errnos and JSON, by the contract suite that also runs
// on a real cluster; where the two differ, this package is wrong. A command it
// does not know, or an argument of the wrong type, fails the test. It must never
// be imported by anything but tests and the lab.
package cephtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest/pgmodel"
)

// Option changes how a Cluster is made.
type Option func(*Cluster)

// Seed makes uuids and keys others; the default is 1.
func Seed(n uint64) Option { return func(c *Cluster) { c.rng = rand.New(rand.NewPCG(n, n)) } }

// FSID sets the cluster's id; by default it comes from the seed.
func FSID(id string) Option { return func(c *Cluster) { c.fsid = id } }

// AutoTick lets one tick pass after each command that looks at PGs, so that
// code that polls sees progress.
func AutoTick() Option { return func(c *Cluster) { c.autoTick = true } }

// Recovery sets how many PG copies a tick completes; the default is 8.
func Recovery(copies int) Option { return func(c *Cluster) { c.recovery = copies } }

// Release sets the version daemons run that name none, e.g. "19.2.3".
func Release(version string) Option { return func(c *Cluster) { c.version = version } }

// AdminKey sets the keys of client.admin and mon., which a real cluster gets
// from the keyring its first mon is made with.
func AdminKey(admin, mon string) Option {
	return func(c *Cluster) {
		c.entities["client.admin"].key = admin
		c.entities["mon."].key = mon
	}
}

// Sent is one command that was sent, without its input.
type Sent struct {
	To       ceph.Target
	Command  string
	Prefix   string
	Mutating bool
	Errno    syscall.Errno
}

// Counters count commands since the last reset.
type Counters struct{ Reads, Mutations int }

// Cluster is one cluster. All methods are safe for concurrent use.
type Cluster struct {
	t  testing.TB
	mu sync.Mutex

	fsid     string
	rng      *rand.Rand
	version  string
	autoTick bool
	recovery int
	// now is the cluster's clock: it moves by TickLength a tick.
	now time.Time

	mon   monState
	mgr   mgrState
	osd   osdState
	crush crushState
	pools []*poolInfo
	pg    *pgmodel.Model

	poolMax   int
	profiles  map[string]map[string]string
	entities  map[string]*entity
	config    []*option
	rejects   map[string]bool
	keys      map[string]string
	fs        fsState
	health    map[string]extraCheck
	mutes     map[string]bool
	dashboard map[string]string
	crashes   []map[string]any
	blocklist map[string]time.Time
	objects   map[ceph.Object]*object

	faults []*Fault
	sent   []Sent
	count  Counters
	hook   func(ceph.Target, ceph.Command)
}

// TickLength is how far a tick moves the cluster's clock.
const TickLength = 5 * time.Second

// New makes a cluster without daemons: no command is answered before BootMon.
func New(t testing.TB, opts ...Option) *Cluster {
	c := &Cluster{
		t: t, version: "20.2.4", recovery: 8,
		now:       time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		pg:        pgmodel.New(),
		profiles:  map[string]map[string]string{"default": {"k": "2", "m": "2", "plugin": "isa", "technique": "reed_sol_van"}},
		entities:  map[string]*entity{},
		rejects:   map[string]bool{},
		keys:      map[string]string{},
		health:    map[string]extraCheck{},
		mutes:     map[string]bool{},
		dashboard: map[string]string{},
		crashes:   []map[string]any{},
		blocklist: map[string]time.Time{},
		objects:   map[ceph.Object]*object{},
	}
	Seed(1)(c)
	c.initAuth()
	c.initMgr()
	c.initCrush()
	c.initFS()
	for _, o := range opts {
		o(c)
	}
	if c.fsid == "" {
		c.fsid = c.uuid()
	}
	for _, n := range slices.Sorted(maps.Keys(c.entities)) {
		if e := c.entities[n]; e.key == "" {
			e.key = c.newKey()
		}
	}
	c.osd.init(c)
	return c
}

// Healthy makes a cluster of mons a, b and c, mgrs a and b, and hosts n0, n1, ...
// with OSDs on each, all clean. With fewer than three OSDs there is no pool and
// the cluster warns of that.
func Healthy(t testing.TB, hosts, osdsPerHost int, opts ...Option) *Cluster {
	t.Helper()
	c := New(t, opts...)
	for i, n := range []string{"a", "b", "c"} {
		c.BootMon(n, MonAddrs(fmt.Sprintf("10.0.0.%d", i+1), true), OnHost(fmt.Sprintf("n%d", i)))
	}
	for i, n := range []string{"a", "b"} {
		c.BootMgr(n, OnHost(fmt.Sprintf("n%d", i)))
	}
	for h := range hosts {
		for o := range osdsPerHost {
			c.AddOSD(OSDSpec{Host: fmt.Sprintf("n%d", h), Devices: fmt.Sprintf("sd%c", 'b'+o)})
		}
	}
	c.Settle()
	return c
}

// FSID is the cluster's id.
func (c *Cluster) FSID() string { return c.fsid }

// Now is the cluster's clock.
func (c *Cluster) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *Cluster) uuid() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(c.rng.UintN(256))
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Tick lets n steps of TickLength pass: PGs peer and recover, a dead mgr is
// replaced, an OSD that is down for long is marked out.
func (c *Cluster) Tick(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.tick()
	}
}

func (c *Cluster) tick() {
	c.now = c.now.Add(TickLength)
	c.tickMgr()
	c.tickOSDs()
	c.tickFS()
	frozen := c.osd.flags["norecover"] || c.osd.flags["nobackfill"] || c.osd.flags["norebalance"]
	c.pg.Step(c.recovery, !frozen)
}

// Settle ticks until every PG is clean, and fails the test when that does not
// happen in 1,000 ticks.
func (c *Cluster) Settle() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 1000 {
		c.tick()
		if c.allClean() {
			return
		}
	}
	c.t.Fatalf("cephtest: PGs do not settle: %v", c.stateCounts())
}

// DataLost lists the PGs whose last copy was destroyed.
func (c *Cluster) DataLost() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pg.Lost()
}

// Commands lists what was sent since the last reset.
func (c *Cluster) Commands() []Sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// Counters gives the counts since the last reset.
func (c *Cluster) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Reset forgets the commands sent and their counts.
func (c *Cluster) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.count = nil, Counters{}
}

// OnCommand calls f before each command, without any lock held: the place where
// a test changes the world between two steps. Nil takes it away.
func (c *Cluster) OnCommand(f func(ceph.Target, ceph.Command)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = f
}

// Fault is something that goes wrong with commands of a prefix.
type Fault struct {
	// Prefix is the command; "" is every command.
	Prefix string
	// Times is how often; 0 is always.
	Times int
	// Skip lets the first ones pass.
	Skip int
	// Errno makes Ceph refuse without doing anything.
	Errno syscall.Errno
	// Hang makes the command wait for its deadline.
	Hang bool
	// ReplyLost carries the command out and loses the answer.
	ReplyLost bool
	// Answer replaces the output of a command that was carried out.
	Answer []byte
	// Truncate cuts the output down to that many bytes, if positive.
	Truncate int

	removed bool
}

// Inject adds a fault and gives a function that takes it away again. Faults are
// tried in the order they were added; the first that fits is used.
func (c *Cluster) Inject(f Fault) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &f
	c.faults = append(c.faults, p)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.removed = true
	}
}

func (c *Cluster) fault(prefix string) *Fault {
	for _, f := range c.faults {
		if f.removed || f.Prefix != "" && f.Prefix != prefix {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			f.Times--
			f.removed = f.Times == 0
		}
		return f
	}
	return nil
}

// Mon sends cmd to the quorum. Without one it is unreachable.
func (c *Cluster) Mon(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.do(ctx, ceph.ToMon, cmd)
}

// Mgr sends cmd to the active mgr. Without one it is unreachable.
func (c *Cluster) Mgr(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.do(ctx, ceph.ToMgr, cmd)
}

// Tell sends cmd to one daemon; no command is known yet.
func (c *Cluster) Tell(ctx context.Context, daemon string, cmd ceph.Command) (ceph.Reply, error) {
	return c.do(ctx, ceph.Target(daemon), cmd)
}

func unreachable(prefix string, err error) error {
	return &ceph.UnreachableError{Prefix: prefix, Err: err}
}

func (c *Cluster) do(ctx context.Context, to ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook != nil {
		hook(to, cmd)
	}
	if err := ctx.Err(); err != nil {
		return ceph.Reply{}, unreachable(cmd.Prefix, err)
	}
	wire, err := cmd.Wire()
	if err != nil {
		return ceph.Reply{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fault(cmd.Prefix)
	if f != nil && f.Hang {
		bound, cancel := cmd.Bound(ctx)
		defer cancel()
		c.mu.Unlock()
		<-bound.Done()
		c.mu.Lock()
		return ceph.Reply{}, unreachable(cmd.Prefix, bound.Err())
	}
	sp := commands[cmd.Prefix]
	if sp == nil {
		c.t.Errorf("cephtest: unknown command to %s: %s", to, cmd)
		return ceph.Reply{}, &ceph.Error{Prefix: cmd.Prefix, Errno: syscall.EINVAL, Status: "command not known"}
	}
	var r reply
	switch {
	case !c.reachable(to, sp):
		return ceph.Reply{}, unreachable(cmd.Prefix, context.DeadlineExceeded)
	case f != nil && f.Errno != 0:
		r = fail(f.Errno, "injected")
	default:
		r = c.run(to, sp, cmd, wire)
	}
	c.note(to, sp, cmd, r.errno)
	if sp.looksAtPGs && c.autoTick {
		c.tick()
	}
	return c.answer(cmd, f, r)
}

func (c *Cluster) answer(cmd ceph.Command, f *Fault, r reply) (ceph.Reply, error) {
	if f != nil {
		if f.ReplyLost {
			return ceph.Reply{}, unreachable(cmd.Prefix, context.DeadlineExceeded)
		}
		if f.Answer != nil {
			r.out = f.Answer
		}
		if f.Truncate > 0 && len(r.out) > f.Truncate {
			r.out = r.out[:f.Truncate]
		}
	}
	rep := ceph.Reply{Out: r.out, Status: r.status}
	if r.errno != 0 {
		return rep, &ceph.Error{Prefix: cmd.Prefix, Errno: r.errno, Status: r.status}
	}
	return rep, nil
}

func (c *Cluster) note(to ceph.Target, sp *spec, cmd ceph.Command, errno syscall.Errno) {
	if sp.mutates {
		c.count.Mutations++
	} else {
		c.count.Reads++
	}
	c.sent = append(c.sent, Sent{To: to, Command: cmd.String(), Prefix: cmd.Prefix, Mutating: sp.mutates, Errno: errno})
}

// reachable: every command needs a quorum (mgr commands go by way of the mons),
// and those of the mgr an active mgr.
func (c *Cluster) reachable(to ceph.Target, sp *spec) bool {
	if len(c.quorum()) == 0 {
		return false
	}
	if sp.mgr {
		return c.mgr.serving()
	}
	return true
}

func (c *Cluster) run(to ceph.Target, sp *spec, cmd ceph.Command, wire []byte) reply {
	if to != ceph.ToMon && to != ceph.ToMgr {
		c.t.Errorf("cephtest: no commands of single daemons are known: %s to %s", cmd, to)
		return fail(syscall.EINVAL, "command not known")
	}
	if sp.mgr != (to == ceph.ToMgr) {
		c.t.Errorf("cephtest: %s sent to the wrong daemon (%s)", cmd, to)
		return fail(syscall.EINVAL, "command not known")
	}
	a, err := parseArgs(sp, wire)
	if err != nil {
		c.t.Errorf("cephtest: %s: %v", cmd, err)
		return fail(syscall.EINVAL, "%v", err)
	}
	a.in = cmd.In
	return sp.run(c, a)
}

// reply is what a command answers.
type reply struct {
	out    []byte
	status string
	errno  syscall.Errno
}

func fail(errno syscall.Errno, format string, a ...any) reply {
	return reply{errno: errno, status: fmt.Sprintf(format, a...)}
}

func done(format string, a ...any) reply { return reply{status: fmt.Sprintf(format, a...)} }

// jsonReply writes v the way mons do: after a blank line.
func jsonReply(v any) reply {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cephtest: encoding a reply: %v", err))
	}
	return reply{out: append([]byte("\n"), b...)}
}

type obj = map[string]any

// stamp writes a time as Ceph does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+0000") }

// versionLine is what daemons report as their version.
func versionLine(v string) string {
	return fmt.Sprintf("ceph version %s (7f793731f1b39eb4f465e960113d2363c311b964) %s (stable - RelWithDebInfo)", v, releaseName(v))
}

func releaseName(v string) string {
	major, _, _ := strings.Cut(v, ".")
	if n, ok := map[string]string{"18": "reef", "19": "squid", "20": "tentacle", "21": "umbrella"}[major]; ok {
		return n
	}
	return "unknown"
}

func releaseNumber(name string) int {
	return map[string]int{"quincy": 17, "reef": 18, "squid": 19, "tentacle": 20, "umbrella": 21}[name]
}
