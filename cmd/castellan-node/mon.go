package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/monmap"
	"github.com/castellan-storage/castellan/internal/node/run"
)

// monmapTimeout bounds monmaptool, which reads and writes one small file.
const monmapTimeout = 30 * time.Second

// makeMonCmd becomes ceph-mon with --mkfs. The first mons of a cluster get a map in which
// all of them are named; what is there already, ceph-mon leaves as it is.
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
			out, err := run.Exec{Log: os.Stderr, Timeout: monmapTimeout}.Run(cmd.Context(), "monmaptool", monmap.Args(fsid, mons, path)...)
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
			return become(append(command, "--monmap", path))
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the mon")
	cmd.Flags().StringVar(&fsid, "fsid", "", "the cluster")
	return cmd
}
