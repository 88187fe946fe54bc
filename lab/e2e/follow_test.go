package e2e

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/castellan-storage/castellan/lab/ceph"
)

// probe prints what Ceph says of its OSDs, a JSON object a line: five times a second
// when it changes, once a second at least. One connection costs less than the start of
// one ceph command, so that the measuring does not take the time that it measures.
//
//go:embed testdata/probe.py
var probe string

// cephSeen is one line of the probe.
type cephSeen struct {
	// At is Ceph's clock in seconds, which is the machine's.
	At    float64 `json:"t"`
	Clean bool    `json:"clean"`
	OSDs  map[string]struct {
		UUID      string `json:"uuid"`
		Up        bool   `json:"up"`
		In        bool   `json:"in"`
		Destroyed bool   `json:"destroyed"`
		// Weight is the override weight.
		Weight float64 `json:"weight"`
		// PGs that are mapped to it, or that it serves.
		PGs int `json:"pgs"`
		// Safe: Ceph calls it safe to destroy.
		Safe bool `json:"safe"`
	} `json:"osds"`
	Error string `json:"error"`
}

// Moments of a replacement, in the order in which they come when nothing goes wrong.
const (
	asked      = "asked"
	turn       = "turn"
	accepted   = "accepted"
	out        = "out"
	safe       = "safe-to-destroy"
	stopped    = "stopped"
	podGone    = "pod-gone"
	down       = "down"
	stillSafe  = "down-and-safe-to-destroy"
	destroyed  = "destroyed"
	readyMark  = "ready-for-swap"
	swapped    = "swapped"
	noticed    = "noticed"
	jobRuns    = "job-made"
	claimed    = "new-uuid"
	handedOver = "deployment-given-back"
	podMade    = "pod-made"
	podRuns    = "pod-runs"
	upAndIn    = "up-and-in"
	completed  = "completed"
	clean      = "clean"
)

// step is a part of a replacement's time: from the last of its preconditions to its end.
type step struct {
	name string
	from []string
	to   string
	// bar is how long it may take on a machine that has nothing else to do; 0 where it is
	// Ceph's or Kubernetes' own time.
	bar time.Duration
}

var steps = [...]step{
	{"accepted", after(asked), accepted, 2 * time.Second},
	{"out", after(turn), out, 2 * time.Second},
	{"drained (Ceph)", after(out), safe, 0},
	{"stopped", after(safe), stopped, 2 * time.Second},
	{"pod gone (Kubernetes)", after(stopped), podGone, 0},
	{"safe when down (Ceph)", after(down), stillSafe, 0},
	{"destroyed", after(podGone, stillSafe), destroyed, 2 * time.Second},
	{"ready-for-swap", after(destroyed), readyMark, 2 * time.Second},
	{"all from drained to ready-for-swap", after(safe), readyMark, 5 * time.Second},
	{"swap noticed", after(swapped), noticed, 10 * time.Second},
	{"job made", after(noticed), jobRuns, 2 * time.Second},
	{"new uuid", after(jobRuns), claimed, 0},
	{"prepared and deployment given back", after(claimed), handedOver, 0},
	{"pod made", after(handedOver), podMade, 2 * time.Second},
	{"pod runs (Kubernetes)", after(podMade), podRuns, 0},
	{"up and in", after(podRuns), upAndIn, 0},
	{"all from noticed to up and in", after(noticed), upAndIn, 30 * time.Second},
	{"completed", after(upAndIn), completed, 2 * time.Second},
	{"all from swap to up and in", after(swapped), upAndIn, 40 * time.Second},
	{"clean (Ceph)", after(upAndIn), clean, 0},
}

func after(moments ...string) []string { return moments }

// slack is by how much a bar may be missed before the test fails: other work on the
// machine, and a probe that looks five times a second.
const slack = 3

// follower notes when the steps of replacements were taken, as they are seen from
// outside: the API server's watches, and Ceph.
type follower struct {
	mu   sync.Mutex
	ceph cephSeen
	read time.Time
	lost string
	// moments by OSD; only those that are followed have an entry.
	moments map[int]map[string]time.Time
	uuid    map[int]string
	pods    map[int]map[string]bool
}

// follow starts watching; it ends with the test.
func (c *cluster) follow(t *testing.T) *follower {
	t.Helper()
	f := &follower{moments: map[int]map[string]time.Time{}, uuid: map[int]string{}, pods: map[int]map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { f.probe(ctx, c) })
	k, opts := c.lab.Kube(), metav1.ListOptions{}
	for _, w := range []func() (watch.Interface, error){
		func() (watch.Interface, error) { return k.AppsV1().Deployments(ceph.Namespace).Watch(ctx, opts) },
		func() (watch.Interface, error) { return k.CoreV1().Pods(ceph.Namespace).Watch(ctx, opts) },
		func() (watch.Interface, error) { return k.BatchV1().Jobs(ceph.Namespace).Watch(ctx, opts) },
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				if in, err := w(); err == nil {
					for e := range in.ResultChan() {
						f.object(e.Type, e.Object, time.Now())
					}
				}
				select { // the server ends watches now and then
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	return f
}

// probe runs in the toolbox, again when it ends: its node may have been stopped.
func (f *follower) probe(ctx context.Context, c *cluster) {
	for ctx.Err() == nil {
		pipe, out := io.Pipe()
		var errOut strings.Builder
		ended := make(chan error, 1)
		go func() {
			err := c.ceph.Exec(ctx, nil, out, &errOut, "python3", "-u", "-c", probe)
			_ = out.Close()
			ended <- err
		}()
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			var s cephSeen
			if err := json.Unmarshal(lines.Bytes(), &s); err == nil {
				f.state(s)
			}
		}
		_ = pipe.Close() // what still writes ends
		err := <-ended
		f.mu.Lock()
		f.lost = fmt.Sprintf("%v: %s", err, errOut.String())
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (f *follower) note(id int, what string, at time.Time) {
	if m := f.moments[id]; m != nil && m[what].IsZero() {
		m[what] = at
	}
}

func (f *follower) saw(id int, what string) bool { return !f.moments[id][what].IsZero() }

// mark notes what the test itself has done, or has seen.
func (f *follower) mark(id int, what string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(id, what, at)
}

// begin forgets what was seen of an OSD: a new replacement of it begins.
func (f *follower) begin(o osd, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments[o.id], f.uuid[o.id] = map[string]time.Time{asked: at, turn: at}, o.uuid
}

// turn says that an OSD had to wait until another one was up and in again.
func (f *follower) turn(id, other int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments[id][turn] = f.moments[other][upAndIn]
}

// state takes what Ceph says.
func (f *follower) state(s cephSeen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Error != "" {
		f.lost = s.Error
		return
	}
	f.ceph, f.read = s, time.Now()
	at := time.UnixMicro(int64(s.At * 1e6))
	for id := range f.moments {
		o, there := s.OSDs[strconv.Itoa(id)]
		if !there {
			continue
		}
		if o.UUID == f.uuid[id] {
			if !o.In {
				f.note(id, out, at)
				if o.Safe {
					f.note(id, safe, at)
				}
			}
			if !o.Up && f.saw(id, stopped) {
				f.note(id, down, at)
				if o.Safe {
					f.note(id, stillSafe, at)
				}
			}
		}
		switch {
		case o.Destroyed:
			f.note(id, destroyed, at)
		case o.UUID != f.uuid[id] && o.UUID != "":
			f.note(id, claimed, at)
			if o.Up && o.In {
				f.note(id, upAndIn, at)
				if s.Clean {
					f.note(id, clean, at)
				}
			}
		}
	}
}

// object takes what the API server says.
func (f *follower) object(kind watch.EventType, obj runtime.Object, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o := obj.(type) {
	case *appsv1.Deployment:
		f.deployment(o, at)
	case *corev1.Pod:
		f.pod(kind, o, at)
	case *batchv1.Job:
		if id, err := strconv.Atoi(strings.TrimPrefix(o.Name, "rook-ceph-osd-replace-")); err == nil && kind == watch.Added && f.saw(id, readyMark) {
			f.note(id, jobRuns, at)
		}
	}
}

func (f *follower) deployment(d *appsv1.Deployment, at time.Time) {
	id, err := strconv.Atoi(strings.TrimPrefix(d.Name, "rook-ceph-osd-"))
	if err != nil || f.moments[id] == nil {
		return
	}
	if has(runningAnnotation)(d) == nil {
		f.note(id, accepted, at)
	}
	if !f.saw(id, accepted) {
		return
	}
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		f.note(id, stopped, at)
		if len(f.pods[id]) == 0 {
			f.note(id, podGone, at)
		}
	}
	if has(readyAnnotation)(d) == nil {
		f.note(id, readyMark, at)
	}
	if strings.Contains(d.Annotations[noteAnnotation], `"attempt"`) {
		f.note(id, noticed, at)
	}
	if unmarked(d) == nil && f.saw(id, readyMark) {
		f.note(id, handedOver, at)
	}
	if _, ok := d.Annotations[replacedAnnotation]; !ok && unmarked(d) == nil && f.saw(id, readyMark) && f.saw(id, claimed) {
		f.note(id, completed, at)
	}
}

func (f *follower) pod(kind watch.EventType, p *corev1.Pod, at time.Time) {
	id, err := strconv.Atoi(p.Labels["ceph-osd-id"])
	if err != nil {
		return
	}
	if f.pods[id] == nil {
		f.pods[id] = map[string]bool{}
	}
	if kind == watch.Deleted {
		delete(f.pods[id], p.Name)
		if len(f.pods[id]) == 0 && f.saw(id, stopped) {
			f.note(id, podGone, at)
		}
		return
	}
	f.pods[id][p.Name] = true
	if p.DeletionTimestamp == nil && f.saw(id, claimed) {
		f.note(id, podMade, at)
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == "osd" && s.State.Running != nil {
				f.note(id, podRuns, at)
			}
		}
	}
}

// osd is what Ceph said last of an OSD. What it said long ago is no answer.
func (f *follower) osd(id int) (mapped, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) > 10*time.Second {
		return mapped{}, fmt.Errorf("Ceph has said nothing for %s: %s", time.Since(f.read).Round(time.Second), f.lost)
	}
	o, there := f.ceph.OSDs[strconv.Itoa(id)]
	if !there {
		return mapped{}, fmt.Errorf("osd.%d is not in the map", id)
	}
	return mapped{uuid: o.UUID, up: o.Up, in: o.In, destroyed: o.Destroyed, overrideSetTo: o.Weight}, nil
}

// isClean is nil when Ceph says that all PGs are active and clean.
func (f *follower) isClean() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) > 10*time.Second {
		return errors.New("Ceph says nothing")
	}
	if !f.ceph.Clean {
		return errors.New("not all PGs are active+clean")
	}
	return nil
}

// last is the latest of these moments; none when one of them was not seen.
func last(m map[string]time.Time, names []string) time.Time {
	var at time.Time
	for _, n := range names {
		if m[n].IsZero() {
			return time.Time{}
		}
		if m[n].After(at) {
			at = m[n]
		}
	}
	return at
}

// tell prints the steps of a replacement and holds them against their bars.
func (f *follower) tell(t *testing.T, id int, name string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.moments[id]
	for _, s := range steps {
		from, to := last(m, s.from), m[s.to]
		if from.IsZero() || to.IsZero() {
			continue
		}
		took := to.Sub(from)
		over := ""
		if s.bar > 0 && took > s.bar {
			over = fmt.Sprintf(" OVER %v", s.bar)
			if took > slack*s.bar {
				t.Errorf("%s: %s took %.1fs, %v is the bar", name, s.name, took.Seconds(), s.bar)
			}
		}
		measured(t, name+"/"+strings.ReplaceAll(s.name, " ", "-"), fmt.Sprintf("%.1fs%s", took.Seconds(), over))
	}
}
