package act

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/replace/confirm"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/observe"
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

// Whatever is told is told on the Deployment, which the user has annotated, and on the
// CephCluster, where monitoring looks.
func TestEventsAreOnBothObjects(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: spec.Name(5), UID: "uid", ResourceVersion: "1"}}
	note := plan.Note{UUID: "u", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u", Data: prepare.Part{Path: "/dev/sdb", Serial: "S"}}, Attempt: &plan.Attempt{Number: 1, Device: "/dev/sdx"}}
	seen := observe.Seen{Deployment: d, Jobs: jobs.Found{Close: &batchv1.Job{}, Zap: &batchv1.Job{}}, State: plan.State{ID: 5, Note: &note, Fresh: note, Refusal: &plan.Refusal{Reason: "R", Message: "m"}, Warnings: []string{"a kernel name"},
		Match: &swap.Match{OSD: 5, Device: "/dev/sdx", Warnings: []string{"it is smaller"}}}}
	events := 0
	for _, k := range []plan.Kind{plan.Refuse, plan.Unrefuse, plan.Accept, plan.Adopt, plan.Fence, plan.Unready, plan.Begin, plan.Out, plan.Stop, plan.Halt, plan.Down, plan.Destroy, plan.Show,
		plan.TooLate, plan.Remember, plan.Claim, plan.Failure, plan.Lost, plan.Reclaim, plan.Handover, plan.Complete, plan.Drop, plan.In, plan.Reweight, plan.Release, plan.Purge, plan.Remove,
		plan.Mourn, plan.Revive, plan.Bury, plan.Force, plan.Weigh, plan.Unclosed, plan.Unzapped, plan.Tell} {
		p := Effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: k, Message: "what is done"})
		if p.Err != nil {
			t.Errorf("%s: %v", k, p.Err)
		}
		on := map[bool][]string{}
		for _, e := range p.Events {
			if e.Object != nil && e.Object != kit.Object(d) {
				t.Errorf("%s: an event on %T", k, e.Object)
			}
			if !strings.HasPrefix(e.Message, "osd.5: ") {
				t.Errorf("%s does not say which OSD: %q", k, e.Message)
			}
			on[e.Object != nil] = append(on[e.Object != nil], e.Reason+" "+e.Message)
			events++
		}
		if diff := cmp.Diff(on[false], on[true]); diff != "" {
			t.Errorf("%s (-on the CephCluster +on the Deployment):\n%s", k, diff)
		}
	}
	if events < 40 {
		t.Errorf("only %d events", events)
	}
}

// Every reason of an event is in the documentation.
func TestReasonsOfEventsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "osd-replacement.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range []string{"act.go", "effect.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range regexp.MustCompile(`"OSDReplace[A-Za-z]+"`).FindAllString(string(source), -1) {
			found++
			if !strings.Contains(string(doc), "`"+strings.Trim(reason, `"`)+"`") {
				t.Errorf("%s of %s is not in docs/osd-replacement.md", reason, file)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d reasons", found)
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
		n := noted(t, Effect(&cephv1.CephCluster{}, observe.Seen{Deployment: &appsv1.Deployment{}, State: plan.State{ID: 5, Note: note, Match: &c.match, With: c.with}}, plan.Action{Kind: plan.Claim}))
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
	p := Effect(&cephv1.CephCluster{}, observe.Seen{Deployment: d, State: s}, plan.Next(s))
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
	note := &plan.Note{UUID: "u5", Node: "n1", Host: "n1", Record: prepare.Result{ID: 5, UUID: "u5", Mode: "raw"}}
	seen := observe.Seen{Deployment: &appsv1.Deployment{}, New: jobs.Inputs{Cluster: podspec.Cluster{Namespace: "ns"}}, State: plan.State{ID: 5, Note: note, FoundOn: &swap.Match{OSD: 5, Device: "/dev/disk/by-id/x", Serial: "NEW", Proof: "it carries the OSD"}}}
	note = noted(t, Effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: plan.Find}))
	if a := note.Attempt; !a.Recognized || a.Device != "/dev/disk/by-id/x" || a.Serial != "NEW" {
		t.Fatalf("%+v", a)
	}
	seen.State.Note = note
	p := Effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: plan.Prove})
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	c := p.Do[0].(kit.Confirmed)
	job := c.Then.(StartJob).Job
	if job.Name != spec.MakeName(5) || c.Check.(confirm.Still).For != plan.Prove || !strings.Contains(job.Spec.Template.Spec.Containers[0].Env[0].Value, "/dev/disk/by-id/x") {
		t.Errorf("%s, %+v, %v", job.Name, c.Check, job.Spec.Template.Spec.Containers[0].Env)
	}
}

// Ceph's own check is skipped only for what it cannot judge, and never for an OSD with data.
func TestWhenCephsCheckIsSkipped(t *testing.T) {
	for _, c := range []struct {
		kind   plan.Kind
		safety plan.Answer
		want   bool
	}{
		{plan.Reclaim, plan.Safe, false}, {plan.Reclaim, plan.Unsafe, true}, {plan.Purge, plan.Safe, false}, {plan.Purge, plan.Unsafe, true},
		{plan.Destroy, plan.Safe, false}, {plan.Destroy, plan.Unsafe, false},
	} {
		seen := observe.Seen{Deployment: &appsv1.Deployment{}, State: plan.State{ID: 5, Safety: c.safety, Void: true, Note: &plan.Note{UUID: "u5"}}}
		p := Effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: c.kind})
		confirmed, ok := p.Do[0].(kit.Confirmed)
		if !ok || confirmed.Check == nil || confirmed.Then.(Command).Void != c.want {
			t.Errorf("%s, %v: %+v", c.kind, c.safety, p.Do[0])
		}
	}
}

// What a node has said of a failed attempt is noted: whose fault it was, and that the OSD is
// not whole.
func TestWhatIsNotedOfAFailure(t *testing.T) {
	for _, c := range []struct {
		name     string
		fault    bool
		replaced *request.Replaced
		faults   int
		unproven string
	}{
		{"the disk's doing", true, nil, 3, ""},
		{"not the disk's doing", false, nil, 2, ""},
		{"the OSD is not whole", true, &request.Replaced{Result: request.Failed, Reason: request.NotProven, Slot: request.SlotNew, SlotUUID: "v5"}, 3, "v5"},
		{"claimed, and not whole", false, &request.Replaced{Result: request.Refused, Reason: request.SlotClaimed, Slot: request.SlotNew, SlotUUID: "v5"}, 2, "v5"},
		{"another OSD is not whole", true, &request.Replaced{Result: request.Failed, Reason: request.NotProven, Slot: request.SlotNew, SlotUUID: "w5"}, 3, ""},
		{"only a sibling has changed", false, &request.Replaced{Result: request.Failed, Reason: request.SiblingChanged, Slot: request.SlotNew, SlotUUID: "v5"}, 2, ""},
	} {
		note := &plan.Note{UUID: "u5", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u5"}, Attempt: &plan.Attempt{Number: 4, Device: "/dev/sdx", Faults: 2}}
		seen := observe.Seen{Deployment: &appsv1.Deployment{}, State: plan.State{ID: 5, UUID: "v5", Note: note, Fault: c.fault}, Replaced: c.replaced}
		n := noted(t, Effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: plan.Failure}))
		if n.Attempt.Faults != c.faults || n.Attempt.Unproven != c.unproven || n.Attempt.Number != 4 {
			t.Errorf("%s: noted %+v", c.name, n.Attempt)
		}
	}
}
