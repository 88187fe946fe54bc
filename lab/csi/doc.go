// Package csi tests the CSI controllers of the operator in a lab without Ceph: pods of
// drivers that Kubernetes knows and registers, the configuration as it arrives in
// them, two namespaces, and the migration from ClientProfileMapping to
// ClientProfileReplication with handles as they stand in PersistentVolumes.
//
// It holds tests only. The images of drivers and sidecars are the stand-in of
// test/csidriver; the operator is the real one, with --controllers=csi. The tests need
// root, what castellan-lab build made, and the binaries (make binaries csi-standin).
// Figures are printed as "MEASURED name value".
package csi
