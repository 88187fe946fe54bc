package jobs

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

var begun = time.Unix(1790000000, 0).UTC()

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
		state, _ := CloseState(job, "u5", 3, counted.Tries(), begun)
		if uncounted, _ := Failing(job, state, counted); !uncounted {
			t.Fatalf("failure %d is counted before it is noted", i+1)
		}
		counted = counted.Next(string(job.UID))
		for at, s := range map[time.Duration]plan.JobState{want - time.Second: plan.Failed, want: plan.Retry} {
			state, _ := CloseState(job, "u5", 3, counted.Tries(), begun.Add(at))
			uncounted, due := Failing(job, state, counted)
			if state != s || uncounted || !due.Equal(begun.Add(want)) {
				t.Errorf("failure %d, after %v: %v, due %v, uncounted %v", i+1, at, state, due.Sub(begun), uncounted)
			}
		}
	}
	if uncounted, due := Failing(endedJob("x", begun, true), plan.Retry, nil); uncounted || !due.IsZero() {
		t.Error("a Job that has ended well counts as a failure")
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
		what, hint := Hung([]corev1.Pod{p}, begun, "u5")
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
	pods := []corev1.Pod{pod("c", begun.Add(2*time.Minute), ""), pod("b", begun.Add(time.Minute), "cryptsetup hangs on /dev/sdb"), pod("a", begun, "the first")}
	if got := Said(pods, endedJob("j", begun, false)); got != "cryptsetup hangs on /dev/sdb" {
		t.Errorf("%q", got)
	}
}
