package build

import (
	"context"

	"github.com/castellan-storage/castellan/lab/cache"
)

// Entry is one built thing in the cache.
type Entry struct {
	cache.Entry
	Used bool // by this version of the lab
}

// Entries lists the cache, by part and then oldest first. Other packages keep
// parts of their own in it; of those the newest counts as used.
func Entries() ([]Entry, error) {
	b, err := newBuilder()
	if err != nil {
		return nil, err
	}
	return entries(b, b.cache.List)
}

func entries(b *builder, list func() ([]cache.Entry, error)) ([]Entry, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	out := make([]Entry, len(all))
	for i, e := range all {
		key, ours := b.plan.keys[e.Part]
		last := i+1 == len(all) || all[i+1].Part != e.Part
		out[i] = Entry{Entry: e, Used: ours && key == e.Key || !ours && last}
	}
	return out, nil
}

// Prune removes the entries of the cache that this version of the lab does not
// use, but for those that a process uses: a lab that was started before keeps
// its binaries. It returns both.
func Prune(ctx context.Context) (removed, kept []cache.Entry, err error) {
	b, err := newBuilder()
	if err != nil {
		return nil, nil, err
	}
	return prune(ctx, b, b.cache.List)
}

func prune(ctx context.Context, b *builder, list func() ([]cache.Entry, error)) (removed, kept []cache.Entry, err error) {
	all, err := entries(b, list)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range all {
		if e.Used {
			continue
		}
		pid, err := b.cache.User(e.Entry)
		if err != nil {
			return removed, kept, err
		}
		if pid != 0 {
			kept = append(kept, e.Entry)
			continue
		}
		if err := b.cache.Remove(ctx, e.Entry); err != nil {
			return removed, kept, err
		}
		removed = append(removed, e.Entry)
	}
	return removed, kept, nil
}

// pruneGolden removes the golden roots of an earlier set of loaded images, which
// will not be asked for again. They are hard links: nodes keep what they have.
func pruneGolden(ctx context.Context) error {
	b, err := newBuilder()
	if err != nil {
		return err
	}
	_, _, err = prune(ctx, b, func() ([]cache.Entry, error) { return b.cache.ListPart(partGolden) })
	return err
}
