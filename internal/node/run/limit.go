package run

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Times that programs may take. A healthy node needs a tenth of each; they only have to be
// longer than the slowest disk, and shorter than what waits for them.
const (
	// told is for what opens nothing.
	told = 30 * time.Second
	// looking is for what reads a few blocks of each disk: 60 disks take seconds.
	looking = time.Minute
	// changing is for LVM's and cryptsetup's changes: LUKS' key derivation alone takes 2 s
	// by design, and a minute on a slow machine.
	changing = 2 * time.Minute
	// asking is for the Ceph tool, which gets 60 s to connect.
	asking = 2 * time.Minute
	// listing is for ceph-volume when it only looks; it starts dozens of programs.
	listing = 5 * time.Minute
	// making is for what makes an OSD, and for mkfs. The Job that prepares a disk for a
	// replacement ends after 30 minutes, and has to put in order what is left.
	making = 20 * time.Minute
	// founding is for mkfs of a mon, which writes some files on the host's own disk.
	founding = 5 * time.Minute
	// opening is for what opens a whole BlueStore or RocksDB: after a crash it reads its
	// log again and, on a full rotating disk, all of its metadata.
	opening = time.Hour
	// unknown is for all others.
	unknown = 10 * time.Minute
)

// Limit is how long a program may take.
func Limit(name string, args ...string) time.Duration {
	verb := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(args, w) })
	}
	switch filepath.Base(name) {
	case "monmaptool":
		return told
	case "lsblk", "blkid", "lvs", "vgs", "pvs", "ceph-authtool", "dmsetup":
		return looking
	case "vgcreate", "vgremove", "vgchange", "vgextend", "vgreduce", "lvcreate", "lvremove", "lvchange", "pvcreate", "pvremove", "cryptsetup":
		return changing
	case "ceph":
		return asking
	case "ceph-volume":
		if verb("prepare", "batch", "create", "zap", "activate") {
			return making
		}
		return listing
	case "ceph-osd":
		if verb("--mkfs") {
			return making
		}
		return opening
	case "ceph-bluestore-tool":
		return opening
	case "ceph-mon":
		if verb("--mkfs") {
			return founding
		}
		if verb("--version") {
			return told
		}
		return opening
	}
	return unknown
}

// opened are the devices that a program and those it has started have open, by /proc below
// root: what one that does not end is waiting for.
func opened(root string, pid int) []string {
	devices := []string{}
	group := []string{strconv.Itoa(pid)}
	for i := 0; i < len(group) && i < 64; i++ {
		dir := filepath.Join(root, "proc", group[i])
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it has ended
		}
		for _, fd := range fds {
			at, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			if err == nil && disk(at) && !slices.Contains(devices, at) {
				devices = append(devices, at)
			}
		}
		tasks, err := os.ReadDir(filepath.Join(dir, "task"))
		if err != nil {
			continue
		}
		for _, t := range tasks {
			children, err := os.ReadFile(filepath.Join(dir, "task", t.Name(), "children")) //nolint:gosec // a fixed file of a process of ours
			if err == nil {
				group = append(group, strings.Fields(string(children))...)
			}
		}
	}
	slices.Sort(devices)
	return devices
}

// disk reports whether a path that a program has open may be of a disk.
func disk(path string) bool {
	rest, ok := strings.CutPrefix(path, "/dev/")
	return ok && !slices.Contains([]string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "mapper/control"}, rest) &&
		!strings.HasPrefix(rest, "pts/") && !strings.HasPrefix(rest, "shm/") && !strings.HasPrefix(rest, "fd/")
}
