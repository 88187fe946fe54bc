// Command csi-standin stands in, in tests only, for the images of a CSI driver: the
// driver itself, the registrar, and the sidecars of the controller. It makes
// Kubernetes see a driver that is registered and answers; it serves no volumes.
//
//	csi-standin plugin     [arguments of cephcsi]                     CSI identity, node and controller
//	csi-standin registrar  [arguments of csi-node-driver-registrar]   registers with the kubelet
//	csi-standin sidecar    [arguments of csi-provisioner and others]  waits for the driver, then runs
//	csi-standin cat FILE                                              what the pod sees of a file
//	csi-standin destination SOCKET HANDLE                             asks for the destination of a volume
//
// It must stay small: what it does not do must be visible as a failure, never as a
// wrong success.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say what to be: plugin, registrar, sidecar, cat or destination")
	}
	role, args := args[0], args[1:]
	switch role {
	case "cat":
		if len(args) != 1 {
			return fmt.Errorf("cat takes one file")
		}
		b, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(b)
		return err
	case "destination":
		if len(args) != 2 {
			return fmt.Errorf("destination takes a socket and a handle")
		}
		return askDestination(ctx, os.Stdout, args[0], args[1])
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	switch role {
	case "plugin":
		return plugin(ctx, o)
	case "registrar":
		return registrar(ctx, o)
	case "sidecar":
		return sidecar(ctx, o)
	}
	return fmt.Errorf("there is no %q: say plugin, registrar, sidecar, cat or destination", role)
}

// options are the arguments of a program, by name.
type options map[string]string

// parse reads --name=value and --name. That is how all these programs are called.
func parse(args []string) (options, error) {
	o := options{}
	for _, a := range args {
		rest, ok := strings.CutPrefix(a, "--")
		if !ok {
			return nil, fmt.Errorf("argument %q does not begin with --", a)
		}
		name, value, found := strings.Cut(rest, "=")
		if !found {
			value = "true"
		}
		o[name] = value
	}
	return o, nil
}

// need gives an argument that must be there.
func (o options) need(name string) (string, error) {
	if o[name] == "" {
		return "", fmt.Errorf("--%s is missing", name)
	}
	return o[name], nil
}
