package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Counts of mons.
const (
	// DefaultMonCount is the number of mons when the spec names none.
	DefaultMonCount = 3
	// MaxMonCount is the largest number of mons that the API takes.
	MaxMonCount = 9
)

// MonSpec describes the monitors, which keep the cluster's maps and agree on
// them by a majority.
//
// +kubebuilder:validation:XValidation:rule="!has(self.zones) || (has(self.zones) && (size(self.zones) <= self.count))",message="mon.zones cannot be more than mon.count: raise the count or remove zones"
// +kubebuilder:validation:XValidation:rule="!has(self.stretchCluster) || (has(self.stretchCluster) && (size(self.stretchCluster.zones) > 0) && (size(self.stretchCluster.zones) == 3))",message="mon.stretchCluster needs exactly three zones: two for data and one arbiter"
// +kubebuilder:validation:XValidation:rule="!has(self.stretchCluster) || !has(self.stretchCluster.zones) || size(self.stretchCluster.zones) != 3 || self.stretchCluster.zones.exists_one(z, has(z.arbiter) && z.arbiter)",message="mon.stretchCluster needs exactly one arbiter zone: set arbiter to true on the zone that holds no data, and on no other"
// +kubebuilder:validation:XValidation:rule="!has(self.stretchCluster) || !has(self.count) || self.count in [0, 3, 5]",message="mon.count must be 3 or 5 in a stretch cluster; write 5"
type MonSpec struct {
	// Count is the number of mons, odd and at least 3 for a cluster that is to
	// survive the loss of a node; 1 is for trials. 0 means 3. Mons are added and
	// removed one at a time when it changes, never from 2 to 1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Count int `json:"count,omitempty"`
	// AllowMultiplePerNode lets several mons run on one node. For trials on few
	// nodes: the loss of that node can be the loss of the quorum. Default: off.
	AllowMultiplePerNode bool `json:"allowMultiplePerNode,omitempty"`
	// FailureDomainLabel is the node label by which mons are spread over
	// `zones`. Default: topology.kubernetes.io/zone.
	FailureDomainLabel string `json:"failureDomainLabel,omitempty"`
	// Zones are values of failureDomainLabel: mons are spread over these.
	//
	// +kubebuilder:validation:MaxItems=9
	Zones []MonZoneSpec `json:"zones,omitempty"`
	// StretchCluster spreads mons and data over two zones with a tie-breaker in
	// a third. It is chosen when the cluster is made.
	StretchCluster *StretchClusterSpec `json:"stretchCluster,omitempty"`
	// VolumeClaimTemplate keeps mon data on a PVC each, instead of
	// dataDirHostPath. Mons that exist are not moved when it changes.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	VolumeClaimTemplate *VolumeClaimTemplate `json:"volumeClaimTemplate,omitempty"`
	// ExternalMonIDs are mons that somebody else runs and that belong to the
	// quorum: they are counted and never touched.
	ExternalMonIDs []string `json:"externalMonIDs,omitempty"`
	// FloatingMon is a mon that follows replicated storage between two nodes,
	// for clusters of two nodes.
	FloatingMon *FloatingMonSpec `json:"floatingMon,omitempty"`
}

// MonZoneSpec is a zone that holds mons.
type MonZoneSpec struct {
	// Name is the value of the failure domain label on the nodes of the zone.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="the name of a zone must be letters, digits, '_', '.' and '-', not starting with '-': write the value of the topology label of the nodes"
	Name string `json:"name,omitempty"`
	// Arbiter marks the zone of a stretch cluster that holds only a mon.
	Arbiter bool `json:"arbiter,omitempty"`
	// VolumeClaimTemplate is for the mons of this zone, in place of
	// mon.volumeClaimTemplate.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	VolumeClaimTemplate *VolumeClaimTemplate `json:"volumeClaimTemplate,omitempty"`
}

// StretchClusterSpec describes a cluster over two data zones and an arbiter.
type StretchClusterSpec struct {
	// FailureDomainLabel is the node label that names the zones. Default:
	// topology.kubernetes.io/zone.
	FailureDomainLabel string `json:"failureDomainLabel,omitempty"`
	// SubFailureDomain is the CRUSH type that keeps apart the two copies inside
	// a zone. Default: host.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="subFailureDomain must be the name of a CRUSH type: letters, digits, '_', '.' and '-', not starting with '-'; write for instance host"
	SubFailureDomain string `json:"subFailureDomain,omitempty"`
	// Zones are the two data zones and the arbiter.
	//
	// +kubebuilder:validation:MaxItems=9
	// +nullable
	Zones []MonZoneSpec `json:"zones,omitempty"`
}

// FloatingMonSpec describes the mon that moves between two nodes.
//
// +kubebuilder:validation:MinProperties=2
type FloatingMonSpec struct {
	// Name is the letter of the mon, for instance c.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1
	// +kubebuilder:validation:Pattern=`^[a-z]$`
	Name string `json:"name"`
	// ConfigMapName is the ConfigMap of this namespace with the template of the
	// mon's Deployment.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMapName string `json:"configmapName"`
}

// VolumeClaimTemplate is a PersistentVolumeClaim to be made. Metadata carries
// its name, labels and annotations.
type VolumeClaimTemplate struct {
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the spec of the claims. Claims that exist do not follow a change,
	// except for a larger storage request where the class can expand volumes.
	Spec corev1.PersistentVolumeClaimSpec `json:"spec,omitzero"`
}

// ToPVC gives the claim that the template describes, in its own right.
func (v *VolumeClaimTemplate) ToPVC() *corev1.PersistentVolumeClaim {
	if v == nil {
		return nil
	}
	c := v.DeepCopy()
	return &corev1.PersistentVolumeClaim{ObjectMeta: c.ObjectMeta, Spec: c.Spec}
}

// EffectiveCount gives the number of mons to run: the count, or 3.
func (m *MonSpec) EffectiveCount() int {
	if m.Count <= 0 {
		return DefaultMonCount
	}
	return m.Count
}

// EffectiveZones gives the zones over which mons are spread: those of the
// stretch cluster, or the plain ones, or none.
func (m *MonSpec) EffectiveZones() []MonZoneSpec {
	if m.StretchCluster != nil && len(m.StretchCluster.Zones) > 0 {
		return m.StretchCluster.Zones
	}
	return m.Zones
}

// EffectiveFailureDomainLabel gives the node label that names a mon's zone.
func (m *MonSpec) EffectiveFailureDomainLabel() string {
	if m.StretchCluster != nil && m.StretchCluster.FailureDomainLabel != "" {
		return m.StretchCluster.FailureDomainLabel
	}
	if m.FailureDomainLabel != "" {
		return m.FailureDomainLabel
	}
	return corev1.LabelTopologyZone
}

// ArbiterZone gives the name of the zone that only breaks ties; empty when the
// cluster is not stretched.
func (m *MonSpec) ArbiterZone() string {
	if m.StretchCluster == nil {
		return ""
	}
	for _, z := range m.StretchCluster.Zones {
		if z.Arbiter {
			return z.Name
		}
	}
	return ""
}

// ClaimFor gives the claim template for a mon in a zone, or nil when mon data
// is kept on the node. The zone's own template goes first.
func (m *MonSpec) ClaimFor(zone string) *VolumeClaimTemplate {
	for _, z := range m.EffectiveZones() {
		if z.Name == zone && z.VolumeClaimTemplate != nil {
			return z.VolumeClaimTemplate
		}
	}
	return m.VolumeClaimTemplate
}

// MgrSpec describes the managers, which serve metrics, the dashboard and other
// modules. One is active, the others stand by.
type MgrSpec struct {
	// Count is the number of mgrs. 0 means 1; 2 is the usual choice.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Count int `json:"count,omitempty"`
	// AllowMultiplePerNode lets several mgrs run on one node. Default: off.
	AllowMultiplePerNode bool `json:"allowMultiplePerNode,omitempty"`
	// HostNetwork runs the mgrs on the network of their node. Default: as the
	// cluster.
	HostNetwork *bool `json:"hostNetwork,omitempty"`
	// Modules are mgr modules to switch on or off. Those of the dashboard,
	// prometheus and crash are ruled by their own parts of the spec.
	//
	// +kubebuilder:validation:MaxItems=128
	// +nullable
	Modules []Module `json:"modules,omitempty"`
}

// DefaultMgrCount is the number of mgrs when the spec names none.
const DefaultMgrCount = 1

// EffectiveCount gives the number of mgrs to run: the count, or 1.
func (m *MgrSpec) EffectiveCount() int {
	if m.Count <= 0 {
		return DefaultMgrCount
	}
	return m.Count
}

// Module is a mgr module.
type Module struct {
	// Name of the module as `ceph mgr module ls` shows it.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_][A-Za-z0-9_-]*)?$')",message="the name of a mgr module must be letters, digits, '_' and '-', not starting with '-'; write it as 'ceph mgr module ls' shows it"
	Name string `json:"name,omitempty"`
	// Enabled switches the module on, or off when false.
	Enabled bool `json:"enabled,omitempty"`
	// Settings of the module.
	Settings ModuleSettings `json:"settings,omitzero"`
}

// ModuleSettings are settings of a mgr module.
type ModuleSettings struct {
	// BalancerMode is for the module balancer. Default: upmap. The read modes
	// need Ceph 19 or newer on all clients.
	//
	// +kubebuilder:validation:Enum="";"crush-compat";"upmap";"read";"upmap-read"
	BalancerMode string `json:"balancerMode,omitempty"`
}
