package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"golang.org/x/sys/unix"
)

// Usage is what a part of a lab takes of the machine.
type Usage struct {
	Part      string        // "control" or a node's name
	Processes int           //
	Memory    int64         // bytes: the sum of proportional set sizes
	CPU       time.Duration // used in the time that was watched
}

// Measure watches a lab for a while. Parts are the control plane and the named
// nodes.
func Measure(ctx context.Context, name string, nodes []string, watch time.Duration) ([]Usage, error) {
	hierarchies, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	out := []Usage{{Part: controlGroup}}
	for _, n := range nodes {
		out = append(out, Usage{Part: n})
	}
	set := func(u Usage) cgroup.Set { return cgroup.New(hierarchies, name, u.Part) }
	before := map[string]time.Duration{}
	for _, u := range out {
		if before[u.Part], err = cpu(set(u)); err != nil {
			return nil, err
		}
	}
	timer := time.NewTimer(watch)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for i := range out {
		u := &out[i]
		after, err := cpu(set(*u))
		if err != nil {
			return nil, err
		}
		u.CPU = after - before[u.Part]
		if !set(*u).Exists() {
			continue
		}
		pids, err := set(*u).Pids()
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			n, err := pss(pid)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // ended since
			}
			if err != nil {
				return nil, err
			}
			u.Processes++
			u.Memory += n
		}
	}
	return out, nil
}

// cpu is the processor time of a part; a stopped node has used none.
func cpu(s cgroup.Set) (time.Duration, error) {
	if !s.Exists() {
		return 0, nil
	}
	return s.CPU()
}

// pss is a process's share of the memory (proc(5), smaps_rollup).
func pss(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if v, ok := strings.CutPrefix(string(line), "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, nil
}
