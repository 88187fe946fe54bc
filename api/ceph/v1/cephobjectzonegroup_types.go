package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephObjectZoneGroup is a zone group of a realm: zones that hold the same
// buckets and objects.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephozg
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Realm",type=string,JSONPath=`.spec.realm`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephObjectZoneGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted zone group.
	Spec ObjectZoneGroupSpec `json:"spec"`
	// Status is what was last seen of the zone group.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *Status `json:"status,omitempty"`
}

// CephObjectZoneGroupList is a list of CephObjectZoneGroup.
//
// +kubebuilder:object:root=true
type CephObjectZoneGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephObjectZoneGroup `json:"items"`
}

// ObjectZoneGroupSpec is the wanted state of a zone group.
type ObjectZoneGroupSpec struct {
	// Realm is the CephObjectRealm, in this namespace, that the zone group
	// belongs to. A zone group does not move to another realm.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="realm must be letters, digits, '_', '.' and '-', not starting with '-': write the name of a CephObjectRealm"
	Realm string `json:"realm"`
}

// GetConditions gives the conditions of the status.
func (g *CephObjectZoneGroup) GetConditions() []Condition {
	if g.Status == nil {
		return nil
	}
	return g.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephObjectZoneGroup{}, &CephObjectZoneGroupList{})
}
