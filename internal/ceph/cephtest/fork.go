package cephtest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph/cephtest/deepcopy"
)

// Fork gives a cluster of its own in the state of this one: maps, daemons, PGs, keys,
// the randomness, and faults that are still to come. Hooks are not taken along.
func (c *Cluster) Fork(t testing.TB) *Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	hook := c.hook
	c.hook = nil
	defer func() { c.hook = hook }()
	f := deepcopy.Of(c, reflect.TypeFor[testing.TB](), reflect.TypeFor[[]Sent]())
	f.t, f.sent = t, slices.Clip(c.sent)
	return f
}
