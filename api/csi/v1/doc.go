// Package v1 holds the kinds of the API group csi.ceph.io: Driver,
// OperatorConfig, CephConnection, ClientProfile, ClientProfileMapping and
// ClientProfileReplication. They describe which Ceph CSI drivers run in a
// cluster, which Ceph clusters those drivers can reach, and where a volume is
// found after a failover to another cluster.
//
// The kinds are compatible, field by field, with those of ceph-csi-operator;
// what this package adds is status (conditions, counts) and rules that refuse
// what could never work. The package holds types, constants and small pure
// methods only: it must not import a client or anything internal.
//
// +kubebuilder:object:generate=true
// +groupName=csi.ceph.io
package v1
