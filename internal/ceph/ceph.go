// Package ceph is the only door to Ceph: commands as values, a Commander that
// carries them, errors that are errnos, and secrets that cannot be printed.
//
// Typed commands live in the folders below, one per subject (mon, osd, pg,
// pool, auth, config, mgr, status, fs); the real Commander over librados in
// conn; an in-memory Ceph behind the same interface in cephtest. This package
// must not import Kubernetes, must not link librados, and must not decide
// anything: what a reply means for the cluster is for the callers.
package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"
)

// DefaultTimeout bounds a command that names no Timeout of its own. A command
// on a kept connection takes 0.2 to 4 ms; a mon election takes up to 5 s
// (mon_election_timeout) and the mons answer nothing meanwhile, so the bound is
// a multiple of that and not of the usual case.
const DefaultTimeout = 15 * time.Second

// Commander carries commands to one Ceph cluster. Implementations are safe for
// concurrent use. Each method returns an *Error when Ceph answered with an
// errno, and an *UnreachableError when there was no answer (no connection, no
// quorum, deadline); only the first kind says anything about the cluster. The
// Reply is filled in as far as Ceph sent one also when the error is an *Error:
// some commands answer and refuse at the same time (osd ok-to-stop).
type Commander interface {
	// Mon sends cmd to the mon quorum.
	Mon(ctx context.Context, cmd Command) (Reply, error)
	// Mgr sends cmd to the active mgr.
	Mgr(ctx context.Context, cmd Command) (Reply, error)
	// Tell sends cmd to one daemon, named as Ceph names it: "mon.a", "osd.3".
	Tell(ctx context.Context, daemon string, cmd Command) (Reply, error)
}

// Args are the arguments of a command by the names Ceph's command table gives
// them. Values are what JSON knows, plus Secret, which is revealed on the wire
// only.
type Args map[string]any

// Command is one command of Ceph's mon, mgr or daemon command tables.
type Command struct {
	// Prefix names the command, e.g. "osd dump".
	Prefix string
	// Args are sent next to the prefix. Never put a key or password in as a
	// plain string: use Secret, or In.
	Args Args
	// In is the input buffer (what `ceph -i FILE` sends). Never printed.
	In []byte
	// Plain leaves out "format":"json", for commands whose plain answer is the
	// one wanted.
	Plain bool
	// Timeout bounds the command; 0 means DefaultTimeout. An earlier deadline
	// of the context wins.
	Timeout time.Duration
}

// Reply is what Ceph answered.
type Reply struct {
	// Out is the output buffer, JSON unless the command was Plain. It may hold
	// keys: decode it, never print it.
	Out []byte
	// Status is the line the ceph tool prints on stderr.
	Status string
}

// Cmd makes a Command from a prefix and alternating argument names and values.
// It panics on an odd number of arguments or a name that is no string: both are
// mistakes in the calling code.
func Cmd(prefix string, nameValue ...any) Command {
	if len(nameValue)%2 != 0 {
		panic("ceph.Cmd " + prefix + ": odd number of arguments")
	}
	c := Command{Prefix: prefix}
	if len(nameValue) > 0 {
		c.Args = make(Args, len(nameValue)/2)
	}
	for i := 0; i < len(nameValue); i += 2 {
		c.Args[nameValue[i].(string)] = nameValue[i+1]
	}
	return c
}

// WithIn returns the command with an input buffer.
func (c Command) WithIn(in []byte) Command {
	c.In = in
	return c
}

// WithTimeout returns the command with another bound.
func (c Command) WithTimeout(d time.Duration) Command {
	c.Timeout = d
	return c
}

// Wire is the JSON that goes to Ceph, with secrets in the clear. It is for
// Commander implementations only. Keys are sorted, so equal commands have equal
// bytes.
func (c Command) Wire() ([]byte, error) {
	m := make(map[string]any, len(c.Args)+2)
	for k, v := range c.Args {
		if s, ok := v.(Secret); ok {
			v = s.Reveal()
		}
		m[k] = v
	}
	m["prefix"] = c.Prefix
	if _, ok := m["format"]; !ok && !c.Plain {
		m["format"] = "json"
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding command %q: %w", c.Prefix, err)
	}
	return b, nil
}

// String is the command as a person would type it, without the input buffer
// and with secrets redacted.
func (c Command) String() string {
	names := make([]string, 0, len(c.Args))
	for k := range c.Args {
		names = append(names, k)
	}
	sort.Strings(names)
	var b strings.Builder
	b.WriteString(c.Prefix)
	for _, k := range names {
		fmt.Fprintf(&b, " %s=%v", k, c.Args[k])
	}
	if len(c.In) > 0 {
		fmt.Fprintf(&b, " <%d bytes", len(c.In))
	}
	return b.String()
}

// Format prints String for every verb, so that %+v and %#v do not show In.
func (c Command) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalJSON writes String: a structured log must not show In. What goes to Ceph
// is Wire.
func (c Command) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Bound is the context a Commander runs cmd under: the command's own timeout,
// or DefaultTimeout, or the caller's earlier deadline.
func (c Command) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	d := c.Timeout
	if d <= 0 {
		d = DefaultTimeout
	}
	return context.WithTimeout(ctx, d)
}

// Target says where a command goes: ToMon, ToMgr or a daemon's name.
type Target string

// The two targets that are not one daemon.
const (
	ToMon Target = "mon"
	ToMgr Target = "mgr"
)

// Func is a Commander made of one function: what wrappers (counting, faults,
// tracing) want to be.
type Func func(ctx context.Context, to Target, cmd Command) (Reply, error)

// Mon sends cmd to the mon quorum.
func (f Func) Mon(ctx context.Context, cmd Command) (Reply, error) { return f(ctx, ToMon, cmd) }

// Mgr sends cmd to the active mgr.
func (f Func) Mgr(ctx context.Context, cmd Command) (Reply, error) { return f(ctx, ToMgr, cmd) }

// Tell sends cmd to one daemon.
func (f Func) Tell(ctx context.Context, daemon string, cmd Command) (Reply, error) {
	return f(ctx, Target(daemon), cmd)
}

// Do sends cmd by the Commander's method for the target.
func Do(ctx context.Context, c Commander, to Target, cmd Command) (Reply, error) {
	switch to {
	case ToMon:
		return c.Mon(ctx, cmd)
	case ToMgr:
		return c.Mgr(ctx, cmd)
	default:
		return c.Tell(ctx, string(to), cmd)
	}
}

// Sent is one command that went through Observe.
type Sent struct {
	To      Target
	Command Command
	// Took is the time until the answer, or until it was given up.
	Took time.Duration
	Err  error
}

// Observe calls f after each command, for metrics and traces. f must be safe for
// concurrent use.
func Observe(c Commander, f func(context.Context, Sent)) Commander {
	return Func(func(ctx context.Context, to Target, cmd Command) (Reply, error) {
		start := time.Now()
		r, err := Do(ctx, c, to, cmd)
		f(ctx, Sent{To: to, Command: cmd, Took: time.Since(start), Err: err})
		return r, err
	})
}

// MonJSON sends cmd to the mons and decodes the answer. A reply that is not
// one whole JSON value of T's shape is a *DecodeError, never a zero value.
func MonJSON[T any](ctx context.Context, c Commander, cmd Command) (T, error) {
	r, err := c.Mon(ctx, cmd)
	return decoded[T](cmd.Prefix, r, err)
}

// MgrJSON sends cmd to the active mgr and decodes the answer, as MonJSON does.
func MgrJSON[T any](ctx context.Context, c Commander, cmd Command) (T, error) {
	r, err := c.Mgr(ctx, cmd)
	return decoded[T](cmd.Prefix, r, err)
}

func decoded[T any](prefix string, r Reply, err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return Decode[T](prefix, r.Out)
}

// Decode reads one whole JSON value. Ceph puts blank lines around its replies;
// anything else behind the value, and no value at all, are errors.
func Decode[T any](prefix string, out []byte) (T, error) {
	var v, zero T
	d := json.NewDecoder(bytes.NewReader(out))
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return zero, &DecodeError{Prefix: prefix, Err: err}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return zero, &DecodeError{Prefix: prefix, Err: errors.New("more data behind the JSON value")}
	}
	return v, nil
}
