package kit

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Writers lets the passes of several controllers that report on one object write its
// status one after another, each onto what the one before has written. Without it,
// controllers that move at the same moment put their changes onto copies from the cache
// that are outdated already: more than half of the writes of a new cluster were refused,
// and each had cost the API server the validation of the whole object.
//
// It is an aid, not a lock that anything relies on: each write still names the version it
// is put onto, and other processes write as they like. What it keeps is gone when the last
// pass over the object has ended.
type Writers struct {
	mu   sync.Mutex
	open map[types.UID]*writing
}

// writing is one object that passes are looking at.
type writing struct {
	passes int
	turn   chan struct{}
	// latest is what the last write gave back. The one whose turn it is may use it.
	latest Object
}

// NewWriters makes a Writers for the controllers of one process.
func NewWriters() *Writers { return &Writers{open: map[types.UID]*writing{}} }

// join says that a pass over the object begins. leave has to follow. A nil Writers gives
// nil, which takes no turns.
func (w *Writers) join(uid types.UID) *writing {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.open[uid]
	if o == nil {
		o = &writing{turn: make(chan struct{}, 1)}
		w.open[uid] = o
	}
	o.passes++
	return o
}

// leave says that the pass has ended.
func (w *Writers) leave(uid types.UID) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.open[uid]
	if o.passes--; o.passes == 0 {
		delete(w.open, uid)
	}
}

// take waits for the turn to write, and ends with ctx's error. done has to follow.
func (o *writing) take(ctx context.Context) error {
	if o == nil {
		return nil
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// done gives the turn to the next one. written is the object as it is now, or nil if that
// is not known.
func (o *writing) done(written Object) {
	if o == nil {
		return
	}
	if written != nil {
		o.latest = written
	}
	<-o.turn
}

// newest gives the newer one of obj and what was written last. It is called by the one
// whose turn it is.
func newest[T Object](o *writing, obj T) T {
	if o == nil || o.latest == nil || o.latest.GetUID() != obj.GetUID() {
		return obj
	}
	latest, ok := o.latest.(T)
	if !ok {
		return obj
	}
	if c, err := resourceversion.CompareResourceVersion(latest.GetResourceVersion(), obj.GetResourceVersion()); err != nil || c <= 0 {
		return obj
	}
	return latest
}
