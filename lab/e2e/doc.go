// Package e2e tests the operator with a real Ceph in a lab: from nothing to
// HEALTH_OK, what the operator costs when nothing happens, and that it brings a
// cluster back to what the spec says after each of the things that go wrong in
// practice. An object that is written at the beginning is read back after each.
//
// It holds tests only. They need root, what castellan-lab build made, and the
// operator's binaries. Figures are printed as "MEASURED name value".
package e2e
