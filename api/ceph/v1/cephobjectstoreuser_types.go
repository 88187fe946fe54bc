package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephObjectStoreUser is a user of an object store. Its keys and the address
// of the store are put into the Secret
// rook-ceph-object-user-<store>-<name>.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rcou;objectuser;cephosu
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.store`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephObjectStoreUser struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted user.
	Spec ObjectStoreUserSpec `json:"spec"`
	// Status is what was last seen of the user.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *ObjectStoreUserStatus `json:"status,omitempty"`
}

// CephObjectStoreUserList is a list of CephObjectStoreUser.
//
// +kubebuilder:object:root=true
type CephObjectStoreUserList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephObjectStoreUser `json:"items"`
}

// ObjectStoreUserSpec is the wanted state of a user.
type ObjectStoreUserSpec struct {
	// Store is the CephObjectStore that the user belongs to.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="store must be letters, digits, '_', '.' and '-', not starting with '-': write the name of a CephObjectStore"
	Store string `json:"store,omitempty"`
	// ClusterNamespace is the namespace of the store. Default: that of this
	// object. The store must allow users from other namespaces.
	ClusterNamespace string `json:"clusterNamespace,omitempty"`
	// DisplayName is the name that people see. Default: the name of this object.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([^[:cntrl:]-][^[:cntrl:]]*)?$')",message="displayName cannot start with '-' or hold control characters or line breaks; write a name on one line"
	DisplayName string `json:"displayName,omitempty"`
	// Capabilities let the user manage the store through the Admin Ops API.
	// Default: none. One that is removed here is taken away.
	//
	// +nullable
	Capabilities *ObjectUserCapSpec `json:"capabilities,omitempty"`
	// Quotas bound what the user may own.
	//
	// +nullable
	Quotas *ObjectUserQuotaSpec `json:"quotas,omitempty"`
	// OpMask are the operations that the user may do on data. Default: all three.
	//
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=read;write;delete
	// +listType=set
	OpMask []ObjectUserOpMask `json:"opMask,omitempty"`
	// Keys are access keys that you choose, from Secrets. The user has these and
	// no others; default is one pair that the store makes.
	Keys []ObjectUserKey `json:"keys,omitempty"`
	// AccountRef puts the user into an account of the store. It cannot change.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="accountRef is immutable: make a new user in the other account"
	AccountRef *ObjectStoreAccountRef `json:"accountRef,omitempty"`
}

// ObjectUserOpMask is an operation on data: read, write or delete.
type ObjectUserOpMask string

// ObjectStoreAccountRef names an account.
type ObjectStoreAccountRef struct {
	// Name of the CephObjectStoreAccount, in the namespace of the store.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9 ._-]+$`
	Name string `json:"name"`
}

// ObjectUserKey is a pair of keys that the administrator chooses.
type ObjectUserKey struct {
	// AccessKeyRef is where the access key is, in a Secret of this namespace.
	AccessKeyRef *corev1.SecretKeySelector `json:"accessKeyRef,omitempty"`
	// SecretKeyRef is where the secret key is, in a Secret of this namespace.
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`
}

// ObjectUserCapSpec are rights to manage the store. Each is `read`, `write`,
// `read, write` or `*`.
type ObjectUserCapSpec struct {
	// User is for users.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	User string `json:"user,omitempty"`
	// Users is for users.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Users string `json:"users,omitempty"`
	// UserInfoWithoutKeys is for users without seeing their keys.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	UserInfoWithoutKeys string `json:"userInfoWithoutKeys,omitempty"`
	// Accounts is for accounts.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Accounts string `json:"accounts,omitempty"`
	// Bucket is for buckets.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Bucket string `json:"bucket,omitempty"`
	// Buckets is for buckets.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Buckets string `json:"buckets,omitempty"`
	// MetaData is for the metadata of the store.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	MetaData string `json:"metadata,omitempty"`
	// Usage is for statistics of use.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Usage string `json:"usage,omitempty"`
	// Zone is for zones.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Zone string `json:"zone,omitempty"`
	// Roles is for roles.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Roles string `json:"roles,omitempty"`
	// Info is for facts about the store.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	Info string `json:"info,omitempty"`
	// AMZCache is for the cache of AWS requests.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	AMZCache string `json:"amz-cache,omitempty"`
	// BiLog is for the logs of bucket indexes.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	BiLog string `json:"bilog,omitempty"`
	// MdLog is for the log of metadata.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	MdLog string `json:"mdlog,omitempty"`
	// DataLog is for the log of data.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	DataLog string `json:"datalog,omitempty"`
	// UserPolicy is for policies of users.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	UserPolicy string `json:"user-policy,omitempty"`
	// OidcProvider is for OpenID Connect providers.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	OidcProvider string `json:"oidc-provider,omitempty"`
	// RateLimit is for rate limits.
	//
	// +kubebuilder:validation:Enum="*";read;write;"read, write"
	RateLimit string `json:"ratelimit,omitempty"`
}

// ObjectUserQuotaSpec bounds what a user may own.
type ObjectUserQuotaSpec struct {
	// MaxBuckets is the largest number of buckets. 0: no limit; negative: none
	// may be made. Default: that of the store, 1000.
	//
	// +nullable
	MaxBuckets *int `json:"maxBuckets,omitempty"`
	// MaxSize is the largest amount of data in all buckets, a quantity such as
	// 10Gi.
	//
	// +nullable
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
	// MaxObjects is the largest number of objects in all buckets. Negative: no
	// limit.
	//
	// +nullable
	MaxObjects *int64 `json:"maxObjects,omitempty"`
}

// ObjectStoreUserStatus is what was last seen of a user.
type ObjectStoreUserStatus struct {
	// Phase is the state in one word.
	Phase ConditionType `json:"phase,omitempty"`
	// Info holds `secretName`, the Secret with the user's keys.
	//
	// +nullable
	Info map[string]string `json:"info,omitempty"`
	// Keys are the Secrets that spec.keys took keys from, as they were then.
	//
	// +nullable
	Keys []SecretReference `json:"keys,omitempty"`
	// ObservedGeneration is the metadata.generation of the last spec that was
	// brought about completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions say more about the phase.
	Conditions []Condition `json:"conditions,omitempty"`
}

// SecretReference names a Secret in a certain state.
//
// +structType=atomic
type SecretReference struct {
	corev1.SecretReference `json:",inline"`
	// UID of the Secret.
	UID string `json:"uid,omitempty"`
	// ResourceVersion of the Secret when it was read.
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// StoreNamespace gives the namespace of the user's store.
func (u *CephObjectStoreUser) StoreNamespace() string {
	if u.Spec.ClusterNamespace == "" {
		return u.Namespace
	}
	return u.Spec.ClusterNamespace
}

// EffectiveDisplayName gives the display name or its default.
func (u *CephObjectStoreUser) EffectiveDisplayName() string {
	if u.Spec.DisplayName == "" {
		return u.Name
	}
	return u.Spec.DisplayName
}

// SecretName gives the Secret with the user's keys.
func (u *CephObjectStoreUser) SecretName() string {
	return "rook-ceph-object-user-" + u.Spec.Store + "-" + u.Name
}

// GetConditions gives the conditions of the status.
func (u *CephObjectStoreUser) GetConditions() []Condition {
	if u.Status == nil {
		return nil
	}
	return u.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephObjectStoreUser{}, &CephObjectStoreUserList{})
}
