package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/kubeapi"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/network"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"github.com/castellan-storage/castellan/lab/node/proc"
	"golang.org/x/sys/unix"
)

// Descriptors that a supervisor is started with, beyond the standard three.
const (
	parentFD = 3 // socket to the command: startup in, control.Messages out, then one byte in
	listenFD = 4 // listening socket of the machine's loopback: the API server's door
)

// startup is what a supervisor is told first.
type startup struct {
	Lab     state.Lab `json:"lab"`
	Options Options   `json:"options"`
	Port    int       `json:"port"`
}

// supervisor is a running lab.
type supervisor struct {
	startup
	dir         string
	group       *proc.Group
	hierarchies []cgroup.Hierarchy
	ids         identities
	api         *kubeapi.Client
	tell        func(control.Message)
	fail        context.CancelCauseFunc // ends a bring-up that cannot succeed

	mu         sync.Mutex // guards what follows and the fields of nodes
	components []*startedComponent
	nodes      []*labNode
}

type startedComponent struct {
	child   *proc.Child
	hostPid int
}

// Supervise is the first process of a lab. It returns when it is told to end
// or the lab could not be brought up; then nothing of the lab runs any more.
func Supervise(ctx context.Context) error {
	if os.Getpid() != 1 {
		return errors.New("this is how a lab starts itself; use castellan-lab up")
	}
	// What is mounted in the lab must not reach the machine; what the machine
	// unmounts must not be held by the lab.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("parting from the machine's mounts: %w", err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte("castellan-lab"), 0o644); err != nil {
		return fmt.Errorf("naming the process: %w", err)
	}
	parent, err := net.FileConn(os.NewFile(parentFD, "parent"))
	if err != nil {
		return fmt.Errorf("talking to the command: %w", err)
	}
	door, err := net.FileListener(os.NewFile(listenFD, "door"))
	if err != nil {
		return fmt.Errorf("opening the API server's door: %w", err)
	}
	s := &supervisor{}
	messages := json.NewEncoder(parent)
	s.tell = func(m control.Message) { _ = messages.Encode(m) }
	lines := json.NewDecoder(parent)
	if err := lines.Decode(&s.startup); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	if err := s.supervise(ctx, lines, door); err != nil {
		log.Print(err)
		s.abandon()
		s.tell(control.Message{Error: err.Error()})
		return err
	}
	return nil
}

// supervise brings the lab up and keeps it. in tells that the command has gone
// away: by an answer after it was told that the lab is ready, or by the end.
func (s *supervisor) supervise(ctx context.Context, in *json.Decoder, door net.Listener) error {
	upCtx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.fail = fail
	acknowledged := make(chan struct{})
	go func() {
		var ok bool
		if err := in.Decode(&ok); err != nil || !ok {
			fail(errors.New("castellan-lab up went away before the lab was ready"))
			return
		}
		close(acknowledged)
	}()
	if err := s.prepare(); err != nil {
		return err
	}
	stop, err := s.serve()
	if err != nil {
		return err
	}
	defer stop()
	go s.forward(door)
	if err := s.bringUp(upCtx); err != nil {
		if cause := context.Cause(upCtx); cause != nil {
			return cause
		}
		return err
	}
	s.tell(control.Message{Ready: true})
	select {
	case <-acknowledged:
	case <-upCtx.Done():
		return context.Cause(upCtx)
	}
	log.Print("ready")
	<-ctx.Done()
	log.Print("told to end")
	return nil
}

// prepare makes what everything else stands on.
func (s *supervisor) prepare() error {
	var err error
	if s.dir, err = s.Lab.Dir(); err != nil {
		return err
	}
	if s.group, err = proc.NewGroup(); err != nil {
		return err
	}
	if s.hierarchies, err = cgroup.Detect(); err != nil {
		return err
	}
	mine := s.cgroup(controlGroup)
	if err := mine.Make(); err != nil {
		return err
	}
	if err := mine.Add(0); err != nil {
		return err
	}
	if err := network.SetupBridge(); err != nil {
		return err
	}
	if s.ids, err = newIdentities(time.Now()); err != nil {
		return err
	}
	if err := s.ids.write(s.dir, s.Lab.Name, serverURL(s.Port)); err != nil {
		return err
	}
	s.api, err = kubeapi.New(serverURL(s.Port), s.ids.ca.Cert, s.ids.admin, nil)
	if err != nil {
		return err
	}
	plan, err := network.Plan(s.Options.Nodes)
	if err != nil {
		return err
	}
	for _, p := range plan {
		pair, err := s.ids.node(p)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, &labNode{plan: p, kubelet: pair})
	}
	return nil
}

// controlGroup is the cgroup of the supervisor and the control plane.
const controlGroup = "control"

func (s *supervisor) cgroup(part string) cgroup.Set {
	return cgroup.New(s.hierarchies, s.Lab.Name, part)
}

// startComponent starts a program of the control plane. One that ends is
// reported, not started again: a person looks at a lab, and wants to know.
func (s *supervisor) startComponent(c component) error {
	path := filepath.Join(logDir(s.dir), c.name+".log")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer func() { _ = out.Close() }()
	child, err := s.group.Start(proc.Command{
		Name: c.name, Path: filepath.Join(s.Options.Paths.Bin, c.name), Args: append([]string{c.name}, c.args...),
		// A lab has memory to spare and few processors: garbage is collected less often.
		Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GOGC=400", state.EnvID + "=" + s.Lab.ID},
		Files: []*os.File{nil, out, out},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	host, err := hostPid(child.Pid)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.components = append(s.components, &startedComponent{child: child, hostPid: host})
	s.mu.Unlock()
	go func() {
		<-child.Done()
		log.Print(child.Exit())
		s.fail(fmt.Errorf("%s: %s", child.Exit(), lastLines(path)))
	}()
	return nil
}

// abandon ends what was started and clears away what is on disk. It is for a
// bring-up that failed; down does the rest when the command is still there.
func (s *supervisor) abandon() {
	s.mu.Lock()
	var children []*proc.Child
	for _, n := range s.nodes {
		if n.child != nil {
			children = append(children, n.child)
		}
	}
	for _, c := range s.components {
		children = append(children, c.child)
	}
	s.mu.Unlock()
	for _, c := range children {
		if err := c.Kill(syscall.SIGKILL); err != nil {
			log.Print(err)
		}
	}
	for _, c := range children {
		<-c.Done()
	}
	for _, n := range s.nodes {
		for _, d := range n.disks {
			_ = d.loop.Close()
		}
	}
	if s.hierarchies != nil {
		// A cgroup with a process in it cannot be removed.
		if err := cgroup.LeaveAll(s.hierarchies); err != nil {
			log.Print(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), clearLimit)
	defer cancel()
	if err := clearAway(ctx, s.Lab); err != nil {
		log.Print(err)
	}
}

// forward lets the machine reach the API server: what connects to the door is
// joined to the server in the lab's network namespace.
func (s *supervisor) forward(door net.Listener) {
	for {
		c, err := door.Accept()
		if err != nil {
			log.Printf("the API server's door closed: %v", err)
			return
		}
		go func() {
			server, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
			if err != nil {
				_ = c.Close()
				return
			}
			join(c, c, server)
		}()
	}
}

// join copies between two connections until both sides have ended. from is
// where the first one's bytes are read.
func join(a net.Conn, from io.Reader, b net.Conn) {
	var wg sync.WaitGroup
	pipe := func(dst net.Conn, src io.Reader) {
		defer wg.Done()
		_, _ = io.Copy(dst, src)
		if cw, ok := dst.(interface{ CloseWrite() error }); ok {
			_ = cw.CloseWrite()
		}
	}
	wg.Add(2)
	go pipe(b, from)
	go pipe(a, b)
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
}

// hostPid is a child's pid as the machine sees it. The supervisor has a pid
// namespace of its own but the machine's /proc, which tells it of a pidfd.
func hostPid(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, fmt.Errorf("looking at process %d: the kernel does not tell its pid", pid)
}

// lastLines is the end of a log, for a message.
func lastLines(path string) string {
	const tail = 600
	f, err := os.Open(path)
	if err != nil {
		return "no log"
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return "no log"
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return "no log"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
