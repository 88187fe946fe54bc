package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/run"
)

const (
	// minSize is what ceph-volume demands of a device: 5 GiB.
	minSize = 5 << 30
	// replacedHeader is what ceph-volume writes at the head of a device that it is
	// told will be replaced (BEING_REPLACED_HEADER).
	replacedHeader = "CEPH_DEVICE_BEING_REPLACED"
	// blkidNothing is blkid's exit code when it finds no signature.
	blkidNothing = 2
)

// evidence is what a device was asked in order to tell whether it is blank.
type evidence struct {
	device device.Device
	// signatures are the tags that blkid's probing of the device itself has found.
	signatures map[string]string
	// head is its first block.
	head []byte
	// parentHead is that of the disk below a partition, nil elsewhere.
	parentHead []byte
	holders    []string
	// busy says that somebody has it open for himself.
	busy bool
	// usb says that it is plugged in by USB.
	usb bool
}

// Inventory asks whether a device may be made an OSD, afresh: nothing that an
// earlier look has found is used. It finds what `ceph-volume inventory` finds, by
// the same means and with its words, and more, without its Python process: signatures
// by blkid's low-level probing, which also finds what lies at the end of a device
// (backup partition tables, RAID members), holders, and who has it open.
//
// What could not be asked is an error, never an available device.
func (n Node) Inventory(ctx context.Context, path string) (device.Inventory, error) {
	e, err := n.evidence(ctx, path)
	if err != nil {
		return device.Inventory{}, fmt.Errorf("inspecting %s: %w", path, err)
	}
	return judge(e), nil
}

func (n Node) evidence(ctx context.Context, path string) (evidence, error) {
	var e evidence
	out, err := n.Run.Run(ctx, "lsblk", "--json", "--bytes", "--output", device.LsblkColumns, path)
	if err != nil {
		return e, err
	}
	devices, err := device.ParseLsblk(out)
	if err != nil {
		return e, err
	}
	i := slices.IndexFunc(devices, func(d device.Device) bool { return d.Path == path || "/dev/"+d.Name == path })
	if i < 0 {
		return e, errors.New("lsblk's answer is about something else")
	}
	e.device = devices[i]
	udev, err := os.ReadFile(filepath.Join(n.Root, "run/udev/data", "b"+e.device.MajMin))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("reading udev's data: %w", err)
	}
	device.ApplyUdev(&e.device, udev)
	e.usb = bytes.Contains(udev, []byte("E:ID_BUS=usb\n"))
	if e.holders, err = n.holders(e.device.Name); err != nil {
		return e, err
	}
	if e.head, err = n.head(ctx, path); err != nil {
		return e, err
	}
	if e.device.Type == device.Partition {
		if e.parentHead, err = n.parentHead(ctx, e.device.Name); err != nil {
			return e, err
		}
	}
	if e.busy, err = n.busy(path); err != nil {
		return e, err
	}
	e.signatures, err = n.probe(ctx, path)
	return e, err
}

// probe asks blkid what lies on the device itself, without its cache.
func (n Node) probe(ctx context.Context, path string) (map[string]string, error) {
	out, err := n.Run.Run(ctx, "blkid", "-p", "-o", "export", path)
	if err != nil && (run.Exit(err) != blkidNothing || len(bytes.TrimSpace(out)) > 0) {
		// Several signatures at once are an error too (exit code 8).
		return nil, fmt.Errorf("looking for signatures: %w", err)
	}
	tags := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			tags[k] = v
		}
	}
	return tags, nil
}

// holders are the kernel names of what is built on a device (LVM, RAID, dm-crypt).
func (n Node) holders(name string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(n.Root, "sys/class/block", name, "holders"))
	if err != nil {
		return nil, fmt.Errorf("finding what is built on it: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// busy reports whether the device cannot be opened exclusively: it is mounted, used
// for swap, or part of something. Nothing is written.
func (n Node) busy(path string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(n.Root, path), os.O_RDONLY|unix.O_EXCL, 0) //nolint:gosec // a device of this node, as lsblk names it
	if errors.Is(err, syscall.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening it for ourselves: %w", err)
	}
	return false, f.Close()
}

// parentHead is the first block of the disk that a partition lies on.
func (n Node) parentHead(ctx context.Context, partition string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(n.Root, "sys/class/block", partition))
	if err != nil {
		return nil, fmt.Errorf("finding the disk of the partition: %w", err)
	}
	return n.head(ctx, "/dev/"+filepath.Base(filepath.Dir(real)))
}

// head reads the first block of a device, and gives up on one that does not answer.
func (n Node) head(ctx context.Context, path string) ([]byte, error) {
	doing := "reading the head of " + path
	return InTime(ctx, doing, readTimeout, func() ([]byte, error) {
		f, err := os.Open(filepath.Join(n.Root, path)) //nolint:gosec // the path is of a device that the kernel lists
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		defer func() { _ = f.Close() }()
		b := make([]byte, label.Size)
		if _, err := io.ReadFull(f, b); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		return b, nil
	}, nil)
}

// judge says what the evidence comes to. Where ceph-volume knows a reason, the words
// are its own.
func judge(e evidence) device.Inventory {
	var why []string
	add := func(bad bool, reason string) {
		if bad {
			why = append(why, reason)
		}
	}
	d := e.device
	switch d.Type {
	case device.Disk, device.Partition, device.LVM, device.Loop, device.Multipath:
	default:
		add(true, "Device type is not acceptable. It should be raw device or partition")
	}
	add(d.Size < minSize, device.InsufficientSpace)
	add(d.ReadOnly, "read-only")
	add(e.usb, "id_bus")
	add(e.busy, "locked")
	add(len(d.Mounts) > 0, "Has a mounted FileSystem")
	add(len(e.holders) > 0, "Has holders: "+strings.Join(e.holders, ", "))
	add(len(d.Children) > 0, "Has partitions")

	_, err := label.Parse(e.head)
	add(!errors.Is(err, label.ErrNone), "Has BlueStore device label")
	if e.parentHead != nil {
		_, err := label.Parse(e.parentHead)
		add(!errors.Is(err, label.ErrNone), "Parent has BlueStore device label")
	}
	replaced := bytes.HasPrefix(e.head, []byte(replacedHeader))
	add(replaced, "Is being replaced")

	table, kind := e.signatures["PTTYPE"], e.signatures["TYPE"]
	if d.Type != device.Partition {
		add(table == "gpt" || d.PartTable == "gpt", "Has GPT headers")
		add(table != "" && table != "gpt", "Has a "+table+" partition table")
		add(table == "" && d.PartTable != "" && d.PartTable != "gpt", "Has a "+d.PartTable+" partition table")
	} else {
		add(table != "", "Has a "+table+" partition table")
		// ceph-disk named its partitions "ceph data", and its types end like a word.
		add(strings.Contains(e.signatures["PART_ENTRY_NAME"], "ceph") || strings.Contains(e.signatures["PART_ENTRY_TYPE"], "ceff"), "Used by ceph-disk")
	}
	lvm := kind == "LVM2_member" || d.FSType == "LVM2_member"
	add(lvm, "LVM detected")
	add(!lvm && (kind != "" || d.FSType != "" || e.signatures["USAGE"] != ""), "Has a FileSystem")
	slices.Sort(why)
	return device.Inventory{Available: len(why) == 0, Rejected: why, BeingReplaced: replaced}
}
