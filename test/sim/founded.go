package sim

import (
	"bytes"
	"context"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
)

// Founded is the in-memory Ceph under the id by which the operator has founded it: a
// real one takes its id from the operator.
type Founded struct {
	*cephtest.Cluster
	// As is the id that the operator has given it.
	As string
}

// Mon implements ceph.Commander.
func (f Founded) Mon(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	r, err := f.Cluster.Mon(ctx, cmd)
	if f.As != "" {
		r.Out = bytes.ReplaceAll(r.Out, []byte(f.FSID()), []byte(f.As))
	}
	return r, err
}
