package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Linux is the Host of a real guest.
type Linux struct {
	// BootTime and MissingModules are reported as they are.
	BootTime       time.Duration
	MissingModules []string
	// Env is the environment of the tools it runs (dmsetup, udevadm).
	Env []string
	// Root is where /proc, /sys, /dev and /run are found; "/" but in tests.
	Root string
}

// Info reads the guest's name, kernel, uptime and memory.
func (l *Linux) Info() (Info, error) {
	info := Info{BootTime: l.BootTime, MissingModules: l.MissingModules}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Info{}, fmt.Errorf("uname: %w", err)
	}
	info.Hostname, info.Kernel = unix.ByteSliceToString(uts.Nodename[:]), unix.ByteSliceToString(uts.Release[:])
	up, err := l.uptime()
	if err != nil {
		return Info{}, err
	}
	info.Uptime = up
	mem, err := os.ReadFile(filepath.Join(l.Root, "proc/meminfo"))
	if err != nil {
		return Info{}, err
	}
	info.MemTotal = memField(mem, "MemTotal:")
	info.MemAvailable = memField(mem, "MemAvailable:")
	return info, nil
}

func (l *Linux) uptime() (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(l.Root, "proc/uptime"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("reading /proc/uptime: %w", err)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// memField returns a field of /proc/meminfo in bytes, 0 when it is not there.
func memField(meminfo []byte, name string) uint64 {
	for line := range strings.Lines(string(meminfo)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == name {
			kib, _ := strconv.ParseUint(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Disks lists the ubd disks by name, with what stands on each if holders is
// true.
func (l *Linux) Disks(holders bool) ([]Disk, error) {
	entries, err := os.ReadDir(filepath.Join(l.Root, "sys/block"))
	if err != nil {
		return nil, err
	}
	links := l.links()
	var disks []Disk
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "ubd") {
			continue
		}
		d, err := l.disk(e.Name())
		if err != nil {
			return nil, err
		}
		d.Links = links[d.Name]
		if holders {
			if d.Holders, err = l.holders(d.Name); err != nil {
				return nil, err
			}
		}
		disks = append(disks, d)
	}
	return disks, nil
}

func (l *Linux) disk(name string) (Disk, error) {
	dir := filepath.Join(l.Root, "sys/block", name)
	size, err := os.ReadFile(filepath.Join(dir, "size"))
	if err != nil {
		return Disk{}, err
	}
	sectors, err := strconv.ParseUint(strings.TrimSpace(string(size)), 10, 64)
	if err != nil {
		return Disk{}, fmt.Errorf("size of %s: %w", name, err)
	}
	// A disk without a serial has an empty file or none.
	serial, err := os.ReadFile(filepath.Join(dir, "serial"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Disk{}, err
	}
	return Disk{Name: name, Size: sectors * 512, Serial: strings.TrimSpace(string(serial))}, nil
}

// holders says what stands on a disk or one of its partitions.
func (l *Linux) holders(disk string) ([]string, error) {
	nodes, err := l.nodes(disk)
	if err != nil {
		return nil, err
	}
	mounts, err := l.mounts()
	if err != nil {
		return nil, err
	}
	dms, err := l.dmHolders(disk)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, dm := range dms {
		out = append(out, "device-mapper "+dm)
	}
	openBy := l.openBy(nodes)
	for _, node := range nodes {
		for _, at := range mounts[node] {
			out = append(out, "mounted on "+at)
		}
		out = append(out, openBy[node]...)
	}
	slices.Sort(out)
	return out, nil
}

// nodes are the names of a disk and its partitions.
func (l *Linux) nodes(disk string) ([]string, error) {
	parts, err := filepath.Glob(filepath.Join(l.Root, "sys/block", disk, disk+"*"))
	if err != nil {
		return nil, err
	}
	out := []string{disk}
	for _, p := range parts {
		out = append(out, filepath.Base(p))
	}
	return out, nil
}

// dmHolders are the names of the device-mapper devices that stand directly on
// a disk or one of its partitions.
func (l *Linux) dmHolders(disk string) ([]string, error) {
	nodes, err := l.nodes(disk)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, node := range nodes {
		pattern := filepath.Join(l.Root, "sys/class/block", node, "holders/dm-*")
		holders, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, h := range holders {
			name, err := os.ReadFile(filepath.Join(l.Root, "sys/class/block", filepath.Base(h), "dm/name"))
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since the listing
			}
			if err != nil {
				return nil, err
			}
			if n := strings.TrimSpace(string(name)); !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// mounts gives the mount points by the kernel's name of the device.
func (l *Linux) mounts() (map[string][]string, error) {
	file, err := os.Open(filepath.Join(l.Root, "proc/self/mounts"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	out := map[string][]string{}
	sc := bufio.NewScanner(file)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) > 1 && strings.HasPrefix(f[0], "/dev/") {
			out[filepath.Base(f[0])] = append(out[filepath.Base(f[0])], f[1])
		}
	}
	return out, sc.Err()
}

// openBy says which processes have one of the nodes open. A process that ends
// while it is looked at is left out.
func (l *Linux) openBy(nodes []string) map[string][]string {
	out := map[string][]string{}
	fds, _ := filepath.Glob(filepath.Join(l.Root, "proc/[0-9]*/fd/*"))
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(target, "/dev/") || !slices.Contains(nodes, filepath.Base(target)) {
			continue
		}
		proc := filepath.Dir(filepath.Dir(fd))
		comm, err := os.ReadFile(filepath.Join(proc, "comm"))
		if err != nil {
			continue
		}
		who := fmt.Sprintf("open by %s (pid %s)", strings.TrimSpace(string(comm)), filepath.Base(proc))
		if node := filepath.Base(target); !slices.Contains(out[node], who) {
			out[node] = append(out[node], who)
		}
	}
	return out
}

// links gives udev's links below /dev/disk by the kernel's name of the disk.
func (l *Linux) links() map[string][]string {
	out := map[string][]string{}
	paths, _ := filepath.Glob(filepath.Join(l.Root, "dev/disk/*/*"))
	for _, p := range paths {
		target, err := os.Readlink(p)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(l.Root, p)
		if err != nil {
			continue
		}
		out[filepath.Base(target)] = append(out[filepath.Base(target)], "/"+rel)
	}
	return out
}

// CutHolders loads the error target into every device-mapper device that
// stands directly on the disk.
func (l *Linux) CutHolders(ctx context.Context, disk string) error {
	if disk == "" || strings.ContainsAny(disk, "/.") {
		return fmt.Errorf("%q is not the name of a disk", disk)
	}
	names, err := l.dmHolders(disk)
	if err != nil {
		return err
	}
	for _, name := range names {
		// --noflush: what is on its way to the disk is lost, as in a pull.
		if err := l.run(ctx, "dmsetup", "wipe_table", "--force", "--noflush", name); err != nil {
			return err
		}
	}
	return l.run(ctx, "udevadm", "settle", "--timeout=10")
}

func (l *Linux) run(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // fixed argv of this file; names come from sysfs
	cmd.Env = l.Env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// PowerOff writes everything back and stops the machine.
func (l *Linux) PowerOff() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
