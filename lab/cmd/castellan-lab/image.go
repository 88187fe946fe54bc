package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cache"
	"github.com/castellan-storage/castellan/lab/image"
	"github.com/castellan-storage/castellan/lab/load"
	"github.com/castellan-storage/castellan/lab/progress"
)

func newImageCmd() *cobra.Command {
	c := &cobra.Command{Use: "image", Short: "Put images of your own into the lab", Args: cobra.NoArgs}
	c.AddCommand(newImageLoadCmd(), newImageListCmd(), newImageRemoveCmd())
	return c
}

func newImageLoadCmd() *cobra.Command {
	var (
		base  string
		add   []string
		cfg   image.Config
		noIns bool
	)
	c := &cobra.Command{
		Use:   "load NAME --add SRC:DST...",
		Short: "Make an image from one of the lab's and files of your own",
		Long: `Make the image NAME: one of the lab's images and, on top, one layer with files of
this machine. Nodes that run get it at once, and nodes that are started from now on
have it. The bases are ` + bases() + `.`,
		Example: `  castellan-lab image load localhost/castellan:dev --base ceph \
      --add bin/castellan:/usr/local/bin/castellan --add bin/castellan-node:/usr/local/bin/castellan-node`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var adds []image.Add
			for _, s := range add {
				a, err := image.ParseAdd(s)
				if err != nil {
					return fmt.Errorf("--add: %w", err)
				}
				adds = append(adds, a)
			}
			if len(adds) == 0 {
				return fmt.Errorf("nothing to put on top of %s: name files with --add SRC:DST", base)
			}
			li, nodes, err := load.Image(cmd.Context(), args[0], base, cfg, adds, build.Options{NoInstall: noIns})
			if err != nil {
				return err
			}
			fmt.Printf("%s %s, also on %d nodes that run\n", li.Name, li.Digest, len(nodes))
			return nil
		},
	}
	c.Flags().StringVar(&base, "base", "ceph", "the image below: "+bases())
	c.Flags().StringArrayVar(&add, "add", nil, "a file or directory and where it goes, SRC:DST (several times)")
	c.Flags().StringArrayVar(&cfg.Cmd, "cmd", nil, "the command of the image, one word each time; the base's if not given")
	c.Flags().StringArrayVar(&cfg.Env, "env", nil, "an environment variable of the image, NAME=VALUE (several times)")
	c.Flags().BoolVar(&noIns, "no-install", false, "refuse to install Debian packages; name those that are missing")
	return c
}

func bases() string {
	var out []string
	for b := range build.BaseImages() {
		out = append(out, b)
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func newImageListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the images that were loaded", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := cache.Dir()
			if err != nil {
				return err
			}
			loaded, err := build.Loaded(dir)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "NAME\tDIGEST\tSIZE")
			for _, li := range loaded {
				size, err := cache.DiskUsage(li.Dir)
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", li.Name, li.Digest, progress.Bytes(size))
			}
			return w.Flush()
		},
	}
}

func newImageRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Forget a loaded image; nodes that run keep it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return build.Unload(cmd.Context(), args[0]) },
	}
}
