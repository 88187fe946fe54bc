package v1alpha1

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectBucketPhase is how far a bucket has come.
type ObjectBucketPhase string

// Phases of an ObjectBucket.
const (
	ObjectBucketBound    ObjectBucketPhase = "Bound"
	ObjectBucketReleased ObjectBucketPhase = "Released"
	ObjectBucketFailed   ObjectBucketPhase = "Failed"
)

// ObjectBucketSpec describes a bucket that was made for a claim.
type ObjectBucketSpec struct {
	// The StorageClass of the claim.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`

	// What becomes of the bucket when its claim goes: Delete or Retain. Taken from
	// the StorageClass when the bucket is made.
	// +optional
	ReclaimPolicy *corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// The claim that this bucket answers.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	// +optional
	ClaimRef *corev1.ObjectReference `json:"claimRef,omitempty"`

	// Where the bucket is.
	// +nullable
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`

	// Always empty: keys are in the Secret of the claim and nowhere else. The
	// field exists since older manifests carry it.
	// +kubebuilder:validation:Type=object
	// +nullable
	// +optional
	Authentication Authentication `json:"authentication,omitempty"`

	// What the operator must know to delete the bucket later, for example the
	// user that was made for it.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	// +optional
	AdditionalState map[string]string `json:"additionalState,omitempty"`
}

// Endpoint says where a bucket is.
type Endpoint struct {
	// Host name or address of the object store.
	// +optional
	BucketHost string `json:"bucketHost,omitempty"`

	// TCP port of the object store.
	// +optional
	BucketPort int32 `json:"bucketPort,omitempty"`

	// Name of the bucket.
	// +optional
	BucketName string `json:"bucketName,omitempty"`

	// Region, as S3 clients want it.
	// +optional
	Region string `json:"region,omitempty"`

	// Part of a region; not used by Ceph.
	// +optional
	SubRegion string `json:"subRegion,omitempty"`

	// Settings of the bucket, as the claim gave them.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	// +optional
	AdditionalConfig map[string]string `json:"additionalConfig,omitempty"`
}

// Authentication is an object of which nothing is kept: the API server prunes
// what is in it, and so does this type, so that no key can travel in an
// ObjectBucket. It is a list in Go because the schema that users know describes
// items below an object. After decoding it is always nil.
//
// +kubebuilder:validation:Type=object
type Authentication []AuthenticationItem

// AuthenticationItem holds nothing.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AuthenticationItem struct{}

// UnmarshalJSON accepts an object or null and keeps nothing of it.
func (a *Authentication) UnmarshalJSON(raw []byte) error {
	*a = nil
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && (raw[0] == '{' || string(raw) == "null") {
		return nil
	}
	return fmt.Errorf("reading spec.authentication: want an object, got %.20q", raw)
}

// ObjectBucketStatus is what the operator reports on a bucket.
type ObjectBucketStatus struct {
	// Bound, Released or Failed.
	// +optional
	Phase ObjectBucketPhase `json:"phase,omitempty"`

	// The generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is true of the bucket now.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ObjectBucket is a bucket that was made for a claim. The operator makes and
// removes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName={ob,obs}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.spec.endpoint.bucketName`
// +kubebuilder:printcolumn:name="Claim-Namespace",type=string,JSONPath=`.spec.claimRef.namespace`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.claimRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ObjectBucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The bucket.
	Spec ObjectBucketSpec `json:"spec,omitempty"`

	// What the operator reports.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Status ObjectBucketStatus `json:"status,omitempty"`
}

// ObjectBucketList is a list of ObjectBuckets.
//
// +kubebuilder:object:root=true
type ObjectBucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ObjectBucket `json:"items"`
}
