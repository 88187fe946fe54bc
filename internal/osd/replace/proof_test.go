package replace

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// noted is the note that an effect writes.
func noted(t *testing.T, p kit.Plan) *plan.Note {
	t.Helper()
	n, err := plan.ReadNote(*p.Do[0].(Patch).Annotations[spec.NoteAnnotation], 5)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

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
		h.v.maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{request.ReplacedKey: string(b)}}}
		h.v.records = []osdplan.Record{{Node: "n1", Result: prepare.Result{ID: 5, UUID: "v5"}}}
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 4, Device: "/dev/sdx", Proven: c.noted, Faults: 2}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: "v5", Note: note}}
		j := jobs{make: endedJob("m", begun, false)}
		s.node(h.v, h.v.deps[5], &j)
		if s.Proven != c.proven || s.Fault != c.fault {
			t.Errorf("%s: proven %v, the disk's fault %v", c.name, s.Proven, s.Fault)
		}
		n := noted(t, effect(&cephv1.CephCluster{}, Seen{Deployment: &appsv1.Deployment{}, State: s.State, Jobs: j}, plan.Action{Kind: plan.Failure}))
		if want := map[bool]int{false: 2, true: 3}[c.fault]; n.Attempt.Faults != want {
			t.Errorf("%s: %d faults are noted, not %d", c.name, n.Attempt.Faults, want)
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
		h.v.now = begun.Add(c.after)
		id := map[string]string{"v5": "5", "v6": "6"}[c.uuid]
		h.v.maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{
			request.ReplacedKey: `{"osd":` + id + `,"oldUUID":"u` + id + `","device":"/dev/sdx","result":"done","uuid":"` + c.uuid + `"}`}}}
		h.v.records = []osdplan.Record{{Node: "n1", Result: prepare.Result{ID: 5, UUID: "v5"}}}
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 1, Device: "/dev/sdx"}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: "v5", Note: note}}
		s.node(h.v, h.v.deps[5], &jobs{make: endedJob("m", begun, true)})
		if s.Make != c.want || s.Proven != (c.uuid == "v5") {
			t.Errorf("%s: Job %v, proven %v", c.name, s.Make, s.Proven)
		}
	}
}

// Faults stay with the disk, whatever it is called, until another one comes or the user names it.
func TestFaultsAreCountedByDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		match swap.Match
		with  string
		want  int
	}{
		{"the same disk", swap.Match{Device: "/dev/sdx", Serial: "NEW"}, "", 3},
		{"the same disk in another slot", swap.Match{Device: "/dev/sdy", Serial: "NEW"}, "", 3},
		{"another disk under that name", swap.Match{Device: "/dev/sdx", Serial: "NEWER"}, "", 0},
		{"the same disk, named", swap.Match{Device: "/dev/sdx", Serial: "NEW"}, "/dev/sdx", 0},
	} {
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 3, Device: "/dev/sdx", Serial: "NEW", Failed: "mkfs", Faults: 3}}
		n := noted(t, effect(&cephv1.CephCluster{}, Seen{Deployment: &appsv1.Deployment{}, State: plan.State{ID: 5, Note: note, Match: &c.match, With: c.with}}, plan.Action{Kind: plan.Claim}))
		if n.Attempt.Faults != c.want || n.Attempt.With != c.with || n.Attempt.Number != 4 {
			t.Errorf("%s: %+v", c.name, n.Attempt)
		}
	}
}

// What is not clear is told by a Warning on both objects, and noted in the same update.
func TestAQuestionIsTold(t *testing.T) {
	note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Disks: []string{"x"}, CancelRefused: true}
	d := &appsv1.Deployment{}
	s := plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: "0", InProgress: true, Fenced: true, Ready: true, Note: note, Question: "which of two?"}
	p := effect(&cephv1.CephCluster{}, Seen{Deployment: d, State: s}, plan.Next(s))
	if len(p.Events) != 2 || !p.Events[0].Warning || p.Events[0].Reason != "OSDReplaceNotClear" || p.Events[1].Object != kit.Object(d) || !strings.Contains(p.Events[1].Message, "osd.5: which of two?") {
		t.Errorf("%+v", p.Events)
	}
	s.Note = noted(t, p)
	if a := plan.Next(s); a.Kind != plan.Wait || a.Reason != "ReplacementNotClear" {
		t.Errorf("told, and then %+v", a)
	}
}

// The Job that proves is the one that makes, about the same disk; and a disk that was found with
// the OSD on it is noted first.
func TestTheJobThatProves(t *testing.T) {
	found := prepare.Result{ID: 5, UUID: "v5", Data: prepare.Part{Path: "/dev/sdx", ByID: "/dev/disk/by-id/x", Serial: "NEW"}}
	note := &plan.Note{UUID: "u5", Node: "n1", Host: "n1", Record: prepare.Result{ID: 5, UUID: "u5", Mode: "raw"}}
	seen := Seen{Deployment: &appsv1.Deployment{}, Cluster: podspec.Cluster{Namespace: "ns"}, State: plan.State{ID: 5, Note: note, FoundOn: foundOn(osdplan.Record{Result: found}, *note)}}
	note = noted(t, effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: plan.Find}))
	if a := note.Attempt; !a.Recognized || a.Device != "/dev/disk/by-id/x" || a.Serial != "NEW" {
		t.Fatalf("%+v", a)
	}
	seen.State.Note = note
	p := effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: plan.Prove})
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	c := p.Do[0].(kit.Confirmed)
	job := c.Then.(StartJob).Job
	if job.Name != spec.MakeName(5) || c.Check.(Still).For != plan.Prove || !strings.Contains(job.Spec.Template.Spec.Containers[0].Env[0].Value, "/dev/disk/by-id/x") {
		t.Errorf("%s, %+v, %v", job.Name, c.Check, job.Spec.Template.Spec.Containers[0].Env)
	}
}

// One of a set whose note was taken away keeps its share of the new disk: the other would take
// all of it, and get twice the weight.
func TestTheShareOfOneWhoseNoteIsGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*half)
		lost   bool
	}{
		{"the note is there", func(*half) {}, false},
		{"the note is gone", func(h *half) { delete(h.v.deps[6].Annotations, spec.NoteAnnotation) }, true},
		{"it cannot be read", func(h *half) { h.v.deps[6].Annotations[spec.NoteAnnotation] = "{" }, true},
		{"all marks are gone", func(h *half) { h.v.deps[6].Annotations = nil }, true},
		{"its Deployment is gone", func(h *half) { delete(h.v.deps, 6) }, false},
		{"it is made anew", func(h *half) {
			delete(h.v.deps[6].Annotations, spec.NoteAnnotation)
			h.v.osdmap.OSDs[1] = cephosd.OSD{ID: 6, UUID: "v6", State: []string{"exists"}}
		}, false},
	} {
		h := newHalf(t)
		c.change(h)
		mate := h.v.mate(plan.Member{ID: 6, UUID: "u6"}, h.notes[5], true)
		if mate.Lost != c.lost {
			t.Errorf("%s: %+v", c.name, mate)
		}
	}
}

// The notes of a whole set may be gone: what is recorded on the Deployments says that they had
// one disk, where Ceph's map has only destroyed OSDs.
func TestASetWithoutAnyNote(t *testing.T) {
	for name, together := range map[string]bool{"one disk": true, "two disks": false} {
		h := newHalf(t)
		h.v.stored = access.Cluster{Ceph: cephtest.Healthy(t, 3, 3)}
		for _, id := range []int{5, 6} {
			rec := withDatabase(id, map[int]string{5: "u5", 6: "u6"}[id], "OLD")
			if together {
				rec.Data.Serial = "SHARED"
			}
			b, err := json.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			h.v.deps[id].Annotations[spec.RecordAnnotation] = string(b)
			delete(h.v.deps[id].Annotations, spec.NoteAnnotation)
		}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: "0", InProgress: true, Ready: true}}
		if err := s.fresh(t.Context(), &Base{}, &cephv1.CephCluster{}, h.v, h.v.deps[5]); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(s.FreshProblem, "replaced together"); got != together {
			t.Errorf("%s: %q", name, s.FreshProblem)
		}
	}
}
