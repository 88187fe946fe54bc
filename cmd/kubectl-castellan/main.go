// Command kubectl-castellan is the kubectl plugin of Castellan: kubectl castellan.
//
// It takes the connection flags of kubectl. What it does is in internal/plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/plugin"
)

// version is set when the program is linked.
var version = "unknown" //nolint:gochecknoglobals // the linker can set nothing else

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// connection is how the cluster is reached, and what is meant in it.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	cluster   string
}

func root() *cobra.Command {
	c := &connection{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	cmd := &cobra.Command{
		Use: "kubectl-castellan", Short: "Look after Ceph clusters that Castellan runs",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl castellan"},
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "file to reach Kubernetes by")
	clientcmd.BindOverrideFlags(&c.overrides, f, clientcmd.RecommendedConfigOverrideFlags(""))
	f.StringVar(&c.cluster, "ceph-cluster", "", "name of the CephCluster, where a namespace has several")
	cmd.AddCommand(statusCmd(c), osdCmd(c), csiCmd(c))
	return cmd
}

// open connects. Nothing is asked of the API server yet.
func (c *connection) open(cmd *cobra.Command) (*plugin.Plugin, plugin.Where, error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
	cfg, err := config.ClientConfig()
	if err != nil {
		return nil, plugin.Where{}, fmt.Errorf("finding how to reach Kubernetes: %w", err)
	}
	cfg.UserAgent = "kubectl-castellan/" + version
	namespace, explicit, err := config.Namespace()
	if err != nil {
		return nil, plugin.Where{}, fmt.Errorf("finding the namespace: %w", err)
	}
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme, csiv1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, plugin.Where{}, fmt.Errorf("registering kinds: %w", err)
		}
	}
	cl, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		return nil, plugin.Where{}, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	p := &plugin.Plugin{Client: cl, In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Now: time.Now}
	p.Interactive = isTerminal(p.In)
	if f, ok := p.Out.(*os.File); ok && isTerminal(f) {
		p.Terminal = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			p.Width = w
		}
	}
	return p, plugin.Where{Namespace: namespace, Explicit: explicit, Name: c.cluster}, nil
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run is a command's work, connected.
type run func(ctx context.Context, p *plugin.Plugin, w plugin.Where, args []string) error

func (c *connection) runE(do run) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p, w, err := c.open(cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), p, w, args)
	}
}

func statusCmd(c *connection) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show a cluster: its health, what it waits for, replacements, and why disks are not used", Args: cobra.NoArgs,
		RunE: c.runE(func(ctx context.Context, p *plugin.Plugin, w plugin.Where, _ []string) error { return p.Status(ctx, w) }),
	}
}

func csiCmd(c *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "csi", Short: "CSI volumes"}
	var pools []string
	d := &cobra.Command{
		Use: "destination HANDLE", Short: "Show where a replicated volume is found in the other cluster, and why", Args: cobra.ExactArgs(1),
		Example: "  kubectl castellan csi destination $(kubectl get pv NAME -o jsonpath='{.spec.csi.volumeHandle}')",
		RunE: c.runE(func(ctx context.Context, p *plugin.Plugin, w plugin.Where, args []string) error {
			return p.Destination(ctx, w, args[0], pools)
		}),
	}
	d.Flags().StringArrayVar(&pools, "pool", nil, "name of a pool that no CephBlockPool tells, as PROFILE:ID=NAME; may be repeated")
	cmd.AddCommand(d)
	return cmd
}

func osdCmd(c *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "osd", Short: "OSDs"}
	cmd.AddCommand(replaceCmd(c))
	return cmd
}

func replaceCmd(c *connection) *cobra.Command {
	var with, confirm string
	var watch, metadata, loss bool
	cmd := &cobra.Command{
		Use: "replace ID...", Short: "Replace the disk of an OSD, or its metadata device; OSDs keep their ids",
		Long: `Replace the disk of an OSD, which keeps its id: its data is moved to other OSDs, it is
destroyed, and you are told when the disk may be pulled. The new disk is found when it
is plugged in, or named by --with. OSDs that share a disk are named together.

With --metadata the device that holds the OSD's database is replaced, and all OSDs that
have their database on it are rebuilt, with their ids, on the disks that they are on.`,
		Example: `  kubectl castellan osd replace 5 --watch
  kubectl castellan osd replace 3 4
  kubectl castellan osd replace 5 --metadata
  kubectl castellan osd replace status`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.runE(func(ctx context.Context, p *plugin.Plugin, w plugin.Where, args []string) error {
			switch {
			case loss && !metadata:
				return errors.New("--accept-loss goes with --metadata only")
			case metadata && len(args) > 1:
				return errors.New("--metadata takes one OSD: the others on its metadata device are found")
			}
			for i, arg := range args {
				last := i == len(args)-1
				if err := ask(ctx, p, w, arg, watch && last, func(o plugin.OSD) (plugin.Request, error) {
					if !metadata {
						return plugin.AskReplace(o, with)
					}
					r, err := plugin.AskMetadata(o, with, loss)
					if err != nil || !loss || r.Empty() {
						return r, err
					}
					return r, p.Confirm(fmt.Sprintf("If the metadata device of osd.%d is dead, all OSDs on it are destroyed, and what is on no other OSD is lost.", o.ID), spec.LossConfirmation(o.ID), confirm)
				}); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&with, "with", "", "the new disk, as /dev/disk/by-id/...; else it is found")
	cmd.Flags().BoolVar(&metadata, "metadata", false, "replace the device that holds the OSD's database, with all OSDs on it")
	cmd.Flags().BoolVar(&loss, "accept-loss", false, "with --metadata: if the device is dead, what is only on it may be lost")
	cmd.Flags().StringVar(&confirm, "confirm", "", "the confirmation of --accept-loss, yes-really-replace-metadata-of-osd-ID-accept-data-on-it-is-lost, where nobody can be asked")
	watched(cmd, &watch)
	cmd.AddCommand(replaceStatusCmd(c), cancelCmd(c), abandonCmd(c))
	return cmd
}

func watched(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show where it is until it ends")
}

func replaceStatusCmd(c *connection) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "status", Short: "Show all replacements", Args: cobra.NoArgs,
		RunE: c.runE(func(ctx context.Context, p *plugin.Plugin, w plugin.Where, _ []string) error {
			return p.Replacements(ctx, w, format)
		}),
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json, or a table without it")
	return cmd
}

func cancelCmd(c *connection) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Take a replacement back, as long as the OSD is not destroyed", Args: cobra.ExactArgs(1),
		RunE: c.runE(func(ctx context.Context, p *plugin.Plugin, w plugin.Where, args []string) error {
			return ask(ctx, p, w, args[0], watch, plugin.AskCancel)
		}),
	}
	watched(cmd, &watch)
	return cmd
}

func abandonCmd(c *connection) *cobra.Command {
	var watch bool
	var confirm string
	cmd := &cobra.Command{
		Use: "abandon ID", Short: "Give up the slot of a destroyed OSD for which there is no new disk", Args: cobra.ExactArgs(1),
		Long: `Give up the slot of an OSD that a replacement has destroyed, where no new disk is to
come: the id goes, and its volumes on a shared metadata device are wiped. It cannot be
undone, so it has to be confirmed.`,
		RunE: c.runE(func(ctx context.Context, p *plugin.Plugin, w plugin.Where, args []string) error {
			id, err := osdID(args[0])
			if err != nil {
				return err
			}
			return ask(ctx, p, w, args[0], watch, func(o plugin.OSD) (plugin.Request, error) {
				r, err := plugin.AskAbandon(o)
				if err != nil || r.Empty() {
					return r, err
				}
				return r, p.Confirm(fmt.Sprintf("The slot of osd.%d is purged from Ceph for good; no disk can be put in for it afterwards.", id), spec.AbandonConfirmation(id), confirm)
			})
		}),
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "the confirmation, yes-really-purge-osd-ID, where nobody can be asked")
	watched(cmd, &watch)
	return cmd
}

func osdID(text string) (int, error) {
	id, err := strconv.Atoi(text)
	if err != nil || id < 0 {
		return 0, errors.New("the OSD is named by its number, for instance 5: " + strconv.Quote(text) + " is none")
	}
	return id, nil
}

// ask makes a request and follows what comes of it.
func ask(ctx context.Context, p *plugin.Plugin, w plugin.Where, text string, watch bool, request func(plugin.OSD) (plugin.Request, error)) error {
	id, err := osdID(text)
	if err != nil {
		return err
	}
	c, err := p.Ask(ctx, w, id, request)
	if err != nil {
		return err
	}
	if watch {
		return p.Follow(ctx, c, id)
	}
	_, err = fmt.Fprintf(p.Out, "Follow it with kubectl castellan -n %s osd replace status\n", c.Namespace)
	return err
}
