// Package jobs is about the Jobs of a replacement: one closes the dm-crypt mappings of the
// old disk, one prepares the new disk, one wipes what an OSD that is given up has left. It
// says how far each is and what it proves, and builds the next one. It must not read or
// write anything itself, and it must not decide which Job is due: that is in
// internal/osd/replace/plan.
package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Times of Jobs.
const (
	// closeFresh is how long the proof that mappings are closed counts; D2 of the
	// invariants asks for no more than 60 s before a destroy.
	closeFresh = time.Minute
	// closeDeadline bounds a Job that closes; ceph-volume can hang on a dead disk.
	closeDeadline = 2 * time.Minute
	// makeDeadline bounds the preparation of a disk: LUKS formatting of data and
	// database takes a minute on a slow machine.
	makeDeadline = 30 * time.Minute
	// retryFirst and retryLast bound when a failed Job is tried again.
	retryFirst = 30 * time.Second
	retryLast  = 10 * time.Minute
	// UnreportedTries bounds, for Pause, the tries that count after attempts of which
	// nothing is known: the pause is that of the second, one minute.
	UnreportedTries = 2
	// ReportWait is how long after a Job has ended well its report is awaited; it was written
	// before, so that only the cache can be behind.
	ReportWait = 5 * time.Second
	// hungAfter is how long after its end was due a pod counts as hanging.
	hungAfter = time.Minute
)

// generationAnnotation on a closing Job is the Deployment's generation: a change of
// its replicas since may have opened the mappings again.
const generationAnnotation = "castellan.ceph.io/deployment-generation"

// Found are the Jobs of one replacement, nil where there is none.
type Found struct {
	Close, Make, Zap *batchv1.Job
	// Busy: the node's prepare Job runs, which writes the same report.
	Busy bool
}

// Of finds the Jobs of one OSD among all of a namespace, by name. node is the Kubernetes
// node that the OSD is on, "" where that is not known.
func Of(all map[string]*batchv1.Job, id int, node string) Found {
	f := Found{Close: all[spec.CloseName(id)], Make: all[spec.MakeName(id)], Zap: all[spec.ZapName(id)]}
	if job := all[spec.JobName(node)]; job != nil && node != "" {
		_, _, ended := kube.JobEnd(job)
		f.Busy = !ended
	}
	return f
}

// CloseState says what a closing Job proves now of the OSD with the uuid, whose Deployment
// has the generation; tries is how many have failed. why is what a failed one says.
func CloseState(j *batchv1.Job, uuid string, generation int64, tries int, now time.Time) (state plan.JobState, why string) {
	if j == nil {
		return plan.NoJob, ""
	}
	if j.DeletionTimestamp != nil {
		return plan.Ending, ""
	}
	at, ok, ended := kube.JobEnd(j)
	switch {
	case spec.JobUUID(j) != uuid || j.Annotations[generationAnnotation] != strconv.FormatInt(generation, 10):
		return plan.Stale, ""
	case !ended:
		return plan.Running, ""
	case ok && now.Sub(at) <= closeFresh:
		return plan.Succeeded, ""
	case ok:
		return plan.Expired, ""
	case now.Sub(at) < Pause(tries):
		return plan.Failed, jobMessage(j)
	}
	return plan.Retry, jobMessage(j)
}

// Failing says of a Job that has failed whether the note does not count it yet, and when the
// next is due.
func Failing(j *batchv1.Job, s plan.JobState, counted *plan.Failures) (uncounted bool, retry time.Time) {
	if s != plan.Failed && s != plan.Retry {
		return false, time.Time{}
	}
	at, ok, _ := kube.JobEnd(j)
	if ok {
		return false, time.Time{} // it is done again because its proof is old
	}
	return !counted.Counted(string(j.UID)), at.Add(Pause(counted.Tries()))
}

// State says how far another Job of the OSD with the uuid is; tries is how often it was
// tried. why is what a failed one says.
func State(j *batchv1.Job, uuid string, tries int, now time.Time) (state plan.JobState, why string) {
	if j == nil {
		return plan.NoJob, ""
	}
	if j.DeletionTimestamp != nil {
		return plan.Ending, ""
	}
	at, ok, ended := kube.JobEnd(j)
	due := now.Sub(at) >= Pause(tries)
	switch {
	case spec.JobUUID(j) != uuid:
		return plan.Stale, ""
	case !ended:
		return plan.Running, ""
	case ok && !due:
		return plan.Succeeded, ""
	case !ok && !due:
		return plan.Failed, jobMessage(j)
	}
	return plan.Retry, jobMessage(j)
}

// Pause is how long after a Job has failed the next is due, after so many tries.
func Pause(tries int) time.Duration {
	d := retryFirst
	for range tries - 1 {
		if d *= 2; d >= retryLast {
			return retryLast
		}
	}
	return d
}

func jobMessage(j *batchv1.Job) string {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return strings.TrimSpace(c.Reason + " " + c.Message + "; see the log of Job " + j.Name)
		}
	}
	return ""
}

// Lingers says that pods of a Job which is gone, with the label app and for the OSD with
// the uuid, still run: what they do to a disk must end before the next step.
func Lingers(pods []corev1.Pod, app, uuid string) bool {
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.Labels["app"] == app && p.Labels[spec.UUIDLabel] == uuid && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	})
}

// Hung says which pods of Jobs for an OSD were to end and have not, long after: their
// programs hang in the kernel, and a Job does not count as ended before its pods are gone.
func Hung(pods []corev1.Pod, now time.Time, uuid string) (what, hint string) {
	for _, p := range pods {
		if p.Labels[spec.UUIDLabel] != uuid || !slices.Contains([]string{spec.CloseApp, spec.MakeApp, spec.ZapApp}, p.Labels["app"]) {
			continue
		}
		if p.DeletionTimestamp == nil || now.Sub(p.DeletionTimestamp.Time) < hungAfter || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		return fmt.Sprintf("the pod %s on node %s was to end at %s and has not", p.Name, p.Spec.NodeName, p.DeletionTimestamp.UTC().Format("15:04:05 UTC")),
			"a program of it hangs in the kernel, which waits for a disk that does not answer: dmesg on that node names it; pull that disk, or restart the node"
	}
	return "", ""
}

// Said is what the last pod of a Job that has left a message says. The very last may have
// been cut off by the Job's deadline.
func Said(pods []corev1.Pod, j *batchv1.Job) string {
	if j == nil {
		return ""
	}
	var at metav1.Time
	message := ""
	for i := range pods {
		p := &pods[i]
		if !slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == j.UID }) || p.CreationTimestamp.Before(&at) {
			continue
		}
		for _, s := range p.Status.ContainerStatuses {
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 && t.Message != "" {
				at, message = p.CreationTimestamp, plan.Bounded(strings.TrimSpace(t.Message), 400)
			}
		}
	}
	return message
}
