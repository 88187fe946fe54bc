package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
	"golang.org/x/sys/unix"
)

// serve answers on the lab's socket until stop is called.
func (s *supervisor) serve() (stop func(), err error) {
	path := control.Socket(s.dir)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("the control socket closed: %v", err)
		}
	}()
	return func() { _ = server.Close() }, nil
}

func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r)
			w.Header().Set("Content-Type", "application/json")
			if err != nil {
				log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
				w.WriteHeader(http.StatusConflict)
				out = control.Failure{Error: err.Error()}
			}
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	answer("GET /status", func(*http.Request) (any, error) { return s.status(), nil })
	answer("POST /nodes/{node}/{verb}", func(r *http.Request) (any, error) {
		return struct{}{}, s.nodeVerb(r.Context(), r.PathValue("node"), r.PathValue("verb"))
	})
	answer("POST /nodes/{node}/disks", func(r *http.Request) (any, error) {
		var in control.NewDisk
		return s.withNode(r, &in, func(n *labNode) (any, error) { return s.plugIn(n, in.Size, in.Slot) })
	})
	answer("DELETE /nodes/{node}/disks/{disk}", func(r *http.Request) (any, error) {
		return s.withNode(r, nil, func(n *labNode) (any, error) { return s.pullOut(n, r.PathValue("disk")) })
	})
	answer("POST /nodes/{node}/disks/{disk}/swap", func(r *http.Request) (any, error) {
		var in control.Swap
		return s.withNode(r, &in, func(n *labNode) (any, error) { return s.swap(n, r.PathValue("disk"), in) })
	})
	answer("POST /operator/kill", func(r *http.Request) (any, error) { return s.killOperator(r.Context()) })
	mux.HandleFunc("CONNECT /dial", s.dial)
	return mux
}

// withNode reads the request's body into in and runs f while nothing else
// changes the node.
func (s *supervisor) withNode(r *http.Request, in any, f func(*labNode) (any, error)) (any, error) {
	if in != nil {
		if err := json.NewDecoder(r.Body).Decode(in); err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
	}
	n, err := s.find(r.PathValue("node"))
	if err != nil {
		return nil, err
	}
	n.op.Lock()
	defer n.op.Unlock()
	return f(n)
}

func (s *supervisor) status() control.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := control.Status{
		Name: s.Lab.Name, Server: serverURL(s.Port), Kubeconfig: Kubeconfig(s.dir), Started: s.Lab.Created,
		Nodes: []control.Node{}, Components: []control.Component{},
	}
	for _, c := range s.components {
		comp := control.Component{Name: c.child.Name, Pid: c.hostPid}
		if !c.child.Alive() {
			comp.Exited = c.child.Exit().String()
		}
		out.Components = append(out.Components, comp)
	}
	for _, n := range s.nodes {
		cn := control.Node{Name: n.plan.Name, State: n.state(), Addr: n.plan.Addr.Addr().String(), Exited: n.exited, Disks: []control.Disk{}}
		if n.runs() {
			cn.Pid = n.hostPid
		}
		for _, d := range n.disks {
			cd := control.Disk{Disk: d.Disk}
			content, err := disk.Identify(d.loop)
			if err != nil {
				log.Printf("%s of %s: %v", d.Name(), n.plan.Name, err)
			}
			cd.Content = content
			cn.Disks = append(cn.Disks, cd)
		}
		out.Nodes = append(out.Nodes, cn)
	}
	return out
}

// operatorSelector finds the pods of the operator, Castellan's or Rook's: both
// wear this label.
const operatorSelector = "app=rook-ceph-operator"

// killOperator kills the operator's processes the hard way and names the pods
// that had any.
func (s *supervisor) killOperator(ctx context.Context) ([]string, error) {
	pods, err := s.api.Pods(ctx, operatorSelector)
	if err != nil {
		return nil, err
	}
	procs, err := state.Processes()
	if err != nil {
		return nil, err
	}
	var killed []string
	for _, p := range pods {
		hit := false
		for _, id := range p.Containers {
			for _, proc := range procs {
				if !inContainer(proc.Pid, id) {
					continue
				}
				if err := killHost(proc); err != nil {
					return killed, fmt.Errorf("killing %s/%s: %w", p.Namespace, p.Name, err)
				}
				hit = true
			}
		}
		if hit {
			killed = append(killed, p.Namespace+"/"+p.Name)
		}
	}
	if len(killed) == 0 {
		return nil, fmt.Errorf("no operator runs in the lab: no running container in a pod with the label %s", operatorSelector)
	}
	return killed, nil
}

// inContainer reports whether a process is in a container's cgroups.
func inContainer(pid int, id string) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return err == nil && bytes.Contains(b, []byte("/"+id))
}

// killHost kills a process that is known by the machine's pid. The supervisor
// cannot name it so: it goes by the process's directory in /proc.
func killHost(p state.Process) error {
	dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(p.Pid)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if !p.Alive() {
		return nil
	}
	// A directory of /proc serves as a pidfd.
	if err := unix.PidfdSendSignal(int(dir.Fd()), syscall.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// dial joins the caller to an address of the lab's network.
func (s *supervisor) dial(w http.ResponseWriter, r *http.Request) {
	address := r.URL.Query().Get("address")
	var d net.Dialer
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	server, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		_ = json.NewEncoder(w).Encode(control.Failure{Error: strings.TrimPrefix(err.Error(), "dial ")})
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		_ = server.Close()
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	conn, buf, err := hijacker.Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		_, _ = conn.Close(), server.Close()
		return
	}
	join(conn, buf.Reader, server)
}
