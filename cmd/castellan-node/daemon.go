package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/asok"
	"github.com/castellan-storage/castellan/internal/node/logs"
	"github.com/castellan-storage/castellan/internal/node/toolbox"
)

// pauseCmd does nothing. Canaries of mons name it, and are not started.
func pauseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "pause", Short: "Do nothing until told to end", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return nil
		},
	}
}

const (
	// logsEvery is how often a log is looked at: one that grows fast is bounded by its
	// size to within what is written in this time.
	logsEvery = time.Minute
	// logsKept is how many rotated files stay, as users of Rook know it; rbd-mirror
	// writes little and often, and keeps more.
	logsKept, logsKeptMirror = 7, 28
	// reopenTimeout bounds the daemon's answer; it closes and opens one file.
	reopenTimeout = 10 * time.Second
	toolboxEvery  = 5 * time.Second
)

// rotateLogsCmd is the sidecar of a daemon that writes log files.
func rotateLogsCmd() *cobra.Command {
	var file, period string
	var maxSize int64
	cmd := &cobra.Command{
		Use: "rotate-logs TYPE ID", Short: "Rotate the log file of one daemon", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := logFile(args[0], args[1], file, period, maxSize)
			if err != nil {
				return err
			}
			tick := time.NewTicker(logsEvery)
			defer tick.Stop()
			f.Run(cmd.Context(), tick.C, time.Now(), report)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "the log file")
	cmd.Flags().StringVar(&period, "period", "", "hourly, daily, weekly, monthly, 1h, 24h or 1d")
	cmd.Flags().Int64Var(&maxSize, "max-size", 0, "size in bytes at which it is rotated before that; 0 for no bound")
	return cmd
}

func report(err error) { fmt.Fprintln(os.Stderr, "castellan-node:", err) }

// logFile is the file of a daemon, which reopens it when told by its admin socket.
func logFile(daemonType, id, file, period string, maxSize int64) (logs.File, error) {
	if file == "" {
		return logs.File{}, fmt.Errorf("--file: the log file is not given")
	}
	if maxSize < 0 {
		return logs.File{}, fmt.Errorf("--max-size: %d is negative", maxSize)
	}
	p, err := logs.Period(period)
	if err != nil {
		return logs.File{}, fmt.Errorf("--period: %w", err)
	}
	keep := logsKept
	if daemonType == "rbd-mirror" {
		keep = logsKeptMirror
	}
	return logs.File{Path: file, Period: p, MaxSize: maxSize, Keep: keep, Reopen: func(context.Context) error {
		return reopen(asok.Path(daemonType, id))
	}}, nil
}

// reopen has a daemon open its log file anew. The socket answers with nothing, or
// with a line that says ERROR.
func reopen(socket string) error {
	out, err := asok.Ask(socket, "log reopen", reopenTimeout)
	if err != nil {
		return err
	}
	if out = bytes.TrimSpace(out); bytes.HasPrefix(out, []byte("ERROR")) {
		return fmt.Errorf("asking %s for \"log reopen\": %s", socket, out)
	}
	return nil
}

// toolboxCmd keeps the files that the tools of Ceph read, in the pod that users
// run them in.
func toolboxCmd() *cobra.Command {
	t := toolbox.Default()
	return &cobra.Command{
		Use: "toolbox", Short: "Keep /etc/ceph/ceph.conf and /etc/ceph/keyring as the cluster's are", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tick := time.NewTicker(toolboxEvery)
			defer tick.Stop()
			t.Run(cmd.Context(), tick.C, func(line string) { fmt.Fprintln(os.Stderr, "castellan-node:", line) })
			return nil
		},
	}
}
