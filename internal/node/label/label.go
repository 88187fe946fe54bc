// Package label reads the label that BlueStore keeps at the head of a device:
// which OSD of which cluster it belongs to. It is how an OSD's disk is
// recognised, whatever name the kernel has given it today.
//
// It never writes to a device, and the OSD's key, which the label holds too, leaves it
// only as the file in the OSD's directory (WriteDir).
package label

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Size is what must be read from the start of a device: BlueStore's label block
// (BDEV_LABEL_BLOCK_SIZE).
const Size = 4096

// Copies are the offsets in bytes at which BlueStore keeps further copies of its label
// since Squid (BlueStore's bdev_label_positions), where the device reaches that far.
func Copies() []int64 { return []int64{1 << 30, 10 << 30, 100 << 30, 1000 << 30} }

const magic = "bluestore block device\n"

// ErrNone says that there is no BlueStore label. It says nothing about what
// else may be on the device.
var ErrNone = errors.New("no BlueStore label")

// Label is what a device says of itself.
type Label struct {
	// UUID of the OSD, of its data as of its DB and WAL.
	UUID string
	// Size in bytes when the label was written: smaller than the device after
	// the device has grown.
	Size uint64
	Made time.Time
	// Description is "main" for data, "bluefs db", "bluefs wal".
	Description string
	// FSID of the cluster and ID of the OSD; only data devices carry them. ID is
	// -1 where absent.
	FSID string
	ID   int
	// Ready is set once mkfs has finished.
	Ready bool
}

// Data reports whether the label is of an OSD's main device.
func (l Label) Data() bool { return l.Description == "main" }

// Parse reads a label from the first Size bytes of a device.
func Parse(block []byte) (Label, error) {
	l, _, err := parse(block)
	return l, err
}

// parse also gives the values of the label by name. The OSD's key is one of them.
func parse(block []byte) (Label, map[string]string, error) {
	if len(block) < len(magic)+37 || string(block[:len(magic)]) != magic {
		return Label{}, nil, ErrNone
	}
	l := Label{UUID: string(block[len(magic) : len(magic)+36]), ID: -1}
	r := reader{b: block[len(magic)+37:]}
	r.u8() // version of the structure
	r.u8() // oldest version that can read it
	size := r.u32()
	if r.err == nil && int(size) <= len(r.b) {
		r.b = r.b[:size]
	}
	r.take(16) // the uuid again, as bytes
	l.Size = r.u64()
	sec, nsec := r.u32(), r.u32()
	l.Made = time.Unix(int64(sec), int64(nsec)).UTC()
	l.Description = r.str()
	meta := map[string]string{}
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		k := r.str()
		meta[k] = r.str()
	}
	if r.err != nil {
		return Label{}, nil, fmt.Errorf("reading the BlueStore label: %w", r.err)
	}
	l.FSID, l.Ready = meta["ceph_fsid"], strings.TrimSpace(meta["ready"]) == "ready"
	if who, ok := meta["whoami"]; ok {
		id, err := strconv.Atoi(strings.TrimSpace(who))
		if err != nil || id < 0 {
			return Label{}, nil, fmt.Errorf("reading the BlueStore label: whoami is %q", who)
		}
		l.ID = id
	}
	return l, meta, nil
}

// Read reads the label of an open device.
func Read(dev io.ReaderAt) (Label, error) {
	block, err := head(dev)
	if err != nil {
		return Label{}, err
	}
	return Parse(block)
}

func head(dev io.ReaderAt) ([]byte, error) {
	block := make([]byte, Size)
	n, err := dev.ReadAt(block, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the first %d bytes: %w", Size, err)
	}
	return block[:n], nil
}

// reader takes Ceph's encoding apart: little endian, strings with a length.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b) {
		r.err = io.ErrUnexpectedEOF
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u8() uint8 {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if p := r.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if p := r.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (r *reader) str() string { return string(r.take(int(r.u32()))) }
