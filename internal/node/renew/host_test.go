package renew

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/device"
)

// file is a device of n bytes in a directory that stands for "/".
func file(t *testing.T, n int64) (Host, string) {
	t.Helper()
	h := Host{Root: t.TempDir()}
	p := filepath.Join(h.Root, "disk")
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>9)
	}
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return h, p
}

func TestProbeKeepsWhatIsThere(t *testing.T) {
	for _, size := range []int64{1 << 20, 8 << 20, 8<<20 + 512} {
		h, p := file(t, size)
		before, _ := os.ReadFile(p)
		if err := h.Probe(t.Context(), "/disk"); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if after, _ := os.ReadFile(p); !bytes.Equal(before, after) {
			t.Errorf("%d bytes: the content has changed", size)
		}
	}
	h, _ := file(t, 4096)
	if err := h.Probe(t.Context(), "/disk"); err == nil {
		t.Error("a disk of 4 KiB was found good")
	}
	if err := h.Probe(t.Context(), "/none"); err == nil {
		t.Error("no disk was found good")
	}
}

func TestHead(t *testing.T) {
	h, p := file(t, 8192)
	all, _ := os.ReadFile(p)
	head, err := h.Head(t.Context(), "/disk")
	if err != nil || !bytes.Equal(head, all[:HeadSize]) {
		t.Errorf("%d bytes, %v", len(head), err)
	}
	h, _ = file(t, 100)
	if _, err := h.Head(t.Context(), "/disk"); err == nil {
		t.Error("a head of 100 bytes was taken for whole")
	}
}

// What is erased is asked of the device that is opened: another disk may have the name.
func TestErase(t *testing.T) {
	mine := func(uuid string) bool { return uuid == oldID }
	for name, c := range map[string]struct {
		head   []byte
		erased bool
	}{
		"ours": {labelOf(oldID, 5, true), true}, "ours, just begun": {labelOf(oldID, -1, false), true},
		"another OSD": {labelOf(sibID, 6, true), false}, "no label": {[]byte("something else"), false}, "a blank disk": {make([]byte, HeadSize), false},
	} {
		size := int64(1 << 20)
		if c.erased {
			size = 20<<20 + 512
		}
		h, p := file(t, size)
		before, _ := os.ReadFile(p)
		copy(before, append(c.head, make([]byte, HeadSize-len(c.head))...))
		if err := os.WriteFile(p, before, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.Erase(t.Context(), "/disk", mine); (err == nil) != c.erased {
			t.Errorf("%s: %v", name, err)
		}
		after, _ := os.ReadFile(p)
		switch {
		case !c.erased && !bytes.Equal(after, before):
			t.Errorf("%s was written to", name)
		case c.erased && (!bytes.Equal(after[:eraseSize], make([]byte, eraseSize)) || !bytes.Equal(after[eraseSize:], before[eraseSize:])):
			t.Errorf("%s: the head is not zero, or more than the head is", name)
		}
	}
}

func TestChanged(t *testing.T) {
	h := Host{Root: t.TempDir()}
	dir := filepath.Join(h.Root, "sys/class/block/sdb")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := device.Device{Name: "sdb", Path: "/dev/sdb"}
	if err := h.Changed(d); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a disk that is gone: %v", err)
	}
	file := filepath.Join(dir, "uevent")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Changed(d); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "change" {
		t.Errorf("%q was written", got)
	}
}
