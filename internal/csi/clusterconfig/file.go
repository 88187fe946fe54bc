package clusterconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrBroken says that a file is not what it should be: not JSON, or no list. It
// must be put right by whoever wrote it; writing over it could lose records.
var ErrBroken = errors.New("no valid list of records in JSON")

// File is config.json: a list of records, of which some belong to others.
type File struct {
	entries []entry
}

// entry is one record as it stands in the file.
type entry struct {
	id  string // empty where there is no cluster id
	raw json.RawMessage
}

// Parse reads config.json. Empty text is an empty list.
func Parse(text string) (File, error) {
	if strings.TrimSpace(text) == "" {
		return File{}, nil
	}
	var raws []json.RawMessage
	if err := json.Unmarshal([]byte(text), &raws); err != nil {
		return File{}, fmt.Errorf("reading %s: %w: %w", ConfigKey, ErrBroken, err)
	}
	f := File{entries: make([]entry, 0, len(raws))}
	for _, raw := range raws {
		f.entries = append(f.entries, entry{id: clusterIDOf(raw), raw: raw})
	}
	return f, nil
}

// clusterIDOf gives the cluster id of a record as a driver would read it, or ""
// for what is no record.
func clusterIDOf(raw json.RawMessage) string {
	var r struct {
		ClusterID string `json:"clusterID"`
	}
	if json.Unmarshal(raw, &r) != nil {
		return ""
	}
	return r.ClusterID
}

// String writes the file. The records that were not set are as they were read.
func (f File) String() string {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, e := range f.entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e.raw)
	}
	b.WriteByte(']')
	return b.String()
}

// IDs gives the cluster ids in the order of the file.
func (f File) IDs() []string {
	ids := make([]string, 0, len(f.entries))
	for _, e := range f.entries {
		if e.id != "" {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// Len is the number of records, those of others included.
func (f File) Len() int { return len(f.entries) }

// Get gives the first record with the cluster id, which is the one that drivers
// use. ok is false if there is none. A record that is there and cannot be read
// is an error.
func (f File) Get(id string) (r Record, ok bool, err error) {
	i := f.index(id)
	if i < 0 {
		return Record{}, false, nil
	}
	if err := json.Unmarshal(f.entries[i].raw, &r); err != nil {
		return Record{}, false, fmt.Errorf("reading the record of cluster %q in %s: %w: %w", id, ConfigKey, ErrBroken, err)
	}
	return r, true, nil
}

// Differing gives the cluster ids whose records are not the same, byte for byte, in
// two files: changed, added or removed ones.
func Differing(a, b File) []string {
	before := make(map[string]json.RawMessage, len(a.entries))
	for _, e := range a.entries {
		if _, twice := before[e.id]; !twice && e.id != "" {
			before[e.id] = e.raw
		}
	}
	var ids []string
	seen := make(map[string]bool, len(b.entries))
	for _, e := range b.entries {
		if e.id == "" || seen[e.id] {
			continue
		}
		seen[e.id] = true
		if !bytes.Equal(before[e.id], e.raw) {
			ids = append(ids, e.id)
		}
		delete(before, e.id)
	}
	return slices.AppendSeq(ids, maps.Keys(before))
}

// Set puts a record in place of the one with the same cluster id, or at the end.
// Keys of the old record that this package does not know are kept; further
// records with the same cluster id, which no driver would ever see, are dropped.
func (f *File) Set(r Record) error {
	if r.ClusterID == "" {
		return fmt.Errorf("writing a record to %s: it has no cluster id", ConfigKey)
	}
	raw, err := r.encode()
	if err != nil {
		return fmt.Errorf("encoding the record of cluster %q: %w", r.ClusterID, err)
	}
	i := f.index(r.ClusterID)
	if i < 0 {
		f.entries = append(f.entries, entry{r.ClusterID, raw})
		return nil
	}
	if bytes.Equal(raw, f.entries[i].raw) && !slices.ContainsFunc(f.entries[i+1:], func(e entry) bool { return e.id == r.ClusterID }) {
		return nil
	}
	if raw, err = merge(f.entries[i].raw, raw, managed()); err != nil {
		return fmt.Errorf("merging the record of cluster %q: %w", r.ClusterID, err)
	}
	f.entries[i].raw = raw
	tail := slices.DeleteFunc(slices.Clone(f.entries[i+1:]), func(e entry) bool { return e.id == r.ClusterID })
	f.entries = append(f.entries[:i+1], tail...)
	return nil
}

// Remove drops every record with the cluster id. The others keep their order.
func (f *File) Remove(id string) {
	f.entries = slices.DeleteFunc(f.entries, func(e entry) bool { return e.id != "" && e.id == id })
}

// Holds tells whether the file already says what r says, so that setting it
// would change nothing.
func (f File) Holds(r Record) bool {
	i := f.index(r.ClusterID)
	if i < 0 {
		return false
	}
	raw, err := r.encode()
	if err != nil {
		return false
	}
	if bytes.Equal(raw, f.entries[i].raw) {
		return true
	}
	merged, err := merge(f.entries[i].raw, raw, managed())
	return err == nil && bytes.Equal(merged, f.entries[i].raw)
}

// Clone gives a copy that can be changed on its own.
func (f File) Clone() File {
	return File{entries: slices.Clone(f.entries)}
}

func (f File) index(id string) int {
	if id == "" {
		return -1
	}
	return slices.IndexFunc(f.entries, func(e entry) bool { return e.id == id })
}
