package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ImplicitRadosNamespace as spec.name of a CephBlockPoolRadosNamespace
// means the namespace without a name that every pool has.
const ImplicitRadosNamespace = "<implicit>"

// CephBlockPoolRadosNamespace is a RADOS namespace in a block pool: a way to
// give a tenant a share of a pool that has its own images and its own cephx
// caps, without PGs of its own.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephrns;cephbprns
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="BlockPool",type=string,JSONPath=`.spec.blockPoolName`
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.status.info.clusterID`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephBlockPoolRadosNamespace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the namespace as it should be.
	Spec CephBlockPoolRadosNamespaceSpec `json:"spec"`

	// Status is the namespace as it was last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status CephBlockPoolRadosNamespaceStatus `json:"status,omitzero"`
}

// CephBlockPoolRadosNamespaceList is a list of CephBlockPoolRadosNamespace.
//
// +kubebuilder:object:root=true
type CephBlockPoolRadosNamespaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephBlockPoolRadosNamespace `json:"items"`
}

// CephBlockPoolRadosNamespaceSpec says which namespace of which pool.
type CephBlockPoolRadosNamespaceSpec struct {
	// Name is the name of the namespace in Ceph; metadata.name when unset.
	// The word "<implicit>" stands for the pool's namespace without a name:
	// nothing is then created or deleted in Ceph, and only the CSI client
	// profile is made. Two objects may name the same namespace; its data is
	// touched only when the last of them is deleted.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="name cannot change after creation: create another CephBlockPoolRadosNamespace instead"
	// +kubebuilder:validation:XValidation:rule="self == '' || self == '<implicit>' || self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="name must be 1 to 253 letters, digits, '.', '_' or '-', and not begin with '-'; or '<implicit>' for the namespace without a name"
	Name string `json:"name,omitempty"`

	// BlockPoolName is the pool: the metadata.name of a CephBlockPool in the
	// same Kubernetes namespace. The rados namespace is made once that pool
	// is Ready.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="blockPoolName cannot change after creation: create another CephBlockPoolRadosNamespace instead"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="blockPoolName must be the name of a CephBlockPool: 1 to 253 letters, digits, '.', '_' or '-', not beginning with '-'"
	BlockPoolName string `json:"blockPoolName"`

	// Mirroring mirrors this namespace. The pool must have mirroring enabled;
	// with the pool's mode "init-only", only the namespaces that ask for it
	// are mirrored. Removing the block turns mirroring of the namespace off.
	// +optional
	Mirroring *RadosNamespaceMirroring `json:"mirroring,omitempty"`

	// ClusterID is the "clusterID" of StorageClasses that put images here.
	// When unset it is the hash that Method ClusterID computes from the
	// Kubernetes namespace, the pool and the rados namespace; status.info
	// shows it. Volumes hold the value for their whole life.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9_-]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID cannot change after creation: volumes hold it in their handles"
	ClusterID string `json:"clusterID,omitempty"`
}

// RadosNamespaceMirroring is how the images of a rados namespace are mirrored.
type RadosNamespaceMirroring struct {
	// Mode "image" mirrors the images for which mirroring was enabled one by
	// one; "pool" mirrors every image that has journaling. The empty word is
	// taken as "image".
	// +kubebuilder:validation:Enum="";pool;image
	Mode RadosNamespaceMirroringMode `json:"mode"`

	// RemoteNamespace is the namespace on the other cluster; the same name as
	// here when unset. Changing it needs mirroring to be turned off first.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || self == '<implicit>' || self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="remoteNamespace must be 1 to 253 letters, digits, '.', '_' or '-', and not begin with '-'"
	RemoteNamespace *string `json:"remoteNamespace,omitempty"`

	// SnapshotSchedules are when mirror snapshots of all images here are
	// taken; they matter for mode "image". A schedule that is removed here is
	// removed from Ceph.
	// +optional
	SnapshotSchedules []SnapshotScheduleSpec `json:"snapshotSchedules,omitempty"`
}

// RadosNamespaceMirroringMode is the unit in which mirroring is turned on.
type RadosNamespaceMirroringMode string

const (
	// RadosNamespaceMirroringModePool mirrors every image with journaling.
	RadosNamespaceMirroringModePool RadosNamespaceMirroringMode = "pool"
	// RadosNamespaceMirroringModeImage mirrors the images that ask for it.
	RadosNamespaceMirroringModeImage RadosNamespaceMirroringMode = "image"
)

// CephBlockPoolRadosNamespaceStatus is what was last seen of a namespace.
type CephBlockPoolRadosNamespaceStatus struct {
	// Phase is one word for a person: Progressing, Ready, Failure, Deleting.
	// +optional
	Phase ConditionType `json:"phase,omitempty"`

	// Info holds facts for people and scripts; "clusterID" is the value for
	// StorageClasses.
	// +optional
	// +nullable
	Info map[string]string `json:"info,omitempty"`

	// MirroringStatus is how far the images of the namespace are behind.
	// +optional
	MirroringStatus *MirroringStatusSpec `json:"mirroringStatus,omitempty"`

	// MirroringInfo is which clusters the namespace is mirrored with.
	// +optional
	MirroringInfo *MirroringInfoSpec `json:"mirroringInfo,omitempty"`

	// SnapshotScheduleStatus is the list of mirror snapshot schedules that
	// Ceph runs in the namespace.
	// +optional
	SnapshotScheduleStatus *SnapshotScheduleStatusSpec `json:"snapshotScheduleStatus,omitempty"`

	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions say what is done, what is awaited and what is wrong.
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// NameOrImplicit is the name as the user gave it: spec.name, or the object's
// name; possibly ImplicitRadosNamespace.
func (n *CephBlockPoolRadosNamespace) NameOrImplicit() string {
	if n.Spec.Name != "" {
		return n.Spec.Name
	}
	return n.Name
}

// RadosNamespace is the name of the namespace in Ceph. It is empty for the
// namespace without a name.
func (n *CephBlockPoolRadosNamespace) RadosNamespace() string {
	if n.IsImplicit() {
		return ""
	}
	return n.NameOrImplicit()
}

// IsImplicit says whether the object stands for the namespace without a name,
// which Ceph neither creates nor deletes.
func (n *CephBlockPoolRadosNamespace) IsImplicit() bool {
	return n.Spec.Name == ImplicitRadosNamespace
}

// ClusterID is the id under which CSI knows this namespace: spec.clusterID,
// or the hash of "<kubernetes namespace>-<pool>-block-<rados namespace>".
// Handles of existing volumes hold it, so its making can never change.
func (n *CephBlockPoolRadosNamespace) ClusterID() string {
	if n.Spec.ClusterID != "" {
		return n.Spec.ClusterID
	}
	return clusterIDHash(n.Namespace + "-" + n.Spec.BlockPoolName + "-block-" + n.NameOrImplicit())
}

func init() {
	SchemeBuilder.Register(&CephBlockPoolRadosNamespace{}, &CephBlockPoolRadosNamespaceList{})
}
