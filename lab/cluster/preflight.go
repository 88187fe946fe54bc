package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"golang.org/x/sys/unix"
)

// What a lab takes, by measurement of one with three idle nodes (0.8 GB in all)
// and of empty OSDs; with some room.
const (
	memoryBase    = 512 << 20
	memoryPerNode = 160 << 20
	// diskBase is above the gigabyte that kubelets want free before they evict.
	diskBase    = 2 << 30
	diskPerNode = 128 << 20
	// diskPerDisk is what an empty OSD writes; a smaller disk counts as it is.
	diskPerDisk = 256 << 20
)

// preflight says in one line why a lab cannot be started here, before anything
// is made.
func preflight(o Options) error {
	if err := state.CheckRoot(); err != nil {
		return err
	}
	for _, p := range []string{filepath.Join(o.Paths.Bin, "hyper"), filepath.Join(o.Paths.Bin, "containerd"), filepath.Join(o.Paths.CNI, "bridge"), o.Paths.Golden} {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("%s is missing: run castellan-lab build", p)
		}
	}
	for _, tool := range []string{"nft", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed, and nodes use the machine's: run castellan-lab build, which installs it", tool)
		}
	}
	if o.Disks > 0 {
		if err := disk.CheckLoop(); err != nil {
			return err
		}
	}
	if _, err := cgroup.Detect(); err != nil {
		return err
	}
	if err := checkMemory(o); err != nil {
		return err
	}
	if err := checkPlace(o); err != nil {
		return err
	}
	return checkDisk(o)
}

// maxSocketPath is the longest path that a Unix socket can have (unix(7):
// sun_path, with its final zero).
const maxSocketPath = 107

// checkPlace looks at where the lab's files go: nodes keep their container
// images there, as links to the cache's.
func checkPlace(o Options) error {
	dir, err := state.Dir(o.Name)
	if err != nil {
		return err
	}
	if socket := control.Socket(dir); len(socket) > maxSocketPath {
		return fmt.Errorf("%s is too long a path for a socket: set %s to a shorter one", socket, state.EnvRoot)
	}
	at, err := existing(dir)
	if err != nil {
		return err
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(at, &fsys); err != nil {
		return fmt.Errorf("looking at the disk of %s: %w", at, err)
	}
	if fsys.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is on an overlay file system, which cannot hold container images: set %s to a directory on a disk or volume", at, state.EnvRoot)
	}
	var here, golden unix.Stat_t
	if err := errors.Join(unix.Stat(at, &here), unix.Stat(o.Paths.Golden, &golden)); err != nil {
		return fmt.Errorf("looking at the disk of %s: %w", at, err)
	}
	if here.Dev != golden.Dev {
		return fmt.Errorf("%s and the cache %s are on different file systems, and nodes link images from there: set %s to a directory on the cache's", at, o.Paths.Golden, state.EnvRoot)
	}
	return nil
}

// existing is the directory, or the nearest one above it that exists.
func existing(dir string) (string, error) {
	for {
		_, err := os.Stat(dir)
		if err == nil || dir == "/" {
			return dir, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking at %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

func checkMemory(o Options) error {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("looking at the memory: %w", err)
	}
	defer func() { _ = f.Close() }()
	have, err := memAvailable(f)
	if err != nil {
		return err
	}
	need := int64(memoryBase) + int64(o.Nodes)*memoryPerNode
	if have < need {
		return fmt.Errorf("too little memory: %s available, %d nodes need %s: use fewer --nodes or end other programs", disk.FormatSize(have), o.Nodes, disk.FormatSize(need))
	}
	return nil
}

// memAvailable reads /proc/meminfo (proc(5)).
func memAvailable(r io.Reader) (int64, error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		if v, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("looking at the memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.Join(errors.New("looking at the memory: no MemAvailable in /proc/meminfo"), s.Err())
}

func checkDisk(o Options) error {
	root, err := state.Root()
	if err != nil {
		return err
	}
	at, err := existing(root)
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return fmt.Errorf("looking at the disk of %s: %w", at, err)
	}
	have := int64(st.Bavail) * st.Bsize
	need := diskBase + int64(o.Nodes)*(diskPerNode+int64(o.Disks)*min(o.DiskSize, diskPerDisk))
	if have < need {
		return fmt.Errorf("too little disk: %s free at %s, a lab of %d nodes with %d disks needs %s: make room, or set %s to a larger one", disk.FormatSize(have), at, o.Nodes, o.Disks, disk.FormatSize(need), state.EnvRoot)
	}
	return nil
}
