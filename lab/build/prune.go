package build

import (
	"context"

	"github.com/castellan-storage/castellan/lab/cache"
)

// Prune removes the entries of the cache that this source does not use, but for
// those that a process uses: a lab that runs from an older source keeps its
// binaries. It returns both.
func Prune(ctx context.Context) (removed, kept []cache.Entry, err error) { return prune(ctx, "") }

// prune does it for one part, or for all when it is empty.
func prune(ctx context.Context, part string) (removed, kept []cache.Entry, err error) {
	dir, err := cache.Dir()
	if err != nil {
		return nil, nil, err
	}
	keys, err := Current()
	if err != nil {
		return nil, nil, err
	}
	c := cache.Open(dir)
	list := c.List
	if part != "" {
		list = func() ([]cache.Entry, error) { return c.ListPart(part) }
	}
	entries, err := list()
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if keys[e.Part] == e.Key {
			continue
		}
		pid, err := c.User(e)
		if err != nil {
			return removed, kept, err
		}
		if pid != 0 {
			kept = append(kept, e)
			continue
		}
		if err := c.Remove(ctx, e); err != nil {
			return removed, kept, err
		}
		removed = append(removed, e)
	}
	return removed, kept, nil
}
