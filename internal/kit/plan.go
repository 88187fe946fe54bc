package kit

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Plan is what a pass is going to do, as values. The zero Plan is "all is as it
// should be".
//
// Effects are carried out in this order: Create, Apply, Delete, Do. Within Apply,
// what others refer to comes first (ServiceAccounts and RBAC, Secrets,
// ConfigMaps, PVCs, Services, then workloads, then Jobs), and otherwise the order
// of the plan is kept. Where another order matters, write it down in Do, with
// the actions Apply, Create and Delete of this package. The first effect that fails
// ends the pass; the next pass looks again.
//
// An effect that would change nothing is not an effect: an Apply that the live
// object already satisfies, a Create of what exists, a Delete of what is absent
// cost no write and have no number.
type Plan struct {
	// Create holds objects that are made once and never changed again (a
	// generated key). If one appears meanwhile (409), the pass ends and the next one
	// reads what is there.
	Create []Object
	// Apply holds objects that are server-side applied, with force, as
	// kube.FieldOwner. Only what is set is owned; labels, annotations and fields set by
	// others stay. A field that was applied before and is absent now is removed. A
	// resourceVersion that is set becomes a precondition: if the object has changed since,
	// the pass ends and the next one looks again.
	Apply []Object
	// Delete holds objects that must not exist. A UID or resourceVersion that is
	// set becomes a precondition. Propagation is background.
	Delete []Object
	// Do holds changes outside Kubernetes (or in an order of their own). A pass
	// that did one is followed by another pass at once.
	Do []Action

	// Status is a copy of the driving object that holds the status wanted, or nil to
	// leave the status alone (except for the conditions, observedGeneration and
	// phase, which kit sets).
	Status Object
	// Conditions to set on the driving object. An empty Status removes the
	// condition of that type.
	Conditions []Condition
	// Phase overrides the phase that kit derives from the end of the pass. It is
	// only used if Options.Phases is set.
	Phase string
	// Events are sent when all effects have succeeded, and only by a pass that changed
	// something (an effect, or a condition), so a steady object sends none. The event of
	// one step goes with its action: Told.
	Events []Event

	// Wait says that something expected is missing. Effects of the plan are
	// carried out nevertheless.
	Wait *Wait
	// Err ends the pass after the effects: Terminal for a spec that only the user can
	// put right, anything else for back-off.
	Err error
	// Next is when to look again although all is as it should be: for what no watch
	// tells (the health of Ceph). Zero means when something changes.
	Next time.Duration
}

// String gives the plan for dry runs and messages of tests, one line for each part.
func (p Plan) String() string {
	var lines []string
	for _, o := range p.Create {
		lines = append(lines, "create "+Name(o))
	}
	for _, o := range inOrder(p.Apply) {
		lines = append(lines, "apply "+Name(o))
	}
	for _, o := range p.Delete {
		lines = append(lines, "delete "+Name(o))
	}
	for _, a := range p.Do {
		lines = append(lines, "do: "+a.String())
	}
	for _, c := range p.Conditions {
		lines = append(lines, fmt.Sprintf("condition %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	if p.Wait != nil {
		lines = append(lines, "wait: "+p.Wait.String())
	}
	if p.Err != nil {
		lines = append(lines, "error: "+p.Err.Error())
	}
	if len(lines) == 0 {
		return "nothing to do"
	}
	return strings.Join(lines, "\n")
}

// Action is one change outside Kubernetes as a plain value: a struct with exported
// fields, so that tests compare it with cmp and dry runs print it. It is carried
// out by the controller's Doer. It should be one mutation, such that doing it twice
// is the same as doing it once.
type Action interface {
	// String says what is done, in the words of an error or a log line: "marking
	// osd.5 out". No secret may appear in it. The text up to the first space is the
	// metric label unless the action has a method Kind() string.
	String() string
}

// Check names a live read that must hold at the moment of an effect, as a plain
// value: "osd.5 is safe to destroy". It is made by the controller's Confirmer.
type Check interface {
	String() string
}

// Confirmed is an action that is carried out only if Check holds, live,
// immediately before.
type Confirmed struct {
	Check Check
	Then  Action
}

// String implements Action.
func (c Confirmed) String() string { return fmt.Sprintf("%s, if %s", c.Then, c.Check) }

// Told is an action whose event is sent when it has been carried out, whatever
// becomes of the rest of the plan: for steps that the user waits on.
type Told struct {
	Event Event
	Then  Action
}

// String implements Action.
func (t Told) String() string { return t.Then.String() }

// Apply is Plan.Apply as an Action, for plans whose order matters.
type Apply struct{ Object Object }

// String implements Action.
func (a Apply) String() string { return "applying " + Name(a.Object) }

// Create is Plan.Create as an Action.
type Create struct{ Object Object }

// String implements Action.
func (a Create) String() string { return "creating " + Name(a.Object) }

// Delete is Plan.Delete as an Action.
type Delete struct {
	Object Object
	// Propagation is Background if empty.
	Propagation metav1.DeletionPropagation
	// Ours says that it was us who set the label by which the object is left alone.
	Ours bool
}

// String implements Action.
func (a Delete) String() string { return "deleting " + Name(a.Object) }

// Condition is one condition of the driving object, in the shape that Rook's and
// Kubernetes' conditions share. kit adds the times and the generation.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  string // CamelCase, from a documented set
	Message string
}

// Event is sent on an object that the user touched or watches.
type Event struct {
	Object  Object // nil: the driving object
	Warning bool
	Reason  string // CamelCase, from a documented set
	Message string
}

// Wait says what is missing, when to look again and what the user can do. It is
// not an error: no back-off, no stack, no alarm.
type Wait struct {
	// Reason is CamelCase and from a small set: it is a metric label.
	Reason string
	// Message is for the user and names the blocker: "osd.3 not ok-to-stop: pgs 2.1f,
	// 2.3a would go inactive".
	Message string
	// For is the time until the next look. Zero means that a watch will tell; kit
	// then looks again after Options.Resync.
	For time.Duration
	// Object is what is waited for, where it has a name: "Deployment
	// rook-ceph-mon-a", "osd.3".
	Object string
	// Hint is what the user can do about it, if anything.
	Hint string
	// Blocked says that nothing moves until somebody else acts. Otherwise the wait is
	// part of normal progress (a pod is starting).
	Blocked bool
}

// String gives the wait in one line.
func (w Wait) String() string {
	var b strings.Builder
	b.WriteString(w.Reason)
	if w.Message != "" {
		b.WriteString(": " + w.Message)
	}
	if w.Hint != "" {
		b.WriteString(" (" + w.Hint + ")")
	}
	return b.String()
}

// Name gives the kind, namespace and name of an object for people: "Secret
// rook-ceph/rook-ceph-mon". Typed objects usually carry no kind; then the Go type
// name serves, which is the same word.
func Name(obj Object) string {
	kind := KindOf(obj)
	if ns := obj.GetNamespace(); ns != "" {
		return kind + " " + ns + "/" + obj.GetName()
	}
	return kind + " " + obj.GetName()
}

// KindOf gives the kind of an object, from its type meta or its Go type.
func KindOf(obj Object) string {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk != (schema.GroupVersionKind{}) && gvk.Kind != "" {
		return gvk.Kind
	}
	t := fmt.Sprintf("%T", obj)
	return t[strings.LastIndexByte(t, '.')+1:]
}
