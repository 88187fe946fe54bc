package kit

import (
	"context"
	"fmt"
)

// Effect is one mutation that a pass is about to make. Everything that changes
// anything outside the process is one: finalizers, objects, actions, status.
type Effect struct {
	// N counts from 1 within the pass.
	N          int
	Controller string
	Key        Key
	// Kind is the metric label: "apply", "create", "delete", "finalizer", "status", or
	// the kind of the action.
	Kind string
	// What says it in words: "applying Deployment rook-ceph/rook-ceph-mon-a".
	What string
}

// String gives the effect in one line.
func (e Effect) String() string {
	return fmt.Sprintf("%s %s #%d: %s", e.Controller, e.Key, e.N, e.What)
}

// Hook sees every effect. An error from it is a crash of the process: the pass
// ends there, without status, events or anything else. The one exception is a
// ReplyLostError from After: the pass takes it for the error of the effect, and goes
// its way.
type Hook interface {
	// Before is called when all is decided and nothing is done yet.
	Before(ctx context.Context, e Effect) error
	// After is called when the effect is done; err is its result.
	After(ctx context.Context, e Effect, err error) error
}

// CrashError wraps what a Hook returned. It comes out of Reconcile as it is.
type CrashError struct {
	Effect Effect
	Err    error
}

// Error implements error.
func (e *CrashError) Error() string { return fmt.Sprintf("crash at %s: %v", e.Effect, e.Err) }

// Unwrap gives the hook's error.
func (e *CrashError) Unwrap() error { return e.Err }

// ReplyLostError stands for a connection that broke after the effect was done and
// before the answer came.
type ReplyLostError struct{ Effect Effect }

// Error implements error.
func (e *ReplyLostError) Error() string { return "no reply: connection lost" }
