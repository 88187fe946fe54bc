package asok

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve answers one connection as a daemon does.
func serve(t *testing.T, reply func(cmd string) []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.asok")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			_, _ = c.Write(reply(string(buf[:n])))
			_ = c.Close()
		}
	}()
	return path
}

func framed(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestAsk(t *testing.T) {
	var got string
	path := serve(t, func(cmd string) []byte { got = cmd; return framed(`{"state":"leader"}`) })
	out, err := Ask(path, "mon_status", time.Minute)
	if err != nil || string(out) != `{"state":"leader"}` {
		t.Fatalf("Ask = %s, %v", out, err)
	}
	if want := `{"format":"json","prefix":"mon_status"}` + "\x00"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestAskFails(t *testing.T) {
	cases := map[string]func(string) []byte{
		"cut off": func(string) []byte { return framed(`{"state":"leader"}`)[:9] },
		"no size": func(string) []byte { return []byte{0, 0} },
		"too big": func(string) []byte { return []byte{0xff, 0xff, 0xff, 0xff} },
	}
	for name, reply := range cases {
		if out, err := Ask(serve(t, reply), "status", time.Minute); err == nil {
			t.Errorf("%s: got %q and no error", name, out)
		}
	}
	if _, err := Ask(filepath.Join(t.TempDir(), "none"), "status", time.Minute); err == nil {
		t.Error("a socket that does not exist answers")
	}
}

// A long answer comes in pieces, each after a while: the time is for all of it.
func TestALongAnswerComesInPieces(t *testing.T) {
	body := `["` + strings.Repeat("x", 1<<20) + `"]`
	out, err := Ask(serve(t, func(string) []byte { return framed(body) }), "status", time.Minute)
	if err != nil || string(out) != body {
		t.Fatalf("Ask = %d bytes, %v", len(out), err)
	}
}

// hang is a daemon that takes connections, or does not even that, and says at most a byte
// every now and then.
func hang(t *testing.T, backlog int, drip bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.asok")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if drip {
		go func() {
			c, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			defer func() { _ = unix.Close(c) }()
			for _, err = unix.SendmsgN(c, []byte{0, 1, 0, 0}, nil, nil, unix.MSG_NOSIGNAL); err == nil; {
				time.Sleep(10 * time.Millisecond)
				_, err = unix.SendmsgN(c, []byte{'x'}, nil, nil, unix.MSG_NOSIGNAL)
			}
		}()
	}
	return path
}

func TestADaemonThatHangsEndsWithTheDeadline(t *testing.T) {
	full := hang(t, 0, false)
	for range 2 { // what the kernel queues for a backlog of 0, and one more
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: full}); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{
		"says nothing": hang(t, 5, false), "says a byte now and then": hang(t, 5, true), "takes no connection": full,
	} {
		start := time.Now()
		_, err := Ask(path, "status", 100*time.Millisecond)
		if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took < 100*time.Millisecond || took > 3*time.Second {
			t.Errorf("%s: err = %v after %v", name, err, took)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %q does not say who was asked", name, err)
		}
	}
}
