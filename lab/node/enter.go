package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"golang.org/x/sys/unix"
)

// namespaceFiles are the namespaces of a node, the one for files last: after it
// /proc is another.
func namespaceFiles() []string { return []string{"cgroup", "ipc", "uts", "net", "pid", "mnt"} }

// Run runs a command inside the node with this init process (a pid as the
// caller sees it), with the caller's standard streams, and returns its exit
// code; 128 and the signal's number where a signal ended it, as shells do.
func Run(initPid int, args []string) (int, error) {
	type result struct {
		code int
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread is in the node's namespaces for good: it ends with this
		// goroutine.
		runtime.LockOSThread()
		code, err := runInside(initPid, args)
		done <- result{code, err}
	}()
	r := <-done
	return r.code, r.err
}

func runInside(initPid int, args []string) (int, error) {
	hierarchies, err := cgroup.Detect()
	if err != nil {
		return 0, err
	}
	if err := cgroup.Join(hierarchies, initPid); err != nil {
		return 0, err
	}
	if err := enterNamespaces(initPid, namespaceFiles()); err != nil {
		return 0, err
	}
	path, err := lookPath(args[0])
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Dir: "/", Env: env(), Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return 0, fmt.Errorf("running %s in the node: %w", args[0], err)
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("waiting for %s: %w", args[0], err)
		}
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// EnterNetwork moves the calling thread into the network namespace of a
// process. The caller has locked it and executes another program next.
func EnterNetwork(pid int) error { return enterNamespaces(pid, []string{"net"}) }

func enterNamespaces(pid int, kinds []string) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, k := range kinds {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, k))
		if err != nil {
			return fmt.Errorf("entering the namespaces of process %d: %w", pid, err)
		}
		files = append(files, f)
	}
	// Threads share their root directory, and who shares it may not change
	// mount namespaces.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("entering the namespaces of process %d: %w", pid, err)
	}
	for i, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("entering the %s namespace of process %d: %w", kinds[i], pid, err)
		}
	}
	return nil
}

// lookPath finds a program on the node's PATH, as this thread sees files.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := strings.TrimPrefix(env()[0], "PATH=")
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, name)
		if unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("running %s in the node: %w", name, exec.ErrNotFound)
}
