// Package kit holds the one reconciler of the tree. A controller says how to
// observe its subject and, as pure functions, what it wants; kit does the rest:
// it fetches the object, keeps the finalizer, carries out the plan as numbered
// effects, writes the status and the events, and asks for the next pass.
//
//	observe (all I/O)  ->  plan (pure)  ->  act (numbered effects)  ->  report (conditions, events)
//
// Nothing is remembered between two passes except for damping (back-off, events
// already sent); every decision comes from what Observe has read. A pass that is
// cut off at any effect is completed by the next one.
//
// kit must not know any kind of Ceph or CSI: it handles objects, conditions and
// actions as the controllers give them. Controllers in turn must not write
// status, finalizers or events themselves, must not sleep, and must not start
// goroutines that outlive a pass.
package kit
