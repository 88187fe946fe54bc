package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fake is a /sys, /run and /dev in a directory.
type fake struct {
	t    *testing.T
	root string
}

func newFake(t *testing.T) fake {
	f := fake{t, t.TempDir()}
	for _, d := range []string{"sys/block", "run/udev/data", "dev"} {
		f.must(os.MkdirAll(filepath.Join(f.root, d), 0o755))
	}
	return f
}

func (f fake) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f fake) write(path, text string) {
	p := filepath.Join(f.root, path)
	f.must(os.MkdirAll(filepath.Dir(p), 0o755))
	f.must(os.WriteFile(p, []byte(text), 0o644))
}

// plug puts a disk in. The device node needs root, and so does this test.
func (f fake) plug(name string, minor int, serial string, sectors uint64) {
	f.write("sys/block/"+name+"/size", fmt.Sprintf("%d\n", sectors))
	f.write("sys/block/"+name+"/dev", fmt.Sprintf("8:%d\n", minor))
	f.write(fmt.Sprintf("run/udev/data/b8:%d", minor), "E:ID_SERIAL_SHORT="+serial+"\n")
	node := filepath.Join(f.root, "dev", name)
	_ = os.Remove(node)
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(8, uint32(minor)))); err != nil {
		f.t.Skipf("making a device node: %v", err)
	}
}

func (f fake) pull(name string) { f.must(os.RemoveAll(filepath.Join(f.root, "sys/block", name))) }

func TestDifferences(t *testing.T) {
	known := []string{"/dev/sda SA 1048576", "/dev/sdb SB 1048576"}
	for name, c := range map[string]struct {
		change func(f fake)
		want   string
	}{
		"nothing":                {func(fake) {}, ""},
		"pulled":                 {func(f fake) { f.pull("sdb") }, "/dev/sdb (serial SB) is gone"},
		"plugged":                {func(f fake) { f.plug("sdc", 32, "SC", 4096) }, "/dev/sdc (serial SC) is new"},
		"swapped in place":       {func(f fake) { f.plug("sdb", 16, "NEW", 2048) }, "/dev/sdb has serial NEW, it had SB"},
		"another size":           {func(f fake) { f.plug("sdb", 16, "SB", 4096) }, "/dev/sdb has 2097152 bytes, it had 1048576"},
		"udev knows no serial":   {func(f fake) { f.plug("sdb", 16, "", 2048) }, ""},
		"the kernel's serial":    {func(f fake) { f.plug("sdb", 16, "", 2048); f.write("sys/block/sdb/serial", "NVME1\n") }, "/dev/sdb has serial NVME1, it had SB"},
		"of another machine":     {func(f fake) { f.plug("sdc", 32, "SC", 4096); f.must(os.Remove(filepath.Join(f.root, "dev/sdc"))) }, ""},
		"a stale device node":    {func(f fake) { f.plug("sdc", 32, "SC", 4096); f.write("sys/block/sdc/dev", "8:33\n") }, ""},
		"a mapping, a CD, a nbd": {func(f fake) { f.plug("dm-0", 32, "", 4096); f.plug("sr0", 33, "", 4096); f.plug("nbd3", 34, "", 4096) }, ""},
		"an empty loop device":   {func(f fake) { f.plug("loop0", 32, "", 0) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.plug("sda", 0, "SA", 2048)
			f.plug("sdb", 16, "SB", 2048)
			c.change(f)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			got, err := Host{f.root}.Wait(ctx, known, nil, nil)
			if err != nil || got != c.want {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// It waits, looks when the clock says so, and ends with the difference.
func TestWaitLooksByTheClock(t *testing.T) {
	f := newFake(t)
	f.plug("sda", 0, "SA", 2048)
	tick := make(chan time.Time)
	done := make(chan string, 1)
	go func() {
		got, err := Host{f.root}.Wait(t.Context(), []string{"/dev/sda SA 1048576"}, nil, tick)
		done <- fmt.Sprint(got, err)
	}()
	tick <- time.Time{} // the first look is over, and found nothing
	f.pull("sda")
	select {
	case tick <- time.Time{}: // the second came before the pull
	case got := <-done:
		done <- got
	}
	if got := <-done; got != "/dev/sda (serial SA) is gone<nil>" {
		t.Error(got)
	}
}

// A kernel that stops telling is no reason to stop looking.
func TestEventsEnd(t *testing.T) {
	f := newFake(t)
	events := make(chan struct{})
	close(events)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if got, err := (Host{f.root}).Wait(ctx, nil, events, nil); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	if _, err := (Host{t.TempDir()}).Wait(t.Context(), nil, nil, nil); err == nil {
		t.Error("no /sys was taken for no disks")
	}
	for _, k := range []string{"/dev/sda", "/dev/sda S", "/dev/sda S x"} {
		if _, err := (Host{t.TempDir()}).Wait(t.Context(), []string{k}, nil, nil); err == nil || !strings.Contains(err.Error(), "known") {
			t.Errorf("%q: %v", k, err)
		}
	}
}

func TestAboutDisks(t *testing.T) {
	for event, want := range map[string]bool{
		"add@/devices/x\x00ACTION=add\x00SUBSYSTEM=block\x00DEVTYPE=disk": true,
		"add@/devices/x\x00ACTION=add\x00SUBSYSTEM=net":                   false,
		"": false,
	} {
		if got := aboutDisks([]byte(event)); got != want {
			t.Errorf("%q: %v", event, got)
		}
	}
}

// The kernel's word is followed at once, not when the clock says so.
func TestAnEventIsFollowedAtOnce(t *testing.T) {
	f := newFake(t)
	f.plug("sda", 0, "SA", 2048)
	events, done := make(chan struct{}), make(chan string, 1)
	go func() {
		got, err := Host{f.root}.Wait(t.Context(), []string{"/dev/sda SA 1048576"}, events, nil)
		done <- fmt.Sprint(got, err)
	}()
	events <- struct{}{} // the first look has found nothing
	f.pull("sda")
	begun := time.Now()
	select {
	case got := <-done:
		if took := time.Since(begun); got != "/dev/sda (serial SA) is gone<nil>" || took > 900*time.Millisecond {
			t.Errorf("%s after %v", got, took)
		}
	case <-time.After(10 * time.Second):
		t.Error("it was not noticed")
	}
}
