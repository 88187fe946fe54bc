package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/discover"
	"github.com/castellan-storage/castellan/internal/node/statusmap"
)

// discoverCmd keeps the ConfigMap with the node's devices.
func discoverCmd() *cobra.Command {
	var interval time.Duration
	var skip string
	var loop bool
	cmd := &cobra.Command{
		Use: "discover", Short: "Keep the ConfigMap local-device-<node> as this node's block devices are", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, node := os.Getenv("POD_NAMESPACE"), os.Getenv("NODE_NAME")
			if namespace == "" || node == "" {
				return fmt.Errorf("the node is not known: POD_NAMESPACE and NODE_NAME are not set")
			}
			if interval < time.Second {
				return fmt.Errorf("--interval: %v is less than a second", interval)
			}
			filter, err := discover.NewFilter(skip, loop)
			if err != nil {
				return fmt.Errorf("--skip: %w", err)
			}
			client, err := statusmap.InCluster()
			if err != nil {
				return err
			}
			say := func(line string) { fmt.Fprintln(os.Stderr, "castellan-node:", line) }
			events, err := discover.Listen(cmd.Context(), filter)
			if err != nil {
				say(err.Error()) // the interval remains
			}
			discover.Daemon{
				List:     func() ([]discover.Disk, error) { return discover.List("/", filter) },
				Store:    discover.Storer{Client: client, Namespace: namespace, Node: node}.Store,
				Interval: interval, Say: say,
			}.Run(cmd.Context(), events)
			return nil
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Hour, "time after which the devices are read without an event")
	cmd.Flags().StringVar(&skip, "skip", "", "patterns, separated by commas, of devices that do not count")
	cmd.Flags().BoolVar(&loop, "loop", false, "let loop devices count")
	return cmd
}
