package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestErrorsSayWhatWentWrongAndStayShort(t *testing.T) {
	stderr := ` stderr: 9: /usr/lib/x86_64-linux-gnu/libstdc++.so.6(+0xb2cd7) [0x7f4a43caecd7]
 stderr: 11: main()
 stderr: *** Caught signal (Aborted) **
 stderr: NOTE: a copy of the executable is needed to interpret this.
--> Was unable to complete a new OSD, will rollback changes
--> RuntimeError: Command failed with exit code 250: /usr/bin/ceph-osd --mkfs`
	err := &Error{Name: "ceph-volume", Args: []string{"raw", "prepare"}, Code: 1, Stderr: stderr + strings.Repeat("\n 7: frame", 500), Err: errors.New("exit status 1")}
	got := err.Error()
	for _, want := range []string{"running ceph-volume raw prepare", "exit status 1", "RuntimeError", "Caught signal"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if len(got) > 600 || strings.Contains(got, "libstdc++") {
		t.Errorf("too much: %q", got)
	}
	traceback := `(prepare.py)
    self.osd_mkfs()
    ~~~~~~~~~~~~~^^
  File "/usr/lib/python3/dist-packages/ceph_volume/objectstore/baseobjectstore.py", line 202, in osd_mkfs
    raise RuntimeError('Command failed with exit code %s: %s' %
        (returncode, ' '.join(command)))
RuntimeError: Command failed with exit code 1: /usr/bin/ceph-osd --mkfs -i 0`
	if got, want := gist(traceback), "RuntimeError: Command failed with exit code 1: /usr/bin/ceph-osd --mkfs -i 0"; got != want {
		t.Errorf("of a traceback: %q, want %q", got, want)
	}
	if got := gist("first\nlast words"); got != "last words" {
		t.Errorf("without an error the last line is %q", got)
	}
}

func TestRun(t *testing.T) {
	x := Exec{Timeout: 5 * time.Second}
	out, err := x.Run(t.Context(), "echo", "a b")
	if err != nil || string(out) != "a b\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := x.Run(t.Context(), "false"); Exit(err) != 1 {
		t.Errorf("exit code of false: %v", err)
	}
	if _, err := x.Run(t.Context(), "no-such-program"); err == nil || Exit(err) != -1 {
		t.Errorf("a missing program: %v", err)
	}
	begun := time.Now()
	if _, err := (Exec{Timeout: 100 * time.Millisecond}).Run(t.Context(), "sleep", "30"); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("a program that hangs: %v after %v", err, time.Since(begun))
	}
}

// A program that hangs in the kernel does not end when it is killed: nobody waits for it.
func TestAwait(t *testing.T) {
	killed, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	begun := time.Now()
	hangs, err := await(killed, make(chan error), 20*time.Millisecond)
	if !hangs || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "hangs in the kernel") || time.Since(begun) > 5*time.Second {
		t.Errorf("%v, %v after %v", hangs, err, time.Since(begun))
	}
	ended := make(chan error, 1)
	ended <- errors.New("signal: killed")
	if hangs, err := await(killed, ended, time.Minute); hangs || err == nil {
		t.Errorf("one that was killed: %v, %v", hangs, err)
	}
	ended <- nil
	if hangs, err := await(t.Context(), ended, time.Minute); hangs || err != nil {
		t.Errorf("one that ended: %v, %v", hangs, err)
	}
}

// Every program has a limit, and what is killed for it says so, with the disk that it was
// given or had open.
func TestAProgramThatIsTooSlowNamesItsDisk(t *testing.T) {
	_, err := Exec{Timeout: 100 * time.Millisecond}.Run(t.Context(), "tail", "-f", "/dev/null", "/dev/sdz-that-is-not")
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "had not ended after 100ms") || !strings.Contains(err.Error(), "busy with") || !strings.Contains(err.Error(), "/dev/sdz-that-is-not") {
		t.Errorf("%v", err)
	}
	_, err = Exec{Timeout: 100 * time.Millisecond}.Run(t.Context(), "sleep", "30")
	if err == nil || !strings.Contains(err.Error(), "running sleep 30: it had not ended after 100ms and was killed; a disk of this node may not answer") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err = (Exec{}).Run(ctx, "sleep", "30"); err == nil || strings.Contains(err.Error(), "had not ended") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its caller was out of time: %v", err)
	}
}

// What a killed program has started ends with it: it must not go on writing to a disk.
func TestChildrenEndToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	_, err := Exec{Timeout: time.Second}.Run(t.Context(), "sh", "-c", "sleep 300 & echo $! > "+file+"; wait")
	if err == nil {
		t.Fatal("it has ended by itself")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %d runs on", pid)
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		command string
		want    time.Duration
	}{
		{"lvs --reportformat json", looking},
		{"/usr/sbin/lsblk --json", looking},
		{"blkid -p -o export /dev/sdb", looking},
		{"vgcreate --yes vg /dev/sdb", changing},
		{"cryptsetup close x", changing},
		{"ceph --connect-timeout 60 osd dump", asking},
		{"ceph-volume inventory /dev/sdb", listing},
		{"ceph-volume lvm prepare --osd-id 5", making},
		{"ceph-volume lvm batch --prepare", making},
		{"ceph-osd --mkfs -i 5", making},
		{"monmaptool --create --clobber /tmp/monmap", told},
		{"ceph-mon --mkfs --id a", founding},
		{"ceph-mon --extract-monmap=x", opening},
		{"ceph-mon --version", told},
		{"ceph-bluestore-tool bluefs-bdev-expand --path x", opening},
		{"something", unknown},
	} {
		words := strings.Fields(c.command)
		if got := Limit(words[0], words[1:]...); got != c.want {
			t.Errorf("%s: %v, want %v", c.command, got, c.want)
		}
	}
}

// The devices are those of the program and of what it has started.
func TestOpened(t *testing.T) {
	root := t.TempDir()
	process := func(pid, children string, open ...string) {
		dir := filepath.Join(root, "proc", pid)
		for _, d := range []string{"fd", "task/" + pid} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "task", pid, "children"), []byte(children), 0o644); err != nil {
			t.Fatal(err)
		}
		for i, o := range open {
			if err := os.Symlink(o, filepath.Join(dir, "fd", strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	process("10", "11 12 ", "/dev/null", "/etc/lvm/lvm.conf")
	process("11", "", "/dev/sdb", "/dev/urandom")
	process("12", "99 ", "/dev/sda", "/dev/sdb", "/dev/mapper/control", "/dev/mapper/x")
	process("13", "", "/dev/sdc")
	if got := strings.Join(opened(root, 10), " "); got != "/dev/mapper/x /dev/sda /dev/sdb" {
		t.Errorf("%q", got)
	}
	if got := opened(root, 77); len(got) > 0 {
		t.Errorf("of a process that is gone: %q", got)
	}
}

func TestFrames(t *testing.T) {
	for line, want := range map[string]bool{
		"7: (ceph::x()+0x1)": true, "-7> 2026": true, "0> 2026": true, "12: ": true,
		"": false, "7:": false, "7 x": false, ": x": false, "-: x": false, "7:: x": false, "--7: x": false, "a7: x": false, "error: x": false, "7-: x": false,
	} {
		if got := frame(line); got != want {
			t.Errorf("frame(%q) = %v", line, got)
		}
	}
}
