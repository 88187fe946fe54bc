package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSharedDBDeviceNamesEveryOSD(t *testing.T) {
	devices, err := ParseLsblk([]byte(withBytes(t)))
	if err != nil {
		t.Fatal(err)
	}
	// What the tags of the volumes said at the same moment.
	var found []Found
	const fast0 = "ceph-7e133891-e24d-4614-a5cf-c043da655574"
	for id, o := range [][4]string{
		{"9b425751-00ef-4f4c-8865-f4b4ec77d516", "ceph-a1981f1a-549a-40f7-a191-5ffcffd63b4c", "/dev/ubdb", "osd-db-64f7488c-91b2-471d-b1e7-6d4a69b2f9d7"},
		{"178f1b8b-9eca-4735-bc88-3e51a074eba4", "ceph-98790f45-c4cd-49ab-995d-45ec6b2a0d67", "/dev/ubdc", "osd-db-15a1ed60-97e8-4351-b567-7ff3944fa8dc"},
		{"e5e98017-5573-4632-b727-64e8572bb95a", "ceph-2423da1b-3f50-4989-a567-79c0f8586e7f", "/dev/ubdd", "osd-db-7663524c-4729-4760-a65a-c6b94dbe9817"},
	} {
		for _, p := range []struct {
			role         Role
			vg, lv, disk string
		}{{RoleBlock, o[1], "osd-block-" + o[0], o[2]}, {RoleDB, fast0, o[3], "/dev/ubde"}} {
			found = append(found, Found{OSD: OSD{ID: id, UUID: o[0], FSID: "f", Role: p.role}, Path: "/dev/" + p.vg + "/" + p.lv, Mode: "lvm", VG: p.vg, LV: p.lv, Devices: []string{p.disk}})
		}
	}
	devices = Merge(devices, found)

	fast := devices[Find(devices, "/dev/ubde")]
	var ids []int
	for _, o := range fast.OSDs {
		if o.Role != RoleDB {
			t.Errorf("ubde holds %s of osd.%d, want only DBs", o.Role, o.ID)
		}
		ids = append(ids, o.ID)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, ids); diff != "" {
		t.Errorf("OSDs with a DB on ubde (-want +got):\n%s", diff)
	}
	if len(fast.Children) != 3 {
		t.Errorf("ubde has %d children, want its 3 LVs", len(fast.Children))
	}
	data := devices[Find(devices, "ubdb")]
	if len(data.OSDs) != 1 || data.OSDs[0].Role != RoleBlock {
		t.Errorf("ubdb holds %+v, want the block of one OSD", data.OSDs)
	}
	if data.FSType != "LVM2_member" {
		t.Errorf("ubdb: %+v", data)
	}
	lv := devices[Find(devices, "dm-0")]
	if len(lv.OSDs) != 1 {
		t.Errorf("the LV itself must carry its OSD too, got %+v", lv.OSDs)
	}
}

// withBytes is the captured tree with sizes as --bytes prints them.
func withBytes(t *testing.T) string {
	t.Helper()
	s := string(read(t, "lvm-running.lsblk.json"))
	for old, size := range map[string]string{`"size": "8G"`: `"size": 8589934592`, `"size":"8G"`: `"size":8589934592`, `"24G"`: "25769803776"} {
		s = strings.ReplaceAll(s, old, size)
	}
	return s
}

func TestUdev(t *testing.T) {
	d := Device{Name: "sdb", Path: "/dev/sdb", Model: "from lsblk"}
	ApplyUdev(&d, []byte("S:disk/by-path/pci-0000:00:1f.2-ata-3\nS:disk/by-id/wwn-0x5000\nS:disk/by-id/ata-MODEL_ABC123\nE:ID_SERIAL=MODEL_ABC123\nE:ID_SERIAL_SHORT=ABC123\nE:ID_PATH=pci-0000:00:1f.2-ata-3\nE:ID_WWN=0x5000\nW:9\n"))
	want := Device{
		Name: "sdb", Path: "/dev/sdb", Model: "from lsblk", Serial: "ABC123", WWN: "0x5000", Slot: "pci-0000:00:1f.2-ata-3",
		Links: []string{"/dev/disk/by-id/ata-MODEL_ABC123", "/dev/disk/by-id/wwn-0x5000", "/dev/disk/by-path/pci-0000:00:1f.2-ata-3"},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := d.ByID(); got != "/dev/disk/by-id/ata-MODEL_ABC123" {
		t.Errorf("ByID = %q, want the link a person can read", got)
	}
	for _, ref := range []string{"sdb", "/dev/sdb", "/dev/disk/by-id/wwn-0x5000", "disk/by-path/pci-0000:00:1f.2-ata-3"} {
		if !d.Answers(ref) {
			t.Errorf("device does not answer to %q", ref)
		}
	}
	for _, ref := range []string{"", "sd", "sdb1", "/dev/disk/by-id/other"} {
		if d.Answers(ref) {
			t.Errorf("device answers to %q", ref)
		}
	}
}

func TestBrokenOutputIsAnError(t *testing.T) {
	for _, in := range []string{"", "{", `{"blockdevices":`, `[{"path":`, `{"blockdevices":[{"kname":"sdb","size":"10G"}]}`, `{"blockdevices":[{"kname":"sdb","ro":"maybe"}]}`} {
		if _, err := ParseLsblk([]byte(in)); err == nil {
			t.Errorf("%q is accepted: a cut-off answer must not look like an empty node", in)
		}
	}
}

// Whatever lsblk and udev say, each device comes once, under its own name, and merging
// loses none.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"blockdevices":[{"kname":"sda","children":[{"kname":"sda1"}]}]}`))
	f.Add([]byte(`{"blockdevices":[{"kname":"a","children":[{"kname":"a","children":[{"kname":"a"}]}]}]}`))
	f.Add([]byte("S:disk/by-id/x\nE:ID_SERIAL=x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Device
		ApplyUdev(&d, b)
		devices, err := ParseLsblk(b)
		if err != nil {
			return
		}
		names := map[string]bool{}
		var found []Found
		for _, d := range devices {
			if names[d.Name] || d.Path == "" {
				t.Errorf("%q comes twice, or has no path", d.Name)
			}
			names[d.Name] = true
			found = append(found, Found{OSD: OSD{ID: 1, UUID: d.Name}, Path: d.Path})
		}
		if merged := Merge(devices, found); len(merged) != len(devices) {
			t.Errorf("%d devices became %d", len(devices), len(merged))
		}
	})
}

func TestFindPartition(t *testing.T) {
	const uuid = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
	link := "/dev/disk/by-partuuid/0fc63daf-8483-4772-8e79-3d69d8477de4"
	disk := Device{Name: "sda", Type: Disk, HasNode: true, Links: []string{link}}
	one := Device{Name: "sda1", Path: "/dev/sda1", Type: Partition, HasNode: true, Links: []string{"/dev/disk/by-id/x", link}}
	copied, foreign := one, one
	copied.Name, foreign.HasNode = "sdb1", false
	for name, c := range map[string]struct {
		devices []Device
		uuid    string
		want    int
	}{
		"one":                       {[]Device{disk, foreign, one}, uuid, 2},
		"none":                      {[]Device{disk, one}, "0fc63daf-0000-0000-0000-000000000000", -1},
		"no uuid":                   {[]Device{one}, "", -1},
		"on a copied disk too":      {[]Device{one, copied}, uuid, -1},
		"of another machine's disk": {[]Device{foreign}, uuid, -1},
	} {
		if got := FindPartition(c.devices, c.uuid); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
