package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Phases of a ClientProfileReplication.
const (
	// ClientProfileReplicationPhaseReady: this object is the one whose
	// destination is published for its local profile.
	ClientProfileReplicationPhaseReady = "Ready"
	// ClientProfileReplicationPhaseRejected: it is not, and the message says why.
	ClientProfileReplicationPhaseRejected = "Rejected"
	// ClientProfileReplicationPhasePending: the operator has not come to it yet.
	ClientProfileReplicationPhasePending = "Pending"
)

// ClientProfileReplicationSpec says where the volumes of one profile are
// replicated to.
type ClientProfileReplicationSpec struct {
	// The ClientProfile of this namespace whose volumes are replicated. One
	// ClientProfileReplication per profile is in effect, the oldest; others for
	// the same profile are rejected until it goes.
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="localClientProfile must not be empty: write the name of a ClientProfile of this namespace"
	LocalClientProfile string `json:"localClientProfile"`

	// The name of the client profile in the destination cluster. It becomes part
	// of the handle of the destination volume, which leaves 64 bytes for it. It
	// may equal localClientProfile: two sites often use the same name. A change
	// applies to requests made after the drivers have seen it; handles that
	// an orchestrator fetched before are not corrected.
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="remoteClientProfile must not be empty: write the name of the client profile in the destination cluster"
	// +kubebuilder:validation:XValidation:rule="self.size() <= 64",message="remoteClientProfile must not be longer than 64 bytes: it becomes part of a volume handle, which can hold no more; use a shorter profile name in the destination cluster"
	RemoteClientProfile string `json:"remoteClientProfile"`

	// What differs for RBD. Without it, pools have the same id in both clusters.
	// +optional
	RBD *RBDReplicationSpec `json:"rbd,omitempty"`
}

// RBDReplicationSpec holds what differs for RBD in the destination cluster.
type RBDReplicationSpec struct {
	// The id, in the destination cluster, of each mirrored pool. Mirrored pools
	// carry the same name in both clusters but may differ in id. A pool that is
	// not listed is taken to have the same id on both sides, so list every
	// mirrored pool; a pool may be listed once.
	// +optional
	PoolMapping []PoolMappingSpec `json:"poolMapping,omitempty"`
}

// PoolMappingSpec gives the destination of one pool.
type PoolMappingSpec struct {
	// The name of the pool, the same in both clusters.
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="poolMapping[].name must not be empty: write the name of the mirrored pool"
	Name string `json:"name"`

	// The id of the pool in the destination cluster: a decimal number from 1 to
	// 9223372036854775807, as a string, for example "5". `ceph osd pool ls detail`
	// prints it.
	// +kubebuilder:validation:XValidation:rule="int(self) > 0 && !self.startsWith('0') && !self.startsWith('+')",message="poolMapping[].remoteID must be the id of a pool: a decimal number from 1 to 9223372036854775807 without sign, spaces or leading zeros, written as a string, for example \"5\""
	RemoteID string `json:"remoteID"`
}

// ClientProfileReplicationStatus is what the operator reports on a
// ClientProfileReplication.
type ClientProfileReplicationStatus struct {
	CommonStatus `json:",inline"`

	// Ready when this object's destination is published, Rejected when it is not,
	// Pending while the operator has not decided.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The phase in words: "accepted", or why the object was rejected.
	// +optional
	Message string `json:"message,omitempty"`

	// Since when the drivers' configuration is as this object asks for. Absent while
	// it is not.
	// +optional
	Published *Published `json:"published,omitempty"`
}

// ClientProfileReplication tells where volumes of a client profile are found in
// the cluster that they are replicated to. Drivers answer the question for the
// destination of a volume with it, before or during a failover. Each of the two
// clusters holds the object for its own direction.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.spec.localClientProfile`
// +kubebuilder:printcolumn:name="Remote",type=string,JSONPath=`.spec.remoteClientProfile`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClientProfileReplication struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Where the volumes of the profile are replicated to.
	// +kubebuilder:validation:Required
	Spec ClientProfileReplicationSpec `json:"spec"`
	// What the operator reports.
	Status ClientProfileReplicationStatus `json:"status,omitempty"`
}

// ClientProfileReplicationList is a list of ClientProfileReplications.
//
// +kubebuilder:object:root=true
type ClientProfileReplicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClientProfileReplication `json:"items"`
}
