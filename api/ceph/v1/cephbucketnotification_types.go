package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephBucketNotification says which changes in a bucket are told to a topic.
// A bucket gets it by a label on its ObjectBucketClaim:
// bucket-notification-<name>: <name>.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephbn
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Topic",type=string,JSONPath=`.spec.topic`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephBucketNotification struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted notification.
	Spec BucketNotificationSpec `json:"spec"`
	// Status is what was last seen of the notification.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *Status `json:"status,omitempty"`
}

// CephBucketNotificationList is a list of CephBucketNotification.
//
// +kubebuilder:object:root=true
type CephBucketNotificationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephBucketNotification `json:"items"`
}

// BucketNotificationSpec is the wanted state of a notification.
type BucketNotificationSpec struct {
	// Topic is the CephBucketTopic, in this namespace, that is told.
	//
	// +kubebuilder:validation:MinLength=1
	Topic string `json:"topic"`
	// Events are the changes to tell. Default: creations and removals.
	Events []BucketNotificationEvent `json:"events,omitempty"`
	// Filter narrows down the objects. Default: all objects of the bucket.
	Filter *NotificationFilterSpec `json:"filter,omitempty"`
}

// BucketNotificationEvent is a change in a bucket, by the names of S3 and
// those that RGW adds.
//
// +kubebuilder:validation:Enum="s3:ObjectCreated:*";"s3:ObjectCreated:Put";"s3:ObjectCreated:Post";"s3:ObjectCreated:Copy";"s3:ObjectCreated:CompleteMultipartUpload";"s3:ObjectRemoved:*";"s3:ObjectRemoved:Delete";"s3:ObjectRemoved:DeleteMarkerCreated";"s3:ObjectLifecycle:Expiration:Current";"s3:ObjectLifecycle:Expiration:NonCurrent";"s3:ObjectLifecycle:Expiration:DeleteMarker";"s3:ObjectLifecycle:Expiration:AbortMultipartUpload";"s3:ObjectLifecycle:Transition:Current";"s3:ObjectLifecycle:Transition:NonCurrent";"s3:LifecycleExpiration:*";"s3:LifecycleExpiration:Delete";"s3:LifecycleExpiration:DeleteMarkerCreated";"s3:LifecycleTransition";"s3:ObjectSynced:*";"s3:ObjectSynced:Create";"s3:ObjectSynced:Delete";"s3:ObjectSynced:DeletionMarkerCreated";"s3:Replication:*";"s3:Replication:Create";"s3:Replication:Delete";"s3:Replication:DeletionMarkerCreated";"s3:ObjectRestore:*";"s3:ObjectRestore:Post";"s3:ObjectRestore:Completed";"s3:ObjectRestore:Delete"
type BucketNotificationEvent string

// NotificationFilterSpec narrows down objects. All filters that are given must
// match.
type NotificationFilterSpec struct {
	// KeyFilters look at the object's key. Each kind can be there once.
	KeyFilters []NotificationKeyFilterRule `json:"keyFilters,omitempty"`
	// MetadataFilters look at the object's metadata (x-amz-meta-...).
	MetadataFilters []NotificationFilterRule `json:"metadataFilters,omitempty"`
	// TagFilters look at the object's tags.
	TagFilters []NotificationFilterRule `json:"tagFilters,omitempty"`
}

// NotificationFilterRule is a name and the value that it must have.
type NotificationFilterRule struct {
	// Name of the tag or the metadata.
	//
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Value that it must have.
	Value string `json:"value"`
}

// NotificationKeyFilterRule is a rule for the key of an object.
type NotificationKeyFilterRule struct {
	// Name is the kind of rule: prefix, suffix or regex.
	//
	// +kubebuilder:validation:Enum=prefix;suffix;regex
	Name string `json:"name"`
	// Value is the prefix, the suffix or the regular expression.
	Value string `json:"value"`
}

// GetConditions gives the conditions of the status.
func (n *CephBucketNotification) GetConditions() []Condition {
	if n.Status == nil {
		return nil
	}
	return n.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephBucketNotification{}, &CephBucketNotificationList{})
}
