// Package rotate runs logrotate every now and then in the pods of a CSI driver,
// so that no shell loop is needed for it. The driver's image has logrotate; this
// code comes into the pod with castellan-node.
//
// It must not rotate anything itself: what is rotated, and when, stands in
// logrotate's configuration.
package rotate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Options say what runs, and how often.
type Options struct {
	// Program is logrotate.
	Program string
	// State is the file in which logrotate remembers when it has rotated what.
	// Empty: its own default.
	State string
	// Every is the time between two runs.
	Every time.Duration
	// Out gets what the program prints.
	Out io.Writer
}

// Command is "rotate-csi-logs FILE".
func Command() *cobra.Command {
	o := Options{Program: "logrotate"}
	cmd := &cobra.Command{
		Use: "rotate-csi-logs FILE", Short: "Run logrotate with a configuration file, again and again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			o.Out = cmd.OutOrStdout()
			return o.Run(ctx, args[0])
		},
	}
	cmd.Flags().DurationVar(&o.Every, "every", 15*time.Minute, "time between two runs")
	cmd.Flags().StringVar(&o.State, "state", "", "logrotate's state file (its own default if empty)")
	return cmd
}

// Run runs the program at once and then every o.Every, until ctx ends. A run that
// fails is told and tried again at the next time: a full disk, say, must not
// end the rotation that could free it. Only a program that cannot be started at
// all is an error.
func (o Options) Run(ctx context.Context, config string) error {
	if o.Every <= 0 {
		return fmt.Errorf("rotating logs every %s: the time must be more than 0", o.Every)
	}
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for {
		if err := o.once(ctx, config); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (o Options) once(ctx context.Context, config string) error {
	args := []string{"--verbose"}
	if o.State != "" {
		args = append(args, "--state", o.State)
	}
	cmd := exec.CommandContext(ctx, o.Program, append(args, config)...) //nolint:gosec // fixed by the pod's spec, no shell
	cmd.Stdout, cmd.Stderr = o.Out, o.Out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		_, err = fmt.Fprintf(o.Out, "rotating logs by %s: %v\n", config, exit)
		return err
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("starting %s: %w", o.Program, err)
	}
	return nil
}
