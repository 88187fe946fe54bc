package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/castellan-storage/castellan/lab/guest/agent"
)

// downLimit bounds how long the processes of a guest may take to end.
const downLimit = 20 * time.Second

// Guest is a running guest. Its methods may be used from several goroutines,
// and several programs may have the same guest open.
type Guest struct {
	dir string
	// rec is what the record held when the guest was opened; what changes
	// later (disks) is read from the file under the lock.
	rec    *record
	client *agent.Client
}

func newGuest(dir string, rec *record) *Guest {
	g := &Guest{dir: dir, rec: rec}
	g.client = agent.NewClient(func(ctx context.Context) (net.Conn, error) {
		return g.Dial(ctx, "tcp", netip.AddrPortFrom(rec.Address.Addr(), agent.Port).String())
	}, rec.Token)
	return g
}

// Open returns the running guest with this name. ErrNotUp when there is none;
// another error when it crashed or is still booting.
func Open(name string) (*Guest, error) {
	dir, err := directory(name)
	if err != nil {
		return nil, err
	}
	rec, err := load(dir)
	if err != nil {
		return nil, err
	}
	alive, err := rec.Process.alive()
	switch {
	case err != nil:
		return nil, fmt.Errorf("looking for the guest %s: %w", name, err)
	case !alive:
		return nil, fmt.Errorf("the guest %s has crashed or was killed: clear it away with castellan-lab guest down --name %s", name, name)
	case !rec.Ready:
		return nil, fmt.Errorf("the guest %s is still booting", name)
	}
	return newGuest(dir, rec), nil
}

// Name of the guest.
func (g *Guest) Name() string { return g.rec.Name }

// Address is the guest's own, for those on its network.
func (g *Guest) Address() netip.Prefix { return g.rec.Address }

// Gateway is the machine's (or the lab's) side of the guest's network.
func (g *Guest) Gateway() netip.Addr { return g.rec.Gateway }

// ConsolePath is the file with what the guest's kernel wrote to its console.
func (g *Guest) ConsolePath() string { return filepath.Join(g.dir, consoleFile) }

// Pid is the process that is the guest.
func (g *Guest) Pid() int { return g.rec.Process.Pid }

// Result is what a command in the guest left.
type Result struct {
	Stdout, Stderr string
	// ExitCode is 128 plus the signal's number when a signal ended it.
	ExitCode int
	// Signal is that signal's name, empty otherwise.
	Signal string
}

// Exec runs a program in the guest, without a shell, and collects what it
// writes. That it exits with a code other than 0 is no error; that it could
// not be started or that the guest was lost is one. When ctx ends the program
// is killed.
func (g *Guest) Exec(ctx context.Context, argv ...string) (Result, error) {
	return g.ExecInput(ctx, nil, argv...)
}

// ExecInput is Exec with a standard input.
func (g *Guest) ExecInput(ctx context.Context, stdin io.Reader, argv ...string) (Result, error) {
	var out, errOut bytes.Buffer
	exit, err := g.Run(ctx, agent.Command{Argv: argv, Stdin: stdin, Stdout: &out, Stderr: &errOut})
	if err != nil {
		return Result{}, err
	}
	return Result{Stdout: out.String(), Stderr: errOut.String(), ExitCode: exit.Code, Signal: exit.Signal}, nil
}

// Run runs a program in the guest with the streams of cmd.
func (g *Guest) Run(ctx context.Context, cmd agent.Command) (agent.Exit, error) {
	return g.client.Run(ctx, cmd)
}

// Put writes a file in the guest, whole or not at all.
func (g *Guest) Put(ctx context.Context, path string, perm fs.FileMode, r io.Reader) error {
	return g.client.Put(ctx, path, perm, r)
}

// Get copies a file out of the guest.
func (g *Guest) Get(ctx context.Context, path string, w io.Writer) error {
	return g.client.Get(ctx, path, w)
}

// Info asks the guest how it is.
func (g *Guest) Info(ctx context.Context) (agent.Info, error) { return g.client.Info(ctx) }

// Dial connects to an address on the guest's network, such as a mon in the
// guest; nothing else of this machine can reach it.
func (g *Guest) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialIn(ctx, g.rec.Process.Pid, network, address)
}

// StartBeside starts a program of this machine on the guest's network, where
// it reaches the guest by Address and nothing else.
func (g *Guest) StartBeside(cmd *exec.Cmd) error {
	return inNetNS(netNSOf(g.rec.Process.Pid), cmd.Start)
}

// Close takes the guest down; it is Down for this guest.
func (g *Guest) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait+downLimit)
	defer cancel()
	return Down(ctx, g.rec.Name)
}

// Down ends a guest and removes all of it, disks included. It is no error when
// there is none, and it works whatever state the guest is in.
func Down(ctx context.Context, name string) error {
	dir, err := directory(name)
	if err != nil {
		return err
	}
	unlock, err := lock(dir, lockWait)
	if errors.Is(err, fs.ErrNotExist) {
		// Its directory may have been removed by hand under a running guest.
		return clean(ctx, dir)
	}
	if err != nil {
		return err
	}
	defer unlock()
	return clean(ctx, dir)
}

// clean ends the processes of the guest in dir and removes the directory.
func clean(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	pids, err := marked(dir)
	if err != nil {
		return err
	}
	if err := killAll(ctx, pids); err != nil {
		return fmt.Errorf("ending the guest %s: %w", filepath.Base(dir), err)
	}
	if err := leaveLab(dir); err != nil {
		return fmt.Errorf("taking the guest %s off the lab's network: %w", filepath.Base(dir), err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the guest %s: %w", filepath.Base(dir), err)
	}
	// The directory of all guests goes with the last one; as long as there is
	// another this fails, as it should.
	_ = os.Remove(filepath.Dir(dir))
	return nil
}

// Status is what can be said about a guest without disturbing it.
type Status struct {
	Name string
	// State is "up", "booting" or "crashed".
	State   string
	Pid     int
	Created time.Time
	// Memory is what the guest may use, Resident what it has taken of this
	// machine, in bytes.
	Memory, Resident int64
	Lab              string
	Address          netip.Addr
	Disks            int
}

// List describes all guests of this machine.
func List() ([]Status, error) {
	all, err := names()
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, n := range all {
		s, err := statusOf(n)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func statusOf(name string) (Status, error) {
	dir, err := directory(name)
	if err != nil {
		return Status{}, err
	}
	rec, err := load(dir)
	if errors.Is(err, ErrNotUp) {
		return Status{Name: name, State: "crashed"}, nil
	}
	if err != nil {
		return Status{}, err
	}
	alive, err := rec.Process.alive()
	if err != nil {
		return Status{}, err
	}
	s := Status{
		Name: name, State: "crashed", Created: rec.Created, Memory: rec.Memory, Lab: rec.Lab, Address: rec.Address.Addr(),
	}
	for _, d := range rec.Disks {
		if d.Slot != 0 {
			s.Disks++
		}
	}
	if alive {
		s.State, s.Pid, s.Resident = "booting", rec.Process.Pid, resident(rec.Process.Pid)
		if rec.Ready {
			s.State = "up"
		}
	}
	return s, nil
}

// resident is the memory of a process in bytes; 0 when it has just ended.
func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}
