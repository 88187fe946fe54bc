package v1

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephFilesystem is a CephFS: its metadata and data pools, the MDS daemons
// that serve it and, if asked for, the mirroring of its snapshots.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephfs
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="ActiveMDS",type=string,JSONPath=`.spec.metadataServer.activeCount`
// +kubebuilder:printcolumn:name="Standby",type=boolean,JSONPath=`.spec.metadataServer.activeStandby`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephFilesystem struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the filesystem as it should be.
	Spec FilesystemSpec `json:"spec"`

	// Status is the filesystem as it was last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status CephFilesystemStatus `json:"status,omitzero"`
}

// CephFilesystemList is a list of CephFilesystem.
//
// +kubebuilder:object:root=true
type CephFilesystemList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephFilesystem `json:"items"`
}

// FilesystemSpec is a CephFS as it should be. Its name in Ceph is the name of
// the object.
type FilesystemSpec struct {
	// MetadataPool holds directories and inodes. It must be replicated, and
	// belongs on fast disks: every metadata operation of every client waits
	// for it. Its name is "<filesystem>-metadata". Null, together with an
	// empty dataPools, means that the filesystem exists in Ceph already.
	// +nullable
	// +kubebuilder:validation:XValidation:rule="!has(self.erasureCoded) || (self.erasureCoded.dataChunks == 0 && self.erasureCoded.codingChunks == 0)",message="metadataPool must be replicated: CephFS keeps no metadata in an erasure coded pool; set replicated.size and remove erasureCoded"
	MetadataPool NamedPoolSpec `json:"metadataPool"`

	// DataPools hold file contents. The first is the default pool: it also
	// holds a backtrace for every file, so it should be replicated even when
	// the others are erasure coded. Pools may be added later; a pool that is
	// removed from the list, or whose place in it changes while it has no
	// name, is neither removed from Ceph nor renamed. Give every pool a name.
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.name) || p.name == '' || self.exists_one(q, has(q.name) && q.name == p.name))",message="every pool of dataPools needs a name of its own: two have the same"
	DataPools []NamedPoolSpec `json:"dataPools"`

	// PreservePoolNames takes the name of each data pool as it is, instead of
	// putting "<filesystem>-" before it; for pools that exist already or that
	// were made under Rook with the same setting. It must not change once the
	// pools exist.
	// +optional
	PreservePoolNames bool `json:"preservePoolNames,omitempty"`

	// PreservePoolsOnDelete keeps the pools when this object is deleted.
	//
	// Deprecated: a filesystem cannot be brought back from its pools alone.
	// Use preserveFilesystemOnDelete.
	// +optional
	PreservePoolsOnDelete bool `json:"preservePoolsOnDelete,omitempty"`

	// PreserveFilesystemOnDelete keeps the filesystem and its pools when this
	// object is deleted; only the MDS daemons go. An object of the same name
	// takes the filesystem up again.
	// +optional
	PreserveFilesystemOnDelete bool `json:"preserveFilesystemOnDelete,omitempty"`

	// MetadataServer is the MDS daemons.
	MetadataServer MetadataServerSpec `json:"metadataServer"`

	// Mirroring sends snapshots to a filesystem of another cluster. It needs
	// a CephFilesystemMirror to run the daemon.
	// +optional
	// +nullable
	Mirroring *FSMirroringSpec `json:"mirroring,omitempty"`

	// StatusCheck is how often the mirroring status is asked for.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	StatusCheck MirrorHealthCheckSpec `json:"statusCheck,omitzero"`
}

// NamedPoolSpec is a pool that is one of several of a filesystem.
type NamedPoolSpec struct {
	// Name tells the pool apart from its siblings. The pool's name in Ceph is
	// "<filesystem>-<name>", or the name itself with preservePoolNames. When
	// unset it is "data<N>", N being the place in the list, from 0. It does
	// not apply to the metadata pool unless preservePoolNames is set. A pool
	// cannot be renamed: another name is another pool.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]*$')",message="name must be 1 to 253 letters, digits, '.', '_' or '-', and not begin with '-'"
	Name string `json:"name,omitempty"`

	PoolSpec `json:",inline"`
}

// MetadataServerSpec is the MDS daemons of a filesystem.
type MetadataServerSpec struct {
	// ActiveCount is the number of MDS ranks, 1 to 50. More ranks share the
	// load of many clients only if their directories are spread over ranks
	// (see pinning in CephFilesystemSubVolumeGroup). Twice as many daemons
	// run as there are ranks, so that each rank has one to take over. Lowering
	// it stops one rank at a time, its directories moving to the others.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	ActiveCount int32 `json:"activeCount"`

	// ActiveStandby makes the standbys follow the journal of a rank, so that
	// a takeover starts from a warm cache. They then need as much memory as
	// the active ones. Default: false, the standbys are cold.
	// +optional
	ActiveStandby bool `json:"activeStandby,omitempty"`

	// Placement is where the MDS pods may run. It adds to the "all" placement
	// of the CephCluster.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Placement Placement `json:"placement,omitzero"`

	// Annotations are put on the MDS pods. A change restarts them one by one.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Annotations Annotations `json:"annotations,omitempty"`

	// Labels are put on the MDS pods. A change restarts them one by one.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Labels Labels `json:"labels,omitempty"`

	// Resources of each MDS container. The memory limit (or else the request)
	// also sets the size of the MDS cache, see cacheMemoryLimitFactor.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// PriorityClassName is the priority class of the MDS pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// LivenessProbe tunes or disables the check that the MDS answers on its
	// admin socket.
	// +optional
	LivenessProbe *ProbeSpec `json:"livenessProbe,omitempty"`

	// StartupProbe tunes or disables the grace that an MDS has to start.
	// +optional
	StartupProbe *ProbeSpec `json:"startupProbe,omitempty"`

	// CacheMemoryLimitFactor is the share of the memory limit that becomes
	// mds_cache_memory_limit, from 0.0 to 1.0; 0.5 when unset. An MDS may use
	// well over its cache size for a while, so a factor near 1 gets it killed.
	// +optional
	// +kubebuilder:validation:Minimum=0.0
	// +kubebuilder:validation:Maximum=1.0
	CacheMemoryLimitFactor *float64 `json:"cacheMemoryLimitFactor,omitempty"`

	// CacheMemoryRequestFactor is the share of the memory request that
	// becomes mds_cache_memory_limit when there is no memory limit, from 0.0
	// to 1.0; 0.8 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0.0
	// +kubebuilder:validation:Maximum=1.0
	CacheMemoryRequestFactor *float64 `json:"cacheMemoryRequestFactor,omitempty"`
}

// FSMirroringSpec is where the snapshots of a filesystem are sent, and when
// they are taken.
type FSMirroringSpec struct {
	// Enabled turns mirroring on. Turning it off removes the peers.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// Peers are the Secrets with the bootstrap tokens of the other side.
	// +optional
	// +nullable
	Peers *MirroringPeerSpec `json:"peers,omitempty"`

	// SnapshotSchedules say when snapshots of which directory are taken. A
	// schedule that is removed here is removed from Ceph.
	// +optional
	SnapshotSchedules []SnapshotScheduleSpec `json:"snapshotSchedules,omitempty"`

	// SnapshotRetention says how many of the scheduled snapshots of a
	// directory are kept. Without it Ceph keeps every one, up to its limit
	// for a directory.
	// +optional
	SnapshotRetention []SnapshotScheduleRetentionSpec `json:"snapshotRetention,omitempty"`
}

// SnapshotScheduleRetentionSpec is how many snapshots of a directory are kept.
type SnapshotScheduleRetentionSpec struct {
	// Path is the directory, from the root of the filesystem, such as "/".
	// +optional
	Path string `json:"path,omitempty"`

	// Duration is a unit and a number, such as "h 24" (the last 24 hourly
	// ones), or several numbers each with its unit, such as "24h4w". Units:
	// n (any), h, d, w, and those for minutes, months and years that the
	// running Ceph release knows.
	// +optional
	Duration string `json:"duration,omitempty"`
}

// CephFilesystemStatus is what was last seen of a filesystem.
type CephFilesystemStatus struct {
	// Phase is one word for a person: Progressing, Ready, Failure, Deleting.
	// +optional
	Phase ConditionType `json:"phase,omitempty"`

	// SnapshotScheduleStatus is the list of snapshot schedules that Ceph
	// runs on the filesystem.
	// +optional
	SnapshotScheduleStatus *FilesystemSnapshotScheduleStatusSpec `json:"snapshotScheduleStatus,omitempty"`

	// Info holds facts for people and scripts:
	// "fsMirrorBootstrapPeerSecretName" is the Secret with the token that the
	// other cluster imports.
	// +optional
	// +nullable
	Info map[string]string `json:"info,omitempty"`

	// MirroringStatus is what the mirror daemons say of this filesystem.
	// +optional
	MirroringStatus *FilesystemMirroringInfoSpec `json:"mirroringStatus,omitempty"`

	// Cephx says which keys the MDS daemons run with.
	// +optional
	Cephx LocalCephxStatus `json:"cephx,omitzero"`

	// Conditions say what is done, what is awaited and what is wrong.
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// FilesystemMirroringInfoSpec is the state of the mirror daemons, with the
// time it was asked.
type FilesystemMirroringInfoSpec struct {
	// FilesystemMirroringAllInfo is what each daemon says.
	// +optional
	// +nullable
	FilesystemMirroringAllInfo []FilesystemMirroringInfo `json:"daemonsStatus,omitempty"`

	// LastChecked is when Ceph was last asked, in RFC 3339.
	// +optional
	LastChecked string `json:"lastChecked,omitempty"`

	// LastChanged is when the answer last differed from the one before, in
	// RFC 3339.
	// +optional
	LastChanged string `json:"lastChanged,omitempty"`

	// Details is why there is no answer; empty when there is one.
	// +optional
	Details string `json:"details,omitempty"`
}

// FilesystemMirroringInfo is what one mirror daemon says, one element of the
// reply to "fs snapshot mirror daemon status".
type FilesystemMirroringInfo struct {
	// DaemonID is the number by which the daemon is known in the service map.
	// +optional
	DaemonID int `json:"daemon_id,omitempty"`

	// Filesystems are those the daemon mirrors.
	// +optional
	Filesystems []FilesystemsSpec `json:"filesystems,omitempty"`
}

// FilesystemsSpec is one filesystem that a daemon mirrors.
type FilesystemsSpec struct {
	// FilesystemID is the number of the filesystem in the FS map.
	// +optional
	FilesystemID int `json:"filesystem_id,omitempty"`

	// Name is the name of the filesystem.
	// +optional
	Name string `json:"name,omitempty"`

	// DirectoryCount is the number of directories that are mirrored.
	// +optional
	DirectoryCount int `json:"directory_count,omitempty"`

	// Peers are the filesystems on the other side.
	// +optional
	Peers []FilesystemMirrorInfoPeerSpec `json:"peers,omitempty"`
}

// FilesystemMirrorInfoPeerSpec is one filesystem on the other side.
type FilesystemMirrorInfoPeerSpec struct {
	// UUID identifies the peer within the filesystem.
	// +optional
	UUID string `json:"uuid,omitempty"`

	// Remote is how the other side is reached.
	// +optional
	Remote *PeerRemoteSpec `json:"remote,omitempty"`

	// Stats counts what went wrong and was put right.
	// +optional
	Stats *PeerStatSpec `json:"stats,omitempty"`
}

// PeerRemoteSpec is how the filesystem of the other side is reached.
type PeerRemoteSpec struct {
	// ClientName is the cephx user on the other side.
	// +optional
	ClientName string `json:"client_name,omitempty"`

	// ClusterName is the site name of the other side.
	// +optional
	ClusterName string `json:"cluster_name,omitempty"`

	// FsName is the filesystem of the other side.
	// +optional
	FsName string `json:"fs_name,omitempty"`
}

// PeerStatSpec counts, since the daemon started, what went wrong with a peer.
type PeerStatSpec struct {
	// FailureCount is how many directories could not be mirrored.
	// +optional
	FailureCount int `json:"failure_count,omitempty"`

	// RecoveryCount is how many of them later could.
	// +optional
	RecoveryCount int `json:"recovery_count,omitempty"`
}

// FilesystemSnapshotScheduleStatusSpec is the list of snapshot schedules of a
// filesystem, with the time it was asked.
type FilesystemSnapshotScheduleStatusSpec struct {
	// SnapshotSchedules are the schedules that Ceph holds, also those that
	// somebody added by hand.
	// +optional
	// +nullable
	SnapshotSchedules []FilesystemSnapshotSchedulesSpec `json:"snapshotSchedules,omitempty"`

	// LastChecked is when Ceph was last asked, in RFC 3339.
	// +optional
	LastChecked string `json:"lastChecked,omitempty"`

	// LastChanged is when the answer last differed from the one before, in
	// RFC 3339.
	// +optional
	LastChanged string `json:"lastChanged,omitempty"`

	// Details is why there is no answer; empty when there is one.
	// +optional
	Details string `json:"details,omitempty"`
}

// FilesystemSnapshotSchedulesSpec is one schedule, one element of the reply
// to "fs snap-schedule status".
type FilesystemSnapshotSchedulesSpec struct {
	// Fs is the filesystem.
	// +optional
	Fs string `json:"fs,omitempty"`

	// Subvol is the subvolume, when the schedule is of one.
	// +optional
	Subvol string `json:"subvol,omitempty"`

	// Path is the directory from the root of the filesystem.
	// +optional
	Path string `json:"path,omitempty"`

	// RelPath is the directory from the root of the subvolume.
	// +optional
	RelPath string `json:"rel_path,omitempty"`

	// Schedule is the interval, such as "24h".
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// Retention is what the schedule made and pruned until now.
	// +optional
	Retention *FilesystemSnapshotScheduleStatusRetention `json:"retention,omitempty"`
}

// FilesystemSnapshotScheduleStatusRetention is what a schedule made and
// pruned until now. Times are as Ceph writes them.
type FilesystemSnapshotScheduleStatusRetention struct {
	// Start is when the schedule's intervals are counted from.
	// +optional
	Start string `json:"start,omitempty"`

	// Created is when the schedule was added.
	// +optional
	Created string `json:"created,omitempty"`

	// First is when the first snapshot was taken.
	// +optional
	First string `json:"first,omitempty"`

	// Last is when the last snapshot was taken.
	// +optional
	Last string `json:"last,omitempty"`

	// LastPruned is when a snapshot was last pruned.
	// +optional
	LastPruned string `json:"last_pruned,omitempty"`

	// CreatedCount is how many snapshots were taken.
	// +optional
	CreatedCount int `json:"created_count,omitempty"`

	// PrunedCount is how many snapshots were pruned.
	// +optional
	PrunedCount int `json:"pruned_count,omitempty"`

	// Active says whether the schedule is run.
	// +optional
	Active bool `json:"active,omitempty"`
}

// Defaults of MetadataServerSpec, as Rook has them.
const (
	// DefaultMDSCacheMemoryLimitFactor is the share of the memory limit for
	// the MDS cache.
	DefaultMDSCacheMemoryLimitFactor = 0.5
	// DefaultMDSCacheMemoryRequestFactor is the share of the memory request
	// for the MDS cache, when there is no limit.
	DefaultMDSCacheMemoryRequestFactor = 0.8
)

// HasPools says whether the spec describes the filesystem's pools. Without,
// the filesystem must exist in Ceph, and only its daemons are looked after.
func (f *CephFilesystem) HasPools() bool {
	return len(f.Spec.DataPools) > 0
}

// MetadataPoolName is the name of the metadata pool in Ceph:
// "<filesystem>-metadata", or its own name with preservePoolNames.
func (f *CephFilesystem) MetadataPoolName() string {
	if f.Spec.PreservePoolNames && f.Spec.MetadataPool.Name != "" {
		return f.Spec.MetadataPool.Name
	}
	return f.Name + "-metadata"
}

// DataPoolNames are the names of the data pools in Ceph, in the order of
// spec.dataPools: "<filesystem>-<name>", "<filesystem>-data<N>" for one
// without a name, or the bare name with preservePoolNames.
func (f *CephFilesystem) DataPoolNames() []string {
	names := make([]string, 0, len(f.Spec.DataPools))
	for i, p := range f.Spec.DataPools {
		switch {
		case p.Name == "":
			names = append(names, f.Name+"-data"+strconv.Itoa(i))
		case f.Spec.PreservePoolNames:
			names = append(names, p.Name)
		default:
			names = append(names, f.Name+"-"+p.Name)
		}
	}
	return names
}

// DaemonCount is the number of MDS daemons: two for each rank, one active and
// one standby, whether or not the standby follows the journal.
func (s *MetadataServerSpec) DaemonCount() int {
	return 2 * int(s.ActiveCount)
}

// CacheMemoryLimit is mds_cache_memory_limit in bytes: a share of the memory
// limit, or of the memory request if there is no limit. It is 0 when neither
// is set: the default of Ceph then holds.
func (s *MetadataServerSpec) CacheMemoryLimit() int64 {
	if limit := s.Resources.Limits.Memory(); !limit.IsZero() {
		return share(limit.Value(), s.CacheMemoryLimitFactor, DefaultMDSCacheMemoryLimitFactor)
	}
	if request := s.Resources.Requests.Memory(); !request.IsZero() {
		return share(request.Value(), s.CacheMemoryRequestFactor, DefaultMDSCacheMemoryRequestFactor)
	}
	return 0
}

func share(bytes int64, factor *float64, byDefault float64) int64 {
	f := byDefault
	if factor != nil {
		f = *factor
	}
	return int64(float64(bytes) * f)
}

func init() { SchemeBuilder.Register(&CephFilesystem{}, &CephFilesystemList{}) }
