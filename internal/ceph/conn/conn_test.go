package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type fakeHandle struct {
	name   string
	block  chan struct{} // nil: answer at once
	errno  syscall.Errno
	status string
	err    error
	id     string
	inside atomic.Int32
	closed atomic.Bool
	bad    atomic.Bool // closed with calls inside
}

func (h *fakeHandle) command(_ ceph.Target, wire, in []byte) ([]byte, string, syscall.Errno, error) {
	h.inside.Add(1)
	defer h.inside.Add(-1)
	if h.block != nil {
		<-h.block
	}
	return append([]byte(h.name+" "), append(wire, in...)...), h.status, h.errno, h.err
}

func (h *fakeHandle) object(objectOp) (objectReply, error) {
	return objectReply{errno: h.errno, data: []byte("x")}, h.err
}
func (h *fakeHandle) fsid() (string, error) { return h.id, nil }
func (h *fakeHandle) close() {
	h.bad.Store(h.inside.Load() > 0)
	h.closed.Store(true)
}

type fakeDialer struct {
	mu    sync.Mutex
	made  []*fakeHandle
	kinds []bool
	next  func() (*fakeHandle, error)
}

func (d *fakeDialer) dial(_ Config, unbounded bool) (handle, error) {
	h, err := &fakeHandle{}, error(nil)
	if d.next != nil {
		h, err = d.next()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kinds = append(d.kinds, unbounded)
	if err != nil {
		return nil, err
	}
	d.made = append(d.made, h)
	return h, nil
}

func (d *fakeDialer) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.made)
}

var cfg = Config{MonHost: "[v2:10.0.0.1:3300]", User: "client.admin", Key: ceph.NewSecret("k")}

func TestOneConnectionIsKept(t *testing.T) {
	d := &fakeDialer{}
	p := newPool(d.dial)
	for range 3 {
		if _, err := p.Cluster("ns", cfg).Mon(t.Context(), ceph.Cmd("status").WithIn([]byte("in"))); err != nil {
			t.Fatal(err)
		}
	}
	if d.count() != 1 {
		t.Errorf("%d connections", d.count())
	}
	if _, err := p.Cluster("ns", cfg).Mgr(t.Context(), ceph.Cmd("pg stat")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]bool{false, true}, d.kinds); diff != "" {
		t.Errorf("mgr commands need an unbounded handle of their own: %s", diff)
	}
}

func TestAChangeOfKeyOrMonsMakesANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDialer{}
		p := newPool(d.dial)
		changed := []Config{cfg, cfg, cfg}
		changed[1].Key = ceph.NewSecret("other")
		changed[2].MonHost = "[v2:10.0.0.2:3300]"
		for _, c := range changed {
			if _, err := p.Cluster("ns", c).Mon(t.Context(), ceph.Cmd("status")); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if d.count() != 3 || !d.made[0].closed.Load() || !d.made[1].closed.Load() || d.made[2].closed.Load() {
			t.Errorf("%d connections", d.count())
		}
	})
}

func TestAHangingCommandBlocksOnlyItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		d := &fakeDialer{next: func() (*fakeHandle, error) { return &fakeHandle{block: block}, nil }}
		p := newPool(d.dial)
		c := p.Cluster("ns", cfg)
		start := time.Now()
		_, err := c.Mon(t.Context(), ceph.Cmd("status").WithTimeout(3*time.Second))
		if !ceph.Unreachable(err) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		// The connection is not shut down while something is inside it.
		p.Forget("ns")
		synctest.Wait()
		if d.made[0].closed.Load() {
			t.Error("closed under a call")
		}
		close(block)
		synctest.Wait()
		if !d.made[0].closed.Load() || d.made[0].bad.Load() {
			t.Error("not closed after the last call")
		}
	})
}

// The operator's settings may give commands more or less time, also on a connection that
// is there.
func TestCommandsWithoutABoundHaveThePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		d := &fakeDialer{next: func() (*fakeHandle, error) { return &fakeHandle{block: block}, nil }}
		p := newPool(d.dial)
		c := p.Cluster("ns", cfg)
		took := func(cmd ceph.Command) time.Duration {
			start := time.Now()
			if _, err := c.Mon(t.Context(), cmd); !ceph.Unreachable(err) {
				t.Errorf("%v", err)
			}
			return time.Since(start)
		}
		if got := took(ceph.Cmd("status")); got != ceph.DefaultTimeout {
			t.Errorf("with no setting: %s", got)
		}
		p.SetTimeout(40 * time.Second)
		if got := took(ceph.Cmd("status")); got != 40*time.Second {
			t.Errorf("with a setting: %s", got)
		}
		if got := took(ceph.Cmd("status").WithTimeout(time.Second)); got != time.Second {
			t.Errorf("with a bound of its own: %s", got)
		}
		close(block)
	})
}

func TestHangingCommandsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		d := &fakeDialer{next: func() (*fakeHandle, error) { return &fakeHandle{block: block}, nil }}
		c := newPool(d.dial).Cluster("ns", cfg)
		for range maxAbandoned {
			if _, err := c.Mgr(t.Context(), ceph.Cmd("osd destroy").WithTimeout(time.Second)); !ceph.Unreachable(err) {
				t.Fatal(err)
			}
		}
		start := time.Now()
		_, err := c.Mgr(t.Context(), ceph.Cmd("osd destroy"))
		if !ceph.Unreachable(err) || time.Since(start) != 0 || d.made[0].inside.Load() != maxAbandoned {
			t.Errorf("%v after %v with %d inside", err, time.Since(start), d.made[0].inside.Load())
		}
		close(block)
		synctest.Wait()
		if _, err := c.Mgr(t.Context(), ceph.Cmd("pg stat")); err != nil {
			t.Errorf("after the mgr came back: %v", err)
		}
	})
}

func TestAHandleThatHangsForLongIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		d := &fakeDialer{next: func() (*fakeHandle, error) { return &fakeHandle{block: block}, nil }}
		c := newPool(d.dial).Cluster("ns", cfg)
		for range 100 {
			for range maxAbandoned {
				_, _ = c.Mgr(t.Context(), ceph.Cmd("pg stat").WithTimeout(time.Second))
			}
			time.Sleep(hungFor + time.Second)
		}
		if n := d.count(); n != maxLeft+1 {
			t.Errorf("%d handles were made", n)
		}
		close(block)
		synctest.Wait()
		for _, h := range d.made[:maxLeft] {
			if !h.closed.Load() || h.bad.Load() {
				t.Error("a handle that was given up is not closed once it is empty")
			}
		}
		if _, err := c.Mgr(t.Context(), ceph.Cmd("pg stat")); err != nil {
			t.Error(err)
		}
		c.Close()
		synctest.Wait()
	})
}

func TestADeadConnectionIsReplaced(t *testing.T) {
	errnos := []syscall.Errno{syscall.ETIMEDOUT, 0}
	d := &fakeDialer{}
	d.next = func() (*fakeHandle, error) { return &fakeHandle{errno: errnos[d.count()]}, nil }
	c := newPool(d.dial).Cluster("ns", cfg)
	_, err := c.Mon(t.Context(), ceph.Cmd("status"))
	if !ceph.Unreachable(err) || ceph.Errno(err) != 0 || !errors.Is(err, syscall.ETIMEDOUT) {
		t.Fatalf("%v", err)
	}
	if _, err := c.Mon(t.Context(), ceph.Cmd("status")); err != nil || d.count() != 2 {
		t.Errorf("%v, %d connections", err, d.count())
	}
}

func TestErrnoAndOutputComeTogether(t *testing.T) {
	d := &fakeDialer{next: func() (*fakeHandle, error) {
		return &fakeHandle{errno: syscall.EBUSY, status: "unsafe"}, nil
	}}
	r, err := newPool(d.dial).Cluster("ns", cfg).Mgr(t.Context(), ceph.Cmd("osd ok-to-stop"))
	var e *ceph.Error
	if !errors.As(err, &e) || e.Errno != syscall.EBUSY || e.Status != "unsafe" || len(r.Out) == 0 || d.count() != 1 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestConnectingFails(t *testing.T) {
	fails := true
	d := &fakeDialer{next: func() (*fakeHandle, error) {
		if fails {
			return nil, fmt.Errorf("connecting: %w", syscall.ENOENT)
		}
		return &fakeHandle{}, nil
	}}
	c := newPool(d.dial).Cluster("ns", cfg)
	_, err := c.Mon(t.Context(), ceph.Cmd("auth get"))
	if !ceph.Unreachable(err) || ceph.NotFound(err) || errors.Is(err, syscall.ENOENT) {
		t.Errorf("a failed connection reads as not found: %v", err)
	}
	fails = false
	if _, err := c.Mon(t.Context(), ceph.Cmd("auth get")); err != nil {
		t.Errorf("the next command does not try again: %v", err)
	}
}

func TestOneAttemptIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDialer{next: func() (*fakeHandle, error) {
			time.Sleep(time.Second)
			return &fakeHandle{}, nil
		}}
		c := newPool(d.dial).Cluster("ns", cfg)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := c.Mon(t.Context(), ceph.Cmd("status")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d.count() != 1 {
			t.Errorf("%d attempts", d.count())
		}
	})
}

func TestAnotherClusterIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDialer{next: func() (*fakeHandle, error) { return &fakeHandle{id: "other"}, nil }}
		want := cfg
		want.FSID = "mine"
		_, err := newPool(d.dial).Cluster("ns", want).Mon(t.Context(), ceph.Cmd("osd purge"))
		synctest.Wait()
		if !ceph.Unreachable(err) || !strings.Contains(err.Error(), "other") || !d.made[0].closed.Load() {
			t.Errorf("%v", err)
		}
	})
}

func TestClosed(t *testing.T) {
	d := &fakeDialer{}
	p := newPool(d.dial)
	c := p.Cluster("ns", cfg)
	p.Close()
	for _, c := range []*Cluster{c, p.Cluster("ns", cfg), p.Cluster("other", cfg)} {
		if _, err := c.Mon(t.Context(), ceph.Cmd("status")); !ceph.Unreachable(err) {
			t.Errorf("%v", err)
		}
	}
	if d.count() != 0 {
		t.Error("a closed pool connects")
	}
}

func TestObjects(t *testing.T) {
	d := &fakeDialer{next: func() (*fakeHandle, error) { return &fakeHandle{errno: syscall.ENOENT}, nil }}
	c := newPool(d.dial).Cluster("ns", cfg)
	if _, err := c.ReadObject(t.Context(), ceph.Object{Pool: "p", Name: "o"}, 10); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
}

func TestConfigDoesNotPrintItsKey(t *testing.T) {
	c := cfg
	c.Key = ceph.NewSecret("canary")
	d := &fakeDialer{}
	if s := fmt.Sprintf("%v %+v %#v %+v", c, c, c, newPool(d.dial).Cluster("ns", c)); strings.Contains(s, "canary") {
		t.Error(s)
	}
}

func TestConcurrentUse(t *testing.T) {
	d := &fakeDialer{}
	p := newPool(d.dial)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for n := range 50 {
				c := cfg
				c.MonHost = fmt.Sprint((i + n) % 3)
				_, _ = p.Cluster("ns", c).Mon(context.Background(), ceph.Cmd("status"))
			}
		})
	}
	wg.Wait()
	p.Close()
	for _, h := range d.made {
		if h.bad.Load() {
			t.Fatal("closed under a call")
		}
	}
}
