package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoLoop says that the machine cannot give out loop devices.
var ErrNoLoop = errors.New("no loop devices: /dev/loop-control is missing; load the loop module (modprobe loop) or give this container the host's /dev")

// attachTries bounds how often Attach asks again when another program took the
// free device first.
const attachTries = 64

// Loop is an attached loop device. The kernel detaches it by itself once
// nothing has it open any more, so it does not outlive the program that
// attached it and those who use it.
type Loop struct {
	Number int
	file   *os.File
}

// CheckLoop says in one line why no loop device can be had, if so.
func CheckLoop() error {
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoLoop
	}
	if err != nil {
		return fmt.Errorf("no loop devices: %w", err)
	}
	return f.Close()
}

// Attach makes a loop device over the file.
func Attach(image string) (*Loop, error) {
	return attach(image, "/dev", unix.LO_FLAGS_AUTOCLEAR)
}

// AttachKept makes a loop device over the file, with its device in dir, that
// stays until Detach: for those who attach for others, as losetup does. dir has
// a loop-control.
func AttachKept(image, dir string) (int, error) {
	l, err := attach(image, dir, 0)
	if err != nil {
		return 0, err
	}
	return l.Number, l.Close()
}

func attach(image, dir string, flags uint32) (*Loop, error) {
	back, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", image, err)
	}
	defer func() { _ = back.Close() }()
	ctl, err := os.OpenFile(filepath.Join(dir, "loop-control"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoLoop
	}
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", image, err)
	}
	defer func() { _ = ctl.Close() }()
	for range attachTries {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("asking for a free loop device: %w", err)
		}
		l, err := configure(n, image, back, dir, flags)
		if errors.Is(err, unix.EBUSY) {
			continue // another program was faster
		}
		return l, err
	}
	return nil, fmt.Errorf("attaching %s: no loop device stayed free in %d tries", image, attachTries)
}

func configure(n int, image string, back *os.File, dir string, flags uint32) (*Loop, error) {
	dev := filepath.Join(dir, "loop"+strconv.Itoa(n))
	if _, err := os.Stat(dev); errors.Is(err, fs.ErrNotExist) {
		// A /dev that the kernel does not keep (a container's).
		if err := unix.Mknod(dev, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("making %s: %w", dev, err)
		}
	}
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dev, err)
	}
	cfg := &unix.LoopConfig{Fd: uint32(back.Fd()), Info: unix.LoopInfo64{Flags: flags}}
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], image)
	if err := unix.IoctlLoopConfigure(int(f.Fd()), cfg); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("attaching %s to %s: %w", image, dev, err)
	}
	return &Loop{Number: n, file: f}, nil
}

// Close lets go of the device: it is detached at once, or when the last
// program that has it open closes it.
func (l *Loop) Close() error { return l.file.Close() }

// Fail makes every later read and write of the device beyond its first sector
// fail, for those who have it open too: the device shrinks to one sector, as
// the kernel knows no other way to break a loop device in use.
func (l *Loop) Fail() error {
	info := &unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR, Sizelimit: 512}
	if err := unix.IoctlLoopSetStatus64(int(l.file.Fd()), info); err != nil {
		return fmt.Errorf("failing loop%d: %w", l.Number, err)
	}
	return nil
}

// ReadAt reads the device, as io.ReaderAt says.
func (l *Loop) ReadAt(p []byte, off int64) (int, error) { return l.file.ReadAt(p, off) }

// Attached is a loop device that is in use on this machine.
type Attached struct {
	Number  int
	Backing string // the file behind it; the kernel adds " (deleted)" when it is gone
	Over    int    // the number of the loop device behind it; -1 when it is none
}

// ListAttached returns all loop devices in use on this machine, whoever made
// them.
func ListAttached() ([]Attached, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var out []Attached
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // detached since
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(f)))
		n, err := strconv.Atoi(strings.TrimPrefix(name, "loop"))
		if err != nil {
			return nil, fmt.Errorf("listing loop devices: unexpected name %q", name)
		}
		over, err := overLoop(n)
		if err != nil {
			continue // detached since
		}
		out = append(out, Attached{Number: n, Backing: strings.TrimSpace(string(b)), Over: over})
	}
	return out, nil
}

// overLoop is the number of the loop device that another one stands on, as
// kubelets make them to hold a block volume; -1 when it stands on something
// else.
func overLoop(n int) (int, error) {
	f, err := os.Open("/dev/loop" + strconv.Itoa(n))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return 0, err
	}
	// The kernel tells the device in the form of its own that has 20 bits for
	// the minor number or in that of stat; both agree for small numbers.
	if unix.Major(info.Rdevice) == loopMajor {
		return int(unix.Minor(info.Rdevice)), nil
	}
	return -1, nil
}

// Detach detaches a loop device that an earlier program left.
func Detach(n int) error {
	f, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("detaching loop%d: %w", n, err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detaching loop%d: %w", n, err)
	}
	return nil
}
