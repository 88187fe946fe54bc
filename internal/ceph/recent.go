package ceph

import (
	"context"
	"sync"
	"time"
)

// RecentAge is how old an answer may be that Recent gives: long enough for the first
// passes of all controllers of an operator that starts, short enough for whoever looks
// again after an event.
const RecentAge = 2 * time.Second

// Recent gives answers of a moment ago, for plans of which several ask the same thing at
// the same time. It is not a Commander: what confirms that a step may be taken, or has
// been, has to ask anew, and cannot be given a Recent by mistake.
type Recent struct{ c Commander }

// Recently is a Recent over c. It shares answers only where c is one that NewSharing
// made; any other Commander is asked each time.
func Recently(c Commander) Recent { return Recent{c} }

// RecentMonJSON is MonJSON with an answer that is no older than RecentAge. cmd must
// change nothing.
func RecentMonJSON[T any](ctx context.Context, r Recent, cmd Command) (T, error) {
	s, ok := r.c.(*Sharing)
	if !ok {
		return MonJSON[T](ctx, r.c, cmd)
	}
	reply, err := s.recent(ctx, cmd)
	return decoded[T](cmd.Prefix, reply, err)
}

// Sharing is a Commander that keeps answers for Recent. Every command that it carries
// for others is asked of Ceph, and one that is not known to only read makes it forget:
// who has changed something sees the change.
type Sharing struct {
	c   Commander
	now func() time.Time

	mu      sync.Mutex
	answers map[string]*shared
}

// shared is one answer, or the question under way: reply and err are there when done is
// closed.
type shared struct {
	asked time.Time
	done  chan struct{}
	reply Reply
	err   error
}

// NewSharing keeps answers of c.
func NewSharing(c Commander) *Sharing {
	return &Sharing{c: c, now: time.Now, answers: map[string]*shared{}}
}

// reads are the commands that change nothing, of those that controllers send in every
// pass.
func reads(prefix string) bool {
	switch prefix {
	case "auth ls", "auth get", "config dump", "osd dump", "osd tree", "osd crush rule dump", "osd crush dump", "osd df", "osd metadata",
		"osd ok-to-stop", "osd safe-to-destroy", "mon dump", "mon ok-to-stop", "quorum_status", "mgr stat", "mgr dump", "mgr module ls",
		"pg stat", "pg dump", "pg ls", "status", "health", "versions", "df":
		return true
	}
	return false
}

// Mon implements Commander.
func (s *Sharing) Mon(ctx context.Context, cmd Command) (Reply, error) { return s.do(ctx, ToMon, cmd) }

// Mgr implements Commander.
func (s *Sharing) Mgr(ctx context.Context, cmd Command) (Reply, error) { return s.do(ctx, ToMgr, cmd) }

// Tell implements Commander.
func (s *Sharing) Tell(ctx context.Context, daemon string, cmd Command) (Reply, error) {
	return s.do(ctx, Target(daemon), cmd)
}

func (s *Sharing) do(ctx context.Context, to Target, cmd Command) (Reply, error) {
	if !reads(cmd.Prefix) {
		// Before, since others may read what changes while it does; and after.
		s.forget()
		defer s.forget()
	}
	return Do(ctx, s.c, to, cmd)
}

// forget lets the next one ask anew. Who waits for an answer that is under way began to
// before, and gets it.
func (s *Sharing) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
}

// recent asks the mons, or takes the answer that somebody else has got or waits for.
// Failures are not kept.
func (s *Sharing) recent(ctx context.Context, cmd Command) (Reply, error) {
	wire, err := cmd.Wire()
	if err != nil {
		return Reply{}, err
	}
	key := string(wire)
	s.mu.Lock()
	a := s.answers[key]
	if a == nil || s.now().Sub(a.asked) > RecentAge {
		a = &shared{asked: s.now(), done: make(chan struct{})}
		s.answers[key] = a
		s.mu.Unlock()
		a.reply, a.err = s.c.Mon(ctx, cmd)
		s.mu.Lock()
		if a.err != nil && s.answers[key] == a {
			delete(s.answers, key)
		}
		s.mu.Unlock()
		close(a.done)
		return a.reply, a.err
	}
	s.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		return Reply{}, &UnreachableError{Prefix: cmd.Prefix, Err: ctx.Err()}
	}
	if a.err != nil {
		// The other's context may have ended, which says nothing of this one.
		return s.c.Mon(ctx, cmd)
	}
	return a.reply, nil
}
