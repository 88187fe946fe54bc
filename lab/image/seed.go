package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SeedRoot makes dst, which must not exist, a containerd root directory of its
// own with the content of golden: layers and blobs, which containerd never
// changes, are hard links; its databases are copies. Both must be on the same
// file system.
func SeedRoot(golden, dst string) error {
	return LinkTree(golden, dst, func(name string) bool { return strings.HasSuffix(name, ".db") })
}

// LinkTree makes dst, which must not exist, a copy of the tree src whose files
// are hard links, but for those that copied (which may be nil) returns true for.
// Owners, modes, times and extended attributes of directories are kept.
func LinkTree(src, dst string, copied func(name string) bool) error {
	if err := linkDir(src, dst, copied); err != nil {
		if errors.Is(err, unix.EXDEV) {
			return fmt.Errorf("%s and %s are on different file systems, hard links need one: set CASTELLAN_LAB_CACHE to a directory on the other one's: %w", src, dst, err)
		}
		return fmt.Errorf("linking %s to %s: %w", src, dst, err)
	}
	return nil
}

func linkDir(src, dst string, copied func(string) bool) error {
	var st unix.Stat_t
	if err := unix.Lstat(src, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: src, Err: err}
	}
	if err := os.Mkdir(dst, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, d := filepath.Join(src, e.Name()), filepath.Join(dst, e.Name())
		switch {
		case e.IsDir():
			err = linkDir(s, d, copied)
		case e.Type()&fs.ModeSocket != 0:
			continue
		case copied != nil && e.Type().IsRegular() && copied(e.Name()):
			err = copyFile(s, d)
		default:
			err = unix.Linkat(unix.AT_FDCWD, s, unix.AT_FDCWD, d, 0)
			if err != nil {
				err = &os.LinkError{Op: "link", Old: s, New: d, Err: err}
			}
		}
		if err != nil {
			return err
		}
	}
	return sameDir(src, dst, &st)
}

// sameDir gives dst what src has besides its entries.
func sameDir(src, dst string, st *unix.Stat_t) error {
	if err := os.Lchown(dst, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Chmod(dst, st.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: dst, Err: err}
	}
	if err := copyXattrs(src, dst); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimes", Path: dst, Err: err}
	}
	return nil
}

func copyXattrs(src, dst string) error {
	buf := make([]byte, 64<<10) // the kernel's limit for the list and for a value
	n, err := unix.Llistxattr(src, buf)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "listxattr", Path: src, Err: err}
	}
	for _, name := range strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		val := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(src, name, val)
		if err != nil {
			return &fs.PathError{Op: "getxattr " + name, Path: src, Err: err}
		}
		if err := unix.Lsetxattr(dst, name, val[:n], 0); err != nil {
			return &fs.PathError{Op: "setxattr " + name, Path: dst, Err: err}
		}
	}
	return nil
}

func copyFile(src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return out.Chown(int(st.Uid), int(st.Gid))
	}
	return nil
}
