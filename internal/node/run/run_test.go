package run

import (
	"context"
	"errors"
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
