package state

import (
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/lab/disk"
)

// DownPlan is what taking a lab down does: everything of the lab and nothing
// else.
type DownPlan struct {
	Kill    []Process // the supervisor first: the kernel ends all below it
	Detach  []int     // loop devices
	Unmount []string  // the last made first
}

// Machine is what was seen on the machine.
type Machine struct {
	Self      int // the caller's pid, which is never killed
	Boot      string
	Processes []Process
	Loops     []disk.Attached
	Mounts    []string
}

// PlanDown decides what belongs to the lab in dir. A lab whose record could
// not be read has no ID and no pid: what is in its directory is still its.
func PlanDown(l Lab, dir string, m Machine) DownPlan {
	var plan DownPlan
	under := func(path string) bool { return strings.HasPrefix(path, dir+"/") }
	for _, p := range m.Processes {
		marked := l.ID != "" && p.Lab == l.ID
		if !marked || p.Pid == m.Self || p.State == "Z" {
			continue
		}
		if p.Pid == l.Pid && p.Start == l.Start && l.Boot == m.Boot {
			plan.Kill = slices.Insert(plan.Kill, 0, p)
		} else {
			plan.Kill = append(plan.Kill, p)
		}
	}
	// What stands on a disk of the lab goes before it.
	mine := map[int]bool{}
	for _, a := range m.Loops {
		if under(a.Backing) {
			mine[a.Number] = true
			plan.Detach = append(plan.Detach, a.Number)
		}
	}
	for _, a := range m.Loops {
		if mine[a.Over] && !mine[a.Number] {
			plan.Detach = slices.Insert(plan.Detach, 0, a.Number)
		}
	}
	for _, mount := range m.Mounts {
		if under(mount) {
			plan.Unmount = append(plan.Unmount, mount)
		}
	}
	slices.Reverse(plan.Unmount)
	return plan
}
