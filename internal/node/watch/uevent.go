package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// kernelGroup is the multicast group of the kernel's own events (linux/netlink.h:
	// NETLINK_KOBJECT_UEVENT has one group for the kernel, 1).
	kernelGroup = 1
	// wake is how often a reader looks whether it is to end.
	wake = 500 * time.Millisecond
	// eventSize is larger than any event (UEVENT_BUFFER_SIZE is 2048 in the kernel).
	eventSize = 8 << 10
)

// Events are the kernel's events about block devices. They reach every network
// namespace of the machine, so a pod hears them too. The channel closes when ctx ends
// or the socket fails. An error says that the kernel does not let this process listen.
func Events(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listening for the kernel's events: %w", err)
	}
	tv := unix.NsecToTimeval(wake.Nanoseconds())
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup})
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listening for the kernel's events: %w", err)
	}
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		defer func() { _ = unix.Close(fd) }()
		buf := make([]byte, eventSize)
		for ctx.Err() == nil {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			switch {
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
				continue
			case err != nil && !errors.Is(err, unix.ENOBUFS):
				return
			case err == nil && !aboutDisks(buf[:n]):
				continue
			}
			// ENOBUFS: events were lost, so a look is due.
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}

// aboutDisks reports whether an event is of a block device's coming, going or change.
func aboutDisks(event []byte) bool {
	for field := range bytes.SplitSeq(event, []byte{0}) {
		if bytes.Equal(field, []byte("SUBSYSTEM=block")) {
			return true
		}
	}
	return false
}
