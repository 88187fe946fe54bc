package v1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriverType is what a driver serves. It is the part of the Driver's name
// before ".csi.ceph.com".
type DriverType string

// The driver types.
const (
	RBDDriver    DriverType = "rbd"
	CephFSDriver DriverType = "cephfs"
	NFSDriver    DriverType = "nfs"
	NVMeoFDriver DriverType = "nvmeof"
)

// CephFsClientType says which CephFS client mounts volumes.
//
// +kubebuilder:validation:Enum=autodetect;kernel
type CephFsClientType string

// The CephFS clients.
const (
	// AutoDetectCephFsClient: the kernel where it is new enough, else ceph-fuse.
	AutoDetectCephFsClient CephFsClientType = "autodetect"
	// KernelCephFsClient: always the kernel.
	KernelCephFsClient CephFsClientType = "kernel"
)

// SnapshotPolicyType says which snapshots a driver makes.
//
// +kubebuilder:validation:Enum=none;volumeGroupSnapshot;volumeSnapshot
type SnapshotPolicyType string

// The snapshot policies.
const (
	NoneSnapshotPolicy        SnapshotPolicyType = "none"
	VolumeGroupSnapshotPolicy SnapshotPolicyType = "volumeGroupSnapshot"
	VolumeSnapshotPolicy      SnapshotPolicyType = "volumeSnapshot"
)

// PeriodicityType says how often logs are rotated.
//
// +kubebuilder:validation:Enum=hourly;daily;weekly;monthly
type PeriodicityType string

// VolumeConditionAnnotation on a Driver, "true" or "false", makes its csi-addons
// node sidecar report the condition of volumes.
const VolumeConditionAnnotation = "addons.csi.ceph.io/volume-condition"

// DriverSpec says how a CSI driver runs. In an OperatorConfig it holds defaults.
type DriverSpec struct {
	// What the driver's processes log, and what becomes of the log files.
	// +optional
	Log *LogSpec `json:"log,omitempty"`

	// A ConfigMap with the images of the containers: keys plugin, provisioner,
	// attacher, resizer, snapshotter, registrar, addons, snapshot-metadata and
	// ex-snapshotter. For a Driver it lies in the Driver's namespace, for the
	// defaults of an OperatorConfig in the operator's. A key that is missing is
	// taken from the defaults, then from the operator's built-in list. A change of
	// the ConfigMap rolls the driver out.
	// +kubebuilder:validation:XValidation:rule="self.name != \"\"",message="imageSet.name must not be empty: write the name of a ConfigMap"
	// +optional
	ImageSet *corev1.LocalObjectReference `json:"imageSet,omitempty"`

	// A name for this Kubernetes cluster, which the driver writes into the
	// metadata of volumes and images, so that their origin can be seen in Ceph.
	// Default: none.
	// +optional
	ClusterName *string `json:"clusterName,omitempty"`

	// Has no effect. The driver writes metadata whenever clusterName is set.
	//
	// Deprecated: accepted for compatibility and ignored.
	// +optional
	EnableMetadata *bool `json:"enableMetadata,omitempty"`

	// How long the sidecars wait for one call to the driver, in seconds. 0 or
	// absent: 150.
	// +kubebuilder:validation:Minimum=0
	// +optional
	GRpcTimeout int `json:"grpcTimeout,omitempty"`

	// Which snapshots can be made: "none" leaves the snapshotter out,
	// "volumeSnapshot" (the default) serves single volumes, "volumeGroupSnapshot"
	// serves groups as well and needs the group snapshot CRDs.
	// +optional
	SnapshotPolicy SnapshotPolicyType `json:"snapshotPolicy,omitempty"`

	// Runs the generator that keeps the drivers' journal (omap) in step with
	// PersistentVolumes, which a failover to a mirrored cluster needs. For rbd and
	// cephfs. Default false.
	// +optional
	GenerateOMapInfo *bool `json:"generateOMapInfo,omitempty"`

	// Lets the driver fence a lost node off when Kubernetes marks it out of
	// service. Needs a driver image that knows the option. Default false.
	// +optional
	EnableFencing *bool `json:"enableFencing,omitempty"`

	// What Kubernetes does with fsGroup of a pod: "File" (the default),
	// "ReadWriteOnceWithFSType" or "None".
	// +optional
	FsGroupPolicy storagev1.FSGroupPolicy `json:"fsGroupPolicy,omitempty"`

	// Where the driver finds key management systems for encrypted volumes.
	// +optional
	Encryption *EncryptionSpec `json:"encryption,omitempty"`

	// The pods that run on every node.
	// +optional
	NodePlugin *NodePluginSpec `json:"nodePlugin,omitempty"`

	// The pods that create, attach, resize and snapshot volumes.
	// +optional
	ControllerPlugin *ControllerPluginSpec `json:"controllerPlugin,omitempty"`

	// Whether volumes are attached to a node before they are mounted
	// (VolumeAttachment objects). Default true. Kubernetes does not change this
	// field of a CSIDriver, so a change replaces the CSIDriver object.
	// +optional
	AttachRequired *bool `json:"attachRequired,omitempty"`

	// Serves metrics on the health of the driver's socket. Default: not.
	// +optional
	Liveness *LivenessSpec `json:"liveness,omitempty"`

	// Timing of the election between the controller pods.
	// +optional
	LeaderElection *LeaderElectionSpec `json:"leaderElection,omitempty"`

	// Runs the csi-addons sidecars, which serve replication, reclaiming of space,
	// key rotation and fencing. Not for nfs. Needs the csi-addons CRDs. Default
	// false.
	// +optional
	DeployCsiAddons *bool `json:"deployCsiAddons,omitempty"`

	// Which client mounts CephFS volumes: "autodetect" (the default) or "kernel".
	// +optional
	CephFsClientType CephFsClientType `json:"cephFsClientType,omitempty"`

	// Options for all CephFS mounts through the kernel, name to value; an empty
	// value is an option without one. Changes restart the node plugin; mounted
	// volumes keep their options.
	// +optional
	KernelMountOptions map[string]string `json:"kernelMountOptions,omitempty"`

	// The same for mounts through ceph-fuse.
	// +optional
	FuseMountOptions map[string]string `json:"fuseMountOptions,omitempty"`
}

// LogSpec says what the driver's processes log.
type LogSpec struct {
	// From 0, the least, to 5, everything. Default 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	// +optional
	Verbosity int `json:"verbosity,omitempty"`

	// Writes logs to files on the node too, and rotates them. Default: logs go to
	// the container's output only.
	// +optional
	Rotation *LogRotationSpec `json:"rotation,omitempty"`
}

// LogRotationSpec says when log files are rotated.
//
// +kubebuilder:validation:XValidation:rule="(has(self.maxLogSize)) || (has(self.periodicity))",message="log.rotation: set maxLogSize, periodicity or both, else logs would never be rotated"
type LogRotationSpec struct {
	// How many rotated files are kept. Default 7.
	// +optional
	MaxFiles int `json:"maxFiles,omitempty"`

	// A file that has grown to this size is rotated at the next look, whatever
	// the periodicity says. For example 500Mi or 10G.
	// +optional
	MaxLogSize *resource.Quantity `json:"maxLogSize,omitempty"`

	// How often files are rotated: hourly, daily, weekly or monthly.
	// +optional
	Periodicity PeriodicityType `json:"periodicity,omitempty"`

	// The directory on the node that holds the files, each driver in a directory
	// of its own below it. Default /var/lib/cephcsi.
	// +optional
	LogHostPath string `json:"logHostPath,omitempty"`
}

// EncryptionSpec says where key management systems are configured.
type EncryptionSpec struct {
	// The ConfigMap, in the Driver's namespace, whose key config.json describes
	// the key management systems.
	// +kubebuilder:validation:XValidation:rule="self.name != \"\"",message="encryption.configMapName.name must not be empty: write the name of the ConfigMap that describes the key management systems"
	ConfigMapName corev1.LocalObjectReference `json:"configMapName"`
}

// LivenessSpec says where the health of a driver can be read.
type LivenessSpec struct {
	// The TCP port of the metrics, on the node's network for the node plugin, so
	// it must be free on every node. From 1024 to 65535.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	MetricsPort int `json:"metricsPort"`
}

// LeaderElectionSpec is the timing of the election between controller pods. A
// value that is 0 or absent is the operator's default.
type LeaderElectionSpec struct {
	// How long a leader counts as alive without a word of it, in seconds.
	// Default 137.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LeaseDuration int `json:"leaseDuration,omitempty"`

	// How long a leader tries to renew before it gives up, in seconds; less than
	// leaseDuration. Default 107.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RenewDeadline int `json:"renewDeadline,omitempty"`

	// The pause between tries, in seconds. Default 26.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RetryPeriod int `json:"retryPeriod,omitempty"`
}

// PodCommonSpec holds what the node and the controller pods have in common.
type PodCommonSpec struct {
	// The service account of the pods, in the Driver's namespace. Default: the
	// operator's prefix, the driver type and "-ctrlplugin-sa" or "-nodeplugin-sa".
	// The operator does not create it.
	// +optional
	ServiceAccountName *string `json:"serviceAccountName,omitempty"`

	// The priority class of the pods. Default: the cluster's.
	// +optional
	PriorityClassName *string `json:"priorityClassName,omitempty"`

	// Labels added to the pods. The label "app" is the operator's.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations added to the pods.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Where the pods may run. The controller pods get an anti-affinity between
	// nodes unless one is given here.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Taints that the pods tolerate.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Volumes added to the pods and mounted into the driver's container. A volume
	// or mount whose name the operator uses already takes its place.
	// +optional
	Volumes []VolumeSpec `json:"volumes,omitempty"`

	// When images are pulled. Default IfNotPresent.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Arguments added at the end of a container's own, by the name of the
	// container, for example csi-provisioner.
	// +optional
	ContainerExtraArgs map[string][]string `json:"containerExtraArgs,omitempty"`
}

// VolumeSpec is a volume and how it is mounted.
type VolumeSpec struct {
	// The volume.
	// +optional
	Volume corev1.Volume `json:"volume,omitempty"`

	// Where it is mounted in the driver's container.
	// +optional
	Mount corev1.VolumeMount `json:"mount,omitempty"`
}

// NodePluginSpec says how the pods on every node run.
type NodePluginSpec struct {
	PodCommonSpec `json:",inline"`

	// How a change is rolled out over the nodes. Default RollingUpdate, one node
	// at a time. With OnDelete a node changes when its pod is deleted.
	// +optional
	UpdateStrategy *appsv1.DaemonSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// CPU and memory of the containers. Default: none set.
	// +optional
	Resources NodePluginResourcesSpec `json:"resources,omitempty"`

	// The directory of the kubelet on the nodes. Default /var/lib/kubelet.
	// +optional
	KubeletDirPath string `json:"kubeletDirPath,omitempty"`

	// Mounts the node's SELinux configuration into the driver, which volumes with
	// SELinux contexts need. Default false.
	// +optional
	EnableSeLinuxHostMount *bool `json:"enableSeLinuxHostMount,omitempty"`

	// Makes volumes of an rbd driver available by topology. Default: none.
	// +optional
	Topology *TopologySpec `json:"topology,omitempty"`
}

// NodePluginResourcesSpec is the resources of the containers of a node pod.
type NodePluginResourcesSpec struct {
	// Of driver-registrar.
	// +optional
	Registrar *corev1.ResourceRequirements `json:"registrar,omitempty"`
	// Of liveness-prometheus.
	// +optional
	Liveness *corev1.ResourceRequirements `json:"liveness,omitempty"`
	// Of csi-addons.
	// +optional
	Addons *corev1.ResourceRequirements `json:"addons,omitempty"`
	// Of log-rotator.
	// +optional
	LogRotator *corev1.ResourceRequirements `json:"logRotator,omitempty"`
	// Of the driver's own container.
	// +optional
	Plugin *corev1.ResourceRequirements `json:"plugin,omitempty"`
}

// TopologySpec says which node labels are domains.
type TopologySpec struct {
	// Names of node labels that become the topology of a node, for example
	// "topology.kubernetes.io/zone". The node plugin reads them when it starts.
	DomainLabels []string `json:"domainLabels"`
}

// ControllerPluginSpec says how the controller pods run.
type ControllerPluginSpec struct {
	PodCommonSpec `json:",inline"`

	// How a change is rolled out. Default Recreate.
	// +optional
	DeploymentStrategy *appsv1.DeploymentStrategy `json:"deploymentStrategy,omitempty"`

	// How many pods; one of them leads. Default 2, or 1 in a cluster of one node.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// CPU and memory of the containers. Default: none set.
	// +optional
	Resources ControllerPluginResourcesSpec `json:"resources,omitempty"`

	// Runs the containers that write log files privileged, which some hosts need
	// (SELinux) for writing to a host path. Only looked at with log rotation.
	// +optional
	Privileged *bool `json:"privileged,omitempty"`

	// Runs the pods on the network of the node, where the pod network cannot reach
	// Ceph. The network policy of the pods is then dropped, since Kubernetes does
	// not apply one to such pods. Default false.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`
}

// ControllerPluginResourcesSpec is the resources of the containers of a
// controller pod.
type ControllerPluginResourcesSpec struct {
	// Of csi-attacher.
	// +optional
	Attacher *corev1.ResourceRequirements `json:"attacher,omitempty"`
	// Of csi-snapshotter.
	// +optional
	Snapshotter *corev1.ResourceRequirements `json:"snapshotter,omitempty"`
	// Of csi-resizer.
	// +optional
	Resizer *corev1.ResourceRequirements `json:"resizer,omitempty"`
	// Of csi-provisioner.
	// +optional
	Provisioner *corev1.ResourceRequirements `json:"provisioner,omitempty"`
	// Of csi-omap-generator.
	// +optional
	OMapGenerator *corev1.ResourceRequirements `json:"omapGenerator,omitempty"`
	// Of liveness-prometheus.
	// +optional
	Liveness *corev1.ResourceRequirements `json:"liveness,omitempty"`
	// Of csi-addons.
	// +optional
	Addons *corev1.ResourceRequirements `json:"addons,omitempty"`
	// Of log-rotator.
	// +optional
	LogRotator *corev1.ResourceRequirements `json:"logRotator,omitempty"`
	// Of the driver's own container.
	// +optional
	Plugin *corev1.ResourceRequirements `json:"plugin,omitempty"`
}

// DriverStatus is what the operator reports on a Driver.
type DriverStatus struct {
	CommonStatus `json:",inline"`

	// Ready, Progressing while pods start or change, or Failed when the spec
	// cannot be carried out.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The phase in words; names the service account, ConfigMap or field that is
	// missing or wrong.
	// +optional
	Message string `json:"message,omitempty"`

	// The controller pods.
	// +optional
	ControllerPlugin *PodCount `json:"controllerPlugin,omitempty"`

	// The node pods.
	// +optional
	NodePlugin *PodCount `json:"nodePlugin,omitempty"`

	// The pods of the csi-addons sidecar on the nodes, where they are deployed.
	// +optional
	NodePluginAddons *PodCount `json:"nodePluginAddons,omitempty"`
}

// Driver is one CSI driver: its controller pods, its node pods and the CSIDriver
// object. Its name is the name of the driver and ends in the type, for example
// "rook-ceph.rbd.csi.ceph.com".
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^(.+\\\\.)?(rbd|cephfs|nfs|nvmeof)?\\\\.csi\\\\.ceph\\\\.com$')",message="the name of a Driver must be [<prefix>.]<rbd|cephfs|nfs|nvmeof>.csi.ceph.com"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.matches('^(.+\\\\.)?(rbd|cephfs|nfs|nvmeof)\\\\.csi\\\\.ceph\\\\.com$')",optionalOldSelf=true,message="the name of a Driver must tell its type: [<prefix>.]<rbd|cephfs|nfs|nvmeof>.csi.ceph.com"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 52",optionalOldSelf=true,message="the name of a Driver must not be longer than 52 characters (41 with deployCsiAddons, 44 with liveness): it becomes part of pod labels; use a shorter prefix"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Controller",type=integer,JSONPath=`.status.controllerPlugin.available`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodePlugin.available`
// +kubebuilder:printcolumn:name="Desired-Nodes",type=integer,JSONPath=`.status.nodePlugin.desired`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Driver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How the driver runs.
	Spec DriverSpec `json:"spec,omitempty"`
	// What the operator reports.
	Status DriverStatus `json:"status,omitempty"`
}

// DriverList is a list of Drivers.
//
// +kubebuilder:object:root=true
type DriverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Driver `json:"items"`
}
