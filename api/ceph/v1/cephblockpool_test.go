package v1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func TestBlockPoolName(t *testing.T) {
	for _, tc := range []struct {
		object, spec, want string
	}{
		{"replicapool", "", "replicapool"},
		{"builtin-mgr", ".mgr", ".mgr"},
	} {
		p := CephBlockPool{ObjectMeta: named("rook-ceph", tc.object), Spec: NamedBlockPoolSpec{Name: tc.spec}}
		if got := p.PoolName(); got != tc.want {
			t.Errorf("PoolName of object %q with spec.name %q = %q, want %q", tc.object, tc.spec, got, tc.want)
		}
	}
}

func TestRadosNamespaceNames(t *testing.T) {
	for _, tc := range []struct {
		title     string
		in        CephBlockPoolRadosNamespace
		want      string
		implicit  bool
		clusterID string
	}{
		{
			title:     "name of the object; the id as existing volumes hold it",
			in:        CephBlockPoolRadosNamespace{ObjectMeta: named("rook-ceph", "ns1"), Spec: CephBlockPoolRadosNamespaceSpec{BlockPoolName: "replicapool"}},
			want:      "ns1",
			clusterID: "a45299a0ead7dbd859f26283051fe9d6",
		},
		{
			title:     "name of the spec: the object's own name does not matter",
			in:        CephBlockPoolRadosNamespace{ObjectMeta: named("rook-ceph", "whatever"), Spec: CephBlockPoolRadosNamespaceSpec{BlockPoolName: "replicapool", Name: "ns1"}},
			want:      "ns1",
			clusterID: "a45299a0ead7dbd859f26283051fe9d6",
		},
		{
			title:     "id of the spec",
			in:        CephBlockPoolRadosNamespace{ObjectMeta: named("rook-ceph", "ns1"), Spec: CephBlockPoolRadosNamespaceSpec{BlockPoolName: "replicapool", ClusterID: "mine"}},
			want:      "ns1",
			clusterID: "mine",
		},
		{
			title:     "the namespace without a name",
			in:        CephBlockPoolRadosNamespace{ObjectMeta: named("rook-ceph", "dflt"), Spec: CephBlockPoolRadosNamespaceSpec{BlockPoolName: "replicapool", Name: "<implicit>", ClusterID: "mine"}},
			want:      "",
			implicit:  true,
			clusterID: "mine",
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			if got := tc.in.RadosNamespace(); got != tc.want {
				t.Errorf("RadosNamespace = %q, want %q", got, tc.want)
			}
			if got := tc.in.IsImplicit(); got != tc.implicit {
				t.Errorf("IsImplicit = %v, want %v", got, tc.implicit)
			}
			if got := tc.in.ClusterID(); got != tc.clusterID {
				t.Errorf("ClusterID = %q, want %q", got, tc.clusterID)
			}
		})
	}
}

// Different places must never share an id: CSI would mix their volumes up.
func TestRadosNamespaceClusterIDsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, ns := range []string{"rook-ceph", "second"} {
		for _, pool := range []string{"a", "b"} {
			for _, name := range []string{"x", "y", ImplicitRadosNamespace} {
				n := CephBlockPoolRadosNamespace{ObjectMeta: named(ns, "object"), Spec: CephBlockPoolRadosNamespaceSpec{BlockPoolName: pool, Name: name}}
				place := ns + "/" + pool + "/" + name
				if other, ok := seen[n.ClusterID()]; ok {
					t.Errorf("%s and %s share cluster id %s", place, other, n.ClusterID())
				}
				seen[n.ClusterID()] = place
			}
		}
	}
}
