package swap

import (
	"slices"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/device"
)

// metadata is a slot whose database device is replaced: the OSD's data stays where it is.
func metadata(id int) Pending {
	return pend(id, 3, func(p *Pending) {
		p.Metadata = true
		p.Old = Disk{Serial: "FAST", ByPath: path(3), ByID: "/dev/disk/by-id/ata-X_FAST"}
		p.Keep = Disk{Serial: map[int]string{5: "DATA5", 6: "DATA6"}[id]}
	})
}

func database(ids ...int) func(*device.Device) {
	return func(d *device.Device) {
		for _, id := range ids {
			d.OSDs = append(d.OSDs, device.OSD{ID: id, UUID: map[int]string{5: "uuid-5", 6: "uuid-6"}[id], FSID: "f", Role: device.RoleDB})
		}
	}
}

func TestMetadataDevice(t *testing.T) {
	both := []Pending{metadata(5), metadata(6)}
	data := []device.Device{disk(0, "DATA5", osd(5)), disk(1, "DATA6", osd(6))}
	for _, c := range []struct {
		name  string
		more  []device.Device
		match string // device for both, "" for none
		asked bool
	}{
		{"still there", []device.Device{disk(3, "FAST", database(5, 6), ssd)}, "", false},
		{"wiped in place", []device.Device{disk(3, "FAST", ssd)}, "", true},
		{"gone, nothing came", nil, "", false},
		{"another in its slot", []device.Device{disk(3, "FAST2", ssd)}, "/dev/disk/by-id/ata-X_FAST2", false},
		{"another elsewhere", []device.Device{disk(4, "FAST2", ssd)}, "/dev/disk/by-id/ata-X_FAST2", false},
		{"a spare that was there before", []device.Device{disk(4, "SPARE", ssd)}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Find(both, slices.Concat(data, c.more))
			for _, id := range []int{5, 6} {
				if got := out.Matches[id].Device; got != c.match {
					t.Errorf("osd.%d: %q, want %q (%s)", id, got, c.match, out.Questions[id])
				}
				if got := out.Questions[id] != ""; got != c.asked {
					t.Errorf("osd.%d is asked about: %q", id, out.Questions[id])
				}
			}
			for _, d := range data {
				if out.Reserved[d.Path] == "" {
					t.Errorf("the data disk %s is nobody's: %v", d.Path, out.Reserved)
				}
			}
		})
	}
}

// A data disk that an attempt has left blank is neither anybody else's nor the new
// metadata device.
func TestABlankDataDiskStaysItsOSDs(t *testing.T) {
	blank := disk(0, "DATA5")
	out := Find([]Pending{metadata(5), metadata(6)}, []device.Device{blank, disk(1, "DATA6", osd(6))})
	if len(out.Matches) > 0 || out.Reserved[blank.Path] == "" {
		t.Errorf("%+v", out)
	}
	named := []Pending{metadata(5), metadata(6)}
	named[0].With = "/dev/disk/by-id/ata-X_DATA5"
	if out := Find(named, []device.Device{blank}); len(out.Matches) > 0 || out.Questions[5] == "" {
		t.Errorf("named: %+v", out)
	}
}
