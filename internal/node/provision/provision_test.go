package provision

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
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
}

func (f *fakeNode) Look(context.Context) (inspect.Result, error) {
	if f.lookErr != nil {
		return inspect.Result{}, f.lookErr
	}
	var found []device.Found
	for p, o := range f.osds {
		found = append(found, device.Found{OSD: o, Path: p, Mode: "raw"})
	}
	return inspect.Result{Devices: device.Merge(f.devices, nil, found), Found: found, Unreadable: map[string]error{}}, nil
}

func (f *fakeNode) Inventory(_ context.Context, path string) (device.Inventory, error) {
	if why := f.rejects[path]; why != "" {
		return device.Inventory{Rejected: []string{why}}, nil
	}
	return device.Inventory{Available: true}, nil
}

func (f *fakeNode) Free(_ context.Context, d device.Device) error { return f.busy[d.Path] }

func (f *fakeNode) Run(_ context.Context, name string, args ...string) ([]byte, error) {
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
	if r.OSDs[0].Data.Serial != "S-sdb" {
		t.Errorf("the record must name the disk: %+v", r.OSDs[0].Data)
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

// Preparing the first disk takes minutes, and meanwhile somebody makes a file system on
// the second.
func TestADiskThatIsTakenMeanwhileIsNotWrittenTo(t *testing.T) {
	f := node("sdb", "sdc")
	f.rejects = map[string]string{}
	runner := runnerFunc(func(ctx context.Context, name string, args ...string) ([]byte, error) {
		f.rejects["/dev/sdc"] = "Has a FileSystem"
		return f.Run(ctx, name, args...)
	})
	r, err := Run(t.Context(), f, runner, choice.Selection{UseAll: true}, choice.Facts{FSID: fsid}, func(context.Context, Report) error { return nil })
	if err != nil || r.State != Failed || len(f.ran) != 1 || !strings.Contains(strings.Join(r.Problems, "\n"), "Has a FileSystem") {
		t.Errorf("%+v, %v, ran %v", r, err, f.ran)
	}
}

// A command that says it succeeded and made nothing is a failure: what counts
// is what is on the disks.
func TestSuccessIsWhatIsOnTheDisks(t *testing.T) {
	f := node("sdb")
	silent := runnerFunc(func(context.Context, string, ...string) ([]byte, error) { return nil, nil })
	r, err := Run(t.Context(), f, silent, choice.Selection{UseAll: true}, choice.Facts{FSID: fsid}, func(context.Context, Report) error { return nil })
	if err != nil || r.State != Failed {
		t.Errorf("%+v, %v", r, err)
	}
}

type runnerFunc func(context.Context, string, ...string) ([]byte, error)

func (f runnerFunc) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return f(ctx, name, args...)
}

func TestANodeThatCannotBeLookedAtIsNotAnEmptyNode(t *testing.T) {
	f := node("sdb")
	f.lookErr = errors.New("lsblk: exit status 1")
	r, states, err := provision(t, f)
	if err == nil || r.State != Failed || states[len(states)-1] != Failed || len(f.ran) != 0 {
		t.Errorf("%+v, %v, %v", r, states, err)
	}
}
