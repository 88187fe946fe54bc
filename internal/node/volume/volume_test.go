package volume

import (
	stdcmp "cmp"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
)

// As lvs and vgs of LVM 2.03 wrote it, shortened to what the parser reads.
const lvs = `  {
      "report": [
          {
              "lv": [
                  {"vg_name":"ceph-cec52d12", "lv_name":"osd-db-75e13e0c", "lv_uuid":"iiMSMr-cNbb-zMpH-Ih40-YK2Y-ufuX-TDu6Wa", "lv_size":"8585740288", "lv_tags":"ceph.block_device=/dev/a/b,ceph.cephx_lockbox_secret=AgCOw==,ceph.encrypted=1,ceph.osd_fsid=f0796fd5,ceph.osd_id=2,ceph.type=db,mine", "lv_path":"/dev/ceph-cec52d12/osd-db-75e13e0c", "devices":"/dev/ubde(4094)"},
                  {"vg_name":"data", "lv_name":"two", "lv_uuid":"u", "lv_size":"4194304", "lv_tags":"", "lv_path":"", "devices":"/dev/ubdb(0),/dev/ubdc(0)"},
                  {"vg_name":"data", "lv_name":"two", "lv_uuid":"u", "lv_size":"4194304", "lv_tags":"", "lv_path":"", "devices":"/dev/ubdc(9)"}
              ]
          }
      ]
      ,
      "log": [
      ]
  }`

const vgs = `{"report":[{"vg":[
 {"vg_name":"data", "vg_uuid":"V", "vg_free":"4194304B", "vg_size":"8585740288B", "vg_extent_size":"4194304B", "pv_name":"/dev/ubdb"},
 {"vg_name":"data", "vg_uuid":"V", "vg_free":"4194304B", "vg_size":"8585740288B", "vg_extent_size":"4194304B", "pv_name":"[unknown]"}]}]}`

func TestParse(t *testing.T) {
	got, err := ParseLVs([]byte(lvs))
	if err != nil {
		t.Fatal(err)
	}
	want := []LV{
		{VG: "ceph-cec52d12", Name: "osd-db-75e13e0c", UUID: "iiMSMr-cNbb-zMpH-Ih40-YK2Y-ufuX-TDu6Wa", Path: "/dev/ceph-cec52d12/osd-db-75e13e0c", Size: 8585740288,
			Tags: map[string]string{"ceph.block_device": "/dev/a/b", "ceph.encrypted": "1", "ceph.osd_fsid": "f0796fd5", "ceph.osd_id": "2", "ceph.type": "db", "mine": ""}, Devices: []string{"/dev/ubde"}},
		{VG: "data", Name: "two", UUID: "u", Path: "/dev/data/two", Size: 4194304, Tags: map[string]string{}, Devices: []string{"/dev/ubdb", "/dev/ubdc"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got[0].OSD() != 2 || got[0].OSDUUID() != "f0796fd5" || got[1].OSD() != -1 || strings.Contains(got[0].TagText(), "AgCOw") {
		t.Errorf("%+v", got)
	}
	groups, err := ParseVGs([]byte(vgs))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]VG{{Name: "data", UUID: "V", Size: 8585740288, Free: 4194304, Extent: 4194304, PVs: []string{"/dev/ubdb", "[unknown]"}}}, groups); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two encrypted OSDs with their databases on one disk, captured in a storage guest with
// Ceph 20.2.4: what the tags say is what ceph-volume's listing of the same moment says.
func TestFoundLikeCephVolume(t *testing.T) {
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	lvs, err := ParseLVs(read("dmcrypt.lvs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var listing map[string][]struct {
		Devices []string          `json:"devices"`
		LV      string            `json:"lv_name"`
		Path    string            `json:"lv_path"`
		Size    string            `json:"lv_size"`
		UUID    string            `json:"lv_uuid"`
		VG      string            `json:"vg_name"`
		Type    string            `json:"type"`
		Tags    map[string]string `json:"tags"`
	}
	if err := json.Unmarshal(read("dmcrypt.lvm-list.json"), &listing); err != nil {
		t.Fatal(err)
	}
	var want []device.Found
	for _, key := range slices.Sorted(maps.Keys(listing)) {
		for _, p := range listing[key] {
			id, err := strconv.Atoi(key)
			if err != nil {
				t.Fatal(err)
			}
			size, err := strconv.ParseUint(p.Size, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, device.Found{
				OSD:  device.OSD{ID: id, UUID: p.Tags["ceph.osd_fsid"], FSID: p.Tags["ceph.cluster_fsid"], Role: device.Role(p.Type)},
				Path: p.Path, Mode: "lvm", Encrypted: p.Tags["ceph.encrypted"] == "1", DeviceClass: p.Tags["ceph.crush_device_class"],
				VG: p.VG, LV: p.LV, LVUUID: p.UUID, LVSize: size, Devices: p.Devices,
			})
		}
	}
	slices.SortFunc(want, func(a, b device.Found) int {
		return stdcmp.Or(a.ID-b.ID, strings.Compare(string(a.Role), string(b.Role)))
	})
	if len(want) != 4 {
		t.Fatalf("%d parts", len(want))
	}
	if diff := cmp.Diff(want, Found(lvs)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is nobody's, or not told, is no part of an OSD.
func TestFound(t *testing.T) {
	lvs := []LV{
		{VG: "vg", Name: "b", UUID: "L1", Path: "/dev/vg/b", Size: 5, Devices: []string{"/dev/sdc", "/dev/sdb"}, Tags: map[string]string{
			"ceph.osd_id": "2", "ceph.osd_fsid": "u", "ceph.cluster_fsid": "f", "ceph.type": "block", "ceph.encrypted": "1", "ceph.crush_device_class": "ssd", "mine": "",
		}},
		{VG: "fast", Name: "d", UUID: "L2", Path: "/dev/fast/d", Tags: map[string]string{"ceph.osd_id": "2", "ceph.osd_fsid": "u", "ceph.cluster_fsid": "f", "ceph.type": "db"}},
		{VG: "fast", Name: "old", Tags: map[string]string{"ceph.osd_id": "1", "ceph.osd_fsid": "o", "ceph.type": "wal"}},
		{VG: "a", Name: "user", Tags: map[string]string{}},
		{VG: "a", Name: "zapped", Tags: map[string]string{"ceph.osd_id": "null", "ceph.osd_fsid": "x", "ceph.type": "block"}},
		{VG: "a", Name: "half", Tags: map[string]string{"ceph.osd_id": "3", "ceph.type": "block"}},
		{VG: "a", Name: "unknown", Tags: map[string]string{"ceph.osd_id": "3", "ceph.osd_fsid": "x", "ceph.type": "journal"}},
	}
	want := []device.Found{
		{OSD: device.OSD{ID: 1, UUID: "o", Role: device.RoleWAL}, Mode: "lvm", VG: "fast", LV: "old"},
		{OSD: device.OSD{ID: 2, UUID: "u", FSID: "f", Role: device.RoleBlock}, Path: "/dev/vg/b", Mode: "lvm", Encrypted: true, DeviceClass: "ssd", VG: "vg", LV: "b", LVUUID: "L1", LVSize: 5, Devices: []string{"/dev/sdb", "/dev/sdc"}},
		{OSD: device.OSD{ID: 2, UUID: "u", FSID: "f", Role: device.RoleDB}, Path: "/dev/fast/d", Mode: "lvm", VG: "fast", LV: "d", LVUUID: "L2"},
	}
	if diff := cmp.Diff(want, Found(lvs)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBrokenOutputIsAnError(t *testing.T) {
	for _, s := range []string{"", "{", `{"report":[{"lv":[{"lv_size":"<8.00g"}],"vg":[{"vg_uuid":"x","vg_size":"8g"}]}]}`} {
		if _, err := ParseLVs([]byte(s)); err == nil {
			t.Errorf("lvs: %q was read", s)
		}
		if _, err := ParseVGs([]byte(s)); err == nil {
			t.Errorf("vgs: %q was read", s)
		}
	}
}

func TestAttempts(t *testing.T) {
	a, b := AttemptUUID([8]byte{1, 2, 3, 4, 5, 6, 0xff, 8}, "fsid", "old"), AttemptUUID([8]byte{9}, "fsid", "old")
	if a == b || !regexp.MustCompile(`^01020304-0506-8f08-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(a) {
		t.Errorf("%s, %s", a, b)
	}
	if !IsAttempt(a, "fsid", "old") || !IsAttempt(b, "fsid", "old") {
		t.Error("an attempt is not known again")
	}
	for name, mine := range map[string]bool{
		"another OSD's": IsAttempt(a, "fsid", "other"), "another cluster's": IsAttempt(a, "other", "old"), "of nobody": IsAttempt(a, "fsid", ""),
		"itself": IsAttempt(a, "fsid", a), "half": IsAttempt(a[:18], "fsid", "old"), "empty": IsAttempt("", "fsid", "old"),
		"of two": IsAttempt(a[:18]+b[18:], "fsid", "old"), "by ceph-volume": IsAttempt("188e0c48-bae0-4809-b067-6841e22c92ca", "fsid", "old"),
	} {
		if mine {
			t.Errorf("%s is taken for an attempt", name)
		}
	}
}

func TestNamed(t *testing.T) {
	a, b := Named("x", "y"), Named("xy", "")
	if a == b || a != Named("x", "y") || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(a) {
		t.Errorf("%s, %s", a, b)
	}
}
