package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephObjectZone is a zone of a zone group: one copy of its buckets and
// objects, in the pools of one Ceph cluster. CephObjectStores with its name
// run the gateways.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephoz
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="ZoneGroup",type=string,JSONPath=`.spec.zoneGroup`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephObjectZone struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted zone.
	Spec ObjectZoneSpec `json:"spec"`
	// Status is what was last seen of the zone.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *Status `json:"status,omitempty"`
}

// CephObjectZoneList is a list of CephObjectZone.
//
// +kubebuilder:object:root=true
type CephObjectZoneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephObjectZone `json:"items"`
}

// ObjectZoneSpec is the wanted state of a zone. Its pools are given as those
// of a CephObjectStore.
type ObjectZoneSpec struct {
	// ZoneGroup is the CephObjectZoneGroup, in this namespace, that the zone
	// belongs to. A zone does not move to another zone group.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="zoneGroup must be letters, digits, '_', '.' and '-', not starting with '-': write the name of a CephObjectZoneGroup"
	ZoneGroup string `json:"zoneGroup"`
	// MetadataPool describes the pools of indexes and accounts. Such a pool must
	// be replicated.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.erasureCoded) || self.erasureCoded.dataChunks == 0",message="metadataPool cannot be erasure coded: write replicated.size, for instance 3"
	// +nullable
	MetadataPool PoolSpec `json:"metadataPool,omitzero"`
	// DataPool describes the pool of the objects' data.
	//
	// +nullable
	DataPool PoolSpec `json:"dataPool,omitzero"`
	// SharedPools puts the zone into pools that exist.
	//
	// +nullable
	SharedPools ObjectSharedPoolsSpec `json:"sharedPools,omitzero"`
	// CustomEndpoints are the URLs by which other zones reach this one, in place
	// of the Service. Needed when the clusters do not share a network of pods.
	//
	// +nullable
	CustomEndpoints []string `json:"customEndpoints,omitempty"`
	// PreservePoolsOnDelete keeps the pools when the object is deleted.
	//
	// +kubebuilder:default=true
	PreservePoolsOnDelete *bool `json:"preservePoolsOnDelete,omitempty"`
}

// PoolsPreserved reports whether the pools outlive the object; unset means
// yes, as the default in the API says.
func (s *ObjectZoneSpec) PoolsPreserved() bool {
	return s.PreservePoolsOnDelete == nil || *s.PreservePoolsOnDelete
}

// GetConditions gives the conditions of the status.
func (z *CephObjectZone) GetConditions() []Condition {
	if z.Status == nil {
		return nil
	}
	return z.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephObjectZone{}, &CephObjectZoneList{})
}
