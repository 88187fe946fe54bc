// Package control is how a lab that runs is asked and told: HTTP over a socket
// in the lab's directory, between the supervisor and the command line or a
// test.
//
// It must not change anything itself; the supervisor does.
package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/castellan-storage/castellan/lab/disk"
)

// Socket is the path of a lab's socket.
func Socket(dir string) string { return filepath.Join(dir, "control.sock") }

// Node states.
const (
	Running     = "running"
	Stopped     = "stopped"
	Partitioned = "partitioned" // runs, and is cut off
)

// Status is what a supervisor says about its lab.
type Status struct {
	Name       string      `json:"name"`
	Server     string      `json:"server"` // URL of the API server, on the machine and in the lab
	Kubeconfig string      `json:"kubeconfig"`
	Started    time.Time   `json:"started"`
	Components []Component `json:"components"`
	Nodes      []Node      `json:"nodes"`
}

// Component is a program of the control plane.
type Component struct {
	Name   string `json:"name"`
	Pid    int    `json:"pid"` // as the machine sees it
	Exited string `json:"exited,omitempty"`
}

// Node is a node.
type Node struct {
	Name   string   `json:"name"`
	State  string   `json:"state"`
	Pid    int      `json:"pid,omitempty"` // of its init, as the machine sees it
	Addr   string   `json:"addr"`
	Disks  []Disk   `json:"disks"`
	Exited []string `json:"exited,omitempty"` // programs of it that ended by themselves
}

// Disk is a disk with what is on it.
type Disk struct {
	disk.Disk
	Content disk.Content `json:"content"`
}

// NewDisk asks for a disk. Slot 0 leaves the choice to the lab.
type NewDisk struct {
	Size int64 `json:"size"`
	Slot int   `json:"slot"`
}

// Swap asks for a blank disk in place of another. OtherSlot plugs it elsewhere;
// otherwise Slot, or 0 for the same. Size 0 is the old one's.
type Swap struct {
	Size      int64 `json:"size"`
	Slot      int   `json:"slot"`
	OtherSlot bool  `json:"otherSlot"`
}

// Message is what a supervisor tells the command that started it, a JSON object
// a line, until the lab is ready or has failed.
type Message struct {
	Step  string `json:"step,omitempty"`
	Error string `json:"error,omitempty"`
	// Serving: the API server answers. Nodes may still be on their way.
	Serving bool `json:"serving,omitempty"`
	Ready   bool `json:"ready,omitempty"`
}

// Failure is the body of an answer that is no success.
type Failure struct {
	Error string `json:"error"`
}

// Client asks one supervisor.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the lab in dir.
func NewClient(dir string) *Client {
	socket := Socket(dir)
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking the lab: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("asking the lab: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var f Failure
		if json.Unmarshal(body, &f) != nil || f.Error == "" {
			f.Error = resp.Status
		}
		return errors.New(f.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("reading the lab's answer: %w", err)
	}
	return nil
}

// Status returns how the lab is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "/status", nil, &s)
}

// Verbs of Node.
const (
	Stop      = "stop"      // cut its power
	Start     = "start"     // boot it
	Partition = "partition" // cut its network
	Heal      = "heal"      // undo Partition
)

// Node does verb to a node.
func (c *Client) Node(ctx context.Context, node, verb string) error {
	return c.call(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/"+verb, nil, nil)
}

// AddDisk plugs in a blank disk.
func (c *Client) AddDisk(ctx context.Context, node string, d NewDisk) (disk.Disk, error) {
	var out disk.Disk
	return out, c.call(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/disks", d, &out)
}

// PullDisk pulls a disk out for good; what names it is as for disk.Find.
func (c *Client) PullDisk(ctx context.Context, node, what string) (disk.Disk, error) {
	var out disk.Disk
	return out, c.call(ctx, http.MethodDelete, "/nodes/"+url.PathEscape(node)+"/disks/"+url.PathEscape(what), nil, &out)
}

// SwapDisk pulls a disk and plugs in a blank one.
func (c *Client) SwapDisk(ctx context.Context, node, what string, s Swap) (disk.Disk, error) {
	var out disk.Disk
	return out, c.call(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/disks/"+url.PathEscape(what)+"/swap", s, &out)
}

// KillOperator kills the operator's processes and returns how many pods had
// any.
func (c *Client) KillOperator(ctx context.Context) ([]string, error) {
	var out []string
	return out, c.call(ctx, http.MethodPost, "/operator/kill", nil, &out)
}

// Dial connects to an address as the lab's network namespace sees it: nodes,
// pods, and Services by cluster IP. Only "tcp" is known.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" && network != "tcp4" {
		return nil, fmt.Errorf("connecting to %s in the lab: no %s there, only tcp", address, network)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, fmt.Errorf("asking the lab: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := fmt.Fprintf(conn, "CONNECT /dial?address=%s HTTP/1.1\r\nHost: lab\r\n\r\n", url.QueryEscape(address)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to %s in the lab: %w", address, err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to %s in the lab: %w", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		var f Failure
		_ = json.NewDecoder(resp.Body).Decode(&f)
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to %s in the lab: %s", address, f.Error)
	}
	return &bufferedConn{Conn: conn, r: r}, nil
}

// bufferedConn gives back what was read beyond the answer to Dial.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite tells the other side that nothing more comes.
func (c *bufferedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}
