// Package logs rotates the log file of one Ceph daemon: it moves the file away
// when it is old or large, has the daemon open a new one, compresses what was
// moved and deletes the oldest.
//
// It must not touch a file of another daemon, and must not compress a file that
// a daemon may still write to. Nothing is remembered between two passes: when a
// file was last rotated is in the names of the rotated ones.
package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stampLayout is the time in the name of a rotated file; it sorts by time.
const stampLayout = "20060102T150405Z"

// File is a log file and how it is rotated.
type File struct {
	// Path of the file that the daemon writes.
	Path string
	// Period after which it is rotated.
	Period time.Duration
	// MaxSize in bytes at which it is rotated before that; 0 for no bound.
	MaxSize int64
	// Keep is how many rotated files stay.
	Keep int
	// Reopen makes the daemon close the file and open Path anew. When it returns
	// without an error, the daemon no longer writes to the old file.
	Reopen func(context.Context) error
}

// Period is the time that a word stands for. The words are those of
// logCollector.periodicity of a CephCluster; the empty one is daily.
func Period(word string) (time.Duration, error) {
	const day = 24 * time.Hour
	switch word {
	case "hourly", "1h":
		return time.Hour, nil
	case "", "daily", "24h", "1d":
		return day, nil
	case "weekly":
		return 7 * day, nil
	case "monthly":
		return 30 * day, nil
	}
	return 0, fmt.Errorf("the period of log rotation is hourly, daily, weekly, monthly, 1h, 24h or 1d, not %q", word)
}

// Run makes a pass at each tick until ctx ends. A pass that fails is reported
// and repeated at the next tick: logs are no reason to end.
func (f File) Run(ctx context.Context, ticks <-chan time.Time, started time.Time, report func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks:
			if err := f.Pass(ctx, now, started); err != nil {
				report(err)
			}
		}
	}
}

// Pass rotates the file if it is due and brings to an end what an earlier pass
// left undone. A file that was never rotated is as old as started, when the
// container began.
func (f File) Pass(ctx context.Context, now, started time.Time) error {
	moved, packed, err := f.rotated()
	if err != nil {
		return err
	}
	last := started
	for _, name := range append(slices.Clone(moved), packed...) {
		if t, ok := f.stamp(name); ok && t.After(last) {
			last = t
		}
	}
	due, err := f.due(now, last)
	if err != nil {
		return err
	}
	if due {
		name := f.Path + "-" + now.UTC().Format(stampLayout)
		if slices.Contains(moved, name) || slices.Contains(packed, name+".gz") {
			return nil // two rotations in one second: the next pass will do
		}
		if err := os.Rename(f.Path, name); err != nil {
			return fmt.Errorf("rotating %s: %w", f.Path, err)
		}
		moved = append(moved, name)
	}
	// The oldest go first, so that there is room for what is compressed next.
	if err := f.prune(packed, len(moved)); err != nil {
		return err
	}
	if len(moved) == 0 {
		return nil
	}
	if err := f.Reopen(ctx); err != nil {
		return fmt.Errorf("having %s reopened: %w", f.Path, err)
	}
	for _, name := range moved {
		if err := pack(name); err != nil {
			return fmt.Errorf("compressing %s: %w", name, err)
		}
	}
	return nil
}

// due says whether the file is to be rotated. One that does not exist or holds
// nothing is not.
func (f File) due(now, last time.Time) (bool, error) {
	info, err := os.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", f.Path, err)
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a file", f.Path)
	}
	if info.Size() == 0 {
		return false, nil
	}
	return now.Sub(last) >= f.Period || (f.MaxSize > 0 && info.Size() >= f.MaxSize), nil
}

// rotated lists the rotated files, oldest first: those only moved, and those
// compressed.
func (f File) rotated() (moved, packed []string, err error) {
	dir := filepath.Dir(f.Path)
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listing rotated logs: %w", err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if _, ok := f.stamp(name); !ok || !e.Type().IsRegular() {
			continue
		}
		if strings.HasSuffix(name, ".gz") {
			packed = append(packed, name)
		} else {
			moved = append(moved, name)
		}
	}
	return moved, packed, nil
}

// stamp reads the time in the name of a rotated file of this log.
func (f File) stamp(name string) (time.Time, bool) {
	rest, ours := strings.CutPrefix(name, f.Path+"-")
	if !ours {
		return time.Time{}, false
	}
	t, err := time.Parse(stampLayout, strings.TrimSuffix(rest, ".gz"))
	return t, err == nil
}

// prune deletes the oldest compressed files, leaving room for fresh ones.
func (f File) prune(packed []string, fresh int) error {
	for n := len(packed) + fresh - max(f.Keep, 0); n > 0 && len(packed) > 0; n-- {
		if err := os.Remove(packed[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deleting an old log: %w", err)
		}
		packed = packed[1:]
	}
	return nil
}

// pack compresses a file and deletes it. An interrupted one is begun anew. No
// link is followed: daemons may write to the directory, and this may run as root.
func pack(name string) (err error) {
	in, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0) //nolint:gosec // a file of the log directory, listed by us
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	tmp := name + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o640) //nolint:gosec // beside it, and made by us alone (O_EXCL)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(tmp)
		}
	}()
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, in); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp, name+".gz"); err != nil {
		return err
	}
	return os.Remove(name)
}
