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
	inv, err := ParseInventory(read(t, "lvm.inventory.json"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := ParseLVMList(read(t, "lvm.lvm-list.json"))
	if err != nil {
		t.Fatal(err)
	}
	devices = Merge(devices, inv, found)

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
	if data.FSType != "LVM2_member" || data.Inventory == nil || data.Inventory.Available {
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

func TestReplacedOSDIsListedTwiceUnderOneID(t *testing.T) {
	found, err := ParseLVMList(read(t, "dmcrypt-replaced.lvm-list.json"))
	if err != nil {
		t.Fatal(err)
	}
	uuids := map[string]bool{}
	for _, f := range found {
		if f.ID == 0 && f.Role == RoleBlock {
			uuids[f.UUID] = true
			if !f.Encrypted || f.VG == "" || f.LVSize == 0 {
				t.Errorf("incomplete entry %+v", f)
			}
		}
	}
	if len(uuids) != 2 {
		t.Errorf("block LVs of osd.0 = %v, want the old and the new one", uuids)
	}
}

func TestRawListToleratesEncryptedLVM(t *testing.T) {
	found, err := ParseRawList(read(t, "dmcrypt.raw-list.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 3 {
		t.Fatalf("got %d entries, want 3", len(found))
	}
	for _, f := range found {
		if f.ID != -1 || f.FSID != "" || f.Role != RoleDB {
			t.Errorf("an entry without id and fsid must not pretend to have them: %+v", f)
		}
	}
	found, err = ParseRawList(read(t, "raw.raw-list.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := Found{OSD: OSD{ID: 0, UUID: "9dc8f4d7-0bbb-44fa-9147-6dadec71a49d", FSID: "f2b79749-5c80-4051-8f99-2b3d36e8fb05", Role: RoleBlock}, Path: "/dev/loop0", Mode: "raw"}
	if diff := cmp.Diff(want, found[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInventoryOfOneDevice(t *testing.T) {
	inv, err := ParseInventory(read(t, "one.inventory.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := inv["/dev/loop0"]; !ok || !got.Available {
		t.Errorf("inventory = %+v", inv)
	}
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
	for name, parse := range map[string]func([]byte) error{
		"lsblk":     func(b []byte) error { _, err := ParseLsblk(b); return err },
		"inventory": func(b []byte) error { _, err := ParseInventory(b); return err },
		"raw list":  func(b []byte) error { _, err := ParseRawList(b); return err },
		"lvm list":  func(b []byte) error { _, err := ParseLVMList(b); return err },
	} {
		for _, in := range []string{"", "{", `{"blockdevices":`, `[{"path":`} {
			if parse([]byte(in)) == nil {
				t.Errorf("%s accepts %q: a cut-off answer must not look like an empty node", name, in)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"blockdevices":[{"kname":"sda","children":[{"kname":"sda1"}]}]}`))
	f.Add([]byte(`{"0":[{"type":"block","tags":{"ceph.osd_fsid":"x"}}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		devices, _ := ParseLsblk(b)
		inv, _ := ParseInventory(b)
		raw, _ := ParseRawList(b)
		lvm, _ := ParseLVMList(b)
		Merge(devices, inv, append(raw, lvm...))
		var d Device
		ApplyUdev(&d, b)
	})
}
