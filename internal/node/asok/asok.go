// Package asok talks to a Ceph daemon through its admin socket. It is what the
// probes of all daemons use: a few microseconds, where the `ceph` tool needs a
// Python process and a third of a second.
//
// It must not interpret what a daemon says beyond what its callers ask.
package asok

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// maxReply bounds an answer; mon_status of a large cluster is some 100 KiB.
const maxReply = 32 << 20

// Path is where a daemon of the default cluster name puts its socket.
func Path(daemonType, id string) string {
	return fmt.Sprintf("/run/ceph/ceph-%s.%s.asok", daemonType, id)
}

// Ask sends one command to the socket at path and returns the JSON answer. The
// protocol: the command as JSON, a zero byte; then four bytes of length, big
// endian, and the answer.
func Ask(ctx context.Context, path, prefix string) ([]byte, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, fmt.Errorf("asking %s: %w", path, err)
		}
	}
	cmd, err := json.Marshal(map[string]string{"prefix": prefix, "format": "json"})
	if err != nil {
		return nil, fmt.Errorf("encoding %q: %w", prefix, err)
	}
	if _, err := conn.Write(append(cmd, 0)); err != nil {
		return nil, fmt.Errorf("asking %s for %q: %w", path, prefix, err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("reading the answer of %s to %q: %w", path, prefix, err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxReply {
		return nil, fmt.Errorf("reading the answer of %s to %q: %d bytes is too much", path, prefix, n)
	}
	out := make([]byte, n)
	if _, err := io.ReadFull(conn, out); err != nil {
		return nil, fmt.Errorf("reading the answer of %s to %q: %w", path, prefix, err)
	}
	return out, nil
}

// Probe is a liveness check: the daemon answers its status command within
// timeout.
func Probe(ctx context.Context, daemonType, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	prefix := "status"
	if daemonType == "mon" {
		prefix = "mon_status"
	}
	out, err := Ask(ctx, Path(daemonType, id), prefix)
	if err != nil {
		return err
	}
	if !json.Valid(out) {
		return fmt.Errorf("%s.%s answers %q with something that is not JSON", daemonType, id, prefix)
	}
	return nil
}
