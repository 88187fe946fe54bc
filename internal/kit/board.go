package kit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Line is what one key of one controller waits for, or failed at.
type Line struct {
	Controller string
	Key        Key
	// Owner is the driving object.
	Owner Key
	Wait  Wait
	// Err is the text of the error if the pass failed; Wait is empty then.
	Err string
	// Terminal says that only a change of the spec helps.
	Terminal bool
	// Since is when this reason was first seen by this process.
	Since time.Time
}

// Board shows what every key that is not done is waiting for. It is a cache, not
// state: every pass writes its line again, and a new process fills it within its
// first passes. It serves controllers with many keys to one object (OSDs,
// nodes), whose waits the object's own controller puts together into its status.
type Board struct {
	mu    sync.Mutex
	lines map[boardKey]Line
	// changed is called outside the lock when a line comes, goes or changes reason.
	changed []func(owner Key)
}

type boardKey struct {
	controller string
	key        Key
}

// NewBoard makes an empty board.
func NewBoard() *Board { return &Board{lines: map[boardKey]Line{}} }

// OnChange has f called, with the key of the driving object, whenever a line comes,
// goes or changes. f must not block.
func (b *Board) OnChange(f func(owner Key)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = append(b.changed, f)
}

// Of gives the lines of one driving object, ordered by controller and key.
func (b *Board) Of(owner Key) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []Line
	for _, l := range b.lines {
		if l.Owner == owner {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(x, y Line) int {
		return cmp.Or(cmp.Compare(x.Controller, y.Controller), cmp.Compare(x.Key.String(), y.Key.String()))
	})
	return lines
}

// Source leads to a pass of the driving object whenever one of its lines comes, goes or
// changes; it is for Options.Sources of the controller that reads the board.
func (b *Board) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		b.OnChange(func(owner Key) { queue.Add(reconcile.Request{NamespacedName: owner}) })
		return nil
	})
}

// put writes the line of a key that is not done.
func (b *Board) put(l Line) {
	if b == nil {
		return
	}
	k := boardKey{l.Controller, l.Key}
	b.mu.Lock()
	old, had := b.lines[k]
	if had && old.Wait.Reason == l.Wait.Reason && old.Err == l.Err {
		l.Since = old.Since
	}
	b.lines[k] = l
	fs := b.changed
	b.mu.Unlock()
	if had && old == l {
		return
	}
	for _, f := range fs {
		f(l.Owner)
	}
}

// drop removes the line of a key that is done or gone.
func (b *Board) drop(controller string, key Key) {
	if b == nil {
		return
	}
	k := boardKey{controller, key}
	b.mu.Lock()
	old, had := b.lines[k]
	delete(b.lines, k)
	fs := b.changed
	b.mu.Unlock()
	if !had {
		return
	}
	for _, f := range fs {
		f(old.Owner)
	}
}
