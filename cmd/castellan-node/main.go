// Command castellan-node is what pods of a Ceph cluster run beside Ceph's own
// binaries: probes, directory ownership, device preparation and activation. It
// is static and is copied into Ceph's image by an init container, so it works
// with any supported image. It replaces every shell script.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"context"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/csi/rotate"
)

func main() {
	asked, err := probe(os.Args[1:])
	if !asked {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		err = root().ExecuteContext(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "castellan-node:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "castellan-node", Short: "What pods of a Ceph cluster run on a node",
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(copyCmd(), versionCmd(), probeCmd(), chownCmd(), provisionCmd(), activateCmd(), cleanupCmd())
	cmd.AddCommand(pauseCmd(), rotateLogsCmd(), toolboxCmd(), rotate.Command())
	cmd.AddCommand(closeCmd(), watchCmd(), replaceCmd(), zapCmd())
	cmd.AddCommand(collectCrashesCmd(), imageFactsCmd(), discoverCmd(), makeMonCmd())
	return cmd
}
