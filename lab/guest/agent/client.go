package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"
)

// DialFunc opens one connection to the agent.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Client asks an agent for things. It keeps no connection between requests,
// so it may be used from several goroutines.
type Client struct {
	dial  DialFunc
	token string
}

// NewClient returns a client that reaches the agent by dial and shows it
// token, the secret that the guest was booted with.
func NewClient(dial DialFunc, token string) *Client {
	return &Client{dial: dial, token: token}
}

// Command is one program to run in the guest.
type Command struct {
	// Argv is the program and its arguments; a program without a slash is
	// looked up in the guest's PATH. No shell is involved.
	Argv []string
	// Env are further KEY=value settings on top of the agent's own.
	Env []string
	// Dir is the working directory, "/" when empty.
	Dir string
	// Stdin feeds the program; nil means an empty input.
	Stdin io.Reader
	// Stdout and Stderr take what the program writes; nil discards it.
	Stdout, Stderr io.Writer
}

// Info describes a running guest.
type Info struct {
	Hostname string `json:"hostname"`
	Kernel   string `json:"kernel"`
	// Uptime is the time since the guest's kernel started.
	Uptime time.Duration `json:"uptime"`
	// BootTime is the uptime at which the agent was ready to serve.
	BootTime time.Duration `json:"bootTime"`
	// MemTotal and MemAvailable are in bytes.
	MemTotal     uint64 `json:"memTotal"`
	MemAvailable uint64 `json:"memAvailable"`
	// MissingModules are modules that were asked for and did not load.
	MissingModules []string `json:"missingModules,omitempty"`
}

// Disk is one whole disk as the guest sees it.
type Disk struct {
	// Name is the kernel's name, "ubdb".
	Name string `json:"name"`
	// Size is in bytes.
	Size uint64 `json:"size"`
	// Serial is the serial number from sysfs.
	Serial string `json:"serial"`
	// Links are udev's links below /dev/disk.
	Links []string `json:"links,omitempty"`
	// Holders are what stands on the disk or on one of its partitions:
	// device-mapper names, mount points, "process name (pid)".
	Holders []string `json:"holders,omitempty"`
}

// Run runs a command and waits until it ends. The error says that it could
// not be run or that the connection was lost; how it ended is in Exit. When
// ctx ends the command is killed in the guest.
func (c *Client) Run(ctx context.Context, cmd Command) (Exit, error) {
	if len(cmd.Argv) == 0 {
		return Exit{}, errors.New("no command given")
	}
	req := request{Op: opExec, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir}
	rep, err := c.do(ctx, req, cmd.Stdin, cmd.Stdout, cmd.Stderr)
	if err != nil {
		return Exit{}, fmt.Errorf("running %s in the guest: %w", cmd.Argv[0], err)
	}
	if rep.Exit == nil {
		return Exit{}, fmt.Errorf("running %s in the guest: the agent's reply has no exit code", cmd.Argv[0])
	}
	return *rep.Exit, nil
}

// Put writes what r gives to path in the guest, with the given permission
// bits; the directories above it are made. The file appears whole or not at
// all.
func (c *Client) Put(ctx context.Context, path string, perm fs.FileMode, r io.Reader) error {
	req := request{Op: opPut, Path: path, Mode: uint32(perm.Perm())}
	if _, err := c.do(ctx, req, r, nil, nil); err != nil {
		return fmt.Errorf("copying to %s in the guest: %w", path, err)
	}
	return nil
}

// Get copies the guest's file at path to w.
func (c *Client) Get(ctx context.Context, path string, w io.Writer) error {
	if _, err := c.do(ctx, request{Op: opGet, Path: path}, nil, w, nil); err != nil {
		return fmt.Errorf("copying %s from the guest: %w", path, err)
	}
	return nil
}

// Info asks how the guest is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	if err := c.value(ctx, request{Op: opInfo}, &info); err != nil {
		return Info{}, fmt.Errorf("asking the guest how it is: %w", err)
	}
	return info, nil
}

// Disks lists the guest's disks; with what stands on each if holders is true,
// which means looking at every open file of every process.
func (c *Client) Disks(ctx context.Context, holders bool) ([]Disk, error) {
	var disks []Disk
	if err := c.value(ctx, request{Op: opDisks, Holders: holders}, &disks); err != nil {
		return nil, fmt.Errorf("listing the guest's disks: %w", err)
	}
	return disks, nil
}

// CutHolders makes every device-mapper device that stands on the named disk
// answer with I/O errors from now on, as it would after the disk was pulled,
// and so lets go of the disk.
func (c *Client) CutHolders(ctx context.Context, disk string) error {
	if _, err := c.do(ctx, request{Op: opCutHolders, Path: disk}, nil, nil, nil); err != nil {
		return fmt.Errorf("cutting %s from its device-mapper devices: %w", disk, err)
	}
	return nil
}

// PowerOff writes back all data and stops the guest. It returns when the
// agent has acknowledged it, which is before the guest is gone.
func (c *Client) PowerOff(ctx context.Context) error {
	if _, err := c.do(ctx, request{Op: opPowerOff}, nil, nil, nil); err != nil {
		return fmt.Errorf("powering the guest off: %w", err)
	}
	return nil
}

func (c *Client) value(ctx context.Context, req request, into any) error {
	rep, err := c.do(ctx, req, nil, nil, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(rep.Value, into)
}

// do sends one request and carries its streams until the reply.
func (c *Client) do(ctx context.Context, req request, in io.Reader, out, errOut io.Writer) (reply, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = conn.Close() }()
	// A closed connection is how the agent learns that nobody waits any more.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	f := &framed{conn: conn}
	req.Version, req.Token = protocolVersion, c.token
	if err := f.writeJSON(frameRequest, req); err != nil {
		return reply{}, ctxError(ctx, err)
	}
	feedErr := make(chan error, 1)
	go func() { feedErr <- feed(f, in, conn) }()
	rep, err := receive(f, out, errOut)
	if err != nil {
		select {
		case ferr := <-feedErr:
			// The input that broke the request explains more than the
			// connection that it closed.
			if ferr != nil {
				err = ferr
			}
		default:
		}
		return reply{}, ctxError(ctx, err)
	}
	if rep.Error != "" {
		return reply{}, errors.New(rep.Error)
	}
	return rep, nil
}

// feed sends the input. A reader that fails must not look like the end of the
// input, so the connection is given up then.
func feed(f *framed, in io.Reader, conn net.Conn) error {
	if in == nil {
		in = strings.NewReader("")
	}
	buf := make([]byte, chunk)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			// The command may have ended without reading its input: then
			// the reply says so, not this write.
			if werr := f.write(frameStdin, buf[:n]); werr != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			_ = f.write(frameStdinClose, nil)
			return nil
		}
		if err != nil {
			_ = conn.Close()
			return fmt.Errorf("reading the input: %w", err)
		}
	}
}

// receive hands out the streams until the reply has come.
func receive(f *framed, out, errOut io.Writer) (reply, error) {
	for {
		t, p, err := f.read()
		if errors.Is(err, io.EOF) {
			err = errors.New("the guest closed the connection without a reply")
		}
		if err != nil {
			return reply{}, err
		}
		switch t {
		case frameStdout:
			err = writeTo(out, p)
		case frameStderr:
			err = writeTo(errOut, p)
		case frameReply:
			var rep reply
			if err := json.NewDecoder(bytes.NewReader(p)).Decode(&rep); err != nil {
				return reply{}, fmt.Errorf("reading the agent's reply: %w", err)
			}
			return rep, nil
		default:
			err = fmt.Errorf("the agent sent a frame of unknown type %d", t)
		}
		if err != nil {
			return reply{}, err
		}
	}
}

func writeTo(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}

// ctxError prefers the reason for which the connection was closed.
func ctxError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
