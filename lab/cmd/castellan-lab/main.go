// Command castellan-lab runs a real Kubernetes and a real Ceph on one machine,
// without a registry: it builds what they are made of, starts and stops labs,
// and handles their nodes and disks as a person would.
//
// This package only reads flags and prints; what the commands do lives in the
// packages of the lab module.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// exitCoder is an error that asks for an exit code of its own, for commands
// that hand on the code of what they ran (kubectl, exec).
type exitCoder interface {
	error
	ExitCode() int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var coded exitCoder
	// A program that this one ran on the way has a code too, which says nothing
	// to who did not ask for that program.
	if errors.As(err, &coded) && !isProgram(coded) {
		if msg := coded.Error(); msg != "" {
			fmt.Fprintln(os.Stderr, oneLine(msg))
		}
		return coded.ExitCode()
	}
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "castellan-lab: interrupted: "+oneLine(err.Error()))
		return 130
	}
	fmt.Fprintln(os.Stderr, "castellan-lab: "+oneLine(err.Error()))
	return 1
}

func isProgram(e exitCoder) bool {
	_, ok := e.(*exec.ExitError) // the outermost error with a code is what counts
	return ok
}

// oneLine keeps an error on the one line that a person reads.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "castellan-lab",
		Short: "A real Kubernetes and a real Ceph on one machine",
		Long: `castellan-lab runs a real Kubernetes and a real Ceph on one machine, without a registry.

  castellan-lab build    build Kubernetes, containerd and the Ceph image, once
  castellan-lab up       start a cluster from them`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	return root
}
