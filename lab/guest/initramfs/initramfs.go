// Package initramfs writes the cpio archive ("newc" format) that the Linux
// kernel unpacks as its first root file system.
//
// It writes regular files and directories only, and must not know what they
// are for.
package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// File is one file of the archive.
type File struct {
	// Name is its path without a leading slash; directories above it are
	// made.
	Name string
	// Mode holds the permission bits.
	Mode uint32
	Data []byte
}

const (
	typeDir     = 0o040000
	typeRegular = 0o100000
)

// Write writes an archive with the given directories and files, owned by
// root, without times: equal content gives equal bytes.
func Write(w io.Writer, dirs []string, files []File) error {
	a := &archive{w: bufio.NewWriter(w), made: map[string]bool{}}
	for _, d := range dirs {
		a.dirs(d)
	}
	for _, f := range files {
		if f.Name == "" || path.IsAbs(f.Name) || path.Clean(f.Name) != f.Name || strings.HasPrefix(f.Name, "..") {
			return fmt.Errorf("%q is not a clean relative path", f.Name)
		}
		a.dirs(path.Dir(f.Name))
		a.entry(f.Name, typeRegular|f.Mode&0o7777, f.Data)
	}
	a.entry("TRAILER!!!", 0, nil)
	return a.w.Flush()
}

// archive counts what is written, since headers and data are padded to four
// bytes. Errors stay in the bufio.Writer until Flush.
type archive struct {
	w    *bufio.Writer
	n    int
	ino  int
	made map[string]bool
}

func (a *archive) dirs(dir string) {
	if dir == "." || dir == "/" || a.made[dir] {
		return
	}
	a.dirs(path.Dir(dir))
	a.made[dir] = true
	a.entry(dir, typeDir|0o755, nil)
}

func (a *archive) entry(name string, mode uint32, data []byte) {
	a.ino++
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize, check
	a.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0))
	a.write(append([]byte(name), 0))
	a.pad()
	a.write(data)
	a.pad()
}

func (a *archive) write(p []byte) {
	n, _ := a.w.Write(p)
	a.n += n
}

func (a *archive) pad() {
	a.write(make([]byte, (4-a.n%4)%4))
}
