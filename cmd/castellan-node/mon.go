package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/monmap"
	"github.com/castellan-storage/castellan/internal/node/run"
)

const (
	// othersWithin is how long the other first mons are waited for. They start at the same
	// time, on nodes that may have to pull the image first: then it is not worth to wait.
	othersWithin = 10 * time.Second
	// knockEvery is how often they are tried.
	knockEvery = 100 * time.Millisecond
)

// makeMonCmd becomes ceph-mon with --mkfs. The first mons of a cluster get a map in which
// all of them are named; what is there already, ceph-mon leaves as it is. The one of them
// that wins elections lets the others start first.
func makeMonCmd() *cobra.Command {
	var id, fsid string
	cmd := &cobra.Command{
		Use: "make-mon -- COMMAND...", Short: "Make a mon's store, with a map of all mons if it is one of the first", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, command []string) error {
			if id == "" || fsid == "" {
				return errors.New("making a mon's store: --id and --fsid must both be known")
			}
			mons := monmap.Founders(id, os.Getenv("ROOK_CEPH_MON_INITIAL_MEMBERS"), os.Getenv("ROOK_CEPH_MON_HOST"))
			if mons == nil || !have("monmaptool") {
				return become(command)
			}
			path := filepath.Join(os.TempDir(), "monmap")
			out, err := run.Exec{Log: os.Stderr}.Run(cmd.Context(), "monmaptool", monmap.Args(fsid, mons, path)...)
			if err != nil {
				return fmt.Errorf("making the map of the first mons: %w", err)
			}
			if _, err := os.Stderr.Write(out); err != nil {
				return err
			}
			// ceph-mon reads it as Ceph's user. It holds names and addresses.
			if err := os.Chmod(path, 0o644); err != nil {
				return fmt.Errorf("making the map of the first mons: %w", err)
			}
			command = append(command, "--monmap", path)
			others, last := monmap.Last(id, mons)
			if _, err := os.Stat(filepath.Join("/var/lib/ceph/mon/ceph-"+id, "store.db")); !last || err == nil {
				return become(command)
			}
			if _, err := (run.Exec{Log: os.Stderr}).Run(cmd.Context(), command[0], command[1:]...); err != nil {
				return fmt.Errorf("making the mon's store: %w", err)
			}
			if missing := awaitMons(cmd.Context(), others, othersWithin); len(missing) > 0 {
				fmt.Fprintf(os.Stderr, "no mon takes connections at %v after %v; mon %s starts without waiting longer\n", missing, othersWithin, id)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the mon")
	cmd.Flags().StringVar(&fsid, "fsid", "", "the cluster")
	return cmd
}

// awaitMons waits until all of the addresses have taken a connection, at most so long, and
// gives those that have not.
func awaitMons(ctx context.Context, addrs []netip.AddrPort, within time.Duration) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(knockEvery)
	defer tick.Stop()
	missing := slices.Clone(addrs)
	for {
		missing = slices.DeleteFunc(missing, func(a netip.AddrPort) bool {
			d := net.Dialer{Timeout: time.Second}
			c, err := d.DialContext(ctx, "tcp", a.String())
			if err != nil {
				return false
			}
			_ = c.Close()
			return true
		})
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return missing
		}
	}
}
