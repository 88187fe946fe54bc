// Package cgroup gives each lab and each of its nodes a cgroup of its own, in
// every hierarchy of the machine, so that the kubelets of several nodes do not
// delete each other's pods, and what a node uses can be measured and ended.
//
// It knows cgroup v1 (with its many hierarchies) and v2.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Base is the cgroup under which all labs are.
const Base = "castellan-lab"

// Hierarchy is one mounted cgroup hierarchy.
type Hierarchy struct {
	Mount       string   `json:"mount"`                 // "/sys/fs/cgroup/cpu"
	Controllers []string `json:"controllers,omitempty"` // v1: "cpu", "name=systemd"; empty for v2
	V2          bool     `json:"v2,omitempty"`
}

// has reports whether the v1 hierarchy carries a controller.
func (h Hierarchy) has(controller string) bool { return slices.Contains(h.Controllers, controller) }

// controllers that a kubelet on cgroup v1 asks for.
var needed = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}

// v1Controllers are options of a cgroup mount that name controllers.
var v1Controllers = []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "net_cls", "net_prio", "perf_event", "pids", "rdma"}

// Detect finds the hierarchies of this machine.
func Detect() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parse(f)
}

// parse reads the hierarchies from a mountinfo file. A machine with v1
// controllers is a v1 machine, even where an empty v2 hierarchy is mounted too.
func parse(mountinfo io.Reader) ([]Hierarchy, error) {
	var v1, v2 []Hierarchy
	have := map[string]bool{}
	s := bufio.NewScanner(mountinfo)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		dash := slices.Index(fields, "-")
		if dash < 5 || len(fields) < dash+4 {
			continue
		}
		mount, root, fstype := fields[4], fields[3], fields[dash+1]
		if root != "/" {
			continue // part of a hierarchy, bound elsewhere
		}
		switch fstype {
		case "cgroup2":
			v2 = append(v2, Hierarchy{Mount: mount, V2: true})
		case "cgroup":
			var cs []string
			for _, o := range strings.Split(fields[dash+3], ",") {
				if (slices.Contains(v1Controllers, o) || strings.HasPrefix(o, "name=")) && !have[o] {
					cs = append(cs, o)
					have[o] = true
				}
			}
			if len(cs) > 0 {
				v1 = append(v1, Hierarchy{Mount: mount, Controllers: cs})
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	if len(v1) == 0 {
		if len(v2) == 0 {
			return nil, errors.New("no cgroup hierarchy is mounted: mount cgroups at /sys/fs/cgroup")
		}
		return v2[:1], nil
	}
	for _, c := range needed {
		if !have[c] {
			return nil, fmt.Errorf("the cgroup v1 controller %s is not mounted: mount it at /sys/fs/cgroup/%s", c, c)
		}
	}
	sort.Slice(v1, func(i, j int) bool { return v1[i].Mount < v1[j].Mount })
	return v1, nil
}

// Set is a cgroup in every hierarchy, at the same path under Base.
type Set struct {
	hierarchies []Hierarchy
	path        string // under Base: "lab/node1"
}

// New names a set; it makes nothing.
func New(hierarchies []Hierarchy, path ...string) Set {
	return Set{hierarchies: hierarchies, path: filepath.Join(path...)}
}

// dir is the set's directory in a hierarchy.
func (s Set) dir(h Hierarchy) string { return filepath.Join(h.Mount, Base, s.path) }

// Make creates the set with its parents.
func (s Set) Make() error {
	for _, h := range s.hierarchies {
		dir := h.Mount
		for _, part := range append([]string{Base}, strings.Split(s.path, "/")...) {
			if h.V2 {
				if err := enableAll(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making the cgroup %s: %w", dir, err)
			}
			if err := prepareV1(h, parent, dir); err != nil {
				return err
			}
		}
		if err := s.raiseShare(h); err != nil {
			return err
		}
	}
	return nil
}

// share is how many ordinary processes a lab counts for when processors are
// scarce. The kernel shares them out between cgroups: without this a lab, which
// is dozens of processes, would count for one.
const share = 16

// raiseShare gives the lab of the set its share. The unit of v1 is 1024 for a
// process, that of v2 is 100 (cgroup-v2.rst, cpu.weight).
func (s Set) raiseShare(h Hierarchy) error {
	file, value := "cpu.shares", share*1024
	switch {
	case h.V2:
		file, value = "cpu.weight", share*100
	case !h.has("cpu"):
		return nil
	}
	lab, _, _ := strings.Cut(s.path, "/")
	for _, dir := range []string{filepath.Join(h.Mount, Base), filepath.Join(h.Mount, Base, lab)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(value)), 0o644); err != nil {
			return fmt.Errorf("giving %s its share of the processors: %w", dir, err)
		}
	}
	return nil
}

// prepareV1 fills what v1 leaves empty: a cpuset without CPUs takes no process.
func prepareV1(h Hierarchy, parent, dir string) error {
	if !h.has("cpuset") {
		return nil
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, f))
		if err != nil {
			return fmt.Errorf("preparing the cgroup %s: %w", dir, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			return fmt.Errorf("preparing the cgroup %s: %w", dir, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644); err != nil {
		return fmt.Errorf("preparing the cgroup %s: %w", dir, err)
	}
	return nil
}

// enableAll hands every controller that a v2 cgroup has to its children.
func enableAll(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of %s: %w", dir, err)
	}
	var on []string
	for _, c := range strings.Fields(string(b)) {
		on = append(on, "+"+c)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(strings.Join(on, " ")), 0o644); err != nil {
		return fmt.Errorf("enabling controllers below %s: %w", dir, err)
	}
	return nil
}

// Add moves a process (a pid as the caller sees it; 0 is the caller) into the
// set.
func (s Set) Add(pid int) error {
	for _, h := range s.hierarchies {
		if err := os.WriteFile(filepath.Join(s.dir(h), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("moving process %d into the cgroup %s: %w", pid, s.dir(h), err)
		}
	}
	return nil
}

// Pids are the processes of the set and all below it, as the caller's /proc
// shows them when it is the machine's.
func (s Set) Pids() ([]int, error) {
	var out []int
	err := filepath.WalkDir(s.dir(s.accounting("pids")), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.Name() != "cgroup.procs" {
			return nil
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return err
			}
			if pid > 0 {
				out = append(out, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the processes of %s: %w", s.path, err)
	}
	return out, nil
}

// CPU is the processor time that the set and all below it have used.
func (s Set) CPU() (time.Duration, error) {
	h := s.accounting("cpuacct")
	if !h.V2 {
		b, err := os.ReadFile(filepath.Join(s.dir(h), "cpuacct.usage"))
		if err != nil {
			return 0, fmt.Errorf("reading processor time: %w", err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading processor time: %w", err)
		}
		return time.Duration(ns), nil
	}
	b, err := os.ReadFile(filepath.Join(s.dir(h), "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("reading processor time: %w", err)
	}
	fields := strings.Fields(string(b))
	i := slices.Index(fields, "usage_usec")
	if i < 0 || i+1 >= len(fields) {
		return 0, errors.New("reading processor time: cpu.stat has no usage_usec")
	}
	us, err := strconv.ParseInt(fields[i+1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading processor time: %w", err)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// accounting is the hierarchy with a controller.
func (s Set) accounting(controller string) Hierarchy {
	for _, h := range s.hierarchies {
		if h.V2 || h.has(controller) {
			return h
		}
	}
	return s.hierarchies[0]
}

// Exists reports whether the set is there in any hierarchy.
func (s Set) Exists() bool {
	for _, h := range s.hierarchies {
		if _, err := os.Stat(s.dir(h)); err == nil {
			return true
		}
	}
	return false
}

// Remove removes the set and all below it. A cgroup is busy for a moment after
// its last process has ended: it tries until the context ends.
func (s Set) Remove(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var last error
		for _, h := range s.hierarchies {
			if err := removeTree(s.dir(h)); err != nil {
				last = err
			}
		}
		if last == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing the cgroups of %s: %w", s.path, last)
		case <-tick.C:
		}
	}
	if s.path == "" || s.path == "." {
		return nil
	}
	for _, h := range s.hierarchies {
		_ = os.Remove(filepath.Join(h.Mount, Base)) // stays while another lab is in it
	}
	return nil
}

// removeTree removes cgroup directories, children first. Files in them are the
// kernel's and go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MountInside mounts the hierarchies under dir, the /sys/fs/cgroup of a node.
// The caller is in the node's cgroup namespace, and so sees only what is its.
func MountInside(hierarchies []Hierarchy, dir string) error {
	if len(hierarchies) == 1 && hierarchies[0].V2 {
		if err := unix.Mount("cgroup2", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting cgroups at %s: %w", dir, err)
		}
		return leaveRoot(dir)
	}
	if err := unix.Mount("cgroup", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting cgroups at %s: %w", dir, err)
	}
	for _, h := range hierarchies {
		opts := strings.Join(h.Controllers, ",")
		name := strings.TrimPrefix(opts, "name=")
		if strings.HasPrefix(opts, "name=") {
			opts = "none," + opts
		}
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return fmt.Errorf("mounting the cgroup hierarchy %s: %w", name, err)
		}
		if err := unix.Mount("cgroup", at, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, opts); err != nil {
			return fmt.Errorf("mounting the cgroup hierarchy %s: %w", name, err)
		}
		if len(h.Controllers) > 1 {
			for _, c := range h.Controllers {
				if err := os.Symlink(name, filepath.Join(dir, c)); err != nil {
					return fmt.Errorf("mounting the cgroup hierarchy %s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// leaveRoot moves the caller into a leaf: on v2 a cgroup that hands controllers
// to its children holds no process itself.
func leaveRoot(dir string) error {
	leaf := filepath.Join(dir, "init")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the cgroup %s: %w", leaf, err)
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("moving into the cgroup %s: %w", leaf, err)
	}
	return enableAll(dir)
}

// LeaveAll moves the calling process into the root of every hierarchy.
func LeaveAll(hierarchies []Hierarchy) error {
	for _, h := range hierarchies {
		if err := os.WriteFile(filepath.Join(h.Mount, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("leaving the cgroups of %s: %w", h.Mount, err)
		}
	}
	return nil
}

// Join moves the calling process into the cgroups of another (a pid as the
// caller's /proc shows it), so that what it starts counts and ends with it.
func Join(hierarchies []Hierarchy, pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return fmt.Errorf("looking for the cgroups of process %d: %w", pid, err)
	}
	for _, dir := range joinDirs(hierarchies, string(b)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("joining the cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// joinDirs reads /proc/PID/cgroup (cgroups(7)).
func joinDirs(hierarchies []Hierarchy, procCgroup string) []string {
	var out []string
	for line := range strings.Lines(procCgroup) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, h := range hierarchies {
			if v2 := f[0] == "0" && f[1] == ""; v2 && h.V2 || !v2 && !h.V2 && h.has(strings.Split(f[1], ",")[0]) {
				out = append(out, filepath.Join(h.Mount, f[2]))
			}
		}
	}
	return out
}
