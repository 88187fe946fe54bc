package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClientProfileMappingSpec lists pairs of client profiles.
type ClientProfileMappingSpec struct {
	// The pairs. Every mapping object of the namespace is written into one file
	// for the drivers; the order of the pairs is kept, and the first that leads to
	// an existing volume wins. A change reaches the drivers within about two
	// minutes.
	Mappings []MappingsSpec `json:"mappings"`
}

// MappingsSpec says that volumes made under one profile are found under another.
type MappingsSpec struct {
	// One of the two profiles. The pair works in both directions.
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="localClientProfile must not be empty: write the name of a client profile"
	LocalClientProfile string `json:"localClientProfile"`

	// The other one.
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="remoteClientProfile must not be empty: write the name of a client profile"
	RemoteClientProfile string `json:"remoteClientProfile"`

	// Pairs of pool ids: the id in the cluster of the first profile and the id of
	// the same pool in the cluster of the second, both as decimal strings, for
	// example ["1", "4"]. The RBD driver needs a pair for every pool, even where
	// both ids are equal: without one the profile pair is never used for that
	// pool.
	// +optional
	BlockPoolIdMapping []BlockPoolIDPair `json:"blockPoolIdMapping,omitempty"`
}

// BlockPoolIDPair is two pool ids, local and remote.
//
// +kubebuilder:validation:MinItems=2
// +kubebuilder:validation:MaxItems=2
// +kubebuilder:validation:XValidation:rule="int(self[0]) > 0 && int(self[1]) > 0",message="blockPoolIdMapping: each pair must hold two pool ids, decimal numbers from 1 to 9223372036854775807, for example [\"1\", \"4\"]; `ceph osd pool ls detail` prints them"
type BlockPoolIDPair []string

// ClientProfileMappingStatus is what the operator reports on a
// ClientProfileMapping.
type ClientProfileMappingStatus struct {
	CommonStatus `json:",inline"`

	// Ready, or Failed when the mapping could not be written or holds pairs that
	// contradict each other.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The phase in words.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClientProfileMapping lets drivers find volumes whose handle carries the name
// and the pool id of a cluster that is no longer there, as after a failover. It
// must stay for as long as any PersistentVolume carries such a handle. For
// finding destinations before a failover see ClientProfileReplication.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClientProfileMapping struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The pairs of profiles.
	Spec ClientProfileMappingSpec `json:"spec,omitempty"`
	// What the operator reports.
	Status ClientProfileMappingStatus `json:"status,omitempty"`
}

// ClientProfileMappingList is a list of ClientProfileMappings.
//
// +kubebuilder:object:root=true
type ClientProfileMappingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClientProfileMapping `json:"items"`
}
