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
	"sync"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
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
	// Hold proves that a device is the one that was looked at, and keeps its name from
	// being another's until it is released.
	Hold(ctx context.Context, d device.Device) (release func(), err error)
}

// Preparer makes OSDs.
type Preparer interface {
	// Settle ends what an earlier run has begun and not finished, and says what it
	// cannot end.
	Settle(ctx context.Context) []string
	// Prepare carries out a command on devices that have just been found blank. It is
	// called by several goroutines for commands that are Raw.
	Prepare(ctx context.Context, c prepare.Command, devices []device.Device) error
}

// atOnce is how many plain OSDs are made at the same time: making one is a second of
// computing and of waiting for its disk each.
const atOnce = 4

// Run provisions the node and returns the last report, which has been stored.
// An error means that the report could not be stored or that the node could not
// be looked at; a device that fails is in the report.
func Run(ctx context.Context, node Node, preparer Preparer, sel choice.Selection, facts choice.Facts, report Reporter) (Report, error) {
	if err := report(ctx, Report{State: Orchestrating}); err != nil {
		return Report{}, fmt.Errorf("storing the report: %w", err)
	}
	unsettled := preparer.Settle(ctx)
	seen, verdicts, err := look(ctx, node, sel, facts)
	if err != nil {
		failed := Report{State: Failed, Message: err.Error()}
		return failed, errors.Join(err, report(ctx, failed))
	}
	problems := append(unsettled, unreadable(seen)...)
	commands := prepare.Commands(verdicts, seen.Devices)
	want := 0
	for _, c := range commands {
		want += c.OSDs
	}
	for _, err := range carryOutAll(ctx, node, preparer, commands, seen.Devices) {
		problems = append(problems, err.Error())
	}
	before := seen
	if len(commands) > 0 {
		if seen, err = node.Look(ctx); err != nil {
			failed := Report{State: Failed, Message: "after preparing: " + err.Error(), Devices: lines(verdicts), Problems: problems}
			return failed, errors.Join(err, report(ctx, failed))
		}
	}
	osds, skipped := Living(seen, facts.FSID, facts.Pending)
	r := Report{State: Completed, OSDs: osds, Swaps: swaps(facts.Pending, seen.Devices, facts.FSID), Devices: lines(verdicts), Problems: append(problems, skipped...)}
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

// look lists the devices, asks about those that nothing else rules out whether they
// are blank, and chooses.
func look(ctx context.Context, node Node, sel choice.Selection, facts choice.Facts) (inspect.Result, []choice.Verdict, error) {
	seen, err := node.Look(ctx)
	if err != nil {
		return inspect.Result{}, nil, err
	}
	facts.Reserved = reserve(facts.Reserved, find(facts.Pending, seen.Devices, facts.FSID).Reserved)
	verdicts := choice.Choose(seen.Devices, sel, facts)
	asked := false
	seen.Devices = slices.Clone(seen.Devices)
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
		if i := slices.IndexFunc(seen.Devices, func(o device.Device) bool { return o.Name == d.Name }); i >= 0 {
			seen.Devices[i].Inventory, asked = &item, true
		}
	}
	if asked {
		verdicts = choice.Choose(seen.Devices, sel, facts)
	}
	return seen, verdicts, nil
}

// carryOutAll runs the commands: plain OSDs several at a time, since each has a device
// of its own, then all others one after another. It gives what failed, in the order of
// the commands.
func carryOutAll(ctx context.Context, node Node, preparer Preparer, commands []prepare.Command, devices []device.Device) []error {
	errs := make([]error, len(commands))
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i, c := range commands {
		if c.Raw {
			wg.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				errs[i] = carryOut(ctx, node, preparer, c, devices, nil)
			})
		}
	}
	wg.Wait()
	given := map[string]bool{}
	for i, c := range commands {
		if !c.Raw {
			errs[i] = carryOut(ctx, node, preparer, c, devices, given)
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// carryOut runs one command after a last look at each device it writes to: nobody
// holds it, and there is still nothing on it. Between that look and the writing Ceph is
// asked for an id, which takes as long as it takes; the programs are told names, and a disk
// that was pulled gives its own to the next one, which may hold data. So all disks are held
// from before the look to the end. given are the metadata devices that an earlier command
// was told to use.
func carryOut(ctx context.Context, node Node, preparer Preparer, c prepare.Command, devices []device.Device, given map[string]bool) error {
	named := strings.Join(c.Devices, ", ")
	var release []func()
	defer func() {
		for _, r := range release {
			r()
		}
	}()
	for _, p := range append(slices.Clone(c.Devices), c.MetadataDevice) {
		for _, d := range disksOf(devices, p) {
			free, err := node.Hold(ctx, d)
			if err != nil {
				return fmt.Errorf("preparing %s: %w", named, err)
			}
			release = append(release, free)
		}
	}
	blank, err := stillBlank(ctx, node, c.Devices, devices)
	if err != nil {
		return err
	}
	if i := device.Find(devices, c.MetadataDevice); i >= 0 && forDatabase(devices[i]) && !given[c.MetadataDevice] {
		if err := freeForDatabase(ctx, node, devices[i]); err != nil {
			return fmt.Errorf("preparing %s: its database: %w", named, err)
		}
	}
	if c.MetadataDevice != "" {
		given[c.MetadataDevice] = true
	}
	if err := preparer.Prepare(ctx, c, blank); err != nil {
		return fmt.Errorf("preparing %s: %w", named, err)
	}
	return nil
}

// disksOf are the devices that have to be held for the sake of one: itself, or the disks
// below a partition or volume. ceph-volume takes a volume or partition of an OSD that
// could not be made away again, which the kernel refuses of one that somebody has open; a
// partition is named after its disk, and a volume by LVM, which reads the name from the disk.
func disksOf(devices []device.Device, ref string) []device.Device {
	i := device.Find(devices, ref)
	if i < 0 {
		return nil
	}
	d := devices[i]
	if d.Type != device.Partition && d.Type != device.LVM {
		return []device.Device{d}
	}
	var disks []device.Device
	for _, p := range d.Parents {
		disks = append(disks, disksOf(devices, p)...)
	}
	return disks
}

// stillBlank is the last look at the devices of the data.
func stillBlank(ctx context.Context, node Node, paths []string, devices []device.Device) ([]device.Device, error) {
	var blank []device.Device
	for _, p := range paths {
		i := device.Find(devices, p)
		if i < 0 {
			return nil, fmt.Errorf("preparing %s: the device is gone", p)
		}
		if err := node.Free(ctx, devices[i]); err != nil {
			return nil, fmt.Errorf("preparing %s: %w", p, err)
		}
		// Preparing the disks before this one has taken minutes, and not every use of a
		// disk holds it open or has a BlueStore label.
		item, err := node.Inventory(ctx, devices[i].Path)
		if err != nil {
			return nil, fmt.Errorf("preparing %s: %w", p, err)
		}
		if !item.Available {
			return nil, fmt.Errorf("preparing %s: it was free when it was chosen, and is rejected now: %s", p, strings.Join(item.Rejected, "; "))
		}
		blank = append(blank, devices[i])
	}
	return blank, nil
}

// forDatabase reports whether a metadata device was blank when it was chosen: a volume or a
// partition, which becomes one database as it is, and a disk that has no databases yet.
func forDatabase(d device.Device) bool {
	return choice.WrittenWhole(d) || d.Inventory != nil && len(choice.ForDatabase(*d.Inventory)) == 0
}

// freeForDatabase is the last look at a device that gets its first database.
func freeForDatabase(ctx context.Context, node Node, d device.Device) error {
	if err := node.Free(ctx, d); err != nil {
		return err
	}
	item, err := node.Inventory(ctx, d.Path)
	if err != nil {
		return err
	}
	if why := choice.ForDatabase(item); len(why) > 0 || !item.Available && len(item.Rejected) == 0 {
		return fmt.Errorf("%s was free when it was chosen, and is rejected now: %s", d.Path, strings.Join(why, "; "))
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
