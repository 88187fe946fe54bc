// Package image makes container images without a registry or a daemon: layers
// from directories and single files, put together as an OCI image layout on
// disk, and containerd root directories into which images are imported once so
// that nodes can start from hard links of them.
//
// It must not know which images the lab needs: package build does.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Layer is a compressed layer in a layout.
type Layer struct {
	Digest string // of the compressed blob, "sha256:..."
	DiffID string // of the tar inside, "sha256:..."
	Size   int64  // bytes of the blob
}

// Add is a file or directory of this machine and where it goes in an image.
type Add struct {
	Source      string // a file, symbolic link or directory
	Destination string // absolute in the image; a directory's content goes there
	// Keep keeps owners, special bits, extended attributes and times, as for a
	// root file system. Otherwise all belongs to root and is dated 1970, so that
	// the same content always gives the same digest.
	Keep bool
	// Skip, when not nil, leaves out what it returns true for. It is given the
	// path in the image, without the leading slash.
	Skip func(name string) bool
}

// ParseAdd reads SRC:DST as given on a command line.
func ParseAdd(s string) (Add, error) {
	src, dst, ok := strings.Cut(s, ":")
	if !ok || src == "" || dst == "" {
		return Add{}, fmt.Errorf("%q is not SRC:DST", s)
	}
	if !path.IsAbs(dst) {
		return Add{}, fmt.Errorf("%q: the destination %s is not absolute", s, dst)
	}
	if strings.HasSuffix(dst, "/") {
		dst = path.Join(dst, filepath.Base(src))
	}
	return Add{Source: src, Destination: path.Clean(dst)}, nil
}

// epoch dates what is not kept as it was.
var epoch = time.Unix(0, 0).UTC()

// WriteTar writes the additions, in order, as one tar. The same content always
// gives the same bytes.
func WriteTar(w io.Writer, adds []Add) error {
	t := &tarWriter{tw: tar.NewWriter(w), dirs: map[string]bool{"": true, ".": true}}
	for _, a := range adds {
		if err := t.add(a); err != nil {
			return err
		}
	}
	if err := t.tw.Close(); err != nil {
		return fmt.Errorf("ending the layer: %w", err)
	}
	return nil
}

// inode names a file so that its second name becomes a link.
type inode struct{ dev, ino uint64 }

type tarWriter struct {
	tw   *tar.Writer
	dirs map[string]bool // directories already written, as names in the tar
}

func (t *tarWriter) add(a Add) error {
	seen := map[inode]string{}
	base := strings.TrimPrefix(path.Clean("/"+a.Destination), "/")
	return filepath.WalkDir(a.Source, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %s for a layer: %w", p, err)
		}
		rel, err := filepath.Rel(a.Source, p)
		if err != nil {
			return fmt.Errorf("reading %s for a layer: %w", p, err)
		}
		name := path.Join(base, filepath.ToSlash(rel))
		if name == "." || name == "" {
			return nil // the root of the image
		}
		if a.Skip != nil && a.Skip(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err := t.parents(name); err != nil {
			return err
		}
		if err := t.one(p, name, d, a.Keep, seen); err != nil {
			return fmt.Errorf("adding %s to a layer: %w", p, err)
		}
		return nil
	})
}

// parents writes the directories above name that are not there yet. In an image
// that has them they are left as they are but for mode and owner, so these are
// the usual ones.
func (t *tarWriter) parents(name string) error {
	dir := path.Dir(name)
	if t.dirs[dir] {
		return nil
	}
	if err := t.parents(dir); err != nil {
		return err
	}
	t.dirs[dir] = true
	return t.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: epoch})
}

func (t *tarWriter) one(p, name string, d fs.DirEntry, keep bool, seen map[inode]string) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(p); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if info.IsDir() {
		h.Name += "/"
		t.dirs[name] = true
	}
	if keep {
		// Whole seconds: Python compares them with those in its caches.
		h.ModTime = h.ModTime.Truncate(time.Second)
		if err := addXattrs(h, p); err != nil {
			return err
		}
	} else {
		h.ModTime, h.Uid, h.Gid = epoch, 0, 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && info.Mode().IsRegular() && st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, dup := seen[id]; dup {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			h.PAXRecords = nil
			return t.tw.WriteHeader(h)
		}
		seen[id] = name
	}
	if err := t.tw.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = io.Copy(t.tw, f)
	return err
}

// addXattrs keeps the attributes that matter in an image: capabilities of files
// and what belongs to users.
func addXattrs(h *tar.Header, p string) error {
	n, err := unix.Llistxattr(p, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing extended attributes: %w", err)
	}
	buf := make([]byte, n)
	if n, err = unix.Llistxattr(p, buf); err != nil {
		return fmt.Errorf("listing extended attributes: %w", err)
	}
	names := strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00")
	sort.Strings(names)
	for _, name := range names {
		if name != "security.capability" && !strings.HasPrefix(name, "user.") {
			continue
		}
		val := make([]byte, 64<<10) // the kernel's limit for one value
		n, err := unix.Lgetxattr(p, name, val)
		if err != nil {
			return fmt.Errorf("reading the extended attribute %s: %w", name, err)
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+name] = string(val[:n])
	}
	return nil
}

// counter counts and hashes what passes.
type counter struct {
	w io.Writer
	h hash.Hash
	n int64
}

func newCounter(w io.Writer) *counter { return &counter{w: w, h: sha256.New()} }

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.h.Write(b[:n])
	c.n += int64(n)
	return n, err
}

func (c *counter) digest() string { return "sha256:" + hex.EncodeToString(c.h.Sum(nil)) }

// writeLayer compresses the additions into w.
func writeLayer(w io.Writer, adds []Add) (Layer, error) {
	blob := newCounter(w)
	// Two encoders at the default level: 200 MB/s and a third of the size, where
	// gzip would take a minute for a Ceph root. Concurrency does not change the
	// bytes.
	z, err := zstd.NewWriter(blob, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return Layer{}, fmt.Errorf("starting to compress a layer: %w", err)
	}
	diff := newCounter(z)
	if err := WriteTar(diff, adds); err != nil {
		_ = z.Close()
		return Layer{}, err
	}
	if err := z.Close(); err != nil {
		return Layer{}, fmt.Errorf("compressing a layer: %w", err)
	}
	return Layer{Digest: blob.digest(), DiffID: diff.digest(), Size: blob.n}, nil
}
