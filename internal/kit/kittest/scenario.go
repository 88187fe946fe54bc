package kittest

import (
	"context"
	"errors"
	"fmt"
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
}

// Result tells what was run.
type Result struct {
	// Effects of the run without faults, in order.
	Effects []kit.Effect
	// Digest of its end.
	Digest string
	// Runs with a crash.
	Runs int
	// Setup is how many of Effects came before the scenario's own acts.
	Setup int
	// Rounds in which something happened.
	Rounds int
}

// trace gives all effects, for the message of a failure.
func (r Result) trace(k int) string {
	var b strings.Builder
	b.WriteString("effects:\n")
	for i, e := range r.Effects {
		mark := "  "
		if i+1 == k {
			mark = "* "
		}
		fmt.Fprintf(&b, "%s%d %s\n", mark, i+1, e)
	}
	return b.String()
}

// Run runs a scenario without faults, and then with a crash at every effect in every
// mode, each in a fresh world and a subtest of its own. The test fails if a run does
// not come to an end, ends in another state, breaks an invariant, or if the quiet
// world still sees effects.
func Run(t *testing.T, s Scenario) Result {
	t.Helper()
	base, err := Play(t, s, 0, Before)
	if err != nil {
		t.Fatalf("without faults: %v", err)
	}
	modes := s.Modes
	if modes == nil {
		modes = []Mode{Before, After, ReplyLost}
	}
	for k := base.Setup + 1; k <= len(base.Effects); k += max(s.Every, 1) {
		if s.Pick != nil && !s.Pick(k) {
			continue
		}
		for _, mode := range modes {
			base.Runs++
			name := fmt.Sprintf("%03d-%s-%s", k, mode, slug(base.Effects[k-1]))
			t.Run(name, func(t *testing.T) {
				bounded := s
				bounded.Rounds = base.Rounds + orElse(s.Extra, 10)
				got, err := Play(t, bounded, k, mode)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(lines(base.Digest), lines(got.Digest)); d != "" {
					t.Errorf("the end differs from the run without faults (-without +with):\n%s\n%s", d, got.trace(k))
				}
			})
		}
	}
	return base
}

// Play runs a scenario once, with a crash at effect k (0: none). The error says what
// is wrong with the run in itself: it does not come to an end, fails, breaks an
// invariant, is not steady afterwards, or never reaches effect k. The digest is left
// to the caller.
func Play(t testing.TB, s Scenario, k int, mode Mode) (Result, error) {
	t.Helper()
	// The trace tells what a log would; it is printed if something is wrong.
	ctx := log.IntoContext(t.Context(), logr.Discard())
	w := s.World(t)
	h := &hook{k: k, mode: mode, check: func(e kit.Effect) error {
		if w.Check == nil {
			return nil
		}
		return w.Check(ctx, e)
	}}
	start := w.Start
	if start.IsZero() {
		start = Stopped()
	}
	r := &running{s: s, w: w, hook: h, clock: clocktesting.NewFakeClock(start)}
	w.Env.Hook, w.Env.Clock = h, r.clock
	if w.Time != nil {
		w.Time(r.clock.Now)
	}
	err := r.play(ctx)
	res := Result{Effects: h.effects, Rounds: r.rounds, Setup: r.setup}
	if err == nil && w.Digest != nil {
		res.Digest, err = w.Digest(ctx)
	}
	if err != nil {
		return res, fmt.Errorf("%w\n%s", err, res.trace(k))
	}
	return res, nil
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
	rounds  int
	setup   int
}

func (r *running) boot() {
	r.runners = nil
	for _, d := range r.w.Drivers {
		r.runners = append(r.runners, d(r.w.Env))
	}
}

func (r *running) play(ctx context.Context) error {
	r.boot()
	for _, act := range r.s.Acts {
		if err := act.Do(ctx, r.w); err != nil {
			return fmt.Errorf("%s: %w", act.Name, err)
		}
		if act.Restart {
			r.boot()
		}
		if err := r.drive(ctx); err != nil {
			return fmt.Errorf("after %q: %w", act.Name, err)
		}
		if act.Setup {
			r.setup = len(r.hook.effects)
		}
	}
	if r.hook.k > 0 && !r.hook.fired {
		return fmt.Errorf("effect %d did not come: the run cannot be repeated", r.hook.k)
	}
	if err := errors.Join(r.hook.broken...); err != nil {
		return err
	}
	return r.steady(ctx)
}

// drive reconciles everything until nothing happens for the time of Settle.
func (r *running) drive(ctx context.Context) error {
	settle := r.s.Settle
	if settle == 0 {
		settle = 2 * time.Minute
	}
	bound := orElse(r.s.Rounds, 1000)
	quiet := time.Duration(0)
	for {
		before := r.hook.total()
		changed := false
		if r.w.Step != nil {
			var err error
			if changed, err = r.w.Step(ctx); err != nil {
				return fmt.Errorf("moving the world: %w", err)
			}
		}
		after, failures, err := r.round(ctx)
		if err != nil {
			return err
		}
		if changed || r.hook.total() != before {
			quiet = 0
			if r.rounds++; r.rounds > bound {
				return fmt.Errorf("not quiet after %d rounds", bound)
			}
			r.clock.Step(10 * time.Millisecond)
			continue
		}
		if quiet >= settle {
			if len(failures) > 0 {
				return fmt.Errorf("quiet, but failing: %s", strings.Join(failures, "; "))
			}
			return nil
		}
		if after == 0 {
			after = settle
		}
		r.clock.Step(after)
		quiet += after
	}
}

// round reconciles every key once, or until the process dies, and then starts a new
// one. after is the smallest time that a pass asked for.
func (r *running) round(ctx context.Context) (after time.Duration, failures []string, err error) {
	for _, runner := range r.runners {
		keys, err := runner.Keys(ctx, r.w.Env.Client)
		if err != nil {
			return 0, nil, fmt.Errorf("finding the keys of %s: %w", runner.Name, err)
		}
		for _, key := range keys {
			res, err := runner.Reconcile.Reconcile(ctx, reconcile.Request{NamespacedName: key})
			if r.hook.dead() {
				r.hook.revive()
				r.boot()
				return 0, nil, nil
			}
			if err != nil {
				failures = append(failures, fmt.Sprintf("%s %s: %v", runner.Name, key, err))
				res.RequeueAfter = time.Second
			}
			if res.RequeueAfter > 0 && (after == 0 || res.RequeueAfter < after) {
				after = res.RequeueAfter
			}
		}
	}
	return after, failures, nil
}

// steady makes one more round, with a new process, which must not do anything.
func (r *running) steady(ctx context.Context) error {
	before := len(r.hook.effects)
	r.boot()
	_, failures, err := r.round(ctx)
	if err != nil {
		return err
	}
	if len(failures) > 0 {
		return fmt.Errorf("one more round fails: %s", strings.Join(failures, "; "))
	}
	if extra := r.hook.effects[before:]; len(extra) > 0 {
		return fmt.Errorf("the world was quiet, and a new process still did: %v", extra)
	}
	return nil
}

// hook counts effects and kills the process at one of them.
type hook struct {
	mu      sync.Mutex
	k       int // 0: none
	mode    Mode
	check   func(kit.Effect) error
	effects []kit.Effect
	open    []int // numbers of the effects between Before and After; a Step is within its action
	fired   bool
	dying   bool
	crashes int
	broken  []error
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
	if h.k == len(h.effects) && !h.fired && h.mode == Before {
		h.fired, h.dying = true, true
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
	if h.k != n || h.fired {
		return nil
	}
	h.fired, h.dying = true, true
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
	h.crashes++
}

func (h *hook) total() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.effects) + h.crashes
}

// IsKilled says whether an error of Reconcile is the death of the process.
func IsKilled(err error) bool {
	_, ok := errors.AsType[killed](err)
	return ok
}
