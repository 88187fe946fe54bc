package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/lab/cache"
	"github.com/castellan-storage/castellan/lab/progress"
)

// source makes a directory that looks like the lab's source.
func source(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, m := range []string{partKubernetes, partContainerd, partRunc, partCNI, partCoreDNS} {
		for _, f := range []string{"go.mod", "go.sum", "main.go"} {
			path := filepath.Join(dir, "modules", m, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(m+f), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func keys(t *testing.T, src string, loaded []LoadedImage) map[string]cache.Key {
	t.Helper()
	parts, err := labParts(src, loaded)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlan(parts)
	if err != nil {
		t.Fatal(err)
	}
	return p.keys
}

// changed lists the parts whose keys differ.
func changed(a, b map[string]cache.Key) []string {
	var out []string
	for n := range a {
		if a[n] != b[n] {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

func TestKeysFollowContent(t *testing.T) {
	src := source(t)
	before := keys(t, src, nil)
	if d := changed(before, keys(t, src, nil)); d != nil {
		t.Errorf("the same source gives other keys for %v", d)
	}
	edit := func(f string) map[string]cache.Key {
		path := filepath.Join(src, "modules", f)
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("edited"), 0o644); err != nil {
			t.Fatal(err)
		}
		after := keys(t, src, nil)
		if err := os.WriteFile(path, old, 0o644); err != nil {
			t.Fatal(err)
		}
		return after
	}
	tests := []struct {
		name string
		keys map[string]cache.Key
		want []string
	}{
		{"Kubernetes' pins", edit("kubernetes/go.sum"), []string{partBin, partKubernetes}},
		{"CoreDNS' plugins", edit("coredns/main.go"), []string{partBase, partCoreDNS, partGolden, partImages}},
		{"runc's version", edit("runc/go.mod"), []string{partBin, partRunc}},
		{"a loaded image", keys(t, src, []LoadedImage{{Name: "localhost/a:1", Digest: "sha256:1"}}), []string{partGolden}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, changed(before, tt.keys)); diff != "" {
				t.Errorf("parts to build again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeysDoNotFollowPlace(t *testing.T) {
	if d := changed(keys(t, source(t), nil), keys(t, source(t), nil)); d != nil {
		t.Errorf("a copy of the source elsewhere gives other keys for %v", d)
	}
}

func TestPartNames(t *testing.T) {
	parts, err := labParts(source(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, p.name)
		if p.make == nil || p.title == "" {
			t.Errorf("%s has no title or cannot be made", p.name)
		}
	}
	want := PartNames()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("PartNames (-want +got):\n%s", diff)
	}
}

func TestNewPlanRefuses(t *testing.T) {
	for name, parts := range map[string][]*part{
		"twice":        {{name: "a"}, {name: "a"}},
		"wrong order":  {{name: "a", needs: []string{"b"}}, {name: "b"}},
		"needs itself": {{name: "a", needs: []string{"a"}}},
	} {
		if _, err := newPlan(parts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClosure(t *testing.T) {
	p, err := newPlan([]*part{{name: "a"}, {name: "b", needs: []string{"a"}}, {name: "c", needs: []string{"b"}}, {name: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		only, want []string
	}{
		{nil, []string{"a", "b", "c", "d"}},
		{[]string{"c"}, []string{"a", "b", "c"}},
		{[]string{"d", "b", "b"}, []string{"a", "b", "d"}},
	}
	for _, tt := range tests {
		got, err := p.closure(tt.only)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, namesBut(got, nil)); diff != "" {
			t.Errorf("closure of %v (-want +got):\n%s", tt.only, diff)
		}
	}
	if _, err := p.closure([]string{"x"}); err == nil || !strings.Contains(err.Error(), "a, b, c, d") {
		t.Errorf("an unknown part gives %v, want an error that lists the parts", err)
	}
}

// recorder notes what was made, and which parts were made at the same time.
type recorder struct {
	mu      sync.Mutex
	order   []string
	running map[lane]int
	most    int
}

func (r *recorder) make(name string, l lane, err error) func(context.Context, *job) error {
	return func(ctx context.Context, j *job) error {
		r.mu.Lock()
		r.order = append(r.order, name)
		r.running[l]++
		r.most = max(r.most, r.running[l])
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			r.running[l]--
			r.mu.Unlock()
		}()
		if err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, d := range j.deps {
			if _, err := os.Stat(filepath.Join(d, "made")); err != nil {
				return fmt.Errorf("a dependency is not there: %w", err)
			}
		}
		return os.WriteFile(filepath.Join(j.dir, "made"), nil, 0o644)
	}
}

func testBuilder(t *testing.T, r *recorder, failing string, failure error) *builder {
	t.Helper()
	parts := []*part{
		{name: "go1", lane: compiler}, {name: "go2", lane: compiler},
		{name: "deb1", lane: packages}, {name: "deb2", lane: packages, needs: []string{"deb1", "go2"}},
		{name: "all", lane: compiler, needs: []string{"go1", "deb2"}},
	}
	for _, p := range parts {
		var err error
		if p.name == failing {
			err = failure
		}
		p.title = "the " + p.name
		p.make = r.make(p.name, p.lane, err)
	}
	p, err := newPlan(parts)
	if err != nil {
		t.Fatal(err)
	}
	return &builder{cache: cache.Open(t.TempDir()), plan: p}
}

func TestRunKeepsOrderAndLanes(t *testing.T) {
	r := &recorder{running: map[lane]int{}}
	b := testBuilder(t, r, "", nil)
	var out syncBuffer
	if err := b.run(t.Context(), b.plan.parts, Options{Out: &out}); err != nil {
		t.Fatal(err)
	}
	at := func(n string) int { return slices.Index(r.order, n) }
	if len(r.order) != 5 || r.most != 1 {
		t.Errorf("made %v, at most %d of a lane at a time", r.order, r.most)
	}
	if at("deb2") < at("go2") || at("deb2") < at("deb1") || at("all") != 4 {
		t.Errorf("made in the order %v", r.order)
	}
	missing, err := b.missing(b.plan.parts)
	if err != nil || len(missing) != 0 {
		t.Errorf("missing afterwards: %v, %v", namesBut(missing, nil), err)
	}
	if !strings.Contains(out.String(), "/5] the all: done in ") || !strings.Contains(out.String(), "Built 5 parts in ") {
		t.Errorf("output:\n%s", out.String())
	}
}

func TestRunStopsAtFailure(t *testing.T) {
	r := &recorder{running: map[lane]int{}}
	boom := errors.New("boom")
	b := testBuilder(t, r, "go2", boom)
	var out syncBuffer
	err := b.run(t.Context(), b.plan.parts, Options{Out: &out})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "building go2") || !strings.Contains(err.Error(), "go2.log") {
		t.Errorf("run = %v, want it to name the part, the cause and the log", err)
	}
	missing, err := b.missing(b.plan.parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"go2", "deb2", "all"} {
		if !slices.Contains(namesBut(missing, nil), n) {
			t.Errorf("%s is in the cache after the failure", n)
		}
	}
	if slices.Contains(namesBut(missing, nil), "go1") {
		t.Error("what was finished before the failure is lost")
	}
}

func TestRunInterrupted(t *testing.T) {
	r := &recorder{running: map[lane]int{}}
	b := testBuilder(t, r, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	b.plan.part("go2").make = func(ctx context.Context, _ *job) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	err := b.run(ctx, b.plan.parts, Options{Out: &syncBuffer{}, Progress: progress.Options{}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("run = %v, want canceled", err)
	}
	left, err := filepath.Glob(filepath.Join(b.cache.Root(), "tmp", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// syncBuffer may be written by several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	sb strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sb.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sb.String()
}

func TestLookupNamesWhatIsMissing(t *testing.T) {
	t.Setenv(EnvSource, source(t))
	t.Setenv(cache.EnvDir, t.TempDir())
	_, err := Lookup(PartsGuest()...)
	var not *NotBuiltError
	if !errors.As(err, &not) {
		t.Fatalf("Lookup = %v, want a NotBuiltError", err)
	}
	if diff := cmp.Diff([]string{partCeph, partGuest}, not.Parts); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if !strings.Contains(err.Error(), "castellan-lab build") {
		t.Errorf("%q does not say what to do", err)
	}
}

func TestLookupFindsWhatIsBuilt(t *testing.T) {
	src, dir := source(t), t.TempDir()
	t.Setenv(EnvSource, src)
	t.Setenv(cache.EnvDir, dir)
	for _, n := range PartNames() {
		if err := os.MkdirAll(cache.Open(dir).Path(n, keys(t, src, nil)[n]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Lookup()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.Bin, p.CNI, p.Assets, p.Images, p.Golden, p.CephRoot, p.GuestRoot, p.GuestKernel} {
		if !strings.HasPrefix(path, dir+"/parts/") {
			t.Errorf("%q is not in the cache", path)
		}
	}
	if filepath.Base(p.HyperBinary()) != "hyper" || filepath.Dir(p.Kubectl()) != p.Bin {
		t.Errorf("binaries: %s, %s", p.HyperBinary(), p.Kubectl())
	}
}

func TestPrune(t *testing.T) {
	src, dir := source(t), t.TempDir()
	t.Setenv(EnvSource, src)
	t.Setenv(cache.EnvDir, dir)
	c := cache.Open(dir)
	now := keys(t, src, nil)
	for _, e := range []cache.Entry{{Part: partRunc, Key: now[partRunc]}, {Part: partRunc, Key: "old"}, {Part: "theirs", Key: "1"}, {Part: "theirs", Key: "2"}} {
		if err := os.MkdirAll(c.Path(e.Part, e.Key), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(c.Path("theirs", "2"), past, past); err != nil {
		t.Fatal(err)
	}
	removed, kept, err := Prune(t.Context())
	if err != nil || len(removed) != 2 || len(kept) != 0 {
		t.Fatalf("Prune removed %v, %v", removed, err)
	}
	left, err := c.List()
	if err != nil || len(left) != 2 || left[0].Key != now[partRunc] || left[1].Key != "1" {
		t.Errorf("left: %v, %v", left, err)
	}
}
