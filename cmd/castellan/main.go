// Command castellan is the operator: it runs Ceph clusters, and the CSI drivers
// that use them, on Kubernetes.
//
// This package puts the process together and decides nothing about Ceph: flags,
// logs, the settings that everybody reads, the lease, and the one list of all
// controllers (controllers.go).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/csi/destinationserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// After the first signal the default comes back: a second one ends the process.
	context.AfterFunc(ctx, stop)
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "castellan:", err)
		os.Exit(1)
	}
}

// root is the operator too, so that a container without arguments runs it.
func root() *cobra.Command {
	operator := operatorCmd()
	cmd := &cobra.Command{
		Use: "castellan", Short: "Run Ceph on Kubernetes",
		Args: cobra.NoArgs, RunE: operator.RunE, SilenceUsage: true, SilenceErrors: true,
	}
	cmd.Flags().AddFlagSet(operator.Flags())
	pool := conn.New()
	dial := func(profile string, monitors []string, user string, key ceph.Secret) destinationserver.Cluster {
		return pool.Cluster(profile, conn.Config{MonHost: strings.Join(monitors, ","), User: user, Key: key})
	}
	cmd.AddCommand(operator, versionCmd(), destinationserver.Command(ownVersion(), dial), destinationserver.ExplainCommand(dial))
	return cmd
}

func versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), ownVersion())
			return err
		},
	}
}

// version is the version of a release, set by the linker (-X main.version=v1.2.3).
// The program never writes it.
var version string

// ownVersion is what was set at build time, or what the Go tool has recorded of the
// commit.
func ownVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
