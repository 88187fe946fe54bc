// Package local says which pools there are in the clusters that the operator runs, for
// warnings about ClientProfileReplications that name others.
//
// It must not fail anything: a warning is not worth that. Where it cannot find out it
// says so.
package local

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph/pool"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/csi/clientprofile"
)

// patience is how long a cluster may take to answer.
const patience = 3 * time.Second

// Lister lists pools.
type Lister struct {
	Access access.Reader
	// Namespace is the operator's: connections of its clusters are there and nowhere
	// else.
	Namespace string
}

// Pools gives the names of all pools of the cluster that a connection leads to. ours is
// false if it is none of the operator's; a nil list says that there was no answer.
func (l Lister) Pools(ctx context.Context, connection *csiv1.CephConnection) (names sets.Set[string], ours bool) {
	namespace, _, ok := strings.Cut(connection.Annotations[clientprofile.ClusterAnnotation], "/")
	if !ok || connection.Namespace != l.Namespace || namespace != connection.Name {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stored, err := l.Access.Read(ctx, namespace)
	if err == nil && stored.Ceph == nil {
		return nil, false // somebody has written the annotation by hand, or the cluster is gone
	}
	var list []string
	if err == nil {
		list, err = pool.New(stored.Ceph).Names(ctx)
	}
	if err != nil {
		log.FromContext(ctx).V(1).Info("the pools of a cluster are not known", "cluster", namespace, "error", err.Error())
		return nil, true
	}
	return sets.New(list...), true
}
