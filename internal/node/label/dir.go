package label

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// WriteDir writes the files of an OSD's directory from the label of its data device, if
// own agrees that the label is the OSD's: what ceph-osd needs to start, and what
// `ceph-bluestore-tool prime-osd-dir` writes. That tool takes a second of a busy node to
// start, and it writes before it can be asked whose label it has found.
func WriteDir(dev io.ReaderAt, dir string, own func(Label) error) error {
	block, err := head(dev)
	if err != nil {
		return err
	}
	l, meta, err := parse(block)
	if err != nil {
		return err
	}
	if err := own(l); err != nil {
		return err
	}
	key := strings.TrimSpace(meta["osd_key"])
	if !l.Data() || key == "" {
		return fmt.Errorf("writing the OSD's directory: the label is one of %q and has no key of an OSD", l.Description)
	}
	meta["type"], meta["fsid"] = "bluestore", l.UUID
	for _, name := range []string{"type", "fsid", "ceph_fsid", "whoami", "ready"} {
		if err := write(dir, name, strings.TrimSpace(meta[name])); err != nil {
			return err
		}
	}
	return write(dir, "keyring", fmt.Sprintf("[osd.%d]\nkey = %s", l.ID, key))
}

// write replaces a file as a whole, so that neither a half of it is left by a crash nor a
// link followed that lies in its place.
func write(dir, name, content string) error {
	f, err := os.CreateTemp(dir, name+".new-*") // only its owner may read it
	if err != nil {
		return fmt.Errorf("writing the OSD's directory: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(content + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return fmt.Errorf("writing the OSD's directory: %s: %w", name, err)
	}
	return nil
}
