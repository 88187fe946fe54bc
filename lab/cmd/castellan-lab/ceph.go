package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/image"
	"github.com/castellan-storage/castellan/lab/load"
)

func newCephCmd() *cobra.Command {
	c := &cobra.Command{Use: "ceph", Short: "Run Ceph in a lab, by this repository's operator", Args: cobra.NoArgs}
	c.AddCommand(newCephUpCmd())
	return c
}

func newCephUpCmd() *cobra.Command {
	var (
		bin, deploy string
		limit       time.Duration
	)
	c := &cobra.Command{
		Use:   "up",
		Short: "Install the operator in a lab that runs, and a Ceph cluster on all its disks",
		Args:  cobra.NoArgs,
	}
	name := labName(c)
	c.Flags().StringVar(&bin, "bin", "bin", "the directory with the binaries castellan and castellan-node")
	c.Flags().StringVar(&deploy, "deploy", "deploy", "the directory with the operator's manifests")
	c.Flags().DurationVar(&limit, "timeout", 10*time.Minute, "how long to wait for a healthy cluster")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(cmd.Context(), limit)
		defer cancel()
		l, dir, control, err := running(*name)
		if err != nil {
			return err
		}
		st, err := control.Status(ctx)
		if err != nil {
			return err
		}
		disks := 0
		for _, n := range st.Nodes {
			disks += len(n.Disks)
		}
		lab := ceph.Lab{
			Kubeconfig: cluster.Kubeconfig(dir), Deploy: deploy,
			OSDs: disks, Out: os.Stderr, Begun: begun,
		}
		if err := loadOperator(ctx, bin, &lab); err != nil {
			return err
		}
		stages, err := lab.Up(ctx)
		if err != nil {
			return err
		}
		printCeph(lab.Said, l.Name, stages)
		return nil
	}
	return c
}

// loadOperator puts the operator's binaries on top of the Ceph image, for nodes that are
// started from now on, and lets lab load it into those that run.
func loadOperator(ctx context.Context, bin string, lab *ceph.Lab) error {
	var adds []image.Add
	for _, b := range []string{"castellan", "castellan-node"} {
		a, err := image.ParseAdd(filepath.Join(bin, b) + ":/usr/local/bin/" + b)
		if err != nil {
			return fmt.Errorf("%w (make image builds them)", err)
		}
		adds = append(adds, a)
	}
	layout, loaded, err := build.Load(ctx, ceph.OperatorImage, "ceph", image.Config{Cmd: []string{"castellan", "operator"}}, adds, build.Options{})
	if err != nil {
		return err
	}
	lab.Image = loaded.Digest
	lab.Load = func(ctx context.Context) error {
		nodes, err := load.RunningNodes(ctx)
		if err != nil {
			return err
		}
		p, err := build.Lookup("containerd")
		if err != nil {
			return err
		}
		return load.Into(ctx, p.Containerd, layout, nodes)
	}
	return nil
}

func printCeph(said, name string, stages []ceph.Stage) {
	fmt.Printf("\n%s\n", said)
	fmt.Println("Time from the CephCluster being applied (+ is the time since the line above):")
	before := time.Duration(0)
	for _, s := range stages {
		gap, mark := "", " "
		if d := s.At - before; d >= time.Second {
			gap = fmt.Sprintf("+%.1f", d.Seconds())
		}
		if s.Milestone {
			mark = "*"
		}
		fmt.Printf("  %6.1f s %7s  %s %s\n", s.At.Seconds(), gap, mark, s.Name)
		before = s.At
	}
	flag := ""
	if name != defaultName() {
		flag = " --name " + name
	}
	fmt.Printf(`
What to try next:
  castellan-lab kubectl%[1]s -n rook-ceph get cephcluster
  castellan-lab kubectl%[1]s -n rook-ceph exec deploy/rook-ceph-tools -- ceph status
  castellan-lab kubectl%[1]s -n rook-ceph get configmap rook-ceph-osd-node1-status -o yaml   # why each disk is used or not
  castellan-lab disk add%[1]s node1 --size 10Gi                                    # a new disk becomes an OSD after:
  castellan-lab kubectl%[1]s -n rook-ceph annotate cephcluster rook-ceph castellan.ceph.io/rescan=1 --overwrite
  castellan-lab down%[1]s
`, flag)
}
