// Package mconsole speaks the management console protocol of User Mode Linux:
// one datagram with a command to the kernel's Unix socket, one or more
// datagrams with the answer. Disks are plugged and pulled by it.
//
// It must not know what a command means to a guest, and it has no state.
package mconsole

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The protocol as the kernel's arch/um/drivers/mconsole.h lays it out, in the
// machine's byte order.
const (
	magic   = 0xcafebabe
	version = 2
	maxData = 512
	// header is the length of magic, version and length in a request, and of
	// error, more and length in a reply.
	header = 12
)

// maxSocketPath is what fits into sockaddr_un with its closing zero.
const maxSocketPath = 107

// CommandError is the kernel's refusal of a command.
type CommandError struct {
	Command string // what was asked
	Message string // what the kernel answered
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("management console, %q: %s", e.Command, e.Message)
}

// Call sends a command to the kernel that listens at socket and returns its
// answer. Answers are awaited until ctx ends. A refusal is a *CommandError.
func Call(ctx context.Context, socket, command string) (string, error) {
	req, err := encode(command)
	if err != nil {
		return "", err
	}
	conn, cleanup, err := dial(socket)
	if err != nil {
		return "", fmt.Errorf("connecting to the management console: %w", err)
	}
	defer cleanup()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(req); err != nil {
		return "", fmt.Errorf("management console, %q: %w", command, ctxOr(ctx, err))
	}
	answer, refused, err := collect(func() ([]byte, error) {
		buf := make([]byte, header+64<<10)
		n, err := conn.Read(buf)
		return buf[:n], err
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("management console, %q: %w", command, ctxOr(ctx, err))
	case refused:
		return "", &CommandError{Command: command, Message: answer}
	}
	return answer, nil
}

// dial binds a socket of its own beside the kernel's, since the kernel answers
// to the sender's path: an abstract name would be another network namespace's.
func dial(socket string) (*net.UnixConn, func(), error) {
	dir, err := os.MkdirTemp(filepath.Dir(socket), "c")
	if err != nil {
		return nil, nil, err
	}
	own := filepath.Join(dir, "s")
	if len(own) > maxSocketPath || len(socket) > maxSocketPath {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("the path %s is too long for a socket", own)
	}
	conn, err := net.DialUnix("unixgram",
		&net.UnixAddr{Name: own, Net: "unixgram"}, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return conn, func() {
		_ = conn.Close()
		_ = os.RemoveAll(dir)
	}, nil
}

// encode makes the datagram of a command. The kernel cuts at 512 bytes
// silently, so a longer command is an error here.
func encode(command string) ([]byte, error) {
	if len(command) >= maxData {
		return nil, fmt.Errorf("management console command of %d bytes: the kernel takes %d", len(command), maxData-1)
	}
	if command == "" || strings.ContainsRune(command, 0) {
		return nil, errors.New("management console command is empty or holds a zero byte")
	}
	buf := make([]byte, header+maxData)
	binary.NativeEndian.PutUint32(buf[0:], magic)
	binary.NativeEndian.PutUint32(buf[4:], version)
	binary.NativeEndian.PutUint32(buf[8:], uint32(len(command)))
	copy(buf[header:], command)
	return buf, nil
}

// collect joins the answer's datagrams.
func collect(next func() ([]byte, error)) (answer string, refused bool, err error) {
	var sb strings.Builder
	for {
		p, err := next()
		if err != nil {
			return "", false, err
		}
		data, failed, more, err := decode(p)
		if err != nil {
			return "", false, err
		}
		sb.Write(data)
		refused = refused || failed
		if !more {
			return strings.TrimSpace(sb.String()), refused, nil
		}
	}
}

// decode takes one datagram of an answer apart.
func decode(p []byte) (data []byte, failed, more bool, err error) {
	if len(p) < header {
		return nil, false, false, fmt.Errorf("answer of %d bytes is shorter than its header", len(p))
	}
	failed = binary.NativeEndian.Uint32(p[0:]) != 0
	more = binary.NativeEndian.Uint32(p[4:]) != 0
	n := int(binary.NativeEndian.Uint32(p[8:]))
	if n < 0 || n > len(p)-header {
		return nil, false, false, fmt.Errorf("answer says %d bytes and has %d", n, len(p)-header)
	}
	data = p[header : header+n]
	// The kernel counts the closing zero of a string in some answers.
	return []byte(strings.TrimRight(string(data), "\x00")), failed, more, nil
}

func ctxOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
