package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// proc is where the kernel shows processes.
const proc = "/proc"

// User returns a process that uses an entry: its program is in it, it is mounted
// where the process is, or it is named in its arguments. 0 means that there is
// none.
func (c *Cache) User(e Entry) (pid int, err error) {
	return user(proc, filepath.Join("parts", e.Part, string(e.Key)))
}

// user looks for the end of a path, as a bind mount is shown with a path inside
// its file system. The key in it makes it unmistakable.
func user(procDir, path string) (int, error) {
	dirs, err := os.ReadDir(procDir)
	if err != nil {
		return 0, fmt.Errorf("looking for who uses the cache: %w", err)
	}
	self := os.Getpid()
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == self {
			continue
		}
		uses, err := mentions(filepath.Join(procDir, d.Name()), path)
		if err != nil {
			return 0, fmt.Errorf("looking for who uses the cache: %w", err)
		}
		if uses {
			return pid, nil
		}
	}
	return 0, nil
}

func mentions(dir, path string) (bool, error) {
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	if err := unlessGone(err); err != nil {
		return false, err
	}
	if strings.Contains(exe, path+"/") {
		return true, nil
	}
	for _, f := range []string{"mountinfo", "cmdline"} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err := unlessGone(err); err != nil {
			return false, err
		}
		if strings.Contains(string(b), path) {
			return true, nil
		}
	}
	return false, nil
}

// unlessGone drops the errors of a process that ended, or that is a kernel
// thread or a zombie and has no program and no mounts, or that may not be looked
// at: what a lab runs has the rights of who started it, and who may remove its
// binaries may look.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
