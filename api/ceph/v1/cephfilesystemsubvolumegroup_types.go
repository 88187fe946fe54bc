package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephFilesystemSubVolumeGroup is a directory of a CephFS that holds
// subvolumes (CSI volumes, for example) and gives them a common quota, data
// pool and place among the MDS ranks.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephfssvg;cephsvg
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Filesystem",type=string,JSONPath=`.spec.filesystemName`
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.spec.quota`
// +kubebuilder:printcolumn:name="Pinning",type=string,JSONPath=`.status.info.pinning`,priority=1
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.status.info.clusterID`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephFilesystemSubVolumeGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the group as it should be.
	Spec CephFilesystemSubVolumeGroupSpec `json:"spec"`

	// Status is the group as it was last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status CephFilesystemSubVolumeGroupStatus `json:"status,omitzero"`
}

// CephFilesystemSubVolumeGroupList is a list of CephFilesystemSubVolumeGroup.
//
// +kubebuilder:object:root=true
type CephFilesystemSubVolumeGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephFilesystemSubVolumeGroup `json:"items"`
}

// CephFilesystemSubVolumeGroupSpec says which group of which filesystem.
type CephFilesystemSubVolumeGroupSpec struct {
	// Name is the name of the group in Ceph; metadata.name when unset. Two
	// objects must not name the same group of a filesystem.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="name cannot change after creation: create another CephFilesystemSubVolumeGroup instead"
	// +kubebuilder:validation:XValidation:rule="self == '' || (self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$') && self != '.' && self != '..')",message="name must be 1 to 253 letters, digits, '.', '_' or '-', not begin with '-', and not be '.' or '..'"
	Name string `json:"name,omitempty"`

	// FilesystemName is the filesystem: the metadata.name of a CephFilesystem
	// in the same Kubernetes namespace, or the name of a filesystem of an
	// external cluster.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="filesystemName cannot change after creation: create another CephFilesystemSubVolumeGroup instead"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="filesystemName must be the name of a filesystem: 1 to 253 letters, digits, '.', '_' or '-', not beginning with '-'"
	FilesystemName string `json:"filesystemName"`

	// Pinning spreads the group over the active MDS ranks. At most one of its
	// fields may be set; with none, the group is pinned "distributed: 1".
	// +optional
	Pinning CephFilesystemSubVolumeGroupSpecPinning `json:"pinning,omitzero"`

	// Quota bounds the bytes of the whole group, as a Kubernetes quantity
	// ("100Gi"). Without it there is no bound. It may be lowered at any time,
	// also below what is in use: writes then fail until space is freed.
	// Removing the field removes the bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : !self.startsWith('-')",message="quota must not be negative: give a size such as 100Gi, or remove the field for no bound"
	Quota *resource.Quantity `json:"quota,omitempty"`

	// DataPoolName is the data pool for new files of the group: the full name
	// in Ceph ("myfs-data1"), not the short name in the CephFilesystem. The
	// filesystem's first data pool when unset. A change moves no data: it
	// holds for files written later.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="dataPoolName must be the name of a pool in Ceph: 1 to 253 letters, digits, '.', '_' or '-', not beginning with '-'"
	DataPoolName string `json:"dataPoolName,omitempty"`

	// ClusterID is the "clusterID" of StorageClasses that put volumes here.
	// When unset it is the hash that Method ClusterID computes from the
	// Kubernetes namespace, the filesystem and the group; status.info shows
	// it. Volumes hold the value for their whole life.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9_-]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID cannot change after creation: volumes hold it in their handles"
	ClusterID string `json:"clusterID,omitempty"`

	// CSIMetadataRadosNamespace is the RADOS namespace of the metadata pool
	// in which ceph-csi keeps its journal for this group; "csi" when unset.
	// Groups that share a filesystem and belong to different Kubernetes
	// clusters need different ones.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="csiMetadataRadosNamespace cannot change after creation: the CSI journal is kept there"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]*$')",message="csiMetadataRadosNamespace must be letters, digits, '.', '_' or '-', and not begin with '-'"
	CSIMetadataRadosNamespace string `json:"csiMetadataRadosNamespace,omitempty"`
}

// CephFilesystemSubVolumeGroupSpecPinning is how the directories of a group
// are given to MDS ranks.
//
// +kubebuilder:validation:XValidation:rule="(has(self.export) && !has(self.distributed) && !has(self.random)) || (!has(self.export) && has(self.distributed) && !has(self.random)) || (!has(self.export) && !has(self.distributed) && has(self.random)) || (!has(self.export) && !has(self.distributed) && !has(self.random))",message="set at most one of export, distributed and random"
type CephFilesystemSubVolumeGroupSpecPinning struct {
	// Export gives the whole group to this rank; -1 takes the pin away. A
	// rank that is not active (see activeCount of the filesystem) has no
	// effect until it is.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=256
	Export *int `json:"export,omitempty"`

	// Distributed, when 1, spreads the group's direct children over all
	// ranks by a hash of their name; 0 turns it off.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Distributed *int `json:"distributed,omitempty"`

	// Random is the chance, from 0.0 to 1.0, by which a directory loaded from
	// disk is pinned to a random rank. Ceph recommends values up to 0.01.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0.0
	// +kubebuilder:validation:Maximum=1.0
	Random *float64 `json:"random,omitempty"`
}

// CephFilesystemSubVolumeGroupStatus is what was last seen of a group.
type CephFilesystemSubVolumeGroupStatus struct {
	// Phase is one word for a person: Progressing, Ready, Failure, Deleting.
	// +optional
	Phase ConditionType `json:"phase,omitempty"`

	// Info holds facts for people and scripts: "clusterID" is the value for
	// StorageClasses, "pinning" the pin in force.
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

// GroupName is the name of the group in Ceph: spec.name when it is set, the
// object's name otherwise.
func (g *CephFilesystemSubVolumeGroup) GroupName() string {
	if g.Spec.Name != "" {
		return g.Spec.Name
	}
	return g.Name
}

// ClusterID is the id under which CSI knows this group: spec.clusterID, or
// the hash of "<kubernetes namespace>-<filesystem>-file-<group>". Handles of
// existing volumes hold it, so its making can never change.
func (g *CephFilesystemSubVolumeGroup) ClusterID() string {
	if g.Spec.ClusterID != "" {
		return g.Spec.ClusterID
	}
	return clusterIDHash(g.Namespace + "-" + g.Spec.FilesystemName + "-file-" + g.GroupName())
}

func init() {
	SchemeBuilder.Register(&CephFilesystemSubVolumeGroup{}, &CephFilesystemSubVolumeGroupList{})
}
