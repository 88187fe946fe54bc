// Package asok talks to a Ceph daemon through its admin socket. It is what the
// probes of all daemons use: a few microseconds, where the `ceph` tool needs a
// Python process and a third of a second. A node runs one every few seconds for each
// daemon, so a question costs plain system calls and nothing that a process would have to
// set up first.
//
// It must not interpret what a daemon says beyond what its callers ask.
package asok

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxReply bounds an answer; mon_status of a large cluster is some 100 KiB.
const maxReply = 32 << 20

// Path is where a daemon of the default cluster name puts its socket.
func Path(daemonType, id string) string {
	return "/run/ceph/ceph-" + daemonType + "." + id + ".asok"
}

// Ask sends one command to the socket at path and returns the JSON answer, which has to
// be there within the time. The protocol: the command as JSON, a zero byte; then four
// bytes of length, big endian, and the answer.
func Ask(path, prefix string, within time.Duration) ([]byte, error) {
	s, err := dial(path, time.Now().Add(within))
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	defer s.close()
	name, err := json.Marshal(prefix)
	if err != nil {
		return nil, fmt.Errorf("encoding %q: %w", prefix, err)
	}
	if err := s.send(`{"format":"json","prefix":` + string(name) + "}\x00"); err != nil {
		return nil, fmt.Errorf("asking %s for %q: %w", path, prefix, err)
	}
	var size [4]byte
	if err := s.fill(size[:]); err != nil {
		return nil, fmt.Errorf("reading the answer of %s to %q: %w", path, prefix, err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxReply {
		return nil, fmt.Errorf("reading the answer of %s to %q: %d bytes is too much", path, prefix, n)
	}
	out := make([]byte, n)
	if err := s.fill(out); err != nil {
		return nil, fmt.Errorf("reading the answer of %s to %q: %w", path, prefix, err)
	}
	return out, nil
}

// Probe is a liveness check: the daemon answers its status command within
// timeout.
func Probe(daemonType, id string, timeout time.Duration) error {
	prefix := "status"
	if daemonType == "mon" {
		prefix = "mon_status"
	}
	out, err := Ask(Path(daemonType, id), prefix, timeout)
	if err != nil {
		return err
	}
	if !json.Valid(out) {
		return fmt.Errorf("%s.%s answers %q with something that is not JSON", daemonType, id, prefix)
	}
	return nil
}

// socket is a connection whose calls block until the deadline. One of package net would
// start the runtime's poller and its threads, for a question that is over at once.
type socket struct {
	fd       int
	deadline time.Time
}

func dial(path string, deadline time.Time) (socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket{}, os.NewSyscallError("socket", err)
	}
	s := socket{fd: fd, deadline: deadline}
	// A daemon that hangs takes no connection once its queue is full.
	if err := s.do("connect", unix.SO_SNDTIMEO, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		s.close()
		return socket{}, err
	}
	return s, nil
}

func (s socket) close() { _ = unix.Close(s.fd) }

// do makes a call again until no signal interrupts it. The kernel's limits are for one call:
// each gets what is left.
func (s socket) do(name string, limit int, call func() error) error {
	for {
		left := time.Until(s.deadline)
		if left < time.Microsecond {
			return os.NewSyscallError(name, os.ErrDeadlineExceeded)
		}
		tv := unix.NsecToTimeval(left.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, limit, &tv); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		err := call()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return os.NewSyscallError(name, err)
		}
	}
}

func (s socket) send(text string) error {
	for b := []byte(text); len(b) > 0; {
		err := s.do("send", unix.SO_SNDTIMEO, func() error {
			// A daemon that has gone is an answer, and no reason to be killed by SIGPIPE.
			n, err := unix.SendmsgN(s.fd, b, nil, nil, unix.MSG_NOSIGNAL)
			b = b[max(0, n):]
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill reads until b is full.
func (s socket) fill(b []byte) error {
	for len(b) > 0 {
		n := 0
		err := s.do("read", unix.SO_RCVTIMEO, func() (err error) {
			n, err = unix.Read(s.fd, b)
			return err
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}
