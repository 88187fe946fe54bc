package conn

import (
	"context"
	"fmt"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type objectKind int

const (
	objRead objectKind = iota
	objWrite
	objRemove
	objOmap
	objSetOmap
)

func (k objectKind) String() string {
	return [...]string{"read", "write", "remove", "omap", "set omap"}[k]
}

type objectOp struct {
	kind objectKind
	at   ceph.Object
	data []byte
	kv   map[string][]byte
	max  int
}

type objectReply struct {
	data  []byte
	kv    map[string][]byte
	errno syscall.Errno
}

// ReadObject gives the whole content of an object.
func (c *Cluster) ReadObject(ctx context.Context, at ceph.Object, max int) ([]byte, error) {
	r, err := c.do(ctx, objectOp{kind: objRead, at: at, max: max})
	return r.data, err
}

// WriteObject replaces the content of an object.
func (c *Cluster) WriteObject(ctx context.Context, at ceph.Object, data []byte) error {
	_, err := c.do(ctx, objectOp{kind: objWrite, at: at, data: data})
	return err
}

// RemoveObject removes an object.
func (c *Cluster) RemoveObject(ctx context.Context, at ceph.Object) error {
	_, err := c.do(ctx, objectOp{kind: objRemove, at: at})
	return err
}

// Omap gives an object's omap.
func (c *Cluster) Omap(ctx context.Context, at ceph.Object) (map[string][]byte, error) {
	r, err := c.do(ctx, objectOp{kind: objOmap, at: at})
	return r.kv, err
}

// SetOmap sets keys of an object's omap.
func (c *Cluster) SetOmap(ctx context.Context, at ceph.Object, kv map[string][]byte) error {
	_, err := c.do(ctx, objectOp{kind: objSetOmap, at: at, kv: kv})
	return err
}

func (c *Cluster) do(ctx context.Context, op objectOp) (objectReply, error) {
	prefix := fmt.Sprintf("rados %v %s/%s", op.kind, op.at.Pool, op.at.Name)
	ctx, cancel := c.bounded(ceph.Command{}).Bound(ctx)
	defer cancel()
	type result struct {
		objectReply
		err error
	}
	r, err := call(ctx, c, monLine, func(h handle) result {
		rep, err := h.object(op)
		return result{rep, err}
	}, func(r result) bool { return noAnswer(r.errno) })
	switch {
	case err != nil:
		return objectReply{}, &ceph.UnreachableError{Prefix: prefix, Err: err}
	case r.err != nil:
		return objectReply{}, fmt.Errorf("ceph %s: %w", prefix, r.err)
	case noAnswer(r.errno):
		return objectReply{}, &ceph.UnreachableError{Prefix: prefix, Err: r.errno}
	case r.errno != 0:
		return objectReply{}, &ceph.Error{Prefix: prefix, Errno: r.errno}
	}
	return r.objectReply, nil
}
