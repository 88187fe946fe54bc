package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephBlockPool is a RADOS pool that is ready for RBD images: the pool, its
// CRUSH rule, its quotas and, if asked for, its mirroring to another cluster.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephbp
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.info.type`
// +kubebuilder:printcolumn:name="FailureDomain",type=string,JSONPath=`.status.info.failureDomain`
// +kubebuilder:printcolumn:name="Replication",type=integer,JSONPath=`.spec.replicated.size`,priority=1
// +kubebuilder:printcolumn:name="EC-CodingChunks",type=integer,JSONPath=`.spec.erasureCoded.codingChunks`,priority=1
// +kubebuilder:printcolumn:name="EC-DataChunks",type=integer,JSONPath=`.spec.erasureCoded.dataChunks`,priority=1
// +kubebuilder:printcolumn:name="Mirroring",type=string,JSONPath=`.status.mirroringStatus.summary.health`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephBlockPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the pool as it should be.
	Spec NamedBlockPoolSpec `json:"spec"`

	// Status is the pool as it was last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status CephBlockPoolStatus `json:"status,omitzero"`
}

// CephBlockPoolList is a list of CephBlockPool.
//
// +kubebuilder:object:root=true
type CephBlockPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephBlockPool `json:"items"`
}

// NamedBlockPoolSpec is a pool and, for the few pools that Ceph itself
// expects under a name no Kubernetes object can have, that name.
type NamedBlockPoolSpec struct {
	// Name takes the place of metadata.name as the pool's name in Ceph. It is
	// for the pools whose names begin with a dot, and for no others. When
	// unset, the pool is called as the object is. A pool cannot be renamed by
	// a later change: a new name is a new pool, and the old one stays.
	// +kubebuilder:validation:Enum=.rgw.root;.nfs;.mgr;.nvmeof
	// +optional
	Name string `json:"name,omitempty"`

	PoolSpec `json:",inline"`
}

// CephBlockPoolStatus is what was last seen of a block pool.
type CephBlockPoolStatus struct {
	// Phase is one word for a person: Progressing, Ready, Failure, Deleting.
	// Programs should read the conditions.
	// +optional
	Phase ConditionType `json:"phase,omitempty"`

	// MirroringStatus is how far the images of the pool are behind, asked of
	// Ceph at the interval of spec.statusCheck.mirror.
	// +optional
	MirroringStatus *MirroringStatusSpec `json:"mirroringStatus,omitempty"`

	// MirroringInfo is which clusters the pool is mirrored with.
	// +optional
	MirroringInfo *MirroringInfoSpec `json:"mirroringInfo,omitempty"`

	// SnapshotScheduleStatus is the list of mirror snapshot schedules that
	// Ceph runs in the pool.
	// +optional
	SnapshotScheduleStatus *SnapshotScheduleStatusSpec `json:"snapshotScheduleStatus,omitempty"`

	// PoolID is the number of the pool in the OSD map. CSI handles contain
	// it, and a mirrored pair of clusters translates it. 0 means not known
	// yet: Ceph numbers pools from 1.
	// +optional
	PoolID int `json:"poolID,omitempty"`

	// Cephx says which key the pool's bootstrap peer token was made with.
	// +optional
	Cephx PeerTokenCephxStatus `json:"cephx,omitzero"`

	// Info holds facts for people and scripts: "type", "failureDomain", and
	// "rbdMirrorBootstrapPeerSecretName", the Secret with the token that the
	// other cluster imports.
	// +optional
	// +nullable
	Info map[string]string `json:"info,omitempty"`

	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions say what is done, what is awaited and what is wrong.
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// PeerTokenCephxStatus is the state of the cephx key inside a bootstrap peer
// token.
type PeerTokenCephxStatus struct {
	// PeerToken is the key of the peer user as it was when the token was last
	// written to its Secret. After a rotation the token must be brought to the
	// other cluster again.
	// +optional
	PeerToken CephxStatus `json:"peerToken,omitzero"`
}

// MirroringStatusSpec is the reply to "rbd mirror pool status", with the time
// it was asked.
type MirroringStatusSpec struct {
	PoolMirroringStatus `json:",inline"`

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

// PoolMirroringStatus is the body of "rbd mirror pool status".
type PoolMirroringStatus struct {
	// Summary counts the images and groups of the pool by their state.
	// +optional
	Summary *PoolMirroringStatusSummary `json:"summary,omitempty"`
}

// PoolMirroringStatusSummary is the "summary" of "rbd mirror pool status".
// Health words are Ceph's: OK, WARNING, ERROR, UNKNOWN.
type PoolMirroringStatusSummary struct {
	// Health is the worst of the daemon, image and group health.
	// +optional
	Health string `json:"health,omitempty"`

	// DaemonHealth is the health of the rbd-mirror daemons that serve the
	// pool; UNKNOWN when there is none.
	// +optional
	DaemonHealth string `json:"daemon_health,omitempty"`

	// ImageHealth is the health of the mirrored images.
	// +optional
	ImageHealth string `json:"image_health,omitempty"`

	// GroupHealth is the health of the mirrored groups, reported by Ceph
	// releases that mirror groups.
	// +optional
	// +nullable
	GroupHealth string `json:"group_health,omitempty"`

	// States counts mirrored images by state, under the name that Ceph uses
	// up to Tentacle.
	// +optional
	// +nullable
	States *MirroringStates `json:"states,omitempty"`

	// ImageStates counts mirrored images by state, under the name of Ceph
	// releases that mirror groups too.
	// +optional
	// +nullable
	ImageStates *MirroringStates `json:"image_states,omitempty"`

	// GroupStates counts mirrored groups by state.
	// +optional
	// +nullable
	GroupStates *MirroringStates `json:"group_states,omitempty"`
}

// MirroringStates counts mirrored things by what their mirroring does now.
type MirroringStates struct {
	// StartingReplay counts those about to apply changes of the other side.
	// +optional
	StartingReplay int `json:"starting_replay,omitempty"`

	// Replaying counts those that apply changes of the other side: the
	// healthy state of a secondary.
	// +optional
	Replaying int `json:"replaying,omitempty"`

	// Syncing counts those in their first full copy.
	// +optional
	Syncing int `json:"syncing,omitempty"`

	// StoppingReplay counts those about to stop, as before a promotion.
	// +optional
	StoppingReplay int `json:"stopping_replay,omitempty"`

	// Stopped counts those that apply nothing: the healthy state of a
	// primary.
	// +optional
	Stopped int `json:"stopped,omitempty"`

	// Unknown counts those of which no daemon reports.
	// +optional
	Unknown int `json:"unknown,omitempty"`

	// Error counts those that need a person, such as a split brain.
	// +optional
	Error int `json:"error,omitempty"`
}

// MirroringInfoSpec is the reply to "rbd mirror pool info", with the time it
// was asked.
type MirroringInfoSpec struct {
	PoolMirroringInfo `json:",inline"`

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

// PoolMirroringInfo is the body of "rbd mirror pool info".
type PoolMirroringInfo struct {
	// Mode is "image", "pool", "init-only" or "disabled", as Ceph has it now.
	// +optional
	Mode string `json:"mode,omitempty"`

	// SiteName is what the other side calls this cluster; the fsid unless it
	// was set.
	// +optional
	SiteName string `json:"site_name,omitempty"`

	// Peers are the clusters on the other side.
	// +optional
	Peers []PeersSpec `json:"peers,omitempty"`
}

// PeersSpec is one cluster on the other side of a mirrored pool.
type PeersSpec struct {
	// UUID identifies the peer within the pool.
	// +optional
	UUID string `json:"uuid,omitempty"`

	// Direction is "rx-tx" (both ways), "rx-only" or "tx-only".
	// +optional
	Direction string `json:"direction,omitempty"`

	// SiteName is the other cluster's site name.
	// +optional
	SiteName string `json:"site_name,omitempty"`

	// MirrorUUID identifies the other cluster's mirroring.
	// +optional
	MirrorUUID string `json:"mirror_uuid,omitempty"`

	// ClientName is the cephx user by which the other cluster is reached.
	// +optional
	ClientName string `json:"client_name,omitempty"`
}

// SnapshotScheduleStatusSpec is the list of mirror snapshot schedules of a
// pool, with the time it was asked.
type SnapshotScheduleStatusSpec struct {
	// SnapshotSchedules are the schedules that Ceph holds, also those that
	// somebody added by hand.
	// +optional
	// +nullable
	SnapshotSchedules []SnapshotSchedulesSpec `json:"snapshotSchedules,omitempty"`

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

// SnapshotSchedulesSpec is the schedules of one level: a pool, a rados
// namespace of it, or one image.
type SnapshotSchedulesSpec struct {
	// Pool is the pool's name.
	// +optional
	Pool string `json:"pool,omitempty"`

	// Namespace is the rados namespace; empty for the pool's own.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Image is the image; "-" or empty when the schedule is for all images.
	// +optional
	Image string `json:"image,omitempty"`

	// Items are the schedules of this level.
	// +optional
	Items []SnapshotSchedule `json:"items,omitempty"`
}

// SnapshotSchedule is one mirror snapshot schedule as Ceph reports it.
type SnapshotSchedule struct {
	// Interval is the time between two snapshots: a number and m, h or d.
	// +optional
	Interval string `json:"interval,omitempty"`

	// StartTime is the time of day the intervals are counted from.
	// +optional
	StartTime string `json:"start_time,omitempty"`
}

// PoolName is the name of the pool in Ceph: spec.name when it is set, the
// object's name otherwise.
func (p *CephBlockPool) PoolName() string {
	if p.Spec.Name != "" {
		return p.Spec.Name
	}
	return p.Name
}

func init() { SchemeBuilder.Register(&CephBlockPool{}, &CephBlockPoolList{}) }
