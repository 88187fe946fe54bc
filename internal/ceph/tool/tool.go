// Package tool runs the programs of Ceph that have no other door: rbd,
// radosgw-admin, ganesha-rados-grace, ceph-volume, cryptsetup and the like. A
// program gets a fixed list of arguments, never a shell; keys reach it in files
// that only their owner can read, secrets on its standard input, and neither in
// arguments, environment or errors.
package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
)

const (
	// DefaultTimeout bounds a program that names no Timeout. radosgw-admin takes
	// up to a second of CPU for a period commit, on a loaded machine several.
	DefaultTimeout = time.Minute
	// DefaultMaxOutput bounds what a program may write to each of its outputs.
	// The longest that is read here are lists of buckets.
	DefaultMaxOutput = 16 << 20
	// waitDelay is how long a program that was killed may keep its outputs open
	// by way of its children.
	waitDelay = 2 * time.Second
	// errorTail is how much of stderr an error repeats.
	errorTail = 512
)

// Call is one run of a program.
type Call struct {
	// Program is a name found by PATH, or an absolute path.
	Program string
	// Args are passed as they are. No secrets: they are in the process listing.
	Args []string
	// Stdin is what the program reads; the place for a secret.
	Stdin ceph.Secret
	// Env is added to the few variables every program gets. No secrets.
	Env []string
	// Timeout and MaxOutput are the defaults above when 0.
	Timeout   time.Duration
	MaxOutput int
}

// String is the program and its arguments.
func (c Call) String() string {
	return strings.Join(append([]string{filepath.Base(c.Program)}, c.Args...), " ")
}

// Output is what a program wrote.
type Output struct{ Stdout, Stderr []byte }

// Runner runs programs. Errors are *ExitError when the program ran and refused,
// ErrTooMuch when it wrote too much, the context's when it took too long, and
// others when it could not be started.
type Runner interface {
	Run(ctx context.Context, c Call) (Output, error)
}

// ErrTooMuch says that a program wrote more than MaxOutput.
var ErrTooMuch = errors.New("too much output")

// ExitError says that a program ended with an exit code that is not 0.
type ExitError struct {
	// Program is its base name, without arguments.
	Program string
	// Code is the exit code; -1 when a signal ended it.
	Code int
	// Stderr is the end of what it wrote there.
	Stderr string
}

// Error gives the program, the code and the end of stderr.
func (e *ExitError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("%s: exit code %d", e.Program, e.Code)
	}
	return fmt.Sprintf("%s: exit code %d: %s", e.Program, e.Code, e.Stderr)
}

// Is compares the code with an errno: radosgw-admin and rbd exit with errnos
// (EEXIST 17, EINVAL 22, ENOENT 2).
func (e *ExitError) Is(target error) bool {
	errno, ok := target.(syscall.Errno)
	return ok && e.Code > 0 && int(errno) == e.Code
}

// Code is the exit code in err: 0 for nil, -1 when the program did not exit by
// itself.
func Code(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return -1
}

// OS runs programs of this machine. The zero value is usable.
type OS struct {
	// Env is passed on to every program instead of this process' environment.
	// Empty means PATH and HOME only.
	Env []string
}

// Run runs a program to its end.
func (o OS) Run(ctx context.Context, c Call) (Output, error) {
	timeout, limit := c.Timeout, c.MaxOutput
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if limit <= 0 {
		limit = DefaultMaxOutput
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := filepath.Base(c.Program)
	cmd := exec.CommandContext(ctx, c.Program, c.Args...) //nolint:gosec // running a named program with given arguments is what this package is for
	cmd.Env = append(o.env(), c.Env...)
	cmd.WaitDelay = waitDelay
	// A group of its own, so that what it started dies with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if !c.Stdin.IsZero() {
		cmd.Stdin = strings.NewReader(c.Stdin.Reveal())
	}
	out, errs := &limited{max: limit, over: cancel}, &limited{max: limit, over: cancel}
	cmd.Stdout, cmd.Stderr = out, errs
	err := cmd.Run()
	res := Output{Stdout: out.b.Bytes(), Stderr: errs.b.Bytes()}
	var exit *exec.ExitError
	switch {
	case out.full || errs.full:
		return res, fmt.Errorf("%s: %w (over %d bytes)", name, ErrTooMuch, limit)
	case ctx.Err() != nil:
		return res, fmt.Errorf("%s: %w", name, ctx.Err())
	case errors.As(err, &exit):
		return res, &ExitError{Program: name, Code: exit.ExitCode(), Stderr: tail(res.Stderr)}
	case err != nil:
		return res, fmt.Errorf("starting %s: %w", name, err)
	}
	return res, nil
}

func (o OS) env() []string {
	if len(o.Env) > 0 {
		return slices.Clone(o.Env)
	}
	var env []string
	for _, k := range []string{"PATH", "HOME"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// tail is the end of stderr on one line.
func tail(b []byte) string {
	s := strings.Join(strings.Fields(string(b)), " ")
	if len(s) > errorTail {
		s = "..." + strings.ToValidUTF8(s[len(s)-errorTail:], "")
	}
	return s
}

// limited keeps the first max bytes and ends the program when there are more.
type limited struct {
	b    bytes.Buffer
	max  int
	full bool
	over func()
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.max - l.b.Len(); len(p) > room {
		l.b.Write(p[:max(room, 0)])
		l.full = true
		l.over()
		return len(p), nil
	}
	return l.b.Write(p)
}
