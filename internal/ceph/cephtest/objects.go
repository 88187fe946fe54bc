package cephtest

import (
	"context"
	"maps"
	"slices"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type object struct {
	data []byte
	omap map[string][]byte
}

// at runs f with the pool checked, as librados would.
func (c *Cluster) at(ctx context.Context, verb string, o ceph.Object, create bool, f func(*object) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := "rados " + verb + " " + o.Pool + "/" + o.Name
	if err := ctx.Err(); err != nil {
		return unreachable(prefix, err)
	}
	if len(c.quorum()) == 0 {
		return unreachable(prefix, context.DeadlineExceeded)
	}
	if create || verb == "remove" {
		c.count.Mutations++
	} else {
		c.count.Reads++
	}
	x := c.objects[o]
	if c.findPool(o.Pool) == nil || x == nil && !create {
		return &ceph.Error{Prefix: prefix, Errno: syscall.ENOENT}
	}
	if x == nil {
		x = &object{omap: map[string][]byte{}}
		c.objects[o] = x
	}
	return f(x)
}

// ReadObject gives the whole content of an object.
func (c *Cluster) ReadObject(ctx context.Context, o ceph.Object, max int) (data []byte, err error) {
	err = c.at(ctx, "read", o, false, func(x *object) error {
		if len(x.data) > max {
			return &ceph.Error{Prefix: "rados read " + o.Pool + "/" + o.Name, Errno: syscall.EFBIG}
		}
		data = append([]byte{}, x.data...)
		return nil
	})
	return data, err
}

// WriteObject replaces the content of an object.
func (c *Cluster) WriteObject(ctx context.Context, o ceph.Object, data []byte) error {
	return c.at(ctx, "write", o, true, func(x *object) error {
		x.data = slices.Clone(data)
		return nil
	})
}

// RemoveObject removes an object.
func (c *Cluster) RemoveObject(ctx context.Context, o ceph.Object) error {
	return c.at(ctx, "remove", o, false, func(*object) error {
		delete(c.objects, o)
		return nil
	})
}

// Omap gives an object's omap.
func (c *Cluster) Omap(ctx context.Context, o ceph.Object) (kv map[string][]byte, err error) {
	err = c.at(ctx, "omap", o, false, func(x *object) error {
		kv = maps.Clone(x.omap)
		return nil
	})
	return kv, err
}

// SetOmap sets keys of an object's omap.
func (c *Cluster) SetOmap(ctx context.Context, o ceph.Object, kv map[string][]byte) error {
	return c.at(ctx, "set omap", o, true, func(x *object) error {
		maps.Copy(x.omap, kv)
		return nil
	})
}
