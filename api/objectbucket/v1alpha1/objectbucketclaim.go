package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Finalizer is carried by claims, buckets, and the ConfigMap and Secret of a
// claim, so that a bucket is given back before its claim goes.
const Finalizer = "objectbucket.io/finalizer"

// ObjectBucketClaimPhase is how far a claim has come.
type ObjectBucketClaimPhase string

// Phases of an ObjectBucketClaim.
const (
	ObjectBucketClaimPending  ObjectBucketClaimPhase = "Pending"
	ObjectBucketClaimBound    ObjectBucketClaimPhase = "Bound"
	ObjectBucketClaimReleased ObjectBucketClaimPhase = "Released"
	ObjectBucketClaimFailed   ObjectBucketClaimPhase = "Failed"
)

// ObjectBucketClaimSpec says which bucket is wanted.
type ObjectBucketClaimSpec struct {
	// The StorageClass that tells the object store and what becomes of the bucket
	// when the claim goes. It cannot be exchanged for another once the claim is
	// bound.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`

	// The exact name of the bucket. Set this or generateBucketName, not both.
	// A bucket of that name that exists and belongs to nobody else is used.
	// Changing it later has no effect.
	// +optional
	BucketName string `json:"bucketName,omitempty"`

	// The beginning of the name of the bucket; a random part is added. Changing it
	// later has no effect.
	// +optional
	GenerateBucketName string `json:"generateBucketName,omitempty"`

	// Settings of the bucket, for example maxObjects, maxSize, bucketMaxObjects,
	// bucketMaxSize, bucketPolicy, bucketLifecycle or bucketOwner, all as strings.
	// A change is applied to the bucket.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	// +optional
	AdditionalConfig map[string]string `json:"additionalConfig,omitempty"`

	// The ObjectBucket that answers the claim. Set by the operator.
	// +optional
	ObjectBucketName string `json:"objectBucketName,omitempty"`
}

// ObjectBucketClaimStatus is what the operator reports on a claim.
type ObjectBucketClaimStatus struct {
	// Pending, Bound, Released or Failed.
	// +optional
	Phase ObjectBucketClaimPhase `json:"phase,omitempty"`

	// The generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is true of the claim now.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ObjectBucketClaim asks for a bucket. When it is Bound, a ConfigMap and a
// Secret of the same name tell a pod where the bucket is and how to use it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName={obc,obcs}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.spec.bucketName`
// +kubebuilder:printcolumn:name="Storage-Class",type=string,JSONPath=`.spec.storageClassName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ObjectBucketClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which bucket is wanted.
	Spec ObjectBucketClaimSpec `json:"spec,omitempty"`

	// What the operator reports.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Status ObjectBucketClaimStatus `json:"status,omitempty"`
}

// ObjectBucketClaimList is a list of ObjectBucketClaims.
//
// +kubebuilder:object:root=true
type ObjectBucketClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ObjectBucketClaim `json:"items"`
}
