// Package spec builds the Kubernetes objects of the daemons that serve a node and
// not the cluster: crash collector and exporter, the CronJob that deletes old crash
// reports, and what Prometheus needs to find the metrics.
//
// It is pure, and it must not decide on which nodes they run.
package spec

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// Names of objects and labels, part of the compatibility contract.
const (
	CrashApp       = "rook-ceph-crashcollector"
	CrashSecret    = "rook-ceph-crash-collector-keyring"
	Pruner         = "rook-ceph-crashcollector-pruner"
	ExporterApp    = "rook-ceph-exporter"
	ExporterSecret = "rook-ceph-exporter-keyring"
	// NodeLabel on Deployments and pods is the name of the node that they serve.
	NodeLabel = "node_name"
	// ExporterPort is the name of the exporter's port.
	ExporterPort = "ceph-exporter-http-metrics"
)

const (
	// NodeAnnotation on a Deployment is the whole name of its node, which a label may
	// be too short for.
	NodeAnnotation = "castellan.ceph.io/node"
	// IdleAnnotation on a Deployment says since when its node has no daemon of the
	// cluster, as RFC 3339.
	IdleAnnotation = "castellan.ceph.io/idle-since"
)

// maxName leaves room for what Kubernetes appends to the names of pods.
const maxName = 235

// CrashUser posts crash reports.
func CrashUser() keyring.User {
	return keyring.User{Entity: "client.crash", Secret: CrashSecret, Caps: auth.Caps{"mon": "allow profile crash", "mgr": "allow rw"}}
}

// ExporterUser reads what the exporter serves.
func ExporterUser() keyring.User {
	return keyring.User{Entity: "client.ceph-exporter", Secret: ExporterSecret, Caps: auth.Caps{
		"mon": "allow profile ceph-exporter", "mgr": "allow r", "osd": "allow r", "mds": "allow r",
	}}
}

// CrashName is the name of a node's crash collector.
func CrashName(node string) string { return naming.Fit(CrashApp+"-%s", node, maxName) }

// ExporterName is the name of a node's exporter.
func ExporterName(node string) string { return naming.Fit(ExporterApp+"-%s", node, maxName) }

// Place is a node to serve.
type Place struct {
	// Node is its name, Host its label kubernetes.io/hostname.
	Node, Host string
	// Tolerations of the Ceph pods on the node: where they may run, so may what
	// serves them.
	Tolerations []corev1.Toleration
	// IdleSince is set when no daemon of the cluster is on the node any more.
	IdleSince string
}

// Exporter are the settings of exporters.
type Exporter struct {
	Port                     int32
	PrioLimit, PeriodSeconds int64
	HostNetwork              bool
}

// ExporterOf reads the spec.
func ExporterOf(m *cephv1.MonitoringSpec, hostNetwork bool) Exporter {
	e := Exporter{Port: m.EffectiveExporterPort(), PrioLimit: 5, PeriodSeconds: 5, HostNetwork: hostNetwork}
	if x := m.Exporter; x != nil {
		e.PrioLimit = x.PerfCountersPrioLimit
		if x.StatsPeriodSeconds > 0 {
			e.PeriodSeconds = x.StatsPeriodSeconds
		}
		if x.HostNetwork != nil {
			e.HostNetwork = *x.HostNetwork
		}
	}
	return e
}

const (
	crashKeyDir    = "/etc/ceph/crash-collector-keyring-store"
	exporterKeyDir = "/etc/ceph/exporter-keyring-store"
)

// CrashCollector is the Deployment of a node's crash collector. castellan-node
// watches the directory, and starts Ceph's own tool only when there is a dump.
func CrashCollector(c podspec.Cluster, p Place, keyVersion string, u podspec.User) *appsv1.Deployment {
	d := podspec.Daemon{Type: "crashcollector", ID: "crash", App: CrashApp, Name: CrashName(p.Node), Key: cephv1.KeyCrashCollector, KeyringVersion: keyVersion, Stateless: true}
	pod := corev1.PodSpec{
		InitContainers: []corev1.Container{podspec.CopyBin(c)},
		Containers: []corev1.Container{{
			Name: "ceph-crash", Image: c.CephImage, ImagePullPolicy: c.PullPolicy,
			Command: []string{podspec.Bin}, Args: []string{"collect-crashes", "/var/lib/ceph/crash"},
			Env: env(c, "-m $(ROOK_CEPH_MON_HOST) -k "+crashKeyDir+"/keyring"), Resources: u.Resources, SecurityContext: confined(c),
			VolumeMounts: []corev1.VolumeMount{
				{Name: podspec.VolumeConfig, MountPath: "/etc/ceph", ReadOnly: true},
				{Name: podspec.VolumeBin, MountPath: "/castellan", ReadOnly: true},
				{Name: podspec.VolumeCrash, MountPath: "/var/lib/ceph/crash"},
				{Name: podspec.VolumeKeyring, MountPath: crashKeyDir, ReadOnly: true},
			},
		}},
		Volumes: []corev1.Volume{podspec.ConfigVolume(), binVolume(), hostVolume(podspec.VolumeCrash, c.DataDir+"/"+c.Namespace+"/crash"), podspec.KeyringVolume(CrashSecret)},
	}
	return deployment(c, d, p, pod, u)
}

// CephExporter is the Deployment of a node's exporter.
func CephExporter(c podspec.Cluster, e Exporter, p Place, keyVersion string, u podspec.User) *appsv1.Deployment {
	d := podspec.Daemon{Type: "exporter", ID: "exporter", App: ExporterApp, Name: ExporterName(p.Node), Key: cephv1.KeyCephExporter, KeyringVersion: keyVersion, Stateless: true}
	c.HostNetwork = e.HostNetwork
	args := []string{
		"--sock-dir", "/run/ceph", "--port", strconv.Itoa(int(e.Port)),
		"--prio-limit", strconv.FormatInt(e.PrioLimit, 10), "--stats-period", strconv.FormatInt(e.PeriodSeconds, 10),
	}
	if c.IPv6 || c.DualStack {
		args = append(args, "--addrs", "::")
	}
	pod := corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{
			Name: "ceph-exporter", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{"ceph-exporter"}, Args: args,
			Env:   env(c, "-m $(ROOK_CEPH_MON_HOST) -n "+ExporterUser().Entity+" -k "+exporterKeyDir+"/keyring"),
			Ports: []corev1.ContainerPort{{Name: "http-metrics", ContainerPort: e.Port, Protocol: corev1.ProtocolTCP}}, Resources: u.Resources, SecurityContext: confined(c),
			VolumeMounts: []corev1.VolumeMount{
				{Name: podspec.VolumeConfig, MountPath: "/etc/ceph", ReadOnly: true},
				// Connecting to a socket is writing to it, which a read-only mount allows; only
				// the directory is kept.
				{Name: podspec.VolumeSockets, MountPath: "/run/ceph", ReadOnly: true},
				{Name: podspec.VolumeKeyring, MountPath: exporterKeyDir, ReadOnly: true},
			},
		}},
		Volumes: []corev1.Volume{podspec.ConfigVolume(), hostVolume(podspec.VolumeSockets, c.DataDir+"/exporter"), podspec.KeyringVolume(ExporterSecret)},
	}
	return deployment(c, d, p, pod, u)
}

// deployment puts a node daemon around its pod.
func deployment(c podspec.Cluster, d podspec.Daemon, p Place, pod corev1.PodSpec, u podspec.User) *appsv1.Deployment {
	c.LogCollector = nil // they write no log files
	pod.NodeSelector = map[string]string{corev1.LabelHostname: p.Host}
	// Where it runs is given; of the user's placement only tolerations are of use.
	pod.Tolerations = join(p.Tolerations, u.Placement.Tolerations)
	node := naming.LabelValue(p.Node)
	d.Labels = map[string]string{NodeLabel: node, corev1.LabelHostname: p.Host}
	dep := podspec.Deployment(c, d, pod, u)
	dep.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.App, "rook_cluster": c.Namespace, NodeLabel: node}}
	if dep.Annotations == nil {
		dep.Annotations = map[string]string{}
	}
	dep.Annotations[NodeAnnotation] = p.Node
	if p.IdleSince != "" {
		dep.Annotations[IdleAnnotation] = p.IdleSince
	}
	return dep
}

// confined runs as Ceph's user, whose the directories are, and can do nothing else.
func confined(c podspec.Cluster) *corev1.SecurityContext {
	s := podspec.Daemonic(c)
	if s.Privileged == nil || !*s.Privileged {
		s.ReadOnlyRootFilesystem = ptr.To(true)
	}
	return s
}

func env(c podspec.Cluster, args string) []corev1.EnvVar {
	return append([]corev1.EnvVar{
		{Name: "CONTAINER_IMAGE", Value: c.CephImage},
		podspec.FieldEnv("POD_NAME", "metadata.name"),
		podspec.FieldEnv("NODE_NAME", "spec.nodeName"),
	}, append(podspec.MonEnv(), corev1.EnvVar{Name: "CEPH_ARGS", Value: args})...)
}

func binVolume() corev1.Volume {
	return corev1.Volume{Name: podspec.VolumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func hostVolume(name, path string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}}
}

// join adds tolerations that are not there yet.
func join(a, b []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for _, list := range [][]corev1.Toleration{a, b} {
		for _, t := range list {
			if !has(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

func has(list []corev1.Toleration, t corev1.Toleration) bool {
	for _, x := range list {
		if x.MatchToleration(&t) {
			return true
		}
	}
	return false
}

// CrashPruner deletes crash reports from Ceph that are older than so many days.
func CrashPruner(c podspec.Cluster, days uint, u podspec.User) *batchv1.CronJob {
	labels := map[string]string{"app": CrashApp, "rook_cluster": c.Namespace}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "rook-ceph-default", AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks: ptr.To(false), PriorityClassName: u.PriorityClass, HostNetwork: c.HostNetwork,
		Containers: []corev1.Container{{
			Name: "ceph-crash-pruner", Image: c.CephImage, ImagePullPolicy: c.PullPolicy,
			Command: []string{"ceph"}, Args: []string{"-n", CrashUser().Entity, "crash", "prune", strconv.FormatUint(uint64(days), 10)},
			Env: env(c, "-m $(ROOK_CEPH_MON_HOST) -k "+crashKeyDir+"/keyring"), Resources: u.Resources, SecurityContext: confined(c),
			VolumeMounts: []corev1.VolumeMount{
				{Name: podspec.VolumeConfig, MountPath: "/etc/ceph", ReadOnly: true},
				{Name: podspec.VolumeKeyring, MountPath: crashKeyDir, ReadOnly: true},
			},
		}},
		Volumes: []corev1.Volume{podspec.ConfigVolume(), podspec.KeyringVolume(CrashSecret)},
	}
	if c.HostNetwork {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	podspec.Place(&pod, u.Placement)
	return &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		ObjectMeta: metav1.ObjectMeta{Name: Pruner, Namespace: c.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 0 * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent, StartingDeadlineSeconds: ptr.To[int64](60),
			SuccessfulJobsHistoryLimit: ptr.To[int32](1), FailedJobsHistoryLimit: ptr.To[int32](1),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
				BackoffLimit: ptr.To[int32](2), ActiveDeadlineSeconds: ptr.To[int64](600),
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
			}},
		},
	}
}

// ExporterService is how Prometheus reaches the exporters.
func ExporterService(c podspec.Cluster, e Exporter) *corev1.Service {
	labels := map[string]string{"app": ExporterApp, "rook_cluster": c.Namespace}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: ExporterApp, Namespace: c.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: corev1.ServiceSpec{
			Selector: labels,
			Ports:    []corev1.ServicePort{{Name: ExporterPort, Port: e.Port, TargetPort: intstr.FromInt32(e.Port), Protocol: corev1.ProtocolTCP}},
		},
	}
}
