// Package v1 holds the kinds of the API group ceph.rook.io, version v1: the
// storage cluster and everything that lives in it (pools, filesystems, object
// stores, gateways, clients). A manifest written for Rook decodes into these
// types with the same meaning.
//
// There is one file per kind, and shared_*.go for the parts that several kinds
// use. The largest kinds have further files named after them, by subject, such
// as cephcluster_storage.go. The package holds types, validation markers and small pure methods that
// every user of a type needs; it must not hold decisions of a controller, talk
// to anything, or import more than the standard library, apimachinery and the
// core types.
//
// +kubebuilder:object:generate=true
// +groupName=ceph.rook.io
package v1
