package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/crash"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
)

const (
	// crashEvery is how often the directory of crash dumps is looked at.
	crashEvery = 10 * time.Second
	// postTimeout bounds one run of Ceph's tool, which waits for a quorum and a mgr.
	postTimeout = time.Minute
)

// collectCrashesCmd hands crash dumps to Ceph.
func collectCrashesCmd() *cobra.Command {
	return &cobra.Command{
		Use: "collect-crashes DIR", Short: "Post the crash dumps in DIR to Ceph", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick := time.NewTicker(crashEvery)
			defer tick.Stop()
			d := crash.Dir{Path: args[0], Post: postCrash}
			d.Run(cmd.Context(), tick.C, func(line string) { fmt.Fprintln(os.Stderr, "castellan-node:", line) })
			return nil
		},
	}
}

// postCrash has Ceph's tool read the dump. Where the mons are and the key come by
// CEPH_ARGS, which the pod sets.
func postCrash(ctx context.Context, file string) error {
	_, err := run.Exec{Timeout: postTimeout}.Run(ctx, "ceph", "-n", "client.crash", "crash", "post", "-i", file)
	return err
}

// imageFactsCmd reports what the image is beyond its version.
func imageFactsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "image-facts", Short: "Report Ceph's user and the optional programs of the image as the termination message", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			uid, gid, err := cephUser()
			if err != nil {
				return err
			}
			f := facts.Facts{UID: int64(uid), GID: int64(gid), Exporter: have("ceph-exporter")}
			if _, err := facts.Parse(f.String()); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), f); err != nil {
				return err
			}
			if err := os.WriteFile(terminationLog, []byte(f.String()), 0o644); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("writing the termination message: %w", err)
			}
			return nil
		},
	}
}
