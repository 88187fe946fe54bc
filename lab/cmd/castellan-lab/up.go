package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
)

func newUpCmd() *cobra.Command {
	var o cluster.Options
	var size, bin, deploy string
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a lab: a Kubernetes cluster with disks",
		Long: `Start a lab: etcd, the Kubernetes control plane, and nodes in namespaces of their
own, each with disks of its own, in a private network that no packet can leave.
It needs root and what castellan-lab build made. Labs of different names run side
by side.

With --deploy the operator is installed while the nodes start, as castellan-lab ceph
up would do afterwards.`,
		Args: cobra.NoArgs,
	}
	name := labName(c)
	c.Flags().IntVar(&o.Nodes, "nodes", 3, "how many nodes")
	c.Flags().IntVar(&o.Disks, "disks", 1, "how many disks each node has")
	c.Flags().StringVar(&size, "disk-size", "10Gi", "how large a disk is; it takes room only as it is written")
	c.Flags().StringVar(&deploy, "deploy", "", "the directory with the operator's manifests, to install it; empty for none")
	c.Flags().StringVar(&bin, "bin", "bin", "the directory with the operator's binaries, for --deploy")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		bytes, err := disk.ParseSize(size)
		if err != nil {
			return fmt.Errorf("--disk-size: %w", err)
		}
		o.Name, o.DiskSize = *name, bytes
		if err := o.Check(); err != nil {
			return err
		}
		begun := time.Now()
		if deploy != "" {
			if err := installWith(cmd.Context(), &o, bin, deploy, begun); err != nil {
				return err
			}
		}
		// After the image: nodes start with it.
		if o.Paths, err = labPaths(); err != nil {
			return err
		}
		l, err := cluster.Up(cmd.Context(), o, func(step string) {
			fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(begun).Seconds(), step)
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%6.1fs  %d nodes Ready\n", time.Since(begun).Seconds(), o.Nodes)
		return printHelp(l)
	}
	return c
}

// installWith lets a lab install the operator as soon as its API server answers.
func installWith(ctx context.Context, o *cluster.Options, bin, deploy string, begun time.Time) error {
	if err := state.CheckRoot(); err != nil {
		return err
	}
	lab := ceph.Lab{Deploy: deploy, Out: os.Stderr, Begun: begun}
	if err := loadOperator(ctx, bin, &lab); err != nil {
		return err
	}
	lab.Load = nil // the nodes start with the image
	o.Serving = func(ctx context.Context, kubeconfig string) error {
		lab.Kubeconfig = kubeconfig
		return lab.Install(ctx)
	}
	return nil
}

// labPaths says where what a lab runs is in the cache.
func labPaths() (cluster.Paths, error) {
	// Root's cache is not this user's: "not built" would mislead.
	if err := state.CheckRoot(); err != nil {
		return cluster.Paths{}, err
	}
	p, err := build.Lookup("bin", "golden", "cni")
	if err != nil {
		return cluster.Paths{}, err
	}
	return cluster.Paths{Bin: p.Bin, CNI: p.CNI, Golden: p.Golden, Pause: build.ImagePause}, nil
}

func printHelp(l state.Lab) error {
	dir, err := l.Dir()
	if err != nil {
		return err
	}
	flag := ""
	if l.Name != defaultName() {
		flag = " --name " + l.Name
	}
	fmt.Printf(`The lab %[1]s is up. Its kubeconfig, good for root on this machine:
  export KUBECONFIG=%[2]s
  castellan-lab kubectl%[3]s get nodes
  castellan-lab exec%[3]s node1 lsblk
  castellan-lab disk list%[3]s
  castellan-lab down%[3]s
`, l.Name, cluster.Kubeconfig(dir), flag)
	return nil
}

// newSuperviseCmd is how a lab starts itself.
func newSuperviseCmd() *cobra.Command {
	return &cobra.Command{
		Use: cluster.SuperviseCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log.SetFlags(log.Ldate | log.Ltime | log.Lmicroseconds)
			return cluster.Supervise(cmd.Context())
		},
	}
}
