package layout

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
)

// kubelet gives a path below the kubelet's directory.
func (d driver) kubelet(path string) string {
	return strings.TrimSuffix(d.Spec.NodePlugin.KubeletDirPath, "/") + path
}

// stagingPath is below where the kubelet has CSI volumes staged.
func (d driver) stagingPath() string {
	return "--stagingpath=" + d.kubelet("/plugins/kubernetes.io/csi/")
}

func (d driver) updateStrategy() appsv1.DaemonSetUpdateStrategy {
	if s := d.Spec.NodePlugin.UpdateStrategy; s != nil {
		return *s
	}
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	}
}

// daemonSet is the node plugin.
func (d driver) daemonSet() *appsv1.DaemonSet {
	n, name := d.Spec.NodePlugin, d.nodeName()
	volumes, mounts := d.nodeVolumes()
	more := map[string]string{}
	if d.liveness() {
		more["contains"] = name + "-metrics"
		more[MetricsLabel] = d.Name
	}
	containers := []corev1.Container{d.nodePlugin(mounts), d.registrar()}
	if d.liveness() {
		containers = append(containers, d.livenessContainer(n.ImagePullPolicy, n.ContainerExtraArgs, n.Resources.Liveness, privileged(), "plugin-dir"))
	}
	containers = append(containers, d.rotator(n.ImagePullPolicy, n.ContainerExtraArgs, n.Resources.LogRotator, privileged())...)
	return &appsv1.DaemonSet{
		ObjectMeta: d.meta(name),
		Spec: appsv1.DaemonSetSpec{
			Selector:       selector(name),
			UpdateStrategy: d.updateStrategy(),
			Template: corev1.PodTemplateSpec{ObjectMeta: podMeta(name, n.PodCommonSpec, more), Spec: corev1.PodSpec{
				ServiceAccountName: d.nodeAccount(),
				PriorityClassName:  ptr.Deref(n.PriorityClassName, ""),
				HostNetwork:        true,
				// The rbd and nvme tools watch for processes of the host.
				HostPID:        d.is(csiv1.RBDDriver, csiv1.NVMeoFDriver),
				DNSPolicy:      corev1.DNSClusterFirstWithHostNet,
				Affinity:       n.Affinity,
				Tolerations:    n.Tolerations,
				InitContainers: d.copyBin(n.ImagePullPolicy),
				Containers:     containers,
				Volumes:        volumes,
			}},
		},
	}
}

func (d driver) nodeVolumes() ([]corev1.Volume, []corev1.VolumeMount) {
	plugin := d.kubelet("/plugins/" + d.Name)
	volumes := slices.Concat(hostVolumes(), []corev1.Volume{
		hostPath("host-run-mount", "/run/mount", ""), memory("keys-tmp-dir"),
		hostPath("plugin-dir", plugin, corev1.HostPathDirectoryOrCreate),
		hostPath("plugin-mount-dir", d.kubelet("/plugins"), corev1.HostPathDirectory),
		hostPath("pods-mount-dir", d.kubelet("/pods"), corev1.HostPathDirectory),
		hostPath("registration-dir", d.kubelet("/plugins_registry"), corev1.HostPathDirectory),
		clusterConfigVolume(),
	})
	mounts := []corev1.VolumeMount{
		mount("host-dev", "/dev"), mount("host-sys", "/sys"), mount("host-run-mount", "/run/mount"), readOnly("lib-modules", "/lib/modules"),
		mount("keys-tmp-dir", "/tmp/csi/keys"), mount("plugin-dir", "/csi"), mount("ceph-csi-config", "/etc/ceph-csi-config"),
		bidirectional("plugin-mount-dir", d.kubelet("/plugins")), bidirectional("pods-mount-dir", d.kubelet("/pods")),
	}
	if *d.Spec.NodePlugin.EnableSeLinuxHostMount {
		volumes, mounts = append(volumes, hostPath("etc-selinux", "/etc/selinux", "")), append(mounts, readOnly("etc-selinux", "/etc/selinux"))
	}
	kmsVolumes, kmsMounts := d.kms()
	volumes, mounts = append(volumes, kmsVolumes...), append(mounts, kmsMounts...)
	if d.kind == csiv1.CephFSDriver {
		volumes = append(volumes, hostPath("ceph-csi-mountinfo", plugin+"/mountinfo", corev1.HostPathDirectoryOrCreate))
		mounts = append(mounts, mount("ceph-csi-mountinfo", "/csi/mountinfo"))
	}
	if d.is(csiv1.RBDDriver, csiv1.NVMeoFDriver) {
		volumes, mounts = append(volumes, oidcToken()), append(mounts, readOnly("oidc-token", "/run/secrets/tokens"))
	}
	if d.rotates() {
		volumes, mounts = append(volumes, d.rotateVolumes(d.nodeName())...), append(mounts, mount("logs-dir", "/csi-logs"))
	}
	return withUser(volumes, mounts, d.Spec.NodePlugin.Volumes)
}

func (d driver) nodePlugin(mounts []corev1.VolumeMount) corev1.Container {
	n, name := d.Spec.NodePlugin, d.pluginName()
	list := []string{
		d.verbosity(), "--type=" + string(d.kind), "--nodeserver=true", "--nodeid=$(NODE_ID)", "--drivername=" + d.Name, d.fencing(),
		"--endpoint=" + csiSocket, "--pidlimit=-1", when(d.kernelClient(), "--forcecephkernelclient=true"),
		when(d.addons(), "--csi-addons-endpoint="+addonsSocket), when(d.is(csiv1.RBDDriver, csiv1.NVMeoFDriver), d.stagingPath()),
	}
	if d.kind == csiv1.CephFSDriver {
		kernel, fuse := clusterconfig.MountOptions(d.Spec.KernelMountOptions), clusterconfig.MountOptions(d.Spec.FuseMountOptions)
		list = append(list, when(kernel != "", "--kernelmountoptions="+kernel), when(fuse != "", "--fusemountoptions="+fuse))
	}
	if d.kind == csiv1.RBDDriver && n.Topology != nil {
		list = append(list, when(len(n.Topology.DomainLabels) > 0, "--domainlabels="+strings.Join(n.Topology.DomainLabels, ",")))
	}
	return corev1.Container{
		Name: name, Image: d.Images[ImagePlugin], ImagePullPolicy: n.ImagePullPolicy,
		Args:      args(name, n.ContainerExtraArgs, append(list, d.logFile(name)...)...),
		Env:       []corev1.EnvVar{fieldEnv("POD_IP", "status.podIP"), fieldEnv("NODE_ID", "spec.nodeName"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
		Resources: resources(n.Resources.Plugin),
		SecurityContext: &corev1.SecurityContext{
			Privileged: ptr.To(true), AllowPrivilegeEscalation: ptr.To(true),
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}, Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: mounts,
	}
}

func (d driver) registrar() corev1.Container {
	n := d.Spec.NodePlugin
	const name = "driver-registrar"
	return corev1.Container{
		Name: name, Image: d.Images[ImageRegistrar], ImagePullPolicy: n.ImagePullPolicy,
		Args: args(name, n.ContainerExtraArgs, d.verbosity(),
			"--kubelet-registration-path="+d.kubelet("/plugins/"+d.Name+"/csi.sock"), "--csi-address=/csi/csi.sock"),
		Resources: resources(n.Resources.Registrar), SecurityContext: privileged(),
		VolumeMounts: []corev1.VolumeMount{mount("plugin-dir", "/csi"), mount("registration-dir", "/registration")},
	}
}

// addonsDaemonSet runs the csi-addons sidecar on every node. It is apart from the
// node plugin since it does not need the host's network.
func (d driver) addonsDaemonSet() *appsv1.DaemonSet {
	n, name := d.Spec.NodePlugin, d.addonsName()
	volumes := []corev1.Volume{hostPath("plugin-dir", d.kubelet("/plugins/"+d.Name), corev1.HostPathDirectoryOrCreate)}
	mounts := []corev1.VolumeMount{mount("plugin-dir", "/csi")}
	if d.VolumeCondition {
		volumes = append(volumes, hostPath("plugin-mount-dir", d.kubelet("/plugins"), corev1.HostPathDirectory), hostPath("pods-mount-dir", d.kubelet("/pods"), corev1.HostPathDirectory))
		mounts = append(mounts, bidirectional("plugin-mount-dir", d.kubelet("/plugins")), bidirectional("pods-mount-dir", d.kubelet("/pods")))
	}
	if d.rotates() {
		volumes, mounts = append(volumes, d.rotateVolumes(name)...), append(mounts, mount("logs-dir", "/csi-logs"))
	}
	const container = "csi-addons"
	sidecar := corev1.Container{
		Name: container, Image: d.Images[ImageAddons], ImagePullPolicy: n.ImagePullPolicy,
		Args: args(container, n.ContainerExtraArgs, "--node-id=$(NODE_ID)", d.verbosity(), "--csi-addons-address="+addonsSocket,
			fmt.Sprintf("--controller-port=%d", addonsPortNode), "--pod=$(POD_NAME)", "--namespace=$(POD_NAMESPACE)", "--pod-uid=$(POD_UID)",
			d.stagingPath(), when(d.rotates(), "--log_file=csi-logs/csi-addons.log"), when(d.VolumeCondition, "--enable-volume-condition=true")),
		Env: addonsEnv(), Ports: []corev1.ContainerPort{{ContainerPort: addonsPortNode, Protocol: corev1.ProtocolTCP}},
		Resources: resources(n.Resources.Addons), SecurityContext: privileged(), VolumeMounts: mounts,
	}
	return &appsv1.DaemonSet{
		ObjectMeta: d.meta(name),
		Spec: appsv1.DaemonSetSpec{
			Selector:       selector(name),
			UpdateStrategy: d.updateStrategy(),
			Template: corev1.PodTemplateSpec{ObjectMeta: podMeta(name, n.PodCommonSpec, nil), Spec: corev1.PodSpec{
				ServiceAccountName: d.nodeAccount(),
				PriorityClassName:  ptr.Deref(n.PriorityClassName, ""),
				DNSPolicy:          corev1.DNSClusterFirstWithHostNet,
				Affinity:           n.Affinity,
				Tolerations:        n.Tolerations,
				InitContainers:     d.copyBin(n.ImagePullPolicy),
				Containers:         append([]corev1.Container{sidecar}, d.rotator(n.ImagePullPolicy, n.ContainerExtraArgs, n.Resources.LogRotator, privileged())...),
				Volumes:            volumes,
			}},
		},
	}
}
