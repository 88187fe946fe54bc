package sanitize

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

const (
	// chunk is written at once.
	chunk = 4 << 20
	// edge is what is overwritten at both ends of a disk: BlueStore's label and
	// superblock, LVM's and LUKS' headers (LUKS2 takes up to 16 MiB), partition tables
	// and their copy, and every place that libblkid looks at.
	edge = 16 << 20
)

// method is how a disk is overwritten.
type method struct {
	complete, random bool
	iterations       int
}

func methodOf(req task.Request) (method, error) {
	m := method{complete: req.Method == task.Complete, random: req.Source == task.Random, iterations: req.Iterations}
	if !m.complete && req.Method != task.Quick || !m.random && req.Source != task.Zero || m.iterations < 1 {
		return method{}, fmt.Errorf("reading the request: method %q, source %q, iterations %d", req.Method, req.Source, req.Iterations)
	}
	return m, nil
}

// disk is an open device that nobody else holds.
type disk struct {
	f    *os.File
	size int64
}

// errHeld says that somebody uses the device.
var errHeld = errors.New("is held by somebody (mounted, mapped, or in use by a running OSD)")

// open opens a device for itself alone: the kernel refuses that for one which is
// mounted, mapped, part of a volume group, or open in an OSD.
func open(path string) (disk, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0) //nolint:gosec // the path is of a device that the kernel lists
	if errors.Is(err, syscall.EBUSY) {
		return disk{}, errHeld
	}
	if err != nil {
		return disk{}, fmt.Errorf("opening it for writing: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		err = errors.New("it has no size")
	}
	if err != nil {
		_ = f.Close()
		return disk{}, fmt.Errorf("measuring it: %w", err)
	}
	return disk{f: f, size: size}, nil
}

// wipe overwrites a disk and proves it by reading back. uuid is the OSD's. The head
// comes last of all: as long as it stands, a wipe that was cut off is found again
// and begun anew.
func (d disk) wipe(ctx context.Context, uuid string, m method) error {
	head := min(int64(edge), d.size)
	tail := max(d.size-edge, head)
	if m.complete {
		if err := d.fill(ctx, head, tail, m); err != nil {
			return err
		}
	} else if err := d.wipeCopies(ctx, uuid, head, tail); err != nil {
		return err
	}
	for _, r := range [][2]int64{{tail, d.size}, {0, head}} {
		if m.random || m.iterations > 1 {
			if err := d.fill(ctx, r[0], r[1], m); err != nil {
				return err
			}
		}
		// Zeros at the ends in any case: random data can look like a signature.
		if err := d.fill(ctx, r[0], r[1], method{iterations: 1}); err != nil {
			return err
		}
	}
	if uuid == "" {
		return nil
	}
	for _, at := range append([]int64{0}, label.Copies()...) {
		found, err := d.labelled(at, uuid)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("the label of the OSD can still be read at byte %d", at)
		}
	}
	return nil
}

// wipeCopies overwrites the copies of the label between the two ends. The places
// may as well hold other data, which says nothing of whose disk it is.
func (d disk) wipeCopies(ctx context.Context, uuid string, from, to int64) error {
	for _, at := range label.Copies() {
		if at < from || at+label.Size > to {
			continue
		}
		found, err := d.labelled(at, uuid)
		if err != nil {
			return err
		}
		if found {
			if err := d.fill(ctx, at, at+label.Size, method{iterations: 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

// labelled says whether a label of the OSD is at an offset.
func (d disk) labelled(at int64, uuid string) (bool, error) {
	if uuid == "" || at+label.Size > d.size {
		return false, nil
	}
	l, err := label.Read(io.NewSectionReader(d.f, at, label.Size))
	switch {
	case errors.Is(err, label.ErrNone):
		return false, nil
	case err != nil && at > 0:
		return false, nil // data that begins like a label
	case err != nil:
		return false, err
	}
	return l.UUID == uuid, nil
}

// fill overwrites [from, to) as often as wanted and reads the last round back.
func (d disk) fill(ctx context.Context, from, to int64, m method) error {
	if from >= to {
		return nil
	}
	for i := range m.iterations {
		src, again, err := source(m.random)
		if err != nil {
			return err
		}
		if err := d.write(ctx, src, from, to); err != nil {
			return err
		}
		if i+1 == m.iterations {
			return d.verify(ctx, again, from, to)
		}
	}
	return nil
}

// stream gives the bytes to write, in order.
type stream func(buf []byte)

// source gives a stream and the same stream once more, for reading back.
func source(random bool) (write, again stream, err error) {
	if !random {
		zero := func(buf []byte) { clear(buf) }
		return zero, zero, nil
	}
	seed := make([]byte, 32+aes.BlockSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, nil, fmt.Errorf("making random data: %w", err)
	}
	block, err := aes.NewCipher(seed[:32])
	if err != nil {
		return nil, nil, fmt.Errorf("making random data: %w", err)
	}
	begin := func() stream {
		c := cipher.NewCTR(block, seed[32:])
		return func(buf []byte) { clear(buf); c.XORKeyStream(buf, buf) }
	}
	return begin(), begin(), nil
}

func (d disk) write(ctx context.Context, src stream, from, to int64) error {
	buf := make([]byte, min(int64(chunk), to-from))
	for at := from; at < to; at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("overwriting it: %w", err)
		}
		buf = buf[:min(int64(len(buf)), to-at)]
		src(buf)
		if _, err := d.f.WriteAt(buf, at); err != nil {
			return fmt.Errorf("overwriting it: %w", err)
		}
	}
	if err := d.f.Sync(); err != nil {
		return fmt.Errorf("flushing it: %w", err)
	}
	return nil
}

// verify reads back from the disk and not from memory.
func (d disk) verify(ctx context.Context, want stream, from, to int64) error {
	if err := d.forget(); err != nil {
		return err
	}
	buf := make([]byte, min(int64(chunk), to-from))
	should := make([]byte, len(buf))
	for at := from; at < to; at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading it back: %w", err)
		}
		buf = buf[:min(int64(len(buf)), to-at)]
		should = should[:len(buf)]
		want(should)
		if _, err := d.f.ReadAt(buf, at); err != nil {
			return fmt.Errorf("reading it back: %w", err)
		}
		if !bytes.Equal(buf, should) {
			return fmt.Errorf("reading it back: what was written at byte %d is not there", at)
		}
	}
	return nil
}

// forget drops what the kernel has cached of the disk.
func (d disk) forget() error {
	if err := unix.Fadvise(int(d.f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping what is cached of it: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.f.Fd()), &st); err != nil {
		return fmt.Errorf("looking at it: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil
	}
	if err := unix.IoctlSetInt(int(d.f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("dropping what is cached of it: %w", err)
	}
	return nil
}

// close has the kernel look for partitions anew: data of BlueStore can have looked
// like a table. Not every device can have partitions.
func (d disk) close() error {
	_ = unix.IoctlSetInt(int(d.f.Fd()), unix.BLKRRPART, 0)
	return d.f.Close()
}
