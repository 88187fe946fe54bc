package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/state"
)

func newLogsCmd() *cobra.Command {
	var follow bool
	var tail int
	c := &cobra.Command{
		Use:   "logs [PROGRAM]",
		Short: "Show the log of a program of the lab, or list them",
		Long: `Show the log of a program: etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, supervisor, or of a node: node1/kubelet, node1/containerd,
node1/kube-proxy, node1/init. Without one, list the logs. The logs of a lab that
has crashed can be read until it is taken down. Pods' logs are kubectl's.`,
		Args: cobra.MaximumNArgs(1),
	}
	name := labName(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows")
	c.Flags().IntVar(&tail, "tail", -1, "only the last lines; -1 shows all")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := state.Load(*name)
		if err != nil {
			return err
		}
		dir, err := l.Dir()
		if err != nil {
			return err
		}
		logs, err := cluster.Logs(dir)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			for _, l := range logs {
				fmt.Printf("%-28s %s\n", l.Name, l.Path)
			}
			return nil
		}
		for _, l := range logs {
			if l.Name == args[0] {
				return show(cmd.Context(), l.Path, tail, follow)
			}
		}
		var names []string
		for _, l := range logs {
			names = append(names, l.Name)
		}
		return fmt.Errorf("no log of %s: there are %s", args[0], strings.Join(names, ", "))
	}
	return c
}

// show prints a log from its last lines on.
func show(ctx context.Context, path string, tail int, follow bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if tail >= 0 {
		if err := skipTo(f, tail); err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.Copy(os.Stdout, f); err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// skipTo moves to where the last lines begin.
func skipTo(f io.ReadSeeker, lines int) error {
	starts := []int64{}
	var at int64
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			starts = append(starts, at)
			at += int64(len(line))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	switch {
	case lines >= len(starts):
		at = 0
	case lines > 0:
		at = starts[len(starts)-lines]
	}
	_, err := f.Seek(at, io.SeekStart)
	return err
}
