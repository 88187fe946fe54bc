// Package crash hands the crash dumps of a node's Ceph daemons to Ceph: it looks at
// the directory that they are written to, has each complete one posted, and moves
// it to "posted" so that it is posted once.
//
// It must not delete a dump, and must not touch one that is still being written.
// Nothing is remembered between two passes: what was posted is where it was moved
// to.
package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// Posted is the directory, beside the dumps, of those that Ceph has.
	Posted = "posted"
	// settled is how long after its last change a dump without the mark "done" counts
	// as complete: the daemon that wrote it is gone, since it dies by the dump.
	settled = 10 * time.Minute
	// maxMeta bounds what is read of a dump. Real ones are some KiB.
	maxMeta = 4 << 20
	// slowest is the longest time between two tries when posting fails.
	slowest = 5 * time.Minute
)

// Dir is a directory of crash dumps.
type Dir struct {
	// Path of the directory; each dump is a directory in it, with the files meta,
	// log and, when it is complete, done.
	Path string
	// Post gives a dump to Ceph; file is its meta. To post a dump twice is the same as
	// to post it once: Ceph knows it by its id.
	Post func(ctx context.Context, file string) error
}

// Run makes a pass at each tick until ctx ends. While passes fail, they come ever
// more seldom: each starts a program.
func (d Dir) Run(ctx context.Context, ticks <-chan time.Time, say func(string)) {
	var next time.Time
	var delay time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks:
			if now.Before(next) {
				continue
			}
			posted, err := d.Pass(ctx, now)
			for _, name := range posted {
				say("posted " + name)
			}
			if err == nil {
				delay = 0
				continue
			}
			say(err.Error())
			delay = min(max(2*delay, 10*time.Second), slowest)
			next = now.Add(delay)
		}
	}
}

// Pass posts what is complete and names it. One dump that cannot be posted does not
// keep the others from it.
func (d Dir) Pass(ctx context.Context, now time.Time) (posted []string, err error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for crash dumps: %w", err)
	}
	var failed []error
	for _, e := range entries {
		if !e.IsDir() || e.Name() == Posted {
			continue
		}
		ready, err := d.complete(e.Name(), now)
		if err == nil && ready {
			err = d.post(ctx, e.Name())
		}
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("crash dump %s: %w", e.Name(), err))
		case ready:
			posted = append(posted, e.Name())
		}
	}
	return posted, errors.Join(failed...)
}

// complete says whether nothing more will be written to a dump.
func (d Dir) complete(name string, now time.Time) (bool, error) {
	meta := filepath.Join(d.Path, name, "meta")
	info, err := os.Lstat(meta)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the daemon has only begun
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMeta {
		return false, fmt.Errorf("its meta is no file of a reasonable size")
	}
	if _, err := os.Lstat(filepath.Join(d.Path, name, "done")); err == nil {
		return true, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if now.Sub(info.ModTime()) < settled {
		return false, nil
	}
	b, err := os.ReadFile(meta) //nolint:gosec // a file of the crash directory, listed by us
	if err != nil {
		return false, err
	}
	return json.Valid(b), nil // half a dump is of no use to Ceph
}

// post gives a dump to Ceph and then puts it away.
func (d Dir) post(ctx context.Context, name string) error {
	from := filepath.Join(d.Path, name)
	if err := d.Post(ctx, filepath.Join(from, "meta")); err != nil {
		return err
	}
	to := filepath.Join(d.Path, Posted)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	if err := os.Rename(from, filepath.Join(to, name)); err != nil {
		return fmt.Errorf("it is posted, but cannot be put away: %w", err)
	}
	return nil
}
