package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// envMark marks the processes of a guest: its value is the guest's directory.
// By it a guest is found whose record was never written.
const envMark = "CASTELLAN_GUEST"

// process tells a process from a later one with the same pid.
type process struct {
	Pid int `json:"pid"`
	// Start is in clock ticks after the boot of the machine.
	Start uint64 `json:"start"`
	// Boot is that boot's id.
	Boot string `json:"boot"`
}

// processOf describes a process that runs.
func processOf(pid int) (process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, err
	}
	_, start, err := readStat(pid)
	if err != nil {
		return process{}, err
	}
	return process{Pid: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// alive reports whether it is this process that runs under its pid, and has
// not ended. A process that cannot be looked at is an error, not a dead one.
func (p process) alive() (bool, error) {
	if p.Pid == 0 {
		return false, nil
	}
	now, err := processOf(p.Pid)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if now != p {
		return false, nil
	}
	state, _, err := readStat(p.Pid)
	if gone(err) {
		return false, nil
	}
	return state != 'Z' && state != 'X', err
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// readStat reads the state and start time of /proc/PID/stat (proc(5)).
func readStat(pid int) (state byte, start uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(string(b))
}

// parseStat: the name stands in parentheses and may hold any character, so the
// last closing one ends it; state is the field after it, start time the 20th.
func parseStat(stat string) (state byte, start uint64, err error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return 0, 0, fmt.Errorf("unexpected process status %q", stat)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], start, err
}

// marked finds the processes that belong to the guest in dir.
func marked(dir string) ([]int, error) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	mark := []byte(envMark + "=" + dir)
	var out []int
	for _, p := range procs {
		env, err := os.ReadFile(filepath.Join(p, "environ"))
		if gone(err) || errors.Is(err, fs.ErrPermission) {
			continue // ended meanwhile, or not ours to end
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the guest's processes: %w", err)
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(v, mark) {
				if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && pid != os.Getpid() {
					out = append(out, pid)
				}
				break
			}
		}
	}
	return out, nil
}

// killAll ends the processes and waits until they are gone. A process that has
// ended and that its parent has not noticed yet counts as gone.
func killAll(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("ending process %d: %w", pid, err)
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left := 0
		for _, pid := range pids {
			state, _, err := readStat(pid)
			if err != nil && !gone(err) {
				return err
			}
			if err == nil && state != 'Z' && state != 'X' {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d processes to end: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}
