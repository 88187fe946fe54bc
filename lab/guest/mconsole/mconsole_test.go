package mconsole

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func answer(failed, more uint32, data string, length int) []byte {
	b := make([]byte, header)
	binary.NativeEndian.PutUint32(b[0:], failed)
	binary.NativeEndian.PutUint32(b[4:], more)
	binary.NativeEndian.PutUint32(b[8:], uint32(length))
	return append(b, data...)
}

func TestEncode(t *testing.T) {
	got, err := encode("remove ubd1")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 524 {
		t.Errorf("the request has %d bytes, the kernel reads 524", len(got))
	}
	var head []uint32
	for i := 0; i < header; i += 4 {
		head = append(head, binary.NativeEndian.Uint32(got[i:]))
	}
	if diff := cmp.Diff([]uint32{0xcafebabe, 2, 11}, head); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("remove ubd1\x00", string(got[12:24])); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "a\x00b", strings.Repeat("x", 512)} {
		if _, err := encode(bad); err == nil {
			t.Errorf("a command of %d bytes was accepted", len(bad))
		}
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name         string
		in           []byte
		data         string
		failed, more bool
		err          bool
	}{
		{name: "plain", in: answer(0, 0, "OK", 2), data: "OK"},
		{name: "zero counted", in: answer(0, 0, "OK\x00\x00", 4), data: "OK"},
		{name: "padding not counted", in: answer(0, 0, "OK....", 2), data: "OK"},
		{name: "refused", in: answer(1, 0, "no", 2), data: "no", failed: true},
		{name: "more", in: answer(0, 1, "a", 1), data: "a", more: true},
		{name: "short", in: []byte{1, 2, 3}, err: true},
		{name: "length beyond the end", in: answer(0, 0, "ab", 3), err: true},
		{name: "length negative", in: answer(0, 0, "ab", -1), err: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, failed, more, err := decode(c.in)
			if (err != nil) != c.err {
				t.Fatalf("err = %v", err)
			}
			if string(data) != c.data || failed != c.failed || more != c.more {
				t.Errorf("got %q %v %v", data, failed, more)
			}
		})
	}
}

// fakeKernel answers every datagram with the given ones.
func fakeKernel(t *testing.T, answers ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1024)
		for {
			_, from, err := conn.ReadFromUnix(buf)
			if err != nil {
				return
			}
			for _, a := range answers {
				_, _ = conn.WriteToUnix(a, from)
			}
		}
	}()
	return path
}

func TestCall(t *testing.T) {
	socket := fakeKernel(t, answer(0, 1, "OK ubd", 6), answer(0, 0, "1\n", 2))
	got, err := Call(t.Context(), socket, "config ubd1")
	if err != nil || got != "OK ubd1" {
		t.Errorf("Call = %q, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(socket), "c*"))
	if err != nil || len(left) != 0 {
		t.Errorf("Call left %v (%v)", left, err)
	}
}

func TestCallRefused(t *testing.T) {
	_, err := Call(t.Context(), fakeKernel(t, answer(1, 0, "device busy", 11)), "remove ubd1")
	var refused *CommandError
	if !errors.As(err, &refused) || refused.Message != "device busy" {
		t.Errorf("err = %v", err)
	}
}

func TestCallSilence(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Call(ctx, fakeKernel(t), "version"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

func TestCallNobodyThere(t *testing.T) {
	_, err := Call(t.Context(), filepath.Join(t.TempDir(), "m"), "version")
	var refused *CommandError
	if err == nil || errors.As(err, &refused) {
		t.Errorf("err = %v", err)
	}
}
