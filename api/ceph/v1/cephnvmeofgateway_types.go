package v1

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephNVMeOFGateway runs gateways that offer RBD images as NVMe namespaces
// over TCP. The gateways of one group stand in for one another. The pool
// ".nvmeof" must exist: make a CephBlockPool with spec.name ".nvmeof".
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nvmeof
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.group`,priority=1
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.spec.instances`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephNVMeOFGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the gateways as they should be.
	Spec NVMeOFGatewaySpec `json:"spec"`

	// Status is the gateways as they were last seen.
	// +optional
	Status NVMeOFGatewayStatus `json:"status,omitzero"`
}

// CephNVMeOFGatewayList is a list of CephNVMeOFGateway.
//
// +kubebuilder:object:root=true
type CephNVMeOFGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephNVMeOFGateway `json:"items"`
}

// NVMeOFGatewaySpec is one group of gateways.
type NVMeOFGatewaySpec struct {
	// Image is the container image of the gateway. When unset, it is the one
	// that the running Ceph release names in its configuration
	// (mgr/cephadm/container_image_nvmeof). A change restarts the gateways one
	// by one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// Group is the name of the gateway group. Subsystems, hosts and
	// namespaces belong to a group, not to a gateway: another name begins
	// with none of them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="group must be 1 to 253 letters, digits, '.', '_' or '-', and not begin with '-'"
	Group string `json:"group"`

	// Instances is the number of gateways, 1 to 32. Two or more are needed
	// for initiators to keep a path when one goes. Lowering it takes the
	// highest away and removes them from the group.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self <= 32",message="instances must be from 1 to 32 gateways in a group"
	Instances int `json:"instances"`

	// ConfigMapRef is the name of a ConfigMap in the same namespace whose key
	// "config" is the nvmeof.conf to use in place of the generated one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$')",message="configMapRef must be the name of a ConfigMap: lower case letters, digits, '-' and '.'"
	ConfigMapRef string `json:"configMapRef,omitempty"`

	// NVMeOFConfig sets options of the generated nvmeof.conf: section, then
	// option, then value. They take the place of generated ones. A change
	// restarts the gateways.
	// +optional
	NVMeOFConfig map[string]map[string]string `json:"nvmeofConfig,omitempty"`

	// Ports are the TCP ports of each gateway.
	// +optional
	Ports *NVMeOFGatewayPorts `json:"ports,omitempty"`

	// HostNetwork runs the gateways on the network of their node. When unset,
	// the setting of the CephCluster holds.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`

	// Placement is where the pods may run. It adds to the "all" placement of
	// the CephCluster.
	// +optional
	Placement Placement `json:"placement,omitzero"`

	// Annotations are put on the pods. A change restarts them.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`

	// Labels are put on the pods. A change restarts them.
	// +optional
	Labels Labels `json:"labels,omitempty"`

	// Resources of each gateway container. The gateway also wants huge pages
	// when its configuration asks for them.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// PriorityClassName is the priority class of the pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// LivenessProbe turns on and tunes a check that the gateway answers on its
	// TCP port. There is none when unset.
	// +optional
	LivenessProbe *ProbeSpec `json:"livenessProbe,omitempty"`
}

// NVMeOFGatewayPorts are the TCP ports of a gateway. All four differ.
//
// +kubebuilder:validation:XValidation:rule="[has(self.ioPort) ? self.ioPort : 4420, has(self.gatewayPort) ? self.gatewayPort : 5500, has(self.monitorPort) ? self.monitorPort : 5499, has(self.discoveryPort) ? self.discoveryPort : 8009].all(p, [has(self.ioPort) ? self.ioPort : 4420, has(self.gatewayPort) ? self.gatewayPort : 5500, has(self.monitorPort) ? self.monitorPort : 5499, has(self.discoveryPort) ? self.discoveryPort : 8009].exists_one(q, p == q))",message="ports must all differ; unset ones are ioPort 4420, gatewayPort 5500, monitorPort 5499 and discoveryPort 8009"
type NVMeOFGatewayPorts struct {
	// IOPort takes the initiators' I/O; 4420 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	IOPort int32 `json:"ioPort,omitempty"`

	// GatewayPort takes management by gRPC; 5500 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	GatewayPort int32 `json:"gatewayPort,omitempty"`

	// MonitorPort takes the commands of the gateway's monitor client; 5499
	// when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	MonitorPort int32 `json:"monitorPort,omitempty"`

	// DiscoveryPort answers initiators that look for subsystems; 8009 when
	// unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DiscoveryPort int32 `json:"discoveryPort,omitempty"`
}

// NVMeOFGatewayStatus is what was last seen of the gateways.
type NVMeOFGatewayStatus struct {
	Status `json:",inline"`

	// Cephx says which keys the gateways run with.
	// +optional
	Cephx LocalCephxStatus `json:"cephx,omitzero"`
}

const (
	// NVMeOFPoolName is the pool in which gateways keep their state.
	NVMeOFPoolName = ".nvmeof"
	// DefaultNVMeOFIOPort is the IANA port of NVMe over TCP.
	DefaultNVMeOFIOPort int32 = 4420
	// DefaultNVMeOFGatewayPort is the gRPC port of ceph-nvmeof.
	DefaultNVMeOFGatewayPort int32 = 5500
	// DefaultNVMeOFMonitorPort is the monitor client port of ceph-nvmeof.
	DefaultNVMeOFMonitorPort int32 = 5499
	// DefaultNVMeOFDiscoveryPort is the IANA port of NVMe discovery over TCP.
	DefaultNVMeOFDiscoveryPort int32 = 8009
)

// EffectivePorts are the ports with the defaults filled in.
func (s *NVMeOFGatewaySpec) EffectivePorts() NVMeOFGatewayPorts {
	var p NVMeOFGatewayPorts
	if s.Ports != nil {
		p = *s.Ports
	}
	for _, f := range []struct {
		port      *int32
		byDefault int32
	}{
		{&p.IOPort, DefaultNVMeOFIOPort},
		{&p.GatewayPort, DefaultNVMeOFGatewayPort},
		{&p.MonitorPort, DefaultNVMeOFMonitorPort},
		{&p.DiscoveryPort, DefaultNVMeOFDiscoveryPort},
	} {
		if *f.port == 0 {
			*f.port = f.byDefault
		}
	}
	return p
}

// PortsConflict names two ports of the gateway that are the same, the
// defaults filled in; it is empty when all differ. The schema looks only at
// ports that are written down, this at all.
func (s *NVMeOFGatewaySpec) PortsConflict() string {
	p := s.EffectivePorts()
	ports := []struct {
		name string
		port int32
	}{
		{"ioPort", p.IOPort}, {"gatewayPort", p.GatewayPort},
		{"monitorPort", p.MonitorPort}, {"discoveryPort", p.DiscoveryPort},
	}
	for i, a := range ports {
		for _, b := range ports[i+1:] {
			if a.port == b.port {
				return "ports." + a.name + " and ports." + b.name + " are both " + strconv.Itoa(int(a.port))
			}
		}
	}
	return ""
}

// UsesHostNetwork says whether the gateways run on the network of their node:
// their own setting, or that of the cluster when they have none.
func (s *NVMeOFGatewaySpec) UsesHostNetwork(cluster bool) bool {
	if s.HostNetwork != nil {
		return *s.HostNetwork
	}
	return cluster
}

func init() { SchemeBuilder.Register(&CephNVMeOFGateway{}, &CephNVMeOFGatewayList{}) }
