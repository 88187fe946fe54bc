package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is a process of this machine, with what tells it from a later one of
// the same pid.
type Process struct {
	Pid   int
	Start uint64 // clock ticks after boot
	PPid  int
	Comm  string
	State string // "Z": ended, not reaped
	Lab   string // the mark in its environment; "" when there is none
}

// Alive reports whether the process runs still.
func (p Process) Alive() bool {
	now, err := readProcess(p.Pid)
	return err == nil && now.Start == p.Start && now.State != "Z"
}

// Alive reports whether the lab's supervisor runs: the recorded process, in
// the same boot, with the lab's mark.
func (l Lab) Alive() bool {
	boot, err := BootID()
	if err != nil || boot != l.Boot || l.Pid == 0 {
		return false
	}
	p, err := readProcess(l.Pid)
	return err == nil && p.Start == l.Start && p.State != "Z" && p.Lab == l.ID
}

// StartOf is the start time of a process that the caller knows to run.
func StartOf(pid int) (uint64, error) {
	p, err := readProcess(pid)
	return p.Start, err
}

// Processes lists all processes of the machine.
func Processes() ([]Process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []Process
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			return nil, fmt.Errorf("listing processes: %w", err)
		}
		p, err := readProcess(pid)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func readProcess(pid int) (Process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("reading about process %d: %w", pid, err)
	}
	p, err := parseStat(pid, string(stat))
	if err != nil {
		return Process{}, err
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil && !gone(err) && !errors.Is(err, fs.ErrPermission) {
		return Process{}, fmt.Errorf("reading about process %d: %w", pid, err)
	}
	p.Lab = labMark(environ)
	return p, nil
}

// parseStat reads /proc/PID/stat (proc(5)): the name stands in parentheses and
// may hold any character, so the last one ends it.
func parseStat(pid int, stat string) (Process, error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("reading about process %d: unexpected form", pid)
	}
	rest := strings.Fields(stat[end+1:])
	const state, ppid, start = 0, 1, 19 // fields 3, 4 and 22
	if len(rest) <= start {
		return Process{}, fmt.Errorf("reading about process %d: unexpected form", pid)
	}
	p := Process{Pid: pid, Comm: stat[open+1 : end], State: rest[state]}
	var err error
	if p.PPid, err = strconv.Atoi(rest[ppid]); err != nil {
		return Process{}, fmt.Errorf("reading about process %d: %w", pid, err)
	}
	if p.Start, err = strconv.ParseUint(rest[start], 10, 64); err != nil {
		return Process{}, fmt.Errorf("reading about process %d: %w", pid, err)
	}
	return p, nil
}

func labMark(environ []byte) string {
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(EnvID+"=")); ok {
			return string(v)
		}
	}
	return ""
}

// Mounts lists the mount points of the calling process's namespace, in the
// order in which they were made.
func Mounts() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	return parseMounts(string(b)), nil
}

func parseMounts(mountinfo string) []string {
	var out []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 {
			out = append(out, unescape.Replace(f[4]))
		}
	}
	return out
}
