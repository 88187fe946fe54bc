package ceph_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/guest"
	"github.com/castellan-storage/castellan/lab/guest/ceph"
)

const gib = 1 << 30

// boot starts a guest for one test, or skips the test and says why.
func boot(t *testing.T) *guest.Guest {
	t.Helper()
	const envSmoke = "CASTELLAN_LAB_SMOKE"
	if os.Getenv(envSmoke) == "" {
		t.Skipf("boots a real guest: set %s=1 to run it", envSmoke)
	}
	if os.Geteuid() != 0 {
		t.Skip("boots a real guest: needs root")
	}
	o, err := guest.Built(t.Context(), guest.Options{Name: "smoke", FastLUKS: true})
	var missing *build.NotBuiltError
	if errors.As(err, &missing) {
		t.Skipf("boots a real guest: %v", err)
	}
	if err != nil {
		t.Fatal(err)
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
	for range 4 {
		o.Disks = append(o.Disks, guest.DiskOptions{Size: 10 * gib})
	}
	began := time.Now()
	g, err := guest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("booted in %.1f s", time.Since(began).Seconds())
	return g
}

func TestSmokeCeph(t *testing.T) {
	g := boot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c, err := ceph.Bootstrap(ctx, g, func(name string, took time.Duration) { t.Logf("%s: %.1f s", name, took.Seconds()) })
	if err != nil {
		t.Fatal(err)
	}
	osds, err := c.Up(ctx, ceph.Layout{Data: []string{"/dev/ubdb", "/dev/ubdc", "/dev/ubdd"}, DB: "/dev/ubde", LVM: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(osds) != 3 || osds[0].Volumes["db"].Devices[0] != "/dev/ubde" {
		t.Errorf("OSDs %+v", osds)
	}
	if err := c.StopOSD(ctx, osds[0].ID, true); err != nil {
		t.Fatal(err)
	}
	if err := c.StartOSD(ctx, osds[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitUp(ctx, osds[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitClean(ctx); err != nil {
		t.Fatal(err)
	}
}
