package asok

import (
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	out, err := Ask(t.Context(), path, "mon_status")
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
		if out, err := Ask(t.Context(), serve(t, reply), "status"); err == nil {
			t.Errorf("%s: got %q and no error", name, out)
		}
	}
	if _, err := Ask(t.Context(), filepath.Join(t.TempDir(), "none"), "status"); err == nil {
		t.Error("a socket that does not exist answers")
	}
}

func TestADaemonThatHangsEndsWithTheDeadline(t *testing.T) {
	path := serve(t, func(string) []byte { time.Sleep(3 * time.Second); return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Ask(ctx, path, "status")
	if err == nil || time.Since(start) > time.Second {
		t.Errorf("err = %v after %v", err, time.Since(start))
	}
	if err != nil && !strings.Contains(err.Error(), "status") {
		t.Errorf("error %q does not say what was asked", err)
	}
}
