package discover

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// kernelGroup is the group in which the kernel itself sends its events; every
// network namespace gets them, so the pod needs none of the host's.
const kernelGroup = 1

// Event is an event of the kernel about a block device.
type Event struct{ Action, Name string }

// ParseEvent reads a message of the kernel: "add@/devices/...", then KEY=value, each
// ended by a zero byte. What is not about a block device gives false.
func ParseEvent(msg []byte) (Event, bool) {
	var e Event
	block := false
	for i, part := range bytes.Split(msg, []byte{0}) {
		if i == 0 {
			if !bytes.Contains(part, []byte("@/")) {
				return Event{}, false // of udev, or of nobody we know
			}
			continue
		}
		key, value, _ := bytes.Cut(part, []byte("="))
		switch string(key) {
		case "SUBSYSTEM":
			block = string(value) == "block"
		case "ACTION":
			e.Action = string(value)
		case "DEVNAME":
			e.Name = string(bytes.TrimPrefix(value, []byte("/dev/")))
		}
	}
	return e, block && e.Name != "" && e.Action != ""
}

// Listen opens the kernel's events, and gives the names of the devices that count.
// The channel is closed when ctx ends or the kernel's socket fails.
func Listen(ctx context.Context, f Filter) (<-chan string, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("opening the kernel's events: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("hearing the kernel's events: %w", err)
	}
	// A read wakes up now and then, so that it ends with ctx.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("hearing the kernel's events: %w", err)
	}
	names := make(chan string)
	go func() {
		defer close(names)
		defer func() { _ = unix.Close(fd) }()
		hear(ctx, fd, f, names)
	}()
	return names, nil
}

// hear passes on events until ctx ends or the socket fails.
func hear(ctx context.Context, fd int, f Filter, names chan<- string) {
	buf := make([]byte, 16<<10)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		name := ""
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err == unix.ENOBUFS:
			name = "more events than could be kept" // some are lost: look at everything
		case err != nil:
			return
		default:
			if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
				continue // of a process, not of the kernel
			}
			e, ok := ParseEvent(buf[:n])
			if !ok || !f.Counts(e.Name) {
				continue
			}
			name = e.Name
		}
		select {
		case names <- name:
		case <-ctx.Done():
			return
		}
	}
}
