// Package command runs the programs that build the lab: as a process group that
// ends with its context, or in namespaces of its own that end with this program
// however it ends, with the output kept in a log and its end in the error.
//
// It must not start what should outlive this program.
package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Cmd is a program to run.
type Cmd struct {
	Args  []string
	Dir   string
	Env   []string // added to this program's
	Stdin io.Reader
	// Log gets what the program writes, besides the error; nil drops it.
	Log io.Writer
	// Line is called with each line that the program writes, from one goroutine.
	Line func(string)
	// Contained runs the program as the first process of its own pid and mount
	// namespace: what it mounts and starts is gone when it ends or when this
	// program dies. It needs root.
	Contained bool
}

// Error is a program that ended badly.
type Error struct {
	Program string
	Last    string // the last line that says something, perhaps empty
	Err     error
}

func (e *Error) Error() string {
	if e.Last == "" {
		return fmt.Sprintf("%s: %v", e.Program, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Program, e.Err, e.Last)
}

// Unwrap gives the error of os/exec or the context.
func (e *Error) Unwrap() error { return e.Err }

// grace is how long a program may take to end once it is told to.
const grace = 3 * time.Second

// Run runs the program to its end. When ctx ends, the program's whole group gets
// SIGTERM, and SIGKILL when it does not end in time.
func Run(ctx context.Context, c Cmd) error {
	p, err := Start(ctx, c)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Output runs the program and returns what it writes to its standard output.
func Output(ctx context.Context, c Cmd) (string, error) {
	var out strings.Builder
	p, err := start(ctx, c, &out)
	if err != nil {
		return "", err
	}
	err = p.Wait()
	return out.String(), err
}

// Process is a started program.
type Process struct {
	done chan struct{}
	err  error
}

// Start starts the program; Wait must follow, or the end of ctx.
func Start(ctx context.Context, c Cmd) (*Process, error) { return start(ctx, c, nil) }

func start(ctx context.Context, c Cmd, stdout io.Writer) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Stdin = c.Dir, c.Stdin
	if len(c.Env) > 0 {
		cmd.Env = append(os.Environ(), c.Env...)
	}
	lines := newLines(c.Log, c.Line)
	cmd.Stdout, cmd.Stderr = io.Writer(lines), lines
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if c.Contained {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel sends the death signal when the thread that started the
		// program ends, so that thread must live as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		err := cmd.Wait()
		if ctx.Err() != nil && cmd.ProcessState != nil {
			// What the group still holds after its leader ended.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		lines.flush()
		p.err = result(ctx, c.Args[0], lines.last(), err)
	}()
	if err := <-started; err != nil {
		return nil, &Error{Program: c.Args[0], Err: err}
	}
	return p, nil
}

func result(ctx context.Context, program, last string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrWaitDelay):
		// The program ended well; something it left held its output open.
		return nil
	default:
		return &Error{Program: program, Last: last, Err: err}
	}
}

// Wait waits for the end of the program.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// lines splits output into lines and remembers the one that explains most.
type lines struct {
	mu      sync.Mutex
	log     io.Writer
	each    func(string)
	partial []byte
	end     string // last line that is not empty
	fault   string // last line that names an error
}

func newLines(log io.Writer, each func(string)) *lines { return &lines{log: log, each: each} }

// longest is where a line without end is cut.
const longest = 64 << 10

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log != nil {
		if _, err := l.log.Write(b); err != nil {
			return 0, err
		}
	}
	l.partial = append(l.partial, b...)
	for {
		n, tok, _ := bufio.ScanLines(l.partial, false)
		if n == 0 {
			if len(l.partial) > longest {
				l.line(string(l.partial))
				l.partial = nil
			}
			return len(b), nil
		}
		l.line(string(tok))
		l.partial = l.partial[n:]
	}
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.line(string(l.partial))
		l.partial = nil
	}
}

func (l *lines) line(s string) {
	s = strings.TrimSpace(s)
	if s == "" {
		return
	}
	l.end = s
	if isFault(s) {
		l.fault = s
	}
	if l.each != nil {
		l.each(s)
	}
}

// isFault reports whether a line of apt, dpkg, mmdebstrap, go or a compiler
// names what went wrong.
func isFault(s string) bool {
	low := strings.ToLower(s)
	for _, mark := range []string{"error", "cannot", "fatal", "e: ", "failed", "no space", "denied", "not found"} {
		if strings.HasPrefix(low, mark) || strings.Contains(low, ": "+mark) || strings.Contains(low, "no space left") {
			return true
		}
	}
	return false
}

func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != "" {
		return l.fault
	}
	return l.end
}
