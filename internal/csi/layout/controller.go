package layout

import (
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// tlsVolume is the name of the user's volume with the certificate of the snapshot
// metadata service; the service runs where there is one.
const tlsVolume = "tls-key"

// controllerLiveness: on the host's network the node plugin of the same node has
// the metrics port already.
func (d driver) controllerLiveness() bool {
	return d.liveness() && !*d.Spec.ControllerPlugin.HostNetwork
}

// snapshotMetadata tells whether the snapshot metadata service runs, and gives
// the mount of its certificate.
func (d driver) snapshotMetadata() (corev1.VolumeMount, bool) {
	if d.kind != csiv1.RBDDriver {
		return corev1.VolumeMount{}, false
	}
	for _, v := range d.Spec.ControllerPlugin.Volumes {
		if v.Volume.Name == tlsVolume {
			m := v.Mount
			if m.Name == "" {
				m = mount(tlsVolume, "/tmp/certificates")
			}
			return m, true
		}
	}
	return corev1.VolumeMount{}, false
}

// deployment is the controller plugin.
func (d driver) deployment() *appsv1.Deployment {
	c, name := d.Spec.ControllerPlugin, d.controllerName()
	volumes, mounts := d.controllerVolumes()
	more := map[string]string{}
	if d.controllerLiveness() {
		more[MetricsLabel] = d.Name
	}
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if c.DeploymentStrategy != nil {
		strategy = *c.DeploymentStrategy
	}
	pod := corev1.PodSpec{
		ServiceAccountName: d.controllerAccount(),
		PriorityClassName:  ptr.Deref(c.PriorityClassName, ""),
		HostNetwork:        *c.HostNetwork,
		DNSPolicy:          corev1.DNSClusterFirst,
		Affinity:           d.controllerAffinity(),
		Tolerations:        c.Tolerations,
		InitContainers:     d.copyBin(c.ImagePullPolicy),
		Containers:         d.controllerContainers(mounts),
		Volumes:            volumes,
	}
	if *c.HostNetwork {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	return &appsv1.Deployment{
		ObjectMeta: d.meta(name),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(d.replicas()),
			Strategy: strategy,
			Selector: selector(name),
			Template: corev1.PodTemplateSpec{ObjectMeta: podMeta(name, c.PodCommonSpec, more), Spec: pod},
		},
	}
}

// replicas: two, so that one can fail, but not two on the only node.
func (d driver) replicas() int32 {
	if r := d.Spec.ControllerPlugin.Replicas; r != nil {
		return *r
	}
	if d.Nodes == 1 {
		return 1
	}
	return 2
}

// controllerAffinity keeps the replicas on different nodes, unless the user has
// an anti-affinity of their own.
func (d driver) controllerAffinity() *corev1.Affinity {
	a := d.Spec.ControllerPlugin.Affinity.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: selector(d.controllerName()), TopologyKey: corev1.LabelHostname,
		}}}
	}
	return a
}

// controllerVolumes gives the volumes of the pod and the mounts of the driver's
// own container.
func (d driver) controllerVolumes() ([]corev1.Volume, []corev1.VolumeMount) {
	volumes := slices.Concat([]corev1.Volume{memory("socket-dir")}, hostVolumes(), []corev1.Volume{memory("keys-tmp-dir"), clusterConfigVolume()})
	mounts := []corev1.VolumeMount{
		mount("socket-dir", "/csi"), mount("host-dev", "/dev"), mount("host-sys", "/sys"), readOnly("lib-modules", "/lib/modules"),
		mount("keys-tmp-dir", "/tmp/csi/keys"), mount("ceph-csi-config", "/etc/ceph-csi-config"),
	}
	kmsVolumes, kmsMounts := d.kms()
	volumes, mounts = append(volumes, kmsVolumes...), append(mounts, kmsMounts...)
	if d.kind == csiv1.RBDDriver {
		volumes, mounts = append(volumes, oidcToken()), append(mounts, readOnly("oidc-token", "/run/secrets/tokens"))
	}
	if d.rotates() {
		volumes, mounts = append(volumes, d.rotateVolumes(d.controllerName())...), append(mounts, mount("logs-dir", "/csi-logs"))
	}
	return withUser(volumes, mounts, d.Spec.ControllerPlugin.Volumes)
}

// fileWriter is the security context of controller containers that write log
// files to the host: some hosts allow that to privileged containers only.
func (d driver) fileWriter() *corev1.SecurityContext {
	p := d.Spec.ControllerPlugin.Privileged
	if p == nil || !d.rotates() {
		return nil
	}
	s := privileged()
	s.Privileged = ptr.To(*p)
	return s
}

func (d driver) controllerContainers(mounts []corev1.VolumeMount) []corev1.Container {
	c := d.Spec.ControllerPlugin
	list := []corev1.Container{d.controllerPlugin(mounts), d.provisioner(), d.resizer(), d.attacher()}
	if d.Spec.SnapshotPolicy != csiv1.NoneSnapshotPolicy {
		list = append(list, d.snapshotter())
		if d.kind == csiv1.CephFSDriver && d.Images[ImageExtSnapshotter] != "" {
			list = append(list, d.extSnapshotter())
		}
	}
	if d.addons() {
		list = append(list, d.controllerAddons())
	}
	if *d.Spec.GenerateOMapInfo && d.is(csiv1.RBDDriver, csiv1.CephFSDriver) {
		list = append(list, d.omapGenerator())
	}
	if d.controllerLiveness() {
		list = append(list, d.livenessContainer(c.ImagePullPolicy, c.ContainerExtraArgs, c.Resources.Liveness, nil, "socket-dir"))
	}
	list = append(list, d.rotator(c.ImagePullPolicy, c.ContainerExtraArgs, c.Resources.LogRotator, d.fileWriter())...)
	if m, ok := d.snapshotMetadata(); ok {
		list = append(list, d.snapshotMetadataContainer(m))
	}
	return list
}

func (d driver) controllerPlugin(mounts []corev1.VolumeMount) corev1.Container {
	c, name := d.Spec.ControllerPlugin, d.pluginName()
	clusterName := ptr.Deref(d.Spec.ClusterName, "")
	list := []string{
		"--type=" + string(d.kind), d.verbosity(), "--endpoint=" + csiSocket, "--nodeid=$(NODE_ID)", "--controllerserver=true",
		"--drivername=" + d.Name, "--pidlimit=-1", d.fencing(), when(clusterName != "", "--clustername="+clusterName),
		when(d.kernelClient(), "--forcecephkernelclient=true"), when(d.addons(), "--csi-addons-endpoint="+addonsSocket),
	}
	return corev1.Container{
		Name: name, Image: d.Images[ImagePlugin], ImagePullPolicy: c.ImagePullPolicy,
		Args:      args(name, c.ContainerExtraArgs, append(list, d.logFile(name)...)...),
		Env:       []corev1.EnvVar{fieldEnv("POD_IP", "status.podIP"), fieldEnv("NODE_ID", "spec.nodeName"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
		Resources: resources(c.Resources.Plugin), SecurityContext: d.fileWriter(), VolumeMounts: mounts,
	}
}

// fencing is said only where it is wanted: false is the drivers' own default, and
// driver images that do not know the option would not start with it.
func (d driver) fencing() string { return when(*d.Spec.EnableFencing, "--enable-fencing=true") }

func (d driver) election() []string {
	e := d.Spec.LeaderElection
	return []string{
		"--leader-election-namespace=" + d.Namespace,
		fmt.Sprintf("--leader-election-lease-duration=%ds", e.LeaseDuration),
		fmt.Sprintf("--leader-election-renew-deadline=%ds", e.RenewDeadline),
		fmt.Sprintf("--leader-election-retry-period=%ds", e.RetryPeriod),
	}
}

func (d driver) timeout() string { return "--timeout=" + strconv.Itoa(d.Spec.GRpcTimeout) + "s" }

// sidecar is a container that talks to the driver through its socket.
func (d driver) sidecar(name, image string, r *corev1.ResourceRequirements, list ...string) corev1.Container {
	c := d.Spec.ControllerPlugin
	return corev1.Container{
		Name: name, Image: d.Images[image], ImagePullPolicy: c.ImagePullPolicy,
		Args: args(name, c.ContainerExtraArgs, list...), Resources: resources(r),
		VolumeMounts: []corev1.VolumeMount{mount("socket-dir", "/csi")},
	}
}

// elected are the arguments that every elected sidecar begins with.
func (d driver) elected() []string {
	return append(d.election(), "--leader-election=true", d.verbosity(), "--csi-address="+csiSocket, d.timeout())
}

func (d driver) provisioner() corev1.Container {
	topology := d.kind == csiv1.RBDDriver && d.Spec.NodePlugin.Topology != nil
	return d.sidecar("csi-provisioner", ImageProvisioner, d.Spec.ControllerPlugin.Resources.Provisioner, append(d.elected(),
		"--retry-interval-start=500ms", "--default-fstype=ext4", "--prevent-volume-mode-conversion=true",
		fmt.Sprintf("--feature-gates=Topology=%t", topology), when(d.kind != csiv1.NFSDriver, "--extra-create-metadata=true"))...)
}

func (d driver) resizer() corev1.Container {
	return d.sidecar("csi-resizer", ImageResizer, d.Spec.ControllerPlugin.Resources.Resizer, append(d.elected(),
		"--handle-volume-inuse-error=false", "--feature-gates=RecoverVolumeExpansionFailure=true")...)
}

func (d driver) attacher() corev1.Container {
	return d.sidecar("csi-attacher", ImageAttacher, d.Spec.ControllerPlugin.Resources.Attacher, append(d.elected(),
		when(d.is(csiv1.RBDDriver, csiv1.NVMeoFDriver), "--default-fstype=ext4"))...)
}

func (d driver) snapshotter() corev1.Container {
	return d.sidecar("csi-snapshotter", ImageSnapshotter, d.Spec.ControllerPlugin.Resources.Snapshotter, append(d.elected(),
		when(d.kind != csiv1.NFSDriver, "--extra-create-metadata=true"),
		when(d.Spec.SnapshotPolicy == csiv1.VolumeGroupSnapshotPolicy, "--feature-gates=CSIVolumeGroupSnapshot=true"))...)
}

// extSnapshotter serves the group snapshots of another API group, for
// distributions that have one.
func (d driver) extSnapshotter() corev1.Container {
	c := d.sidecar("ex-csi-snapshotter", ImageExtSnapshotter, d.Spec.ControllerPlugin.Resources.Snapshotter, append(d.elected(),
		"--extra-create-metadata=true", "--feature-gates=CSIVolumeGroupSnapshot=true")...)
	c.SecurityContext = privileged()
	return c
}

func (d driver) addonsPort() int32 {
	if d.kind == csiv1.CephFSDriver {
		return addonsPortCephFS
	}
	return addonsPortController
}

func addonsEnv() []corev1.EnvVar {
	return []corev1.EnvVar{fieldEnv("NODE_ID", "spec.nodeName"), fieldEnv("POD_UID", "metadata.uid"), fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")}
}

func (d driver) controllerAddons() corev1.Container {
	c := d.sidecar("csi-addons", ImageAddons, d.Spec.ControllerPlugin.Resources.Addons, append(d.election(),
		d.verbosity(), "--node-id=$(NODE_ID)", "--pod=$(POD_NAME)", "--pod-uid=$(POD_UID)", "--csi-addons-address="+addonsSocket,
		fmt.Sprintf("--controller-port=%d", d.addonsPort()), "--namespace=$(POD_NAMESPACE)",
		when(d.rotates(), "--log_file=csi-logs/csi-addons.log"))...)
	c.Env = addonsEnv()
	c.Ports = []corev1.ContainerPort{{ContainerPort: d.addonsPort(), Protocol: corev1.ProtocolTCP}}
	c.SecurityContext = d.fileWriter()
	if d.rotates() {
		c.VolumeMounts = append(c.VolumeMounts, mount("logs-dir", "/csi-logs"))
	}
	return c
}

func (d driver) omapGenerator() corev1.Container {
	clusterName := ptr.Deref(d.Spec.ClusterName, "")
	c := d.sidecar("csi-omap-generator", ImagePlugin, d.Spec.ControllerPlugin.Resources.OMapGenerator,
		d.verbosity(), "--type=controller", "--drivernamespace=$(DRIVER_NAMESPACE)", "--drivername="+d.Name,
		when(clusterName != "", "--clustername="+clusterName))
	c.Env = []corev1.EnvVar{fieldEnv("DRIVER_NAMESPACE", "metadata.namespace")}
	c.VolumeMounts = []corev1.VolumeMount{mount("ceph-csi-config", "/etc/ceph-csi-config"), mount("keys-tmp-dir", "/tmp/csi/keys")}
	return c
}

func (d driver) snapshotMetadataContainer(tls corev1.VolumeMount) corev1.Container {
	c := d.sidecar("csi-snapshot-metadata", ImageSnapshotMetadata, nil,
		d.verbosity(), d.timeout(), fmt.Sprintf("--port=%d", snapshotMetadataPort), "--csi-address="+csiSocket,
		"--tls-cert=/tmp/certificates/tls.crt", "--tls-key=/tmp/certificates/tls.key", "--audience="+d.Name)
	c.Ports = []corev1.ContainerPort{{Name: "http-endpoint", ContainerPort: snapshotMetadataPort, Protocol: corev1.ProtocolTCP}}
	c.VolumeMounts = append(c.VolumeMounts, tls)
	return c
}
