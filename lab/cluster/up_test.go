package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/node"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
)

// upCommand makes the test program start a lab and do nothing else.
const upCommand = "test-up"

// TestMain lets the test program be what Up and nodes start: itself.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case SuperviseCommand:
			err = Supervise(ctx)
		case node.InitCommand:
			err = node.Init(ctx, len(os.Args) > 2)
		case upCommand:
			_, err = Up(ctx, fakeOptions(os.Args[2]), func(s string) { fmt.Println(s) })
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeOptions are of a lab whose programs are in dir.
func fakeOptions(dir string) Options {
	return Options{Name: "up-test", Nodes: 2, Disks: 1, DiskSize: 8 << 20, Paths: Paths{
		Bin: filepath.Join(dir, "bin"), CNI: filepath.Join(dir, "cni"), Golden: filepath.Join(dir, "golden"), Pause: "localhost/pause:1",
	}}
}

// fakeBuild makes programs that do nothing, but for those in scripts.
func fakeBuild(t *testing.T, scripts map[string]string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces and loop devices need root")
	}
	if err := disk.CheckLoop(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	t.Setenv(state.EnvRoot, filepath.Join(dir, "state"))
	for _, d := range []string{"bin", "cni", "golden/io.containerd.content.v1.content"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(ComponentNames(), "hyper", "containerd", "kubelet", "kube-proxy", "../cni/bridge") {
		script := scripts[name]
		if script == "" {
			script = "exec sleep 1000"
		}
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := preflight(fakeOptions(dir)); err != nil {
		t.Skip(err)
	}
	return dir
}

// checkNothingLeft looks for what a lab leaves: files, cgroups, loop devices,
// and processes of the programs in dir.
func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	for _, p := range leftovers(t, dir) {
		t.Error("left behind: " + p)
	}
}

func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	if _, err := os.Stat(filepath.Join(dir, "state")); !errors.Is(err, os.ErrNotExist) {
		out = append(out, "the state directory")
	}
	hs, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if cgroup.New(hs, fakeOptions(dir).Name).Exists() {
		out = append(out, "cgroups")
	}
	loops, err := disk.ListAttached()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		if strings.HasPrefix(l.Backing, dir) {
			out = append(out, fmt.Sprintf("loop%d over %s", l.Number, l.Backing))
		}
	}
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cmdlines {
		b, err := os.ReadFile(c)
		if err != nil {
			continue
		}
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if strings.Contains(line, dir) || strings.HasSuffix(line, " "+SuperviseCommand+" ") {
			out = append(out, "process "+c+": "+line)
		}
	}
	return out
}

func TestUpFailsCleanly(t *testing.T) {
	tests := map[string]struct {
		scripts map[string]string
		want    []string // parts of the error
	}{
		"etcd ends":        {map[string]string{"etcd": "echo data dir is broken >&2; exit 7"}, []string{"etcd exited with code 7", "data dir is broken"}},
		"containerd ends":  {map[string]string{"containerd": "exit 3"}, []string{"starting node", "containerd exited with code 3"}},
		"the server dies":  {map[string]string{"kube-apiserver": "sleep 1; kill -SEGV $$"}, []string{"kube-apiserver was ended by signal 11"}},
		"a missing binary": {map[string]string{"kube-apiserver": "#"}, []string{"kube-apiserver"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := fakeBuild(t, tt.scripts)
			if tt.scripts["kube-apiserver"] == "#" {
				if err := os.Remove(filepath.Join(dir, "bin", "kube-apiserver")); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := Up(ctx, fakeOptions(dir), func(string) {})
			if err == nil {
				t.Fatal("up succeeded")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
			checkNothingLeft(t, dir)
		})
	}
}

func TestUpInterrupted(t *testing.T) {
	dir := fakeBuild(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Up(ctx, fakeOptions(dir), func(step string) {
		if strings.Contains(step, "nodes") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	checkNothingLeft(t, dir)
}

// TestUpKilled kills the command, which cannot clear up: the supervisor must.
func TestUpKilled(t *testing.T) {
	dir := fakeBuild(t, nil)
	cmd := exec.Command("/proc/self/exe", upCommand, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	if _, err := out.Read(buf); err != nil {
		t.Fatal(err)
	}
	// Let it get somewhere.
	waitFor(t, "a node", func() bool {
		m, _ := filepath.Glob(filepath.Join(dir, "state/up-test/nodes/node1/var/log/containerd.log"))
		return len(m) > 0
	})
	if _, err := Up(context.Background(), fakeOptions(dir), func(string) {}); !errors.Is(err, state.ErrInUse) {
		t.Errorf("a second up of the name: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitFor(t, "the supervisor to clear up", func() bool { return len(leftovers(t, dir)) == 0 })
	if err := Down(context.Background(), "up-test"); !errors.Is(err, state.ErrNotUp) {
		t.Errorf("down afterwards: %v", err)
	}
}

// TestDownAfterCrash kills the supervisor: everything of the lab ends with it,
// and down clears away the rest, once and twice.
func TestDownAfterCrash(t *testing.T) {
	dir := fakeBuild(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Up(ctx, fakeOptions(dir), func(string) {})
		done <- err
	}()
	waitFor(t, "a node", func() bool {
		m, _ := filepath.Glob(filepath.Join(dir, "state/up-test/nodes/node1/var/log/containerd.log"))
		return len(m) > 0
	})
	l, err := state.Load("up-test")
	if err != nil {
		t.Fatal(err)
	}
	if !l.Alive() {
		t.Fatal("the supervisor does not count as running")
	}
	if err := Down(ctx, "up-test"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("up succeeded in a lab that was taken down")
	}
	checkNothingLeft(t, dir)
	if err := Down(ctx, "up-test"); !errors.Is(err, state.ErrNotUp) {
		t.Errorf("down twice: %v", err)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
	}
}
