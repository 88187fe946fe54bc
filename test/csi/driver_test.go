package csi_test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// driver is a Driver with a name of the test's own, since a CSIDriver is cluster
// scoped.
func (w *world) driver(kind string) *csiv1.Driver {
	prefix := w.ns
	if len(prefix) > 20 {
		prefix = prefix[len(prefix)-20:]
	}
	for prefix != "" && prefix[0] == '-' {
		prefix = prefix[1:]
	}
	return &csiv1.Driver{ObjectMeta: metav1.ObjectMeta{Name: prefix + "." + kind + ".csi.ceph.com", Namespace: w.ns}}
}
