// Package plugin is what kubectl castellan does: it asks the operator for the
// replacement of an OSD's disk and follows it, shows what a cluster waits for and why
// disks are not used, and finds the destination of a replicated volume.
//
// It is thin: requests are the annotations that a user could write by hand, and what is
// shown stands in the API objects. It must not reach Ceph or nodes in any other way, and
// must decide nothing that the operator decides; what it refuses, it refuses since the
// operator would, or since it could not be undone.
package plugin
