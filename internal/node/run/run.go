// Package run executes the programs of the Ceph image on a node: fixed
// arguments, bounded time, bounded output.
//
// It must not start a shell, must not pass a secret as an argument or in the
// environment, and must not decide what a failure means.
package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// maxOutput bounds what is kept of a program's output: the largest known
// answers (a lvm list of 60 OSDs) are below 1 MiB.
const maxOutput = 16 << 20

// Runner runs one program and returns its standard output.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
}

// Error is a program that did not end with exit code 0.
type Error struct {
	Name string
	Args []string
	// Code is the exit code, -1 when the program did not start or was killed.
	Code int
	// Stderr is the end of what it said, at most 4 KiB.
	Stderr string
	Err    error
}

// Error says what was run, how it ended, and the last it said.
func (e *Error) Error() string {
	msg := fmt.Sprintf("running %s: %v", strings.Join(append([]string{e.Name}, e.Args...), " "), e.Err)
	if said := gist(e.Stderr); said != "" {
		msg += ": " + said
	}
	return msg
}

// maxGist bounds what an error repeats of a program's output: the whole of it is in
// the pod's log, and a condition has to stay readable.
const maxGist = 400

// gist is the part of a program's last words that says what went wrong: the lines
// that speak of an error, or else the last line. Stack frames and notes are left
// out.
func gist(stderr string) string {
	var errors []string
	last := ""
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "  File \"") {
			continue // of a Python traceback
		}
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "stderr:"))
		if line == "" || frame(line) || strings.HasPrefix(line, "NOTE:") {
			continue
		}
		last = line
		if low := strings.ToLower(line); strings.Contains(low, "error") || strings.Contains(low, "caught signal") || strings.Contains(low, "fail") {
			errors = append(errors, line)
		}
	}
	out := last
	if len(errors) > 0 {
		out = strings.Join(errors[max(0, len(errors)-2):], "; ")
	}
	if len(out) > maxGist {
		out = "..." + out[len(out)-maxGist:]
	}
	return out
}

// frame reports whether a line is of a stack trace: "7: ..." or of the log before it,
// "-7> ...".
func frame(line string) bool {
	number, _, ok := strings.Cut(line, " ")
	digits := strings.TrimPrefix(strings.TrimRight(number, ":>"), "-")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == "" && len(strings.TrimPrefix(number, "-")) == len(digits)+1
}

// Unwrap gives the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// Exit is the exit code of the program in err, or -1.
func Exit(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return -1
}

// Exec is the Runner that runs programs for real.
type Exec struct {
	// Log receives the programs' standard error as it comes; nil drops it.
	Log io.Writer
	// Env is added to the environment of the process.
	Env []string
	// Timeout bounds each program; 0 means that each gets what Limit says of it.
	Timeout time.Duration
	// root is "/" but for tests.
	root string
}

// Run implements Runner. A program that outlives its bound is killed, and the
// call returns even when the program cannot be killed because the kernel holds
// it in a read of a dead disk.
func (x Exec) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return x.Feed(ctx, nil, name, args...)
}

// Feed is Run with something for the program to read: the way for secrets, which
// nobody sees there.
func (x Exec) Feed(ctx context.Context, in []byte, name string, args ...string) ([]byte, error) {
	limit := x.Timeout
	if limit == 0 {
		limit = Limit(name, args...)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // fixed names and arguments, made by pure code; no shell
	cmd.Env = append(os.Environ(), x.Env...)
	cmd.WaitDelay = 2 * time.Second
	// What a program has started must not go on writing to a disk when the program is given up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stuck atomic.Value
	cmd.Cancel = func() error {
		stuck.Store(opened(cmp.Or(x.root, "/"), cmd.Process.Pid))
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if in != nil {
		cmd.Stdin = bytes.NewReader(in)
	}
	var out, tail bytes.Buffer
	cmd.Stdout = &limited{w: &out, left: maxOutput}
	cmd.Stderr = &lastBytes{buf: &tail}
	if x.Log != nil {
		cmd.Stderr = io.MultiWriter(cmd.Stderr, x.Log)
	}
	err := cmd.Start()
	if err == nil {
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var hangs bool
		if hangs, err = await(ctx, ended, killGrace); hangs {
			// Its output is not read: it may still be written.
			return nil, &Error{Name: name, Args: args, Code: -1, Err: late(ctx, limit, stuck.Load(), args, err)}
		}
	}
	if ctx.Err() != nil && err != nil {
		err = late(ctx, limit, stuck.Load(), args, err)
	}
	if err != nil {
		return out.Bytes(), &Error{Name: name, Args: args, Code: cmd.ProcessState.ExitCode(), Stderr: strings.TrimSpace(tail.String()), Err: err}
	}
	return out.Bytes(), nil
}

// errLimit says that a program has used up its own time, and not that of its caller.
var errLimit = errors.New("out of time")

// late says why a program was killed, and on what disk it may have been waiting: one that it
// was given, or had open.
func late(ctx context.Context, limit time.Duration, open any, args []string, err error) error {
	if !errors.Is(context.Cause(ctx), errLimit) {
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	devices, _ := open.([]string)
	for _, a := range args {
		if strings.HasPrefix(a, "/dev/") && !slices.Contains(devices, a) {
			devices = append(devices, a)
		}
	}
	where := "a disk of this node may not answer"
	if len(devices) > 0 {
		where = "it was busy with " + strings.Join(devices, ", ")
	}
	return fmt.Errorf("it had not ended after %v and was killed; %s: %w (%w)", limit, where, ctx.Err(), err)
}

// killGrace is how long a program may take to end after it was killed.
const killGrace = 10 * time.Second

// await gives what ended gives. A program that waits for a dead disk in the kernel does
// not end when it is killed: it is left behind, grace after ctx has ended, so that nothing
// else has to wait for that disk.
func await(ctx context.Context, ended <-chan error, grace time.Duration) (hangs bool, err error) {
	select {
	case err := <-ended:
		return false, err
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-ended:
		return false, err
	case <-t.C:
		return true, fmt.Errorf("%w, and it has not ended %v after it was killed: it hangs in the kernel", ctx.Err(), grace)
	}
}

// limited fails the program's write, and so the program, when too much comes.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("output is larger than 16 MiB")
	}
	l.left -= len(p)
	return l.w.Write(p)
}

// lastBytes keeps the last 4 KiB.
type lastBytes struct{ buf *bytes.Buffer }

func (t *lastBytes) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if extra := t.buf.Len() - 4096; extra > 0 {
		t.buf.Next(extra)
	}
	return len(p), nil
}
