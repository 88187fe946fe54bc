// Package build makes what a lab is made of: Kubernetes, containerd, runc, CNI
// plugins and CoreDNS from Go modules, the Ceph image and the storage guest
// from Debian packages, the images and the containerd root that nodes start
// from. Every part is kept in the cache under a key of what makes it, so that
// what is built stays and what changes is built again.
//
// It must not start a lab or know what runs in one.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/castellan-storage/castellan/lab/cache"
	"github.com/castellan-storage/castellan/lab/progress"
)

// Options of Build.
type Options struct {
	// Only names the parts to build, with what they need; none means all.
	Only []string
	// NoInstall refuses, naming them, when Debian packages are missing on this
	// machine. Otherwise they are installed.
	NoInstall bool
	// Out gets the progress.
	Out      io.Writer
	Progress progress.Options
}

// Build makes what is missing in the cache and returns where everything is. It
// needs root. When it fails or ctx ends, finished parts stay and nothing is half
// made.
func Build(ctx context.Context, o Options) (Paths, error) {
	b, err := newBuilder()
	if err != nil {
		return Paths{}, err
	}
	wanted, err := b.plan.closure(o.Only)
	if err != nil {
		return Paths{}, err
	}
	missing, err := b.missing(wanted)
	if err != nil {
		return Paths{}, err
	}
	if len(missing) == 0 {
		say(o.Out, "Everything is built (%d parts in %s).\n", len(wanted), b.cache.Root())
		return b.paths(), nil
	}
	if len(missing) < len(wanted) {
		say(o.Out, "Already built: %s.\n", strings.Join(namesBut(wanted, missing), ", "))
	}
	if err := preflight(ctx, b.cache.Root(), b.source, missing, o); err != nil {
		return Paths{}, err
	}
	if err := b.run(ctx, missing, o); err != nil {
		return Paths{}, err
	}
	return b.paths(), nil
}

// say tells the person. That nobody listens is no reason to stop.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// Lookup returns where the named parts are, or all parts when none is named,
// without building. It is an error that names the command to run when one of
// them is missing.
func Lookup(parts ...string) (Paths, error) {
	b, err := newBuilder()
	if err != nil {
		return Paths{}, err
	}
	wanted, err := b.plan.closure(parts)
	if err != nil {
		return Paths{}, err
	}
	missing, err := b.missing(wanted)
	if err != nil {
		return Paths{}, err
	}
	if len(missing) > 0 {
		return Paths{}, &NotBuiltError{Parts: namesBut(missing, nil)}
	}
	return b.paths(), nil
}

// NotBuiltError says which parts are not in the cache.
type NotBuiltError struct{ Parts []string }

func (e *NotBuiltError) Error() string {
	return fmt.Sprintf("not built: %s: run castellan-lab build", strings.Join(e.Parts, ", "))
}

type builder struct {
	source string
	cache  *cache.Cache
	plan   *plan
}

func newBuilder() (*builder, error) {
	src, err := Source()
	if err != nil {
		return nil, err
	}
	dir, err := cache.Dir()
	if err != nil {
		return nil, err
	}
	loaded, err := Loaded(dir)
	if err != nil {
		return nil, err
	}
	parts, err := labParts(src, loaded)
	if err != nil {
		return nil, err
	}
	p, err := newPlan(parts)
	if err != nil {
		return nil, err
	}
	return &builder{source: src, cache: cache.Open(dir), plan: p}, nil
}

func (b *builder) path(part string) string { return b.cache.Path(part, b.plan.keys[part]) }

func (b *builder) paths() Paths {
	return Paths{
		Bin:         b.path(partBin),
		Containerd:  b.path(partContainerd),
		CNI:         filepath.Join(b.path(partBin), "cni"),
		Assets:      b.path(partKubernetes),
		Images:      b.path(partImages),
		Golden:      filepath.Join(b.path(partGolden), goldenRoot),
		CephRoot:    filepath.Join(b.path(partCeph), cephRoot),
		GuestRoot:   filepath.Join(b.path(partGuest), guestRoot),
		GuestKernel: filepath.Join(b.path(partGuest), guestKernel),
	}
}

func (b *builder) missing(wanted []*part) ([]*part, error) {
	var out []*part
	for _, pt := range wanted {
		ok, err := b.cache.Has(pt.name, b.plan.keys[pt.name])
		if err != nil {
			return nil, err
		}
		if !ok {
			out = append(out, pt)
		}
	}
	return out, nil
}

func namesBut(parts, but []*part) []string {
	skip := map[*part]bool{}
	for _, p := range but {
		skip[p] = true
	}
	var out []string
	for _, p := range parts {
		if !skip[p] {
			out = append(out, p.name)
		}
	}
	return out
}

// run makes the missing parts, the lanes side by side. The first failure ends
// all.
func (b *builder) run(ctx context.Context, missing []*part, o Options) error {
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pr := progress.New(o.Out, len(missing), o.Progress)
	drawing, stopDrawing := context.WithCancel(ctx)
	var drawn sync.WaitGroup
	drawn.Go(func() { pr.Run(drawing) })
	done := map[string]chan struct{}{}
	lanes := map[lane][]*part{}
	for _, pt := range missing {
		done[pt.name] = make(chan struct{})
		lanes[pt.lane] = append(lanes[pt.lane], pt)
	}
	var work sync.WaitGroup
	for _, parts := range lanes {
		work.Go(func() { b.runLane(ctx, cancel, parts, done, pr) })
	}
	work.Go(func() { b.fetch(ctx, missing) })
	work.Wait()
	stopDrawing()
	drawn.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	say(o.Out, "Built %d parts in %s in %s.\n", len(missing), progress.Elapsed(time.Since(begun)), b.cache.Root())
	return nil
}

func (b *builder) runLane(ctx context.Context, cancel context.CancelCauseFunc, parts []*part, done map[string]chan struct{}, pr *progress.Progress) {
	for _, pt := range parts {
		for _, n := range pt.needs {
			if c, ok := done[n]; ok {
				select {
				case <-c:
				case <-ctx.Done():
					return
				}
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err := b.one(ctx, pt, pr); err != nil {
			cancel(err)
			return
		}
		close(done[pt.name])
	}
}

func (b *builder) one(ctx context.Context, pt *part, pr *progress.Progress) error {
	step := pr.Start(pt.title)
	logPath := filepath.Join(b.cache.Root(), "log", pt.name+".log")
	waiting := func() { step.Note("another build is making it, waiting") }
	path, built, err := b.cache.Build(ctx, pt.name, b.plan.keys[pt.name], waiting, func(ctx context.Context, dir, final string) error {
		log, err := createLog(logPath)
		if err != nil {
			return err
		}
		j := &job{
			dir: dir, final: final, deps: map[string]string{}, log: log, note: step.Note,
			warn: func(s string) { pr.Print(pt.name + ": " + s) },
		}
		for _, n := range pt.needs {
			j.deps[n] = b.path(n)
		}
		return errors.Join(pt.make(ctx, j), log.Close())
	})
	if err != nil {
		step.Failed()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("building %s: %w (log: %s)", pt.name, explain(err), logPath)
	}
	detail := "by another build"
	if built {
		detail = progress.Bytes(sizeOf(path))
	}
	step.Done(detail)
	return nil
}

// fetch downloads ahead of need. It reports nothing: the part that needs the
// download does it again and says what is wrong.
func (b *builder) fetch(ctx context.Context, missing []*part) {
	for _, pt := range missing {
		if pt.fetch == nil || ctx.Err() != nil {
			continue
		}
		_ = pt.fetch(ctx, &job{log: io.Discard, note: func(string) {}, warn: func(string) {}})
	}
}

func sizeOf(path string) int64 {
	n, err := cache.DiskUsage(path)
	if err != nil {
		return 0 // only shown to a person
	}
	return n
}

func createLog(p string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return nil, fmt.Errorf("making the log: %w", err)
	}
	f, err := os.Create(p)
	if err != nil {
		return nil, fmt.Errorf("making the log: %w", err)
	}
	return f, nil
}

// explain puts in front of an error what a person can do about it.
func explain(err error) error {
	text := strings.ToLower(err.Error())
	has := func(marks ...string) bool {
		for _, m := range marks {
			if strings.Contains(text, m) {
				return true
			}
		}
		return false
	}
	switch {
	case has("no space left"):
		return fmt.Errorf("the disk is full: free some space and run it again (castellan-lab cache prune removes what is not in use): %w", err)
	case has("dial tcp", "no such host", "could not resolve", "connection refused", "i/o timeout", "temporary failure", "failed to fetch", "tls handshake timeout", "network is unreachable", "unable to connect", "could not connect"):
		return fmt.Errorf("a download did not work, check the network and the proxy settings (GOPROXY for Go modules, apt's for packages): %w", err)
	case has("checksum mismatch"):
		return fmt.Errorf("a downloaded module is not the one that go.sum names: go clean -modcache, or ask who runs the proxy: %w", err)
	}
	return err
}
