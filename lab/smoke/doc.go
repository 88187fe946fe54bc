// Package smoke tests a whole lab: that Kubernetes works in it, that Ceph's
// programs run, that disks and nodes can be handled, and that nothing is left
// of it afterwards.
//
// It holds tests only. They need root and what castellan-lab build made.
package smoke
