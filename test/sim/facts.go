package sim

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
	"github.com/castellan-storage/castellan/internal/nodedaemon/spec"
)

// factsJob says of every image what an upstream one says of itself.
func (w *World) factsJob(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodSucceeded {
		said := facts.Facts{UID: 167, GID: 167, Exporter: true}
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: spec.FactsContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: said.String()}},
		}}
		return w.c.Status().Update(ctx, pod)
	}
	return w.endJob(ctx, j, true)
}
