// Package conn is the real Commander: one kept connection per cluster, made at the
// first command, made again when mon addresses or keys change or when it stops
// answering, closed when the cluster goes.
//
// It is the only package that needs cgo (file rados.go); without cgo it builds
// and every command says so. It reads no ceph.conf, no keyring file and no
// environment, and it puts no key where a process listing could show it.
//
// A command that hangs blocks only its caller, until the command's deadline. The
// goroutine behind it stays inside librados until that gives up; how many may is
// bounded, and a connection is only shut down once nothing is inside it, because
// librados frees what the call still uses.
//
// Mgr commands have a librados handle of their own, made when first needed,
// because librados' bound of a mgr command is not safe: on a timeout
// RadosClient::mgr_command returns while the mgr client still points to its
// stack, and a late reply writes there. So that handle has no bound: a call in it
// ends when a mgr answers. Carrying mgr commands through the mons instead would be
// bounded, but osd destroy and purge are refused that way (EINVAL on 20.2.4), and
// one that hangs becomes a slow op of the mon and so a health warning.
package conn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
)

const (
	// DefaultConnectTimeout bounds librados' own connecting
	// (client_mount_timeout). Connecting takes 53 ms when a mon answers; 10 s
	// lets it try several dead ones.
	DefaultConnectTimeout = 10 * time.Second
	// DefaultOpTimeout is librados' bound of one command (rados_mon_op_timeout,
	// rados_osd_op_timeout). It is longer than the deadlines of commands, which
	// end the waiting, because it ends the goroutine behind.
	DefaultOpTimeout = 60 * time.Second
	// maxInFlight bounds the goroutines inside one librados handle. A pass sends
	// at most a dozen commands; this many at once means that they hang.
	maxInFlight = 64
	// maxAbandoned is how many calls may be inside that their callers have given
	// up on. Beyond it commands fail at once instead of queueing up: each one
	// inside is carried out whenever Ceph comes back, wanted or not.
	maxAbandoned = 4
	// hungFor is how long maxAbandoned calls must have been inside before the
	// handle is given up for a new one: a mgr module that never answers must not
	// block the others for ever.
	hungFor = 5 * time.Minute
	// maxLeft bounds the handles that were given up and cannot be shut down
	// because calls are still inside (about 2 MiB and a dozen threads each).
	maxLeft = 8
)

// Config says how to reach a cluster. Two configs that are Equal share a
// connection.
type Config struct {
	// FSID is checked after connecting when it is not empty.
	FSID string
	// MonHost is what the option mon_host takes:
	// "[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[...]".
	MonHost string
	// User is a whole entity name, e.g. "client.admin".
	User string
	Key  ceph.Secret
	// Options are further options of Ceph, e.g. ms_client_mode.
	Options map[string]string
	// ConnectTimeout and OpTimeout are the defaults above when 0.
	ConnectTimeout, OpTimeout time.Duration
}

// Equal compares two configs, keys included.
func (c Config) Equal(o Config) bool {
	return c.FSID == o.FSID && c.MonHost == o.MonHost && c.User == o.User &&
		c.Key.Equal(o.Key) && maps.Equal(c.Options, o.Options) &&
		c.ConnectTimeout == o.ConnectTimeout && c.OpTimeout == o.OpTimeout
}

// handle is one connected librados handle. Its calls block, up to OpTimeout.
// close must only be called when no call is inside.
type handle interface {
	command(to ceph.Target, wire, in []byte) (out []byte, status string, errno syscall.Errno, err error)
	object(op objectOp) (objectReply, error)
	fsid() (string, error)
	close()
}

// dialer makes a handle, unbounded for mgr commands.
type dialer func(cfg Config, unbounded bool) (handle, error)

// Pool keeps one connection per cluster. The zero value is not usable; see New.
type Pool struct {
	dial dialer
	// timeout in nanoseconds, 0 for ceph.DefaultTimeout.
	timeout atomic.Int64

	mu       sync.Mutex
	clusters map[string]*Cluster
	closed   bool
}

// connectTimeout is how long connecting may take.
func (c Config) connectTimeout() time.Duration {
	if c.ConnectTimeout <= 0 {
		return DefaultConnectTimeout
	}
	return c.ConnectTimeout
}

// New makes an empty pool.
func New() *Pool { return newPool(dialReachable) }

func newPool(d dialer) *Pool {
	return &Pool{dial: d, clusters: map[string]*Cluster{}}
}

// Cluster gives the Commander of a cluster by a name of the caller's choice (its
// namespace). The same name and config give the same connection; another config
// replaces it, and what is under way on the old one is let finish. It does not
// connect: the first command does.
func (p *Pool) Cluster(name string, cfg Config) *Cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.clusters[name]; ok {
		if c.cfg.Equal(cfg) {
			return c
		}
		c.Close()
	}
	c := &Cluster{cfg: cfg, dial: p.dial, timeout: &p.timeout}
	c.shared = ceph.NewSharing(c)
	if p.closed {
		c.closed = true
	}
	p.clusters[name] = c
	return c
}

// SetTimeout bounds the commands from now on that name no bound of their own; 0 means
// ceph.DefaultTimeout.
func (p *Pool) SetTimeout(d time.Duration) { p.timeout.Store(int64(d)) }

// Forget closes the connection of a cluster that is gone.
func (p *Pool) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.clusters[name]; ok {
		c.Close()
		delete(p.clusters, name)
	}
}

// Close closes all connections and lets no new one be made.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.clusters {
		c.Close()
	}
	clear(p.clusters)
}

// Cluster is the Commander of one cluster, and its Objects.
type Cluster struct {
	cfg    Config
	dial   dialer
	shared *ceph.Sharing
	// timeout is the pool's.
	timeout *atomic.Int64

	mu     sync.Mutex
	closed bool
	// lines are the handles, by whether they are for mgr commands.
	lines [2]line
	// given are links that were given up while calls were inside.
	given []*link
}

// line is one handle and the attempt under way to make it, shared by all that
// wait for it.
type line struct {
	live    *link
	dialing *attempt
}

// The indices of Cluster.lines.
const (
	monLine = iota
	mgrLine
)

type attempt struct {
	done chan struct{}
	link *link
	err  error
}

// link is a handle with a count of the calls inside it.
type link struct {
	h         handle
	mu        sync.Mutex
	inside    int
	abandoned int
	hungSince time.Time // when abandoned reached maxAbandoned
	retired   bool
	isClosed  bool
}

var (
	errClosed = errors.New("the connection is closed")
	errFull   = fmt.Errorf("%d commands are under way already", maxInFlight)
	errHang   = fmt.Errorf("%d earlier commands hang", maxAbandoned)
)

func (l *link) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return errClosed
	}
	switch {
	case l.abandoned >= maxAbandoned:
		return errHang
	case l.inside >= maxInFlight:
		return errFull
	}
	l.inside++
	return nil
}

func (l *link) leave() {
	l.mu.Lock()
	l.inside--
	l.mu.Unlock()
	l.closeIfIdle()
}

// abandon counts calls whose caller has gone, by +1 and, when they come back, -1.
func (l *link) abandon(n int) {
	l.mu.Lock()
	l.abandoned += n
	if n > 0 && l.abandoned == maxAbandoned {
		l.hungSince = time.Now()
	}
	l.mu.Unlock()
}

// hung reports whether nothing has come back for long.
func (l *link) hung() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.abandoned >= maxAbandoned && time.Since(l.hungSince) > hungFor
}

// left reports whether calls are still inside a link that was given up.
func (l *link) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired && !l.isClosed
}

// retire lets the last one out close the handle.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	l.mu.Unlock()
	l.closeIfIdle()
}

func (l *link) closeIfIdle() {
	l.mu.Lock()
	now := l.retired && l.inside == 0 && !l.isClosed
	l.isClosed = l.isClosed || now
	l.mu.Unlock()
	if now {
		// Shutting down waits for librados' threads.
		go l.h.close()
	}
}

// Shared is the same Commander for those who also want answers of a moment ago
// (ceph.Recent). Who changes something past it is seen later.
func (c *Cluster) Shared() ceph.Commander { return c.shared }

// Close retires the connection. Commands under way finish; later ones get an
// *ceph.UnreachableError.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for i := range c.lines {
		if l := c.lines[i].live; l != nil {
			l.retire()
			c.lines[i].live = nil
		}
	}
}

// drop retires a link that has stopped answering, so that the next command makes
// a new one.
func (c *Cluster) drop(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.lines {
		if c.lines[i].live == l {
			c.lines[i].live = nil
		}
	}
	l.retire()
}

// giveUp drops a link that hangs for long, unless too many were given up before.
func (c *Cluster) giveUp(l *link) bool {
	c.mu.Lock()
	c.given = slices.DeleteFunc(c.given, func(l *link) bool { return !l.left() })
	room := len(c.given) < maxLeft
	if room {
		c.given = append(c.given, l)
	}
	c.mu.Unlock()
	if room {
		c.drop(l)
	}
	return room
}

// enter gives a link of a line with the caller counted in.
func (c *Cluster) enter(ctx context.Context, which int) (*link, error) {
	for {
		l, err := c.link(ctx, which)
		if err != nil {
			return nil, err
		}
		if err = l.enter(); err == nil {
			return l, nil
		}
		if !errors.Is(err, errHang) || !l.hung() || !c.giveUp(l) {
			return nil, err
		}
	}
}

// link gives the live link of a line, connecting if there is none.
func (c *Cluster) link(ctx context.Context, which int) (*link, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	ln := &c.lines[which]
	if ln.live != nil {
		defer c.mu.Unlock()
		return ln.live, nil
	}
	a := ln.dialing
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		ln.dialing = a
		go c.connect(a, which)
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cluster) connect(a *attempt, which int) {
	h, err := c.dial(c.cfg, which == mgrLine)
	if err == nil && c.cfg.FSID != "" {
		var got string
		if got, err = h.fsid(); err == nil && got != c.cfg.FSID {
			err = fmt.Errorf("cluster %s answered instead of %s", got, c.cfg.FSID)
		}
		if err != nil {
			h.close()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[which].dialing = nil
	switch {
	case err != nil:
		a.err = err
	case c.closed:
		a.err = errClosed
		go h.close()
	default:
		a.link = &link{h: h}
		c.lines[which].live = a.link
	}
	close(a.done)
}

// Mon sends cmd to the mon quorum.
func (c *Cluster) Mon(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.send(ctx, ceph.ToMon, cmd)
}

// Mgr sends cmd to the active mgr.
func (c *Cluster) Mgr(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.send(ctx, ceph.ToMgr, cmd)
}

// Tell sends cmd to "mon.NAME" or "osd.ID".
func (c *Cluster) Tell(ctx context.Context, daemon string, cmd ceph.Command) (ceph.Reply, error) {
	return c.send(ctx, ceph.Target(daemon), cmd)
}

type answer struct {
	reply ceph.Reply
	errno syscall.Errno
	err   error
}

func (c *Cluster) send(ctx context.Context, to ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
	wire, err := cmd.Wire()
	if err != nil {
		return ceph.Reply{}, err
	}
	ctx, cancel := c.bounded(cmd).Bound(ctx)
	defer cancel()
	which := monLine
	if to == ceph.ToMgr {
		which = mgrLine
	}
	a, err := call(ctx, c, which, func(h handle) answer {
		out, status, errno, err := h.command(to, wire, cmd.In)
		return answer{ceph.Reply{Out: out, Status: status}, errno, err}
	}, func(a answer) bool { return noAnswer(a.errno) })
	switch {
	case err != nil:
		return ceph.Reply{}, &ceph.UnreachableError{Prefix: cmd.Prefix, Err: err}
	case a.err != nil:
		return ceph.Reply{}, fmt.Errorf("ceph %s: %w", cmd.Prefix, a.err)
	case noAnswer(a.errno):
		return ceph.Reply{}, &ceph.UnreachableError{Prefix: cmd.Prefix, Err: a.errno}
	case a.errno != 0:
		return a.reply, &ceph.Error{Prefix: cmd.Prefix, Errno: a.errno, Status: a.reply.Status}
	}
	return a.reply, nil
}

// bounded gives a command that names no bound the pool's.
func (c *Cluster) bounded(cmd ceph.Command) ceph.Command {
	if cmd.Timeout <= 0 {
		cmd.Timeout = time.Duration(c.timeout.Load())
	}
	return cmd
}

// call runs f on the live handle of a line in its own goroutine and waits for it
// or for the context. A link whose call says that it is dead is dropped.
func call[T any](ctx context.Context, c *Cluster, which int, f func(handle) T, dead func(T) bool) (T, error) {
	var zero T
	l, err := c.enter(ctx, which)
	if err != nil {
		return zero, err
	}
	done := make(chan T, 1)
	var w waiter
	go func() {
		v := f(l.h)
		if dead(v) {
			c.drop(l)
		}
		done <- v
		if w.back() {
			l.abandon(-1)
		}
		l.leave()
	}()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		if w.leave() {
			l.abandon(1)
		}
		return zero, ctx.Err()
	}
}

// waiter settles which of a call and its caller went first.
type waiter struct {
	mu         sync.Mutex
	gone, over bool
}

// leave reports whether the caller leaves a call that is still inside.
func (w *waiter) leave() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	return !w.over
}

// back reports whether the call comes back to nobody.
func (w *waiter) back() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	return w.gone
}

// noAnswer reports whether an errno of a command comes from librados, and not
// from Ceph.
func noAnswer(e syscall.Errno) bool {
	switch e {
	case syscall.ETIMEDOUT, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.ECONNREFUSED,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ECANCELED:
		return true
	}
	return false
}
