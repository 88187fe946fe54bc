package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// daemon is a writer that holds its file open, as a Ceph daemon does.
type daemon struct {
	t    *testing.T
	path string
	out  *os.File
	err  error // what reopening gives
	n    int
}

func start(t *testing.T) (*daemon, File) {
	t.Helper()
	d := &daemon{t: t, path: filepath.Join(t.TempDir(), "ceph-osd.1.log")}
	d.open()
	t.Cleanup(func() { _ = d.out.Close() })
	return d, File{Path: d.path, Period: 24 * time.Hour, Keep: 3, Reopen: d.reopen}
}

func (d *daemon) open() {
	d.t.Helper()
	out, err := os.OpenFile(d.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	d.out = out
}

func (d *daemon) reopen(context.Context) error {
	d.n++
	if d.err != nil {
		return d.err
	}
	_ = d.out.Close()
	d.open()
	return nil
}

func (d *daemon) say(s string) {
	d.t.Helper()
	if _, err := d.out.WriteString(s); err != nil {
		d.t.Fatal(err)
	}
}

// contents are the files of the directory; compressed ones are unpacked.
func (d *daemon) contents() map[string]string {
	d.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(d.path))
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		in, err := os.Open(filepath.Join(filepath.Dir(d.path), e.Name()))
		if err != nil {
			d.t.Fatal(err)
		}
		var r io.Reader = in
		if strings.HasSuffix(e.Name(), ".gz") {
			if r, err = gzip.NewReader(in); err != nil {
				d.t.Fatalf("%s: %v", e.Name(), err)
			}
		}
		b, err := io.ReadAll(r)
		if err != nil {
			d.t.Fatalf("%s: %v", e.Name(), err)
		}
		_ = in.Close()
		out[e.Name()] = string(b)
	}
	return out
}

func (d *daemon) want(step string, want map[string]string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.contents()); diff != "" {
		d.t.Errorf("%s (-want +got):\n%s", step, diff)
	}
}

func pass(t *testing.T, f File, now time.Time) {
	t.Helper()
	if err := f.Pass(context.Background(), now, t0); err != nil {
		t.Errorf("pass at %s: %v", now, err)
	}
}

func TestRotatesByAge(t *testing.T) {
	d, f := start(t)
	d.say("one")
	pass(t, f, t0.Add(23*time.Hour))
	d.want("too young", map[string]string{"ceph-osd.1.log": "one"})

	pass(t, f, t0.Add(24*time.Hour))
	d.want("old enough", map[string]string{"ceph-osd.1.log": "", "ceph-osd.1.log-20260103T030405Z.gz": "one"})

	d.say("two")
	// The age counts from the last rotation, also in a container that started
	// since.
	if err := f.Pass(context.Background(), t0.Add(47*time.Hour), t0.Add(46*time.Hour)); err != nil {
		t.Error(err)
	}
	pass(t, f, t0.Add(47*time.Hour))
	d.want("a day is not over", map[string]string{"ceph-osd.1.log": "two", "ceph-osd.1.log-20260103T030405Z.gz": "one"})
	pass(t, f, t0.Add(48*time.Hour))
	d.want("a day is over", map[string]string{
		"ceph-osd.1.log": "", "ceph-osd.1.log-20260103T030405Z.gz": "one", "ceph-osd.1.log-20260104T030405Z.gz": "two",
	})
}

func TestRotatesBySize(t *testing.T) {
	d, f := start(t)
	f.MaxSize = 5
	d.say("1234")
	pass(t, f, t0.Add(time.Minute))
	d.want("small", map[string]string{"ceph-osd.1.log": "1234"})
	d.say("5")
	pass(t, f, t0.Add(2*time.Minute))
	d.want("large", map[string]string{"ceph-osd.1.log": "", "ceph-osd.1.log-20260102T030605Z.gz": "12345"})
}

func TestLeavesNothingToRotate(t *testing.T) {
	d, f := start(t)
	pass(t, f, t0.Add(100*time.Hour))
	d.want("an empty log", map[string]string{"ceph-osd.1.log": ""})
	if err := os.Remove(d.path); err != nil {
		t.Fatal(err)
	}
	pass(t, f, t0.Add(100*time.Hour))
	d.want("no log", map[string]string{})
	f.Path = filepath.Join(filepath.Dir(d.path), "no", "such", "directory.log")
	pass(t, f, t0.Add(100*time.Hour))
	if d.n != 0 {
		t.Errorf("the daemon was asked to reopen %d times for nothing", d.n)
	}
}

func TestKeepsSome(t *testing.T) {
	d, f := start(t)
	f.Keep = 2
	for day := 1; day <= 4; day++ {
		d.say("day")
		pass(t, f, t0.Add(time.Duration(day)*24*time.Hour))
	}
	d.want("the newest two", map[string]string{
		"ceph-osd.1.log": "", "ceph-osd.1.log-20260105T030405Z.gz": "day", "ceph-osd.1.log-20260106T030405Z.gz": "day",
	})
}

// A daemon that did not reopen goes on writing to the moved file: not a byte of
// it may be lost.
func TestLosesNothingWhileTheDaemonIsAway(t *testing.T) {
	d, f := start(t)
	d.err = errors.New("no answer")
	d.say("one ")
	if err := f.Pass(context.Background(), t0.Add(24*time.Hour), t0); !errors.Is(err, d.err) {
		t.Fatalf("pass = %v, want the daemon's error", err)
	}
	d.say("two")
	d.want("moved, not compressed", map[string]string{"ceph-osd.1.log-20260103T030405Z": "one two"})
	d.err = nil
	pass(t, f, t0.Add(25*time.Hour))
	d.want("compressed as a whole", map[string]string{"ceph-osd.1.log": "", "ceph-osd.1.log-20260103T030405Z.gz": "one two"})
}

// A crash in the middle of compressing leaves the moved file and part of a new
// one.
func TestGoesOnAfterACrash(t *testing.T) {
	d, f := start(t)
	for name, s := range map[string]string{"-20260102T040000Z": "moved", "-20260102T040000Z.tmp": "part of a comp"} {
		if err := os.WriteFile(d.path+name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.say("now")
	pass(t, f, t0.Add(time.Hour))
	d.want("finished", map[string]string{"ceph-osd.1.log": "now", "ceph-osd.1.log-20260102T040000Z.gz": "moved"})
}

// The directory is shared by all daemons of the cluster on the node.
func TestTouchesNoOtherFile(t *testing.T) {
	d, f := start(t)
	f.Keep = 0
	dir := filepath.Dir(d.path)
	others := map[string]string{
		"ceph-osd.10.log": "ten", "ceph-osd.10.log-20200101T000000Z": "ten", "ceph-osd.1.log-notes": "mine",
	}
	for name, s := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.say("one")
	pass(t, f, t0.Add(24*time.Hour))
	others["ceph-osd.1.log"] = ""
	others["ceph-osd.1.log-20260103T030405Z.gz"] = "one"
	d.want("others untouched", others)
}

func TestFollowsNoLink(t *testing.T) {
	d, f := start(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, d.path); err != nil {
		t.Fatal(err)
	}
	if err := f.Pass(context.Background(), t0.Add(24*time.Hour), t0); err == nil {
		t.Error("a link in place of the log was rotated")
	}
	if err := os.Remove(d.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, d.path+"-20260102T040000Z"); err != nil {
		t.Fatal(err)
	}
	pass(t, f, t0.Add(time.Hour))
	if b, err := os.ReadFile(secret); err != nil || string(b) != "key" {
		t.Errorf("the link's target is now %q, %v", b, err)
	}
	if matches, _ := filepath.Glob(d.path + "*.gz"); len(matches) > 0 {
		t.Errorf("the link's target was compressed: %v", matches)
	}
}

func TestRun(t *testing.T) {
	d, f := start(t)
	d.say("one")
	d.err = errors.New("no answer")
	ctx, cancel := context.WithCancel(context.Background())
	ticks, reported, ended := make(chan time.Time), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, ticks, t0, func(err error) { reported <- err })
	}()
	ticks <- t0.Add(24 * time.Hour)
	if err := <-reported; !errors.Is(err, d.err) {
		t.Errorf("reported %v", err)
	}
	ticks <- t0.Add(25 * time.Hour) // it goes on after a failure
	if err := <-reported; !errors.Is(err, d.err) {
		t.Errorf("reported %v the second time", err)
	}
	cancel()
	<-ended
}

func TestPeriod(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"": 24 * time.Hour, "hourly": time.Hour, "1h": time.Hour, "daily": 24 * time.Hour, "24h": 24 * time.Hour, "1d": 24 * time.Hour,
		"weekly": 168 * time.Hour, "monthly": 720 * time.Hour,
	} {
		if got, err := Period(word); err != nil || got != want {
			t.Errorf("Period(%q) = %v, %v, want %v", word, got, err, want)
		}
	}
	for _, word := range []string{"yearly", "2h", "Daily", "0", "-1h"} {
		if got, err := Period(word); err == nil {
			t.Errorf("Period(%q) = %v, want an error", word, got)
		}
	}
}
