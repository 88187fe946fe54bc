package cluster

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/release"
)

// VersionJob asks an image for its Ceph version; its label app too.
const VersionJob = "rook-ceph-detect-version"

// imageAnnotation says which image a version Job has asked.
const imageAnnotation = "castellan.ceph.io/image"

// version brings the accepted version up to date. It returns the version to
// build with, and false when the plan is complete without going on.
func version(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) (release.Version, bool) {
	accepted := release.Version{}
	if v := cl.Status.CephVersion; v != nil {
		accepted, _ = release.ParseLabel(v.Version)
	}
	if !changing(cl) && !accepted.IsZero() {
		if seen.Job != nil {
			p.Delete = append(p.Delete, jobRef(cl))
		}
		return accepted, true
	}
	said, err := release.Parse(seen.Said)
	if err != nil {
		ask(cl, seen, p)
		// A cluster that runs goes on as it is meanwhile.
		return accepted, seen.Stored.Founded && !accepted.IsZero()
	}
	verdict := release.Change(runs(seen, accepted), said, cl.Spec.CephVersion.AllowUnsupported)
	if !verdict.OK() {
		p.Err = kit.Terminal("spec.cephVersion.image", "%s", verdict.Refusal)
		return accepted, false
	}
	if why := unhealthy(cl, seen, accepted); why != "" {
		p.Wait = &kit.Wait{Reason: "UpgradeWaitsForHealth", Message: why, Blocked: true, For: 15 * time.Second,
			Hint: "make the cluster healthy, or set spec.skipUpgradeChecks"}
		return accepted, true
	}
	status := cl.DeepCopy()
	status.Status.CephVersion = &cephv1.ClusterVersion{Image: cl.Spec.CephVersion.Image, Version: said.Label()}
	p.Status = status
	for _, w := range verdict.Warnings {
		p.Events = append(p.Events, kit.Event{Warning: true, Reason: "CephVersion", Message: w})
	}
	if !accepted.IsZero() {
		p.Events = append(p.Events, kit.Event{Reason: "UpgradeStarted", Message: fmt.Sprintf("Ceph is being brought from %s to %s", accepted, said)})
	}
	return said, true
}

// runs is the version that a change starts from: the newest that runs, since
// data may have its form already.
func runs(seen Seen, accepted release.Version) release.Version {
	if v := seen.Running.Newest(); !v.IsZero() {
		return v
	}
	return accepted
}

// unhealthy says why an upgrade of a running cluster does not start.
func unhealthy(cl *cephv1.CephCluster, seen Seen, accepted release.Version) string {
	if accepted.IsZero() || !seen.Stored.Founded || cl.Spec.SkipUpgradeChecks {
		return ""
	}
	switch seen.Health {
	case "HEALTH_OK", "HEALTH_WARN":
		return ""
	case "":
		return "the new Ceph version is not used while the mons do not answer"
	}
	return "the new Ceph version is not used while the cluster is in " + seen.Health
}

// ask runs the version Job for the wanted image.
func ask(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) {
	image := cl.Spec.CephVersion.Image
	wait := &kit.Wait{Reason: "DetectingVersion", Message: "asking " + image + " for its Ceph version", Object: "Job " + VersionJob}
	switch {
	case seen.Job == nil:
		p.Create = append(p.Create, versionJob(cl, seen.Cluster))
	case seen.Job.Annotations[imageAnnotation] != image || seen.Said != "" || failed(seen.Job):
		// It is about another image, or has said nothing that can be used: once more.
		p.Delete = append(p.Delete, jobRef(cl))
	}
	if seen.JobError != "" {
		wait.Message = fmt.Sprintf("the Ceph version of %s cannot be found: %s", image, seen.JobError)
		wait.Hint = "check spec.cephVersion.image"
		wait.Blocked = true
	}
	if p.Wait == nil {
		p.Wait = wait
	}
}

func jobRef(cl *cephv1.CephCluster) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: VersionJob, Namespace: cl.Namespace}}
}

func failed(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// versionJob runs castellan-node in the wanted image. What it says comes back as
// the pod's termination message, so the pod needs no rights at all.
func versionJob(cl *cephv1.CephCluster, c podspec.Cluster) *batchv1.Job {
	u := podspec.UserOf(&cl.Spec, "cmdreporter", cephv1.ResourcesKeyCmdReporter)
	labels := map[string]string{"app": VersionJob, "rook_cluster": c.Namespace}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "rook-ceph-default", AutomountServiceAccountToken: ptr.To(false),
		PriorityClassName: u.PriorityClass,
		InitContainers:    []corev1.Container{podspec.CopyBin(c)},
		Containers: []corev1.Container{{
			Name: "version", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{podspec.Bin, "ceph-version"},
			VolumeMounts:    []corev1.VolumeMount{{Name: podspec.VolumeBin, MountPath: "/castellan", ReadOnly: true}},
			SecurityContext: podspec.Confined(c), Resources: u.Resources,
		}},
		Volumes: []corev1.Volume{{Name: podspec.VolumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
	podspec.Place(&pod, u.Placement)
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: VersionJob, Namespace: c.Namespace, Labels: labels, Annotations: map[string]string{imageAnnotation: c.CephImage},
			OwnerReferences: []metav1.OwnerReference{c.Owner},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](3), ActiveDeadlineSeconds: ptr.To[int64](900),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// version reads what the version Job has said.
func (c *Controller) version(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	var job batchv1.Job
	found, err := kube.Get(ctx, c.Cache, types.NamespacedName{Namespace: cl.Namespace, Name: VersionJob}, &job)
	if err != nil {
		return fmt.Errorf("reading the version Job: %w", err)
	}
	if !found || job.DeletionTimestamp != nil {
		return nil
	}
	seen.Job = &job
	if job.Annotations[imageAnnotation] != cl.Spec.CephVersion.Image {
		return nil
	}
	list, err := kube.List(ctx, c.Cache, &corev1.PodList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": VersionJob})
	if err != nil {
		return fmt.Errorf("listing the version Job's pods: %w", err)
	}
	for _, p := range list.Items {
		if !owned(&p, &job) {
			continue
		}
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			switch {
			case s.Name == "version" && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0:
				seen.Said = short(s.State.Terminated.Message)
			case s.State.Waiting != nil && s.State.Waiting.Message != "":
				seen.JobError = s.State.Waiting.Reason + ": " + short(s.State.Waiting.Message)
			case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
				seen.JobError = fmt.Sprintf("%s ended with exit code %d: %s", s.Name, s.State.Terminated.ExitCode, short(s.State.Terminated.Message))
			}
		}
	}
	if failed(&job) && seen.JobError == "" {
		seen.JobError = "the Job has failed"
	}
	return nil
}

func owned(p *corev1.Pod, job *batchv1.Job) bool {
	for _, r := range p.OwnerReferences {
		if r.UID == job.UID {
			return true
		}
	}
	return false
}
