package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/state"
)

func newKubectlCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [--name LAB] ARGS...",
		Short: "Run kubectl on the lab",
		Long: `Run the kubectl of the lab's Kubernetes with the lab's kubeconfig. All arguments
are kubectl's, but for a --name that comes first. It runs on the machine, so that
kubectl port-forward opens ports there.`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, args := leadingName(args)
			if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
				return cmd.Help()
			}
			l, dir, _, err := running(name)
			if err != nil {
				return err
			}
			p, err := build.Lookup("kubernetes")
			if err != nil {
				return err
			}
			kubectl := filepath.Join(p.Assets, "kubectl")
			env := append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(dir), state.EnvID+"="+l.ID)
			return fmt.Errorf("running kubectl: %w", unix.Exec(kubectl, append([]string{"kubectl"}, args...), env))
		},
	}
}

// leadingName takes a --name flag off the front of the arguments.
func leadingName(args []string) (string, []string) {
	if len(args) >= 2 && args[0] == "--name" {
		return args[1], args[2:]
	}
	if len(args) >= 1 {
		if n, ok := strings.CutPrefix(args[0], "--name="); ok {
			return n, args[1:]
		}
	}
	return defaultName(), args
}
