package provision

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
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
			lv.Type, lv.Path, lv.Links, lv.Size = device.LVM, "/dev/mapper/fast-db", []string{"/dev/fast/db"}, 2<<30
			f.devices = append(f.devices, lv)
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
