package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/lab/disk"
	"golang.org/x/sys/unix"
)

// LosetupName is the name under which this program is a node's losetup.
//
// A kubelet holds the device of a block volume by a loop device over it, which
// it makes with losetup -f and removes with losetup -d. The machine's losetup
// expects a /dev in which every loop device of the kernel appears; a node's
// holds only its own.
const LosetupName = "losetup"

// losetupDir holds losetup and the control device, out of the way of pods.
const losetupDir = "opt/lab"

func installLosetup(root string) error {
	dir := filepath.Join(root, losetupDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("installing losetup: %w", err)
	}
	// The program that is the node's init is this one.
	if err := os.Symlink("/proc/1/exe", filepath.Join(dir, LosetupName)); err != nil {
		return fmt.Errorf("installing losetup: %w", err)
	}
	control := unix.Mkdev(10, 237) // of /dev/loop-control (Linux, devices.txt)
	if err := unix.Mknod(filepath.Join(dir, "loop-control"), unix.S_IFCHR|0o600, int(control)); err != nil {
		return fmt.Errorf("installing losetup: %w", err)
	}
	return nil
}

// Losetup does what a kubelet asks of losetup: "-f FILE" attaches, "-d DEVICE"
// detaches.
func Losetup(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("this losetup knows -f FILE and -d DEVICE, not %q", args)
	}
	dir := filepath.Join("/", losetupDir)
	switch args[0] {
	case "-f":
		n, err := disk.AttachKept(args[1], dir)
		if err != nil {
			return err
		}
		name := "loop" + strconv.Itoa(n)
		if err := unix.Mknod(filepath.Join("/dev", name), unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(n)))); err != nil && !errors.Is(err, fs.ErrExist) {
			return errors.Join(fmt.Errorf("making /dev/%s: %w", name, err), disk.Detach(n))
		}
		return nil
	case "-d":
		n, err := strconv.Atoi(strings.TrimPrefix(args[1], "/dev/loop"))
		if err != nil {
			return fmt.Errorf("%s is no loop device", args[1])
		}
		if err := disk.Detach(n); err != nil {
			return err
		}
		if err := os.Remove(args[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", args[1], err)
		}
		return nil
	default:
		return fmt.Errorf("this losetup knows -f FILE and -d DEVICE, not %q", args)
	}
}
