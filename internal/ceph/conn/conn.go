// Package conn is the real Commander: one kept librados connection per cluster,
// made at the first command, made again when mon addresses or keys change or
// when it stops answering, closed when the cluster goes.
//
// It is the only package that needs cgo (file rados.go); without cgo it builds
// and every command says so. It reads no ceph.conf, no keyring file and no
// environment, and it puts no key where a process listing could show it.
//
// A command that hangs blocks only its caller, until the command's deadline;
// the goroutine inside librados comes back when librados' own bound (OpTimeout)
// ends, and a connection is only shut down once nothing is inside it. The number
// of such goroutines is bounded per cluster.
package conn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
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
	// maxInFlight bounds the goroutines inside librados per connection. A pass
	// sends at most a dozen commands; this many at once means that they hang.
	maxInFlight = 64
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

type dialer func(Config) (handle, error)

// Pool keeps one connection per cluster. The zero value is not usable; see New.
type Pool struct {
	dial dialer

	mu       sync.Mutex
	clusters map[string]*Cluster
	closed   bool
}

// New makes an empty pool.
func New() *Pool { return newPool(dialRados) }

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
	c := &Cluster{cfg: cfg, dial: p.dial}
	if p.closed {
		c.closed = true
	}
	p.clusters[name] = c
	return c
}

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
	cfg  Config
	dial dialer

	mu     sync.Mutex
	closed bool
	live   *link
	// dialing is the attempt under way, shared by all that wait for it.
	dialing *attempt
}

type attempt struct {
	done chan struct{}
	link *link
	err  error
}

// link is a handle with a count of the calls inside it.
type link struct {
	h        handle
	mu       sync.Mutex
	inside   int
	retired  bool
	isClosed bool
}

var (
	errClosed = errors.New("the connection is closed")
	errFull   = fmt.Errorf("%d commands are hanging", maxInFlight)
)

func (l *link) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return errClosed
	}
	if l.inside >= maxInFlight {
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

// Close retires the connection. Commands under way finish; later ones get an
// *ceph.UnreachableError.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.live != nil {
		c.live.retire()
		c.live = nil
	}
}

// drop retires a link that has stopped answering, so that the next command makes
// a new one.
func (c *Cluster) drop(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == l {
		c.live = nil
	}
	l.retire()
}

// link gives the live link, connecting if there is none.
func (c *Cluster) link(ctx context.Context) (*link, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if c.live != nil {
		defer c.mu.Unlock()
		return c.live, nil
	}
	a := c.dialing
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		c.dialing = a
		go c.connect(a)
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cluster) connect(a *attempt) {
	h, err := c.dial(c.cfg)
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
	c.dialing = nil
	switch {
	case err != nil:
		a.err = err
	case c.closed:
		a.err = errClosed
		go h.close()
	default:
		a.link = &link{h: h}
		c.live = a.link
	}
	close(a.done)
}

// Mon sends cmd to the mon quorum.
func (c *Cluster) Mon(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.send(ctx, ceph.ToMon, cmd)
}

// Mgr sends cmd to the active mgr, through the mons: librados' own mgr command
// writes into freed memory when the reply comes after its timeout
// (RadosClient::mgr_command waits on a condition on its stack that the mgr
// client keeps a pointer to). Mons carry any mgr command on, errno and output
// included.
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
	ctx, cancel := cmd.Bound(ctx)
	defer cancel()
	a, err := call(ctx, c, func(h handle) answer {
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

// call runs f on the live handle in its own goroutine and waits for it or for
// the context. A link whose call says that it is dead is dropped.
func call[T any](ctx context.Context, c *Cluster, f func(handle) T, dead func(T) bool) (T, error) {
	var zero T
	l, err := c.link(ctx)
	if err == nil {
		err = l.enter()
		if errors.Is(err, errFull) {
			c.drop(l)
		}
	}
	if err != nil {
		return zero, err
	}
	done := make(chan T, 1)
	go func() {
		defer l.leave()
		v := f(l.h)
		if dead(v) {
			c.drop(l)
		}
		done <- v
	}()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		return zero, ctx.Err()
	}
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
