package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kube"
)

// Reasons of the conditions and events that kit itself makes. Those that Rook has
// too have Rook's names.
const (
	ReasonSucceeded     = "ReconcileSucceeded"
	ReasonFailed        = "ReconcileFailed"
	ReasonSkipped       = "ReconcileSkipped"
	ReasonInvalidSpec   = "InvalidSpec"
	ReasonPanic         = "InternalError"
	ReasonNotConverging = "NotConverging"
	ReasonTerminating   = "Terminating"
	ReasonHasDependents = "ObjectHasDependents"
	ReasonNoDependents  = "ObjectHasNoDependents"
)

// maxMessage bounds a condition's message, so that a status never gets too big to
// be written.
const maxMessage = 4096

// maxNote is the limit of the API server for the note of an event.
const maxNote = 1024

// conditions gives what is to be set, in order of precedence: the end of the pass
// first, then what the plan says.
func (p *run[T, S]) conditions(e end) []Condition {
	var out []Condition
	if !p.opt.Report.None && e.how != again {
		ready, progressing := verdict(e)
		if ready.Type = p.opt.Report.Ready; ready.Type != "" {
			out = append(out, ready)
		}
		if progressing.Type = p.opt.Report.Progressing; progressing.Type != "" {
			out = append(out, progressing)
		}
	}
	if e.deletion != nil && !p.opt.Report.None {
		out = append(out, e.deletion.condition())
	}
	return append(out, e.plan.Conditions...)
}

// verdict is the table at Report.
func verdict(e end) (ready, progressing Condition) {
	c := Condition{Reason: ReasonSucceeded, Message: "all is as it should be"}
	ready.Status, progressing.Status = metav1.ConditionTrue, metav1.ConditionFalse
	switch e.how {
	case waiting:
		ready.Status, progressing.Status = metav1.ConditionFalse, metav1.ConditionTrue
		if e.wait.Blocked {
			progressing.Status = metav1.ConditionFalse
		}
		c.Reason, c.Message = e.wait.Reason, e.wait.text()
	case terminal:
		ready.Status, progressing.Status = metav1.ConditionFalse, metav1.ConditionFalse
		c.Reason, c.Message = ReasonInvalidSpec, e.err.Error()
		if t, ok := AsTerminal(e.err); ok && t.Reason != "" {
			c.Reason = t.Reason
		}
	case failed:
		ready.Status, progressing.Status = metav1.ConditionFalse, metav1.ConditionTrue
		c.Reason, c.Message = ReasonFailed, e.err.Error()
	case panicked:
		ready.Status, progressing.Status = metav1.ConditionFalse, metav1.ConditionTrue
		c.Reason, c.Message = ReasonPanic, e.err.Error()
	}
	ready.Reason, ready.Message = c.Reason, c.Message
	progressing.Reason, progressing.Message = c.Reason, c.Message
	return ready, progressing
}

// text is the wait for the user.
func (w Wait) text() string {
	msg := w.Message
	if w.Object != "" && !strings.Contains(msg, w.Object) {
		msg = w.Object + ": " + msg
	}
	if w.Hint != "" {
		msg += " (" + w.Hint + ")"
	}
	return msg
}

// report writes the status if it changes, and says whether a condition moved.
func (p *run[T, S]) report(ctx context.Context, e end) (moved bool, err error) {
	if err := p.writing.take(ctx); err != nil {
		return false, fmt.Errorf("writing the status: waiting for other controllers that write it: %w", err)
	}
	var written Object
	defer func() { p.writing.done(written) }()
	base := newest(p.writing, p.obj)
	for try := range 4 {
		body, changed, err := p.statusPatch(base, e)
		if err != nil || body == nil {
			return false, err
		}
		target := p.ctl.New()
		target.SetNamespace(p.obj.GetNamespace())
		target.SetName(p.obj.GetName())
		err = p.effect(ctx, "status", "writing the status", func(ctx context.Context) error {
			return p.env.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body), client.FieldOwner(kube.FieldOwner))
		})
		switch {
		case err == nil:
			if p.dry == nil {
				written = target
			}
			return changed, nil
		case apierrors.IsNotFound(err):
			return false, nil // gone meanwhile
		case !apierrors.IsConflict(err) || try == 3:
			return false, err
		}
		// Somebody else has written the object: what we want to change is put onto what
		// is there now.
		fresh := p.ctl.New()
		found, err := kube.Get(ctx, p.env.Live, client.ObjectKeyFromObject(p.obj), fresh)
		if err != nil || !found || fresh.GetUID() != p.obj.GetUID() {
			return false, err
		}
		base = fresh
	}
	return false, nil
}

// statusPatch gives the merge patch that brings base's status to what the pass wants,
// or nil. The plan's status is taken as changes to the object that was observed
// (p.obj), so what other controllers have written meanwhile stays.
func (p *run[T, S]) statusPatch(base T, e end) (body []byte, moved bool, err error) {
	was, err := statusOf(base)
	if err != nil {
		return nil, false, err
	}
	want, err := p.wantedStatus(was, e)
	if err != nil {
		return nil, false, err
	}
	moved = p.setConditions(want, e)
	if err := p.canonical(base, &want); err != nil {
		return nil, false, err
	}
	diff := mergeDiff(was, want)
	if len(diff) == 0 {
		return nil, false, nil
	}
	body, err = json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": base.GetResourceVersion()},
		"status":   diff,
	})
	return body, moved, err
}

// wantedStatus puts the plan's changes onto was, and sets phase and generation.
func (p *run[T, S]) wantedStatus(was map[string]any, e end) (map[string]any, error) {
	want := runtime.DeepCopyJSON(was)
	if e.plan.Status != nil && !isNil(e.plan.Status) {
		observed, err := statusOf(p.obj)
		if err != nil {
			return nil, err
		}
		planned, err := statusOf(e.plan.Status)
		if err != nil {
			return nil, err
		}
		// Conditions go by type, through Plan.Conditions.
		delete(observed, "conditions")
		delete(planned, "conditions")
		mergeApply(want, mergeDiff(observed, planned))
	}
	if p.opt.Report.Shared {
		return want, nil
	}
	if phase := p.phase(e); phase != "" {
		want["phase"] = phase
	}
	if e.how != again {
		want["observedGeneration"] = p.obj.GetGeneration()
	}
	return want, nil
}

func (p *run[T, S]) phase(e end) string {
	switch {
	case p.opt.Phases == nil:
		return ""
	case e.plan.Phase != "":
		return e.plan.Phase
	case !p.obj.GetDeletionTimestamp().IsZero():
		return p.opt.Phases.Deleting
	}
	switch e.how {
	case done:
		return p.opt.Phases.Ready
	case waiting:
		return p.opt.Phases.Waiting
	case terminal, failed, panicked:
		return p.opt.Phases.Failed
	}
	return ""
}

// setConditions puts the conditions of the pass into a status and says whether the
// status or the reason of one has changed. Fields that the kind does not have are
// dropped by canonical.
func (p *run[T, S]) setConditions(status map[string]any, e end) (moved bool) {
	list, _ := status["conditions"].([]any)
	now := p.now.UTC().Format(time.RFC3339)
	for _, c := range p.conditions(e) {
		i, old := findCondition(list, c.Type)
		if c.Status == "" {
			if old != nil {
				list = append(list[:i:i], list[i+1:]...)
				moved = true
			}
			continue
		}
		c.Message = clip(c.Message, maxMessage)
		if c.Reason == "" {
			c.Reason = string("Is" + c.Status)
		}
		next := map[string]any{"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": now, "lastHeartbeatTime": now, "observedGeneration": p.obj.GetGeneration()}
		if old == nil {
			list = append(list, next)
			moved = true
			continue
		}
		if old["status"] == next["status"] && old["reason"] == next["reason"] {
			if t, ok := old["lastTransitionTime"].(string); ok && t != "" {
				next["lastTransitionTime"] = t
			}
			generation, hasGeneration := old["observedGeneration"]
			if message, _ := old["message"].(string); message == c.Message && (!hasGeneration || generation == next["observedGeneration"]) {
				continue // as it was: a heartbeat alone is not worth a write
			}
		} else {
			moved = true
		}
		list[i] = next
	}
	if len(list) > 0 {
		status["conditions"] = list
	} else {
		delete(status, "conditions")
	}
	return moved
}

func findCondition(list []any, kind string) (int, map[string]any) {
	for i, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return i, m
		}
	}
	return -1, nil
}

// canonical brings a status into the form that the Go type has for it: fields it does
// not know are dropped, so that a kind without conditions, phase or
// observedGeneration is served as well.
func (p *run[T, S]) canonical(base T, status *map[string]any) error {
	typed := p.ctl.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": *status}, typed); err != nil {
		return fmt.Errorf("converting the status of %s: %w", Name(base), err)
	}
	var err error
	*status, err = statusOf(typed)
	return err
}

// statusOf gives the status of an object as JSON values; empty if it has none. Nothing
// else of the object is converted: every pass does this several times.
func statusOf(obj Object) (map[string]any, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		status, _ := u.UnstructuredContent()["status"].(map[string]any)
		return runtime.DeepCopyJSON(orEmpty(status)), nil
	}
	field := reflect.ValueOf(obj).Elem().FieldByName("Status")
	switch {
	case !field.IsValid():
		return map[string]any{}, nil
	case field.Kind() == reflect.Struct:
		field = field.Addr()
	case field.IsNil():
		return map[string]any{}, nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(field.Interface())
	if err != nil {
		return nil, fmt.Errorf("converting the status of %s: %w", Name(obj), err)
	}
	return orEmpty(status), nil
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// mergeDiff gives the JSON merge patch from one value to another.
func mergeDiff(from, to map[string]any) map[string]any {
	diff := map[string]any{}
	for key, val := range to {
		old, had := from[key]
		a, aok := old.(map[string]any)
		b, bok := val.(map[string]any)
		switch {
		case had && aok && bok:
			if d := mergeDiff(a, b); len(d) > 0 {
				diff[key] = d
			}
		case !had || !reflect.DeepEqual(old, val):
			diff[key] = val
		}
	}
	for key := range from {
		if _, ok := to[key]; !ok {
			diff[key] = nil
		}
	}
	return diff
}

// mergeApply applies a JSON merge patch to a value.
func mergeApply(to, diff map[string]any) {
	for key, val := range diff {
		if val == nil {
			delete(to, key)
			continue
		}
		sub, ok := val.(map[string]any)
		if have, isMap := to[key].(map[string]any); ok && isMap {
			mergeApply(have, sub)
			continue
		}
		to[key] = runtime.DeepCopyJSONValue(val)
	}
}

func isNil(obj Object) bool {
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// clip cuts a text at a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}

// sentEvents keeps what was last sent for a key, so that nothing is sent again while
// it does not change. It is damping only: after a restart one event more is sent.
type sentEvents struct {
	mu   sync.Mutex
	last map[string]string
}

func newSentEvents() *sentEvents { return &sentEvents{last: map[string]string{}} }

// first says whether text is other than what was last sent for key.
func (s *sentEvents) first(key, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[key] == text {
		return false
	}
	// A cluster has some hundreds of keys; the bound is against a leak.
	if len(s.last) >= 10000 {
		clear(s.last)
	}
	s.last[key] = text
	return true
}

// sendEvents tells what changed: the end of the pass when a condition moved (or, with
// no conditions, when the reason is another one), and the steps of the plan when
// the pass did something.
func (p *run[T, S]) sendEvents(e end, moved bool) {
	if p.env.Recorder == nil || p.dry != nil {
		return
	}
	if e.how != again {
		ready, _ := verdict(e)
		news := p.sent.first(p.key.String(), string(e.how)+" "+ready.Reason)
		// A first pass that finds all well is no news.
		idle := e.how == done && p.effects == 0
		if moved || p.opt.Report.None && news && !idle {
			warning := e.how == terminal || e.how == failed || e.how == panicked || e.how == waiting && e.wait.Blocked
			p.send(Event{Warning: warning, Reason: ready.Reason, Message: p.subject() + ready.Message})
		}
	}
	for _, ev := range p.told {
		p.send(ev)
	}
	if !moved && p.effects == 0 || e.err != nil {
		return // nothing happened, or not all of it
	}
	for _, ev := range e.plan.Events {
		p.send(ev)
	}
}

// subject names the key where it is not the driving object.
func (p *run[T, S]) subject() string {
	if p.key == client.ObjectKeyFromObject(p.obj) {
		return ""
	}
	return p.key.Name + ": "
}

func (p *run[T, S]) send(ev Event) {
	on := Object(p.obj)
	if ev.Object != nil {
		on = ev.Object
	}
	kind := corev1.EventTypeNormal
	if ev.Warning {
		kind = corev1.EventTypeWarning
	}
	p.env.Recorder.Eventf(on, nil, kind, ev.Reason, "Reconcile", "%s", clip(ev.Message, maxNote))
}

// skipped tells once that an object is left alone. The object itself is not written.
func (p *run[T, S]) skipped() {
	if p.env.Recorder != nil && p.sent.first(p.key.String(), ReasonSkipped) {
		p.send(Event{Reason: ReasonSkipped, Message: "nothing is done for it while it has the label " + kube.SkipLabel})
	}
}
