package ceph_test

import (
	"context"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/guest"
	"github.com/castellan-storage/castellan/lab/guest/ceph"
	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

func TestSmokeCeph(t *testing.T) {
	o := guesttest.Options(t, guest.Options{Name: "smoke", FastLUKS: true})
	for range 4 {
		o.Disks = append(o.Disks, guest.DiskOptions{Size: 10 * guesttest.GiB})
	}
	g := guesttest.Start(t, o)
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
