package spec

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// The contract of a replacement with its user, on the OSD's Deployment.
const (
	// ReplaceAnnotation asks for the replacement; its value must be Confirmation.
	ReplaceAnnotation = "osd.rook.io/replace"
	// MetadataAnnotation asks for the replacement of the device that holds the OSD's
	// database, and that of all OSDs whose database it holds; its value must be
	// MetadataConfirmation or LossConfirmation.
	MetadataAnnotation = "osd.rook.io/replace-metadata-device"
	// InProgressAnnotation says that the request was accepted.
	InProgressAnnotation = "osd.rook.io/replace-in-progress"
	// ReadyAnnotation says that the disk may be pulled.
	ReadyAnnotation = "osd.rook.io/replace-ready-for-swap"
	// WithAnnotation names the new disk, by a path under /dev.
	WithAnnotation = "osd.rook.io/replace-with"
	// AbandonAnnotation gives up the slot; its value must be AbandonConfirmation.
	AbandonAnnotation = "osd.rook.io/replace-abandon"
	// NoteAnnotation is the memory of the replacement, as JSON.
	NoteAnnotation = "castellan.ceph.io/osd-replacement"
	// ReplacedAnnotation is that memory when the Deployment was given back for the new
	// disk, until the OSD is up on it.
	ReplacedAnnotation = "castellan.ceph.io/osd-replaced"
	// RefusedAnnotation says why the request does not hold.
	RefusedAnnotation = "castellan.ceph.io/osd-replace-refused"
)

// Confirmation is the only value by which an OSD is replaced.
func Confirmation(id int) string { return "yes-really-replace-osd-" + strconv.Itoa(id) }

// MetadataConfirmation is the value by which the metadata device of an OSD is replaced.
func MetadataConfirmation(id int) string {
	return "yes-really-replace-metadata-of-osd-" + strconv.Itoa(id)
}

// LossConfirmation is MetadataConfirmation, and accepts that data is lost that is on no
// other device. It counts only where the device is found dead.
func LossConfirmation(id int) string {
	return MetadataConfirmation(id) + "-accept-data-on-it-is-lost"
}

// AbandonConfirmation is the only value by which a slot is given up.
func AbandonConfirmation(id int) string { return "yes-really-purge-osd-" + strconv.Itoa(id) }

// Replacing reports whether an OSD's Deployment belongs to a replacement that was
// accepted. Everybody else leaves it alone then, whatever labels it has.
func Replacing(annotations map[string]string) bool {
	for _, a := range []string{InProgressAnnotation, ReadyAnnotation, NoteAnnotation} {
		if _, ok := annotations[a]; ok {
			return true
		}
	}
	return false
}

// Names of the Jobs of replacements.
const (
	CloseApp = "rook-ceph-osd-crypt-close"
	MakeApp  = "rook-ceph-osd-replace"
	ZapApp   = "rook-ceph-osd-zap"
	WatchApp = "rook-ceph-osd-watch"
	// UUIDLabel on a Job and its pods is the uuid of the OSD that they are about.
	UUIDLabel = "castellan.ceph.io/osd-uuid"
)

// CloseName is the Job that closes the dm-crypt mappings of OSD id.
func CloseName(id int) string { return CloseApp + "-" + strconv.Itoa(id) }

// MakeName is the Job that prepares the new disk of OSD id.
func MakeName(id int) string { return MakeApp + "-" + strconv.Itoa(id) }

// ZapName is the Job that wipes what OSD id has left on a shared device.
func ZapName(id int) string { return ZapApp + "-" + strconv.Itoa(id) }

// WatchName is the Job that waits for a change of a node's disks.
func WatchName(node string) string { return naming.Fit(WatchApp+"-%s", node, 52) }

// NodeJob is a Job of castellan-node on one node.
type NodeJob struct {
	Name, App string
	// Node's hostname label.
	Host string
	// Command of castellan-node, and its request.
	Command string
	Request any
	// UUID of the OSD that it is about; "" where it is about none.
	UUID string
	User podspec.User
	// Writes: it makes an OSD, so it gets the bootstrap key. Reports: it stores a
	// report, so it gets a token.
	Writes, Reports bool
	// Retries of the pod, and how long all of it may take; 0 is for ever.
	Retries  int32
	Deadline time.Duration
}

// JobUUID is the OSD that a Job is about.
func JobUUID(j *batchv1.Job) string { return j.Labels[UUIDLabel] }

// NodeJobOf builds the Job. Like the prepare Job it sees the devices of the host.
func NodeJobOf(c podspec.Cluster, n NodeJob) (*batchv1.Job, error) {
	value, err := request.Encode(n.Request)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"app": n.App, "rook_cluster": c.Namespace}
	if n.UUID != "" {
		labels[UUIDLabel] = n.UUID
	}
	mounts := append(deviceMounts(),
		corev1.VolumeMount{Name: podspec.VolumeBin, MountPath: "/castellan", ReadOnly: true},
		corev1.VolumeMount{Name: "ceph-conf", MountPath: "/etc/ceph"},
		corev1.VolumeMount{Name: podspec.VolumeConfig, MountPath: "/etc/castellan/override", ReadOnly: true},
	)
	volumes := append(deviceVolumes(),
		corev1.Volume{Name: podspec.VolumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "ceph-conf", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		podspec.ConfigVolume(),
	)
	env := []corev1.EnvVar{{Name: request.Env, Value: value}}
	if n.Writes {
		env = append(env, podspec.MonEnv()...)
		mounts = append(mounts, corev1.VolumeMount{Name: "bootstrap", MountPath: "/var/lib/ceph/bootstrap-osd", ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: "bootstrap", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: BootstrapSecret, DefaultMode: ptr.To[int32](0o400), Items: []corev1.KeyToPath{{Key: "keyring", Path: "ceph.keyring"}},
		}}})
	}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: Account, PriorityClassName: n.User.PriorityClass,
		AutomountServiceAccountToken: ptr.To(n.Reports),
		NodeSelector:                 map[string]string{corev1.LabelHostname: n.Host},
		HostNetwork:                  c.HostNetwork,
		HostIPC:                      true, // cryptsetup and LVM lock by semaphores of the host
		EnableServiceLinks:           ptr.To(false),
		InitContainers:               []corev1.Container{podspec.CopyBin(c)},
		Containers: []corev1.Container{{
			Name: n.Command, Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{podspec.Bin, n.Command},
			Env: env, Resources: n.User.Resources, SecurityContext: privileged(), VolumeMounts: mounts,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
		Volumes: volumes,
	}
	if c.HostNetwork {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	// A node that takes no new pods still holds the disk.
	tolerations := append([]corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}, n.User.Placement.Tolerations...)
	podspec.Place(&pod, cephv1.Placement{Tolerations: tolerations})
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: c.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To(n.Retries),
			Template:     corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
	if n.Deadline > 0 {
		job.Spec.ActiveDeadlineSeconds = ptr.To(int64(n.Deadline.Seconds()))
	}
	return job, nil
}

// HostOf is the hostname label of the node that an OSD's Deployment is pinned to.
func HostOf(d *appsv1.Deployment) string {
	return d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]
}

// IDOf is the OSD of a Deployment by its label; an error for what is not the OSD's
// own Deployment, such as a copy made for maintenance.
func IDOf(d *appsv1.Deployment) (int, error) {
	id, err := strconv.Atoi(d.Labels[IDLabel])
	if err != nil || d.Name != Name(id) || d.Labels["app"] != App {
		return 0, fmt.Errorf("the Deployment %s is not the one of an OSD", d.Name)
	}
	return id, nil
}
