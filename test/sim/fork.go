package sim

import (
	"reflect"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest/deepcopy"
)

// Fork gives a world of its own in the state of this one, for a Ceph and an API server
// that are in the state of its own. It has no clock, and moves only by Step.
func (w *World) Fork(t testing.TB, c client.Client, ceph *cephtest.Cluster) *World {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := deepcopy.Of(w, reflect.TypeFor[testing.TB](), reflect.TypeFor[client.Client](), reflect.TypeFor[*counting](), reflect.TypeFor[*cephtest.Cluster](),
		reflect.TypeFor[chan struct{}](), reflect.TypeFor[func() time.Time]())
	f.t, f.Ceph, f.Clock, f.done = t, ceph, nil, make(chan struct{})
	f.writes = &counting{Client: c}
	f.c = f.writes
	return f
}
