package kittest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/castellan-storage/castellan/internal/kit"
)

// Mode is how the process dies at an effect.
type Mode int

const (
	// Before has the process die when all is decided and nothing is done.
	Before Mode = iota
	// After has it die when the effect is done, with the answer in hand.
	After
	// ReplyLost has the effect done and the pass see an error instead of the answer; it
	// goes its way, and the process dies at its next effect or at the end of the pass.
	ReplyLost
)

// String names the mode as in the name of a subtest.
func (m Mode) String() string {
	return [...]string{"before", "after", "reply-lost"}[m]
}

// Driver makes the reconciler of one controller, with empty memory. Drive makes one.
type Driver func(env kit.Env) Runner

// Runner is one controller of a process.
type Runner struct {
	Name      string
	Reconcile reconcile.Reconciler
	// Keys gives what is to be reconciled, as its watches would.
	Keys func(ctx context.Context, c client.Reader) ([]kit.Key, error)
}

// Drive makes the Driver of a controller. ctl is called for every new process, so
// whatever the controller remembers is lost in a crash.
func Drive[T kit.Object, S any](ctl func(env kit.Env) kit.Controller[T, S], opt kit.Options, keys func(context.Context, client.Reader) ([]kit.Key, error)) Driver {
	return func(env kit.Env) Runner {
		return Runner{Name: opt.Name, Reconcile: kit.NewReconciler(ctl(env), env, opt), Keys: keys}
	}
}

// KeysOf gives the keys of all objects of a kind, in namespace ("" for all).
func KeysOf(list client.ObjectList, namespace string) func(context.Context, client.Reader) ([]kit.Key, error) {
	return func(ctx context.Context, c client.Reader) ([]kit.Key, error) {
		fresh, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return nil, fmt.Errorf("copying %T: not a list", list)
		}
		if err := c.List(ctx, fresh, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		var keys []kit.Key
		err := meta.EachListItem(fresh, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			keys = append(keys, kit.Key{Namespace: m.GetNamespace(), Name: m.GetName()})
			return nil
		})
		return keys, err
	}
}

// World is everything outside the process, fresh for every run.
type World struct {
	// Env has at least Client. Hook and Clock are set by the run; Live is Client if
	// nil.
	Env kit.Env
	// Drivers are the controllers of the process.
	Drivers []Driver
	// Step lets the rest of the world move on by one step (a kubelet, a Deployment's
	// controller, Ceph) and says whether anything changed. nil if there is nothing else.
	Step func(ctx context.Context) (changed bool, err error)
	// Check looks at the world after every effect, and says which invariant is broken.
	// nil checks none.
	Check func(ctx context.Context, e kit.Effect) error
	// Start is when the clock of the run starts; Stopped() if zero. On a real API server
	// it is the real time, since objects there carry it.
	Start time.Time
	// Time is given the clock of the run before anything happens: for a world whose
	// objects carry times.
	Time func(now func() time.Time)
	// Digest gives the state that must be the same in the end, however the run was
	// interrupted: usually Digest of this package, with Ceph's maps added.
	Digest func(ctx context.Context) (string, error)
	// Data is for the acts of a scenario: what they know of their world.
	Data any
	// Cache is what the drivers read, if that is not what is there. A run ends when it
	// has caught up and still nothing happens.
	Cache *Cache
	// Told is what tells which keys there are, as watches do; Env.Client if nil. It is for
	// an Env.Client whose requests fail.
	Told client.Reader
	// Fork gives a world of its own in the state of this one; nothing but a process that
	// is about to die is at work in it. With it nothing is played twice: see Run. nil has
	// every run start from nothing.
	Fork func(t testing.TB) *World
	// State says in short in which state the world is, where all are on the way of one
	// run: how much has been written and how much time has passed. It goes with Fork.
	State func() string
}

// Act is something that a user does. After it, the world runs until it is quiet.
type Act struct {
	Name string
	Do   func(ctx context.Context, w *World) error
	// Setup says that the act only brings the world to where the scenario begins: there
	// is no crash at its effects, nor at those of acts before it.
	Setup bool
	// Restart has the process start anew after the act, as with a new version of it.
	Restart bool
	// Look says that the act changes nothing, so the world is not run after it.
	Look bool
}

// Scenario is a world and what happens in it.
type Scenario struct {
	// World makes a fresh world.
	World func(t testing.TB) *World
	// Acts happen one after another.
	Acts []Act
	// Settle is for how long, in the time of the world, nothing may happen until the
	// world is quiet; 2 minutes if zero.
	Settle time.Duration
	// Rounds bounds a run; 1000 if zero. A round reconciles every key once.
	Rounds int
	// Extra is how many rounds more than the run without faults one with a crash may
	// take; 10 if zero.
	Extra int
	// Every takes only every so many effects, for slow worlds; 1 if zero.
	Every int
	// Pick takes only the effects for which it says so; all if nil. It comes after Setup
	// and Every.
	Pick func(k int) bool
	// Modes are all if nil.
	Modes []Mode
	// Pairs is how many runs with two crashes there are besides, at effects and in modes
	// that come from Seed.
	Pairs int
	Seed  uint64
	// Whole has Run prove that forks are true copies: a world that was never copied has to
	// come to the same end. It costs another run from nothing.
	Whole bool
	// Begin names World and the acts that are Setup, and Setups keeps the worlds in which
	// they are done: scenarios that begin alike have the way there in common. Without
	// them every scenario goes it by itself.
	Begin  string
	Setups *Setups
	// Parallel has runs go on at the same time, as many as go test -parallel allows.
	// Worlds must have nothing in common then.
	Parallel bool
}

// Result tells what was run.
type Result struct {
	// Effects of the run without faults, in order.
	Effects []kit.Effect
	// Digest of its end.
	Digest string
	// Runs with a crash, and Twice how many of them have crashed twice. Same are those
	// that were not played to the end, since the crash left what another one had left.
	Runs, Twice, Same int
	// Setup is how many of Effects came before the scenario's own acts.
	Setup int
	// Rounds in which something happened.
	Rounds int
	// End is the world in which the run without faults, or that of Play, has ended.
	End *World
}

// Trace gives all effects, for the message of a failure.
func (r Result) Trace() string { return r.trace(nil) }

// trace marks the effects of crashes.
func (r Result) trace(crashes []Crash) string {
	var b strings.Builder
	b.WriteString("effects:\n")
	for i, e := range r.Effects {
		mark := "  "
		if slices.ContainsFunc(crashes, func(c Crash) bool { return c.K == i+1 }) {
			mark = "* "
		}
		fmt.Fprintf(&b, "%s%d %s\n", mark, i+1, e)
	}
	return b.String()
}

// Crash is the death of a process at an effect.
type Crash struct {
	// K is the number of the effect in its run, from 1.
	K    int
	Mode Mode
	// maybe says that the run may end before it.
	maybe bool
}

// String names it as in the name of a subtest.
func (c Crash) String() string { return fmt.Sprintf("%03d-%s", c.K, c.Mode) }

// Run runs a scenario without faults, and then with a crash at every effect in every
// mode, each in a fresh world and a subtest of its own. The test fails if a run does
// not come to an end, ends in another state, breaks an invariant, or if the quiet
// world still sees effects.
//
// Where worlds can be forked, a run with a crash begins where the crash has left the
// run without faults: what is after it is played, by a new process, and not what is
// before. A pass that has to go on without its reply begins with its round. A crash
// that leaves the very state that another one leaves is the same run, since a new
// process knows nothing but the world; it is counted and not played again.
func Run(t *testing.T, s Scenario) Result {
	t.Helper()
	from, err := s.begin(t)
	if err != nil {
		t.Fatalf("setting up: %v", err)
	}
	m := &marks{t: t, s: s, after: map[int]beginning{}, before: map[int]beginning{}, rounds: map[int]beginning{}, known: map[string]bool{}}
	base, _, err := from.play(t, s, m)
	if err != nil {
		t.Fatalf("without faults: %v", err)
	}
	if from.world != nil && s.Whole {
		whole, _, err := beginning{}.play(t, s, nil)
		if err != nil {
			t.Fatalf("without faults and forks: %v", err)
		}
		if d := cmp.Diff(lines(whole.Digest), lines(base.Digest)); d != "" {
			t.Fatalf("a fork comes to another end (-without +with):\n%s", d)
		}
	}
	plans := append(s.singles(base, from, m), s.pairs(base, m)...)
	var mu sync.Mutex
	t.Run("crash", func(t *testing.T) {
		for _, p := range plans {
			base.Runs++
			if p.same {
				base.Same++
				continue
			}
			t.Run(p.name(base), func(t *testing.T) {
				if s.Parallel {
					t.Parallel()
				}
				same, twice := p.run(t, s, base, from, m)
				mu.Lock()
				defer mu.Unlock()
				base.Same += same
				base.Twice += twice
			})
		}
	})
	return base
}

// plan is a run with a crash, or two.
type plan struct {
	first Crash
	// from is where it begins; dead says that the first crash has happened there.
	from beginning
	dead bool
	more []Crash
	// same says that another plan begins in the same state.
	same bool
}

func (p plan) name(base Result) string {
	name := p.first.String()
	for _, c := range p.more {
		name += "+" + c.String()
	}
	return name + "-" + slug(base.Effects[p.first.K-1])
}

// run plays a plan, and says whether it was found to be another one, and whether there
// were two crashes.
func (p plan) run(t *testing.T, s Scenario, base Result, from beginning, m *marks) (same, twice int) {
	t.Helper()
	crashes := slices.Clone(p.more)
	if !p.dead {
		crashes = append([]Crash{p.first}, crashes...)
	}
	s.Rounds = (1+len(p.more))*orElse(s.Extra, 10) + base.Rounds
	var watch watcher
	if !p.dead && p.from.driving {
		watch = (*known)(m)
	}
	got, fired, err := p.from.play(t, s, watch, crashes...)
	if errors.Is(err, errSame) {
		return 1, 0
	}
	if !p.dead && p.from.driving && got.what(p.first.K) != base.what(p.first.K) {
		// The new process took another way than the old one: this run says nothing about the
		// effect, so all is played.
		got, fired, err = from.play(t, s, nil, crashes...)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(lines(base.Digest), lines(got.Digest)); d != "" {
		t.Errorf("the end differs from the run without faults (-without +with):\n%s\n%s", d, got.trace(append(crashes, p.first)))
	}
	if len(p.more) > 0 && fired == len(crashes) {
		twice = 1
	}
	return 0, twice
}

// what is an effect.
func (r Result) what(k int) string {
	if k > len(r.Effects) {
		return ""
	}
	return r.Effects[k-1].Controller + " " + r.Effects[k-1].What
}

// singles are the runs with one crash.
func (s Scenario) singles(base Result, from beginning, m *marks) []plan {
	var plans []plan
	for k := base.Setup + 1; k <= len(base.Effects); k++ {
		if !s.wants(k, base.Setup) {
			continue
		}
		for _, mode := range s.modes() {
			p := plan{first: Crash{K: k, Mode: mode}, from: from}
			var at beginning
			switch mode {
			case Before:
				at, p.dead = m.before[k], true
			case After:
				at, p.dead = m.after[k], true
			case ReplyLost:
				at = m.rounds[k]
			}
			if at.world == nil {
				p.dead = false
			} else {
				p.from = at
			}
			if p.dead {
				fp := fingerprint(at.world, at.now, at.acts)
				p.same, m.known[fp] = m.known[fp], true
			}
			plans = append(plans, p)
		}
	}
	return plans
}

// wants says whether there are crashes at an effect.
func (s Scenario) wants(k, setup int) bool {
	return k > setup && (k-setup-1)%max(s.Every, 1) == 0 && (s.Pick == nil || s.Pick(k))
}

// pairs are the runs with two crashes: one after any effect, and one later.
func (s Scenario) pairs(base Result, m *marks) []plan {
	first := slices.Sorted(maps.Keys(m.after))
	if len(first) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(s.Seed, 2))
	var plans []plan
	for range s.Pairs {
		k := first[rng.IntN(len(first))]
		// After a crash there are more effects than without, and most of what is interesting
		// comes soon after it.
		left := len(base.Effects) - k + 6
		next := Crash{K: k + 1 + min(rng.IntN(left), rng.IntN(left)), Mode: s.modes()[rng.IntN(len(s.modes()))], maybe: true}
		plans = append(plans, plan{first: Crash{K: k, Mode: After}, from: m.after[k], dead: true, more: []Crash{next}})
	}
	return plans
}

// watcher is told how a run goes.
type watcher interface {
	// round begins, effect comes or has been, or the process has died for the last time.
	round(r *running)
	effect(r *running, k int, begun bool)
	dead(r *running) error
}

// marks are states of the run without faults, from which others go on.
type marks struct {
	t testing.TB
	s Scenario
	// by effect: just before it and just after it, and when its round began.
	before, after, rounds map[int]beginning
	now                   beginning
	// known are the states from which a run goes on.
	known map[string]bool
}

func (m *marks) round(r *running) {
	if r.w.Fork != nil {
		m.now = r.mark(m.t)
	}
}

func (m *marks) effect(r *running, k int, begun bool) {
	if r.w.Fork == nil || k <= r.setup {
		return
	}
	wanted := m.s.wants(k, r.setup)
	switch {
	case begun && wanted:
		m.before[k], m.rounds[k] = r.mark(m.t), m.now
	case !begun && (wanted || m.s.Pairs > 0):
		m.after[k] = r.mark(m.t)
	}
}

func (m *marks) dead(*running) error { return nil }

// errSame ends a run that has come to a state from which another one goes on.
var errSame = errors.New("another run goes on from here")

// known ends runs that come to the state of a mark.
type known marks

func (k *known) round(*running)             {}
func (k *known) effect(*running, int, bool) {}
func (k *known) dead(r *running) error {
	if k.known[fingerprint(r.w, r.clock.Now(), r.acts)] {
		return errSame
	}
	return nil
}

// fingerprint of a state: worlds on the way of one run that have it are the same.
func fingerprint(w *World, now time.Time, acts int) string {
	return fmt.Sprintf("%s at %d after %d acts", w.State(), now.UnixNano(), acts)
}

func (s Scenario) modes() []Mode {
	if s.Modes == nil {
		return []Mode{Before, After, ReplyLost}
	}
	return s.Modes
}

// Play runs a scenario once, with a crash at effect k (0: none). The error says what
// is wrong with the run in itself: it does not come to an end, fails, breaks an
// invariant, is not steady afterwards, or never reaches effect k. The digest is left
// to the caller.
func Play(t testing.TB, s Scenario, k int, mode Mode) (Result, error) {
	t.Helper()
	var crashes []Crash
	if k > 0 {
		crashes = []Crash{{K: k, Mode: mode}}
	}
	from := beginning{}
	if s.Setups != nil {
		var err error
		if from, err = s.begin(t); err != nil {
			return Result{}, fmt.Errorf("setting up: %w", err)
		}
	}
	res, _, err := from.play(t, s, nil, crashes...)
	return res, err
}

// beginning is where runs start: from nothing, or in forks of a world.
type beginning struct {
	world *World
	now   time.Time
	// acts have been done, setup of the effects belong to Setup.
	acts, setup int
	effects     []kit.Effect
	// driving says that the world has not come to rest after the last act.
	driving bool
}

// Setups are worlds at the beginning of scenarios, by Begin. The zero value is ready for
// use; tests that run at the same time may share it.
type Setups struct {
	mu     sync.Mutex
	worlds map[string]*setup
}

// setup is made by the first scenario that begins with it.
type setup struct {
	once sync.Once
	from beginning
	err  error
}

func (s *Setups) of(name string) *setup {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worlds == nil {
		s.worlds = map[string]*setup{}
	}
	if s.worlds[name] == nil {
		s.worlds[name] = &setup{}
	}
	return s.worlds[name]
}

// Begin gives a copy of the world in which all that is Setup is done, and the time in it.
// World has to know how to fork.
func Begin(t testing.TB, s Scenario) (*World, time.Time) {
	t.Helper()
	from, err := s.begin(t)
	if err != nil {
		t.Fatalf("setting up: %v", err)
	}
	if from.world == nil {
		t.Fatal("setting up: nothing is Setup in this scenario, or its world cannot be copied")
	}
	return from.world.Fork(t), from.now
}

// begin is where the scenario's own acts begin.
func (s Scenario) begin(t testing.TB) (beginning, error) {
	t.Helper()
	if s.Setups == nil || s.Begin == "" {
		return prepare(t, s)
	}
	b := s.Setups.of(s.Begin)
	b.once.Do(func() {
		// Should the test end in the midst of it, the next one is told so.
		b.err = errors.New("the test that set this world up has failed")
		b.from, b.err = prepare(t, s)
		if b.err == nil && b.from.world != nil {
			// What the test that made it cleans up at its end does not concern a copy.
			b.from.world = b.from.world.Fork(t)
		}
	})
	return b.from, b.err
}

// prepare does what is Setup, if the world can be forked.
func prepare(t testing.TB, s Scenario) (beginning, error) {
	t.Helper()
	acts := 0
	for i, a := range s.Acts {
		if a.Setup {
			acts = i + 1
		}
	}
	if acts == 0 {
		return beginning{}, nil
	}
	w := s.World(t)
	if w.Fork == nil {
		return beginning{}, nil
	}
	ctx := log.IntoContext(t.Context(), logr.Discard())
	s.Acts = s.Acts[:acts]
	r := start(ctx, s, w, beginning{}, nil)
	err := r.play(ctx)
	effects := r.hook.effects
	if err != nil {
		return beginning{}, fmt.Errorf("%w\n%s", err, Result{Effects: effects}.trace(nil))
	}
	return beginning{world: w, now: r.clock.Now(), acts: acts, setup: len(effects), effects: effects}, nil
}

// start makes a run.
func start(ctx context.Context, s Scenario, w *World, from beginning, watch watcher, crashes ...Crash) *running {
	h := &hook{crashes: crashes, effects: slices.Clone(from.effects), check: func(e kit.Effect) error {
		if w.Check == nil {
			return nil
		}
		return w.Check(ctx, e)
	}}
	at := from.now
	if at.IsZero() {
		at = w.Start
	}
	if at.IsZero() {
		at = Stopped()
	}
	r := &running{s: s, w: w, hook: h, clock: clocktesting.NewFakeClock(at), setup: from.setup, acts: from.acts, driving: from.driving, watch: watch}
	if watch != nil {
		h.seen = func(k int, begun bool) { watch.effect(r, k, begun) }
	}
	w.Env.Hook, w.Env.Clock = h, r.clock
	if w.Time != nil {
		w.Time(r.clock.Now)
	}
	return r
}

// play runs a scenario once from the beginning on, and says how many of the crashes
// there were.
func (b beginning) play(t testing.TB, s Scenario, watch watcher, crashes ...Crash) (Result, int, error) {
	t.Helper()
	// The trace tells what a log would; it is printed if something is wrong.
	ctx := log.IntoContext(t.Context(), logr.Discard())
	var w *World
	if b.world != nil {
		w = b.world.Fork(t)
	} else {
		w = s.World(t)
	}
	r := start(ctx, s, w, b, watch, crashes...)
	err := r.play(ctx)
	res := Result{Effects: r.hook.effects, Rounds: r.rounds, Setup: r.setup, End: w}
	if err == nil && len(crashes) > 0 && r.hook.fired == 0 && !crashes[0].maybe {
		err = fmt.Errorf("effect %d did not come: the run cannot be repeated", crashes[0].K)
	}
	if err == nil && w.Digest != nil {
		res.Digest, err = w.Digest(ctx)
	}
	if err != nil {
		return res, r.hook.fired, fmt.Errorf("%w\n%s", err, res.trace(crashes))
	}
	return res, r.hook.fired, nil
}

func lines(s string) []string { return strings.Split(s, "\n") }

func slug(e kit.Effect) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '/' {
			return '_'
		}
		return r
	}, e.Controller+"_"+e.What)
}

func orElse(n, other int) int {
	if n == 0 {
		return other
	}
	return n
}

// running is one run of a scenario.
type running struct {
	s       Scenario
	w       *World
	hook    *hook
	clock   *clocktesting.FakeClock
	runners []Runner // what is lost in a crash
	// due are the passes that were asked for, and when; failing is what went wrong in the
	// last passes of keys.
	due     map[pass]time.Time
	failing map[pass]string
	rounds  int
	setup   int
	// acts have been done; driving says that the world moves after the last of them.
	acts    int
	driving bool
	watch   watcher
}

// mark is where the run is now, as the beginning of others.
func (r *running) mark(t testing.TB) beginning {
	w := r.w.Fork(t)
	return beginning{world: w, now: r.clock.Now(), acts: r.acts, setup: r.setup, effects: slices.Clone(r.hook.effects), driving: true}
}

func (r *running) boot() {
	if r.w.Cache != nil {
		r.w.Cache.Restart()
	}
	r.runners, r.due, r.failing = nil, map[pass]time.Time{}, map[pass]string{}
	for _, d := range r.w.Drivers {
		r.runners = append(r.runners, d(r.w.Env))
	}
}

func (r *running) play(ctx context.Context) error {
	r.boot()
	if r.driving {
		if err := r.drive(ctx); err != nil {
			return fmt.Errorf("after %q: %w", r.s.Acts[r.acts-1].Name, err)
		}
	}
	for _, act := range r.s.Acts[r.acts:] {
		r.acts++
		if err := act.Do(ctx, r.w); err != nil {
			return fmt.Errorf("%s: %w", act.Name, err)
		}
		if act.Restart {
			r.boot()
		}
		if act.Look {
			continue
		}
		if err := r.drive(ctx); err != nil {
			return fmt.Errorf("after %q: %w", act.Name, err)
		}
		if act.Setup {
			r.setup = len(r.hook.effects)
		}
	}
	if err := errors.Join(r.hook.broken...); err != nil {
		return err
	}
	return r.steady(ctx)
}

// drive reconciles everything until nothing happens for the time of Settle. As long as
// something happens every key has a pass in every round, as if watches had told it. In
// a quiet world only those have one that have asked for it.
func (r *running) drive(ctx context.Context) error {
	settle := r.s.Settle
	if settle == 0 {
		settle = 2 * time.Minute
	}
	bound := orElse(r.s.Rounds, 1000)
	quiet := time.Duration(0)
	all := true
	for {
		if r.watch != nil {
			r.watch.round(r)
		}
		before := r.hook.total()
		changed := false
		if r.w.Step != nil {
			var err error
			if changed, err = r.w.Step(ctx); err != nil {
				return fmt.Errorf("moving the world: %w", err)
			}
		}
		if err := r.round(ctx, all || changed); err != nil {
			return err
		}
		if r.w.Cache != nil {
			if quiet >= settle/2 {
				r.w.Cache.Sync()
			}
			changed = r.w.Cache.News() || changed
		}
		all = changed || r.hook.total() != before
		if all {
			quiet = 0
			if r.rounds++; r.rounds > bound {
				return fmt.Errorf("not quiet after %d rounds", bound)
			}
			r.clock.Step(10 * time.Millisecond)
			continue
		}
		if quiet >= settle {
			if len(r.failing) > 0 {
				return fmt.Errorf("quiet, but failing: %s", strings.Join(slices.Sorted(maps.Values(r.failing)), "; "))
			}
			return nil
		}
		after := settle - quiet
		for p, at := range r.due {
			left := at.Sub(r.clock.Now())
			if left <= 0 {
				// It was due and has not had its pass: there is no such key any more.
				delete(r.due, p)
				delete(r.failing, p)
				continue
			}
			after = min(after, left)
		}
		r.clock.Step(after)
		quiet += after
	}
}

// pass is what is reconciled: a key of a controller.
type pass struct {
	controller string
	key        kit.Key
}

// round reconciles every key once, or those that are due, or until the process dies,
// and then starts a new one.
func (r *running) round(ctx context.Context, all bool) error {
	told := r.w.Told
	if told == nil {
		told = r.w.Env.Client
	}
	for _, runner := range r.runners {
		keys, err := runner.Keys(ctx, told)
		if err != nil {
			return fmt.Errorf("finding the keys of %s: %w", runner.Name, err)
		}
		for _, key := range keys {
			p := pass{runner.Name, key}
			if at, known := r.due[p]; !all && (!known || at.After(r.clock.Now())) {
				continue
			}
			delete(r.due, p)
			delete(r.failing, p)
			res, err := runner.Reconcile.Reconcile(ctx, reconcile.Request{NamespacedName: key})
			if r.hook.dead() {
				r.hook.revive()
				r.boot()
				if r.watch != nil && len(r.hook.crashes) == 0 {
					return r.watch.dead(r)
				}
				return nil
			}
			if err != nil {
				r.failing[p] = fmt.Sprintf("%s %s: %v", runner.Name, key, err)
				res.RequeueAfter = time.Second
			}
			if res.RequeueAfter > 0 {
				r.due[p] = r.clock.Now().Add(res.RequeueAfter)
			}
		}
	}
	return nil
}

// steady makes one more round, with a new process, which must not do anything.
func (r *running) steady(ctx context.Context) error {
	before := len(r.hook.effects)
	r.boot()
	if r.w.Cache != nil {
		return r.drive(ctx) // what a new process reads first may be behind: it must find its way back
	}
	if err := r.round(ctx, true); err != nil {
		return err
	}
	if len(r.failing) > 0 {
		return fmt.Errorf("one more round fails: %s", strings.Join(slices.Sorted(maps.Values(r.failing)), "; "))
	}
	if extra := r.hook.effects[before:]; len(extra) > 0 {
		return fmt.Errorf("the world was quiet, and a new process still did: %v", extra)
	}
	return nil
}

// hook counts effects and kills the process at some of them.
type hook struct {
	mu      sync.Mutex
	crashes []Crash // still to come, in order
	mode    Mode    // of the last one
	check   func(kit.Effect) error
	seen    func(k int, begun bool) // may be nil
	effects []kit.Effect
	open    []int // numbers of the effects between Before and After; a Step is within its action
	fired   int
	dying   bool
	deaths  int
	broken  []error
}

// due says whether the process dies at effect n, if the effect is begun, or done.
func (h *hook) due(n int, begun bool) bool {
	if len(h.crashes) == 0 || h.crashes[0].K != n || (h.crashes[0].Mode == Before) != begun {
		return false
	}
	h.mode, h.crashes = h.crashes[0].Mode, h.crashes[1:]
	h.fired++
	h.dying = true
	return true
}

type killed struct{}

// Error implements error.
func (killed) Error() string { return "the process was killed" }

// Before implements kit.Hook.
func (h *hook) Before(_ context.Context, e kit.Effect) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dying {
		return killed{}
	}
	h.effects = append(h.effects, e)
	if h.seen != nil {
		h.seen(len(h.effects), true)
	}
	if h.due(len(h.effects), true) {
		return killed{}
	}
	h.open = append(h.open, len(h.effects))
	return nil
}

// After implements kit.Hook.
func (h *hook) After(_ context.Context, e kit.Effect, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.open[len(h.open)-1]
	h.open = h.open[:len(h.open)-1]
	if h.dying {
		if h.mode == ReplyLost {
			return nil // an effect within this one has lost its reply; the pass goes on until its next effect
		}
		return killed{}
	}
	if bad := h.check(e); bad != nil {
		h.broken = append(h.broken, fmt.Errorf("after effect %d (%s): %w", n, e.What, bad))
	}
	if h.seen != nil {
		h.seen(n, false)
	}
	if !h.due(n, false) {
		return nil
	}
	if h.mode == ReplyLost && err == nil {
		return &kit.ReplyLostError{Effect: e}
	}
	return killed{}
}

func (h *hook) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dying
}

func (h *hook) revive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dying = false
	h.open = nil
	h.deaths++
}

func (h *hook) total() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.effects) + h.deaths
}

// IsKilled says whether an error of Reconcile is the death of the process.
func IsKilled(err error) bool {
	_, ok := errors.AsType[killed](err)
	return ok
}
