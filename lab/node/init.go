package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/castellan-storage/castellan/lab/network"
	"github.com/castellan-storage/castellan/lab/node/proc"
	"golang.org/x/sys/unix"
)

// startLimit bounds how long a node's programs may take to start.
const startLimit = 90 * time.Second

// Init is the first process of a node. It returns only with an error; started
// as anything but the first process of a pid namespace it refuses.
//
// It runs twice: a cgroup namespace is entered by a thread, not by a process,
// and only exec makes that thread the whole process. inner says that this has
// been done.
func Init(ctx context.Context, inner bool) error {
	if os.Getpid() != 1 {
		return errors.New("this is how a node of a lab starts itself; use castellan-lab up")
	}
	if !inner {
		return enterCgroups()
	}
	report := json.NewEncoder(os.NewFile(reportFD, "report"))
	in := os.NewFile(specFD, "spec")
	var s Spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("reading the node's spec: %w", err)
	}
	_ = in.Close()
	if err := run(ctx, s, report); err != nil {
		_ = report.Encode(Report{Error: err.Error()})
		return err
	}
	return nil
}

// enterCgroups waits until the supervisor has put this process into the node's
// cgroups, makes them the root of what it sees, and runs the program again.
func enterCgroups() error {
	var b [1]byte
	if n, err := unix.Read(specFD, b[:]); err != nil || n != 1 {
		return fmt.Errorf("the supervisor went away before the node started (%w)", errors.Join(err, io.ErrUnexpectedEOF))
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("entering a cgroup namespace: %w", err)
	}
	err := unix.Exec("/proc/self/exe", []string{"castellan-lab", InitCommand, "--inner"}, env())
	return fmt.Errorf("running the program again: %w", err)
}

func run(ctx context.Context, s Spec, report *json.Encoder) error {
	// The name that ps shows; exec by way of /proc made it "exe".
	if err := os.WriteFile("/proc/self/comm", []byte("castellan-node"), 0o644); err != nil {
		return fmt.Errorf("naming the process: %w", err)
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return fmt.Errorf("naming the node: %w", err)
	}
	if err := makeRoot(s); err != nil {
		return err
	}
	if err := network.SetupNode(s.Addr, s.Routes); err != nil {
		return err
	}
	group, err := proc.NewGroup()
	if err != nil {
		return err
	}
	if err := startPrograms(ctx, s, group, report); err != nil {
		return err
	}
	if err := report.Encode(Report{Started: true}); err != nil {
		return fmt.Errorf("reporting to the supervisor: %w", err)
	}
	log.Printf("%s runs", s.Name)
	<-ctx.Done()
	return nil
}

// startPrograms starts containerd, and the others once containerd answers and
// the API server is ready: a kubelet that meets no server waits for seconds
// before it tries again.
func startPrograms(ctx context.Context, s Spec, group *proc.Group, report *json.Encoder) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for i, args := range programs(s.Name, s.Addr.Addr()) {
		if i == 1 {
			if err := waitContainerd(ctx); err != nil {
				return err
			}
			if err := waitServer(ctx, s); err != nil {
				return err
			}
		}
		child, err := start(group, args)
		if err != nil {
			return err
		}
		go func() {
			<-child.Done()
			log.Print(child.Exit())
			_ = report.Encode(Report{Exited: child.Exit().String()})
		}()
	}
	return nil
}

func start(group *proc.Group, args []string) (*proc.Child, error) {
	name := args[0]
	out, err := os.OpenFile(filepath.Join("/var/log", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	return group.Start(proc.Command{
		Name: name, Path: filepath.Join("/opt/k8s", name), Args: args, Env: env(),
		Files: []*os.File{nil, out, out},
	})
}

func waitContainerd(ctx context.Context) error {
	return poll(ctx, "containerd to answer", func() error {
		c, err := net.Dial("unix", containerdSocket)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func waitServer(ctx context.Context, s Spec) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.CA) {
		return errors.New("the authority's certificate is not PEM")
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
	return poll(ctx, "the API server to be ready", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Server+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz says %s", resp.Status)
		}
		return nil
	})
}

// poll tries every 50 ms until try succeeds or the context ends.
func poll(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
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
