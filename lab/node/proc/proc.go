// Package proc starts and owns the children of a process that is the first of
// its pid namespace: such a process inherits every orphan of the namespace and
// must reap them all, which os/exec does not.
//
// It must not be used together with os/exec in one process.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit is how a child ended.
type Exit struct {
	Name   string
	Pid    int
	Code   int            // exit code; -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited
}

// String says it in words.
func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("%s was ended by signal %d (%s)", e.Name, int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("%s exited with code %d", e.Name, e.Code)
}

// Command is what to start.
type Command struct {
	Name string // for messages
	Path string // the program
	Args []string
	Env  []string
	// Files are its stdin, stdout, stderr and further descriptors; nil is
	// /dev/null.
	Files []*os.File
	Sys   *syscall.SysProcAttr
}

// Child is a started process.
type Child struct {
	Name string
	Pid  int // as this process sees it
	done chan struct{}
	exit Exit
}

// Done is closed once the child has ended and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit is how it ended; valid once Done is closed.
func (c *Child) Exit() Exit { return c.exit }

// Alive reports whether it has not been reaped yet.
func (c *Child) Alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Kill sends the signal, unless the child has been reaped.
func (c *Child) Kill(sig syscall.Signal) error {
	if !c.Alive() {
		return nil
	}
	if err := unix.Kill(c.Pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signalling %s: %w", c.Name, err)
	}
	return nil
}

// Group owns all children of the process. There is one per process.
type Group struct {
	mu       sync.Mutex
	children map[int]*Child
	wake     chan struct{} // a child was started
	null     *os.File
}

// NewGroup starts to reap.
func NewGroup() (*Group, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", os.DevNull, err)
	}
	g := &Group{children: map[int]*Child{}, wake: make(chan struct{}, 1), null: null}
	go g.reap()
	return g, nil
}

// Start starts a child.
func (g *Group) Start(c Command) (*Child, error) {
	attr := &syscall.ProcAttr{Env: c.Env, Sys: c.Sys}
	for _, f := range c.Files {
		if f == nil {
			f = g.null
		}
		attr.Files = append(attr.Files, f.Fd())
	}
	// The lock keeps the reaper from meeting a pid that is not noted yet.
	g.mu.Lock()
	defer g.mu.Unlock()
	pid, err := syscall.ForkExec(c.Path, c.Args, attr)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	child := &Child{Name: c.Name, Pid: pid, done: make(chan struct{})}
	g.children[pid] = child
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return child, nil
}

// reap waits for children for ever: its own, and orphans that the kernel gives
// to the first process of a namespace.
func (g *Group) reap() {
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, syscall.SIGCHLD)
	for {
		if g.reapAll() {
			continue
		}
		select {
		case <-sigs:
		case <-g.wake:
		}
	}
}

// reapAll reaps one ended child and reports whether there was one.
func (g *Group) reapAll() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if err != nil {
		return errors.Is(err, unix.EINTR)
	}
	if pid == 0 {
		return false
	}
	child, ok := g.children[pid]
	if !ok {
		return true // an orphan
	}
	delete(g.children, pid)
	child.exit = Exit{Name: child.Name, Pid: pid, Code: status.ExitStatus()}
	if status.Signaled() {
		child.exit.Signal = status.Signal()
	}
	close(child.done)
	return true
}
