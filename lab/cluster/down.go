package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"golang.org/x/sys/unix"
)

// Down takes a lab down: everything of it and nothing else, whether it runs,
// has crashed, or was left half made. It fails with state.ErrNotUp when there
// is nothing of that name.
func Down(ctx context.Context, name string) error {
	if err := state.CheckRoot(); err != nil {
		return err
	}
	l, err := state.Load(name)
	if errors.Is(err, state.ErrNotUp) {
		return err
	}
	// A record that cannot be read names no processes; a lab that was left so
	// early has none.
	l.Name = name
	ctx, cancel := context.WithTimeout(ctx, 2*clearLimit)
	defer cancel()
	if err := kill(ctx, l); err != nil {
		return err
	}
	return clearAway(ctx, l)
}

// kill ends the lab's processes and waits for it. The supervisor is the first
// process of the lab's pid namespace: it counts as ended when all others have.
func kill(ctx context.Context, l state.Lab) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		plan, err := planDown(l)
		if err != nil {
			return err
		}
		if len(plan.Kill) == 0 {
			return nil
		}
		for _, p := range plan.Kill {
			if !p.Alive() {
				continue
			}
			if err := unix.Kill(p.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("ending process %d (%s) of the lab %s: %w", p.Pid, p.Comm, l.Name, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d (%s) of the lab %s does not end: %w", plan.Kill[0].Pid, plan.Kill[0].Comm, l.Name, ctx.Err())
		case <-tick.C:
		}
	}
}

func planDown(l state.Lab) (state.DownPlan, error) {
	dir, err := l.Dir()
	if err != nil {
		return state.DownPlan{}, err
	}
	m := state.Machine{Self: os.Getpid()}
	if m.Boot, err = state.BootID(); err != nil {
		return state.DownPlan{}, err
	}
	if m.Processes, err = state.Processes(); err != nil {
		return state.DownPlan{}, err
	}
	if m.Loops, err = disk.ListAttached(); err != nil {
		return state.DownPlan{}, err
	}
	if m.Mounts, err = state.Mounts(); err != nil {
		return state.DownPlan{}, err
	}
	return state.PlanDown(l, dir, m), nil
}

// clearAway removes what processes of a lab leave when they end: cgroups and
// files, and loop devices that something else has kept. The directory goes
// last: as long as it is there, down can be tried again.
func clearAway(ctx context.Context, l state.Lab) error {
	plan, err := planDown(l)
	if err != nil {
		return err
	}
	for _, m := range plan.Unmount {
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", m, err)
		}
	}
	hierarchies, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if err := cgroup.New(hierarchies, l.Name).Remove(ctx); err != nil {
		return err
	}
	if err := detachAll(ctx, l); err != nil {
		return err
	}
	dir, err := l.Dir()
	if err != nil {
		return err
	}
	return removeDir(dir)
}

// detachAll waits until the kernel has let go of the lab's loop devices, and
// helps.
func detachAll(ctx context.Context, l state.Lab) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		plan, err := planDown(l)
		if err != nil || len(plan.Detach) == 0 {
			return err
		}
		for _, n := range plan.Detach {
			if err := disk.Detach(n); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the lab %s: /dev/loop%d stays in use, lsof shows by whom: %w", l.Name, plan.Detach[0], ctx.Err())
		case <-tick.C:
		}
	}
}

// removeDir removes a lab's directory, and the one of all labs when it was the
// last. Nothing is mounted in it any more.
func removeDir(dir string) error {
	mounts, err := state.Mounts()
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(mounts, func(m string) bool { return strings.HasPrefix(m, dir+"/") }); i >= 0 {
		return fmt.Errorf("removing %s: something is mounted at %s", dir, mounts[i])
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	_ = os.Remove(filepath.Dir(dir)) // stays while another lab is in it
	return nil
}
