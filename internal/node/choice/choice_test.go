package choice

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
)

const ours = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"

// blank is a device that everything speaks for.
func blank(name string) device.Device {
	return device.Device{
		Name: name, Path: "/dev/" + name, Type: device.Disk, Size: 10 << 30, HasNode: true,
		Inventory: &device.Inventory{Available: true},
	}
}

func with(name string, change func(*device.Device)) device.Device {
	d := blank(name)
	change(&d)
	return d
}

func TestNothingButABlankDeviceIsUsed(t *testing.T) {
	osd := func(fsid string) []device.OSD {
		return []device.OSD{{ID: 3, UUID: "u3", FSID: fsid, Role: device.RoleBlock}}
	}
	cases := []struct {
		name string
		dev  device.Device
		want Reason
		says string
	}{
		{"blank", blank("sdb"), Selected, "useAllDevices"},
		{"rbd", blank("rbd0"), NeverUsed, "network"},
		{"nbd", blank("nbd12"), NeverUsed, "network"},
		{"drbd", blank("drbd1000"), NeverUsed, "network"},
		{"zram", blank("zram0"), NeverUsed, "memory"},
		{"no node", with("sdb", func(d *device.Device) { d.HasNode = false }), NoDeviceNode, "no device node"},
		{"rom", with("sr0", func(d *device.Device) { d.Type = device.ROM }), NotADisk, "ROM"},
		{"read-only", with("sdb", func(d *device.Device) { d.ReadOnly = true }), ReadOnly, "read-only"},
		{"mounted", with("sdb", func(d *device.Device) { d.Mounts = []string{"/data"} }), Mounted, "/data"},
		{"file system", with("sdb", func(d *device.Device) { d.FSType = "xfs" }), HasData, "xfs"},
		{"partition table", with("sdb", func(d *device.Device) { d.PartTable = "gpt" }), HasData, "gpt"},
		{"holders", with("sdb", func(d *device.Device) { d.Children = []string{"sdb1"} }), HasHolders, "sdb1"},
		{"small", with("sdb", func(d *device.Device) { d.Size = 4 << 30 }), TooSmall, "5 GiB"},
		{"our OSD", with("sdb", func(d *device.Device) { d.OSDs = osd(ours) }), InUse, "osd.3"},
		{"foreign OSD", with("sdb", func(d *device.Device) { d.OSDs = osd("other") }), ForeignOSD, "cluster other"},
		{"OSD of an unknown cluster", with("sdb", func(d *device.Device) { d.OSDs = osd("") }), ForeignOSD, "not of this cluster"},
		{"rejected", with("sdb", func(d *device.Device) {
			d.Inventory = &device.Inventory{Rejected: []string{"Has GPT headers", "locked"}}
		}), Unavailable, "Has GPT headers; locked"},
		{"not inspected", with("sdb", func(d *device.Device) { d.Inventory = nil }), NotInspected, "not inspected"},
		{"being replaced", with("sdb", func(d *device.Device) { d.Inventory.BeingReplaced = true }), BeingReplaced, "mark"},
		{"lv", with("dm-0", func(d *device.Device) { d.Type = device.LVM }), MustBeNamed, "logical"},
		{"loop", with("loop0", func(d *device.Device) { d.Type = device.Loop }), MustBeNamed, "ROOK_CEPH_ALLOW_LOOP_DEVICES"},
		{"dm-crypt", with("dm-1", func(d *device.Device) { d.Type = device.Crypt }), MustBeNamed, "\"crypt\""},
		{"raid set", with("md0", func(d *device.Device) { d.Type = "raid1" }), MustBeNamed, "\"raid1\""},
		{"held", blank("sdz"), Held, "osd.5"},
	}
	facts := Facts{FSID: ours, Reserved: map[string]string{"/dev/sdz": "osd.5"}}
	for _, c := range cases {
		for _, how := range []struct {
			name string
			sel  Selection
		}{
			{"all", Selection{UseAll: true}},
			{"named", Selection{Named: []Named{{Ref: c.dev.Name}}}},
			{"filter", Selection{Filter: regexp.MustCompile(".")}},
			{"path filter", Selection{PathFilter: regexp.MustCompile(".")}},
		} {
			if how.name == "named" && c.want == MustBeNamed && c.dev.Type != device.Loop {
				continue // naming is what it needs
			}
			got := Choose([]device.Device{c.dev}, how.sel, facts)
			if len(got) != 1 || got[0].Reason != c.want || got[0].Use != (c.want == Selected) {
				t.Errorf("%s selected by %s: %+v, want %s", c.name, how.name, got, c.want)
			}
			if how.name == "all" && !strings.Contains(got[0].Message, c.says) {
				t.Errorf("%s: message %q does not say %q", c.name, got[0].Message, c.says)
			}
		}
	}
}

func TestMountOnAPartitionProtectsTheDisk(t *testing.T) {
	devices := []device.Device{
		with("sda", func(d *device.Device) { d.Children = []string{"sda1"} }),
		with("sda1", func(d *device.Device) { d.Type = device.Partition; d.Children = []string{"dm-0"} }),
		with("dm-0", func(d *device.Device) { d.Type = device.LVM; d.Mounts = []string{"/"} }),
	}
	for _, v := range Choose(devices, Selection{UseAll: true}, Facts{FSID: ours}) {
		if v.Use || v.Reason != Mounted {
			t.Errorf("%s: %s %s, want %s", v.Device.Name, v.Reason, v.Message, Mounted)
		}
	}
}

func TestPrecedence(t *testing.T) {
	devices := []device.Device{
		with("sdb", func(d *device.Device) { d.Links = []string{"/dev/disk/by-path/pci-1"} }),
		with("sdc", func(d *device.Device) { d.Links = []string{"/dev/disk/by-path/pci-2"} }),
		blank("nvme0n1"),
	}
	used := func(sel Selection) []string {
		var names []string
		for _, v := range Choose(devices, sel, Facts{FSID: ours}) {
			if v.Use {
				names = append(names, v.Device.Name)
			}
		}
		return names
	}
	all := Selection{
		UseAll: true, Filter: regexp.MustCompile("^sd"), PathFilter: regexp.MustCompile("pci-2$"),
		Named: []Named{{Ref: "/dev/disk/by-path/pci-1"}},
	}
	steps := []struct {
		name string
		drop func(*Selection)
		want []string
	}{
		{"names win over everything", func(*Selection) {}, []string{"sdb"}},
		{"then deviceFilter", func(s *Selection) { s.Named = nil }, []string{"sdb", "sdc"}},
		{"then devicePathFilter", func(s *Selection) { s.Filter = nil }, []string{"sdc"}},
		{"then useAllDevices", func(s *Selection) { s.PathFilter = nil }, []string{"sdb", "sdc", "nvme0n1"}},
		{"nothing selected, nothing used", func(s *Selection) { s.UseAll = false }, nil},
	}
	for _, s := range steps {
		s.drop(&all)
		if diff := cmp.Diff(s.want, used(all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
}

func TestNamesThatFitNothingAreSaid(t *testing.T) {
	d := with("sdb", func(d *device.Device) { d.Links = []string{"/dev/disk/by-id/x"} })
	got := Choose([]device.Device{d}, Selection{Named: []Named{
		{Ref: "sdb", Config: Config{DeviceClass: "hdd"}}, {Ref: "sdq"}, {Ref: "/dev/disk/by-id/x", Config: Config{DeviceClass: "ssd"}},
	}}, Facts{FSID: ours})
	if len(got) != 3 {
		t.Fatalf("got %d verdicts, want the device, the missing one and the double one", len(got))
	}
	if !got[0].Use || got[0].Config.DeviceClass != "hdd" {
		t.Errorf("first entry must count: %+v", got[0])
	}
	if got[1].Reason != NoSuchDevice || !strings.Contains(got[1].Message, "devices[1]") {
		t.Errorf("missing device: %+v", got[1])
	}
	if got[2].Reason != NamedTwice || !strings.Contains(got[2].Message, "devices[2]") {
		t.Errorf("double name: %+v", got[2])
	}
}

func TestMetadataDevice(t *testing.T) {
	sel := Selection{UseAll: true, Config: Config{MetadataDevice: "nvme0n1"}}
	reason := func(fast device.Device) (Reason, Reason) {
		got := Choose([]device.Device{blank("sdb"), fast}, sel, Facts{FSID: ours})
		return got[0].Reason, got[1].Reason
	}
	db := func(fsid string, role device.Role) func(*device.Device) {
		return func(d *device.Device) {
			d.Inventory = &device.Inventory{Rejected: []string{"LVM detected"}}
			d.FSType, d.Children = "LVM2_member", []string{"dm-1"}
			d.OSDs = []device.OSD{{ID: 1, UUID: "u", FSID: fsid, Role: role}}
		}
	}
	cases := []struct {
		name string
		fast device.Device
		data Reason
		meta Reason
	}{
		{"blank", blank("nvme0n1"), Selected, MetadataOnly},
		{"shared with our OSDs", with("nvme0n1", db(ours, device.RoleDB)), Selected, InUse},
		{"somebody else's", with("nvme0n1", db("other", device.RoleDB)), NoMetadata, ForeignOSD},
		{"a data device", with("nvme0n1", db(ours, device.RoleBlock)), NoMetadata, InUse},
		{"a file system", with("nvme0n1", func(d *device.Device) { d.FSType = "ext4" }), NoMetadata, MetadataOnly},
		{"mounted", with("nvme0n1", func(d *device.Device) { d.Mounts = []string{"/"} }), NoMetadata, Mounted},
		{"missing", blank("nvme1n1"), NoMetadata, NoMetadata},
	}
	for _, c := range cases {
		data, meta := reason(c.fast)
		if data != c.data || meta != c.meta {
			t.Errorf("%s: data %s, metadata %s; want %s, %s", c.name, data, meta, c.data, c.meta)
		}
	}
}

func TestLoopAndVolume(t *testing.T) {
	loop := with("loop0", func(d *device.Device) { d.Type = device.Loop })
	if got := Choose([]device.Device{loop}, Selection{UseAll: true}, Facts{FSID: ours, AllowLoop: true}); !got[0].Use {
		t.Errorf("loop device with permission: %+v", got[0])
	}
	lv := with("dm-0", func(d *device.Device) { d.Type = device.LVM; d.Links = []string{"/dev/vg/lv"} })
	if got := Choose([]device.Device{lv}, Selection{Named: []Named{{Ref: "vg/lv"}}}, Facts{FSID: ours}); !got[0].Use {
		t.Errorf("named volume: %+v", got[0])
	}
}
