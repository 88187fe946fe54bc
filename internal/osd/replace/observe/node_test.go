package observe

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// What a node reports of an attempt decides whether the OSD is proven, and whether the failure
// is the disk's doing.
func TestWhatAReportSays(t *testing.T) {
	for _, c := range []struct {
		name   string
		report request.Replaced
		noted  string
		proven bool
		fault  bool
	}{
		{"no report", request.Replaced{}, "", false, false},
		{"done", request.Replaced{UUID: "v5", Result: request.Done}, "", true, false},
		{"done, another uuid", request.Replaced{UUID: "w5", Result: request.Done}, "", false, false},
		{"noted as proven, and the report is another's", request.Replaced{OSD: 6, OldUUID: "u6", Result: request.Done, UUID: "v6"}, "v5", true, false},
		{"another was noted as proven", request.Replaced{}, "w5", false, false},
		{"only a sibling has changed", request.Replaced{Result: request.Failed, Reason: request.SiblingChanged, Slot: request.SlotNew, SlotUUID: "v5"}, "", true, false},
		{"mkfs, the id is claimed", request.Replaced{Result: request.Failed, Reason: request.PrepareFailed, Slot: request.SlotNew, SlotUUID: "v5"}, "", false, true},
		{"mkfs, the id is gone", request.Replaced{Result: request.Failed, Reason: request.PrepareFailed, Slot: request.SlotGone}, "", false, true},
		{"not proven", request.Replaced{Result: request.Failed, Reason: request.NotProven, Slot: request.SlotNew, SlotUUID: "v5"}, "", false, true},
		{"Ceph does not answer any more", request.Replaced{Result: request.Failed, Reason: request.PrepareFailed, Slot: request.SlotUnknown}, "", false, false},
		{"the node cannot be looked at again", request.Replaced{Result: request.Failed, Reason: request.NodeUnreadable, Slot: request.SlotNew, SlotUUID: "v5"}, "", false, false},
		{"nothing was changed", request.Replaced{Result: request.Refused, Reason: request.DiskBroken, Slot: request.SlotDestroyed}, "", false, false},
		{"claimed by an attempt that has told nothing", request.Replaced{Result: request.Refused, Reason: request.SlotClaimed, Slot: request.SlotNew, SlotUUID: "v5"}, "", false, false},
	} {
		if c.report.OSD == 0 && c.report.Result != "" {
			c.report.OSD, c.report.OldUUID = 5, "u5"
		}
		c.report.Device, c.report.Attempt = "/dev/sdx", 4
		b, err := json.Marshal(c.report)
		if err != nil {
			t.Fatal(err)
		}
		h := newHalf(t)
		h.v.Maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{request.ReplacedKey: string(b)}}}
		h.v.Records = []osdplan.Record{{Node: "n1", Result: prepare.Result{ID: 5, UUID: "v5"}}}
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 4, Device: "/dev/sdx", Proven: c.noted, Faults: 2}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: "v5", Note: note}}
		s.node(h.v, h.v.Deployments[5], &Seen{Jobs: jobs.Found{Make: endedJob("m", begun, false)}})
		if s.Proven != c.proven || s.Fault != c.fault {
			t.Errorf("%s: proven %v, the disk's fault %v", c.name, s.Proven, s.Fault)
		}
	}
}

// A report that was written over is not awaited for long.
func TestAReportThatWasWrittenOver(t *testing.T) {
	for _, c := range []struct {
		name, uuid string
		after      time.Duration
		want       plan.JobState
	}{
		{"just now", "v6", 3 * time.Second, plan.Succeeded},
		{"it does not come", "v6", 6 * time.Second, plan.Retry},
		{"it is there", "v5", 6 * time.Second, plan.Succeeded},
	} {
		h := newHalf(t)
		h.v.Now = begun.Add(c.after)
		id := map[string]string{"v5": "5", "v6": "6"}[c.uuid]
		h.v.Maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{
			request.ReplacedKey: `{"osd":` + id + `,"oldUUID":"u` + id + `","device":"/dev/sdx","result":"done","uuid":"` + c.uuid + `"}`}}}
		h.v.Records = []osdplan.Record{{Node: "n1", Result: prepare.Result{ID: 5, UUID: "v5"}}}
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 1, Device: "/dev/sdx"}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: "v5", Note: note}}
		s.node(h.v, h.v.Deployments[5], &Seen{Jobs: jobs.Found{Make: endedJob("m", begun, true)}})
		if s.Make != c.want || s.Proven != (c.uuid == "v5") {
			t.Errorf("%s: Job %v, proven %v", c.name, s.Make, s.Proven)
		}
	}
}

// An attempt that has left no report of its own says so, and whose report is there instead.
// Nothing speaks against its disk then, so the next try is soon.
func TestReportsOfOtherRuns(t *testing.T) {
	for _, c := range []struct {
		name, report, says string
		retry              time.Duration
	}{
		{"its own", `{"osd":5,"oldUUID":"u5","attempt":4,"device":"/dev/sdx","result":"refused","reason":"DiskBroken","message":"it cannot be read"}`, "DiskBroken: it cannot be read", 4 * time.Minute},
		{"of a node that does not number them", `{"osd":5,"oldUUID":"u5","device":"/dev/sdx","result":"refused","reason":"DiskBroken","message":"it cannot be read"}`, "DiskBroken: it cannot be read", 4 * time.Minute},
		{"of an earlier attempt", `{"osd":5,"oldUUID":"u5","attempt":3,"device":"/dev/sdx","result":"refused","reason":"DiskBroken"}`, "number 4: the one that node n1 has is of number 3", time.Minute},
		{"of another OSD", `{"osd":6,"oldUUID":"u6","attempt":4,"device":"/dev/sdy","result":"done"}`, "the one that node n1 has is of osd.6 (uuid u6)", time.Minute},
		{"of an earlier replacement", `{"osd":5,"oldUUID":"t5","attempt":4,"device":"/dev/sdx","result":"failed"}`, "is of osd.5 (uuid t5)", time.Minute},
		{"of another disk", `{"osd":5,"oldUUID":"u5","device":"/dev/sdy","result":"failed"}`, "is of the disk /dev/sdy", time.Minute},
		{"none", "", "without a report of this attempt", time.Minute},
	} {
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 4, Device: "/dev/sdx"}}
		h := newHalf(t)
		h.v.Maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{"replace": c.report}}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, Note: note}}
		j := Seen{Jobs: jobs.Found{Make: endedJob("m", begun, false)}}
		j.Jobs.Make.Name = spec.MakeName(5)
		s.node(h.v, h.v.Deployments[5], &j)
		if !strings.Contains(s.MakeProblem, c.says) || !s.RetryAt.Equal(begun.Add(c.retry)) {
			t.Errorf("%s: %q, again after %v", c.name, s.MakeProblem, s.RetryAt.Sub(begun))
		}
	}
}

// A further metadata device with the databases of others on it is not offered to an OSD that
// comes too late, and is not called something to wipe.
func TestASlotThatOthersHave(t *testing.T) {
	h := newHalf(t)
	h.again(t, true)
	note := *h.notes[4]
	if got := taken(h.v, note); got != "" {
		t.Errorf("before anything is on the next device: %q", got)
	}
	for i, id := range []int{5, 6} {
		rec := withDatabase(id, "v"+string(rune('0'+id)), "Y")
		h.v.Records = append(h.v.Records, osdplan.Record{Result: rec, Node: "n1"})
		h.v.OSDMap.OSDs[i] = cephosd.OSD{ID: id, UUID: rec.UUID, State: []string{"exists"}}
	}
	want := "in the slot nvme-1 is the disk with serial Y by now, with osd.5, osd.6 on it"
	if got := taken(h.v, note); got != want {
		t.Errorf("%q", got)
	}
	s := facts{State: plan.State{ID: 4, Answered: true, Exists: true, Destroyed: true, Asked: true, InProgress: true, Fenced: true, Ready: true, Note: &note, Disks: []string{"x"}}}
	note.Disks = []string{"x"}
	s.node(h.v, h.v.Deployments[4], &Seen{})
	if a := plan.Next(s.State); a.Kind != plan.Tell || !strings.Contains(a.Message, "metadata device of its own") || !strings.Contains(a.Message, spec.WithAnnotation) {
		t.Errorf("%+v", a)
	}
	h.v.Records[0].UUID = "gone"
	if got := taken(h.v, note); !strings.Contains(got, "with osd.6 on it") {
		t.Errorf("one that Ceph does not have: %q", got)
	}
	other := note
	other.Record.DB = &prepare.Part{Serial: "Y", ByPath: "/dev/disk/by-path/nvme-1"}
	if got := taken(h.v, other); got != "" {
		t.Errorf("the disk to pull itself: %q", got)
	}
}

// An OSD that the node has called unfinished is not handed over because its tags are found on
// a disk: one that is encrypted with a key that Ceph has thrown away would run until the next
// restart.
func TestAnUnprovenOSDIsNotFound(t *testing.T) {
	report := func(result, reason string) string {
		return `{"osd":5,"oldUUID":"u5","attempt":4,"device":"/dev/sdx","result":"` + result + `","reason":"` + reason + `","slot":"new","slotUUID":"v5"}`
	}
	for _, c := range []struct {
		name, report, noted string
		want                bool
	}{
		{"done", report("done", ""), "", true},
		{"not proven", report("failed", "NotProven"), "", false},
		{"claimed, and not whole", report("refused", "SlotClaimed"), "", false},
		{"only a sibling has changed", report("failed", "SiblingChanged"), "", true},
		{"not proven, and the report is written over", `{"osd":6,"oldUUID":"u6","result":"done"}`, "v5", false},
		{"another uuid was not proven", `{"osd":6,"oldUUID":"u6","result":"done"}`, "w5", true},
		{"no report", "", "", true},
	} {
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 4, Device: "/dev/sdx", Unproven: c.noted}}
		h := newHalf(t)
		h.v.Maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{"replace": c.report}}}
		h.v.Records = []osdplan.Record{{Node: "n1", Result: prepare.Result{ID: 5, UUID: "v5"}}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: "v5", Note: note}}
		j := Seen{Jobs: jobs.Found{Make: endedJob("m", begun, false)}}
		s.node(h.v, h.v.Deployments[5], &j)
		if s.Found != c.want {
			t.Errorf("%s: found %v", c.name, s.Found)
		}
		if got := Unproven(j.Replaced) == "v5"; c.noted == "" && got == c.want {
			t.Errorf("%s: the report says unproven: %v", c.name, got)
		}
	}
}

// How the node has left the volumes after a failed attempt.
func TestVolumesThatAreLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		r    request.Replaced
		want string
	}{
		{"none", request.Replaced{}, ""},
		{"kept", request.Replaced{DB: &request.LV{VG: "fast", Name: "db5", UUID: "dbu"}}, "its database volume fast/db5 is kept"},
		{"another one, on a new metadata device", request.Replaced{DB: &request.LV{VG: "fast2", Name: "db5", UUID: "new"}}, ""},
		{"made again, siblings as they were", request.Replaced{DB: &request.LV{VG: "fast", Name: "db5"}, Remade: []string{"fast/db5"}, Siblings: []request.SiblingLV{{OSD: 6, VG: "fast", LV: "db6"}, {OSD: 6, VG: "fast", LV: "wal6"}, {OSD: 7, VG: "fast", LV: "db7"}}},
			"made again with the same size, since the rollback had removed them: fast/db5; the volumes of osd.6, osd.7 beside it were checked and are as they were"},
		{"a sibling has changed", request.Replaced{Siblings: []request.SiblingLV{{OSD: 6, VG: "fast", LV: "db6", Changed: "its uuid"}}}, "WARNING: the volume fast/db6 of osd.6 is not as it was: its uuid"},
	} {
		if got := volumes(&c.r, &prepare.Part{VG: "fast", LV: "db5", LVUUID: "dbu"}); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// A disk that carries the new OSD is named so that it stays that disk.
func TestTheDiskThatCarriesTheOSD(t *testing.T) {
	part := prepare.Part{Path: "/dev/sdx", ByID: "/dev/disk/by-id/x", ByPath: "/dev/disk/by-path/x", Serial: "NEW"}
	rec := osdplan.Record{Result: prepare.Result{ID: 5, UUID: "v5", Data: part, DB: &prepare.Part{Path: "/dev/vg/db", Disk: "nvme0n1", Serial: "DB"}}}
	m := foundOn(rec, plan.Note{})
	if m.OSD != 5 || m.Device != "/dev/disk/by-id/x" || m.Serial != "NEW" {
		t.Errorf("%+v", m)
	}
	m = foundOn(rec, plan.Note{Set: &plan.Set{Kind: plan.OnMetadata}})
	if m.Device != "/dev/nvme0n1" || m.Serial != "DB" {
		t.Errorf("of a metadata device: %+v", m)
	}
}
