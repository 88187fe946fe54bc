package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephObjectStore is an object store: its pools, its gateways (RGW), and how
// they are reached. With a zone it is a part of a multisite setup; with
// gateway.externalRgwEndpoints it stands for gateways that run elsewhere.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.gateway.instances,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=cephos
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.info.endpoint`
// +kubebuilder:printcolumn:name="SecureEndpoint",type=string,JSONPath=`.status.info.secureEndpoint`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephObjectStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted store.
	Spec ObjectStoreSpec `json:"spec"`
	// Status is what was last seen of the store.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *ObjectStoreStatus `json:"status,omitempty"`
}

// CephObjectStoreList is a list of CephObjectStore.
//
// +kubebuilder:object:root=true
type CephObjectStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephObjectStore `json:"items"`
}

// ObjectStoreSpec is the wanted state of an object store.
//
// The pools are given in one of three ways: metadataPool and dataPool make
// pools for this store alone, sharedPools puts the store into pools that
// exist, and zone leaves the pools to a CephObjectZone.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.defaultRealm) && self.defaultRealm == true && has(self.zone) && size(self.zone.name) > 0)",message="defaultRealm and zone.name exclude each other: the realm of a zone is made the default by its CephObjectRealm"
// +kubebuilder:validation:XValidation:rule="!(has(self.sharedPools) && has(self.sharedPools.dataPoolName) && size(self.sharedPools.dataPoolName) > 0 && has(self.dataPool) && ((has(self.dataPool.replicated) && self.dataPool.replicated.size > 0) || (has(self.dataPool.erasureCoded) && self.dataPool.erasureCoded.dataChunks > 0)))",message="dataPool and sharedPools.dataPoolName exclude each other: remove dataPool, or remove sharedPools.dataPoolName"
// +kubebuilder:validation:XValidation:rule="!(has(self.sharedPools) && has(self.sharedPools.metadataPoolName) && size(self.sharedPools.metadataPoolName) > 0 && has(self.metadataPool) && ((has(self.metadataPool.replicated) && self.metadataPool.replicated.size > 0) || (has(self.metadataPool.erasureCoded) && self.metadataPool.erasureCoded.dataChunks > 0)))",message="metadataPool and sharedPools.metadataPoolName exclude each other: remove metadataPool, or remove sharedPools.metadataPoolName"
type ObjectStoreSpec struct {
	// --- pools

	// MetadataPool describes the pools of the store's indexes and accounts. Such
	// a pool must be replicated.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.erasureCoded) || self.erasureCoded.dataChunks == 0",message="metadataPool cannot be erasure coded: write replicated.size, for instance 3"
	// +nullable
	MetadataPool PoolSpec `json:"metadataPool,omitzero"`
	// DataPool describes the pool of the objects' data.
	//
	// +nullable
	DataPool PoolSpec `json:"dataPool,omitzero"`
	// SharedPools puts the store into pools that exist, in RADOS namespaces of
	// its own.
	//
	// +nullable
	SharedPools ObjectSharedPoolsSpec `json:"sharedPools,omitzero"`
	// PreservePoolsOnDelete keeps the pools when the object is deleted. Default:
	// off, data goes with the object.
	PreservePoolsOnDelete bool `json:"preservePoolsOnDelete,omitempty"`

	// --- multisite

	// Zone is the zone that the store belongs to. It cannot be joined or left
	// later.
	//
	// +nullable
	Zone ZoneSpec `json:"zone,omitzero"`
	// DefaultRealm makes the realm of this store the one that Ceph's tools use
	// when none is named. Only for stores without a zone.
	DefaultRealm bool `json:"defaultRealm,omitempty"`

	// --- gateways

	// Gateway describes the RGW daemons.
	//
	// +nullable
	Gateway GatewaySpec `json:"gateway,omitzero"`
	// HealthCheck changes the probes of the gateways.
	//
	// +nullable
	HealthCheck ObjectHealthCheckSpec `json:"healthCheck,omitzero"`

	// --- protocols and names

	// Protocols says which interfaces the gateways offer.
	Protocols ProtocolSpec `json:"protocols,omitzero"`
	// Hosting are the names under which clients reach the store.
	//
	// +nullable
	Hosting *ObjectStoreHostingSpec `json:"hosting,omitempty"`

	// --- users and security

	// Auth is about checking users elsewhere.
	Auth AuthSpec `json:"auth,omitzero"`
	// AllowUsersInNamespaces are namespaces, besides that of the store, whose
	// CephObjectStoreUsers may be made in it. "*" allows all of them.
	AllowUsersInNamespaces []string `json:"allowUsersInNamespaces,omitempty"`
	// Security is about encryption of objects and of connections.
	//
	// +nullable
	Security *ObjectStoreSecuritySpec `json:"security,omitempty"`
}

// ZoneSpec names a zone.
type ZoneSpec struct {
	// Name of the CephObjectZone in the namespace of the store.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="zone.name must be letters, digits, '_', '.' and '-', not starting with '-': write the name of a CephObjectZone"
	Name string `json:"name"`
}

// ObjectSharedPoolsSpec puts a store into pools that exist.
type ObjectSharedPoolsSpec struct {
	// MetadataPoolName is the pool for indexes and accounts. It cannot change.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="sharedPools.metadataPoolName is immutable: the data of the store is there"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9._][A-Za-z0-9._:@%+=,/~ -]*)?$')",message="sharedPools.metadataPoolName must be the name of a pool, not starting with '-' and without characters that have a meaning to a shell"
	MetadataPoolName string `json:"metadataPoolName,omitempty"`
	// DataPoolName is the pool for the objects' data. It cannot change.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="sharedPools.dataPoolName is immutable: the data of the store is there"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9._][A-Za-z0-9._:@%+=,/~ -]*)?$')",message="sharedPools.dataPoolName must be the name of a pool, not starting with '-' and without characters that have a meaning to a shell"
	DataPoolName string `json:"dataPoolName,omitempty"`
	// PreserveRadosNamespaceDataOnDelete keeps the store's data in the pools
	// when the object is deleted. Default: off.
	PreserveRadosNamespaceDataOnDelete bool `json:"preserveRadosNamespaceDataOnDelete,omitempty"`
	// PoolPlacements are choices of pools that a bucket can be made in. One of
	// them, or metadataPoolName and dataPoolName, is the default.
	//
	// +kubebuilder:validation:MaxItems=100
	PoolPlacements []PoolPlacementSpec `json:"poolPlacements,omitempty"`
}

// PoolPlacementSpec is one choice of pools for buckets.
type PoolPlacementSpec struct {
	// Name by which users choose the placement. The name default, or the
	// placement marked as default, is Ceph's default-placement.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9._/-]+$`
	Name string `json:"name"`
	// Default makes this the placement of buckets that choose none. Only one can
	// have it.
	Default bool `json:"default,omitempty"`
	// MetadataPoolName is the pool of the bucket indexes.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._:@%+=,/~ -]*$')",message="metadataPoolName must be the name of a pool, not starting with '-' and without characters that have a meaning to a shell"
	MetadataPoolName string `json:"metadataPoolName"`
	// DataPoolName is the pool of the objects' data in the class STANDARD.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._:@%+=,/~ -]*$')",message="dataPoolName must be the name of a pool, not starting with '-' and without characters that have a meaning to a shell"
	DataPoolName string `json:"dataPoolName"`
	// DataNonECPoolName is a replicated pool for what cannot be kept in an
	// erasure coded one. Needed when dataPoolName is erasure coded.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9._][A-Za-z0-9._:@%+=,/~ -]*)?$')",message="dataNonECPoolName must be the name of a pool, not starting with '-' and without characters that have a meaning to a shell"
	DataNonECPoolName string `json:"dataNonECPoolName,omitempty"`
	// StorageClasses are further classes besides STANDARD, each with a pool.
	//
	// +kubebuilder:validation:MaxItems=10
	StorageClasses []PlacementStorageClassSpec `json:"storageClasses,omitempty"`
}

// PlacementStorageClassSpec is a storage class of S3 and the pool behind it.
type PlacementStorageClassSpec struct {
	// Name of the class, as clients write it. S3 libraries know a fixed list of
	// names, for instance STANDARD_IA or GLACIER.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9._/-]+$`
	Name string `json:"name"`
	// DataPoolName is the pool of the objects of this class.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._:@%+=,/~ -]*$')",message="dataPoolName must be the name of a pool, not starting with '-' and without characters that have a meaning to a shell"
	DataPoolName string `json:"dataPoolName"`
}

// ObjectHealthCheckSpec changes the probes of gateways.
type ObjectHealthCheckSpec struct {
	// ReadinessProbe changes when a gateway gets requests.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	ReadinessProbe *ProbeSpec `json:"readinessProbe,omitempty"`
	// StartupProbe changes how long a gateway may take to start.
	StartupProbe *ProbeSpec `json:"startupProbe,omitempty"`
}

// ObjectStoreStatus is what was last seen of an object store.
type ObjectStoreStatus struct {
	// Phase is the state in one word.
	Phase ConditionType `json:"phase,omitempty"`
	// Message is a sentence for a person that belongs to the phase.
	Message string `json:"message,omitempty"`
	// Endpoints are the URLs under which the store is reached.
	Endpoints ObjectEndpoints `json:"endpoints,omitzero"`
	// Info holds `endpoint` and `secureEndpoint`, each the first of its list.
	//
	// +nullable
	Info map[string]string `json:"info,omitempty"`
	// Conditions say more about the phase.
	Conditions []Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the metadata.generation of the last spec that was
	// brought about completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Cephx describes the keys of the gateways.
	Cephx LocalCephxStatus `json:"cephx,omitzero"`
	// Replicas is the number of gateways that run, for autoscalers.
	Replicas int32 `json:"replicas,omitempty"`
	// Selector selects the pods of the gateways, for autoscalers.
	Selector string `json:"selector,omitempty"`
}

// ObjectEndpoints are URLs of a store.
type ObjectEndpoints struct {
	// Insecure are the URLs with http.
	//
	// +nullable
	Insecure []string `json:"insecure,omitempty"`
	// Secure are the URLs with https.
	//
	// +nullable
	Secure []string `json:"secure,omitempty"`
}

// GetConditions gives the conditions of the status.
func (s *CephObjectStore) GetConditions() []Condition {
	if s.Status == nil {
		return nil
	}
	return s.Status.Conditions
}

// IsMultisite reports whether the store belongs to a CephObjectZone.
func (s *ObjectStoreSpec) IsMultisite() bool {
	return s.Zone.Name != ""
}

// IsExternal reports whether the gateways run elsewhere.
func (s *ObjectStoreSpec) IsExternal() bool {
	return len(s.Gateway.ExternalRgwEndpoints) > 0
}

// IsEnabled reports whether the store is in pools that exist.
func (p *ObjectSharedPoolsSpec) IsEnabled() bool {
	return p.MetadataPoolName != "" || p.DataPoolName != "" || len(p.PoolPlacements) > 0
}

// DefaultPlacement gives the placement of buckets that choose none: the one
// marked as default, else one named default, else the pair of pools of the
// spec itself. It reports false when there is none.
func (p *ObjectSharedPoolsSpec) DefaultPlacement() (PoolPlacementSpec, bool) {
	for _, pl := range p.PoolPlacements {
		if pl.Default {
			return pl, true
		}
	}
	for _, pl := range p.PoolPlacements {
		if pl.Name == "default" {
			return pl, true
		}
	}
	if p.MetadataPoolName != "" && p.DataPoolName != "" {
		return PoolPlacementSpec{
			Name:             "default",
			Default:          true,
			MetadataPoolName: p.MetadataPoolName,
			DataPoolName:     p.DataPoolName,
		}, true
	}
	return PoolPlacementSpec{}, false
}

// RealmRootPool is the pool of realms, zone groups and zones of all stores.
const RealmRootPool = ".rgw.root"

// ObjectMetadataPools are the parts of a store's pool names that follow the
// name of its zone, for the pools made from metadataPool.
func ObjectMetadataPools() []string {
	return []string{
		"rgw.control", "rgw.meta", "rgw.log", "rgw.buckets.index", "rgw.buckets.non-ec", "rgw.otp",
	}
}

// ObjectDataPool is the part that follows the name of the zone for the pool
// made from dataPool.
const ObjectDataPool = "rgw.buckets.data"

// PoolNames gives the names in Ceph of the pools that belong to a zone alone:
// <zone>.<part>. The zone of a store without multisite is named as the store.
// RealmRootPool is not among them, since all stores share it.
func PoolNames(zone string) (metadata []string, data string) {
	for _, part := range ObjectMetadataPools() {
		metadata = append(metadata, zone+"."+part)
	}
	return metadata, zone + "." + ObjectDataPool
}

// ZoneName gives the name of the store's zone in Ceph.
func (s *CephObjectStore) ZoneName() string {
	if s.Spec.IsMultisite() {
		return s.Spec.Zone.Name
	}
	return s.Name
}

// ServiceName gives the name of the Service in front of the gateways.
func (s *CephObjectStore) ServiceName() string {
	return "rook-ceph-rgw-" + s.Name
}

// ServiceDomainName gives the DNS name of that Service inside the cluster.
func (s *CephObjectStore) ServiceDomainName() string {
	return s.ServiceName() + "." + s.Namespace + ".svc"
}

func init() {
	SchemeBuilder.Register(&CephObjectStore{}, &CephObjectStoreList{})
}
