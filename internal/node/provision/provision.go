// Package provision makes OSDs on the node it runs on: look, choose, prepare,
// look again, report. It is the body of the prepare Job.
//
// It must not keep going on a guess: a device is written to only when a look
// right before still finds it free, and what is reported is what the second
// look found on the disks, not what a command said.
package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// State is how far the node has got; the words are those that users of Rook
// know from the status ConfigMap.
type State string

// The states in their order.
const (
	Starting      State = "starting"
	Orchestrating State = "orchestrating"
	Completed     State = "completed"
	Failed        State = "failed"
)

// Report is everything the operator and the user learn of a node.
type Report struct {
	State   State  `json:"status"`
	Message string `json:"message,omitempty"`
	// OSDs of this cluster on the node's disks.
	OSDs []prepare.Result `json:"osds"`
	// Devices with the verdict on each.
	Devices []Device `json:"devices"`
	// Problems did not stop the node but need a person's eye.
	Problems []string `json:"problems,omitempty"`
	// Swaps is what was found of the disks that OSDs wait for; nil where none wait.
	Swaps *swap.Outcome `json:"swaps,omitempty"`
}

// Device is one line of the device report.
type Device struct {
	Path    string        `json:"path"`
	Type    device.Type   `json:"type,omitempty"`
	Size    uint64        `json:"size,omitempty"`
	Serial  string        `json:"serial,omitempty"`
	WWN     string        `json:"wwn,omitempty"`
	Model   string        `json:"model,omitempty"`
	ByID    string        `json:"byID,omitempty"`
	Slot    string        `json:"slot,omitempty"`
	Use     bool          `json:"use"`
	Reason  choice.Reason `json:"reason"`
	Message string        `json:"message"`
}

// Reporter stores the report where the operator reads it.
type Reporter func(ctx context.Context, r Report) error

// Node is what provisioning does to a node.
type Node interface {
	Look(ctx context.Context) (inspect.Result, error)
	Inventory(ctx context.Context, path string) (device.Inventory, error)
	Free(ctx context.Context, d device.Device) error
}

// Run provisions the node and returns the last report, which has been stored.
// An error means that the report could not be stored or that the node could not
// be looked at; a device that fails is in the report.
func Run(ctx context.Context, node Node, runner run.Runner, sel choice.Selection, facts choice.Facts, report Reporter) (Report, error) {
	if err := report(ctx, Report{State: Orchestrating}); err != nil {
		return Report{}, fmt.Errorf("storing the report: %w", err)
	}
	seen, verdicts, err := look(ctx, node, sel, facts)
	if err != nil {
		failed := Report{State: Failed, Message: err.Error()}
		return failed, errors.Join(err, report(ctx, failed))
	}
	problems := unreadable(seen)
	commands := prepare.Commands(verdicts, seen.Devices)
	want := 0
	for _, c := range commands {
		want += c.OSDs
		if err := carryOut(ctx, node, runner, c, seen.Devices); err != nil {
			problems = append(problems, err.Error())
		}
	}
	before := seen
	if len(commands) > 0 {
		if seen, err = node.Look(ctx); err != nil {
			failed := Report{State: Failed, Message: "after preparing: " + err.Error(), Devices: lines(verdicts), Problems: problems}
			return failed, errors.Join(err, report(ctx, failed))
		}
	}
	osds, skipped := Living(seen, facts.FSID, facts.Pending)
	r := Report{State: Completed, OSDs: osds, Swaps: swaps(facts.Pending, seen.Devices), Devices: lines(verdicts), Problems: append(problems, skipped...)}
	if made := newOSDs(before, seen, facts.FSID); made < want {
		r.State = Failed
		r.Message = fmt.Sprintf("%d of %d new OSDs were made", made, want)
	} else if want > 0 {
		r.Message = fmt.Sprintf("%d new OSDs were made", made)
	}
	if err := report(ctx, r); err != nil {
		return r, fmt.Errorf("storing the report: %w", err)
	}
	return r, nil
}

// look lists the devices, asks ceph-volume about those that nothing else rules
// out, and chooses. Asking costs a Python process each, so only these are asked.
func look(ctx context.Context, node Node, sel choice.Selection, facts choice.Facts) (inspect.Result, []choice.Verdict, error) {
	seen, err := node.Look(ctx)
	if err != nil {
		return inspect.Result{}, nil, err
	}
	facts.Reserved = reserve(facts.Reserved, swap.Find(facts.Pending, seen.Devices).Reserved)
	verdicts := choice.Choose(seen.Devices, sel, facts)
	inv := map[string]device.Inventory{}
	for _, v := range verdicts {
		d := v.Device
		fresh := v.Reason == choice.NotInspected || v.Reason == choice.MetadataOnly && len(d.OSDs) == 0
		if !fresh || seen.Unreadable[d.Name] != nil {
			continue
		}
		item, err := node.Inventory(ctx, d.Path)
		if err != nil {
			item = device.Inventory{Rejected: []string{err.Error()}}
		}
		inv[d.Path] = item
	}
	if len(inv) > 0 {
		seen.Devices = device.Merge(seen.Devices, inv, nil)
		verdicts = choice.Choose(seen.Devices, sel, facts)
	}
	return seen, verdicts, nil
}

// carryOut runs one command after a last look at each device it writes to: nobody
// holds it, and ceph-volume still finds nothing on it.
func carryOut(ctx context.Context, node Node, runner run.Runner, c prepare.Command, devices []device.Device) error {
	for _, p := range c.Devices {
		i := device.Find(devices, p)
		if i < 0 {
			return fmt.Errorf("preparing %s: the device is gone", p)
		}
		if err := node.Free(ctx, devices[i]); err != nil {
			return fmt.Errorf("preparing %s: %w", p, err)
		}
		// Preparing the disks before this one has taken minutes, and not every use of a
		// disk holds it open or has a BlueStore label.
		item, err := node.Inventory(ctx, devices[i].Path)
		if err != nil {
			return fmt.Errorf("preparing %s: %w", p, err)
		}
		if !item.Available {
			return fmt.Errorf("preparing %s: it was free when it was chosen, and now ceph-volume rejects it: %s", p, strings.Join(item.Rejected, "; "))
		}
	}
	if _, err := runner.Run(ctx, "ceph-volume", c.Args...); err != nil {
		return fmt.Errorf("preparing %s: %w", strings.Join(c.Devices, ", "), err)
	}
	return nil
}

// newOSDs counts the OSDs of this cluster that were not there before, by uuid.
func newOSDs(before, after inspect.Result, fsid string) int {
	old, _ := prepare.Results(before.Found, before.Devices, fsid)
	now, _ := prepare.Results(after.Found, after.Devices, fsid)
	n := 0
	for _, o := range now {
		if !slices.ContainsFunc(old, func(p prepare.Result) bool { return p.UUID == o.UUID }) {
			n++
		}
	}
	return n
}

func unreadable(seen inspect.Result) []string {
	var p []string
	for name, err := range seen.Unreadable {
		p = append(p, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(p)
	return p
}

func lines(verdicts []choice.Verdict) []Device {
	devices := make([]Device, 0, len(verdicts))
	for _, v := range verdicts {
		d := v.Device
		devices = append(devices, Device{
			Path: d.Path, Type: d.Type, Size: d.Size, Serial: d.Serial, WWN: d.WWN, Model: d.Model, ByID: d.ByID(), Slot: d.Slot,
			Use: v.Use, Reason: v.Reason, Message: v.Message,
		})
	}
	return devices
}
