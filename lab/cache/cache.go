// Package cache keeps what the lab builds, keyed by the content that makes it.
// An entry is a directory that is either there in full or not there at all: it
// is made in a directory of its own and renamed when it is complete, under a
// lock, so that an interrupted build leaves nothing and two builds at the same
// time make one.
//
// It must not know what is built: package build does.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// EnvDir names the environment variable that says where the cache is.
const EnvDir = "CASTELLAN_LAB_CACHE"

// Dir returns the absolute path of the cache: $CASTELLAN_LAB_CACHE, or else
// castellan-lab under the user's cache directory. It need not exist yet.
func Dir() (string, error) {
	if d := os.Getenv(EnvDir); d != "" {
		abs, err := filepath.Abs(d)
		if err != nil {
			return "", fmt.Errorf("resolving %s=%q: %w", EnvDir, d, err)
		}
		return abs, nil
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: set %s or HOME: %w", EnvDir, err)
	}
	return filepath.Join(d, "castellan-lab"), nil
}

// Key is the name of an entry's content: a hash in hex.
type Key string

// NewKey hashes the parts of a recipe. Each part is framed by its length, so
// that ("ab", "c") and ("a", "bc") differ.
func NewKey(parts ...string) Key {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(p), p) // a hash takes everything
	}
	return Key(hex.EncodeToString(h.Sum(nil))[:20])
}

// Cache is a directory of entries. The zero value is not usable.
type Cache struct {
	root string
}

// Open returns the cache at dir; it creates nothing.
func Open(dir string) *Cache { return &Cache{root: dir} }

// Root is the directory of the cache.
func (c *Cache) Root() string { return c.root }

// Path is where the entry of a part with this key is, or will be, found.
func (c *Cache) Path(part string, key Key) string {
	return filepath.Join(c.root, "parts", part, string(key))
}

// Has reports whether the entry is there. An error that is not absence is
// returned as such.
func (c *Cache) Has(part string, key Key) (bool, error) {
	_, err := os.Stat(c.Path(part, key))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("looking for %s in the cache: %w", part, err)
	}
}

// Build returns the path of the entry, calling make to fill an empty directory
// when the entry is absent. final is where that directory will be afterwards,
// for files that must hold their own path. When make fails, or the program is
// killed, no entry exists; what a killed program left is removed by the next
// Build of the same part. waiting, when not nil, is called once if another
// process is building the part. built says whether make ran.
func (c *Cache) Build(ctx context.Context, part string, key Key, waiting func(), make func(ctx context.Context, dir, final string) error) (path string, built bool, err error) {
	final := c.Path(part, key)
	if ok, err := c.Has(part, key); err != nil || ok {
		return final, false, err
	}
	unlock, err := c.lock(ctx, part, waiting)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if ok, err := c.Has(part, key); err != nil || ok {
		return final, false, err
	}
	tmp := filepath.Join(c.root, "tmp", part)
	if err := os.RemoveAll(tmp); err != nil {
		return "", false, fmt.Errorf("removing what an earlier build of %s left: %w", part, err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", false, fmt.Errorf("making room for %s: %w", part, err)
	}
	defer func() {
		if rmErr := os.RemoveAll(tmp); rmErr != nil && err == nil {
			err = fmt.Errorf("cleaning up after %s: %w", part, rmErr)
		}
	}()
	dir := filepath.Join(tmp, "new")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", false, fmt.Errorf("making room for %s: %w", part, err)
	}
	if err := make(ctx, dir, final); err != nil {
		return "", false, err
	}
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", false, fmt.Errorf("keeping %s: %w", part, err)
	}
	if err := os.Rename(dir, final); err != nil {
		return "", false, fmt.Errorf("keeping %s: %w", part, err)
	}
	return final, true, nil
}

// lock takes the part's lock, waiting for another process that has it. The
// kernel frees it when its holder dies, however it dies.
func (c *Cache) lock(ctx context.Context, part string, waiting func()) (func(), error) {
	dir := filepath.Join(c.root, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache %s: %w", c.root, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, part), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of %s: %w", part, err)
	}
	unlock := func() { _ = f.Close() }
	told := false
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			unlock()
			return nil, fmt.Errorf("locking %s: %w", part, err)
		}
		if !told && waiting != nil {
			waiting()
			told = true
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// Entry is one built thing in the cache.
type Entry struct {
	Part  string
	Key   Key
	Path  string
	Bytes int64 // on disk; a file that several entries link counts in each
	Built time.Time
}

// List returns all entries, by part and then oldest first.
func (c *Cache) List() ([]Entry, error) { return c.list("*") }

// ListPart returns the entries of one part, oldest first.
func (c *Cache) ListPart(part string) ([]Entry, error) { return c.list(part) }

func (c *Cache) list(part string) ([]Entry, error) {
	paths, err := filepath.Glob(filepath.Join(c.root, "parts", part, "*"))
	if err != nil {
		return nil, fmt.Errorf("listing the cache: %w", err)
	}
	var out []Entry
	for _, p := range paths {
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // pruned since
		}
		if err != nil {
			return nil, fmt.Errorf("listing the cache: %w", err)
		}
		size, err := DiskUsage(p)
		if err != nil {
			return nil, err
		}
		out = append(out, Entry{
			Part: filepath.Base(filepath.Dir(p)), Key: Key(filepath.Base(p)),
			Path: p, Bytes: size, Built: info.ModTime(),
		})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Part != out[j].Part {
			return out[i].Part < out[j].Part
		}
		return out[i].Built.Before(out[j].Built)
	})
	return out, nil
}

// Remove deletes one entry; it vanishes at once and its blocks follow.
func (c *Cache) Remove(ctx context.Context, e Entry) error {
	unlock, err := c.lock(ctx, e.Part, nil)
	if err != nil {
		return err
	}
	defer unlock()
	trash := filepath.Join(c.root, "tmp", "trash-"+e.Part+"-"+string(e.Key))
	if err := os.MkdirAll(filepath.Dir(trash), 0o755); err != nil {
		return fmt.Errorf("removing %s from the cache: %w", e.Part, err)
	}
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("removing what an earlier prune left of %s: %w", e.Part, err)
	}
	if err := os.Rename(e.Path, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s from the cache: %w", e.Part, err)
	}
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("removing %s from the cache: %w", e.Part, err)
	}
	return nil
}

// DiskUsage sums the blocks under path, each file once.
func DiskUsage(path string) (int64, error) {
	var sum int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return err
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		sum += st.Blocks * 512
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measuring %s: %w", strings.TrimSuffix(path, "/"), err)
	}
	return sum, nil
}
