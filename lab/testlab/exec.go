package testlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/node"
)

// Result is how a command ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a command on a node.
func (l *Lab) Exec(ctx context.Context, nodeName string, args ...string) (Result, error) {
	s, err := l.Control.Status(ctx)
	if err != nil {
		return Result{}, err
	}
	for _, n := range s.Nodes {
		if n.Name != nodeName {
			continue
		}
		if n.Pid == 0 {
			return Result{}, fmt.Errorf("running %s: %s is %s", args[0], nodeName, n.State)
		}
		// This program again, as a node is entered by a process with one thread.
		return run(ctx, nil, "/proc/self/exe", append([]string{execCommand, strconv.Itoa(n.Pid)}, args...)...)
	}
	return Result{}, fmt.Errorf("running %s: the lab %s has no node %s", args[0], l.Name, nodeName)
}

// MustExec runs a command on a node and returns what it wrote to the standard
// output; the test fails unless it exits with 0.
func (l *Lab) MustExec(t testing.TB, nodeName string, args ...string) string {
	t.Helper()
	r, err := l.Exec(t.Context(), nodeName, args...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 0 {
		t.Fatalf("%s on %s exited with %d: %s%s", strings.Join(args, " "), nodeName, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// runExec is the other side of Exec.
func runExec(args []string) (int, error) {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return 0, err
	}
	return node.Run(pid, args[1:])
}

// Kubectl runs kubectl on the lab; stdin may be nil.
func (l *Lab) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (Result, error) {
	p, err := build.Lookup("kubernetes")
	if err != nil {
		return Result{}, err
	}
	return run(ctx, stdin, filepath.Join(p.Assets, "kubectl"), append([]string{"--kubeconfig", l.Kubeconfig}, args...)...)
}

// MustKubectl is Kubectl for what must succeed; it returns the standard output.
func (l *Lab) MustKubectl(t testing.TB, args ...string) string {
	t.Helper()
	return l.kubectl(t, nil, args...)
}

// Apply makes objects what the YAML says.
func (l *Lab) Apply(t testing.TB, yaml string) {
	t.Helper()
	l.kubectl(t, strings.NewReader(yaml), "apply", "--server-side", "-f", "-")
}

func (l *Lab) kubectl(t testing.TB, stdin io.Reader, args ...string) string {
	t.Helper()
	r, err := l.Kubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 0 {
		t.Fatalf("kubectl %s: %s", strings.Join(args, " "), r.Stderr)
	}
	return r.Stdout
}

// PodExec runs a command in a container of a pod; container may be "".
func (l *Lab) PodExec(ctx context.Context, namespace, pod, container string, args ...string) (Result, error) {
	a := []string{"-n", namespace, "exec", pod}
	if container != "" {
		a = append(a, "-c", container)
	}
	return l.Kubectl(ctx, nil, append(append(a, "--"), args...)...)
}

func run(ctx context.Context, stdin io.Reader, path string, args ...string) (Result, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: errOut.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		r.Code = exit.ExitCode()
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("running %s: %w", filepath.Base(path), err)
	}
	return r, nil
}
