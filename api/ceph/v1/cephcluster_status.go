package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterState is the state of a cluster in one word, coarser than its phase.
type ClusterState string

const (
	// ClusterStateCreating means that the cluster is being made.
	ClusterStateCreating ClusterState = "Creating"
	// ClusterStateCreated means that the cluster runs.
	ClusterStateCreated ClusterState = "Created"
	// ClusterStateUpdating means that the cluster runs and is being changed.
	ClusterStateUpdating ClusterState = "Updating"
	// ClusterStateConnecting means that the external cluster was not reached yet.
	ClusterStateConnecting ClusterState = "Connecting"
	// ClusterStateConnected means that the external cluster is followed.
	ClusterStateConnected ClusterState = "Connected"
	// ClusterStateError means that the last attempt ended in an error.
	ClusterStateError ClusterState = "Error"
)

// ClusterStatus is what was last seen of a cluster.
type ClusterStatus struct {
	// State is the state in one word: Creating, Created, Updating, Connecting,
	// Connected or Error.
	State ClusterState `json:"state,omitempty"`
	// Phase is the type of the condition that describes the cluster best:
	// Progressing, Ready, Failure, Connecting, Connected, Deleting, ...
	Phase ConditionType `json:"phase,omitempty"`
	// Message is a sentence for a person that belongs to the phase.
	Message string `json:"message,omitempty"`
	// Conditions say more about the phase.
	Conditions []Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the metadata.generation of the last spec that was
	// brought about completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// BlockedBy lists what the cluster waits for, one entry per subject, the most
	// pressing first (kubectl get shows that one); empty when nothing is waited
	// for.
	//
	// +listType=map
	// +listMapKey=subject
	BlockedBy []BlockedBy `json:"blockedBy,omitempty"`
	// Mon is the state of the mons in short.
	Mon *MonStatus `json:"mon,omitempty"`
	// OSD is the state of the OSDs in short.
	OSD *OSDSummary `json:"osd,omitempty"`
	// CephStatus is the health that Ceph reports.
	CephStatus *CephStatus `json:"ceph,omitempty"`
	// Cephx describes the keys of daemons and clients.
	Cephx *ClusterCephxStatus `json:"cephx,omitempty"`
	// CephStorage is about OSDs and their disks.
	CephStorage *CephStorage `json:"storage,omitempty"`
	// CephVersion is the Ceph release that is deployed.
	CephVersion *ClusterVersion `json:"version,omitempty"`
}

// BlockedBy is one thing that the cluster waits for.
type BlockedBy struct {
	// Subject is the part that does not get on, for instance mon-c, osd.5,
	// node/worker-2, upgrade or deletion.
	Subject string `json:"subject"`
	// Reason is one CamelCase word, for instance NotSafeToStop.
	Reason string `json:"reason,omitempty"`
	// Message says what is waited for, and what a person can do about it.
	Message string `json:"message,omitempty"`
	// Since is when the wait began.
	Since metav1.Time `json:"since,omitempty"`
}

// MonStatus is the state of the mons in short.
type MonStatus struct {
	// InQuorum is the number of mons in quorum.
	InQuorum int `json:"inQuorum,omitempty"`
	// Wanted is the number of mons that should be.
	Wanted int `json:"wanted,omitempty"`
	// Summary is both as a person reads them: in quorum / wanted.
	Summary string `json:"summary,omitempty"`
}

// OSDSummary is the state of the OSDs in short.
type OSDSummary struct {
	// Up is the number of OSDs that run.
	Up int `json:"up,omitempty"`
	// In is the number of OSDs that hold or may get data.
	In int `json:"in,omitempty"`
	// Total is the number of OSDs that exist in Ceph.
	Total int `json:"total,omitempty"`
	// Summary is all three as a person reads them: up / in / total.
	Summary string `json:"summary,omitempty"`
}

// CephStatus is the health that Ceph reports.
type CephStatus struct {
	// Health is HEALTH_OK, HEALTH_WARN or HEALTH_ERR.
	Health string `json:"health,omitempty"`
	// Details are the health checks that are not fine, by their code.
	Details map[string]CephHealthMessage `json:"details,omitempty"`
	// LastChecked is when Ceph was last asked, in RFC 3339.
	LastChecked string `json:"lastChecked,omitempty"`
	// LastChanged is when the health last changed, in RFC 3339.
	LastChanged string `json:"lastChanged,omitempty"`
	// PreviousHealth is the health before the last change.
	PreviousHealth string `json:"previousHealth,omitempty"`
	// Capacity is how much the cluster can hold.
	Capacity Capacity `json:"capacity,omitzero"`
	// Versions are the Ceph versions that run, each with a number of daemons.
	Versions *CephDaemonsVersions `json:"versions,omitempty"`
	// FSID is the identity of the Ceph cluster, a UUID.
	FSID string `json:"fsid,omitempty"`
}

// CephHealthMessage is one health check.
type CephHealthMessage struct {
	// Severity is HEALTH_WARN or HEALTH_ERR.
	Severity string `json:"severity"`
	// Message is Ceph's summary of the check.
	Message string `json:"message"`
}

// Capacity is how much a cluster can hold, before copies are counted.
type Capacity struct {
	// TotalBytes is the sum of all OSDs, in bytes.
	TotalBytes uint64 `json:"bytesTotal,omitempty"`
	// UsedBytes is what is used of it, in bytes.
	UsedBytes uint64 `json:"bytesUsed,omitempty"`
	// AvailableBytes is what is left of it, in bytes.
	AvailableBytes uint64 `json:"bytesAvailable,omitempty"`
	// LastUpdated is when these were read, in RFC 3339.
	LastUpdated string `json:"lastUpdated,omitempty"`
}

// CephDaemonsVersions counts daemons by version string, per daemon type.
type CephDaemonsVersions struct {
	// Mon counts mons.
	Mon map[string]int `json:"mon,omitempty"`
	// Mgr counts mgrs.
	Mgr map[string]int `json:"mgr,omitempty"`
	// Osd counts OSDs.
	Osd map[string]int `json:"osd,omitempty"`
	// Rgw counts object gateways.
	Rgw map[string]int `json:"rgw,omitempty"`
	// Mds counts metadata servers.
	Mds map[string]int `json:"mds,omitempty"`
	// RbdMirror counts rbd-mirror daemons.
	RbdMirror map[string]int `json:"rbd-mirror,omitempty"`
	// CephFSMirror counts cephfs-mirror daemons.
	CephFSMirror map[string]int `json:"cephfs-mirror,omitempty"`
	// Overall counts all daemons.
	Overall map[string]int `json:"overall,omitempty"`
}

// ClusterVersion is the Ceph release that is deployed.
type ClusterVersion struct {
	// Image is the container image.
	Image string `json:"image,omitempty"`
	// Version is the Ceph version in the image, for instance 20.2.4-0.
	Version string `json:"version,omitempty"`
}

// ClusterCephxStatus describes the keys of a cluster, by group of users.
type ClusterCephxStatus struct {
	// Admin is the key of client.admin.
	Admin *CephxStatus `json:"admin,omitempty"`
	// Mon is the key that mons share.
	Mon *CephxStatus `json:"mon,omitempty"`
	// Mgr are the keys of the mgrs.
	Mgr *CephxStatus `json:"mgr,omitempty"`
	// OSD are the keys of the OSDs; the oldest one is shown.
	OSD *CephxStatus `json:"osd,omitempty"`
	// CSI are the keys of the CSI drivers.
	CSI *CephxStatusWithKeyCount `json:"csi,omitempty"`
	// RBDMirrorPeer is the key inside bootstrap peer tokens.
	RBDMirrorPeer *CephxStatus `json:"rbdMirrorPeer,omitempty"`
	// CrashCollector is the key of the crash collectors.
	CrashCollector *CephxStatus `json:"crashCollector,omitempty"`
	// CephExporter is the key of the exporters.
	CephExporter *CephxStatus `json:"cephExporter,omitempty"`
}

// CephxStatusWithKeyCount describes a key of which older generations stay valid.
type CephxStatusWithKeyCount struct {
	CephxStatus `json:",inline"`
	// PriorKeyCount is how many older generations are still valid.
	PriorKeyCount uint8 `json:"priorKeyCount,omitempty"`
}

// CephStorage is about OSDs and their disks.
type CephStorage struct {
	// DeviceClasses are the device classes that OSDs have.
	DeviceClasses []DeviceClasses `json:"deviceClasses,omitempty"`
	// OSD is about the stores of OSDs.
	OSD OSDStatus `json:"osd,omitzero"`
	// DeprecatedOSDs are OSDs that should be made anew, as lists of ids by
	// reason.
	DeprecatedOSDs map[string][]int `json:"deprecatedOSDs,omitempty"`
	// Replacements are OSDs whose disk is being replaced now. An entry goes
	// when its OSD is back.
	//
	// +listType=map
	// +listMapKey=id
	Replacements []OSDReplacement `json:"replacements,omitempty"`
}

// DeviceClasses is one device class.
type DeviceClasses struct {
	// Name of the class, for instance hdd.
	Name string `json:"name,omitempty"`
}

// OSDStatus is about the stores of OSDs.
type OSDStatus struct {
	// StoreType counts OSDs by store.
	StoreType map[string]int `json:"storeType,omitempty"`
	// MigrationStatus is how far a migration got.
	MigrationStatus MigrationStatus `json:"migrationStatus,omitzero"`
}

// MigrationStatus is how far a migration got.
type MigrationStatus struct {
	// Pending is the number of OSDs still to be made anew.
	Pending int `json:"pending,omitempty"`
}

// OSDReplacementPhase is a step in the replacement of an OSD's disk.
type OSDReplacementPhase string

const (
	// OSDReplacementAccepted means that the request was checked and holds.
	OSDReplacementAccepted OSDReplacementPhase = "Accepted"
	// OSDReplacementDraining means that data is being copied to other OSDs.
	OSDReplacementDraining OSDReplacementPhase = "Draining"
	// OSDReplacementDestroying means that the OSD is stopped and its slot is being marked
	// as destroyed.
	OSDReplacementDestroying OSDReplacementPhase = "Destroying"
	// OSDReplacementReadyForSwap means that the disk may be pulled and a new one put in.
	OSDReplacementReadyForSwap OSDReplacementPhase = "ReadyForSwap"
	// OSDReplacementProvisioning means that the new disk was seen and becomes the OSD.
	OSDReplacementProvisioning OSDReplacementPhase = "Provisioning"
	// OSDReplacementCancelling means that the request was taken back and the OSD is being
	// brought back.
	OSDReplacementCancelling OSDReplacementPhase = "Cancelling"
	// OSDReplacementAbandoning means that the slot of a destroyed OSD is being given
	// up, as the user has confirmed.
	OSDReplacementAbandoning OSDReplacementPhase = "Abandoning"
	// OSDReplacementRefused means that the request does not hold; the message says why.
	OSDReplacementRefused OSDReplacementPhase = "Refused"
)

// OSDReplacement is an OSD whose disk is being replaced.
type OSDReplacement struct {
	// ID of the OSD.
	ID int `json:"id"`
	// Node is the host that holds the disk.
	Node string `json:"node,omitempty"`
	// Phase is the step that the replacement is in.
	Phase OSDReplacementPhase `json:"phase,omitempty"`
	// Since is when this phase began.
	Since metav1.Time `json:"since,omitempty"`
	// WaitingFor says what must happen before the next phase, and who does it.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Disk is the disk to pull.
	Disk *OSDDisk `json:"disk,omitempty"`
	// Progress is how much of the draining is done, for instance
	// "42% (118 of 281 PGs)".
	Progress string `json:"progress,omitempty"`
}

// OSDDisk tells a person which disk it is.
type OSDDisk struct {
	// Serial number that is printed on the disk.
	Serial string `json:"serial,omitempty"`
	// Model of the disk.
	Model string `json:"model,omitempty"`
	// Path of the disk on the node, a stable one if there is any.
	Path string `json:"path,omitempty"`
	// Slot of the disk in its enclosure, if the node knows it.
	Slot string `json:"slot,omitempty"`
}
