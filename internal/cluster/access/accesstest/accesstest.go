// Package accesstest has what tests of controllers need for access.Reader to find a
// cluster: the objects by which one that has been founded is known.
//
// It is for tests only, and must not say anything of the cluster's Ceph: that is what
// the test's own Dial gives.
package accesstest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// Founded are the Secret with an identity and the ConfigMap with one mon, in namespace ns.
// They are the same in each run.
func Founded(t testing.TB, ns string) []client.Object {
	t.Helper()
	id, err := identity.New(strings.NewReader(strings.Repeat("castellan", 40)), identity.AES256K, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	list, err := endpoints.Empty().With(endpoints.Mon{ID: "a", Addr: netip.MustParseAddrPort("192.0.2.1:3300")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := list.Data("")
	if err != nil {
		t.Fatal(err)
	}
	return []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: identity.Secret, Namespace: ns}, Data: id.Data()},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: endpoints.ConfigMap, Namespace: ns}, Data: data},
	}
}
