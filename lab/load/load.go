// Package load brings an image to labs: build.Load makes it and puts it where
// new nodes start from, this package imports it into the nodes that were started
// before.
//
// It must not know what is in an image.
package load

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/castellan-storage/castellan/lab/build"
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

// Image makes the image name of base, a key of build.BaseImages, and the
// additions, and loads it into every node that runs and, for good, into what
// nodes start from. It returns the nodes. Pods that run keep the image they have.
func Image(ctx context.Context, name, base string, cfg image.Config, adds []image.Add, o build.Options) (build.LoadedImage, []Node, error) {
	l, li, err := build.Load(ctx, name, base, cfg, adds, o)
	if err != nil {
		return li, nil, err
	}
	nodes, err := RunningNodes(ctx)
	if err != nil {
		return li, nil, err
	}
	p, err := build.Lookup("containerd")
	if err != nil {
		return li, nil, err
	}
	return li, nodes, Into(ctx, p.Containerd, l, nodes)
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
