package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// TestMain lets the test binary be the program that is run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "helper" {
		helper(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

func helper(args []string) {
	switch args[0] {
	case "args":
		fmt.Printf("%q", args[1:])
	case "env":
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
	case "stdin":
		b := make([]byte, 100)
		n, _ := os.Stdin.Read(b)
		fmt.Printf("%d bytes", n)
	case "fail":
		fmt.Fprint(os.Stderr, "could not fetch user info:\nno user info saved")
		os.Exit(int(syscall.EINVAL))
	case "flood":
		for {
			fmt.Print(strings.Repeat("x", 4096))
		}
	case "hang":
		time.Sleep(time.Minute)
	}
}

func self(t *testing.T, args ...string) Call {
	t.Helper()
	p, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Call{Program: p, Args: append([]string{"helper"}, args...)}
}

func TestArgumentsAreNotInterpreted(t *testing.T) {
	out, err := OS{}.Run(t.Context(), self(t, "args", "$(id)", "a b", ";", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`["$(id)" "a b" ";" "*"]`, string(out.Stdout)); d != "" {
		t.Error(d)
	}
}

func TestEnvironmentIsNotPassedOn(t *testing.T) {
	t.Setenv("CANARY_TOKEN", "canary")
	c := self(t, "env")
	c.Env = []string{"DM_DISABLE_UDEV=1"}
	out, err := OS{}.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(out.Stdout); strings.Contains(s, "canary") || !strings.Contains(s, "DM_DISABLE_UDEV=1") || !strings.Contains(s, "PATH=") {
		t.Errorf("environment:\n%s", s)
	}
}

func TestStdin(t *testing.T) {
	c := self(t, "stdin")
	c.Stdin = ceph.NewSecret("passphrase")
	out, err := OS{}.Run(t.Context(), c)
	if err != nil || string(out.Stdout) != "10 bytes" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
	if s := fmt.Sprintf("%v %+v", c, c); strings.Contains(s, "passphrase") {
		t.Errorf("a call prints its input: %s", s)
	}
}

func TestExitCode(t *testing.T) {
	_, err := OS{}.Run(t.Context(), self(t, "fail"))
	var e *ExitError
	if !errors.As(err, &e) || e.Code != 22 || Code(err) != 22 {
		t.Fatalf("%v", err)
	}
	if !errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v is not EINVAL only", err)
	}
	if !strings.HasSuffix(err.Error(), "exit code 22: could not fetch user info: no user info saved") {
		t.Errorf("%v", err)
	}
}

func TestTooMuchOutput(t *testing.T) {
	c := self(t, "flood")
	c.MaxOutput = 10000
	out, err := OS{}.Run(t.Context(), c)
	if !errors.Is(err, ErrTooMuch) || len(out.Stdout) != 10000 {
		t.Errorf("%d bytes, %v", len(out.Stdout), err)
	}
}

func TestDeadline(t *testing.T) {
	c := self(t, "hang")
	c.Timeout = 200 * time.Millisecond
	start := time.Now()
	_, err := OS{}.Run(t.Context(), c)
	if !errors.Is(err, context.DeadlineExceeded) || Code(err) != -1 {
		t.Errorf("%v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestMissingProgram(t *testing.T) {
	_, err := OS{}.Run(t.Context(), Call{Program: "no-such-program-of-ceph"})
	if err == nil || Code(err) != -1 || errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v", err)
	}
}

type fake struct{ calls []Call }

func (f *fake) Run(_ context.Context, c Call) (Output, error) {
	f.calls = append(f.calls, c)
	return Output{}, nil
}

func TestClusterKeepsTheKeyInAFile(t *testing.T) {
	f := &fake{}
	c, err := NewCluster(f, t.TempDir(), Identity{MonHost: "[v2:10.0.0.1:3300]", User: "client.admin", Key: ceph.NewSecret("canarykey")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RBD(t.Context(), "ls", "pool"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Grace(t.Context(), ".nfs", "n", "add", "n.a"); err != nil {
		t.Fatal(err)
	}
	ring := c.keyring()
	want := []string{"--conf", "/dev/null", "--mon-host", "[v2:10.0.0.1:3300]", "--name", "client.admin", "--keyring", ring,
		"ls", "pool", "--format", "json"}
	if d := cmp.Diff(want, f.calls[0].Args); d != "" {
		t.Error(d)
	}
	for _, call := range f.calls {
		if strings.Contains(fmt.Sprintf("%+v", call), "canarykey") {
			t.Errorf("the key is in %+v", call)
		}
	}
	if !slices.Contains(f.calls[1].Args, "admin") {
		t.Errorf("grace is not run as admin: %v", f.calls[1].Args)
	}
	st, err := os.Stat(ring)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("keyring: %v %v", st, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(ring)); !os.IsNotExist(err) {
		t.Errorf("the keyring is still there: %v", err)
	}
}
