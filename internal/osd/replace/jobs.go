package replace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
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
	// unreportedTries bounds the pause after attempts of which nothing is known: that of
	// the second try, one minute.
	unreportedTries = 2
	// reportWait is how long after a Job has ended well its report is awaited; it was written
	// before, so that only the cache can be behind.
	reportWait = 5 * time.Second
	// hungAfter is how long after its end was due a pod counts as hanging.
	hungAfter = time.Minute
)

// generationAnnotation on a closing Job is the Deployment's generation: a change of
// its replicas since may have opened the mappings again.
const generationAnnotation = "castellan.ceph.io/deployment-generation"

// jobs are the Jobs of one replacement, nil where there is none, and what a new one is
// built from.
type jobs struct {
	now              time.Time
	close, make, zap *batchv1.Job
	// busy: the node's prepare Job runs, which writes the same report.
	busy      bool
	monHost   string
	allowLoop bool
	report    *corev1.ConfigMap
	// replaced is what the node has reported of the last attempt of this OSD.
	replaced *request.Replaced
	others   []prepare.Result
	pending  []swap.Pending
	// joins is the volume group that the OSD's database is put together with on the next
	// metadata device, where that is not its own.
	joins string
	// named: the user has named the new disk.
	named bool
}

// jobsOf are the Jobs of one OSD, as they were before Ceph was asked: what a Job that
// has ended has done is in Ceph's answer.
func (v *view) jobsOf(id int, node string) jobs {
	j := jobs{now: v.now, monHost: v.stored.List.MonHost(), allowLoop: v.set.AllowLoopDevices}
	j.close, j.make, j.zap = v.jobs[spec.CloseName(id)], v.jobs[spec.MakeName(id)], v.jobs[spec.ZapName(id)]
	if job := v.jobs[spec.JobName(node)]; job != nil && node != "" {
		_, _, ended := kube.JobEnd(job)
		j.busy = !ended
	}
	return j
}

// closeState says what a closing Job proves now; tries is how many have failed.
func closeState(j *batchv1.Job, uuid string, generation int64, tries int, now time.Time) (plan.JobState, string) {
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
	case now.Sub(at) < backOff(tries):
		return plan.Failed, jobMessage(j)
	}
	return plan.Retry, jobMessage(j)
}

// failing says of a Job that has failed whether the note does not count it yet, and when the
// next is due.
func failing(j *batchv1.Job, s plan.JobState, counted *plan.Failures) (uncounted bool, retry time.Time) {
	if s != plan.Failed && s != plan.Retry {
		return false, time.Time{}
	}
	at, ok, _ := kube.JobEnd(j)
	if ok {
		return false, time.Time{} // it is done again because its proof is old
	}
	return !counted.Counted(string(j.UID)), at.Add(backOff(counted.Tries()))
}

// jobState says how far another Job is; tries is how often it was tried.
func jobState(j *batchv1.Job, uuid string, tries int, now time.Time) (plan.JobState, string) {
	if j == nil {
		return plan.NoJob, ""
	}
	if j.DeletionTimestamp != nil {
		return plan.Ending, ""
	}
	at, ok, ended := kube.JobEnd(j)
	due := now.Sub(at) >= backOff(tries)
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

func backOff(tries int) time.Duration {
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

// lingers says that pods of a Job which is gone still run: what they do to a disk must
// end before the next step.
func (v *view) lingers(app, uuid string) bool {
	return slices.ContainsFunc(v.pods, func(p corev1.Pod) bool {
		return p.Labels["app"] == app && p.Labels[spec.UUIDLabel] == uuid && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	})
}

// hung says which pods of Jobs for an OSD were to end and have not, long after: their
// programs hang in the kernel, and a Job does not count as ended before its pods are gone.
func (v *view) hung(uuid string) (what, hint string) {
	for _, p := range v.pods {
		if p.Labels[spec.UUIDLabel] != uuid || !slices.Contains([]string{spec.CloseApp, spec.MakeApp, spec.ZapApp}, p.Labels["app"]) {
			continue
		}
		if p.DeletionTimestamp == nil || v.now.Sub(p.DeletionTimestamp.Time) < hungAfter || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		return fmt.Sprintf("the pod %s on node %s was to end at %s and has not", p.Name, p.Spec.NodeName, p.DeletionTimestamp.UTC().Format("15:04:05 UTC")),
			"a program of it hangs in the kernel, which waits for a disk that does not answer: dmesg on that node names it; pull that disk, or restart the node"
	}
	return "", ""
}

// said is what the last pod of a Job that has left a message says. The very last may have
// been cut off by the Job's deadline.
func (v *view) said(j *batchv1.Job) string {
	if j == nil {
		return ""
	}
	var at metav1.Time
	message := ""
	for i := range v.pods {
		p := &v.pods[i]
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

// build makes the Job of a step; nil for steps that make none.
func (j jobs) build(k plan.Kind, cl *cephv1.CephCluster, seen Seen) (*batchv1.Job, error) {
	if k != plan.Close && k != plan.Make && k != plan.Prove && k != plan.Zap {
		return nil, nil
	}
	note, id := seen.State.Note, seen.State.ID
	user := podspec.UserOf(&cl.Spec, cephv1.KeyOSDPrepare, cephv1.ResourcesKeyPrepareOSD)
	user.Placement.Tolerations = append(user.Placement.Tolerations, cl.Spec.Placement[cephv1.KeyOSD].Tolerations...)
	n := spec.NodeJob{Host: note.Host, UUID: note.UUID, User: user}
	switch k {
	case plan.Close:
		n.Name, n.App, n.Command, n.Retries, n.Deadline = spec.CloseName(id), spec.CloseApp, "close", 1, closeDeadline
		n.Request = request.Close{OSD: id, UUID: note.UUID, LVs: note.LVs()}
	case plan.Zap:
		n.Name, n.App, n.Command, n.Retries, n.Deadline = spec.ZapName(id), spec.ZapApp, "zap", 1, closeDeadline
		n.Request = request.Zap{OSD: id, UUID: note.UUID, LVs: note.Left()}
	case plan.Make, plan.Prove:
		n.Name, n.App, n.Command, n.Deadline = spec.MakeName(id), spec.MakeApp, "replace", makeDeadline
		n.Writes, n.Reports = true, true
		n.Request = j.replaceRequest(seen)
	}
	job, err := spec.NodeJobOf(seen.Cluster, n)
	if err != nil {
		return nil, fmt.Errorf("building the Job %s: %w", n.Name, err)
	}
	job.Annotations = map[string]string{generationAnnotation: strconv.FormatInt(seen.Deployment.Generation, 10)}
	return job, nil
}

// replaceRequest is what the node is told: what was recorded of the old OSD, not what
// today's spec would make of a new one.
func (j jobs) replaceRequest(seen Seen) request.Replace {
	note, s := seen.State.Note, seen.State
	r := request.Replace{
		Namespace: seen.Cluster.Namespace, Node: note.Node, ConfigMap: spec.StatusMap(note.Node), FSID: seen.Cluster.FSID, MonHost: j.monHost,
		OSD: s.ID, OldUUID: note.UUID, Attempt: s.Note.Attempt.Number, Device: s.Note.Attempt.Device, Serial: s.Note.Attempt.Serial,
		Mode: note.Record.Mode, Encrypted: note.Record.Encrypted, DB: plan.LV(note.Record.DB), WAL: plan.LV(note.Record.WAL),
		DeviceClass: note.Before.Class, AllowLoop: j.allowLoop,
	}
	if !j.named {
		// Ceph weighs the OSD by the size it had. A disk that is smaller would be overfilled;
		// makers differ by less than a hundredth.
		r.MinSize = note.Record.Data.Size - note.Record.Data.Size/100
	}
	j.share(&r, *note, seen.State)
	if j.report != nil {
		r.Labels = pending.Labels(j.report.Labels)
	}
	for _, p := range j.pending {
		if p.OSD != s.ID {
			r.Pending = append(r.Pending, p)
		}
	}
	r.Siblings = siblings(*note, j.others)
	return r
}

// share makes the request one of several for one disk.
func (j jobs) share(r *request.Replace, note plan.Note, s plan.State) {
	switch {
	case note.Set == nil:
	case note.Set.Kind == plan.OnMetadata:
		// The disk of the data stays: only a volume that is proven to be the destroyed OSD's
		// gives way on it.
		r.DBDevice, r.DBSerial = note.Attempt.Device, note.Attempt.Serial
		r.Device, r.Serial, r.MinSize = dataDevice(note), note.Record.Data.Serial, 0
		r.Data = plan.LV(&note.Record.Data)
		for _, lv := range []*request.LV{r.DB, r.WAL} {
			if lv != nil && note.Attempt.VG != "" {
				lv.VG = note.Attempt.VG
			}
		}
	default:
		r.Set = note.Attempt.Set
		if r.MinSize > 0 {
			r.MinSize = s.Need
		}
	}
}

// siblings are the OSDs whose volumes share a volume group with the database or WAL, and
// survive with it.
func siblings(note plan.Note, others []prepare.Result) []request.Sibling {
	rec, groups := note.Record, map[string]bool{}
	if note.Set != nil && note.Set.Kind == plan.OnMetadata {
		return nil
	}
	for _, p := range []*prepare.Part{rec.DB, rec.WAL} {
		if v := plan.LV(p); v != nil {
			groups[v.VG] = true
		}
	}
	var out []request.Sibling
	for _, o := range others {
		sib := request.Sibling{OSD: o.ID, UUID: o.UUID}
		for _, p := range []*prepare.Part{&o.Data, o.DB, o.WAL} {
			if v := plan.LV(p); v != nil && groups[v.VG] {
				sib.LVs = append(sib.LVs, *v)
			}
		}
		if o.ID != rec.ID && len(sib.LVs) > 0 {
			out = append(out, sib)
		}
	}
	return out
}
