package provision

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
)

// A disk whose name is another's by now is not written to, and the others are made.
func TestADiskThatWasPulledMeanwhileIsNotWrittenTo(t *testing.T) {
	f := node("sdb", "sdc")
	f.pulled = map[string]error{"/dev/sdb": errors.New("not the same disk")}
	r, _, err := provision(t, f)
	if err != nil || r.State != Failed || len(r.OSDs) != 1 || len(f.ran) != 1 || strings.Contains(f.ran[0], "sdb") || !strings.Contains(strings.Join(r.Problems, "\n"), "not the same disk") {
		t.Errorf("%+v, %v, ran %v", r, err, f.ran)
	}
	for p, n := range f.held {
		if n != 0 {
			t.Errorf("%s is still held", p)
		}
	}
}

// A volume for a database that somebody has taken between the choice and the writing is
// not written to.
func TestAVolumeThatIsTakenMeanwhileGetsNoDatabase(t *testing.T) {
	for name, c := range map[string]struct {
		busy  error
		later string
		made  int
	}{
		"blank":            {nil, "", 1},
		"held":             {errors.New("held by somebody"), "", 0},
		"with a signature": {nil, "Has a FileSystem", 0},
		"small":            {nil, device.InsufficientSpace, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := node("sdb")
			lv := disk("dm-3")
			lv.Type, lv.Path, lv.Links, lv.Size, lv.Parents = device.LVM, "/dev/mapper/fast-db", []string{"/dev/fast/db"}, 2<<30, []string{"sdz"}
			below := disk("sdz")
			below.Children, below.FSType = []string{"dm-3"}, "LVM2_member"
			f.devices = append(f.devices, lv, below)
			f.later = map[string]string{lv.Path: c.later}
			f.busy = map[string]error{lv.Path: c.busy}
			_, err := Run(t.Context(), f, f, choice.Selection{Named: []choice.Named{{Ref: "sdb", Config: choice.Config{MetadataDevice: "/dev/fast/db"}}}},
				choice.Facts{FSID: fsid}, func(_ context.Context, _ Report) error { return nil })
			if err != nil || len(f.ran) != c.made {
				t.Errorf("%v, ran %v", err, f.ran)
			}
		})
	}
}

// What is held for a device is what has a name that another disk can get.
func TestDisksOf(t *testing.T) {
	sda, part, lv, raid := disk("sda"), disk("sda1"), disk("dm-0"), disk("dm-1")
	part.Type, part.Parents = device.Partition, []string{"sda"}
	lv.Type, lv.Path, lv.Parents = device.LVM, "/dev/mapper/fast-db", []string{"sda1", "sdb"}
	raid.Type, raid.Parents = device.Multipath, []string{"sda"}
	devices := []device.Device{sda, part, lv, raid, disk("sdb")}
	for ref, want := range map[string][]string{
		"/dev/sda": {"/dev/sda"}, "/dev/sda1": {"/dev/sda"}, "/dev/mapper/fast-db": {"/dev/sda", "/dev/sdb"}, "/dev/dm-1": {"/dev/dm-1"}, "": nil, "/dev/gone": nil,
	} {
		var got []string
		for _, d := range disksOf(devices, ref) {
			got = append(got, d.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", ref, got, want)
		}
	}
}

// A metadata device that was blank when it was chosen is asked again before its first
// database is made, and only then: afterwards it holds databases.
func TestAMetadataDeviceIsProvenBlankOnce(t *testing.T) {
	for name, c := range map[string]struct {
		later string
		busy  error
		made  int
	}{
		"blank":            {"", nil, 2},
		"held":             {"", errors.New("held by somebody"), 0},
		"with a signature": {"Has a FileSystem", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := &filling{fakeNode: node("sdb", "sdc", "sdd")}
			f.later = map[string]string{"/dev/sdd": c.later}
			f.busy = map[string]error{"/dev/sdd": c.busy}
			sel := choice.Selection{Config: choice.Config{MetadataDevice: "sdd", DatabaseSizeMB: 1024}, Named: []choice.Named{
				{Ref: "sdb", Config: choice.Config{MetadataDevice: "sdd", DatabaseSizeMB: 1024}}, {Ref: "sdc", Config: choice.Config{MetadataDevice: "sdd", DatabaseSizeMB: 1024}},
			}}
			r, err := Run(t.Context(), f, f, sel, choice.Facts{FSID: fsid}, func(context.Context, Report) error { return nil })
			if err != nil || len(f.ran) != c.made {
				t.Errorf("%v, ran %v: %v", err, f.ran, r.Problems)
			}
			for p, n := range f.held {
				if n != 0 {
					t.Errorf("%s is still held", p)
				}
			}
		})
	}
}

// filling is a node whose metadata device holds something after each command.
type filling struct{ *fakeNode }

func (f *filling) Prepare(ctx context.Context, c prepare.Command, devices []device.Device) error {
	err := f.fakeNode.Prepare(ctx, c, devices)
	f.later = map[string]string{c.MetadataDevice: "LVM detected"}
	f.busy = map[string]error{c.MetadataDevice: errors.New("held by LVM")}
	return err
}
