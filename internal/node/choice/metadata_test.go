package choice

import (
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/device"
)

// A volume or partition that is named for a database is written to as a whole, so it has
// to be as blank as a disk, and it holds one database.
func TestAVolumeForADatabaseIsBlankToo(t *testing.T) {
	part := func(change func(*device.Device)) device.Device {
		return with("sda2", func(d *device.Device) { d.Type = device.Partition; d.Parents = []string{"sda"}; change(d) })
	}
	lv := func(change func(*device.Device)) device.Device {
		return with("dm-3", func(d *device.Device) {
			d.Type, d.Path, d.Links, d.Size = device.LVM, "/dev/mapper/fast-db", []string{"/dev/fast/db"}, 2<<30
			d.Inventory = &device.Inventory{Rejected: []string{device.InsufficientSpace}}
			change(d)
		})
	}
	of := func(fsid string, role device.Role) func(*device.Device) {
		return func(d *device.Device) { d.OSDs = []device.OSD{{ID: 4, UUID: "u4", FSID: fsid, Role: role}} }
	}
	nothing := func(*device.Device) {}
	for name, c := range map[string]struct {
		meta device.Device
		ref  string
		want Reason
		says string
	}{
		"a blank partition":              {part(nothing), "sda2", Selected, ""},
		"a blank volume, small":          {lv(nothing), "/dev/fast/db", Selected, ""},
		"a partition with a file system": {part(func(d *device.Device) { d.FSType = "ext4" }), "sda2", NoMetadata, "ext4"},
		"a volume with a file system":    {lv(func(d *device.Device) { d.FSType = "xfs" }), "/dev/fast/db", NoMetadata, "xfs"},
		"a volume under a mapping":       {lv(func(d *device.Device) { d.Children = []string{"dm-9"} }), "/dev/fast/db", NoMetadata, "dm-9"},
		"a volume that cannot be asked":  {lv(func(d *device.Device) { d.Inventory = nil }), "/dev/fast/db", NoMetadata, "not inspected"},
		"a volume with a label": {lv(func(d *device.Device) {
			d.Inventory.Rejected = []string{"Has BlueStore device label", device.InsufficientSpace}
		}), "/dev/fast/db", NoMetadata, "BlueStore"},
		"a partition that somebody holds":     {part(func(d *device.Device) { d.Inventory = &device.Inventory{Rejected: []string{"locked"}} }), "sda2", NoMetadata, "locked"},
		"the database of another of our OSDs": {lv(of(ours, device.RoleDB)), "/dev/fast/db", NoMetadata, "osd.4"},
		"the WAL of another of our OSDs":      {part(of(ours, device.RoleWAL)), "sda2", NoMetadata, "osd.4"},
		"a database of another cluster":       {lv(of("other", device.RoleDB)), "/dev/fast/db", NoMetadata, "not of this cluster"},
	} {
		sel := Selection{Named: []Named{{Ref: "sdb", Config: Config{MetadataDevice: c.ref}}}}
		got := Choose([]device.Device{blank("sdb"), c.meta}, sel, Facts{FSID: ours})[0]
		if got.Reason != c.want || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %s (%s), want %s with %q", name, got.Reason, got.Message, c.want, c.says)
		}
	}
}

// Two disks cannot have their databases on one volume: the second would be made on top of
// the first.
func TestAVolumeHoldsOneDatabase(t *testing.T) {
	lv := with("dm-3", func(d *device.Device) {
		d.Type, d.Path, d.Links = device.LVM, "/dev/mapper/fast-db", []string{"/dev/fast/db"}
	})
	sel := Selection{UseAll: true, Config: Config{MetadataDevice: "/dev/fast/db"}}
	got := Choose([]device.Device{blank("sdb"), blank("sdc"), lv}, sel, Facts{FSID: ours})
	if !got[0].Use || got[1].Use || got[1].Reason != NoMetadata || !strings.Contains(got[1].Message, "/dev/sdb") {
		t.Errorf("%+v\n%+v", got[0], got[1])
	}
	whole := Selection{UseAll: true, Config: Config{MetadataDevice: "nvme0n1"}}
	if got := Choose([]device.Device{blank("sdb"), blank("sdc"), blank("nvme0n1")}, whole, Facts{FSID: ours}); !got[0].Use || !got[1].Use {
		t.Errorf("a whole device holds several: %+v", got)
	}
}
