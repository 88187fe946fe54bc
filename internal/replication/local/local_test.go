package local_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/csi/clientprofile"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/replication/local"
)

func TestPools(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := cephtest.Healthy(t, 3, 1)
	if _, err := c.Mon(t.Context(), ceph.Cmd("osd pool create", "pool", "rbd", "pool_type", "replicated")); err != nil {
		t.Fatal(err)
	}
	store, err := kittest.NewStore(scheme,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: identity.Secret, Namespace: "storage"}, Data: map[string][]byte{
			"fsid": []byte(c.FSID()), "mon-secret": []byte("m"), "ceph-username": []byte("client.admin"), "ceph-secret": []byte("k")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-mon-endpoints", Namespace: "storage"}, Data: map[string]string{"data": "a=10.0.0.1:3300", "maxMonId": "0"}})
	if err != nil {
		t.Fatal(err)
	}
	l := local.Lister{Namespace: "operators", Access: access.Reader{Live: store.Client(), Dial: func(string, conn.Config) ceph.Commander { return c }}}
	connection := func(namespace, name, cluster string) *csiv1.CephConnection {
		return &csiv1.CephConnection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{clientprofile.ClusterAnnotation: cluster}}}
	}
	for name, tt := range map[string]struct {
		connection *csiv1.CephConnection
		want       sets.Set[string]
		ours       bool
	}{
		"ours":                      {connection("operators", "storage", "storage/main"), sets.New(".mgr", "rbd"), true},
		"no annotation":             {connection("operators", "storage", ""), nil, false},
		"in another namespace":      {connection("storage", "storage", "storage/main"), nil, false},
		"another cluster's name":    {connection("operators", "mine", "storage/main"), nil, false},
		"a cluster that is not one": {connection("operators", "gone", "gone/main"), nil, false},
	} {
		got, ours := l.Pools(t.Context(), tt.connection)
		if d := cmp.Diff(tt.want, got); d != "" || ours != tt.ours {
			t.Errorf("%s: ours %v\n%s", name, ours, d)
		}
	}
	// No answer is not "no pools".
	ours := connection("operators", "storage", "storage/main")
	store.Fail(func(string, string, types.NamespacedName) error {
		return apierrors.NewServerTimeout(corev1.Resource("secrets"), "get", 1)
	})
	if got, is := l.Pools(t.Context(), ours); got != nil || !is {
		t.Errorf("without an answer of the API server: %v, %v", got, is)
	}
	store.Fail(nil)
	for _, m := range []string{"a", "b", "c"} {
		c.StopMon(m)
	}
	if got, is := l.Pools(t.Context(), ours); got != nil || !is {
		t.Errorf("without an answer of Ceph: %v, %v", got, is)
	}
}
