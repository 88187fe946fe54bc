// Package spec builds the Kubernetes objects of OSDs on host devices: the Job
// that prepares a node's disks and the Deployment of one OSD.
//
// It is pure, and it must not decide which OSDs run: internal/osd/plan does.
package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// Names of objects and labels, part of the compatibility contract.
const (
	App        = "rook-ceph-osd"
	PrepareApp = "rook-ceph-osd-prepare"
	// IDLabel on Deployments and pods is the OSD's number.
	IDLabel = "ceph-osd-id"
	// Account of OSD and prepare pods.
	Account = "rook-ceph-osd"
	// BootstrapSecret holds the key that prepares OSDs, and nothing more.
	BootstrapSecret = "rook-ceph-bootstrap-osd-keyring"
)

// Notes on an OSD's Deployment that cannot be read from anywhere else.
const (
	// RecordAnnotation is the node's record of the OSD's disks, as JSON.
	RecordAnnotation = "castellan.ceph.io/osd-record"
	// LocationAnnotation is the CRUSH location that the OSD was made with.
	LocationAnnotation = "castellan.ceph.io/crush-location"
	// WasDownAnnotation marks an OSD that was down when it was updated, until it is up.
	WasDownAnnotation = "castellan.ceph.io/osd-was-down"
	// RequestLabel on a status ConfigMap says which request it answers.
	RequestLabel = "castellan.ceph.io/request"
)

// ReasonDeviceMissing of the condition ProvisioningReady: everything is made that can be, and
// devices that spec.storage names are not there. It keeps the cluster from nothing else.
const ReasonDeviceMissing = "DeviceMissing"

// Bootstrap is the user that prepares OSDs. Ceph makes it with the cluster.
func Bootstrap() keyring.User {
	return keyring.User{Entity: "client.bootstrap-osd", Secret: BootstrapSecret, Caps: auth.Caps{"mon": "allow profile bootstrap-osd"}}
}

// PrepareDeadline is how long a prepare Job may take. Making an OSD takes seconds, and a
// node with sixty slow disks some minutes; a Job that hangs in the kernel never ends.
const PrepareDeadline = time.Hour

// Name of OSD id's Deployment.
func Name(id int) string { return App + "-" + strconv.Itoa(id) }

// StatusMap is the name of a node's status ConfigMap.
func StatusMap(node string) string { return naming.Fit("rook-ceph-osd-%s-status", node, 253) }

// JobName is the name of a node's prepare Job; its pods' names are longer and
// must fit too.
func JobName(node string) string { return naming.Fit(PrepareApp+"-%s", node, 52) }

// RequestHash tells two requests apart: with another one, the node is asked again.
func RequestHash(req request.Provision, reason string) string {
	req.MonHost, req.Labels, req.Reserved = "", nil, nil // these change without a reason to look at disks
	b, err := json.Marshal(req)
	if err != nil {
		// A request is made of plain values.
		panic("encoding a request: " + err.Error())
	}
	sum := sha256.Sum256(append(b, reason...))
	return hex.EncodeToString(sum[:8])
}

// Prepare is one node to prepare.
type Prepare struct {
	Node, Host string
	Request    request.Provision
	User       podspec.User
}

// Job prepares a node's disks. It sees all of the node's devices; its keys are
// the bootstrap key, and the token with which it stores its report.
func Job(c podspec.Cluster, p Prepare) (*batchv1.Job, error) {
	value, err := request.Encode(p.Request)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"app": PrepareApp, "rook_cluster": c.Namespace, RequestLabel: p.Request.Labels[RequestLabel]}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: Account, PriorityClassName: p.User.PriorityClass,
		NodeSelector:   map[string]string{corev1.LabelHostname: p.Host},
		HostNetwork:    c.HostNetwork,
		HostIPC:        true, // cryptsetup and LVM lock by semaphores of the host
		InitContainers: []corev1.Container{podspec.CopyBin(c)},
		Containers: []corev1.Container{{
			Name: "provision", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{podspec.Bin, "provision"},
			Env:             append([]corev1.EnvVar{{Name: request.Env, Value: value}}, podspec.MonEnv()...),
			Resources:       p.User.Resources,
			SecurityContext: privileged(),
			VolumeMounts: append(deviceMounts(),
				corev1.VolumeMount{Name: podspec.VolumeBin, MountPath: "/castellan", ReadOnly: true},
				corev1.VolumeMount{Name: "ceph-conf", MountPath: "/etc/ceph"},
				corev1.VolumeMount{Name: podspec.VolumeConfig, MountPath: "/etc/castellan/override", ReadOnly: true},
				corev1.VolumeMount{Name: "bootstrap", MountPath: "/var/lib/ceph/bootstrap-osd", ReadOnly: true},
				corev1.VolumeMount{Name: "osd-dirs", MountPath: "/var/lib/ceph/osd"},
			),
		}},
		Volumes: append(deviceVolumes(),
			corev1.Volume{Name: podspec.VolumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			corev1.Volume{Name: "ceph-conf", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			podspec.ConfigVolume(),
			// New OSDs have their keys there for a moment.
			corev1.Volume{Name: "osd-dirs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			corev1.Volume{Name: "bootstrap", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: BootstrapSecret, DefaultMode: ptr.To[int32](0o400), Items: []corev1.KeyToPath{{Key: "keyring", Path: "ceph.keyring"}},
			}}},
		),
	}
	if c.HostNetwork {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	podspec.Place(&pod, cephv1.Placement{Tolerations: p.User.Placement.Tolerations})
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: JobName(p.Node), Namespace: c.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](2), ActiveDeadlineSeconds: ptr.To(int64(PrepareDeadline.Seconds())),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, nil
}

// privileged: the device cgroup lets nothing less open the host's disks.
func privileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{Privileged: ptr.To(true), RunAsUser: ptr.To[int64](0)}
}

func deviceMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: "devices", MountPath: "/dev"},
		{Name: "run-udev", MountPath: "/run/udev", ReadOnly: true},
		{Name: "run-lock", MountPath: "/run/lock"},
	}
}

func deviceVolumes() []corev1.Volume {
	host := func(name, path string, t *corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: t}}}
	}
	return []corev1.Volume{
		host("devices", "/dev", nil), host("run-udev", "/run/udev", ptr.To(corev1.HostPathDirectoryOrCreate)),
		{Name: "run-lock", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
}

// OSD is one OSD to build.
type OSD struct {
	Record prepare.Result
	// Node's hostname label, to which the OSD is pinned.
	Host string
	// Location in CRUSH, "root=default host=node1 zone=a".
	Location                       string
	DeviceClass                    string
	InitialWeight, PrimaryAffinity string
	Startup, Liveness              *cephv1.ProbeSpec
}

// Daemon describes an OSD for podspec.
func Daemon(c podspec.Cluster, o OSD) podspec.Daemon {
	id := strconv.Itoa(o.Record.ID)
	return podspec.Daemon{
		Type: "osd", ID: id, App: App, Name: Name(o.Record.ID), Key: cephv1.KeyOSD,
		Data: &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: fmt.Sprintf("%s/%s/%s_%s", c.DataDir, c.Namespace, c.FSID, o.Record.UUID), Type: ptr.To(corev1.HostPathDirectoryOrCreate),
		}},
	}
}

// Deployment of an OSD.
func Deployment(c podspec.Cluster, o OSD, u podspec.User) (*appsv1.Deployment, error) {
	d := Daemon(c, o)
	value, err := request.Encode(request.Activate{ID: o.Record.ID, UUID: o.Record.UUID, FSID: c.FSID, Mode: o.Record.Mode})
	if err != nil {
		return nil, err
	}
	record, err := json.Marshal(o.Record)
	if err != nil {
		return nil, fmt.Errorf("encoding the record of osd.%d: %w", o.Record.ID, err)
	}
	mounts := append(podspec.Mounts(d), deviceMounts()...)
	env := append(podspec.Env(c), podspec.FieldEnv("ROOK_POD_IP", "status.podIP"))
	activate := corev1.Container{
		// It also gives the daemons' directories to Ceph's user: a container of its own for
		// that takes longer to start than to run.
		Name: "activate", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: append([]string{podspec.Bin, "activate"}, podspec.SharedDirs()...),
		Env:          append([]corev1.EnvVar{{Name: request.Env, Value: value}}, env...),
		VolumeMounts: mounts, SecurityContext: privileged(),
	}
	pod := corev1.PodSpec{
		ServiceAccountName: Account, AutomountServiceAccountToken: ptr.To(false), HostIPC: o.Record.Mode == "lvm",
		NodeSelector:   map[string]string{corev1.LabelHostname: o.Host},
		InitContainers: []corev1.Container{podspec.CopyBin(c), activate},
		Containers:     []corev1.Container{container(c, d, o, env, mounts, u)},
		Volumes:        append(podspec.Volumes(c, d), deviceVolumes()...),
	}
	podspec.Place(&pod, cephv1.Placement{Tolerations: u.Placement.Tolerations})
	dep := podspec.Deployment(c, d, pod, u)
	labels(dep, o)
	if dep.Annotations == nil {
		dep.Annotations = map[string]string{}
	}
	dep.Annotations[RecordAnnotation], dep.Annotations[LocationAnnotation] = string(record), o.Location
	return dep, nil
}

// topology are the labels that tell an OSD's place in CRUSH, one for each level. A name
// that cannot be a label's value has none.
func topology(location string) map[string]string {
	out := map[string]string{}
	for _, level := range strings.Fields(location) {
		name, value, ok := strings.Cut(level, "=")
		if ok && len(validation.IsValidLabelValue(value)) == 0 {
			out["topology-location-"+name] = value
		}
	}
	return out
}

// labels adds what users and the plugin select OSDs by.
func labels(dep *appsv1.Deployment, o OSD) {
	id := strconv.Itoa(o.Record.ID)
	add := map[string]string{
		IDLabel: id, "osd": id, "failure-domain": o.Host, "portable": "false", "osd-store": "bluestore",
		"encrypted": strconv.FormatBool(o.Record.Encrypted),
	}
	if o.DeviceClass != "" {
		add["device-class"] = o.DeviceClass
	}
	maps.Copy(add, topology(o.Location))
	for k, v := range add {
		dep.Labels[k] = v
		dep.Spec.Template.Labels[k] = v
	}
	dep.Spec.Selector.MatchLabels = map[string]string{"app": App, "rook_cluster": dep.Namespace, IDLabel: id}
}

func container(c podspec.Cluster, d podspec.Daemon, o OSD, env []corev1.EnvVar, mounts []corev1.VolumeMount, u podspec.User) corev1.Container {
	args := []string{"--foreground", "--id", d.ID, "--fsid", c.FSID, "--setuser", "ceph", "--setgroup", "ceph", "--crush-location=" + o.Location}
	if o.InitialWeight != "" {
		args = append(args, "--osd-crush-initial-weight="+o.InitialWeight)
	}
	args = append(args,
		"--mon-host=$(ROOK_CEPH_MON_HOST)",
		"--default-log-to-stderr=true", "--default-err-to-stderr=true", "--default-mon-cluster-log-to-stderr=true",
		"--default-log-stderr-prefix=debug ", "--default-log-to-file=false", "--default-mon-cluster-log-to-file=false",
	)
	if !c.HostNetwork {
		args = append(args, "--ms-learn-addr-from-peer=false", "--public-addr=$(ROOK_POD_IP)")
	}
	args = append(args, podspec.BindFlags(c)...)
	startup, liveness := podspec.Probes(d, 7200)
	return corev1.Container{
		Name: "osd", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{"ceph-osd"}, Args: args,
		Env: append(env,
			corev1.EnvVar{Name: "ROOK_OSD_UUID", Value: o.Record.UUID}, corev1.EnvVar{Name: "ROOK_OSD_ID", Value: d.ID},
			corev1.EnvVar{Name: "ROOK_CV_MODE", Value: o.Record.Mode},
		),
		VolumeMounts: mounts, WorkingDir: "/var/log/ceph", Resources: u.Resources, SecurityContext: privileged(),
		StartupProbe: podspec.Override(startup, o.Startup), LivenessProbe: podspec.Override(liveness, o.Liveness),
	}
}
