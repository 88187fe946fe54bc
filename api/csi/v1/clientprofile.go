package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClientProfileFinalizer keeps a ClientProfile until its record is out of the
// drivers' configuration and no ClientProfileReplication refers to it. The
// domain (.com) is the one that ceph-csi-operator uses.
const ClientProfileFinalizer = "csi.ceph.com/cleanup"

// Phases of a ClientProfile.
const (
	// ClientProfilePhaseReady: the record of the profile is in config.json.
	ClientProfilePhaseReady = "Ready"
	// ClientProfilePhaseFailed: it is not, or the profile cannot be deleted; the
	// message says why.
	ClientProfilePhaseFailed = "Failed"
	// ClientProfilePhasePending: the operator has not come to it yet.
	ClientProfilePhasePending = "Pending"
)

// ClientProfileSpec says how drivers use one Ceph cluster.
type ClientProfileSpec struct {
	// The CephConnection, in the same namespace, that tells where the Ceph cluster
	// is. It may be changed; drivers then use the other connection for every new
	// operation.
	// +kubebuilder:validation:XValidation:rule="self.name != \"\"",message="cephConnectionRef.name must not be empty: write the name of a CephConnection of this namespace"
	CephConnectionRef corev1.LocalObjectReference `json:"cephConnectionRef"`

	// Settings for CephFS volumes. Without it the drivers' own defaults apply.
	// +optional
	CephFs *CephFsConfigSpec `json:"cephFs,omitempty"`

	// Settings for RBD volumes. Without it the drivers' own defaults apply.
	// +optional
	Rbd *RbdConfigSpec `json:"rbd,omitempty"`

	// Settings for NFS exports. There are none at present.
	// +optional
	Nfs *NfsConfigSpec `json:"nfs,omitempty"`

	// Settings for volumes served over NVMe-oF. Without it the drivers' own
	// defaults apply.
	// +optional
	Nvmeof *NvmeofConfigSpec `json:"nvmeof,omitempty"`
}

// CephFsConfigSpec holds the settings of a profile for CephFS.
type CephFsConfigSpec struct {
	// The subvolume group that holds the volumes of this profile. Default of the
	// driver: "csi". A change applies to new volumes only, since the drivers look
	// for existing ones where the profile points to: change it only while there
	// are no volumes.
	// +optional
	SubVolumeGroup string `json:"subVolumeGroup,omitempty"`

	// The RADOS namespace of the metadata pool in which the driver keeps its
	// journal. Default of the driver: "csi". It cannot be changed: the driver
	// would no longer find its volumes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cephFs.radosNamespace is immutable: the driver would lose the journal of the existing volumes; create another ClientProfile"
	// +optional
	RadosNamespace *string `json:"radosNamespace,omitempty"`

	// Options for mounts through the kernel, name to value; an empty value is an
	// option without one, such as "noatime". Added to those of the StorageClass.
	// Takes effect at the next mount.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() > 0)",message="kernelMountOptions: the name of a mount option must not be empty"
	// +optional
	KernelMountOptions map[string]string `json:"kernelMountOptions,omitempty"`

	// The same for mounts through ceph-fuse.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() > 0)",message="fuseMountOptions: the name of a mount option must not be empty"
	// +optional
	FuseMountOptions map[string]string `json:"fuseMountOptions,omitempty"`

	// Secrets with Ceph users that the drivers need where no StorageClass tells
	// them one.
	// +optional
	CephCsiSecrets *CephCsiSecretsSpec `json:"cephCsiSecrets,omitempty"`
}

// RbdConfigSpec holds the settings of a profile for RBD.
type RbdConfigSpec struct {
	// The RADOS namespace, in each pool, that holds the images of this profile.
	// Empty or absent is the default namespace. It cannot be changed: the driver
	// would no longer find its images.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="rbd.radosNamespace is immutable: the driver would lose the existing images; create another ClientProfile"
	// +optional
	RadosNamespace *string `json:"radosNamespace,omitempty"`

	// Secrets with Ceph users that the drivers need where no StorageClass tells
	// them one.
	// +optional
	CephCsiSecrets *CephCsiSecretsSpec `json:"cephCsiSecrets,omitempty"`
}

// NfsConfigSpec holds the settings of a profile for NFS: none at present.
type NfsConfigSpec struct{}

// NvmeofConfigSpec holds the settings of a profile for NVMe-oF.
type NvmeofConfigSpec struct {
	// The RADOS namespace, in each pool, that holds the images behind the NVMe
	// namespaces. Empty or absent is the default namespace. It cannot be changed:
	// the driver would no longer find its images.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nvmeof.radosNamespace is immutable: the driver would lose the existing images; create another ClientProfile"
	// +optional
	RadosNamespace *string `json:"radosNamespace,omitempty"`

	// Secrets with Ceph users that the drivers need where no StorageClass tells
	// them one.
	// +optional
	CephCsiSecrets *CephCsiSecretsSpec `json:"cephCsiSecrets,omitempty"`
}

// CephCsiSecretsSpec names Secrets with a Ceph user (keys userID and userKey).
type CephCsiSecretsSpec struct {
	// The user of the controller plugin for publishing volumes, which includes
	// fencing a lost node off. Written to the drivers' configuration for CephFS,
	// RBD and NVMe-oF.
	// +optional
	ControllerPublishSecret corev1.SecretReference `json:"controllerPublishSecret,omitempty"`

	// The user of the node plugin for publishing volumes. Only the RBD driver
	// reads it; for CephFS and NVMe-oF it is accepted and has no effect.
	// +optional
	NodePublishSecret corev1.SecretReference `json:"nodePublishSecret,omitempty"`
}

// ClientProfileStatus is what the operator reports on a ClientProfile.
type ClientProfileStatus struct {
	CommonStatus `json:",inline"`

	// Ready, Failed or Pending.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The phase in words.
	// +optional
	Message string `json:"message,omitempty"`

	// The ClientProfileReplication whose destination is published with this
	// profile; empty when there is none.
	// +optional
	ActiveReplication string `json:"activeReplication,omitempty"`

	// Since when the drivers' configuration is as this object asks for. Absent while
	// it is not.
	// +optional
	Published *Published `json:"published,omitempty"`
}

// ClientProfile is one way of using a Ceph cluster, under a name that volumes
// carry: the name of the profile is the clusterID in StorageClasses and in the
// handle of every volume. The drivers of the same namespace see it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Connection",type=string,JSONPath=`.spec.cephConnectionRef.name`
// +kubebuilder:printcolumn:name="Replication",type=string,JSONPath=`.status.activeReplication`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClientProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How drivers use the Ceph cluster.
	Spec ClientProfileSpec `json:"spec,omitempty"`
	// What the operator reports.
	Status ClientProfileStatus `json:"status,omitempty"`
}

// ClientProfileList is a list of ClientProfiles.
//
// +kubebuilder:object:root=true
type ClientProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClientProfile `json:"items"`
}
