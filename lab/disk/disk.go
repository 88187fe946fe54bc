// Package disk makes the disks of a lab's nodes: a loop device over a sparse
// file, the serial number and slot that udev would tell of it, and what is on
// it. A loop device has no serial of its own; the node's udev data says one, so
// that code which reads serials meets them.
//
// It must not know of nodes' processes or of Kubernetes: it is given the
// directory that is a node's root.
package disk

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Model is what the udev data of every disk says it is.
const Model = "CASTELLAN_LAB_DISK"

// loopMajor is the major number of loop devices (Linux, devices.txt).
const loopMajor = 7

// Disk is one disk of a node, as a person sees it.
type Disk struct {
	Slot   int    `json:"slot"`   // from 1; what it is plugged into
	Serial string `json:"serial"` // unique to the disk
	Size   int64  `json:"size"`   // bytes
	Number int    `json:"number"` // of the loop device
}

// Name is the kernel's name: "loop3".
func (d Disk) Name() string { return "loop" + strconv.Itoa(d.Number) }

// NewSerial makes up a serial number.
func NewSerial() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return "CL" + strings.ToUpper(hex.EncodeToString(b[:]))
}

// WWN is the world wide name that belongs to a serial: NAA 5, the rest from a
// hash.
func WWN(serial string) string {
	sum := sha256.Sum256([]byte(serial))
	return "0x5" + hex.EncodeToString(sum[:8])[:15]
}

// Path is what udev calls ID_PATH: the slot, in the words of an ATA port.
func (d Disk) Path() string { return fmt.Sprintf("pci-0000:00:17.0-ata-%d", d.Slot) }

// Links are the symbolic links to the device, relative to /dev.
func (d Disk) Links() []string {
	return []string{
		"disk/by-id/ata-" + Model + "_" + d.Serial,
		"disk/by-id/wwn-" + WWN(d.Serial),
		"disk/by-path/" + d.Path(),
	}
}

// UdevData is the content of /run/udev/data/b7:N for the disk. The S lines are
// how udev keeps links; DEVLINKS repeats them for what reads the file itself.
func (d Disk) UdevData() []byte {
	var b strings.Builder
	var devlinks []string
	for _, l := range d.Links() {
		_, _ = fmt.Fprintf(&b, "S:%s\n", l)
		devlinks = append(devlinks, "/dev/"+l)
	}
	b.WriteString("I:1000000\n")
	for _, kv := range [][2]string{
		{"ID_ATA", "1"},
		{"ID_BUS", "ata"},
		{"ID_MODEL", Model},
		{"ID_PATH", d.Path()},
		{"ID_PATH_TAG", strings.NewReplacer(":", "_", ".", "_").Replace(d.Path())},
		{"ID_SERIAL", Model + "_" + d.Serial},
		{"ID_SERIAL_SHORT", d.Serial},
		{"ID_TYPE", "disk"},
		{"ID_WWN", WWN(d.Serial)},
		{"DEVLINKS", strings.Join(devlinks, " ")},
	} {
		_, _ = fmt.Fprintf(&b, "E:%s=%s\n", kv[0], kv[1])
	}
	b.WriteString("G:systemd\nQ:systemd\nV:1\n")
	return []byte(b.String())
}

// Expose makes the disk appear under root, the root directory of a node: its
// device, its links and its udev data.
func Expose(root string, d Disk) error {
	data := d.dataFile(root)
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		return fmt.Errorf("making %s appear: %w", d.Name(), err)
	}
	// The data comes first: who sees the device finds what it is.
	if err := os.WriteFile(data, d.UdevData(), 0o644); err != nil {
		return fmt.Errorf("making %s appear: %w", d.Name(), err)
	}
	node := d.node(root)
	if err := os.Remove(node); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("making %s appear: %w", d.Name(), err)
	}
	if err := unix.Mknod(node, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(d.Number)))); err != nil {
		return fmt.Errorf("making %s appear: %w", node, err)
	}
	// Past the caller's umask: a group of root's is what pods expect.
	if err := os.Chmod(node, 0o660); err != nil {
		return fmt.Errorf("making %s appear: %w", node, err)
	}
	for _, l := range d.Links() {
		link := filepath.Join(root, "dev", l)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return fmt.Errorf("making %s appear: %w", d.Name(), err)
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("making %s appear: %w", d.Name(), err)
		}
		if err := os.Symlink(d.linkTarget(), link); err != nil {
			return fmt.Errorf("making %s appear: %w", d.Name(), err)
		}
	}
	return nil
}

// Hide undoes Expose. Links that have passed to another disk meanwhile stay.
func Hide(root string, d Disk) error {
	paths := []string{d.node(root), d.dataFile(root)}
	for _, l := range d.Links() {
		link := filepath.Join(root, "dev", l)
		if target, err := os.Readlink(link); err == nil && target == d.linkTarget() {
			paths = append(paths, link)
		}
	}
	var errs []error
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("making %s disappear: %w", d.Name(), err))
		}
	}
	return errors.Join(errs...)
}

func (d Disk) node(root string) string { return filepath.Join(root, "dev", d.Name()) }

func (d Disk) dataFile(root string) string {
	return filepath.Join(root, "run/udev/data", fmt.Sprintf("b%d:%d", loopMajor, d.Number))
}

// linkTarget is what the links under /dev/disk/by-* hold.
func (d Disk) linkTarget() string { return "../../" + d.Name() }

// Find returns the disk that a person means: by kernel name ("loop3",
// "/dev/loop3"), by serial, or by slot number.
func Find(disks []Disk, what string) (Disk, bool) {
	what = strings.TrimPrefix(what, "/dev/")
	for _, d := range disks {
		if what == d.Name() || strings.EqualFold(what, d.Serial) || what == strconv.Itoa(d.Slot) {
			return d, true
		}
	}
	return Disk{}, false
}

// FreeSlot is the lowest slot that no disk is in and that is not in not.
func FreeSlot(disks []Disk, not ...int) int {
	used := map[int]bool{}
	for _, d := range disks {
		used[d.Slot] = true
	}
	for _, n := range not {
		used[n] = true
	}
	slot := 1
	for used[slot] {
		slot++
	}
	return slot
}

// ParseSize reads a size as people write it: a number of bytes, or with a unit
// K, M, G, T (with or without i and B: powers of 1024). A disk is a whole
// number of 4 KiB blocks and at least 1 MiB.
func ParseSize(s string) (int64, error) {
	num := strings.TrimRight(s, "KMGTiBkmgtb ")
	unit := strings.ToUpper(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(s[len(num):]), "B"), "i"))
	shift := map[string]uint{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
	n, err := strconv.ParseInt(num, 10, 64)
	bits, known := shift[unit]
	if err != nil || !known || n <= 0 || n > (1<<50)>>bits {
		return 0, fmt.Errorf("%q is no size: say 10Gi or 500M", s)
	}
	size := n << bits &^ 4095
	if size < 1<<20 {
		return 0, fmt.Errorf("%q is too small for a disk: at least 1Mi", s)
	}
	return size, nil
}

// FormatSize writes a size in the largest unit that leaves it whole, or with
// one decimal.
func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		bits uint
	}{{"Ti", 40}, {"Gi", 30}, {"Mi", 20}, {"Ki", 10}} {
		if n >= 1<<u.bits {
			if n%(1<<u.bits) == 0 {
				return fmt.Sprintf("%d%s", n>>u.bits, u.name)
			}
			return fmt.Sprintf("%.1f%s", float64(n)/float64(int64(1)<<u.bits), u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}
