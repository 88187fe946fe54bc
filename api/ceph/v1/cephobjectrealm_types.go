package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephObjectRealm is a realm: the namespace of users and buckets that all its
// zone groups share. The keys of its system user are in the Secret
// <name>-keys.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephor
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephObjectRealm struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted realm. Empty: a new realm of this cluster.
	//
	// +nullable
	Spec ObjectRealmSpec `json:"spec,omitzero"`
	// Status is what was last seen of the realm.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *Status `json:"status,omitempty"`
}

// CephObjectRealmList is a list of CephObjectRealm.
//
// +kubebuilder:object:root=true
type CephObjectRealmList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephObjectRealm `json:"items"`
}

// ObjectRealmSpec is the wanted state of a realm.
type ObjectRealmSpec struct {
	// Pull takes the realm over from another cluster instead of making one. The
	// Secret <name>-keys must hold that cluster's access-key and secret-key.
	Pull PullSpec `json:"pull,omitzero"`
	// DefaultRealm makes this the realm that Ceph's tools use when none is
	// named. Of several that want it, the last one gets it.
	DefaultRealm bool `json:"defaultRealm,omitempty"`
}

// PullSpec says where a realm comes from.
type PullSpec struct {
	// Endpoint is the URL of a gateway of the other cluster's master zone.
	//
	// +kubebuilder:validation:Pattern=`^https*://`
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^[:cntrl:][:space:]]*$')",message="pull.endpoint cannot hold blanks or control characters; write for instance https://rgw.example.net:443"
	Endpoint string `json:"endpoint,omitempty"`
}

// IsPullRealm reports whether the realm comes from another cluster.
func (s *ObjectRealmSpec) IsPullRealm() bool {
	return s.Pull.Endpoint != ""
}

// KeysSecretName gives the Secret with the keys of the realm's system user.
func (r *CephObjectRealm) KeysSecretName() string {
	return r.Name + "-keys"
}

// GetConditions gives the conditions of the status.
func (r *CephObjectRealm) GetConditions() []Condition {
	if r.Status == nil {
		return nil
	}
	return r.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephObjectRealm{}, &CephObjectRealmList{})
}
