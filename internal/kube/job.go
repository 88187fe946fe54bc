package kube

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// JobEnd says whether a Job has ended, when, and whether it succeeded. A pod that has
// failed is no end: the Job's controller may make another. No Job, nil, has not ended.
func JobEnd(j *batchv1.Job) (at time.Time, ok, ended bool) {
	if j == nil {
		return time.Time{}, false, false
	}
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c.LastTransitionTime.Time, c.Type == batchv1.JobComplete, true
		}
	}
	return time.Time{}, false, false
}
