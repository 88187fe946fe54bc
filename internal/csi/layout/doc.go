// Package layout builds every Kubernetes object of a CSI driver: its controller
// Deployment, its node DaemonSets, its CSIDriver, network policies, metrics
// Service and log rotation. It also says which value a setting has when the
// built-in list, the OperatorConfig and the Driver each have a say.
//
// It is pure: the same input gives the same bytes, whatever the order of maps. It
// must not read anything; what it needs to know of the cluster (number of nodes,
// contents of image sets) is in its input.
package layout
