package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	var log bytes.Buffer
	var lines []string
	err := Run(t.Context(), Cmd{
		Args: []string{"sh", "-c", `echo "$X"; printf 'a\n\nb' >&2`}, Env: []string{"X=hello"},
		Log: &log, Line: func(s string) { lines = append(lines, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hello", "a", "b"}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if log.String() != "hello\na\n\nb" {
		t.Errorf("log = %q", log.String())
	}
}

func TestErrorSaysWhatWentWrong(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"the last line", "echo one; echo two; exit 3", "sh: exit status 3: two"},
		{"a line that names the fault", "echo 'E: Unable to locate x'; echo cleaning up; exit 1", "sh: exit status 1: E: Unable to locate x"},
		{"no line", "exit 4", "sh: exit status 4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Run(t.Context(), Cmd{Args: []string{"sh", "-c", tt.script}})
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Errorf("the exit code is lost in %T", err)
			}
		})
	}
	if err := Run(t.Context(), Cmd{Args: []string{"/no/such/program"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program gives %v", err)
	}
}

func TestOutput(t *testing.T) {
	got, err := Output(t.Context(), Cmd{Args: []string{"sh", "-c", "echo out; echo err >&2"}})
	if err != nil || got != "out\n" {
		t.Errorf("Output = %q, %v", got, err)
	}
}

func TestCancelEndsTheGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pidFile := filepath.Join(t.TempDir(), "pid")
	p, err := Start(ctx, Cmd{
		Args: []string{"sh", "-c", "sleep 100 & echo $! > " + pidFile + "; echo ready; wait"},
		Line: func(string) { cancel() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want canceled", err)
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Errorf("the child %d outlived the group", pid)
	}
}

// gone waits a little for the end of a process that was killed.
func gone(pid int) bool {
	for range 100 {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return true
		}
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); f[0] == "Z" {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return false
}

func TestContainedTakesItsMountsAlong(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	dir := t.TempDir()
	out, err := Output(t.Context(), Cmd{
		Args:      []string{"sh", "-c", "mount -t tmpfs x " + dir + " && touch " + dir + "/inside && echo $$"},
		Contained: true,
	})
	if err != nil || out != "1\n" {
		t.Fatalf("contained program: %q, %v, want it to be pid 1", out, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("what was mounted inside is seen outside: %v, %v", entries, err)
	}
}
