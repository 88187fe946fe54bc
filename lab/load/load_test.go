package load

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
)

func TestRunningNodesWithoutLabs(t *testing.T) {
	t.Setenv(state.EnvRoot, filepath.Join(t.TempDir(), "none"))
	got, err := RunningNodes(t.Context())
	if err != nil || got != nil {
		t.Errorf("RunningNodes = %v, %v, want none", got, err)
	}
}

func TestRunningNodesPassesOverDeadLabs(t *testing.T) {
	t.Setenv(state.EnvRoot, t.TempDir())
	if _, err := state.Create("dead", time.Now()); err != nil {
		t.Fatal(err)
	}
	got, err := RunningNodes(t.Context())
	if err != nil || got != nil {
		t.Errorf("RunningNodes = %v, %v, want none", got, err)
	}
}

func TestRunningNodesAsksTheLab(t *testing.T) {
	root, err := os.MkdirTemp("", "load") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(state.EnvRoot, root)
	l, err := state.Create("live", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	// A process with the lab's mark stands in for the supervisor.
	standIn := exec.CommandContext(t.Context(), "sleep", "100")
	standIn.Env = []string{state.EnvID + "=" + l.ID}
	if err := standIn.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standIn.Wait() }) // the test's context has ended it
	l.Pid = standIn.Process.Pid
	if l.Start, err = state.StartOf(l.Pid); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(); err != nil {
		t.Fatal(err)
	}
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	door, err := net.Listen("unix", control.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	const status = `{"nodes":[{"name":"node1","state":"running","pid":11},{"name":"node2","state":"stopped"},{"name":"node3","state":"partitioned","pid":13}]}`
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(status))
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = srv.Serve(door) }()
	t.Cleanup(func() { _ = srv.Close() })
	got, err := RunningNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{"live", "node1", 11}, {"live", "node3", 13}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Node{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("RunningNodes (-want +got):\n%s", diff)
	}
	if got := socketOf(11); got != "/proc/11/root/run/containerd/containerd.sock" {
		t.Errorf("socket of a node: %s", got)
	}
}
