package prepare

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
)

func use(name string, typ device.Type, c choice.Config, links ...string) choice.Verdict {
	return choice.Verdict{Device: device.Device{Name: name, Path: "/dev/" + name, Type: typ, Links: links}, Use: true, Reason: choice.Selected, Config: c}
}

func TestCommands(t *testing.T) {
	devices := []device.Device{
		{Name: "nvme0n1", Path: "/dev/nvme0n1", Type: device.Disk, Size: 10 << 30},
		{Name: "nvme1n1p2", Path: "/dev/nvme1n1p2", Type: device.Partition},
		{Name: "dm-7", Path: "/dev/mapper/fast-db0", Type: device.LVM, Links: []string{"/dev/fast/db0"}},
	}
	cases := []struct {
		name     string
		verdicts []choice.Verdict
		want     []string
	}{
		{"not used", []choice.Verdict{{Device: device.Device{Path: "/dev/sdb"}, Reason: choice.Mounted}}, nil},
		{"raw", []choice.Verdict{use("sdb", device.Disk, choice.Config{}), use("sdc", device.Disk, choice.Config{DeviceClass: "ssd"})}, []string{
			"ceph-volume raw prepare --bluestore --data /dev/sdb",
			"ceph-volume raw prepare --bluestore --data /dev/sdc --crush-device-class ssd",
		}},
		{"encrypted", []choice.Verdict{use("sdb", device.Disk, choice.Config{Encrypted: true})}, []string{
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd --dmcrypt --osds-per-device 1 -- /dev/sdb",
		}},
		{"several per device", []choice.Verdict{use("nvme3n1", device.Disk, choice.Config{OSDsPerDevice: 4})}, []string{
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd --osds-per-device 4 -- /dev/nvme3n1",
		}},
		{"shared metadata device is divided by one call", []choice.Verdict{
			use("sdb", device.Disk, choice.Config{MetadataDevice: "nvme0n1"}),
			use("sdx", device.Disk, choice.Config{}),
			use("sdc", device.Disk, choice.Config{MetadataDevice: "nvme0n1"}),
		}, []string{
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd --osds-per-device 1 --db-devices /dev/nvme0n1 -- /dev/sdb /dev/sdc",
			"ceph-volume raw prepare --bluestore --data /dev/sdx",
		}},
		{"fixed database size: one call each", []choice.Verdict{
			use("sdb", device.Disk, choice.Config{MetadataDevice: "nvme0n1", DatabaseSizeMB: 1024}),
			use("sdc", device.Disk, choice.Config{MetadataDevice: "nvme0n1", DatabaseSizeMB: 1024}),
		}, []string{
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd --osds-per-device 1 --db-devices /dev/nvme0n1 --block-db-size 1073741824 --block-db-slots 9 -- /dev/sdb",
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd --osds-per-device 1 --db-devices /dev/nvme0n1 --block-db-size 1073741824 --block-db-slots 9 -- /dev/sdc",
		}},
		{"partition as database", []choice.Verdict{use("sdb", device.Disk, choice.Config{MetadataDevice: "nvme1n1p2"})}, []string{
			"ceph-volume lvm prepare --bluestore --no-systemd --data /dev/sdb --block.db /dev/nvme1n1p2",
		}},
		{"volume as database", []choice.Verdict{use("sdb", device.Disk, choice.Config{MetadataDevice: "fast/db0", Encrypted: true})}, []string{
			"ceph-volume lvm prepare --bluestore --no-systemd --dmcrypt --data /dev/sdb --block.db fast/db0",
		}},
		{"volume as data", []choice.Verdict{use("dm-3", device.LVM, choice.Config{DeviceClass: "hdd"}, "/dev/vg1/data0")}, []string{
			"ceph-volume lvm prepare --bluestore --no-systemd --crush-device-class hdd --data vg1/data0",
		}},
	}
	for _, c := range cases {
		var got []string
		for _, cmd := range Commands(c.verdicts, devices) {
			got = append(got, cmd.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestSharedBatchCountsItsOSDsAndDevices(t *testing.T) {
	devices := []device.Device{{Name: "nvme0n1", Path: "/dev/nvme0n1", Type: device.Disk}}
	conf := choice.Config{MetadataDevice: "nvme0n1", OSDsPerDevice: 2}
	got := Commands([]choice.Verdict{use("sdb", device.Disk, conf), use("sdc", device.Disk, conf)}, devices)
	if len(got) != 1 || got[0].OSDs != 4 || len(got[0].Devices) != 2 || got[0].MetadataDevice != "/dev/nvme0n1" {
		t.Errorf("%+v", got)
	}
}

func TestResultsOfAReplacedOSDAreToldApartByUUID(t *testing.T) {
	// osd.0 after its disk was replaced, with the old one still plugged in: the surviving
	// database is the new one's.
	const fsid = "5ae6d8e4-f15a-4b52-8a5a-5d8b1bb1d6f4"
	part := func(id int, uuid string, role device.Role, vg, disk string) device.Found {
		lv := "osd-" + string(role) + "-" + uuid
		return device.Found{
			OSD: device.OSD{ID: id, UUID: uuid, FSID: fsid, Role: role}, Path: "/dev/" + vg + "/" + lv, Mode: "lvm", Encrypted: true,
			VG: vg, LV: lv, LVUUID: "L-" + uuid, LVSize: 2 << 30, Devices: []string{disk},
		}
	}
	found := []device.Found{
		part(0, "cffbb4bc", device.RoleBlock, "ceph-old", "/dev/ubdb"),
		part(0, "f563ceca", device.RoleBlock, "ceph-new", "/dev/ubdf"), part(0, "f563ceca", device.RoleDB, "ceph-fast", "/dev/ubde"),
		part(1, "74578c75", device.RoleBlock, "ceph-1", "/dev/ubdc"), part(1, "74578c75", device.RoleDB, "ceph-fast", "/dev/ubde"),
	}
	devices := []device.Device{{Name: "ubdf", Path: "/dev/ubdf", Serial: "SERIALF", Slot: "slot-5", Size: 8 << 30}}
	osds, skipped := Results(found, devices, fsid)
	var zeros []Result
	for _, o := range osds {
		if o.ID == 0 {
			zeros = append(zeros, o)
		}
		if !o.Encrypted || o.Mode != "lvm" {
			t.Errorf("osd.%d: %+v", o.ID, o)
		}
	}
	if len(zeros) != 2 || zeros[0].UUID == zeros[1].UUID {
		t.Fatalf("osd.0 reported as %+v, want its old and its new self", zeros)
	}
	// The surviving DB LV has been handed to the new OSD: only that one has it.
	withDB := 0
	for _, z := range zeros {
		if z.DB != nil {
			withDB++
			if z.Data.Disk != "ubdf" || z.Data.Serial != "SERIALF" || z.DB.VG == "" || z.DB.Size == 0 {
				t.Errorf("the OSD with the database is the new one, on ubdf: %+v", z)
			}
		}
	}
	if withDB != 1 {
		t.Errorf("%d of the two have the database, want 1; skipped: %v", withDB, skipped)
	}
}

func TestResultsLeaveOutWhatIsNotProvenOurs(t *testing.T) {
	found := []device.Found{
		{OSD: device.OSD{ID: 1, UUID: "a", FSID: "other", Role: device.RoleBlock}, Path: "/dev/sdb", Mode: "raw"},
		{OSD: device.OSD{ID: -1, UUID: "b", FSID: "ours", Role: device.RoleBlock}, Path: "/dev/sdc", Mode: "raw"},
		{OSD: device.OSD{ID: 2, UUID: "c", Role: device.RoleBlock}, Path: "/dev/sdd", Mode: "raw"},
		{OSD: device.OSD{ID: 3, UUID: "d", FSID: "ours", Role: device.RoleDB}, Path: "/dev/sde", Mode: "raw"},
	}
	osds, skipped := Results(found, nil, "ours")
	if len(osds) != 0 {
		t.Errorf("reported %+v", osds)
	}
	if len(skipped) != 1 || !strings.Contains(skipped[0], "data device is missing") {
		t.Errorf("skipped = %v", skipped)
	}
}
