package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/sanitize"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

// maxTermination is what Kubernetes keeps of a termination message.
const maxTermination = 4096

// cleanupCmd removes a deleted cluster from this host.
func cleanupCmd() *cobra.Command {
	var dataDir, report string
	cmd := &cobra.Command{
		Use: "cleanup", Short: "Remove a deleted cluster's stores and OSDs from this host", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var req task.Request
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			return cleanHost(cmd.Context(), req, dataDir, report)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "where the host's dataDir is mounted")
	cmd.Flags().StringVar(&report, "report", terminationLog, "the file that becomes the termination message")
	return cmd
}

func cleanHost(ctx context.Context, req task.Request, dataDir, file string) error {
	if dataDir == "" {
		return errors.New("--data-dir: the mount of the host's dataDir is not given")
	}
	if err := writeLVMConf(); err != nil {
		return err
	}
	runner := run.Exec{Log: os.Stderr, Env: volumeEnv(true)}
	host := sanitize.Host{Root: dataDir, Node: inspect.Node{Root: "/", Run: runner}, Run: runner}
	r, err := host.Clean(ctx, req)
	if err != nil {
		return err
	}
	if b, err := json.MarshalIndent(r, "", " "); err == nil {
		fmt.Println(string(b))
	}
	if err := os.WriteFile(file, []byte(r.Summary(maxTermination)), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	if f := r.Failures(); len(f) > 0 {
		return fmt.Errorf("cleaning up: %d of %d items failed, the first is %s", len(f), len(r.Items), f[0])
	}
	return nil
}
