package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/cluster/control"
)

func newNodeCmd() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Stop, start and cut off nodes", Args: cobra.NoArgs}
	name := labName(c)
	for _, v := range []struct{ verb, short, done string }{
		{control.Stop, "Cut a node's power: all its processes end at once", "is off"},
		{control.Start, "Start a node that was stopped, with its disks and files", "runs"},
		{control.Partition, "Cut a node off from the network; it goes on running", "is cut off"},
		{control.Heal, "Give a node that was cut off its network back", "is back on the network"},
	} {
		c.AddCommand(&cobra.Command{
			Use: v.verb + " NODE", Short: v.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, _, client, err := running(*name)
				if err != nil {
					return err
				}
				if err := client.Node(cmd.Context(), args[0], v.verb); err != nil {
					return err
				}
				fmt.Printf("%s %s\n", args[0], v.done)
				return nil
			},
		})
	}
	return c
}
