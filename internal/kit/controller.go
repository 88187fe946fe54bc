package kit

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is any Kubernetes object. The alias lets pure packages name objects
// without importing a client.
type Object = client.Object

// Key names what one pass works on: the object itself, or, for a Keyed
// controller, whatever the controller is keyed on (a node, an OSD).
type Key = types.NamespacedName

// Controller is what a subject implements. T is the driving object (the one the
// user wrote, whose status is reported); S is everything a plan needs to know.
//
// Observe makes every read, of Kubernetes and of Ceph. A failed read is an
// error, never "absent": return it, and no effect will come of it. The time of
// the pass is Now(ctx) and its key is PassOf(ctx).Key; what Plan needs of them,
// Observe puts into S, so that plans stay functions of values.
//
// Plan says what is wanted for an object that is to exist, Teardown for one that
// is being deleted. Both are pure: same input, same plan, no I/O, and no change
// to obj or seen. Teardown is called until its plan has nothing left to do; then
// kit removes the finalizer.
//
// A controller that uses Plan.Do implements Doer; one that uses Confirmed
// implements Confirmer; one that is not keyed on its driving object implements
// Keyed.
type Controller[T Object, S any] interface {
	New() T
	Observe(ctx context.Context, obj T) (S, error)
	Plan(obj T, seen S) Plan
	Teardown(obj T, seen S) Plan
}

// Doer carries out the actions of a plan: one switch over the action types, each
// case one mutation. It may return Waiting (the world has changed: look again
// later), Terminal, or any other error (back-off).
type Doer[T Object] interface {
	Do(ctx context.Context, obj T, action Action) error
}

// Confirmer makes the live read that must hold at the very moment of an effect
// (safe-to-destroy, ok-to-stop). A nil Wait means yes. A Wait means no: the
// effect is not carried out, and the pass ends with that Wait. An error means
// not known, which is never yes.
type Confirmer[T Object] interface {
	Confirm(ctx context.Context, obj T, check Check) (*Wait, error)
}

// Keyed controllers are keyed on something other than their driving object: an
// OSD's Deployment, a node of the cluster. Fetch finds the driving object for a
// key. A NotFound error of the API server ends the pass quietly; any other error
// is retried. Keys are made by the maps in Options.Watches.
type Keyed[T Object] interface {
	Fetch(ctx context.Context, key Key) (T, error)
}
