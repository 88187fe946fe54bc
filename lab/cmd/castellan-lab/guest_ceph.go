package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/guest"
	"github.com/castellan-storage/castellan/lab/guest/ceph"
)

func newGuestCephCmd(name *string) *cobra.Command {
	c := &cobra.Command{
		Use:   "ceph",
		Short: "Run a small Ceph cluster in a guest",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newGuestCephUpCmd(name))
	return c
}

func newGuestCephUpCmd(name *string) *cobra.Command {
	var f guestFlags
	var osds int
	var layout ceph.Layout
	var db bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Bring up a mon, a mgr and OSDs in a guest, booting it if it is not up",
		Long: `Bring up a mon, a mgr and OSDs, and return when all PGs are active+clean. The
guest is booted if it is not up; the OSDs get new disks.`,
		Example: `  castellan-lab guest ceph up --osds 3
  castellan-lab guest ceph up --osds 3 --lvm --db --dmcrypt --fast-luks
  castellan-lab guest exec ceph status`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if osds < 2 || osds >= guest.MaxDisks {
				return fmt.Errorf("--osds %d: a cluster here has 2 to %d, as pools have two replicas", osds, guest.MaxDisks-1)
			}
			if (db || layout.Encrypted) && !layout.LVM {
				return errors.New("--db and --dmcrypt need --lvm")
			}
			return cephUp(c, *name, &f, osds, db, layout)
		},
	}
	f.register(c)
	c.Flags().IntVar(&osds, "osds", 3, "how many OSDs, each on a disk of its own")
	c.Flags().BoolVar(&layout.LVM, "lvm", false, "OSDs on logical volumes instead of raw disks")
	c.Flags().BoolVar(&db, "db", false, "put the DBs of the OSDs onto one more disk that they share (with --lvm)")
	c.Flags().BoolVar(&layout.Encrypted, "dmcrypt", false, "encrypt the OSDs (with --lvm)")
	return c
}

func cephUp(c *cobra.Command, name string, f *guestFlags, osds int, db bool, layout ceph.Layout) error {
	ctx, out, began := c.Context(), c.OutOrStdout(), time.Now()
	step := func(name string, took time.Duration) {
		_, _ = fmt.Fprintf(out, "%6.1f s  %s (%.1f s)\n", time.Since(began).Seconds(), name, took.Seconds())
	}
	size, err := disk.ParseSize(f.diskSize)
	if err != nil {
		return fmt.Errorf("--disk-size: %w", err)
	}
	g, err := guest.Open(name)
	if errors.Is(err, guest.ErrNotUp) {
		g, err = f.start(c, name)
		if err == nil {
			step("guest booted", time.Since(began))
		}
	}
	if err != nil {
		return err
	}
	for range osds {
		d, err := g.AddDisk(ctx, size, "")
		if err != nil {
			return err
		}
		layout.Data = append(layout.Data, d.Path())
	}
	if db {
		d, err := g.AddDisk(ctx, size*2, "")
		if err != nil {
			return err
		}
		layout.DB = d.Path()
	}
	cluster, err := ceph.Bootstrap(ctx, g, step)
	if err != nil {
		return err
	}
	if _, err := cluster.Up(ctx, layout); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "The cluster %s is up. Ask it: castellan-lab guest exec%s ceph status\n", cluster.FSID, nameFlag(name))
	return nil
}
