package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"golang.org/x/sys/unix"
)

// Up starts a lab and returns when its nodes are Ready. progress is told each
// step. When it fails or ctx ends, nothing of the lab is left; when the caller
// is killed, the lab's supervisor sees to that.
func Up(ctx context.Context, o Options, progress func(step string)) (state.Lab, error) {
	if err := o.Check(); err != nil {
		return state.Lab{}, err
	}
	if err := preflight(o); err != nil {
		return state.Lab{}, err
	}
	l, err := state.Create(o.Name, time.Now())
	if err != nil {
		return state.Lab{}, err
	}
	sup := &launched{}
	l, err = start(ctx, l, o, sup, progress)
	if err != nil {
		sup.end()
		// The context of a person's Ctrl-C has ended; clearing up has its own.
		if downErr := Down(context.WithoutCancel(ctx), o.Name); downErr != nil && !errors.Is(downErr, state.ErrNotUp) {
			err = errors.Join(err, downErr)
		}
		return state.Lab{}, err
	}
	return l, nil
}

// launched is the supervisor as a child of this process.
type launched struct {
	process *os.Process
	ended   chan struct{}
}

// end ends it and all of the lab with it, if it was started at all.
func (s *launched) end() {
	if s.process != nil {
		_ = s.process.Kill() // an error says that it has ended
		<-s.ended
	}
}

func start(ctx context.Context, l state.Lab, o Options, sup *launched, progress func(string)) (state.Lab, error) {
	// The machine's end of the API server's door: a socket belongs to the
	// network namespace in which it was made, whoever holds it.
	door, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return l, fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = door.Close() }()
	port := door.Addr().(*net.TCPAddr).Port
	l.Server = serverURL(port)
	mine, theirs, err := socketPair()
	if err != nil {
		return l, err
	}
	defer func() { _ = mine.Close() }()
	l, err = sup.launch(l, door.(*net.TCPListener), theirs)
	if err != nil {
		return l, err
	}
	if err := json.NewEncoder(mine).Encode(startup{Lab: l, Options: o, Port: port}); err != nil {
		return l, fmt.Errorf("telling the lab's supervisor what to do: %w", err)
	}
	return l, follow(ctx, l, mine, o.Serving, progress)
}

// launch starts the supervisor in namespaces of its own and records it. It
// closes theirs.
func (s *launched) launch(l state.Lab, door *net.TCPListener, theirs *os.File) (state.Lab, error) {
	defer func() { _ = theirs.Close() }()
	dir, err := l.Dir()
	if err != nil {
		return l, err
	}
	doorFile, err := door.File()
	if err != nil {
		return l, fmt.Errorf("opening the API server's door: %w", err)
	}
	defer func() { _ = doorFile.Close() }()
	if err := os.MkdirAll(logDir(dir), 0o755); err != nil {
		return l, fmt.Errorf("making room for logs: %w", err)
	}
	out, err := os.Create(filepath.Join(logDir(dir), "supervisor.log"))
	if err != nil {
		return l, fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command("/proc/self/exe", SuperviseCommand)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", state.EnvID + "=" + l.ID}
	if root := os.Getenv(state.EnvRoot); root != "" {
		abs, err := state.Root()
		if err != nil {
			return l, err
		}
		cmd.Env = append(cmd.Env, state.EnvRoot+"="+abs)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.ExtraFiles = []*os.File{theirs, doorFile}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET, Setsid: true}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		return l, fmt.Errorf("this machine forbids new namespaces: run it as root outside a container, or in a privileged one: %w", err)
	} else if err != nil {
		return l, fmt.Errorf("starting the lab's supervisor: %w", err)
	}
	// It outlives this command, but while both run somebody must reap it.
	s.process, s.ended = cmd.Process, make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = cmd.Wait()
	}()
	l.Pid = cmd.Process.Pid
	if l.Start, err = state.StartOf(l.Pid); err != nil {
		return l, err
	}
	if err := l.Save(); err != nil {
		return l, err
	}
	return l, nil
}

// follow passes on what the supervisor says until the lab is ready, and what serving
// does is done.
func follow(ctx context.Context, l state.Lab, conn net.Conn, serving func(context.Context, string) error, progress func(string)) error {
	dir, err := l.Dir()
	if err != nil {
		return err
	}
	var meanwhile sync.WaitGroup
	defer meanwhile.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	messages := json.NewDecoder(conn)
	for {
		var m control.Message
		if err := messages.Decode(&m); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("the lab's supervisor ended: %s", lastLines(filepath.Join(logDir(dir), "supervisor.log")))
		}
		switch {
		case m.Error != "":
			return errors.New(m.Error)
		case m.Serving:
			if serving == nil {
				continue
			}
			meanwhile.Go(func() {
				if err := serving(ctx, Kubeconfig(dir)); err != nil {
					cancel(err)
				}
			})
		case m.Ready:
			meanwhile.Wait()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := json.NewEncoder(conn).Encode(true); err != nil {
				return fmt.Errorf("telling the lab's supervisor to go on: %w", err)
			}
			return nil
		default:
			progress(m.Step)
		}
	}
}

// socketPair makes two connected sockets, the second to be inherited.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket for the lab's supervisor: %w", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "mine"), os.NewFile(uintptr(fds[1]), "theirs")
	defer func() { _ = mine.Close() }()
	conn, err := net.FileConn(mine)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("making a socket for the lab's supervisor: %w", err), theirs.Close())
	}
	return conn, theirs, nil
}
