package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKey(t *testing.T) {
	same := NewKey("a", "b")
	tests := []struct {
		name  string
		parts []string
		equal bool
	}{
		{"same parts", []string{"a", "b"}, true},
		{"other order", []string{"b", "a"}, false},
		{"joined otherwise", []string{"ab"}, false},
		{"one more, empty", []string{"a", "b", ""}, false},
		{"a part that looks like a frame", []string{"a,1:b"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := NewKey(tt.parts...) == same; got != tt.equal {
				t.Errorf("NewKey(%q) equal to NewKey(a, b): %v, want %v", tt.parts, got, tt.equal)
			}
		})
	}
}

func TestDir(t *testing.T) {
	t.Setenv(EnvDir, "/some/where")
	got, err := Dir()
	if err != nil || got != "/some/where" {
		t.Errorf("Dir() = %q, %v, want /some/where", got, err)
	}
	t.Setenv(EnvDir, "")
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	got, err = Dir()
	if err != nil || got != "/xdg/castellan-lab" {
		t.Errorf("Dir() = %q, %v, want /xdg/castellan-lab", got, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got, err := Dir(); err == nil {
		t.Errorf("Dir() without HOME = %q, want an error", got)
	}
}

// fill makes an entry of one file.
func fill(content string) func(context.Context, string, string) error {
	return func(_ context.Context, dir, _ string) error {
		return os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644)
	}
}

func TestBuildOnce(t *testing.T) {
	c := Open(t.TempDir())
	path, built, err := c.Build(t.Context(), "p", "k1", nil, fill("x"))
	if err != nil || !built {
		t.Fatalf("first Build: built %v, error %v", built, err)
	}
	if b, err := os.ReadFile(filepath.Join(path, "f")); err != nil || string(b) != "x" {
		t.Errorf("the entry holds %q, %v", b, err)
	}
	again, built, err := c.Build(t.Context(), "p", "k1", nil, func(context.Context, string, string) error {
		t.Error("an entry that exists was made again")
		return nil
	})
	if err != nil || built || again != path {
		t.Errorf("second Build = %q, %v, %v", again, built, err)
	}
	other, built, err := c.Build(t.Context(), "p", "k2", nil, fill("y"))
	if err != nil || !built || other == path {
		t.Errorf("Build under another key = %q, %v, %v", other, built, err)
	}
}

func TestBuildGivesFinalPath(t *testing.T) {
	c := Open(t.TempDir())
	var told string
	path, _, err := c.Build(t.Context(), "p", "k", nil, func(_ context.Context, dir, final string) error {
		if dir == final {
			t.Error("the entry is made in place")
		}
		told = final
		return nil
	})
	if err != nil || told != path {
		t.Errorf("told %q, is at %q, error %v", told, path, err)
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	c := Open(t.TempDir())
	boom := errors.New("boom")
	ctx, cancel := context.WithCancel(t.Context())
	tests := []struct {
		name string
		make func(context.Context, string, string) error
		want error
	}{
		{"make fails", func(ctx context.Context, dir, final string) error {
			_ = fill("half")(ctx, dir, final)
			return boom
		}, boom},
		{"interrupted", func(ctx context.Context, dir, final string) error {
			cancel()
			return fill("half")(ctx, dir, final)
		}, context.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, built, err := c.Build(ctx, "p", "k", nil, tt.make)
			if !errors.Is(err, tt.want) || built {
				t.Fatalf("Build: built %v, error %v, want %v", built, err, tt.want)
			}
			if ok, err := c.Has("p", "k"); ok || err != nil {
				t.Errorf("Has = %v, %v after a failed build", ok, err)
			}
			left, err := filepath.Glob(filepath.Join(c.Root(), "tmp", "*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestBuildAfterKill(t *testing.T) {
	c := Open(t.TempDir())
	// What a build that was killed leaves.
	stale := filepath.Join(c.Root(), "tmp", "p", "new")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, "half"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	path, _, err := c.Build(t.Context(), "p", "k", nil, fill("x"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != 1 || entries[0].Name() != "f" {
		t.Errorf("the entry holds %v, %v", entries, err)
	}
}

func TestConcurrentBuildsMakeOne(t *testing.T) {
	dir := t.TempDir()
	var made, waited atomic.Int32
	begun, release := make(chan struct{}), make(chan struct{})
	slow := func(ctx context.Context, d, final string) error {
		made.Add(1)
		close(begun)
		<-release
		return fill("x")(ctx, d, final)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, _, err := Open(dir).Build(t.Context(), "p", "k", nil, slow); err != nil {
			t.Error(err)
		}
	})
	<-begun
	// Another process has a file description of its own, as this Cache has.
	waiting := func() { waited.Add(1); close(release) }
	_, built, err := Open(dir).Build(t.Context(), "p", "k", waiting, slow)
	wg.Wait()
	if err != nil || built || made.Load() != 1 || waited.Load() != 1 {
		t.Errorf("second Build: built %v, error %v; made %d times, waited %d times", built, err, made.Load(), waited.Load())
	}
}

func TestWaitingEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Open(dir).lock(t.Context(), "p", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err = Open(dir).Build(ctx, "p", "k", cancel, fill("x"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Build = %v, want canceled", err)
	}
}

func TestListAndRemove(t *testing.T) {
	c := Open(t.TempDir())
	for _, e := range []struct{ part, key, content string }{{"b", "1", "12345"}, {"a", "2", ""}, {"a", "1", ""}} {
		if _, _, err := c.Build(t.Context(), e.part, Key(e.key), nil, fill(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(c.Path("a", "1"), old, old); err != nil {
		t.Fatal(err)
	}
	names := func() []string {
		entries, err := c.List()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Part+"/"+string(e.Key))
		}
		return out
	}
	if diff := cmp.Diff([]string{"a/1", "a/2", "b/1"}, names()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	one, err := c.ListPart("b")
	if err != nil || len(one) != 1 || one[0].Bytes < 512 {
		t.Fatalf("ListPart(b) = %+v, %v", one, err)
	}
	if err := c.Remove(t.Context(), one[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), one[0]); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
	if diff := cmp.Diff([]string{"a/1", "a/2"}, names()); diff != "" {
		t.Errorf("List after Remove (-want +got):\n%s", diff)
	}
}

func TestDiskUsageCountsLinksOnce(t *testing.T) {
	dir := t.TempDir()
	content := make([]byte, 100<<10)
	if err := os.WriteFile(filepath.Join(dir, "a"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	got, err := DiskUsage(dir)
	if err != nil || got < 100<<10 || got >= 150<<10 {
		t.Errorf("DiskUsage = %d, %v, want a little over %d", got, err, 100<<10)
	}
}
