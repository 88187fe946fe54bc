package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephFilesystemMirror runs the cephfs-mirror daemon, which sends snapshots
// of the filesystems that ask for it (spec.mirroring of CephFilesystem) to
// other clusters. One daemon serves all filesystems of a cluster.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephfsm
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephFilesystemMirror struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the daemon as it should be.
	Spec FilesystemMirroringSpec `json:"spec"`

	// Status is the daemon as it was last seen.
	// +optional
	Status FileMirrorStatus `json:"status,omitzero"`
}

// CephFilesystemMirrorList is a list of CephFilesystemMirror.
//
// +kubebuilder:object:root=true
type CephFilesystemMirrorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephFilesystemMirror `json:"items"`
}

// FilesystemMirroringSpec is the cephfs-mirror daemon. It may be empty.
type FilesystemMirroringSpec struct {
	// Placement is where the pod may run. It adds to the "all" placement of
	// the CephCluster.
	// +optional
	// +nullable
	Placement Placement `json:"placement,omitzero"`

	// Annotations are put on the pod. A change restarts it.
	// +optional
	// +nullable
	Annotations Annotations `json:"annotations,omitempty"`

	// Labels are put on the pod. A change restarts it.
	// +optional
	// +nullable
	Labels Labels `json:"labels,omitempty"`

	// Resources of the daemon's container.
	// +optional
	// +nullable
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// PriorityClassName is the priority class of the pod.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// FileMirrorStatus is what was last seen of the daemon.
type FileMirrorStatus struct {
	Status `json:",inline"`

	// Cephx says which key the daemon runs with.
	// +optional
	Cephx LocalCephxStatus `json:"cephx,omitzero"`
}

func init() { SchemeBuilder.Register(&CephFilesystemMirror{}, &CephFilesystemMirrorList{}) }
