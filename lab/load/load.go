// Package load brings an image to the labs that run: build.Load makes it and
// puts it where new nodes start from, this package imports it into the nodes
// that were started before.
//
// It must not make images.
package load

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/image"
)

// socketOf is where containerd of a node listens, as the machine sees it.
func socketOf(pid int) string {
	return filepath.Join("/proc", strconv.Itoa(pid), "root/run/containerd/containerd.sock")
}

// Node names a node of a lab.
type Node struct {
	Lab, Node string
	pid       int
}

// RunningNodes lists the nodes of all labs that run. Nodes that are stopped are
// not among them: they keep the images that they have.
func RunningNodes(ctx context.Context) ([]Node, error) {
	names, err := state.List()
	if err != nil {
		return nil, fmt.Errorf("listing the labs: %w", err)
	}
	var out []Node
	for _, name := range names {
		nodes, err := nodesOf(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, nodes...)
	}
	return out, nil
}

func nodesOf(ctx context.Context, name string) ([]Node, error) {
	l, err := state.Load(name)
	if errors.Is(err, state.ErrNotUp) {
		return nil, nil // taken down since it was listed
	}
	if err != nil {
		return nil, err
	}
	if !l.Alive() {
		return nil, nil // left behind: "down" is what it waits for
	}
	dir, err := l.Dir()
	if err != nil {
		return nil, err
	}
	s, err := control.NewClient(dir).Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the lab %s for its nodes: %w", name, err)
	}
	var out []Node
	for _, n := range s.Nodes {
		if n.Pid != 0 && n.State != control.Stopped {
			out = append(out, Node{Lab: name, Node: n.Name, pid: n.Pid})
		}
	}
	return out, nil
}

// Into imports the layout into the nodes, two at a time. bin holds ctr. A node
// must have the layers of the image's base, as it has when it was started from
// the same build.
func Into(ctx context.Context, bin string, l *image.Layout, nodes []Node) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			if err := (image.Containerd{Bin: bin}).ImportRunning(ctx, socketOf(n.pid), l); err != nil {
				cancel(fmt.Errorf("loading into %s of the lab %s (was it started before the last castellan-lab build? then take it down and up): %w", n.Node, n.Lab, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
