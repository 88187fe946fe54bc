package ceph

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Stage is something that a person waits for.
type Stage struct {
	Name string
	// At is when it was reached, counted from the CephCluster being applied.
	At time.Duration
	// Milestone is what users wait for; the others say where its time goes.
	Milestone bool
}

// The stages that every bring-up ends with.
const (
	stageHealthy = "HEALTH_OK"
	stageClean   = "all PGs active+clean"
)

// timeline collects when the stages of a bring-up were reached: those that the
// CephCluster's status tells, and the steps of its pods. Times are those of the
// watch, since Kubernetes notes whole seconds only.
type timeline struct {
	begun  time.Time
	stages map[string]Stage
	// steps of each group of pods: by step, then by pod.
	steps map[group]map[string]map[string]time.Duration
}

// group is a kind of pods and how users call its main container.
type group struct{ app, container, title string }

// groups of pods in the order in which they come up.
var groups = [...]group{
	{"rook-ceph-detect-version", "version", "version pod"},
	{"rook-ceph-mon", "mon", "mon pods"},
	{"rook-ceph-mgr", "mgr", "mgr pods"},
	{"rook-ceph-osd-prepare", "provision", "prepare pods"},
	{"rook-ceph-osd", "osd", "OSD pods"},
}

func newTimeline(begun time.Time) *timeline {
	return &timeline{begun: begun, stages: map[string]Stage{}, steps: map[group]map[string]map[string]time.Duration{}}
}

// reach notes a milestone, and says whether it is new.
func (t *timeline) reach(name string, at time.Time) bool {
	if _, ok := t.stages[name]; ok {
		return false
	}
	t.stages[name] = Stage{Name: name, At: at.Sub(t.begun), Milestone: true}
	return true
}

// pod notes the steps that a pod has taken. Canaries of mons are passed over, and so
// is what was there before.
func (t *timeline) pod(p *corev1.Pod, at time.Time) {
	if p.Labels["mon_canary"] != "" || p.CreationTimestamp.Time.Before(t.begun.Add(-time.Second)) {
		return
	}
	i := slices.IndexFunc(groups[:], func(g group) bool { return g.app == p.Labels["app"] })
	if i < 0 {
		return
	}
	g := groups[i]
	note := func(step string) {
		if t.steps[g] == nil {
			t.steps[g] = map[string]map[string]time.Duration{}
		}
		if t.steps[g][step] == nil {
			t.steps[g][step] = map[string]time.Duration{}
		}
		if _, ok := t.steps[g][step][p.Name]; !ok {
			t.steps[g][step][p.Name] = at.Sub(t.begun)
		}
	}
	note("created")
	for _, c := range p.Status.InitContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil {
			note("init container " + c.Name)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != g.container {
			continue
		}
		if c.State.Running != nil || c.State.Terminated != nil {
			note("running")
		}
		if c.State.Terminated != nil {
			note("ended")
		} else if c.Ready {
			note("Ready")
		}
	}
}

// Stages gives all that was noted, in the order of time. Of each step of a group
// both ends are given where they differ.
func (t *timeline) Stages() []Stage {
	var out []Stage
	for _, s := range t.stages {
		out = append(out, s)
	}
	for g, steps := range t.steps {
		for step, pods := range steps {
			var times []time.Duration
			for _, at := range pods {
				times = append(times, at)
			}
			first, last := slices.Min(times), slices.Max(times)
			name := g.title + " " + step
			if last-first >= 100*time.Millisecond {
				out = append(out, Stage{Name: name + ", the first", At: first})
				name += ", the last"
			}
			out = append(out, Stage{Name: name, At: last})
		}
	}
	slices.SortFunc(out, func(a, b Stage) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name)) })
	return out
}
