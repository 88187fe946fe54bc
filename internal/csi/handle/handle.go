// Package handle reads and writes the handles of Ceph CSI volumes, snapshots and
// volume groups: the strings that stand in spec.csi.volumeHandle of a
// PersistentVolume and that tell a driver where a volume is.
//
//	0001-000f-primary-cluster-0000000000000001-b0285c97-a0ce-11eb-8c66-0242ac110002
//	VVVV-LLLL-<cluster id>----PPPPPPPPPPPPPPPP-<uuid, 36 bytes>
//
// V is the version of the format, L the length of the cluster id in bytes, P the
// id of the pool (RBD, NVMe-oF) or of the file system (CephFS, NFS), all in
// hexadecimal, big endian. The package accepts exactly what the drivers accept
// and must not be stricter: a handle that a driver can use must be readable here.
// It knows nothing of clusters or of what a handle refers to.
package handle

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Limits of the format, in bytes. The drivers use the same: 128 is the longest id
// that the CSI specification allows.
const (
	// MaxLen is the longest handle.
	MaxLen = 128
	// FixedLen is the length of everything but the cluster id.
	FixedLen = 64
	// MaxClusterID is the longest cluster id.
	MaxClusterID = MaxLen - FixedLen
	// UUIDLen is the length of the last part.
	UUIDLen = 36

	// header is VVVV-LLLL-, location is -PPPPPPPPPPPPPPPP, both as they stand around
	// the cluster id; one more separator is before the UUID.
	header   = 10
	location = 17
)

// Version is the version of the format that drivers write.
const Version uint16 = 1

// Errors of Parse and String. The errors returned wrap one of them and say more.
var (
	ErrTooShort = errors.New("shorter than the fixed parts of a handle")
	ErrSize     = errors.New("the parts do not add up to the length of the handle")
	ErrHex      = errors.New("not hexadecimal")
	ErrTooLong  = errors.New("longer than a handle can be")
	ErrUUID     = errors.New("the last part of a handle has 36 bytes")
)

// Handle is what a handle says.
type Handle struct {
	// Version of the format: 1 for all that drivers write. Other values are kept.
	Version uint16
	// ClusterID is the name of the client profile, at most MaxClusterID bytes.
	ClusterID string
	// Pool is the id of the pool, or of the file system for CephFS and NFS.
	Pool int64
	// UUID is the unique part. The drivers do not look into it.
	UUID string
}

// Parse reads a handle. Like the drivers it takes hexadecimal digits in either
// case and checks neither the separators nor the content of the UUID. An id that
// was not made by a driver, as that of a static PersistentVolume, is an error.
func Parse(s string) (Handle, error) {
	if len(s) < FixedLen {
		return Handle{}, fmt.Errorf("parsing handle %q: %d bytes: %w (%d)", s, len(s), ErrTooShort, FixedLen)
	}
	version, err := number(s[0:4])
	if err != nil {
		return Handle{}, fmt.Errorf("parsing handle %q: version: %w", s, err)
	}
	length, err := number(s[5:9])
	if err != nil {
		return Handle{}, fmt.Errorf("parsing handle %q: length of the cluster id: %w", s, err)
	}
	n, rest := int(length), s[header:]
	if len(rest) < n+location {
		return Handle{}, fmt.Errorf("parsing handle %q: a cluster id of %d bytes: %w", s, n, ErrSize)
	}
	cluster, rest := rest[:n], rest[n:]
	pool, err := number(rest[1:location])
	if err != nil {
		return Handle{}, fmt.Errorf("parsing handle %q: pool id: %w", s, err)
	}
	if rest = rest[location:]; len(rest) != 1+UUIDLen {
		return Handle{}, fmt.Errorf("parsing handle %q: %d bytes after the pool id: %w", s, len(rest), ErrSize)
	}
	return Handle{
		Version:   uint16(version), // 4 digits
		ClusterID: cluster,
		Pool:      int64(pool), // the format stores a signed number in 64 bits
		UUID:      rest[1:],
	}, nil
}

// number reads up to 16 hexadecimal digits.
func number(s string) (uint64, error) {
	raw, err := hex.DecodeString(s)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrHex, err)
	}
	var buf [8]byte
	copy(buf[8-len(raw):], raw)
	return binary.BigEndian.Uint64(buf[:]), nil
}

// Compose writes a handle, with hexadecimal digits in lower case. It is an error
// if the result would be longer than MaxLen or the UUID is not UUIDLen long.
func (h Handle) Compose() (string, error) {
	if len(h.UUID) != UUIDLen {
		return "", fmt.Errorf("composing a handle: uuid %q has %d bytes: %w", h.UUID, len(h.UUID), ErrUUID)
	}
	if len(h.ClusterID) > MaxClusterID {
		return "", fmt.Errorf("composing a handle: cluster id %q has %d bytes, which makes %d: %w (%d)",
			h.ClusterID, len(h.ClusterID), len(h.ClusterID)+FixedLen, ErrTooLong, MaxLen)
	}
	return fmt.Sprintf("%04x-%04x-%s-%016x-%s", h.Version, len(h.ClusterID), h.ClusterID, uint64(h.Pool), h.UUID), nil
}
