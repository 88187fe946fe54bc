package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newOperatorCmd() *cobra.Command {
	c := &cobra.Command{Use: "operator", Short: "Kill the operator", Args: cobra.NoArgs}
	name := labName(c)
	c.AddCommand(&cobra.Command{
		Use: "kill", Short: "Kill the operator's processes, without a chance to do anything",
		Long: `Kill the processes of all pods with the label app=rook-ceph-operator, in any
namespace, with SIGKILL. Kubernetes starts them again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, client, err := running(*name)
			if err != nil {
				return err
			}
			pods, err := client.KillOperator(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Printf("killed %s\n", strings.Join(pods, ", "))
			return nil
		},
	})
	return c
}
