package cleanup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
	"github.com/castellan-storage/castellan/internal/podspec"
)

const (
	// App is the label app of cleanup Jobs and their pods.
	App = "rook-ceph-cleanup"
	// requestAnnotation tells what a Job was made for.
	requestAnnotation = "castellan.ceph.io/request"
	// container is the one that cleans.
	container = "host-cleanup"
	// account is the one whose pods may be privileged.
	account = "rook-ceph-osd"
	// reportFile becomes the termination message. The default file is in /dev, which
	// is the host's here.
	reportFile = "/castellan-report"
	dataMount  = "/castellan-host"
	// retries of a Job: the kubelet restarts the container with a back-off of up to 5
	// minutes, so this is some days.
	retries = 1000
	// RetryAfter is how long a Job that has given up stays before another one is made.
	RetryAfter = 10 * time.Minute
)

// JobName is the name of a host's Job; its pods' names are longer and must fit too.
func JobName(host string) string { return naming.Fit("cluster-cleanup-job-%s", host, 52) }

// Request for a host.
func Request(c podspec.Cluster, h Host, s cephv1.SanitizeDisksSpec) task.Request {
	return task.Request{
		FSID: c.FSID, Namespace: c.Namespace, DataDir: c.DataDir, Mons: h.Mons, OSDs: h.OSDs,
		Method: string(s.EffectiveMethod()), Source: string(s.EffectiveDataSource()), Iterations: int(s.EffectiveIteration()),
	}
}

// Job cleans one host. It sees all of the host's devices and the cluster's dataDir;
// it has no key, no token and no way to the network of the cluster's daemons.
func Job(c podspec.Cluster, h Host, req task.Request, spec *cephv1.ClusterSpec) (*batchv1.Job, error) {
	value, err := request.Encode(req)
	if err != nil {
		return nil, err
	}
	u := podspec.UserOf(spec, cephv1.KeyCleanup, cephv1.ResourcesKeyCleanup)
	labels := map[string]string{}
	for k, v := range u.Labels {
		labels[k] = v
	}
	for k, v := range map[string]string{"app": App, "rook_cluster": c.Namespace} {
		labels[k] = v
	}
	sum := sha256.Sum256([]byte(value))
	pod := corev1.PodSpec{
		// The same pod tries again, with the kubelet's back-off, so that failures do not
		// pile up as pods.
		RestartPolicy: corev1.RestartPolicyOnFailure, ServiceAccountName: account, AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks: ptr.To(false), PriorityClassName: u.PriorityClass,
		NodeSelector:   map[string]string{corev1.LabelHostname: h.Name},
		HostIPC:        true, // cryptsetup and LVM lock by semaphores of the host
		InitContainers: []corev1.Container{podspec.CopyBin(c)},
		Containers: []corev1.Container{{
			Name: container, Image: c.CephImage, ImagePullPolicy: c.PullPolicy,
			Command:                []string{podspec.Bin, "cleanup", "--data-dir", dataMount, "--report", reportFile},
			Env:                    []corev1.EnvVar{{Name: request.Env, Value: value}},
			Resources:              u.Resources,
			TerminationMessagePath: reportFile,
			// The device cgroup lets nothing less open the host's disks.
			SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true), RunAsUser: ptr.To[int64](0)},
			VolumeMounts: []corev1.VolumeMount{
				{Name: podspec.VolumeBin, MountPath: "/castellan", ReadOnly: true},
				{Name: "data-dir", MountPath: dataMount},
				{Name: "devices", MountPath: "/dev"},
				{Name: "run-udev", MountPath: "/run/udev", ReadOnly: true},
				{Name: "run-lock", MountPath: "/run/lock"},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: podspec.VolumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "run-lock", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			host("data-dir", c.DataDir, ptr.To(corev1.HostPathDirectoryOrCreate)),
			host("devices", "/dev", nil),
			host("run-udev", "/run/udev", ptr.To(corev1.HostPathDirectoryOrCreate)),
		},
	}
	podspec.Place(&pod, cephv1.Placement{Tolerations: tolerations(spec, u)})
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: JobName(h.Name), Namespace: c.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{c.Owner},
			Annotations: map[string]string{requestAnnotation: hex.EncodeToString(sum[:8])},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](retries),
			Template:     corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: u.Annotations}, Spec: pod},
		},
	}, nil
}

func host(name, path string, t *corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: t}}}
}

// tolerations let the Job run wherever a daemon of the cluster may have, and on a
// node that has been cordoned meanwhile.
func tolerations(spec *cephv1.ClusterSpec, u podspec.User) []corev1.Toleration {
	all := []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	all = append(all, u.Placement.Tolerations...)
	for _, key := range []cephv1.KeyType{cephv1.KeyMon, cephv1.KeyOSD} {
		all = append(all, spec.Placement.ForDaemon(key).Tolerations...)
	}
	return all
}

// State is how far the cleaning of one host is.
type State string

// The states of a host.
const (
	// Missing: no Job is there.
	Missing State = "missing"
	// Stale: the Job is about another request, or has given up long enough ago; it has
	// to go first.
	Stale   State = "stale"
	Running State = "running"
	// Failing: the last try has failed, another one comes.
	Failing State = "failing"
	Done    State = "done"
)

// Look says how far a host is. job is the Job that is there, or nil, pods those of
// all cleanup Jobs of the namespace.
func Look(want, job *batchv1.Job, pods []corev1.Pod, now time.Time) (State, string) {
	if job == nil {
		for i := range pods {
			if p := &pods[i]; p.Labels[batchv1.JobNameLabel] == want.Name && !Ended(p) {
				return Running, "the pod of an earlier Job, " + p.Name + ", is still there"
			}
		}
		return Missing, ""
	}
	if job.DeletionTimestamp != nil {
		return Running, "its earlier Job is going away"
	}
	if job.Annotations[requestAnnotation] != want.Annotations[requestAnnotation] {
		return Stale, "its Job is made anew for a changed request"
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return Done, said(job, pods)
		case c.Type == batchv1.JobFailed && now.Sub(c.LastTransitionTime.Time) >= RetryAfter:
			return Stale, "its Job is made anew since it has given up"
		case c.Type == batchv1.JobFailed:
			return Failing, fmt.Sprintf("%s; its Job has given up (%s) and is made anew at %s", said(job, pods), c.Message,
				c.LastTransitionTime.Add(RetryAfter).UTC().Format(time.TimeOnly))
		}
	}
	if s := failure(job, pods); s != "" {
		return Failing, s
	}
	return Running, unscheduled(job, pods)
}

// Ended says that nothing of a pod runs any more or ever will.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func ofJob(p *corev1.Pod, job *batchv1.Job) bool {
	for _, r := range p.OwnerReferences {
		if r.UID == job.UID {
			return true
		}
	}
	return false
}

// ends are the last ends of the containers of a Job's pods.
func ends(job *batchv1.Job, pods []corev1.Pod) []corev1.ContainerStateTerminated {
	var list []corev1.ContainerStateTerminated
	for i := range pods {
		if !ofJob(&pods[i], job) {
			continue
		}
		for _, s := range append(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses...) {
			for _, st := range []corev1.ContainerState{s.State, s.LastTerminationState} {
				if st.Terminated != nil {
					list = append(list, *st.Terminated)
					break
				}
			}
		}
	}
	return list
}

// said is the report of a Job's last pod.
func said(job *batchv1.Job, pods []corev1.Pod) string {
	s := ""
	for _, t := range ends(job, pods) {
		if t.Message != "" {
			s = t.Message
		}
	}
	return s
}

// failure is what the last try has failed with, "" if it has not.
func failure(job *batchv1.Job, pods []corev1.Pod) string {
	for _, t := range ends(job, pods) {
		if t.ExitCode != 0 {
			if t.Message != "" {
				return t.Message
			}
			return fmt.Sprintf("its container ended with exit code %d; see the log of Job %s", t.ExitCode, job.Name)
		}
	}
	return ""
}

// unscheduled says why a Job's pod does not run, as far as Kubernetes says.
func unscheduled(job *batchv1.Job, pods []corev1.Pod) string {
	for i := range pods {
		if !ofJob(&pods[i], job) {
			continue
		}
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return "its pod has no node: " + c.Message
			}
		}
		for _, s := range append(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses...) {
			if w := s.State.Waiting; w != nil && w.Message != "" {
				return w.Reason + ": " + w.Message
			}
		}
	}
	return ""
}
