package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dump writes a dump as a dying daemon does; without done it has died too early.
func dump(t *testing.T, dir, name, meta string, done bool) {
	t.Helper()
	d := filepath.Join(dir, name)
	if err := os.MkdirAll(d, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d, "meta"), []byte(meta), 0o600); err != nil {
		t.Fatal(err)
	}
	if done {
		if err := os.WriteFile(filepath.Join(d, "done"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestPostsWhatIsCompleteOnce(t *testing.T) {
	dir := t.TempDir()
	dump(t, dir, "2026-01-01_a", `{"crash_id":"a"}`, true)
	dump(t, dir, "2026-01-01_b", `{"crash_id":"b"}`, false)
	dump(t, dir, "2026-01-01_half", `{"crash_id":`, false)
	if err := os.MkdirAll(filepath.Join(dir, "2026-01-01_empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	var got []string
	d := Dir{Path: dir, Post: func(_ context.Context, file string) error {
		b, err := os.ReadFile(file)
		got = append(got, string(b))
		return err
	}}
	posted, err := d.Pass(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2026-01-01_a"}, posted); diff != "" {
		t.Errorf("at once (-want +got):\n%s", diff)
	}
	// Later, what nobody writes to any more counts too, unless it is half.
	if posted, err = d.Pass(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2026-01-01_b"}, posted); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
	if posted, err = d.Pass(t.Context(), time.Now().Add(2*time.Hour)); err != nil || len(posted) > 0 {
		t.Errorf("posted again: %v, %v", posted, err)
	}
	if diff := cmp.Diff([]string{`{"crash_id":"a"}`, `{"crash_id":"b"}`}, got); diff != "" {
		t.Errorf("Ceph got (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2026-01-01_a", "2026-01-01_b"}, names(t, filepath.Join(dir, Posted))); diff != "" {
		t.Errorf("put away (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2026-01-01_empty", "2026-01-01_half", Posted}, names(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestOneThatFailsKeepsNoOtherBack(t *testing.T) {
	dir := t.TempDir()
	dump(t, dir, "a", `{}`, true)
	dump(t, dir, "b", `{}`, true)
	d := Dir{Path: dir, Post: func(_ context.Context, file string) error {
		if strings.Contains(file, "/a/") {
			return errors.New("refused")
		}
		return nil
	}}
	posted, err := d.Pass(t.Context(), time.Now())
	if err == nil || !strings.Contains(err.Error(), "crash dump a: refused") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"b"}, posted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "meta")); err != nil {
		t.Errorf("what was not posted is gone: %v", err)
	}
}

func TestALinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "keyring")
	if err := os.WriteFile(secret, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	dump(t, dir, "a", `{}`, true)
	meta := filepath.Join(dir, "a", "meta")
	if err := os.Remove(meta); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, meta); err != nil {
		t.Fatal(err)
	}
	d := Dir{Path: dir, Post: func(context.Context, string) error { t.Error("posted"); return nil }}
	if _, err := d.Pass(t.Context(), time.Now()); err == nil {
		t.Error("no error")
	}
}

func TestFailuresComeEverMoreSeldom(t *testing.T) {
	dir := t.TempDir()
	dump(t, dir, "a", `{}`, true)
	tries := 0
	d := Dir{Path: dir, Post: func(context.Context, string) error { tries++; return errors.New("no quorum") }}
	ticks := make(chan time.Time)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx, ticks, func(string) {}) }()
	start := time.Now()
	for s := range 360 { // an hour, every 10 s
		ticks <- start.Add(time.Duration(10*s) * time.Second)
	}
	cancel()
	<-done
	// 10, 20, 40, 80, 160, 300, 300, ... seconds apart
	if tries < 14 || tries > 18 {
		t.Errorf("%d tries in an hour", tries)
	}
}

func TestNoDirectoryIsNoCrash(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "none")}
	if posted, err := d.Pass(t.Context(), time.Now()); err != nil || len(posted) > 0 {
		t.Errorf("%v, %v", posted, err)
	}
}
