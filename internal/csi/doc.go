// Package csi holds the controllers of the kinds of csi.ceph.io, but for
// ClientProfileReplication: Driver, OperatorConfig, CephConnection, ClientProfile
// and ClientProfileMapping, and those that write the drivers' configuration of
// each namespace.
//
// The controllers are thin: they read, call the pure packages below this one
// (layout, plan, clusterconfig) and internal/replication/plan, and let kit act and
// report. They must not decide what a record or a pod looks like, and must not
// write status, finalizers or the configuration by other ways than kit and
// internal/csi/store.
package csi
