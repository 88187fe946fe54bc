// Package cluster brings a lab up and takes it down. A lab is one supervisor,
// the first process of a pid, mount and network namespace of its own; the
// control plane and the nodes are its children. When it ends, however it ends,
// the kernel ends everything of the lab: what is left for Down are files and
// cgroups.
//
// It must not know how what it runs was built, only where it is.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/network"
)

// SuperviseCommand is the argument with which this program becomes a lab's
// supervisor.
const SuperviseCommand = "supervise"

// Paths says where what a lab runs is.
type Paths struct {
	Bin    string `json:"bin"`    // hyper, containerd, runc, ...
	CNI    string `json:"cni"`    // CNI plugins
	Golden string `json:"golden"` // a containerd root with all images
	Pause  string `json:"pause"`  // the name of the sandbox image
}

// Options of a new lab.
type Options struct {
	Name     string `json:"name"`
	Nodes    int    `json:"nodes"`
	Disks    int    `json:"disks"`    // per node
	DiskSize int64  `json:"diskSize"` // bytes
	Paths    Paths  `json:"paths"`
	// Serving, which may be nil, is called as soon as the API server answers, with the
	// administrator's kubeconfig: what does not need nodes is done while they start. Up
	// returns after it has, and fails if it does.
	Serving func(ctx context.Context, kubeconfig string) error `json:"-"`
}

// maxDisks is how many disks a node starts with at most.
const maxDisks = 64

// Check says in one line what is wrong with the options.
func (o Options) Check() error {
	if err := state.CheckName(o.Name); err != nil {
		return err
	}
	if o.Nodes < 1 || o.Nodes > network.MaxNodes {
		return fmt.Errorf("%d nodes: a lab has 1 to %d", o.Nodes, network.MaxNodes)
	}
	if o.Disks < 0 || o.Disks > maxDisks {
		return fmt.Errorf("%d disks: a node has 0 to %d", o.Disks, maxDisks)
	}
	if o.Disks > 0 && o.DiskSize < 1<<20 {
		return errors.New("the size of disks must be at least 1Mi")
	}
	return nil
}

// Kubeconfig is the administrator's kubeconfig of the lab in dir.
func Kubeconfig(dir string) string { return filepath.Join(dir, "kubeconfig") }

// logDir holds the logs of the supervisor and of the control plane.
func logDir(dir string) string { return filepath.Join(dir, "log") }

// nodeDir holds what is a node's.
func nodeDir(dir, node string) string { return filepath.Join(dir, "nodes", node) }
