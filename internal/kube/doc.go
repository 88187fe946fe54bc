// Package kube holds what Castellan needs of Kubernetes beyond controller-runtime:
// server-side apply with one field owner and a comparison that tells beforehand
// whether an apply would change anything, caches that hold only what is ours,
// watch mappings, and reads in which an error is never "absent".
//
// It must not decide anything: no kind of Ceph or CSI is known here, and no
// function writes unless the caller has asked for that very write.
package kube

const (
	// FieldOwner is the one field manager of the operator.
	FieldOwner = "castellan"

	// AppliedHash is the annotation that keeps the hash of what was last applied. It
	// tells that a field which was applied once is no longer wanted, which a comparison
	// of the wanted fields with the live ones cannot see.
	AppliedHash = "castellan.ceph.io/applied-hash"

	// OwnedLabel is set, with the value "true", on every object that is applied or
	// created. Caches of Secrets, ConfigMaps and other common kinds select by it. It
	// is never part of a pod template, so it restarts nothing.
	OwnedLabel = "castellan.ceph.io/owned"

	// SkipLabel on any object, whatever its value, means: write nothing to it.
	SkipLabel = "ceph.rook.io/do-not-reconcile"

	// LegacySkipLabel is the same in its old form; it needs the value "true".
	LegacySkipLabel = "do_not_reconcile"
)
