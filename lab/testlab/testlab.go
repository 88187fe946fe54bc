// Package testlab is how end-to-end tests use a lab: start one or use the one
// that runs, run commands on its nodes, handle its disks, wait with a deadline,
// and keep logs and events of a failure.
//
// A package of such tests has
//
//	func TestMain(m *testing.M) { testlab.Main(m) }
//
// as the test program itself becomes the lab's supervisor and the nodes' init.
// Tests need root and what castellan-lab build made; without, they are skipped
// with the reason, or fail when CASTELLAN_LAB_REQUIRE is set.
package testlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/node"
)

// EnvRequire names the environment variable that makes tests fail, not skip,
// where no lab can be had.
const EnvRequire = "CASTELLAN_LAB_REQUIRE"

// EnvArtifacts names the environment variable that says where failures are
// collected; the default is below the directory for temporary files.
const EnvArtifacts = "CASTELLAN_LAB_ARTIFACTS"

// execCommand is the argument with which the test program runs a command on a
// node.
const execCommand = "testlab-exec"

// Main runs the tests, or what a lab starts the test program for. It does not
// return.
func Main(m *testing.M) {
	if filepath.Base(os.Args[0]) == node.LosetupName {
		if err := node.Losetup(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	code := 0
	switch os.Args[1] {
	case cluster.SuperviseCommand:
		err = cluster.Supervise(ctx)
	case node.InitCommand:
		err = node.Init(ctx, len(os.Args) > 2)
	case execCommand:
		code, err = runExec(os.Args[2:])
	default:
		stop()
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Options of a lab that a test starts.
type Options struct {
	Nodes    int    // 0 means 3
	Disks    int    // per node
	DiskSize string // "" means 10Gi
}

// Lab is a lab that runs.
type Lab struct {
	Name       string
	Dir        string // its files on this machine
	Kubeconfig string
	Control    *control.Client
	config     *rest.Config
	kube       *kubernetes.Clientset
}

// Start returns a lab. With CASTELLAN_LAB_NAME set it is the one of that name,
// started if need be, and left running for the next test run; it may have other
// nodes and disks than asked for. Otherwise it is a new one of its own, taken
// down when the test ends. What a failed test needs is collected first.
func Start(t testing.TB, o Options) *Lab {
	t.Helper()
	name, keep := os.Getenv(state.EnvName), true
	if name == "" {
		name, keep = fmt.Sprintf("test-%d", os.Getpid()), false
	}
	if l, err := state.Running(name); err == nil && keep {
		lab := open(t, l)
		lab.collectOnFailure(t)
		return lab
	}
	l := start(t, name, o)
	if !keep {
		t.Cleanup(func() {
			if err := cluster.Down(context.Background(), name); err != nil {
				t.Errorf("taking the lab down: %v", err)
			}
		})
	}
	lab := open(t, l)
	lab.collectOnFailure(t)
	return lab
}

// StartNamed starts a lab of this name that is the test's own.
func StartNamed(t testing.TB, name string, o Options) *Lab {
	t.Helper()
	l := start(t, name, o)
	t.Cleanup(func() {
		if err := cluster.Down(context.Background(), name); err != nil && !errors.Is(err, state.ErrNotUp) {
			t.Errorf("taking the lab down: %v", err)
		}
	})
	lab := open(t, l)
	lab.collectOnFailure(t)
	return lab
}

func start(t testing.TB, name string, o Options) state.Lab {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.DiskSize == "" {
		o.DiskSize = "10Gi"
	}
	size, err := disk.ParseSize(o.DiskSize)
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		unavailable(t, errors.New("a lab needs root"))
	}
	p, err := build.Lookup("bin", "cni", "golden")
	if err != nil {
		unavailable(t, err)
	}
	l, err := cluster.Up(t.Context(), cluster.Options{
		Name: name, Nodes: o.Nodes, Disks: o.Disks, DiskSize: size,
		Paths: cluster.Paths{Bin: p.Bin, CNI: p.CNI, Golden: p.Golden, Pause: build.ImagePause},
	}, func(step string) { t.Logf("lab %s: %s", name, step) })
	if errors.Is(err, disk.ErrNoLoop) {
		unavailable(t, err)
	}
	if err != nil {
		t.Fatalf("starting the lab %s: %v", name, err)
	}
	return l
}

func unavailable(t testing.TB, why error) {
	t.Helper()
	if os.Getenv(EnvRequire) != "" {
		t.Fatalf("no lab, and %s is set: %v", EnvRequire, why)
	}
	t.Skipf("no lab: %v", why)
}

func open(t testing.TB, l state.Lab) *Lab {
	t.Helper()
	dir, err := l.Dir()
	if err != nil {
		t.Fatal(err)
	}
	lab := &Lab{Name: l.Name, Dir: dir, Kubeconfig: cluster.Kubeconfig(dir), Control: control.NewClient(dir)}
	if lab.config, err = clientcmd.BuildConfigFromFlags("", lab.Kubeconfig); err != nil {
		t.Fatalf("reading the lab's kubeconfig: %v", err)
	}
	lab.config.QPS, lab.config.Burst = 200, 400
	if lab.kube, err = kubernetes.NewForConfig(lab.config); err != nil {
		t.Fatalf("connecting to the lab: %v", err)
	}
	return lab
}

// Config is how clients reach the API server from this machine. The caller may
// change the copy that it gets.
func (l *Lab) Config() *rest.Config { return rest.CopyConfig(l.config) }

// Kube is a client of the API server, as administrator.
func (l *Lab) Kube() kubernetes.Interface { return l.kube }

// Until tries every 200 ms until try returns nil, and fails the test with its
// last error when that takes longer than limit.
func Until(t testing.TB, limit time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			t.Logf("%s after %.1fs", what, time.Since(begun).Seconds())
			return
		}
		last = telling(ctx, last, err)
		select {
		case <-ctx.Done():
			t.Fatalf("waiting %s for %s: %v", limit, what, last)
		case <-tick.C:
		}
	}
}

// telling chooses which of the last two errors says what was wrong: at the deadline
// clients only say that there was no time left to ask.
func telling(ctx context.Context, last, err error) error {
	late := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "would exceed context deadline")
	if last != nil && late {
		return last
	}
	return err
}

// Status is how the lab is.
func (l *Lab) Status(t testing.TB) control.Status {
	t.Helper()
	s, err := l.Control.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Disks are the disks of a node, with what is on them.
func (l *Lab) Disks(t testing.TB, nodeName string) []control.Disk {
	t.Helper()
	for _, n := range l.Status(t).Nodes {
		if n.Name == nodeName {
			return n.Disks
		}
	}
	t.Fatalf("the lab %s has no node %s", l.Name, nodeName)
	return nil
}

// AddDisk plugs a blank disk into a node.
func (l *Lab) AddDisk(t testing.TB, nodeName, size string) disk.Disk {
	t.Helper()
	n, err := disk.ParseSize(size)
	if err != nil {
		t.Fatal(err)
	}
	return must(t)(l.Control.AddDisk(t.Context(), nodeName, control.NewDisk{Size: n}))
}

// PullDisk pulls a disk (slot, serial or device name) out of a node.
func (l *Lab) PullDisk(t testing.TB, nodeName, what string) disk.Disk {
	t.Helper()
	return must(t)(l.Control.PullDisk(t.Context(), nodeName, what))
}

// SwapDisk puts a blank disk in the place of another.
func (l *Lab) SwapDisk(t testing.TB, nodeName, what string, s control.Swap) disk.Disk {
	t.Helper()
	return must(t)(l.Control.SwapDisk(t.Context(), nodeName, what, s))
}

// Node stops, starts, cuts off or heals a node: verb is control.Stop and so on.
func (l *Lab) Node(t testing.TB, nodeName, verb string) {
	t.Helper()
	if err := l.Control.Node(t.Context(), nodeName, verb); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB) func(disk.Disk, error) disk.Disk {
	return func(d disk.Disk, err error) disk.Disk {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// dirName makes a test's name one directory.
func dirName(test string) string {
	return strings.NewReplacer("/", "_", " ", "_").Replace(test)
}
