package sim

import (
	"context"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

// FailCleanup lets a node's cleanup fail with a message, or, with "", succeed.
func (w *World) FailCleanup(node, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[node] = message
}

// Cleaned are the requests that nodes have carried out, by node.
func (w *World) Cleaned() map[string]task.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.cleaned)
}

// OSDs counts the disks of a node that hold an OSD.
func (w *World) OSDs(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, d := range w.nodes[node].Disks {
		if d.OSD != nil {
			n++
		}
	}
	return n
}

// cleanupJob is what castellan-node does with a node's disks, by fsid. A try that
// fails is followed by another one in the same pod. A daemon that still runs on the
// node would have its disk wiped under it, which is an error of the test.
func (w *World) cleanupJob(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	var req task.Request
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == request.Env {
			if err := request.Decode(e.Value, &req); err != nil {
				return err
			}
		}
	}
	if osds, mons := w.Ceph.RunningOSDs(), w.Ceph.RunningMons(); len(osds)+len(mons) > 0 {
		w.t.Errorf("%s is cleaned while OSDs %v and mons %v run", pod.Spec.NodeName, osds, mons)
	}
	w.mu.Lock()
	node, held, dirty := w.nodes[pod.Spec.NodeName], w.hold[pod.Spec.NodeName], w.dirty[pod.Spec.NodeName]
	w.mu.Unlock()
	if node == nil || !node.Alive || held {
		return nil
	}
	if dirty != "" {
		return w.ended(ctx, pod, corev1.ContainerStatus{
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: dirty}},
		})
	}
	w.mu.Lock()
	n := 0
	for _, d := range node.Disks {
		if d.OSD != nil && d.OSD.FSID == req.FSID {
			d.OSD = nil
			n++
		}
	}
	w.cleaned[node.Name] = req
	w.mu.Unlock()
	pod.Status.Phase = corev1.PodSucceeded
	if err := w.ended(ctx, pod, corev1.ContainerStatus{
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: fmt.Sprintf("%d disks cleaned", n)}},
	}); err != nil {
		return err
	}
	return w.endJob(ctx, j, true)
}

func (w *World) ended(ctx context.Context, pod *corev1.Pod, s corev1.ContainerStatus) error {
	s.Name = pod.Spec.Containers[0].Name
	if old := pod.Status.ContainerStatuses; len(old) == 1 && old[0].LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated != nil &&
		old[0].LastTerminationState.Terminated.Message == s.LastTerminationState.Terminated.Message {
		return nil
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	return w.c.Status().Update(ctx, pod)
}
