package rotate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/csi/rotate"
)

// TestMain lets the test binary play logrotate: it notes its arguments and fails
// the first time.
func TestMain(m *testing.M) {
	file := os.Getenv("ROTATE_TEST_CALLS")
	if file == "" {
		os.Exit(m.Run())
	}
	before, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		os.Exit(3)
	}
	if err := os.WriteFile(file, append(before, strings.Join(os.Args[1:], " ")+"\n"...), 0o600); err != nil {
		os.Exit(3)
	}
	if len(before) == 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

func TestRun(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("ROTATE_TEST_CALLS", calls)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out strings.Builder
	done := make(chan error, 1)
	go func() {
		done <- rotate.Options{Program: os.Args[0], State: "/s", Every: 10 * time.Millisecond, Out: &out}.Run(ctx, "/config")
	}()
	for {
		raw, err := os.ReadFile(calls)
		if err == nil && strings.Count(string(raw), "\n") >= 3 {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("ended early: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(string(raw), "\n"); first != "--verbose --state /s /config" {
		t.Errorf("called with %q", first)
	}
	if !strings.Contains(out.String(), "rotating logs by /config: exit status 1") {
		t.Errorf("the failed run is not told: %q", out.String())
	}
}

func TestRunErrors(t *testing.T) {
	if err := (rotate.Options{Program: "no-such-program", Every: time.Second, Out: os.Stderr}).Run(t.Context(), "/c"); err == nil {
		t.Error("a program that does not exist is no error")
	}
	if err := (rotate.Options{Program: "x", Out: os.Stderr}).Run(t.Context(), "/c"); err == nil {
		t.Error("a time of 0 is no error")
	}
}
