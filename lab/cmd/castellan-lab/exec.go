package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/node"
)

// controlPlace is the name by which exec knows the network of the control
// plane.
const controlPlace = "control"

func newExecCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NODE COMMAND...",
		Short: "Run a command on a node",
		Long: `Run a command on a node, in all its namespaces, and exit with its code.

With "control" for NODE the command runs on the machine, but in the network of
the lab's control plane, with KUBECONFIG set: the way to run a program there that
must reach pods and Services.`,
		Example: `  castellan-lab exec node1 lsblk
  castellan-lab exec node2 sh -c 'echo hello > /var/lib/rook/x'
  castellan-lab exec control bin/castellan`,
		Args: cobra.MinimumNArgs(2),
	}
	name := labName(c)
	c.Flags().SetInterspersed(false)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		l, dir, client, err := running(*name)
		if err != nil {
			return err
		}
		if args[0] == controlPlace {
			return execControl(l, dir, args[1:])
		}
		pid, err := nodePid(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		code, err := node.Run(pid, args[1:])
		if err == nil && code != 0 {
			err = codeError(code)
		}
		return err
	}
	return c
}

// nodePid is the init process of a node that must run.
func nodePid(ctx context.Context, client *control.Client, name string) (int, error) {
	s, err := client.Status(ctx)
	if err != nil {
		return 0, err
	}
	var names []string
	for _, n := range s.Nodes {
		if n.Name == name && n.Pid == 0 {
			return 0, fmt.Errorf("%s is stopped: start it with castellan-lab node start %[1]s", name)
		}
		if n.Name == name {
			return n.Pid, nil
		}
		names = append(names, n.Name)
	}
	return 0, fmt.Errorf("no node %s: there are %s", name, strings.Join(names, ", "))
}

func execControl(l state.Lab, dir string, args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	// Only this thread moves, and exec makes it the process.
	runtime.LockOSThread()
	if err := node.EnterNetwork(l.Pid); err != nil {
		return err
	}
	env := append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(dir), state.EnvID+"="+l.ID)
	return fmt.Errorf("running %s: %w", args[0], unix.Exec(path, args, env))
}

// init makes the program a node's losetup where it is called so, before its
// arguments are taken for its own.
func init() {
	if filepath.Base(os.Args[0]) != node.LosetupName {
		return
	}
	if err := node.Losetup(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "losetup: "+err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// newNodeInitCmd is how a node starts itself.
func newNodeInitCmd() *cobra.Command {
	var inner bool
	c := &cobra.Command{
		Use: node.InitCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log.SetFlags(log.Ldate | log.Ltime | log.Lmicroseconds)
			return node.Init(cmd.Context(), inner)
		},
	}
	c.Flags().BoolVar(&inner, "inner", false, "the cgroup namespace has been entered")
	return c
}
