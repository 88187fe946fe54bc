package renew

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/activate"
	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/rawosd"
)

const (
	// probeSize is read and written at each place.
	probeSize = 1 << 20
	// ioTimeout bounds reading and writing one device. A healthy disk needs a second.
	ioTimeout = 30 * time.Second
	// align suits every disk's direct I/O.
	align = 4096
	// eraseSize covers BlueStore's label, LUKS' headers and LVM's.
	eraseSize = 16 << 20
)

// Host is the real Node. Root is "/" but for tests.
type Host struct {
	inspect.Node
	crypt.Host
	Root string
	// Raw makes plain OSDs; its notes are not used.
	Raw *rawosd.Maker
	// Keys runs what opens encrypted volumes.
	Keys activate.Runner
}

// Renew implements Node.
func (h Host) Renew(ctx context.Context, d device.Device, id int, uuid, class string) error {
	return h.Raw.Renew(ctx, d, id, uuid, class)
}

// Unlock implements Node.
func (h Host) Unlock(ctx context.Context, data device.Found) (string, error) {
	return activate.Unlock(ctx, h, h.Keys, filepath.Join(h.Root, rawosd.Dir), data)
}

// Fits implements Node.
func (h Host) Fits(ctx context.Context, data device.Found, paths ...string) error {
	return activate.Fits(ctx, h.Keys, filepath.Join(h.Root, rawosd.Dir), data, paths...)
}

// bounded runs a read or write of a device, and gives up on one that hangs: the
// goroutine then stays behind with the kernel.
func bounded(ctx context.Context, what string, f func() error) error {
	_, err := inspect.InTime(ctx, what, ioTimeout, func() (struct{}, error) {
		if err := f(); err != nil {
			return struct{}{}, fmt.Errorf("%s: %w", what, err)
		}
		return struct{}{}, nil
	}, nil)
	return err
}

// Head implements Node.
func (h Host) Head(ctx context.Context, path string) ([]byte, error) {
	var buf []byte
	err := bounded(ctx, "reading "+path, func() error {
		f, err := open(filepath.Join(h.Root, path), os.O_RDONLY)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		b := aligned(HeadSize)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		buf = bytes.Clone(b)
		return nil
	})
	return buf, err
}

// Changed implements Node.
func (h Host) Changed(d device.Device) error {
	f, err := os.OpenFile(filepath.Join(h.Root, "sys/class/block", d.Name, "uevent"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("telling udev of %s: %w", d.Path, err)
	}
	_, err = f.WriteString("change")
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("telling udev of %s: %w", d.Path, err)
	}
	return nil
}

// open opens for direct I/O, so that what is read is what is on the device; files,
// which tests use, may not have that.
func open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_DIRECT, 0) //nolint:gosec // the path is of a device that the kernel lists
	if errors.Is(err, unix.EINVAL) {
		return os.OpenFile(path, flag, 0) //nolint:gosec // as above
	}
	return f, err
}

// aligned is a buffer that direct I/O takes.
func aligned(n int) []byte {
	b := make([]byte, n+align)
	off := align - int(uintptr(unsafe.Pointer(&b[0]))%align)
	return b[off : off+n]
}

// Probe implements Node. What is written is what was read, so a disk that is not blank
// after all keeps what it holds.
func (h Host) Probe(ctx context.Context, path string) error {
	return bounded(ctx, "reading and writing "+path, func() error {
		f, err := open(filepath.Join(h.Root, path), os.O_RDWR|unix.O_EXCL)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		size -= size % align
		n := int64(probeSize)
		if size < n {
			return fmt.Errorf("it has only %d bytes", size)
		}
		buf, again := aligned(probeSize), aligned(probeSize)
		for _, at := range []int64{0, min(size/2&^(align-1), size-n), size - n} {
			if _, err := f.ReadAt(buf, at); err != nil {
				return fmt.Errorf("at byte %d: %w", at, err)
			}
			if _, err := f.WriteAt(buf, at); err != nil {
				return fmt.Errorf("at byte %d: %w", at, err)
			}
			if err := f.Sync(); err != nil {
				return fmt.Errorf("at byte %d: %w", at, err)
			}
			if _, err := f.ReadAt(again, at); err != nil {
				return fmt.Errorf("at byte %d: %w", at, err)
			}
			if !bytes.Equal(buf, again) {
				return fmt.Errorf("at byte %d: what was written is not what is read", at)
			}
		}
		return nil
	})
}

// Erase implements Node.
func (h Host) Erase(ctx context.Context, path string, ours func(uuid string) bool) error {
	return bounded(ctx, "erasing "+path, func() error {
		f, err := open(filepath.Join(h.Root, path), os.O_RDWR|unix.O_EXCL)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		size -= size % align
		head := aligned(HeadSize)
		if _, err := f.ReadAt(head, 0); err != nil {
			return fmt.Errorf("reading its label: %w", err)
		}
		switch l, err := label.Parse(head); {
		case err != nil:
			return fmt.Errorf("it is left alone: %w", err)
		case !ours(l.UUID):
			return fmt.Errorf("it is left alone: it carries osd.%d (%s)", l.ID, l.UUID)
		}
		zero := aligned(probeSize)
		for at := int64(0); at < min(size, eraseSize); at += probeSize {
			if _, err := f.WriteAt(zero[:min(probeSize, size-at)], at); err != nil {
				return err
			}
		}
		for _, at := range label.Copies() {
			if at+align > size {
				break
			}
			if _, err := f.WriteAt(zero[:align], at); err != nil {
				return err
			}
		}
		return f.Sync()
	})
}
