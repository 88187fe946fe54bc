package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/state"
)

func newDownCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Take a lab down with everything in it",
		Long: `Take a lab down: its processes, namespaces, loop devices, cgroups and files, with
the data on its disks. It works on a lab that has crashed or was left half made,
and does nothing where there is none.`,
		Args: cobra.NoArgs,
	}
	name := labName(c)
	c.Flags().BoolVar(&all, "all", false, "take all labs down")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		names := []string{*name}
		if all {
			var err error
			if names, err = state.List(); err != nil {
				return err
			}
		}
		var errs []error
		for _, n := range names {
			err := cluster.Down(cmd.Context(), n)
			switch {
			case errors.Is(err, state.ErrNotUp):
				fmt.Printf("The lab %s is not up.\n", n)
			case err != nil:
				errs = append(errs, err)
			default:
				fmt.Printf("The lab %s is down.\n", n)
			}
		}
		return errors.Join(errs...)
	}
	return c
}
