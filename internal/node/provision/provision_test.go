package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
)

const fsid = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"

// fakeNode is a node whose disks are a list, and the runner that prepares them.
type fakeNode struct {
	devices  []device.Device
	osds     map[string]device.OSD // by path
	busy     map[string]error
	rejects  map[string]string
	ran      []string
	failRuns map[string]error // by device path
	lookErr  error

	// later are the rejections from the second question on.
	later map[string]string
	asked map[string]bool

	mu        sync.Mutex
	unsettled []string
	// held counts who holds a disk; pulled are disks whose names are others' by now.
	held   map[string]int
	pulled map[string]error
}

func (f *fakeNode) Look(context.Context) (inspect.Result, error) {
	if f.lookErr != nil {
		return inspect.Result{}, f.lookErr
	}
	var found []device.Found
	for p, o := range f.osds {
		found = append(found, device.Found{OSD: o, Path: p, Mode: "raw"})
	}
	return inspect.Result{Devices: device.Merge(f.devices, found), Found: found, Unreadable: map[string]error{}}, nil
}

func (f *fakeNode) Inventory(_ context.Context, path string) (device.Inventory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[string]bool{}
	}
	why := f.rejects[path]
	if f.asked[path] && f.later[path] != "" {
		why = f.later[path]
	}
	f.asked[path] = true
	if why != "" {
		return device.Inventory{Rejected: []string{why}}, nil
	}
	return device.Inventory{Available: true}, nil
}

func (f *fakeNode) Free(_ context.Context, d device.Device) error { return f.busy[d.Path] }

func (f *fakeNode) Hold(_ context.Context, d device.Device) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = map[string]int{}
	}
	if err := f.pulled[d.Path]; err != nil {
		return nil, err
	}
	f.held[d.Path]++
	return func() { f.mu.Lock(); defer f.mu.Unlock(); f.held[d.Path]-- }, nil
}

func (f *fakeNode) Settle(context.Context) []string { return f.unsettled }

func (f *fakeNode) Prepare(ctx context.Context, c prepare.Command, devices []device.Device) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(devices) != len(c.Devices) || devices[0].Path != c.Devices[0] {
		return fmt.Errorf("%v for the devices %v", c.Devices, devices)
	}
	for _, p := range append([]string{c.MetadataDevice}, c.Devices...) {
		for _, d := range disksOf(f.devices, p) {
			if f.held[d.Path] == 0 {
				return fmt.Errorf("%s is written to by name and not held", d.Path)
			}
		}
		if i := device.Find(f.devices, p); i >= 0 && f.held[p] > 0 && len(f.devices[i].Parents) > 0 {
			return fmt.Errorf("%s is held itself, so ceph-volume cannot take it away again", p)
		}
	}
	_, err := f.run(ctx, "ceph-volume", c.Args...)
	return err
}

func (f *fakeNode) run(_ context.Context, name string, args ...string) ([]byte, error) {
	f.ran = append(f.ran, name+" "+strings.Join(args, " "))
	for i, a := range args {
		if a != "--data" {
			continue
		}
		p := args[i+1]
		if err := f.failRuns[p]; err != nil {
			return nil, err
		}
		id := len(f.osds)
		f.osds[p] = device.OSD{ID: id, UUID: p, FSID: fsid, Role: device.RoleBlock}
	}
	return nil, nil
}

func disk(name string) device.Device {
	return device.Device{Name: name, Path: "/dev/" + name, Type: device.Disk, Size: 10 << 30, HasNode: true, Serial: "S-" + name}
}

func node(names ...string) *fakeNode {
	f := &fakeNode{osds: map[string]device.OSD{}}
	for _, n := range names {
		f.devices = append(f.devices, disk(n))
	}
	return f
}

// provision runs once and returns the states that were stored on the way.
func provision(t *testing.T, f *fakeNode) (Report, []State, error) {
	t.Helper()
	var states []State
	r, err := Run(t.Context(), f, f, choice.Selection{UseAll: true}, choice.Facts{FSID: fsid},
		func(_ context.Context, r Report) error { states = append(states, r.State); return nil })
	return r, states, err
}

func TestTwoDisksThenNothing(t *testing.T) {
	f := node("sdb", "sdc")
	r, states, err := provision(t, f)
	if err != nil || r.State != Completed || len(r.OSDs) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(states) != 2 || states[0] != Orchestrating || states[1] != Completed {
		t.Errorf("states %v", states)
	}
	// They are made at once: which gets the first id is chance.
	if got := []string{r.OSDs[0].Data.Serial, r.OSDs[1].Data.Serial}; !slices.Contains(got, "S-sdb") || !slices.Contains(got, "S-sdc") {
		t.Errorf("the records must name the disks: %v", got)
	}
	ran := len(f.ran)
	r, _, err = provision(t, f)
	if err != nil || r.State != Completed || len(r.OSDs) != 2 || len(f.ran) != ran {
		t.Errorf("a second run must find both and do nothing: %+v, %v, ran %v", r, err, f.ran[ran:])
	}
}

func TestOneBadDiskDoesNotStopTheOther(t *testing.T) {
	f := node("sdb", "sdc", "sdd", "sde")
	f.failRuns = map[string]error{"/dev/sdb": errors.New("exit status 1: mkfs failed")}
	f.busy = map[string]error{"/dev/sdc": errors.New("held by somebody")}
	f.rejects = map[string]string{"/dev/sdd": "locked"}
	r, _, err := provision(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if r.State != Failed || !strings.Contains(r.Message, "1 of 3") || len(r.OSDs) != 1 || r.OSDs[0].Data.Path != "/dev/sde" {
		t.Errorf("%+v", r)
	}
	for _, ran := range f.ran {
		if strings.Contains(ran, "sdc") || strings.Contains(ran, "sdd") {
			t.Errorf("wrote to a device that is not free: %s", ran)
		}
	}
	all := strings.Join(r.Problems, "\n")
	for _, want := range []string{"mkfs failed", "held by somebody"} {
		if !strings.Contains(all, want) {
			t.Errorf("problems %q do not say %q", all, want)
		}
	}
	if r.Devices[2].Use || r.Devices[2].Reason != choice.Unavailable || !strings.Contains(r.Devices[2].Message, "locked") {
		t.Errorf("report of sdd: %+v", r.Devices[2])
	}
}

// Between the choice and the writing somebody makes a file system on a disk.
func TestADiskThatIsTakenMeanwhileIsNotWrittenTo(t *testing.T) {
	f := node("sdb", "sdc")
	f.later = map[string]string{"/dev/sdc": "Has a FileSystem"}
	r, _, err := provision(t, f)
	if err != nil || r.State != Failed || len(f.ran) != 1 || !strings.Contains(strings.Join(r.Problems, "\n"), "Has a FileSystem") {
		t.Errorf("%+v, %v, ran %v", r, err, f.ran)
	}
}

// A command that says it succeeded and made nothing is a failure: what counts
// is what is on the disks.
func TestSuccessIsWhatIsOnTheDisks(t *testing.T) {
	f := node("sdb")
	r, err := Run(t.Context(), f, silent{}, choice.Selection{UseAll: true}, choice.Facts{FSID: fsid}, func(context.Context, Report) error { return nil })
	if err != nil || r.State != Failed {
		t.Errorf("%+v, %v", r, err)
	}
}

// silent says that it has made OSDs, and has not.
type silent struct{}

func (silent) Settle(context.Context) []string { return nil }

func (silent) Prepare(context.Context, prepare.Command, []device.Device) error { return nil }

func TestANodeThatCannotBeLookedAtIsNotAnEmptyNode(t *testing.T) {
	f := node("sdb")
	f.lookErr = errors.New("lsblk: exit status 1")
	r, states, err := provision(t, f)
	if err == nil || r.State != Failed || states[len(states)-1] != Failed || len(f.ran) != 0 {
		t.Errorf("%+v, %v, %v", r, states, err)
	}
}

// What an earlier run has left does not keep other disks from being used, and is told.
func TestUnsettledIsToldAndStopsNothing(t *testing.T) {
	f := node("sdb")
	f.unsettled = []string{"an OSD was begun on /dev/sdx, which is not there"}
	r, _, err := provision(t, f)
	if err != nil || r.State != Completed || len(r.OSDs) != 1 || len(r.Problems) != 1 || r.Problems[0] != f.unsettled[0] {
		t.Errorf("%+v, %v", r, err)
	}
}

// Plain OSDs are made several at a time, never more than a bound.
func TestSeveralAtATime(t *testing.T) {
	names := []string{"sda", "sdb", "sdc", "sdd", "sde", "sdf", "sdg", "sdh", "sdi", "sdj"}
	f := &crowd{fakeNode: node(names...)}
	var devices []device.Device
	var commands []prepare.Command
	for _, d := range f.devices {
		devices = append(devices, d)
		commands = append(commands, prepare.Command{Raw: true, Devices: []string{d.Path}, OSDs: 1})
	}
	errs := carryOutAll(t.Context(), f, f, append(commands, prepare.Command{Devices: []string{"/dev/gone"}}), devices)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "/dev/gone") {
		t.Errorf("errors %v", errs)
	}
	if f.most < 2 || f.most > atOnce || f.made != len(names) {
		t.Errorf("%d made, %d at a time", f.made, f.most)
	}
}

// crowd counts who is in Prepare.
type crowd struct {
	*fakeNode
	now, most, made int
}

func (c *crowd) Prepare(context.Context, prepare.Command, []device.Device) error {
	c.mu.Lock()
	c.now++
	c.made++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // makes the others overlap
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	return nil
}
