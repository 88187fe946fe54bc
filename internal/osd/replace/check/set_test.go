package check_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// onVolume is an OSD whose data is on one disk and whose database is on another ("" for
// none).
func onVolume(id int, uuid, data, db string) prepare.Result {
	r := prepare.Result{ID: id, UUID: uuid, Mode: "lvm", Data: prepare.Part{Path: "/dev/d/" + uuid, Serial: data, VG: "vg-" + data, LV: "block-" + uuid, LVUUID: "lv-" + uuid, Size: 1 << 40}}
	if db != "" {
		r.DB = &prepare.Part{Path: "/dev/f/" + uuid, Serial: db, VG: "vg-" + db, LV: "db-" + uuid, LVUUID: "lvdb-" + uuid, Size: 1 << 30}
	}
	return r
}

// metadata is a request for the metadata device of osd.5.
func metadata(value string, change ...func(*check.Request)) check.Request {
	return request(append([]func(*check.Request){func(r *check.Request) {
		rec := onVolume(5, "u5", "HDD5", "FAST")
		r.Metadata, r.Value, r.Record = true, value, &rec
		r.Others = []prepare.Result{onVolume(5, "u5", "HDD5", "FAST"), onVolume(6, "u6", "HDD6", "FAST"), onVolume(7, "u7", "HDD7", "FAST2"), onVolume(8, "u8", "HDD8", "")}
		r.Busy, r.Asked = map[int]string{}, map[int]bool{}
	}}, change...)...)
}

func TestMetadataSet(t *testing.T) {
	want := &plan.Set{Kind: plan.OnMetadata, Leader: 5, Members: []plan.Member{{ID: 5, UUID: "u5"}, {ID: 6, UUID: "u6"}}}
	if diff := cmp.Diff(want, check.Set(metadata(spec.MetadataConfirmation(5)))); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		name   string
		change func(*check.Request)
		reason string
	}{
		{"holds", func(*check.Request) {}, ""},
		{"another value", func(r *check.Request) { r.Value = spec.Confirmation(5) }, "WrongConfirmation"},
		{"of another OSD", func(r *check.Request) { r.Value = spec.MetadataConfirmation(6) }, "WrongConfirmation"},
		{"both annotations", func(r *check.Request) { r.Both = true }, "TwoRequests"},
		{"no database", func(r *check.Request) { r.Record.DB = nil }, "NoMetadataDevice"},
		{"its database on its own disk", func(r *check.Request) { r.Record.DB.Serial = "HDD5" }, "NoMetadataDevice"},
		{"an OSD of which nothing is known", func(r *check.Request) { r.Unrecorded = []int{9} }, "DiskUnknown"},
		{"data on it", func(r *check.Request) { r.Others = append(r.Others, onVolume(9, "u9", "FAST", "")) }, "SharedDisk"},
		{"one of it is busy", func(r *check.Request) { r.Busy[6] = "fenced" }, "SharedDisk"},
		{"another is busy", func(r *check.Request) { r.Busy[7] = "fenced" }, ""},
		{"a group on two devices", func(r *check.Request) { r.Others[2].DB.VG = "vg-FAST" }, "ManyDevices"},
		{"a raw OSD", func(r *check.Request) { r.Others[1].Mode = "raw" }, "NotOnVolumes"},
		{"a size that is not recorded", func(r *check.Request) { r.Others[1].DB.Size = 0 }, "NotOnVolumes"},
		{"only a WAL", func(r *check.Request) { r.Others[1].WAL, r.Others[1].DB = r.Others[1].DB, nil }, "NoDatabase"},
		{"a WAL elsewhere", func(r *check.Request) {
			r.Others[1].WAL = &prepare.Part{Serial: "FAST2", VG: "vg-FAST2", LV: "wal", Size: 1}
		}, "ManyDevices"},
		{"no room", func(r *check.Request) { r.Room = "only 2 are left" }, "NoRoom"},
		{"no room, and a loss accepted of a living device", func(r *check.Request) { r.Room, r.Value = "only 2 are left", spec.LossConfirmation(5) }, "NoRoom"},
		{"no room, and a dead device", func(r *check.Request) { r.Room, r.Dead = "only 2 are left", true }, "NoRoom"},
		{"no room, a dead device, and a loss accepted", func(r *check.Request) { r.Room, r.Dead, r.Value = "only 2 are left", true, spec.LossConfirmation(5) }, ""},
	} {
		refusal, _ := check.Check(metadata(spec.MetadataConfirmation(5), c.change))
		if got := refusal != nil; got != (c.reason != "") || got && refusal.Reason != c.reason {
			t.Errorf("%s: %+v, want %q", c.name, refusal, c.reason)
		}
	}
	refusal, _ := check.Check(metadata(spec.MetadataConfirmation(5), func(r *check.Request) { r.Room, r.Dead = "only 2 are left", true }))
	if !strings.Contains(refusal.Message, spec.LossConfirmation(5)) {
		t.Errorf("the way out is not told: %s", refusal.Message)
	}
}

// OSDs on one disk: each has to be asked for.
func TestDiskSet(t *testing.T) {
	shared := func(change ...func(*check.Request)) check.Request {
		return request(append([]func(*check.Request){func(r *check.Request) {
			rec := onVolume(5, "u5", "HDD", "")
			r.Record, r.Others = &rec, []prepare.Result{rec, onVolume(4, "u4", "HDD", ""), onVolume(8, "u8", "HDD8", "")}
			r.Busy, r.Asked = map[int]string{}, map[int]bool{4: true}
		}}, change...)...)
	}
	want := &plan.Set{Kind: plan.OnDisk, Leader: 4, Members: []plan.Member{{ID: 4, UUID: "u4"}, {ID: 5, UUID: "u5"}}}
	if diff := cmp.Diff(want, check.Set(shared())); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		name   string
		change func(*check.Request)
		says   string
	}{
		{"both asked for", func(*check.Request) {}, ""},
		{"one asked for", func(r *check.Request) { r.Asked = nil }, "osd.rook.io/replace=yes-really-replace-osd-4"},
		{"one busy", func(r *check.Request) { r.Busy[4] = "fenced" }, "fenced"},
		{"not on volumes", func(r *check.Request) { r.Others[1].Mode = "raw" }, "not on a volume"},
		{"the database of another on it", func(r *check.Request) { r.Others = append(r.Others, onVolume(9, "u9", "HDD9", "HDD")) }, "the database of osd.9"},
	} {
		refusal, _ := check.Check(shared(c.change))
		if got := refusal != nil; got != (c.says != "") || got && !strings.Contains(refusal.Message, c.says) {
			t.Errorf("%s: %+v, want %q", c.name, refusal, c.says)
		}
	}
	note := plan.Note{UUID: "u5", Record: onVolume(5, "u5", "HDD", ""), Set: want}
	if got := check.Strangers(note, []prepare.Result{onVolume(4, "u4", "HDD", ""), onVolume(5, "new", "HDD", ""), onVolume(9, "u9", "HDD", ""), onVolume(8, "u8", "HDD8", "")}); !cmp.Equal(got, []string{"osd.9"}) {
		t.Errorf("strangers: %v", got)
	}
}
