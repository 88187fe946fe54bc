package v1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephCluster is a Ceph storage cluster: its mons, mgrs and OSDs and the
// settings that all daemons share. With external.enable it stands for a
// cluster that runs elsewhere. There is one CephCluster per namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ceph
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.ceph.health`
// +kubebuilder:printcolumn:name="Mons",type=string,JSONPath=`.status.mon.summary`,description="mons in quorum / mons wanted"
// +kubebuilder:printcolumn:name="OSDs",type=string,JSONPath=`.status.osd.summary`,description="OSDs up / in / total"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version.version`
// +kubebuilder:printcolumn:name="Blocked-By",type=string,JSONPath=`.status.blockedBy[0].subject`,description="what the cluster waits for first"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="DataDirHostPath",type=string,JSONPath=`.spec.dataDirHostPath`
// +kubebuilder:printcolumn:name="MonCount",type=string,JSONPath=`.spec.mon.count`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="External",type=boolean,JSONPath=`.spec.external.enable`
// +kubebuilder:printcolumn:name="FSID",type=string,JSONPath=`.status.ceph.fsid`
type CephCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted cluster.
	Spec ClusterSpec `json:"spec"`
	// Status is what was last seen of the cluster.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Status ClusterStatus `json:"status,omitzero"`
}

// CephClusterList is a list of CephCluster.
//
// +kubebuilder:object:root=true
type CephClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephCluster `json:"items"`
}

// ClusterSpec is the wanted state of a cluster.
type ClusterSpec struct {
	// External makes this object stand for a Ceph cluster that runs elsewhere:
	// nothing of it is managed, only clients are given access.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	External ExternalSpec `json:"external,omitzero"`

	// --- Ceph release and upgrade

	// CephVersion is the Ceph release to run. A new image starts an upgrade:
	// mons, mgrs, OSDs, then the other daemons.
	//
	// +nullable
	CephVersion CephVersionSpec `json:"cephVersion,omitzero"`
	// SkipUpgradeChecks upgrades daemons without asking Ceph whether stopping
	// them keeps data available. Default: off. I/O can stop during the upgrade.
	SkipUpgradeChecks bool `json:"skipUpgradeChecks,omitempty"`
	// ContinueUpgradeAfterChecksEvenIfNotHealthy goes on with the next OSD even
	// if placement groups did not get clean in
	// waitTimeoutForHealthyOSDInMinutes. Default: off, the upgrade waits.
	ContinueUpgradeAfterChecksEvenIfNotHealthy bool `json:"continueUpgradeAfterChecksEvenIfNotHealthy,omitempty"`
	// WaitTimeoutForHealthyOSDInMinutes is how long, in minutes, an update waits
	// for an OSD to be safe to stop before it says so and goes on as
	// continueUpgradeAfterChecksEvenIfNotHealthy decides. Default: 10.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 525600",message="waitTimeoutForHealthyOSDInMinutes must be from 0 (default of 10) to 525600 minutes"
	WaitTimeoutForHealthyOSDInMinutes time.Duration `json:"waitTimeoutForHealthyOSDInMinutes,omitempty"`
	// UpgradeOSDRequiresHealthyPGs starts with the OSDs only when all placement
	// groups are clean. Default: off.
	UpgradeOSDRequiresHealthyPGs bool `json:"upgradeOSDRequiresHealthyPGs,omitempty"`

	// --- daemons and disks

	// DataDirHostPath is the directory of each node that keeps mon stores, logs
	// and crash dumps; an absolute path, usually /var/lib/rook. It cannot
	// change, and its content must be removed before a new cluster uses it.
	//
	// +kubebuilder:validation:Pattern=`^/(\S+)`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="dataDirHostPath is immutable: the data of the mons is there"
	// +kubebuilder:validation:XValidation:rule="!self.contains('/../') && !self.endsWith('/..')",message="dataDirHostPath cannot hold '..': write the path of the directory itself, for instance /var/lib/rook"
	DataDirHostPath string `json:"dataDirHostPath,omitempty"`
	// Mon describes the monitors.
	//
	// +nullable
	Mon MonSpec `json:"mon,omitzero"`
	// Mgr describes the managers.
	//
	// +nullable
	Mgr MgrSpec `json:"mgr,omitzero"`
	// Storage chooses the disks that become OSDs.
	//
	// +nullable
	Storage StorageScopeSpec `json:"storage,omitzero"`
	// RemoveOSDsIfOutAndSafeToRemove takes away the Deployment of an OSD that
	// was out for an hour and whose data is elsewhere by then. The OSD stays in
	// the CRUSH map. Default: off.
	RemoveOSDsIfOutAndSafeToRemove bool `json:"removeOSDsIfOutAndSafeToRemove,omitempty"`

	// --- network and security

	// Network says how daemons reach each other and are reached.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Network NetworkSpec `json:"network,omitzero"`
	// Security is about keys: of encrypted disks, and of cephx users.
	//
	// +nullable
	Security ClusterSecuritySpec `json:"security,omitzero"`

	// --- pods

	// Placement says on which nodes the daemons run, per daemon type and for
	// `all`.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Placement PlacementSpec `json:"placement,omitempty"`
	// Resources are the requests and limits, per daemon type. For OSDs of one
	// device class write `osd-<class>`. Ceph's memory targets follow the limits.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Resources ResourceSpec `json:"resources,omitempty"`
	// PriorityClassNames are PriorityClasses per daemon type and for `all`.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	PriorityClassNames PriorityClassNamesSpec `json:"priorityClassNames,omitempty"`
	// Annotations are added to pods, per daemon type and for `all`.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Annotations AnnotationsSpec `json:"annotations,omitempty"`
	// Labels are added to pods, per daemon type and for `all`.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Labels LabelsSpec `json:"labels,omitempty"`

	// --- Ceph's own settings

	// CephConfig are settings in the mons' configuration database: by section
	// (global, mon, osd, osd.3, client.rgw.a, ...) and by option name. A
	// setting that is removed here is removed from the database.
	//
	// +nullable
	CephConfig map[string]map[string]string `json:"cephConfig,omitempty"`
	// CephConfigFromSecret are settings as in cephConfig whose values come from
	// Secrets of this namespace.
	//
	// +nullable
	CephConfigFromSecret map[string]map[string]corev1.SecretKeySelector `json:"cephConfigFromSecret,omitempty"`

	// --- services around the daemons

	// Dashboard is the web interface of the mgr.
	//
	// +nullable
	Dashboard DashboardSpec `json:"dashboard,omitzero"`
	// Monitoring is about metrics for Prometheus.
	//
	// +nullable
	Monitoring MonitoringSpec `json:"monitoring,omitzero"`
	// LogCollector writes daemon logs to files on the nodes and rotates them.
	//
	// +nullable
	LogCollector LogCollectorSpec `json:"logCollector,omitzero"`
	// CrashCollector gathers crash dumps of daemons on each node.
	//
	// +nullable
	CrashCollector CrashCollectorSpec `json:"crashCollector,omitzero"`
	// HealthCheck says how daemons and the cluster are checked.
	//
	// +nullable
	HealthCheck CephClusterHealthCheckSpec `json:"healthCheck,omitzero"`
	// DisruptionManagement keeps node drains from taking data away.
	//
	// +nullable
	DisruptionManagement DisruptionManagementSpec `json:"disruptionManagement,omitzero"`
	// CSI are settings for the CSI drivers that mount from this cluster.
	CSI CSIDriverSpec `json:"csi,omitzero"`

	// --- the end

	// CleanupPolicy says what is deleted together with this object.
	//
	// +nullable
	CleanupPolicy CleanupPolicySpec `json:"cleanupPolicy,omitzero"`
}

// ExternalSpec marks a cluster as running elsewhere.
type ExternalSpec struct {
	// Enable makes the cluster external. It is chosen when the object is made;
	// changing it later has no defined meaning. Connection data comes from the
	// Secret rook-ceph-mon and the ConfigMap rook-ceph-mon-endpoints.
	Enable bool `json:"enable,omitempty"`
}

// CephVersionSpec is the Ceph release to run.
type CephVersionSpec struct {
	// Image is the container image of Ceph, best with an exact version tag, for
	// instance quay.io/ceph/ceph:v20.2.4. It is not needed for an external
	// cluster that runs no daemon here.
	Image string `json:"image,omitempty"`
	// AllowUnsupported accepts a release that this operator does not know, and
	// going back by a major release. Default: off.
	AllowUnsupported bool `json:"allowUnsupported,omitempty"`
	// ImagePullPolicy is for all containers of the Ceph image. Default:
	// that of Kubernetes for the image's tag.
	//
	// +kubebuilder:validation:Enum=IfNotPresent;Always;Never;""
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// CleanupPolicySpec says what the deletion of the cluster takes with it.
type CleanupPolicySpec struct {
	// Confirmation yes-really-destroy-data deletes the mons' data on the nodes
	// and wipes the OSDs' disks when the object is deleted. Set it just before
	// deleting: from then on the cluster is no longer reconciled. Empty: data
	// stays.
	//
	// +kubebuilder:validation:Pattern=`^$|^yes-really-destroy-data$`
	// +nullable
	Confirmation CleanupConfirmationProperty `json:"confirmation,omitempty"`
	// SanitizeDisks says how disks are wiped.
	//
	// +nullable
	SanitizeDisks SanitizeDisksSpec `json:"sanitizeDisks,omitzero"`
	// AllowUninstallWithVolumes lets the deletion go on while PersistentVolumes
	// of this cluster exist. Their data is lost with confirmation. Default: off.
	AllowUninstallWithVolumes bool `json:"allowUninstallWithVolumes,omitempty"`
	// WipeDevicesFromOtherClusters lets a new OSD take a chosen disk that holds
	// an OSD of another Ceph cluster, and destroys that data. Default: off, such
	// a disk is left alone.
	WipeDevicesFromOtherClusters bool `json:"wipeDevicesFromOtherClusters,omitempty"`
}

// CleanupConfirmationProperty is the word that allows data to be destroyed.
type CleanupConfirmationProperty string

// DeleteDataDirOnHostsConfirmation is the only confirmation there is.
const DeleteDataDirOnHostsConfirmation CleanupConfirmationProperty = "yes-really-destroy-data"

// HasDataDirCleanPolicy reports whether data is to be destroyed with the object.
func (c *CleanupPolicySpec) HasDataDirCleanPolicy() bool {
	return c.Confirmation == DeleteDataDirOnHostsConfirmation
}

// SanitizeMethodProperty is how much of a disk is overwritten.
type SanitizeMethodProperty string

const (
	// SanitizeMethodQuick overwrites the places where Ceph and LVM keep
	// signatures.
	SanitizeMethodQuick SanitizeMethodProperty = "quick"
	// SanitizeMethodComplete overwrites the whole disk.
	SanitizeMethodComplete SanitizeMethodProperty = "complete"
)

// SanitizeDataSourceProperty is what disks are overwritten with.
type SanitizeDataSourceProperty string

const (
	// SanitizeDataSourceZero writes zeros.
	SanitizeDataSourceZero SanitizeDataSourceProperty = "zero"
	// SanitizeDataSourceRandom writes random data.
	SanitizeDataSourceRandom SanitizeDataSourceProperty = "random"
)

// SanitizeDisksSpec says how disks are wiped.
type SanitizeDisksSpec struct {
	// Method is quick (default: signatures only, seconds) or complete (the whole
	// disk, hours).
	//
	// +kubebuilder:validation:Enum=complete;quick
	Method SanitizeMethodProperty `json:"method,omitempty"`
	// DataSource is zero (default) or random.
	//
	// +kubebuilder:validation:Enum=zero;random
	DataSource SanitizeDataSourceProperty `json:"dataSource,omitempty"`
	// Iteration is how often a disk is overwritten. Default: 1.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 100",message="sanitizeDisks.iteration must be from 0 (default of 1) to 100; write for instance 1"
	Iteration int32 `json:"iteration,omitempty"`
}

// EffectiveMethod gives the method or its default, quick.
func (s SanitizeDisksSpec) EffectiveMethod() SanitizeMethodProperty {
	if s.Method == "" {
		return SanitizeMethodQuick
	}
	return s.Method
}

// EffectiveDataSource gives the data source or its default, zero.
func (s SanitizeDisksSpec) EffectiveDataSource() SanitizeDataSourceProperty {
	if s.DataSource == "" {
		return SanitizeDataSourceZero
	}
	return s.DataSource
}

// EffectiveIteration gives the number of passes, at least 1.
func (s SanitizeDisksSpec) EffectiveIteration() int32 {
	return max(s.Iteration, 1)
}

// IsExternal reports whether the cluster runs elsewhere.
func (c *ClusterSpec) IsExternal() bool {
	return c.External.Enable
}

// IsStretchCluster reports whether mons and data are stretched over two data
// zones and an arbiter.
func (c *ClusterSpec) IsStretchCluster() bool {
	return c.Mon.StretchCluster != nil && len(c.Mon.StretchCluster.Zones) > 0
}

// ZonesRequired reports whether mons are to be spread over named zones.
func (c *ClusterSpec) ZonesRequired() bool {
	return c.IsStretchCluster() || len(c.Mon.Zones) > 0
}

// DefaultOSDWait is how long an update waits for an OSD to be safe to stop
// when the spec says nothing.
const DefaultOSDWait = 10 * time.Minute

// EffectiveOSDWait gives WaitTimeoutForHealthyOSDInMinutes as a real duration,
// or DefaultOSDWait. (The field holds a bare number of minutes.)
func (c *ClusterSpec) EffectiveOSDWait() time.Duration {
	if c.WaitTimeoutForHealthyOSDInMinutes <= 0 {
		return DefaultOSDWait
	}
	return c.WaitTimeoutForHealthyOSDInMinutes * time.Minute
}

// GetConditions gives the conditions of the status.
func (c *CephCluster) GetConditions() []Condition { return c.Status.Conditions }

func init() {
	SchemeBuilder.Register(&CephCluster{}, &CephClusterList{})
}
