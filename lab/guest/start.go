package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/guest/agent"
	"github.com/castellan-storage/castellan/lab/guest/initramfs"
	"github.com/castellan-storage/castellan/lab/guest/pid1"
	"golang.org/x/sys/unix"
)

// bootLimit bounds a boot; on a busy machine it takes up to 20 s.
const bootLimit = 2 * time.Minute

// umid is the name under which the kernel makes its directory of sockets.
const umid = "g"

// Start boots a guest, plugs its disks and returns when commands can run in
// it. When it fails, or ctx ends first, nothing of the guest is left.
func Start(ctx context.Context, o Options) (*Guest, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkMachine(o); err != nil {
		return nil, err
	}
	dir, err := directory(o.Name)
	if err != nil {
		return nil, err
	}
	unlock, err := claim(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	g, err := boot(ctx, dir, o)
	if err != nil {
		// The reason to stop must not keep the cleaning up from happening.
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
		defer cancel()
		return nil, errors.Join(err, clean(cleanCtx, dir))
	}
	return g, nil
}

// checkMachine says what this machine lacks for a guest.
func checkMachine(o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("a guest needs root for its network and its namespaces: use sudo")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("a guest needs the tun device for its network: %w", err)
	}
	info, err := (&agent.Linux{Root: "/"}).Info()
	if err != nil {
		return fmt.Errorf("looking at this machine's memory: %w", err)
	}
	if free := int64(info.MemAvailable); free < o.Memory {
		return fmt.Errorf("the guest would get %s of memory and this machine has %s free: give it less with --mem",
			disk.FormatSize(o.Memory), disk.FormatSize(free))
	}
	var shm unix.Statfs_t
	if err := unix.Statfs(memoryDir, &shm); err != nil {
		return fmt.Errorf("looking at %s: %w", memoryDir, err)
	}
	if free := int64(shm.Bavail) * shm.Bsize; free < o.Memory {
		return fmt.Errorf("the guest's memory of %s lies in %s, which has room for %s: give it less with --mem",
			disk.FormatSize(o.Memory), memoryDir, disk.FormatSize(free))
	}
	return nil
}

// memoryDir is a tmpfs; the kernel keeps the guest's memory there, in a file
// without a name.
const memoryDir = "/dev/shm"

// claim makes the guest's directory and locks it. A guest that runs is in the
// way; files that a dead one left are not.
func claim(dir string) (func(), error) {
	name := filepath.Base(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making room for the guest %s: %w", name, err)
	}
	unlock, err := lock(dir, 0)
	if err != nil {
		return nil, err
	}
	pids, err := marked(dir)
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("the guest %s is up already: use it, or take it down with castellan-lab guest down --name %s, "+
			"or give this one another --name", name, name)
	}
	if err == nil {
		err = emptyDir(dir)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing what an earlier guest left: %w", err)
		}
	}
	return nil
}

// boot starts the kernel and waits for the agent.
func boot(ctx context.Context, dir string, o Options) (*Guest, error) {
	rec := &record{
		Name: o.Name, Created: time.Now().UTC(), Memory: o.Memory, Rootfs: o.Rootfs, Kernel: o.Kernel,
		Token:   newToken(),
		Address: netip.MustParsePrefix(ownAddress), Gateway: netip.MustParseAddr(ownGateway),
	}
	if o.Join != nil {
		rec.Lab, rec.Gateway = o.Join.Lab, o.Join.Gateway.Addr()
		var err error
		if rec.LabProcess, err = processOf(o.Join.Pid); err != nil {
			return nil, fmt.Errorf("looking at the lab %s: %w", o.Join.Lab, err)
		}
	}
	if err := reserve(dir, rec, o.Join); err != nil {
		return nil, err
	}
	if err := writeInitrd(filepath.Join(dir, initrdFile), rec, o); err != nil {
		return nil, fmt.Errorf("writing the guest's first file system: %w", err)
	}
	ended, err := spawn(dir, rec, o.Join)
	if err != nil {
		return nil, err
	}
	g := newGuest(dir, rec)
	bootCtx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("not ready after %s", bootLimit))
	defer cancel()
	if err := g.awaitReady(bootCtx, ended); err != nil {
		return nil, fmt.Errorf("booting the guest %s: %w%s", o.Name, err, consoleHint(dir))
	}
	rec.Ready = true
	if err := rec.save(dir); err != nil {
		return nil, err
	}
	for _, d := range o.Disks {
		if _, err := g.plugNew(ctx, d); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// reserve gives a guest in a lab its address, under a lock so that two that
// start at the same time get two, and writes the first record.
func reserve(dir string, rec *record, join *Join) error {
	if join == nil {
		return rec.save(dir)
	}
	unlock, err := lock(filepath.Dir(dir), lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := names()
	if err != nil {
		return err
	}
	var others []*record
	for _, n := range all {
		o, err := load(filepath.Join(filepath.Dir(dir), n))
		if errors.Is(err, ErrNotUp) {
			continue
		}
		if err != nil {
			return err
		}
		others = append(others, o)
	}
	if rec.Address, err = freeAddress(join, others); err != nil {
		return err
	}
	return rec.save(dir)
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

const (
	initrdFile  = "initrd"
	consoleFile = "console.log"
	socketDir   = "uml"
	diskDir     = "disks"
)

// writeInitrd writes the archive that the guest boots from: the agent as
// /init, and its configuration, which holds the token.
func writeInitrd(path string, rec *record, o Options) error {
	prog, err := os.ReadFile(o.Agent)
	if err != nil {
		return err
	}
	cfg, err := json.Marshal(pid1.Config{
		Hostname: rec.Name, Rootfs: rec.Rootfs, OverlaySize: fmt.Sprintf("%dM", o.Memory>>21),
		Address: rec.Address, Gateway: rec.Gateway, Token: rec.Token,
		Modules: o.Modules, FastLUKS: o.FastLUKS,
	})
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	err = initramfs.Write(&buf, []string{"proc", "dev", "lower", "top", "root"}, []initramfs.File{
		{Name: "init", Mode: 0o755, Data: prog},
		{Name: strings.TrimPrefix(pid1.ConfigPath, "/"), Mode: 0o600, Data: cfg},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, buf.Bytes(), 0o600)
}

// kernelArgs is the command line of the guest's kernel.
func kernelArgs(dir string, rec *record) []string {
	return []string{
		fmt.Sprintf("mem=%dM", rec.Memory>>20),
		"umid=" + umid,
		"uml_dir=" + filepath.Join(dir, socketDir) + "/",
		"initrd=" + filepath.Join(dir, initrdFile),
		// Without ptrace; several times faster.
		"seccomp=on",
		"con=null", "con0=null,fd:1",
		"vec0:transport=tap,ifname=" + tapName(rec) + ",depth=128,gro=1",
		// A panic ends the process instead of leaving it hanging.
		"panic=-1", "quiet",
	}
}

// spawn starts the kernel in its namespaces and records its process. The
// channel gives how it ended, once.
func spawn(dir string, rec *record, join *Join) (<-chan error, error) {
	if err := os.Mkdir(filepath.Join(dir, socketDir), 0o700); err != nil {
		return nil, err
	}
	console, err := os.OpenFile(filepath.Join(dir, consoleFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = console.Close() }()
	cmd := exec.Command(rec.Kernel, kernelArgs(dir, rec)...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Dir = dir
	cmd.Env = []string{envMark + "=" + dir, "TMPDIR=" + memoryDir, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID}
	enter, bridge := newNetNS, ""
	if join != nil {
		enter, bridge = netNSOf(join.Pid), join.Bridge
	}
	err = inNetNS(enter, func() error {
		if err := makeTap(rec, bridge); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("starting the guest's kernel: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if rec.Process, err = processOf(cmd.Process.Pid); err != nil {
		if gone(err) {
			err = errors.New("it ended at once")
		}
		return nil, fmt.Errorf("starting the guest's kernel: %w%s", err, consoleHint(dir))
	}
	return ended, rec.save(dir)
}

// awaitReady waits until the agent answers.
func (g *Guest) awaitReady(ctx context.Context, ended <-chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("the kernel has just started")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case err := <-ended:
			return fmt.Errorf("the guest's kernel ended: %w", endReason(err))
		case <-tick.C:
		}
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, last = g.client.Info(try)
		cancel()
		if last == nil {
			return nil
		}
	}
}

// endReason gives a kernel that ended by itself a reason.
func endReason(err error) error {
	if err == nil {
		return errors.New("it powered off")
	}
	return err
}

// consoleHint is the end of the console's output, or the guest's own reason.
func consoleHint(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, consoleFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(b)) == 0 {
		return ""
	}
	if err != nil {
		return fmt.Sprintf(" (the console could not be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, l := range lines {
		if _, reason, found := strings.Cut(l, pid1.FailMark); found {
			return ": " + strings.TrimSpace(reason)
		}
	}
	return ": the console says last: " + strings.TrimSpace(lines[len(lines)-1])
}
