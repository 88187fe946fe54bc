package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CephConnectionSpec says how to reach one Ceph cluster.
type CephConnectionSpec struct {
	// Addresses of the monitors, "host:port" or a msgr2 address, in the order in
	// which drivers should try them. At least one; list all of them, since a
	// driver only knows those that stand here. A change is written to the
	// configuration of every client profile that uses this connection; volumes
	// that are mounted already follow the cluster's own monitor map.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.size() > 0)",message="a monitor address is empty: write host:port, for example 10.0.0.1:3300"
	Monitors []string `json:"monitors"`

	// Lets drivers read from the replica nearest to the node. Without it every
	// read goes to the primary OSD. Takes effect for volumes that are mapped or
	// mounted after the change.
	// +optional
	ReadAffinity *ReadAffinitySpec `json:"readAffinity,omitempty"`

	// How many rbd-mirror daemons serve the cluster. The RBD driver divides the
	// mirrored images between them. Without it drivers assume one.
	// +kubebuilder:validation:Minimum=1
	// +optional
	RbdMirrorDaemonCount int `json:"rbdMirrorDaemonCount,omitempty"`
}

// ReadAffinitySpec says where in the CRUSH map a node is.
type ReadAffinitySpec struct {
	// Names of node labels whose values are places in the CRUSH map, for example
	// "topology.kubernetes.io/zone". The part after the slash is taken as the
	// CRUSH type.
	// +kubebuilder:validation:MinItems=1
	CrushLocationLabels []string `json:"crushLocationLabels"`
}

// CephConnectionStatus is what the operator reports on a CephConnection.
type CephConnectionStatus struct {
	CommonStatus `json:",inline"`

	// Ready, or Failed when the connection cannot be used as it stands.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The phase in words.
	// +optional
	Message string `json:"message,omitempty"`

	// How many client profiles use this connection.
	// +optional
	ClientProfiles int32 `json:"clientProfiles,omitempty"`
}

// CephConnection describes how to reach a Ceph cluster. Client profiles of the
// same namespace refer to it by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Profiles",type=integer,JSONPath=`.status.clientProfiles`
// +kubebuilder:printcolumn:name="Monitors",type=string,JSONPath=`.spec.monitors`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephConnection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How to reach the Ceph cluster.
	Spec CephConnectionSpec `json:"spec,omitempty"`
	// What the operator reports.
	Status CephConnectionStatus `json:"status,omitempty"`
}

// CephConnectionList is a list of CephConnections.
//
// +kubebuilder:object:root=true
type CephConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CephConnection `json:"items"`
}
