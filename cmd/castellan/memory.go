package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The start reads and runs much that is not needed again: it is given back once all
// controllers have had their first pass, which takes a second or two. From then on pages
// of files are given back at each tidyEvery, which costs some hundred page faults, and
// memory at every second one, which costs a collection of some 10 MiB: together two
// tenths of a percent of a processor.
const (
	tidyFirst = 5 * time.Second
	tidyEvery = 10 * time.Second
)

// tidy gives memory back that is not in use, until ctx ends: what the collector keeps
// in case the heap grows again, and the pages of program and libraries that only the
// start has needed. Most of the operator's resident memory is its program, mapped in
// whole neighbourhoods by the first pass through each part of it (55 of 89 MB after a
// start), and most of its life it does little.
func tidy(ctx context.Context, fixed []mapping) {
	timer := time.NewTimer(tidyFirst)
	defer timer.Stop()
	for collect := true; ; collect = !collect {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if collect {
			debug.FreeOSMemory()
		}
		dropClean(fixed)
		timer.Reset(tidyEvery)
	}
}

// mapping is a part of the address space that is a file's.
type mapping struct {
	start, end uintptr
	mode, file string
	// dirty is how much of it is no longer the file's, in KiB.
	dirty int
}

// fixedMappings are those of the program and of the libraries that it is linked with,
// if called before anything else is loaded: they stay where they are as long as the
// process lives.
func fixedMappings() []mapping {
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return nil // another system: nothing is given back
	}
	return parseSmaps(b)
}

// dropClean unmaps the clean pages of those of the fixed mappings that can only be
// read. They stay in the kernel's cache as long as there is room, and come back from
// there, or from the file, when they are touched. A mapping with a page that differs
// from the file is left alone.
func dropClean(fixed []mapping) {
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range droppable(fixed, parseSmaps(b)) {
		// An error means that the kernel keeps the pages: nothing is lost.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// droppable are the mappings of now that are among the fixed ones, belong to a file,
// cannot be written and have not been.
func droppable(fixed, now []mapping) []mapping {
	was := map[mapping]bool{}
	for _, m := range fixed {
		m.dirty = 0
		was[m] = true
	}
	var out []mapping
	for _, m := range now {
		key := m
		key.dirty = 0
		if was[key] && m.dirty == 0 && strings.HasPrefix(m.file, "/") && strings.HasPrefix(m.mode, "r-") && strings.HasSuffix(m.mode, "p") {
			out = append(out, m)
		}
	}
	return out
}

// parseSmaps reads /proc/PID/smaps (proc_pid_smaps(5)).
func parseSmaps(b []byte) []mapping {
	var out []mapping
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		line := lines.Text()
		if kb, ok := strings.CutPrefix(line, "Anonymous:"); ok && len(out) > 0 {
			if _, err := fmt.Sscanf(kb, "%d kB", &out[len(out)-1].dirty); err != nil {
				out[len(out)-1].dirty = -1 // not known, so not clean
			}
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 5 || strings.HasSuffix(fields[0], ":") {
			continue
		}
		m := mapping{mode: fields[1], file: strings.Join(fields[5:], " ")}
		if n, _ := fmt.Sscanf(fields[0], "%x-%x", &m.start, &m.end); n == 2 {
			out = append(out, m)
		}
	}
	return out
}
