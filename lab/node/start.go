package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"github.com/castellan-storage/castellan/lab/node/proc"
	"golang.org/x/sys/unix"
)

// Namespaces are what a node has of its own, beside cgroups, which it makes
// itself.
const Namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// Start starts the node's init as a child of this process. plug is called with
// its pid while it waits: the caller gives it a network there. reports are
// closed when the node has ended.
func Start(group *proc.Group, s Spec, cg cgroup.Set, plug func(pid int) error) (*proc.Child, <-chan Report, error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("making room for %s: %w", s.Name, err)
	}
	out, err := os.OpenFile(filepath.Join(s.Dir, "init.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the log of %s: %w", s.Name, err)
	}
	defer func() { _ = out.Close() }()
	specR, specW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	defer func() { _ = specR.Close() }()
	defer func() { _ = specW.Close() }()
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	defer func() { _ = reportW.Close() }()
	child, err := group.Start(proc.Command{
		Name: s.Name, Path: "/proc/self/exe", Args: []string{"castellan-lab", InitCommand}, Env: env(),
		Files: []*os.File{nil, out, out, specR, reportW},
		Sys:   &syscall.SysProcAttr{Cloneflags: Namespaces, Setsid: true},
	})
	if err != nil {
		_ = reportR.Close()
		return nil, nil, err
	}
	if err := prepare(s, cg, child.Pid, plug, specW); err != nil {
		_ = reportR.Close()
		return nil, nil, errors.Join(err, child.Kill(syscall.SIGKILL))
	}
	reports := make(chan Report, 16)
	go read(reportR, reports)
	return child, reports, nil
}

func prepare(s Spec, cg cgroup.Set, pid int, plug func(pid int) error, specW io.Writer) error {
	if err := cg.Make(); err != nil {
		return err
	}
	if err := cg.Add(pid); err != nil {
		return err
	}
	if err := plug(pid); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.Name, err)
	}
	if _, err := specW.Write(append([]byte("g"), b...)); err != nil {
		return fmt.Errorf("starting %s: %w", s.Name, err)
	}
	return nil
}

func read(r io.ReadCloser, reports chan<- Report) {
	defer close(reports)
	defer func() { _ = r.Close() }()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var rep Report
		if json.Unmarshal(lines.Bytes(), &rep) == nil {
			reports <- rep
		}
	}
}
