package kittest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/castellan-storage/castellan/internal/kit"
)

// Mode is how the process dies at an effect.
type Mode int

const (
	// Before: all is decided, nothing is done.
	Before Mode = iota
	// After: the effect is done, and the process dies with the answer in hand.
	After
	// ReplyLost: the effect is done, the pass sees an error instead of the answer and
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
	// Digest gives the state that must be the same in the end, however the run was
	// interrupted: usually Digest of this package, with Ceph's maps added.
	Digest func(ctx context.Context) (string, error)
}

// Act is something that a user does. After it, the world runs until it is quiet.
type Act struct {
	Name string
	Do   func(ctx context.Context, w *World) error
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
	// SteadyWrites are the effects of one more round after the end; always 0, or the
	// test has failed.
	SteadyWrites int
}

// Run runs a scenario without faults, and then with a crash at every effect in every
// mode, each in a fresh world and a subtest of its own. The test fails if a run does
// not come to an end, ends in another state, breaks an invariant, or if the quiet
// world still sees effects.
func Run(t *testing.T, s Scenario) Result {
	t.Helper()
	base := s.run(t, fault{})
	if t.Failed() {
		return Result{Effects: base.hook.effects}
	}
	res := Result{Effects: base.hook.effects, Digest: base.digest}
	modes := s.Modes
	if modes == nil {
		modes = []Mode{Before, After, ReplyLost}
	}
	for k := 1; k <= len(res.Effects); k += max(s.Every, 1) {
		for _, mode := range modes {
			res.Runs++
			name := fmt.Sprintf("%03d-%s-%s", k, mode, slug(res.Effects[k-1]))
			t.Run(name, func(t *testing.T) {
				got := s.run(t, fault{k: k, mode: mode, rounds: base.rounds + orElse(s.Extra, 10)})
				if !got.hook.fired {
					t.Errorf("effect %d did not come: the run is not repeatable", k)
				}
				if d := cmp.Diff(lines(base.digest), lines(got.digest)); d != "" && !t.Failed() {
					t.Errorf("the end differs from the run without faults (-without +with):\n%s\n%s", d, got.hook.trace())
				}
			})
		}
	}
	return res
}

// RunOnce runs a scenario without faults.
func RunOnce(t *testing.T, s Scenario) Result {
	t.Helper()
	out := s.run(t, fault{})
	return Result{Effects: out.hook.effects, Digest: out.digest}
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

type fault struct {
	k      int // 0: none
	mode   Mode
	rounds int // bound, if not 0
}

type outcome struct {
	hook   *hook
	digest string
	rounds int
}

// process is what is lost in a crash.
type process struct{ runners []Runner }

// run makes one run in a fresh world.
func (s Scenario) run(t *testing.T, f fault) outcome {
	t.Helper()
	ctx := t.Context()
	w := s.World(t)
	clock := clocktesting.NewFakeClock(Stopped())
	h := &hook{fault: f, check: func(e kit.Effect) error {
		if w.Check == nil {
			return nil
		}
		return w.Check(ctx, e)
	}}
	w.Env.Hook, w.Env.Clock = h, clock
	out := outcome{hook: h}
	p := s.boot(w)
	for _, act := range s.Acts {
		if err := act.Do(ctx, w); err != nil {
			t.Fatalf("%s: %v", act.Name, err)
		}
		var err error
		if p, err = s.drive(ctx, w, p, clock, h, &out.rounds, f.rounds); err != nil {
			t.Fatalf("after %q: %v\n%s", act.Name, err, h.trace())
		}
	}
	for _, err := range h.broken {
		t.Errorf("%v\n%s", err, h.trace())
	}
	s.steady(ctx, t, w, p, h)
	if w.Digest != nil {
		var err error
		if out.digest, err = w.Digest(ctx); err != nil {
			t.Fatalf("taking the digest: %v", err)
		}
	}
	return out
}

func (s Scenario) boot(w *World) *process {
	p := &process{}
	for _, d := range w.Drivers {
		p.runners = append(p.runners, d(w.Env))
	}
	return p
}

// drive reconciles everything until nothing happens for the time of Settle.
func (s Scenario) drive(ctx context.Context, w *World, p *process, clock *clocktesting.FakeClock, h *hook, rounds *int, bound int) (*process, error) {
	settle := s.Settle
	if settle == 0 {
		settle = 2 * time.Minute
	}
	if bound == 0 {
		bound = orElse(s.Rounds, 1000)
	}
	quiet := time.Duration(0)
	var failures []string
	for {
		before := h.total()
		changed := false
		if w.Step != nil {
			var err error
			if changed, err = w.Step(ctx); err != nil {
				return p, fmt.Errorf("moving the world: %w", err)
			}
		}
		after, failed, crashed, err := s.round(ctx, w, p, h)
		if err != nil {
			return p, err
		}
		failures = failed
		if crashed {
			p = s.boot(w)
			quiet = 0
			*rounds++
			continue
		}
		if changed || h.total() != before {
			quiet = 0
			if *rounds++; *rounds > bound {
				return p, fmt.Errorf("not quiet after %d rounds", bound)
			}
			clock.Step(10 * time.Millisecond)
			continue
		}
		if quiet >= settle {
			break
		}
		if after == 0 {
			after = settle
		}
		clock.Step(after)
		quiet += after
	}
	if len(failures) > 0 {
		return p, fmt.Errorf("quiet, but failing: %s", strings.Join(failures, "; "))
	}
	return p, nil
}

// round reconciles every key once. after is the smallest time that a pass asked for.
func (s Scenario) round(ctx context.Context, w *World, p *process, h *hook) (after time.Duration, failures []string, crashed bool, err error) {
	for _, r := range p.runners {
		keys, err := r.Keys(ctx, w.Env.Client)
		if err != nil {
			return 0, nil, false, fmt.Errorf("finding the keys of %s: %w", r.Name, err)
		}
		for _, key := range keys {
			res, err := r.Reconcile.Reconcile(ctx, reconcile.Request{NamespacedName: key})
			if h.dead() {
				h.revive()
				return 0, nil, true, nil
			}
			if err != nil {
				failures = append(failures, fmt.Sprintf("%s %s: %v", r.Name, key, err))
				res.RequeueAfter = time.Second
			}
			if res.RequeueAfter > 0 && (after == 0 || res.RequeueAfter < after) {
				after = res.RequeueAfter
			}
		}
	}
	return after, failures, false, nil
}

// steady makes one more round, with a new process, which must not do anything.
func (s Scenario) steady(ctx context.Context, t *testing.T, w *World, _ *process, h *hook) {
	t.Helper()
	before := h.total()
	p := s.boot(w)
	if _, failures, _, err := s.round(ctx, w, p, h); err != nil || len(failures) > 0 {
		t.Errorf("one more round: %v %v", err, failures)
	}
	if extra := h.since(before); len(extra) > 0 {
		t.Errorf("the world was quiet, and a new process still did:\n%v", extra)
	}
}

// hook counts effects and kills the process at one of them.
type hook struct {
	mu      sync.Mutex
	fault   fault
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
	if h.fault.k == len(h.effects) && !h.fired && h.fault.mode == Before {
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
		if h.fault.mode == ReplyLost {
			return nil // an effect within this one has lost its reply; the pass goes on until its next effect
		}
		return killed{}
	}
	if bad := h.check(e); bad != nil {
		h.broken = append(h.broken, fmt.Errorf("after effect %d (%s): %w", n, e.What, bad))
	}
	if h.fault.k != n || h.fired {
		return nil
	}
	h.fired, h.dying = true, true
	if h.fault.mode == ReplyLost && err == nil {
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

func (h *hook) since(n int) []kit.Effect {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.effects[min(max(n-h.crashes, 0), len(h.effects)):]
}

// trace gives all effects, for the message of a failure.
func (h *hook) trace() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	b.WriteString("effects:\n")
	for i, e := range h.effects {
		mark := "  "
		if i+1 == h.fault.k {
			mark = "* "
		}
		fmt.Fprintf(&b, "%s%d %s\n", mark, i+1, e)
	}
	return b.String()
}

// IsKilled says whether an error of Reconcile is the death of the process.
func IsKilled(err error) bool {
	_, ok := errors.AsType[killed](err)
	return ok
}
