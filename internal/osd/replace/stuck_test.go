package replace

import (
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// What Ceph's map proves to be without data. The combinations are those of captured maps: an
// id that is claimed for the first time is "new" and in; one that was destroyed before is
// "new", out, and has been up as what it was.
func TestWhatHasNoData(t *testing.T) {
	for _, c := range []struct {
		name string
		osd  cephosd.OSD
		want bool
	}{
		{"destroyed", cephosd.OSD{UpFrom: 7, State: []string{"destroyed", "exists"}}, true},
		{"claimed after it was destroyed", cephosd.OSD{UpFrom: 7, State: []string{"exists", "new"}}, true},
		{"claimed for the first time", cephosd.OSD{In: true, State: []string{"exists", "new"}}, true},
		{"claimed for the first time, and it has been up without being marked in", cephosd.OSD{In: true, UpFrom: 9, State: []string{"exists", "new"}}, false},
		{"claimed, and up", cephosd.OSD{Up: true, UpFrom: 9, State: []string{"exists", "new", "up"}}, false},
		{"down and out, as a failed one is", cephosd.OSD{UpFrom: 7, State: []string{"exists"}}, false},
		{"down and out by itself", cephosd.OSD{UpFrom: 7, State: []string{"autoout", "exists"}}, false},
		{"down", cephosd.OSD{In: true, UpFrom: 7, State: []string{"exists"}}, false},
	} {
		if got := empty(c.osd); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// In a cluster that stays degraded Ceph calls no OSD safe that is down. An id that was
// claimed and never used does not have to wait for that; one with data does.
func TestADegradedClusterDoesNotHoldUpAnEmptySlot(t *testing.T) {
	ctx := t.Context()
	mem := cephtest.Healthy(t, 4, 1)
	mon := func(prefix string, args ...any) {
		t.Helper()
		if _, err := mem.Mon(ctx, ceph.Cmd(prefix, args...)); err != nil {
			t.Fatal(err)
		}
	}
	mon("osd pool create", "pool", "data", "pg_num", 8, "pool_type", "replicated", "size", 3)
	mem.Settle()
	osds := cephosd.New(mem)
	find := func(id int) cephosd.OSD {
		t.Helper()
		m, err := osds.Dump(ctx)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := m.Find(id)
		return o
	}
	if err := osds.Out(ctx, 0); err != nil {
		t.Fatal(err)
	}
	mem.Settle()
	mem.StopOSD(0)
	mem.Settle()
	if err := osds.Destroy(ctx, 0); err != nil {
		t.Fatal(err)
	}
	// Another host fails: three copies, and two hosts are left.
	mem.StopOSD(1)
	mem.Tick(3)
	ask := func(id int) (safe, nothing bool) {
		t.Helper()
		s, err := osds.Safety(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return s.Safe, void(find(id), s)
	}
	if safe, nothing := ask(0); safe || !nothing {
		t.Errorf("the destroyed slot: safe %v, without data %v", safe, nothing)
	}
	if _, err := osds.NewOSD(ctx, "55555555-0000-4000-8000-000000000000", 0, cephosd.Secrets{}); err != nil {
		t.Fatal(err)
	}
	if o := find(0); !o.New() || bool(o.In) {
		t.Fatalf("the claimed slot is %+v", o)
	}
	if safe, nothing := ask(0); safe || !nothing {
		t.Errorf("the claimed slot: safe %v, without data %v", safe, nothing)
	}
	if safe, nothing := ask(1); safe || nothing {
		t.Errorf("the failed OSD: safe %v, without data %v", safe, nothing)
	}
	// Whatever the map says: PGs on it count, and no answer is no proof.
	for name, f := range map[string]cephtest.Fault{
		"PGs are mapped to it":    {Answer: []byte(`{"safe_to_destroy":[],"active":[0],"missing_stats":[],"stored_pgs":[]}`)},
		"it stores PGs":           {Answer: []byte(`{"safe_to_destroy":[],"active":[],"missing_stats":[],"stored_pgs":[0]}`)},
		"it is not mentioned":     {Answer: []byte(`{"safe_to_destroy":[],"active":[],"missing_stats":[],"stored_pgs":[]}`)},
		"the mgr does not answer": {Errno: syscall.ETIMEDOUT},
	} {
		f.Prefix, f.Times = "osd safe-to-destroy", 1
		mem.Inject(f)
		s, err := osds.Safety(ctx, 0)
		if nothing := void(find(0), s); nothing || (err != nil) != (f.Errno != 0) {
			t.Errorf("%s: %v, %v", name, nothing, err)
		}
	}
	mem.Inject(cephtest.Fault{Prefix: "osd safe-to-destroy", Times: 1, Errno: syscall.EAGAIN})
	s, err := osds.Safety(ctx, 0)
	if nothing := void(find(0), s); !nothing || err != nil {
		t.Errorf("PGs of others have not been reported: %v, %v", nothing, err)
	}
	if err := osds.Destroy(ctx, 0); err == nil {
		t.Error("Ceph destroys the claimed slot by its own check: this test shows nothing")
	}
	if err := osds.DestroyUnchecked(ctx, 0); err != nil || !find(0).Destroyed() {
		t.Errorf("%v, %+v", err, find(0))
	}
}

func endedJob(uid string, at time.Time, ok bool) *batchv1.Job {
	kind := batchv1.JobFailed
	if ok {
		kind = batchv1.JobComplete
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: spec.CloseName(5), UID: types.UID(uid), Labels: map[string]string{spec.UUIDLabel: "u5"}, Annotations: map[string]string{generationAnnotation: "3"}},
		Status:     batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}},
	}
}

// The pause between two Jobs that close mappings grows with the failures that are noted, up
// to ten minutes, and each failure counts once.
func TestPausesBetweenJobsThatClose(t *testing.T) {
	var counted *plan.Failures
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		job := endedJob("job-"+string(rune('a'+i)), begun, false)
		state, _ := closeState(job, "u5", 3, counted.Tries(), begun)
		if uncounted, _ := failing(job, state, counted); !uncounted {
			t.Fatalf("failure %d is counted before it is noted", i+1)
		}
		counted = counted.Next(string(job.UID))
		for at, s := range map[time.Duration]plan.JobState{want - time.Second: plan.Failed, want: plan.Retry} {
			state, _ := closeState(job, "u5", 3, counted.Tries(), begun.Add(at))
			uncounted, due := failing(job, state, counted)
			if state != s || uncounted || !due.Equal(begun.Add(want)) {
				t.Errorf("failure %d, after %v: %v, due %v, uncounted %v", i+1, at, state, due.Sub(begun), uncounted)
			}
		}
	}
	if uncounted, due := failing(endedJob("x", begun, true), plan.Retry, nil); uncounted || !due.IsZero() {
		t.Error("a Job that has ended well counts as a failure")
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
		h.v.maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{"replace": c.report}}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, Note: note}}
		j := jobs{make: endedJob("m", begun, false)}
		j.make.Name = spec.MakeName(5)
		s.node(h.v, h.v.deps[5], &j)
		if !strings.Contains(s.MakeProblem, c.says) || !s.RetryAt.Equal(begun.Add(c.retry)) {
			t.Errorf("%s: %q, again after %v", c.name, s.MakeProblem, s.RetryAt.Sub(begun))
		}
	}
}

// A Job whose pod cannot be ended is no wait without a name.
func TestAPodThatHangs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod)
		hangs  bool
	}{
		{"long over", func(*corev1.Pod) {}, true},
		{"it has just been told", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: begun.Add(-10 * time.Second)} }, false},
		{"it was not told to end", func(p *corev1.Pod) { p.DeletionTimestamp = nil }, false},
		{"it has ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"of another OSD", func(p *corev1.Pod) { p.Labels[spec.UUIDLabel] = "u6" }, false},
		{"the OSD's own", func(p *corev1.Pod) { p.Labels["app"] = spec.App }, false},
	} {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "close-x", Labels: map[string]string{"app": spec.CloseApp, spec.UUIDLabel: "u5"}, DeletionTimestamp: &metav1.Time{Time: begun.Add(-2 * time.Minute)}}}
		p.Spec.NodeName = "n1"
		c.change(&p)
		v := &view{now: begun, pods: []corev1.Pod{p}}
		what, hint := v.hung("u5")
		if (what != "") != c.hangs || c.hangs && (!strings.Contains(what, "close-x on node n1") || hint == "") {
			t.Errorf("%s: %q (%s)", c.name, what, hint)
		}
	}
}

// What a Job says is what its last pod with a message says: the very last may have been cut
// off by the deadline.
func TestWhatAJobHasSaid(t *testing.T) {
	pod := func(name string, at time.Time, message string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at), OwnerReferences: []metav1.OwnerReference{{UID: "j"}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}}}}
		return p
	}
	v := &view{pods: []corev1.Pod{pod("c", begun.Add(2*time.Minute), ""), pod("b", begun.Add(time.Minute), "cryptsetup hangs on /dev/sdb"), pod("a", begun, "the first")}}
	if got := v.said(endedJob("j", begun, false)); got != "cryptsetup hangs on /dev/sdb" {
		t.Errorf("%q", got)
	}
}

// A further metadata device with the databases of others on it is not offered to an OSD that
// comes too late, and is not called something to wipe.
func TestASlotThatOthersHave(t *testing.T) {
	h := newHalf(t)
	h.again(t, true)
	note := *h.notes[4]
	if got := h.v.taken(note); got != "" {
		t.Errorf("before anything is on the next device: %q", got)
	}
	for i, id := range []int{5, 6} {
		rec := withDatabase(id, "v"+string(rune('0'+id)), "Y")
		h.v.records = append(h.v.records, osdplan.Record{Result: rec, Node: "n1"})
		h.v.osdmap.OSDs[i] = cephosd.OSD{ID: id, UUID: rec.UUID, State: []string{"exists"}}
	}
	want := "in the slot nvme-1 is the disk with serial Y by now, with osd.5, osd.6 on it"
	if got := h.v.taken(note); got != want {
		t.Errorf("%q", got)
	}
	s := facts{State: plan.State{ID: 4, Answered: true, Exists: true, Destroyed: true, Asked: true, InProgress: true, Fenced: true, Ready: true, Note: &note, Disks: []string{"x"}}}
	note.Disks = []string{"x"}
	s.node(h.v, h.v.deps[4], &jobs{})
	if a := plan.Next(s.State); a.Kind != plan.Tell || !strings.Contains(a.Message, "metadata device of its own") || !strings.Contains(a.Message, spec.WithAnnotation) {
		t.Errorf("%+v", a)
	}
	h.v.records[0].UUID = "gone"
	if got := h.v.taken(note); !strings.Contains(got, "with osd.6 on it") {
		t.Errorf("one that Ceph does not have: %q", got)
	}
	other := note
	other.Record.DB = &prepare.Part{Serial: "Y", ByPath: "/dev/disk/by-path/nvme-1"}
	if got := h.v.taken(other); got != "" {
		t.Errorf("the disk to pull itself: %q", got)
	}
}

// The size of the disk to pull is that of the disk, not of what lies on it.
func TestTheSizeOfTheDiskToPull(t *testing.T) {
	set := &plan.Set{Kind: plan.OnMetadata, Leader: 5, Members: []plan.Member{{ID: 5, UUID: "u5"}}}
	n := plan.Note{UUID: "u5", Node: "n1", Record: withDatabase(5, "u5", "OLD"), Set: set}
	v := &view{maps: map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{"devices": `[
		{"path":"/dev/nvme0n1p1","type":"part","size":1,"serial":"OLD"},{"path":"/dev/nvme0n1","type":"disk","size":4096,"serial":"OLD"},{"path":"/dev/sdf","type":"disk","size":9,"serial":"HDD5"}]`}}}}
	n.Whole = v.whole(n)
	if n.Whole != 4096 || n.Old().Size != 4096 {
		t.Errorf("%d, %+v", n.Whole, n.Old())
	}
	n.Set = nil
	if got := v.whole(n); got != 9 {
		t.Errorf("of the data's disk: %d", got)
	}
	n.Record.Data.Serial = "ELSE"
	if got := v.whole(n); got != 0 {
		t.Errorf("of a disk that is not reported: %d", got)
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
		seen := Seen{Deployment: &appsv1.Deployment{}, State: plan.State{ID: 5, Safety: c.safety, Void: true, Note: &plan.Note{UUID: "u5"}}}
		p := effect(&cephv1.CephCluster{}, seen, plan.Action{Kind: c.kind})
		confirmed, ok := p.Do[0].(kit.Confirmed)
		if !ok || confirmed.Check == nil || confirmed.Then.(Command).Void != c.want {
			t.Errorf("%s, %v: %+v", c.kind, c.safety, p.Do[0])
		}
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
		h.v.maps = map[string]*corev1.ConfigMap{spec.StatusMap("n1"): {Data: map[string]string{"replace": c.report}}}
		h.v.records = []osdplan.Record{{Node: "n1", Result: prepare.Result{ID: 5, UUID: "v5"}}}
		s := facts{State: plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: "v5", Note: note}}
		j := jobs{make: endedJob("m", begun, false)}
		s.node(h.v, h.v.deps[5], &j)
		if s.Found != c.want {
			t.Errorf("%s: found %v", c.name, s.Found)
		}
		if c.noted != "" {
			continue
		}
		p := effect(&cephv1.CephCluster{}, Seen{Deployment: &appsv1.Deployment{}, State: s.State, Jobs: j}, plan.Action{Kind: plan.Failure})
		kept, err := plan.ReadNote(*p.Do[0].(Patch).Annotations[spec.NoteAnnotation], 5)
		if err != nil || (kept.Attempt.Unproven == "v5") == c.want {
			t.Errorf("%s: noted %+v, %v", c.name, kept, err)
		}
	}
}
