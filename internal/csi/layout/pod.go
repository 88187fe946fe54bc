package layout

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
)

// Addresses of the sockets of a driver, within its pods.
const (
	csiSocket    = "unix:///csi/csi.sock"
	addonsSocket = "unix:///csi/csi-addons.sock"
)

// Ports of the csi-addons sidecars.
const (
	addonsPortController = 9070
	addonsPortCephFS     = 9080
	addonsPortNode       = 9071
	snapshotMetadataPort = 50051
)

func (d driver) verbosity() string { return "--v=" + strconv.Itoa(d.Spec.Log.Verbosity) }

// pluginName is the name of the driver's own container.
func (d driver) pluginName() string { return "csi-" + string(d.kind) + "plugin" }

func (d driver) kernelClient() bool {
	return d.kind == csiv1.CephFSDriver && d.Spec.CephFsClientType == csiv1.KernelCephFsClient
}

// livenessContainer serves metrics on whether the driver answers.
func (d driver) livenessContainer(pull corev1.PullPolicy, extra map[string][]string, r *corev1.ResourceRequirements, s *corev1.SecurityContext, socketDir string) corev1.Container {
	const name = "liveness-prometheus"
	return corev1.Container{
		Name: name, Image: d.Images[ImagePlugin], ImagePullPolicy: pull,
		Args: args(name, extra, "--type=liveness", "--endpoint="+csiSocket,
			"--metricsport="+strconv.Itoa(d.Spec.Liveness.MetricsPort), "--metricspath=/metrics", "--polltime=60s", "--timeout=3s"),
		Env:       []corev1.EnvVar{fieldEnv("POD_IP", "status.podIP")},
		Resources: resources(r), SecurityContext: s,
		VolumeMounts: []corev1.VolumeMount{mount(socketDir, "/csi")},
	}
}

// podMeta is the metadata of a pod: the user's labels, then ours.
func podMeta(app string, common csiv1.PodCommonSpec, more map[string]string) metav1.ObjectMeta {
	labels := map[string]string{}
	maps.Copy(labels, common.Labels)
	maps.Copy(labels, more)
	labels["app"] = app
	return metav1.ObjectMeta{Labels: labels, Annotations: maps.Clone(common.Annotations)}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// withUser adds the user's volumes and mounts: one whose name is taken replaces
// ours.
func withUser(volumes []corev1.Volume, mounts []corev1.VolumeMount, user []csiv1.VolumeSpec) ([]corev1.Volume, []corev1.VolumeMount) {
	for _, u := range user {
		if u.Volume.Name != "" {
			volumes = replace(volumes, u.Volume, func(v corev1.Volume) string { return v.Name })
		}
		if u.Mount.Name != "" {
			mounts = replace(mounts, u.Mount, func(m corev1.VolumeMount) string { return m.Name })
		}
	}
	return volumes, mounts
}

func replace[T any](list []T, item T, name func(T) string) []T {
	if i := slices.IndexFunc(list, func(have T) bool { return name(have) == name(item) }); i >= 0 {
		list[i] = item
		return list
	}
	return append(list, item)
}

// kms gives the volume and the mount of the key management configuration.
func (d driver) kms() ([]corev1.Volume, []corev1.VolumeMount) {
	if d.Spec.Encryption == nil {
		return nil, nil
	}
	v := configMap("ceph-csi-kms-config", d.Spec.Encryption.ConfigMapName.Name)
	v.ConfigMap.Items = []corev1.KeyToPath{{Key: "config.json", Path: "config.json"}}
	return []corev1.Volume{v}, []corev1.VolumeMount{readOnly("ceph-csi-kms-config", "/etc/ceph-csi-encryption-kms-config/")}
}

// oidcToken is a token with which the driver asks a key management system.
func oidcToken() corev1.Volume {
	return corev1.Volume{Name: "oidc-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Path: "oidc-token", Audience: "ceph-csi-kms", ExpirationSeconds: ptr.To[int64](3600),
		}}},
	}}}
}

// hostVolumes are the parts of the host that every driver works with.
func hostVolumes() []corev1.Volume {
	return []corev1.Volume{
		hostPath("host-dev", "/dev", ""), hostPath("host-sys", "/sys", ""), hostPath("lib-modules", "/lib/modules", ""),
	}
}

func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	h := &corev1.HostPathVolumeSource{Path: path}
	if kind != "" {
		h.Type = &kind
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: h}}
}

func configMap(name, object string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: object},
	}}}
}

func clusterConfigVolume() corev1.Volume {
	return configMap("ceph-csi-config", clusterconfig.ConfigMapName)
}

func memory(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}
}

func mount(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path}
}

func readOnly(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true}
}

func bidirectional(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path, MountPropagation: ptr.To(corev1.MountPropagationBidirectional)}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// privileged is the security context of containers that work on the host.
func privileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{Privileged: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

// confined is the security context of a container that needs nothing.
func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), ReadOnlyRootFilesystem: ptr.To(true),
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}
