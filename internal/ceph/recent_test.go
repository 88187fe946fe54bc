package ceph

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asked is a Ceph that counts: each answer is how often it was asked.
type asked struct {
	mu    sync.Mutex
	n     int
	delay time.Duration
	fail  error
}

func (a *asked) commander() Commander {
	return Func(func(ctx context.Context, _ Target, _ Command) (Reply, error) {
		a.mu.Lock()
		a.n++
		n, fail := a.n, a.fail
		a.mu.Unlock()
		select {
		case <-time.After(a.delay):
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
		return Reply{Out: fmt.Appendf(nil, "%d", n)}, fail
	})
}

func recently(t *testing.T, s Commander, cmd Command) int {
	t.Helper()
	n, err := RecentMonJSON[int](t.Context(), Recently(s), cmd)
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestRecentAnswersAreSharedForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{delay: 100 * time.Millisecond}
		s := NewSharing(a.commander())
		var all sync.WaitGroup
		for range 5 { // at once: one question
			all.Go(func() {
				if n := recently(t, s, Cmd("auth ls")); n != 1 {
					t.Errorf("answer %d", n)
				}
			})
		}
		all.Wait()
		if n := recently(t, s, Cmd("auth ls", "entity", "x")); n != 2 {
			t.Errorf("another question has answer %d", n)
		}
		time.Sleep(RecentAge)
		if n := recently(t, s, Cmd("auth ls")); n != 3 {
			t.Errorf("an answer that is too old was given: %d", n)
		}
		if n := recently(t, s, Cmd("auth ls")); n != 3 {
			t.Errorf("a fresh answer was not given: %d", n)
		}
	})
}

// What a Commander is asked is asked of Ceph, however fresh another answer is.
func TestACommanderAsksCeph(t *testing.T) {
	a := &asked{}
	s := NewSharing(a.commander())
	recently(t, s, Cmd("osd dump"))
	for want := 2; want < 4; want++ {
		if n, err := MonJSON[int](t.Context(), s, Cmd("osd dump")); err != nil || n != want {
			t.Errorf("answer %d, want %d: %v", n, want, err)
		}
	}
	if n := recently(t, s, Cmd("osd dump")); n != 1 {
		t.Errorf("a live answer has put out a recent one: %d", n)
	}
}

func TestAChangeIsSeenAtOnce(t *testing.T) {
	for _, change := range []func(Commander) error{
		func(c Commander) error { _, err := c.Mon(t.Context(), Cmd("config set")); return err },
		func(c Commander) error { _, err := c.Mgr(t.Context(), Cmd("osd destroy")); return err },
		func(c Commander) error { _, err := c.Tell(t.Context(), "osd.1", Cmd("config set")); return err },
		func(c Commander) error { _, err := c.Mon(t.Context(), Cmd("a command of tomorrow")); return err },
	} {
		a := &asked{}
		s := NewSharing(a.commander())
		recently(t, s, Cmd("config dump"))
		if err := change(s); err != nil {
			t.Fatal(err)
		}
		if n := recently(t, s, Cmd("config dump")); n != 3 {
			t.Errorf("answer %d after a change", n)
		}
	}
}

// A question that was under way when something changed is answered to who asked it, and
// to nobody who asks after the change.
func TestAnAnswerFromBeforeAChangeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{delay: time.Second}
		s := NewSharing(a.commander())
		var all sync.WaitGroup
		all.Go(func() {
			if n := recently(t, s, Cmd("config dump")); n != 1 {
				t.Errorf("the first answer is %d", n)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, err := s.Mon(t.Context(), Cmd("config set")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Wait()
		if n := recently(t, s, Cmd("config dump")); n != 3 {
			t.Errorf("answer %d after a change", n)
		}
	})
}

func TestFailuresAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{delay: time.Second}
		s := NewSharing(a.commander())
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		all.Go(func() {
			if _, err := RecentMonJSON[int](ctx, Recently(s), Cmd("auth ls")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first one got %v", err)
			}
		})
		synctest.Wait()
		if n := recently(t, s, Cmd("auth ls")); n != 2 {
			t.Errorf("who waited for one that gave up got answer %d", n)
		}
		all.Wait()
		a.mu.Lock()
		a.fail = errors.New("no quorum")
		a.mu.Unlock()
		if _, err := RecentMonJSON[int](t.Context(), Recently(s), Cmd("auth ls")); err == nil {
			t.Error("a failure is no failure")
		}
		a.mu.Lock()
		a.fail = nil
		a.mu.Unlock()
		if n := recently(t, s, Cmd("auth ls")); n != 4 {
			t.Errorf("answer %d after a failure", n)
		}
	})
}

// Without a Sharing each one asks.
func TestRecentOverAnyCommander(t *testing.T) {
	a := &asked{}
	c := a.commander()
	for want := 1; want < 4; want++ {
		if n := recently(t, c, Cmd("auth ls")); n != want {
			t.Errorf("answer %d, want %d", n, want)
		}
	}
}
