package kit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/castellan-storage/castellan/internal/kube"
)

// Damping of passes that follow one another because each of them did something:
// the first ones at once, since a flow has many steps, later ones slower, since
// something does not converge.
const (
	againMin = 5 * time.Millisecond
	againMax = 30 * time.Second
	// againLoud is the number of such passes after which the user is told.
	againLoud = 9
)

// reportTime is what the report of a pass may take; it has its own deadline, so that
// a pass that ran into its own is still told.
const reportTime = 15 * time.Second

// Reconciler runs the passes of one controller. It is the only Reconcile of the
// tree.
type Reconciler[T Object, S any] struct {
	ctl   Controller[T, S]
	env   Env
	opt   Options
	again workqueue.TypedRateLimiter[Key]
	sent  *sentEvents
	seats *seats
}

// NewReconciler makes the reconciler of a controller without a manager: for tests,
// and for dry runs. Register makes one that is driven by watches.
func NewReconciler[T Object, S any](ctl Controller[T, S], env Env, opt Options) *Reconciler[T, S] {
	if env.Clock == nil {
		env.Clock = clock.RealClock{}
	}
	if env.Live == nil {
		env.Live = env.Client
	}
	if opt.Timeout == 0 {
		opt.Timeout = 2 * time.Minute
	}
	if opt.Resync == 0 {
		opt.Resync = 30 * time.Second
	}
	if opt.Concurrency == 0 {
		opt.Concurrency = 16
	}
	if opt.PerNamespace == 0 {
		opt.PerNamespace = 4
	}
	if (opt.Report == Report{}) {
		opt.Report = DefaultReport()
	}
	if opt.Report.None {
		opt.Report.Shared = true
	}
	return &Reconciler[T, S]{
		ctl: ctl, env: env, opt: opt,
		again: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](againMin, againMax),
		sent:  newSentEvents(),
		seats: &seats{taken: map[string]int{}},
	}
}

// seats counts the passes that run, by namespace.
type seats struct {
	mu    sync.Mutex
	taken map[string]int
}

// comeAgain is when a pass tries again that found no seat.
const comeAgain = 100 * time.Millisecond

func (s *seats) take(namespace string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[namespace] >= limit {
		return false
	}
	s.taken[namespace]++
	return true
}

func (s *seats) leave(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[namespace]--; s.taken[namespace] <= 0 {
		delete(s.taken, namespace)
	}
}

// how says how a pass ended.
type how string

const (
	done     how = "done"
	waiting  how = "wait"
	terminal how = "terminal"
	failed   how = "error"
	panicked how = "panic"
	again    how = "again" // something changed under our hands, or was changed by us
	gone     how = "gone"  // nothing of ours is left
)

// end is what a pass came to.
type end struct {
	how  how
	wait Wait
	err  error
	plan Plan
	// blockers is set if the deletion was looked at: the names of the dependents.
	deletion *deletion
}

// run is one pass.
type run[T Object, S any] struct {
	*Reconciler[T, S]
	key     Key
	obj     T
	writing *writing
	now     time.Time
	effects int // numbered so far
	did     int // of Plan.Do
	told    []Event
	// terminating is what a Delete of the plan still waits for.
	terminating string
	// dry collects effects instead of carrying them out.
	dry *[]Effect
}

// Reconcile makes one pass.
func (r *Reconciler[T, S]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.seats.take(req.Namespace, r.opt.PerNamespace) {
		return reconcile.Result{RequeueAfter: comeAgain}, nil
	}
	defer r.seats.leave(req.Namespace)
	started := time.Now()
	p := &run[T, S]{Reconciler: r, key: req.NamespacedName, now: r.env.Clock.Now()}
	passCtx, cancel := context.WithTimeout(WithPass(ctx, Pass{Controller: r.opt.Name, Key: p.key, Now: p.now}), r.opt.Timeout)
	defer cancel()

	found, err := p.fetch(passCtx)
	if err != nil {
		r.env.Metrics.pass(r.opt.Name, string(failed))
		return p.retry(err)
	}
	if !found {
		return r.forget(p.key), nil
	}
	if kube.Skipped(p.obj) {
		p.skipped()
		return r.forget(p.key), nil
	}
	p.writing = r.env.Writers.join(p.obj.GetUID())
	defer r.env.Writers.leave(p.obj.GetUID())
	e := p.work(passCtx)
	if crash, ok := errors.AsType[*CrashError](e.err); ok {
		return reconcile.Result{}, crash
	}
	reportCtx, cancelReport := context.WithTimeout(ctx, reportTime)
	defer cancelReport()
	res, err := p.finish(reportCtx, e)
	r.env.Metrics.took(r.opt.Name, "pass", time.Since(started))
	return res, err
}

// forget drops what is remembered of a key that needs nothing more.
func (r *Reconciler[T, S]) forget(key Key) reconcile.Result {
	r.again.Forget(key)
	r.env.Board.drop(r.opt.Name, key)
	return reconcile.Result{}
}

// fetch reads the driving object. Panics in a controller's Fetch are errors like
// anywhere else.
func (p *run[T, S]) fetch(ctx context.Context) (found bool, err error) {
	defer recovered(&err)
	keyed, ok := p.ctl.(Keyed[T])
	if !ok {
		p.obj = p.ctl.New()
		return kube.Get(ctx, p.env.Client, p.key, p.obj)
	}
	p.obj, err = keyed.Fetch(ctx, p.key)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fetching the object of %s: %w", p.key, err)
	}
	return true, nil
}

// recovered turns a panic into an error.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: string(debug.Stack())}
	}
}

// work observes, plans and acts.
func (p *run[T, S]) work(ctx context.Context) (e end) {
	defer func() {
		var err error
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: string(debug.Stack())}
		}
		if err != nil {
			e = end{how: panicked, err: err, deletion: e.deletion}
		}
	}()
	deleting := !p.obj.GetDeletionTimestamp().IsZero()
	if deleting {
		return p.workDeleting(ctx)
	}
	if err := p.addFinalizer(ctx); err != nil {
		return p.ended(Plan{Err: err}, nil)
	}
	plan, err := p.planned(ctx, p.ctl.Plan)
	if err != nil {
		return p.ended(Plan{}, err)
	}
	return p.ended(plan, p.act(ctx, plan))
}

// workDeleting is work for an object that is being deleted.
func (p *run[T, S]) workDeleting(ctx context.Context) end {
	if p.opt.Finalizer != "" && !p.held() {
		return end{how: gone}
	}
	del, err := p.dependents(ctx)
	if err != nil {
		return p.ended(Plan{Err: err}, nil)
	}
	if del != nil && len(del.blockers) > 0 {
		e := p.ended(Plan{Wait: del.wait()}, nil)
		e.deletion = del
		return e
	}
	plan, err := p.planned(ctx, p.ctl.Teardown)
	if err != nil {
		return p.ended(Plan{}, err)
	}
	e := p.ended(plan, p.act(ctx, plan))
	e.deletion = del
	if e.how != done || p.opt.Finalizer == "" || p.dry != nil && len(*p.dry) > 0 {
		return e
	}
	if p.effects > 0 {
		// Something was still to be done: the next pass must find nothing.
		e.how = again
		return e
	}
	if err := p.removeFinalizer(ctx); err != nil {
		return p.ended(Plan{Err: err}, nil)
	}
	return end{how: gone}
}

// planned observes, and makes the plan by one of the two pure functions.
func (p *run[T, S]) planned(ctx context.Context, plan func(T, S) Plan) (Plan, error) {
	started := time.Now()
	seen, err := p.ctl.Observe(ctx, p.obj)
	p.env.Metrics.took(p.opt.Name, "observe", time.Since(started))
	if err != nil {
		return Plan{}, err
	}
	if err := ctx.Err(); err != nil {
		// An Observe that has swallowed the deadline has not seen everything.
		return Plan{}, fmt.Errorf("observing: %w", err)
	}
	started = time.Now()
	defer func() { p.env.Metrics.took(p.opt.Name, "plan", time.Since(started)) }()
	return plan(p.obj, seen), nil
}

// ended says how a pass ended, given the error of an effect or of Observe.
func (p *run[T, S]) ended(plan Plan, err error) end {
	if err == nil {
		err = plan.Err
	}
	e := end{how: done, plan: plan, err: err}
	wait, isWait := errors.AsType[*WaitError](err)
	_, isTerminal := AsTerminal(err)
	_, isPanic := errors.AsType[*PanicError](err)
	switch {
	case isPanic:
		e.how = panicked
	case isWait:
		e.how, e.wait, e.err = waiting, wait.Wait, nil
	case isTerminal:
		e.how = terminal
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		// Somebody was faster; there is nothing wrong with that. The next pass reads it.
		e.how = again
	case err != nil:
		e.how = failed
	case plan.Wait != nil:
		e.how, e.wait = waiting, *plan.Wait
	case p.terminating != "":
		e.how, e.wait = waiting, Wait{
			Reason:  ReasonTerminating,
			Message: p.terminating + " is being deleted and not gone yet",
			Object:  p.terminating,
			For:     5 * time.Second,
		}
	case p.did > 0:
		e.how = again
	}
	return e
}

// finish reports and says when the next pass is due.
func (p *run[T, S]) finish(ctx context.Context, e end) (reconcile.Result, error) {
	started := time.Now()
	p.env.Metrics.pass(p.opt.Name, string(e.how))
	p.log(ctx, e)
	if e.how == gone {
		return p.forget(p.key), nil
	}
	pause := time.Duration(0)
	if e.how == again || p.did > 0 {
		if p.again.NumRequeues(p.key) >= againLoud && e.how == again {
			e = p.restless(e)
		}
		pause = p.again.When(p.key)
	} else {
		p.again.Forget(p.key)
	}
	p.post(e)
	moved, err := p.report(ctx, e)
	p.env.Metrics.took(p.opt.Name, "report", time.Since(started))
	if crash, ok := errors.AsType[*CrashError](err); ok {
		return reconcile.Result{}, crash
	}
	if err == nil {
		p.sendEvents(e, moved)
	}
	return p.next(e, pause, err)
}

// restless tells the user of a controller that changes something in every pass.
func (p *run[T, S]) restless(e end) end {
	msg := "every pass finds something to change again"
	if e.err != nil {
		msg += ": " + e.err.Error()
	} else if n := len(e.plan.Do); n > 0 {
		msg += ": " + e.plan.Do[n-1].String()
	}
	e.how, e.err = waiting, nil
	e.wait = Wait{Reason: ReasonNotConverging, Message: msg}
	return e
}

// next gives the time of the next pass. pause is set after a pass that did
// something.
func (p *run[T, S]) next(e end, pause time.Duration, reportErr error) (reconcile.Result, error) {
	if reportErr != nil {
		if apierrors.IsConflict(reportErr) {
			return reconcile.Result{RequeueAfter: max(pause, againMin)}, nil
		}
		return p.retry(reportErr)
	}
	if pause > 0 && (e.how == again || e.how == done) {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	switch e.how {
	case waiting:
		after := e.wait.For
		if after <= 0 {
			after = p.opt.Resync
		}
		p.env.Metrics.wait(p.opt.Name, e.wait.Reason, after)
		if pause > 0 {
			// What was done may be what is waited for.
			after = min(after, max(pause, 100*time.Millisecond))
		}
		return reconcile.Result{RequeueAfter: after}, nil
	case failed, panicked:
		return p.retry(e.err)
	case terminal:
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{RequeueAfter: e.plan.Next}, nil
	}
}

// retry asks for back-off, or for the time that the API server asks for.
func (p *run[T, S]) retry(err error) (reconcile.Result, error) {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return reconcile.Result{RequeueAfter: time.Duration(seconds) * time.Second}, nil
	}
	return reconcile.Result{}, err
}

// log writes one line for an end that somebody may have to look at.
func (p *run[T, S]) log(ctx context.Context, e end) {
	l := log.FromContext(ctx)
	switch e.how {
	case terminal:
		l.Info("the spec needs a change", "error", e.err.Error())
	case panicked:
		if pe, ok := errors.AsType[*PanicError](e.err); ok {
			l.Info("panic", "value", fmt.Sprint(pe.Value), "stack", pe.Stack)
		}
	case waiting:
		l.V(1).Info("waiting", "reason", e.wait.Reason, "message", e.wait.Message)
	default:
		l.V(1).Info("pass", "end", string(e.how), "effects", p.effects)
	}
}

// post writes the line of the board.
func (p *run[T, S]) post(e end) {
	if p.env.Board == nil {
		return
	}
	line := Line{Controller: p.opt.Name, Key: p.key, Owner: client.ObjectKeyFromObject(p.obj), Since: p.now}
	switch e.how {
	case waiting:
		line.Wait = e.wait
	case terminal, failed, panicked:
		line.Err, line.Terminal = e.err.Error(), e.how == terminal
	case again:
		return
	default:
		p.env.Board.drop(p.opt.Name, p.key)
		return
	}
	p.env.Board.put(line)
}

// Explain observes and plans like a pass and gives the effects that it would have
// now, without any. Later passes may have more. The end of the pass is in the plan's
// Wait and Err.
func (r *Reconciler[T, S]) Explain(ctx context.Context, key types.NamespacedName) ([]Effect, Plan, error) {
	effects := []Effect{}
	p := &run[T, S]{Reconciler: r, key: key, now: r.env.Clock.Now(), dry: &effects}
	ctx, cancel := context.WithTimeout(WithPass(ctx, Pass{Controller: r.opt.Name, Key: key, Now: p.now}), r.opt.Timeout)
	defer cancel()
	found, err := p.fetch(ctx)
	if err != nil {
		return nil, Plan{}, err
	}
	if !found || kube.Skipped(p.obj) {
		return nil, Plan{}, nil
	}
	e := p.work(ctx)
	if e.how == waiting && e.plan.Wait == nil {
		e.plan.Wait = &e.wait
	}
	if e.err != nil && e.plan.Err == nil {
		e.plan.Err = e.err
	}
	return effects, e.plan, nil
}
