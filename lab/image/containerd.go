package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/command"
)

// Namespace is where Kubernetes looks for images in containerd.
const Namespace = "k8s.io"

// Containerd is a set of binaries: containerd and ctr.
type Containerd struct {
	Bin string    // the directory that holds them
	Log io.Writer // what they write
}

// startTimeout is how long containerd may take to listen: it starts in a tenth
// of a second on an idle machine.
const startTimeout = 60 * time.Second

// ImportInto imports layouts, in order, into the containerd root directory root,
// which no other containerd may be using, and unpacks their images.
func (c Containerd) ImportInto(ctx context.Context, root string, layouts ...*Layout) (err error) {
	tmp, err := os.MkdirTemp("", "castellan-ctr-") // short: a socket's path has 107 bytes
	if err != nil {
		return fmt.Errorf("importing images: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	sock := filepath.Join(tmp, "s")
	cfg := filepath.Join(tmp, "config.toml")
	if err := os.WriteFile(cfg, []byte(containerdConfig(root, tmp, sock)), 0o644); err != nil {
		return fmt.Errorf("importing images: %w", err)
	}
	run, stop := context.WithCancel(ctx)
	d, err := command.Start(run, command.Cmd{
		Args: []string{filepath.Join(c.Bin, "containerd"), "--config", cfg}, Log: c.Log, Contained: true,
	})
	if err != nil {
		stop()
		return fmt.Errorf("starting containerd to import images: %w", err)
	}
	defer func() {
		stop()
		_ = d.Wait() // it was told to end: how it says so does not matter
	}()
	if err := listening(ctx, d, sock); err != nil {
		return err
	}
	for _, l := range layouts {
		if err := c.importStream(ctx, sock, l); err != nil {
			return err
		}
	}
	// Each containerd gives itself an identity: it is not for those that start
	// from this directory.
	if err := os.RemoveAll(filepath.Join(root, "io.containerd.grpc.v1.introspection")); err != nil {
		return fmt.Errorf("importing images: %w", err)
	}
	return nil
}

func containerdConfig(root, tmp, sock string) string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]
[grpc]
  address = %q
`, root, filepath.Join(tmp, "state"), sock)
}

func listening(ctx context.Context, d *command.Process, sock string) error {
	limit, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(limit, "unix", sock)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-d.Done():
			return fmt.Errorf("containerd ended before it listened: %w", d.Wait())
		case <-limit.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("containerd did not listen within %s", startTimeout)
		case <-tick.C:
		}
	}
}

func (c Containerd) importStream(ctx context.Context, sock string, l *Layout) error {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		buf := bufio.NewWriterSize(w, 1<<20)
		err := l.Stream(buf)
		if err == nil {
			err = buf.Flush()
		}
		_ = w.CloseWithError(err)
		wrote <- err
	}()
	err := command.Run(ctx, command.Cmd{Args: c.importArgs(sock), Stdin: r, Log: c.Log})
	_ = r.CloseWithError(errors.New("ctr ended"))
	streamErr := <-wrote
	if err != nil {
		return fmt.Errorf("importing %s: %w", strings.Join(l.Names(), ", "), err)
	}
	if streamErr != nil {
		return fmt.Errorf("importing %s: %w", strings.Join(l.Names(), ", "), streamErr)
	}
	return nil
}

// importArgs imports by the client: the daemon's transfer service wants every
// layer in the archive, the client takes those that containerd has already.
func (c Containerd) importArgs(sock string) []string {
	return []string{filepath.Join(c.Bin, "ctr"), "--address", sock, "--namespace", Namespace,
		"images", "import", "--local", "--snapshotter", "overlayfs", "-"}
}

// ImportRunning imports a layout into the containerd that listens at sock, by
// the names of this machine (a node's socket seen through /proc/PID/root). Base
// layers that the layout lacks must be there.
func (c Containerd) ImportRunning(ctx context.Context, sock string, l *Layout) error {
	return c.importStream(ctx, sock, l)
}
