package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"golang.org/x/sys/unix"
)

// mount is one mount of a node's root, with its place relative to it.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// charDevices are the character devices of every node (Linux, devices.txt).
// Loop control is not among them: what a pod attached would be the machine's.
func charDevices() map[string]uint64 {
	dev := unix.Mkdev
	return map[string]uint64{
		"null": dev(1, 3), "zero": dev(1, 5), "full": dev(1, 7), "random": dev(1, 8), "urandom": dev(1, 9),
		"kmsg": dev(1, 11), "tty": dev(5, 0), "fuse": dev(10, 229), "net/tun": dev(10, 200),
	}
}

// makeRoot builds the node's root file system and makes it the root. What is
// the machine's is bound read-only or covered by a layer of the node's own.
func makeRoot(s Spec) error {
	// Nothing that is mounted from here on reaches the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting from the machine's mounts: %w", err)
	}
	root := filepath.Join(s.Dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("making the node's root: %w", err)
	}
	if err := unix.Mount("root", root, "tmpfs", 0, "size=512m,mode=755"); err != nil {
		return fmt.Errorf("mounting the node's root: %w", err)
	}
	if err := makeDirs(root, "usr", "etc", "proc", "sys", "dev", "run", "tmp", "var/lib", "var/tmp", "root", "mnt", "opt/k8s", "opt/cni/bin", ".old", ".usr/upper", ".usr/work"); err != nil {
		return err
	}
	for _, p := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(root, p), 0o1777|os.ModeSticky); err != nil {
			return fmt.Errorf("making the node's root: %w", err)
		}
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return fmt.Errorf("making the node's root: %w", err)
		}
	}
	if err := mountAll(root, rootMounts(root, s)); err != nil {
		return err
	}
	if err := cgroup.MountInside(s.Cgroups, filepath.Join(root, "sys/fs/cgroup")); err != nil {
		return err
	}
	if err := makeDev(root); err != nil {
		return err
	}
	for _, d := range s.Disks {
		if err := disk.Expose(root, d); err != nil {
			return err
		}
	}
	if err := copyEtc(root); err != nil {
		return err
	}
	if err := writeFiles(root, files(s)); err != nil {
		return err
	}
	if err := installLosetup(root); err != nil {
		return err
	}
	if err := maskTunables(root); err != nil {
		return err
	}
	return enter(root)
}

func rootMounts(root string, s Spec) []mount {
	ms := []mount{
		// A layer over the machine's /usr, as pods may make directories in it
		// (/lib/modules, /usr/src).
		{"usr", "usr", "overlay", 0, "lowerdir=/usr,upperdir=" + root + "/.usr/upper,workdir=" + root + "/.usr/work"},
		{s.Bin, "opt/k8s", "", unix.MS_BIND, ""},
		{"", "opt/k8s", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, ""},
		{s.CNI, "opt/cni/bin", "", unix.MS_BIND, ""},
		{"", "opt/cni/bin", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, ""},
	}
	for _, d := range kept() {
		ms = append(ms, mount{filepath.Join(s.Dir, "var", d), "var/" + d, "", unix.MS_BIND, ""})
	}
	return append(ms,
		mount{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		mount{"sysfs", "sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		mount{"dev", "dev", "tmpfs", unix.MS_NOSUID, "size=64m,mode=755"},
		mount{"devpts", "dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"},
		mount{"shm", "dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "size=64m,mode=1777"},
		mount{"mqueue", "dev/mqueue", "mqueue", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		mount{"run", "run", "tmpfs", unix.MS_NOSUID, "size=256m,mode=755"},
	)
}

func mountAll(root string, ms []mount) error {
	for _, m := range ms {
		target := filepath.Join(root, m.target)
		if m.flags&unix.MS_BIND != 0 && m.source != "" {
			// The source of what a node keeps may not be there yet.
			if _, err := os.Stat(m.source); errors.Is(err, fs.ErrNotExist) {
				if err := os.MkdirAll(m.source, 0o755); err != nil {
					return fmt.Errorf("making %s: %w", m.source, err)
				}
			}
		}
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("making /%s: %w", m.target, err)
		}
		if err := unix.Mount(m.source, target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting /%s: %w", m.target, err)
		}
	}
	return nil
}

func makeDirs(root string, dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("making /%s: %w", d, err)
		}
	}
	return nil
}

func makeDev(root string) error {
	if err := makeDirs(root, "dev/net"); err != nil {
		return err
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	for name, number := range charDevices() {
		if err := unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(number)); err != nil {
			return fmt.Errorf("making /dev/%s: %w", name, err)
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil {
			return fmt.Errorf("making /dev/%s: %w", name, err)
		}
	}
	return nil
}

// copyEtc copies what programs from the machine's /usr look for in /etc.
func copyEtc(root string) error {
	for _, name := range []string{"passwd", "group", "nsswitch.conf"} {
		b, err := os.ReadFile(filepath.Join("/etc", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copying /etc/%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(root, "etc", name), b, 0o644); err != nil {
			return fmt.Errorf("copying /etc/%s: %w", name, err)
		}
	}
	return copyLinks("/etc/alternatives", filepath.Join(root, "etc/alternatives"))
}

// copyLinks copies a directory of symbolic links.
func copyLinks(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(from, e.Name()))
		if err != nil {
			continue // not a link: nothing that programs go through
		}
		if err := os.Symlink(target, filepath.Join(to, e.Name())); err != nil {
			return fmt.Errorf("copying %s: %w", from, err)
		}
	}
	return nil
}

// maskTunables covers the machine's kernel settings with files of the node.
func maskTunables(root string) error {
	for name, value := range tunables() {
		path := filepath.Join(root, "run/lab/sys", name)
		if err := writeFiles("", []file{{path, 0o644, []byte(value + "\n")}}); err != nil {
			return err
		}
		if err := unix.Mount(path, filepath.Join(root, "proc/sys", name), "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("covering /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}

// enter makes root the root of this mount namespace and lets go of the old one.
func enter(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	if err := unix.PivotRoot(".", ".old"); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	if err := unix.Unmount("/.old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("letting go of the machine's root: %w", err)
	}
	if err := os.Remove("/.old"); err != nil {
		return fmt.Errorf("letting go of the machine's root: %w", err)
	}
	// Pods with mount propagation need a shared tree, as systemd makes it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the node's mounts with its pods: %w", err)
	}
	return nil
}
