package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeHost is a Host without a machine behind it.
type fakeHost struct {
	cut chan string
	off chan struct{}
}

func (fakeHost) Info() (Info, error)        { return Info{Hostname: "g", MemTotal: 7}, nil }
func (fakeHost) Disks(bool) ([]Disk, error) { return nil, errors.New("no sysfs") }
func (h fakeHost) PowerOff() error          { close(h.off); return nil }
func (h fakeHost) CutHolders(_ context.Context, d string) error {
	h.cut <- d
	return nil
}

// pair is a client whose connections end in a server of this process.
func pair(t *testing.T, host Host) *Client {
	t.Helper()
	return NewClient(pipes(t, NewServer("secret", []string{"PATH=" + os.Getenv("PATH"), "A=1"}, host)), "secret")
}

func pipes(t *testing.T, s *Server) DialFunc {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		running.Go(func() { s.ServeConn(context.WithoutCancel(t.Context()), far) })
		return near, nil
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestRun(t *testing.T) {
	c := pair(t, fakeHost{})
	for _, tc := range []struct {
		name        string
		cmd         Command
		stdin       string
		out, errOut string
		exit        Exit
	}{
		{name: "apart", cmd: Command{Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}}, out: "out\n", errOut: "err\n", exit: Exit{Code: 3}},
		{name: "no shell", cmd: Command{Argv: []string{"echo", "$A; ls"}}, out: "$A; ls\n"},
		{name: "stdin", cmd: Command{Argv: []string{"cat"}}, stdin: "abc", out: "abc"},
		{name: "stdin not read", cmd: Command{Argv: []string{"true"}}, stdin: strings.Repeat("x", 1<<20)},
		{name: "environment", cmd: Command{Argv: []string{"sh", "-c", "echo $A $B"}, Env: []string{"B=2"}}, out: "1 2\n"},
		{name: "directory", cmd: Command{Argv: []string{"pwd"}, Dir: "/proc"}, out: "/proc\n"},
		{name: "signal", cmd: Command{Argv: []string{"sh", "-c", "kill -9 $$"}}, exit: Exit{Code: 137, Signal: "SIGKILL"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			tc.cmd.Stdout, tc.cmd.Stderr = &out, &errOut
			tc.cmd.Stdin = strings.NewReader(tc.stdin)
			exit, err := c.Run(testContext(t), tc.cmd)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.exit, exit); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{tc.out, tc.errOut}, []string{out.String(), errOut.String()}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRunMuch(t *testing.T) {
	var out bytes.Buffer
	in := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	exit, err := pair(t, fakeHost{}).Run(testContext(t), Command{Argv: []string{"cat"}, Stdin: bytes.NewReader(in), Stdout: &out})
	if err != nil || exit.Code != 0 || !bytes.Equal(in, out.Bytes()) {
		t.Errorf("exit %v, %v: sent %d bytes, got %d back", exit, err, len(in), out.Len())
	}
}

func TestRunNotThere(t *testing.T) {
	_, err := pair(t, fakeHost{}).Run(testContext(t), Command{Argv: []string{"castellan-no-such-program"}})
	if err == nil || !strings.Contains(err.Error(), "castellan-no-such-program") {
		t.Errorf("err = %v", err)
	}
}

// TestRunDaemon: what a command leaves behind with its pipes open must not
// keep the client waiting.
func TestRunDaemon(t *testing.T) {
	began := time.Now()
	var out bytes.Buffer
	exit, err := pair(t, fakeHost{}).Run(testContext(t), Command{Argv: []string{"sh", "-c", "sleep 15 & echo started"}, Stdout: &out})
	if err != nil || exit.Code != 0 || out.String() != "started\n" {
		t.Errorf("exit %v, %v, output %q", exit, err, out.String())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestRunCancelled(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(testContext(t))
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	go func() {
		for ctx.Err() == nil {
			if b, err := os.ReadFile(mark); err == nil && bytes.HasSuffix(b, []byte("\n")) {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err := pair(t, fakeHost{}).Run(ctx, Command{Argv: []string{"sh", "-c", "sleep 600 & echo $! > " + mark + "; wait"}, Stdin: r})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	b, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("/proc/%s/stat", bytes.TrimSpace(b))
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s, err := os.ReadFile(stat)
		if os.IsNotExist(err) || bytes.Contains(s, []byte(") Z ")) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the command's child still runs: %s", s)
		}
	}
}

func TestConcurrent(t *testing.T) {
	c := pair(t, fakeHost{})
	ctx := testContext(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var out bytes.Buffer
			exit, err := c.Run(ctx, Command{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i)}, Stdout: &out})
			if err != nil || exit.Code != i || out.String() != fmt.Sprintf("%d\n", i) {
				t.Errorf("command %d: exit %v, %v, output %q", i, exit, err, out.String())
			}
		})
	}
	all.Wait()
}

func TestPutGet(t *testing.T) {
	c := pair(t, fakeHost{})
	ctx := testContext(t)
	path := filepath.Join(t.TempDir(), "a", "b")
	content := bytes.Repeat([]byte{0, 1, 2}, 100_000)
	if err := c.Put(ctx, path, 0o640, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := c.Get(ctx, path, &got); err != nil || !bytes.Equal(content, got.Bytes()) {
		t.Errorf("Get: %v, %d bytes", err, got.Len())
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := c.Get(ctx, filepath.Dir(path), io.Discard); err == nil {
		t.Error("Get of a directory succeeded")
	}
	if err := c.Put(ctx, "relative", 0o600, strings.NewReader("x")); err == nil {
		t.Error("Put to a relative path succeeded")
	}
}

// TestPutBroken: a source that fails must leave the old file.
func TestPutBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("disk on fire")
	src := io.MultiReader(strings.NewReader("new"), failing{broken})
	if err := pair(t, fakeHost{}).Put(testContext(t), path, 0o600, src); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "old" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestHost(t *testing.T) {
	host := fakeHost{cut: make(chan string, 1), off: make(chan struct{})}
	c := pair(t, host)
	ctx := testContext(t)
	info, err := c.Info(ctx)
	if diff := cmp.Diff(Info{Hostname: "g", MemTotal: 7}, info); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := c.Disks(ctx, true); err == nil || !strings.Contains(err.Error(), "no sysfs") {
		t.Errorf("err = %v", err)
	}
	if err := c.CutHolders(ctx, "ubdb"); err != nil || <-host.cut != "ubdb" {
		t.Errorf("CutHolders: %v", err)
	}
	if err := c.PowerOff(ctx); err != nil {
		t.Errorf("PowerOff: %v", err)
	}
	<-host.off
}

func TestTokenAndVersion(t *testing.T) {
	dial := pipes(t, NewServer("secret", nil, fakeHost{}))
	if _, err := NewClient(dial, "guess").Info(testContext(t)); err == nil || !strings.Contains(err.Error(), tokenMismatch) {
		t.Errorf("err = %v", err)
	}
	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	f := &framed{conn: conn}
	if err := f.writeJSON(frameRequest, request{Version: 99, Token: "secret", Op: opInfo}); err != nil {
		t.Fatal(err)
	}
	_, p, err := f.read()
	var rep reply
	if err != nil || json.Unmarshal(p, &rep) != nil || !strings.Contains(rep.Error, "version 99") {
		t.Errorf("reply %s, %v", p, err)
	}
}

func TestFrames(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		_, _ = near.Write([]byte{4, 0xff, 0xff, 0xff, 0xff})
	}()
	if _, _, err := (&framed{conn: far}).read(); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("an oversized frame gives %v", err)
	}
	_ = near.Close()
	near, far = net.Pipe()
	go func() {
		_, _ = near.Write([]byte{4, 0, 0, 0, 9, 'x'})
		_ = near.Close()
	}()
	if _, _, err := (&framed{conn: far}).read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut frame gives %v", err)
	}
}

// TestLost: a guest that dies in the middle of a command is an error, not an
// exit code.
func TestLost(t *testing.T) {
	c := NewClient(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			f := &framed{conn: far}
			_, _, _ = f.read()
			_ = f.write(frameStdout, []byte("half"))
			_ = far.Close()
		}()
		return near, nil
	}, "")
	exit, err := c.Run(testContext(t), Command{Argv: []string{"ls"}})
	if err == nil {
		t.Errorf("exit %v without an error", exit)
	}
}
