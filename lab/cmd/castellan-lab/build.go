package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cache"
	"github.com/castellan-storage/castellan/lab/progress"
)

func newBuildCmd() *cobra.Command {
	var o build.Options
	c := &cobra.Command{
		Use:   "build",
		Short: "Build Kubernetes, containerd, the Ceph image and the storage guest",
		Long: `Build what a lab is made of into the cache. What is built already is left alone:
a second build takes a moment. The first needs root, a network, about 10 GB of
disk and up to 20 minutes on two cores; it installs the Debian packages that it
needs, and says which.

The parts are ` + strings.Join(build.PartNames(), ", ") + `.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Progress = os.Stdout, progress.Terminal(os.Stdout)
			_, err := build.Build(cmd.Context(), o)
			return err
		},
	}
	c.Flags().StringSliceVar(&o.Only, "only", nil, "build these parts and what they need, not all")
	c.Flags().BoolVar(&o.NoInstall, "no-install", false, "refuse to install Debian packages; name those that are missing")
	return c
}

func newAssetsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print a directory for KUBEBUILDER_ASSETS, building Kubernetes if it must",
		Long: `Print a directory that envtest can use as KUBEBUILDER_ASSETS: it holds etcd,
kube-apiserver and kubectl of the lab's Kubernetes. Progress of a build goes to
the standard error.`,
		Example: `  KUBEBUILDER_ASSETS=$(castellan-lab assets) go test ./...`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := build.Lookup("kubernetes")
			if err != nil {
				p, err = build.Build(cmd.Context(), build.Options{
					Only: []string{"kubernetes"}, Out: os.Stderr, Progress: progress.Terminal(os.Stderr),
				})
			}
			if err != nil {
				return err
			}
			fmt.Println(p.Assets)
			return nil
		},
	}
}

func newCacheCmd() *cobra.Command {
	c := &cobra.Command{Use: "cache", Short: "List or prune what has been built", Args: cobra.NoArgs}
	c.AddCommand(
		&cobra.Command{
			Use: "dir", Short: "Print the directory of the cache", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				d, err := cache.Dir()
				if err == nil {
					fmt.Println(d)
				}
				return err
			},
		},
		&cobra.Command{
			Use: "ls", Short: "List what is in the cache, with sizes", Args: cobra.NoArgs,
			Long: `List what is in the cache. A file that several entries share is counted in each;
the total counts it once.`,
			RunE: func(*cobra.Command, []string) error { return listCache() },
		},
		&cobra.Command{
			Use: "prune", Short: "Remove what this version of the lab does not use", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				removed, kept, err := build.Prune(cmd.Context())
				for _, e := range kept {
					fmt.Printf("kept %s %s: a lab that runs uses it\n", e.Part, e.Key)
				}
				for _, e := range removed {
					fmt.Printf("removed %s %s (%s)\n", e.Part, e.Key, progress.Bytes(e.Bytes))
				}
				if err == nil && len(removed)+len(kept) == 0 {
					fmt.Println("Nothing to remove.")
				}
				return err
			},
		},
	)
	return c
}

func listCache() error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	entries, err := build.Entries()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PART\tKEY\tSIZE\tBUILT\tUSED")
	for _, e := range entries {
		used := "yes"
		if !e.Used {
			used = "no (prune removes it)"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Part, e.Key, progress.Bytes(e.Bytes), e.Built.Format("2006-01-02 15:04"), used)
	}
	total, err := cache.DiskUsage(dir)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "total\t\t%s\n", progress.Bytes(total))
	return w.Flush()
}
