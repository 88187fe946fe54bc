package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephObjectStoreAccount is an account of an object store: users, roles and
// buckets that belong together and share quotas. Needs Ceph 19 or newer.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.store`
// +kubebuilder:printcolumn:name="AccountID",type=string,JSONPath=`.status.accountID`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephObjectStoreAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted account.
	Spec ObjectStoreAccountSpec `json:"spec"`
	// Status is what was last seen of the account.
	Status *ObjectStoreAccountStatus `json:"status,omitempty"`
}

// CephObjectStoreAccountList is a list of CephObjectStoreAccount.
//
// +kubebuilder:object:root=true
type CephObjectStoreAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephObjectStoreAccount `json:"items"`
}

// ObjectStoreAccountSpec is the wanted state of an account.
type ObjectStoreAccountSpec struct {
	// Store is the CephObjectStore, in this namespace, that the account belongs
	// to. It cannot change.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="store is immutable: make a new account in the other store"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.][A-Za-z0-9_.-]*$')",message="store must be letters, digits, '_', '.' and '-', not starting with '-': write the name of a CephObjectStore"
	Store string `json:"store"`
	// Name of the account in Ceph. Default: the name of this object. It can
	// change.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9 ._-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="name cannot start with '-'; write for instance my-account"
	Name string `json:"name,omitempty"`
	// AccountID is the id of the account: RGW and 17 digits. Default: the store
	// chooses one. It cannot change; give it to take over an account that exists.
	//
	// +kubebuilder:validation:MinLength=20
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^RGW\d{17}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="accountID is immutable: make a new account"
	AccountID string `json:"accountID,omitempty"`
	// RootUser is the user that may do everything in the account.
	RootUser *AccountRootUserSpec `json:"rootUser,omitempty"`
}

// AccountRootUserSpec is the root user of an account. Its keys are in the
// Secret rook-ceph-object-root-user-<account>.
type AccountRootUserSpec struct {
	// SkipCreate makes no root user. One that exists is then left alone.
	// Default: off.
	SkipCreate bool `json:"skipCreate,omitempty"`
	// DisplayName of the root user.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[\w+=,.@-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="rootUser.displayName cannot start with '-'; write for instance root"
	DisplayName string `json:"displayName,omitempty"`
}

// ObjectStoreAccountStatus is what was last seen of an account.
type ObjectStoreAccountStatus struct {
	// Phase is the state in one word.
	Phase ConditionType `json:"phase,omitempty"`
	// AccountID is the id of the account.
	//
	// +kubebuilder:validation:MinLength=20
	// +kubebuilder:validation:MaxLength=20
	AccountID string `json:"accountID,omitempty"`
	// RootAccountSecretName is the Secret with the keys of the root user.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RootAccountSecretName *string `json:"rootAccountSecretName,omitempty"`
	// ObservedGeneration is the metadata.generation of the last spec that was
	// brought about completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions say more about the phase.
	Conditions []Condition `json:"conditions,omitempty"`
}

// EffectiveName gives the name of the account in Ceph.
func (a *CephObjectStoreAccount) EffectiveName() string {
	if a.Spec.Name == "" {
		return a.Name
	}
	return a.Spec.Name
}

// RootUserWanted reports whether the account is to have a root user.
func (a *CephObjectStoreAccount) RootUserWanted() bool {
	return a.Spec.RootUser == nil || !a.Spec.RootUser.SkipCreate
}

// RootUserSecretName gives the Secret with the keys of the root user.
func (a *CephObjectStoreAccount) RootUserSecretName() string {
	return "rook-ceph-object-root-user-" + a.Name
}

// GetConditions gives the conditions of the status.
func (a *CephObjectStoreAccount) GetConditions() []Condition {
	if a.Status == nil {
		return nil
	}
	return a.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephObjectStoreAccount{}, &CephObjectStoreAccountList{})
}
