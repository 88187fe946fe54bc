package cluster

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/manifest"
)

// upLimit bounds a bring-up. On two free cores it takes some ten seconds.
const upLimit = 4 * time.Minute

// bringUp starts everything and returns when all nodes are Ready and the DNS
// server runs.
func (s *supervisor) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	// No node is started after this has returned.
	var starting sync.WaitGroup
	defer starting.Wait()
	defer cancel()
	if err := os.MkdirAll(logDir(s.dir), 0o755); err != nil {
		return fmt.Errorf("making room for logs: %w", err)
	}
	s.step("starting etcd and the API server")
	for _, c := range []component{etcd(s.dir), apiServer(s.dir, s.Port)} {
		if err := s.startComponent(c); err != nil {
			return err
		}
	}
	s.step("starting %d nodes", len(s.nodes))
	nodes := make(chan error, 1)
	starting.Go(func() { nodes <- s.startNodes(ctx) })
	if err := poll(ctx, "the API server", func() error { return s.api.Ready(ctx) }); err != nil {
		return err
	}
	s.step("the API server is ready")
	s.tell(control.Message{Serving: true})
	for _, c := range []component{controllerManager(s.dir), scheduler(s.dir)} {
		if err := s.startComponent(c); err != nil {
			return err
		}
	}
	if err := s.applyObjects(ctx); err != nil {
		return err
	}
	if err := <-nodes; err != nil {
		return err
	}
	s.step("waiting for nodes to be Ready")
	if err := poll(ctx, "nodes to be Ready", func() error { return s.nodesReady(ctx) }); err != nil {
		return err
	}
	// A pod that is made before this account is refused.
	return poll(ctx, "the default service account", func() error {
		ok, err := s.api.Exists(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
		if err == nil && !ok {
			err = errors.New("it is not there yet")
		}
		return err
	})
}

func (s *supervisor) step(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	log.Print(text)
	s.tell(control.Message{Step: text})
}

// startNodes gives every node its disks and images and starts it, one after
// another: the two of them wait for the same disk.
func (s *supervisor) startNodes(ctx context.Context) error {
	for _, n := range s.nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.outfit(n); err != nil {
			return err
		}
		if err := s.startNode(n); err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		if err := n.waitStarted(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) applyObjects(ctx context.Context) error {
	objects, err := manifest.Objects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		// kube-system appears shortly after the API server is ready.
		if err := poll(ctx, "the cluster's DNS", func() error { return s.api.Apply(ctx, o.Path, o.YAML) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) nodesReady(ctx context.Context) error {
	got, err := s.api.Nodes(ctx)
	if err != nil {
		return err
	}
	ready := 0
	why := "not registered"
	for _, n := range got {
		if n.Ready {
			ready++
		} else {
			why = n.Name + ": " + n.Why
		}
	}
	if ready < len(s.nodes) {
		return fmt.Errorf("%d of %d are: %s", ready, len(s.nodes), why)
	}
	return nil
}

// poll tries every 100 ms until try succeeds or the context ends.
func poll(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}
