// Package v1alpha1 holds the kinds of the API group objectbucket.io: an
// ObjectBucketClaim asks for a bucket as a PersistentVolumeClaim asks for a
// volume, and an ObjectBucket is the bucket that answers it.
//
// The kinds are compatible with those that Rook serves. The package holds types
// and constants only: it must not import a client or anything internal.
//
// +kubebuilder:object:generate=true
// +groupName=objectbucket.io
package v1alpha1
