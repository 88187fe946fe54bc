// Package guesttest boots storage guests for tests: a test asks for a guest
// and gets one that ends with it, or is skipped with the reason.
//
// It must not know what a test does with its guest.
package guesttest

import (
	"os"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/guest"
)

// EnvRequire names the environment variable that turns tests on that boot real
// guests, since these take minutes and most of a core. What a guest needs and
// this machine lacks is then a failure. It is the same variable as for labs.
const EnvRequire = "CASTELLAN_LAB_REQUIRE"

// GiB is the unit of memory and disks.
const GiB = 1 << 30

// Options prepares for guests in this test: it fills in what was built, and
// keeps the guests of this test apart from all others of the machine. The test
// is skipped unless EnvRequire is set.
func Options(t testing.TB, o guest.Options) guest.Options {
	t.Helper()
	if os.Getenv(EnvRequire) == "" {
		t.Skipf("boots a real guest: set %s=1 to run it", EnvRequire)
	}
	if os.Geteuid() != 0 {
		t.Fatalf("a guest needs root, and %s is set", EnvRequire)
	}
	o, err := guest.Built(t.Context(), o)
	if err != nil {
		t.Fatalf("no guest, and %s is set: %v", EnvRequire, err)
	}
	// Not t.TempDir: the path must be short enough for sockets.
	dir, err := os.MkdirTemp("/var/tmp", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(state.EnvRoot, dir)
	return o
}

// Start boots a guest with options from Options and takes it down when the
// test ends; when the test has failed, what the guest's console said is
// logged.
func Start(t testing.TB, o guest.Options) *guest.Guest {
	t.Helper()
	began := time.Now()
	g, err := guest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if b, err := os.ReadFile(g.ConsolePath()); err == nil {
				t.Logf("the console of the guest %s:\n%s", g.Name(), b)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the guest %s booted in %.1f s", g.Name(), time.Since(began).Seconds())
	return g
}

// Must runs a command in the guest, fails the test unless it exits with 0, and
// returns its standard output.
func Must(t testing.TB, g *guest.Guest, argv ...string) string {
	t.Helper()
	res, err := g.Exec(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("%v: exit code %d\n%s%s", argv, res.ExitCode, res.Stdout, res.Stderr)
	}
	return res.Stdout
}
