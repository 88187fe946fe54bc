package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestPauseEndsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		cmd := root()
		cmd.SetArgs([]string{"pause"})
		done <- cmd.ExecuteContext(ctx)
	}()
	select {
	case err := <-done:
		t.Fatalf("pause ended by itself: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("pause: %v", err)
	}
}

func TestRotateLogsArguments(t *testing.T) {
	tests := map[string][]string{
		"no file":     {"osd", "1", "--period", "daily"},
		"no period":   {"osd", "1", "--file", "/x", "--period", "sometimes"},
		"no daemon":   {"--file", "/x"},
		"negative":    {"osd", "1", "--file", "/x", "--max-size", "-1"},
		"not a size":  {"osd", "1", "--file", "/x", "--max-size", "10M"},
		"three words": {"osd", "1", "2", "--file", "/x"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			cmd := root()
			cmd.SetArgs(append([]string{"rotate-logs"}, args...))
			if err := cmd.ExecuteContext(ctx); err == nil {
				t.Error("no error")
			}
		})
	}
	for daemon, keep := range map[string]int{"osd": 7, "rbd-mirror": 28} {
		f, err := logFile(daemon, "1", "/var/log/ceph/x.log", "weekly", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if f.Keep != keep || f.Period != 7*24*time.Hour || f.MaxSize != 1<<20 || f.Path != "/var/log/ceph/x.log" {
			t.Errorf("%s: %+v", daemon, f)
		}
	}
}

// daemonSocket answers each command on an admin socket with what say gives.
func daemonSocket(t *testing.T, say func(cmd string) string) (path string, asked func() []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "asok") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "x.asok")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	var got []string
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			cmd := strings.TrimRight(string(buf[:n]), "\x00")
			mu.Lock()
			got = append(got, cmd)
			mu.Unlock()
			answer := say(cmd)
			_ = binary.Write(c, binary.BigEndian, uint32(len(answer)))
			_, _ = c.Write([]byte(answer))
			_ = c.Close()
		}
	}()
	return path, func() []string { mu.Lock(); defer mu.Unlock(); return got }
}

// What all pods ask is answered without the tree of commands; everything else is left to it.
func TestProbe(t *testing.T) {
	for _, args := range [][]string{nil, {"probe"}, {"probe", "osd"}, {"probe", "osd", "1", "2"}, {"probe", "--help", "1"}, {"probe", "--timeout", "1s", "osd", "1"}, {"pause", "osd", "1"}} {
		if ok, err := probe(args); ok || err != nil {
			t.Errorf("%q: %v, %v", args, ok, err)
		}
	}
	ok, err := probe([]string{"probe", "osd", "none"})
	if !ok || err == nil || !strings.Contains(err.Error(), "/run/ceph/ceph-osd.none.asok") {
		t.Errorf("a daemon that is away: %v, %v", ok, err)
	}
	cmd := root()
	cmd.SetArgs([]string{"probe", "osd", "none", "--timeout", "1s"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "/run/ceph/ceph-osd.none.asok") {
		t.Errorf("with a bound of one's own: %v", err)
	}
}

func TestReopen(t *testing.T) {
	answer := ""
	path, asked := daemonSocket(t, func(string) string { return answer })
	if err := reopen(path); err != nil {
		t.Errorf("reopen: %v", err)
	}
	if diff := cmp.Diff([]string{`{"format":"json","prefix":"log reopen"}`}, asked()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	answer = "ERROR: (22) Invalid argument\n"
	if err := reopen(path); err == nil || !strings.Contains(err.Error(), "Invalid argument") {
		t.Errorf("a refusal gives %v", err)
	}
	if err := reopen(path + ".gone"); err == nil {
		t.Error("a daemon that is away gives no error")
	}
}

// tree makes a directory with files of other owners and a link that leads out.
func tree(t *testing.T) (dir, outside string) {
	t.Helper()
	base := t.TempDir()
	dir, outside = filepath.Join(base, "data"), filepath.Join(base, "outside")
	for _, d := range []string{dir, outside, filepath.Join(dir, "store.db")} {
		if err := os.Mkdir(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(dir, "store.db", "1.sst"), filepath.Join(dir, "keyring"), filepath.Join(outside, "shadow")} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "store.db", "out")); err != nil {
		t.Fatal(err)
	}
	return dir, outside
}

func owners(t *testing.T, dir string) map[string][2]int {
	t.Helper()
	got := map[string][2]int{}
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		got[rel] = owner(info)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestChownTree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing owners needs root")
	}
	dir, outside := tree(t)
	if err := chownTree(dir, 167, 168); err != nil {
		t.Fatal(err)
	}
	ceph := [2]int{167, 168}
	want := map[string][2]int{".": ceph, "keyring": ceph, "store.db": ceph, "store.db/1.sst": ceph, "store.db/out": ceph}
	if diff := cmp.Diff(want, owners(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][2]int{".": {0, 0}, "shadow": {0, 0}}, owners(t, outside)); diff != "" {
		t.Errorf("outside (-want +got):\n%s", diff)
	}
	if err := chownTree(filepath.Join(dir, "missing"), 167, 168); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory gives %v", err)
	}
}

// reduced names the directory for the process that TestChownReduced starts.
const reduced = "CASTELLAN_TEST_REDUCED"

// With the capabilities that podspec leaves to init containers, and no way to more,
// directories of other users can be given to Ceph's user, and the command after
// them runs.
func TestChownReduced(t *testing.T) {
	if dir := os.Getenv(reduced); dir != "" {
		if err := chownTree(dir, 167, 167); err != nil {
			t.Fatal(err)
		}
		// What the container then becomes has to drop to Ceph's user.
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestNothing$")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 167, Gid: 167}}
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dropping to Ceph's user: %v: %s", err, out)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("changing owners needs root")
	}
	dir, _ := tree(t)
	for p, uid := range map[string]int{".": 64045, "store.db": 64045, "store.db/1.sst": 167, "keyring": 1000} {
		if err := os.Lchown(filepath.Join(dir, p), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		// The thread has lost its capabilities: it is not unlocked, and ends with this
		// goroutine.
		runtime.LockOSThread()
		if err := dropCapabilities(unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID); err != nil {
			done <- result{nil, err}
			return
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestChownReduced$", "-test.v")
		cmd.Env = append(os.Environ(), reduced+"="+dir)
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, r.out)
	}
	for p, got := range owners(t, dir) {
		if got != [2]int{167, 167} {
			t.Errorf("%s belongs to %v", p, got)
		}
	}
}

func TestNothing(*testing.T) {}

// dropCapabilities leaves the thread no capability beyond keep, for good.
func dropCapabilities(keep ...int) error {
	kept := map[int]bool{}
	var bits uint64
	for _, c := range keep {
		kept[c] = true
		bits |= 1 << c
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if !kept[c] {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	for i := range data {
		w := uint32(bits >> (32 * i))
		data[i] = unix.CapUserData{Effective: w, Permitted: w}
	}
	return unix.Capset(&hdr, &data[0])
}
