package proc

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGroup(t *testing.T) {
	g, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	start := func(script string) *Child {
		t.Helper()
		c, err := g.Start(Command{Name: "test", Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(), Files: []*os.File{nil, nil, nil}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	wait := func(c *Child) Exit {
		t.Helper()
		select {
		case <-c.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("%d was not reaped", c.Pid)
		}
		return c.Exit()
	}
	// Many that end at once: none is lost.
	var quick []*Child
	for range 50 {
		quick = append(quick, start("exit 3"))
	}
	for _, c := range quick {
		if d := cmp.Diff(Exit{Name: "test", Pid: c.Pid, Code: 3}, wait(c)); d != "" {
			t.Error(d)
		}
	}
	slow := start("exec sleep 100")
	if !slow.Alive() {
		t.Error("a sleeping child counts as ended")
	}
	if err := slow.Kill(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Exit{Name: "test", Pid: slow.Pid, Code: -1, Signal: syscall.SIGKILL}, wait(slow)); d != "" {
		t.Error(d)
	}
	if err := slow.Kill(syscall.SIGKILL); err != nil {
		t.Errorf("killing it again: %v", err)
	}
	if _, err := g.Start(Command{Name: "nothing", Path: "/nonexistent", Args: []string{"x"}}); err == nil {
		t.Error("starting what is not there gave no error")
	}
}
