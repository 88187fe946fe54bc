package ceph

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step is a pod as a watch shows it.
func step(name, app string, made time.Time, init, main corev1.ContainerState) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made), Labels: map[string]string{"app": app}}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "activate", State: init}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "osd", State: main, Ready: main.Running != nil}, {Name: "log-collector"}}
	return p
}

func TestTimeline(t *testing.T) {
	begun := time.Unix(1000, 0)
	after := func(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	tl := newTimeline(begun)
	for _, e := range []struct {
		at  float64
		pod *corev1.Pod
	}{
		{0, step("tools", "rook-ceph-tools", begun, ended, runs)},
		{0, step("older", "rook-ceph-osd", after(-10), ended, runs)},
		{1, step("osd-0", "rook-ceph-osd", begun, waits, waits)},
		{1.05, step("osd-1", "rook-ceph-osd", begun, waits, waits)},
		{2, step("osd-0", "rook-ceph-osd", begun, runs, waits)},
		{4, step("osd-0", "rook-ceph-osd", begun, ended, runs)},
		{5, step("osd-1", "rook-ceph-osd", begun, ended, runs)},
		{9, step("osd-1", "rook-ceph-osd", begun, ended, runs)},
	} {
		tl.pod(e.pod, after(e.at))
	}
	if !tl.reach("2 OSDs up", after(6)) || tl.reach("2 OSDs up", after(7)) {
		t.Error("a milestone is new once")
	}
	s := func(name string, at float64, milestone bool) Stage {
		return Stage{Name: name, At: after(at).Sub(begun), Milestone: milestone}
	}
	want := []Stage{
		s("OSD pods created", 1.05, false),
		s("OSD pods init container activate, the first", 2, false),
		s("OSD pods Ready, the first", 4, false), s("OSD pods running, the first", 4, false),
		s("OSD pods Ready, the last", 5, false), s("OSD pods init container activate, the last", 5, false), s("OSD pods running, the last", 5, false),
		s("2 OSDs up", 6, true),
	}
	if diff := cmp.Diff(want, tl.Stages()); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}
