package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephRBDMirror runs rbd-mirror daemons, which fetch the changes of mirrored
// images from other clusters. Both clusters of a pair need them, unless data
// only ever flows one way.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephrbdm
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Daemons",type=integer,JSONPath=`.spec.count`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephRBDMirror struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the daemons as they should be.
	Spec RBDMirroringSpec `json:"spec"`

	// Status is the daemons as they were last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status RBDMirrorStatus `json:"status,omitzero"`
}

// CephRBDMirrorList is a list of CephRBDMirror.
//
// +kubebuilder:object:root=true
type CephRBDMirrorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephRBDMirror `json:"items"`
}

// RBDMirroringSpec is the rbd-mirror daemons of a cluster.
type RBDMirroringSpec struct {
	// Count is the number of daemons, 1 to 100. They share the images among
	// them; more than one matters when one cannot keep up, or for a quick
	// takeover.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self <= 100",message="count must be from 1 to 100 rbd-mirror daemons"
	Count int `json:"count"`

	// Peers is where the tokens of other clusters used to be named.
	//
	// Deprecated: peers belong to a pool. Use mirroring.peers of the
	// CephBlockPool.
	// +optional
	// +nullable
	Peers MirroringPeerSpec `json:"peers,omitzero"`

	// Placement is where the pods may run. It adds to the "all" placement of
	// the CephCluster.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Placement Placement `json:"placement,omitzero"`

	// Annotations are put on the pods. A change restarts them.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Annotations Annotations `json:"annotations,omitempty"`

	// Labels are put on the pods. A change restarts them.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Labels Labels `json:"labels,omitempty"`

	// Resources of each daemon's container.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// PriorityClassName is the priority class of the pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// RBDMirrorStatus is what was last seen of the daemons.
type RBDMirrorStatus struct {
	Status `json:",inline"`

	// Cephx says which key the daemons run with.
	// +optional
	Cephx LocalCephxStatus `json:"cephx,omitzero"`
}

func init() { SchemeBuilder.Register(&CephRBDMirror{}, &CephRBDMirrorList{}) }
