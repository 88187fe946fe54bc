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
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root, for namespaces and loop devices: run it with sudo")
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
	return checkDisk(o)
}

func checkMemory(o Options) error {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("looking at the memory: %w", err)
	}
	defer f.Close()
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
	at := root
	for {
		var st unix.Statfs_t
		err := unix.Statfs(at, &st)
		if errors.Is(err, fs.ErrNotExist) && at != "/" {
			at = filepath.Dir(at)
			continue
		}
		if err != nil {
			return fmt.Errorf("looking at the disk below %s: %w", root, err)
		}
		have := int64(st.Bavail) * st.Bsize
		need := diskBase + int64(o.Nodes)*(diskPerNode+int64(o.Disks)*min(o.DiskSize, diskPerDisk))
		if have < need {
			return fmt.Errorf("too little disk: %s free at %s, a lab of %d nodes with %d disks needs %s: make room, or set %s to a larger one", disk.FormatSize(have), at, o.Nodes, o.Disks, disk.FormatSize(need), state.EnvRoot)
		}
		return nil
	}
}
