package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Kinds of content.
const (
	Blank   = "blank"
	CephOSD = "ceph-osd"
	Other   = "other"
)

// Content is what is on a disk.
type Content struct {
	Kind      string `json:"kind"`                // Blank, CephOSD or Other
	Signature string `json:"signature,omitempty"` // of Other: "xfs", "LVM2", ...
	OSD       string `json:"osd,omitempty"`       // of CephOSD: its id; "" when the label has none yet
	OSDUUID   string `json:"osdUUID,omitempty"`
	FSID      string `json:"fsid,omitempty"` // the cluster's
}

// String is the content in a few words.
func (c Content) String() string {
	switch c.Kind {
	case CephOSD:
		id := c.OSD
		if id == "" {
			id = "?"
		}
		return fmt.Sprintf("osd.%s of %s", id, c.FSID)
	case Other:
		return c.Signature
	default:
		return c.Kind
	}
}

// probeBytes is how much of the beginning is looked at: all signatures known
// here are in it, and a disk that is zero so far counts as blank.
const probeBytes = 1 << 20

// signatures are marks at fixed offsets.
var signatures = []struct {
	name   string
	offset int
	magic  string
}{
	{"LUKS", 0, "LUKS\xba\xbe"},
	{"xfs", 0, "XFSB"},
	{"LVM2", 512, "LABELONE"},
	{"GPT", 512, "EFI PART"},
	{"ext4", 1080, "\x53\xef"},
	{"btrfs", 0x10040, "_BHRfS_M"},
	{"partition table", 510, "\x55\xaa"},
}

// Identify says what is on the device by its beginning.
func Identify(r io.ReaderAt) (Content, error) {
	buf := make([]byte, probeBytes)
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Content{}, fmt.Errorf("reading the beginning of the disk: %w", err)
	}
	buf = buf[:n]
	if label, err := parseLabel(buf); err == nil {
		return Content{Kind: CephOSD, OSD: label.meta["whoami"], FSID: label.meta["ceph_fsid"], OSDUUID: label.uuid}, nil
	} else if !errors.Is(err, errNoLabel) {
		return Content{Kind: Other, Signature: "broken Ceph label"}, nil
	}
	for _, s := range signatures {
		end := s.offset + len(s.magic)
		if end <= len(buf) && string(buf[s.offset:end]) == s.magic {
			return Content{Kind: Other, Signature: s.name}, nil
		}
	}
	if len(bytes.TrimLeft(buf, "\x00")) == 0 {
		return Content{Kind: Blank}, nil
	}
	return Content{Kind: Other, Signature: "unknown data"}, nil
}

// labelMagic begins a BlueStore device; the OSD's UUID in text and a newline
// follow, and then the label in Ceph's encoding.
const labelMagic = "bluestore block device\n"

var errNoLabel = errors.New("no BlueStore label")

type label struct {
	uuid string
	size uint64
	meta map[string]string
}

// parseLabel decodes a BlueStore label: after the text come a version, a
// compatible version and a length, the UUID in binary, the size, the time of
// birth, a description, and a map of strings.
func parseLabel(b []byte) (label, error) {
	rest, ok := bytes.CutPrefix(b, []byte(labelMagic))
	if !ok {
		return label{}, errNoLabel
	}
	const uuidText = 36
	if len(rest) < uuidText+1 || rest[uuidText] != '\n' {
		return label{}, errors.New("the UUID of the BlueStore label is cut off")
	}
	text := string(rest[:uuidText])
	d := decoder{b: rest[uuidText+1:]}
	d.take(1 + 1) // version, compatible version
	d.b = d.take(int(d.u32()))
	uuid := hex.EncodeToString(d.take(16))
	l := label{uuid: text, meta: map[string]string{}}
	l.size = d.u64()
	d.take(8)    // time of birth
	_ = d.text() // description
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		key := d.text()
		l.meta[key] = d.text()
	}
	if d.err != nil {
		return label{}, d.err
	}
	if uuid != strings.ReplaceAll(strings.ToLower(text), "-", "") {
		return label{}, fmt.Errorf("the BlueStore label names two UUIDs: %s and %s", text, uuid)
	}
	return l, nil
}

// decoder reads Ceph's little-endian encoding; after the first error it reads
// zeroes.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.b)) {
		d.err = fmt.Errorf("the BlueStore label is cut off: %d bytes wanted, %d there", n, len(d.b))
	}
	if d.err != nil {
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u32() uint32 {
	b := d.take(4)
	if d.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (d *decoder) u64() uint64 {
	b := d.take(8)
	if d.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (d *decoder) text() string { return string(d.take(int(d.u32()))) }
