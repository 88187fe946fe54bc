package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// GatewaySpec describes the RGW daemons of an object store.
type GatewaySpec struct {
	// Port is the HTTP port of the Service. 0 together with a securePort:
	// no HTTP; 0 alone: 80.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 65535",message="gateway.port must be from 0 to 65535; write for instance 80"
	Port int32 `json:"port,omitempty"`
	// SecurePort is the HTTPS port of the Service; it needs a certificate. 0: no
	// HTTPS.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +nullable
	SecurePort int32 `json:"securePort,omitempty"`
	// Instances is the number of gateways, 1 when unset. Autoscalers change it
	// through the scale subresource.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 1000",message="gateway.instances must be from 0 to 1000; write for instance 2"
	// +nullable
	Instances *int32 `json:"instances,omitempty"`
	// HostNetwork runs the gateways on the network of their node. Default: as
	// the cluster.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	HostNetwork *bool `json:"hostNetwork,omitempty"`
	// SSLCertificateRef is the Secret with the certificate: of type
	// kubernetes.io/tls, or one with the key `cert` that holds key and
	// certificates in PEM.
	//
	// +nullable
	SSLCertificateRef string `json:"sslCertificateRef,omitempty"`
	// CaBundleRef is the Secret with further authorities (key `cabundle`) that
	// the gateways trust, for instance that of Keystone or Vault.
	//
	// +nullable
	CaBundleRef string `json:"caBundleRef,omitempty"`
	// ExternalRgwEndpoints are gateways that run elsewhere. None is run here
	// then.
	//
	// +nullable
	ExternalRgwEndpoints []EndpointAddress `json:"externalRgwEndpoints,omitempty"`
	// Service adds to the Service in front of the gateways.
	//
	// +nullable
	Service *RGWServiceSpec `json:"service,omitempty"`
	// DisableMultisiteSyncTraffic keeps these gateways out of the traffic
	// between zones, so that they serve clients only. Another store of the same
	// zone must do the work. Default: off.
	DisableMultisiteSyncTraffic bool `json:"disableMultisiteSyncTraffic,omitempty"`
	// DashboardEnabled shows the store in the dashboard. Default: on.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	DashboardEnabled *bool `json:"dashboardEnabled,omitempty"`

	// Placement of the gateways.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Placement Placement `json:"placement,omitzero"`
	// Resources of a gateway.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// PriorityClassName of the gateways.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Annotations are added to the pods.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Annotations Annotations `json:"annotations,omitempty"`
	// Labels are added to the pods.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Labels Labels `json:"labels,omitempty"`
	// AdditionalVolumeMounts bring files into the gateways, each at
	// /var/rgw/<subPath>.
	AdditionalVolumeMounts AdditionalVolumeMounts `json:"additionalVolumeMounts,omitempty"`
	// OpsLogSidecar adds a container that prints the log of all requests.
	//
	// +nullable
	OpsLogSidecar *OpsLogSidecar `json:"opsLogSidecar,omitempty"`

	// RgwConfig are settings of these gateways in the mons' configuration
	// database, by option name. A setting that is removed here is removed there.
	//
	// +nullable
	RgwConfig map[string]string `json:"rgwConfig,omitempty"`
	// RgwConfigFromSecret are such settings with values from Secrets.
	//
	// +nullable
	RgwConfigFromSecret map[string]corev1.SecretKeySelector `json:"rgwConfigFromSecret,omitempty"`
	// RgwCommandFlags are flags of the radosgw command, by name without dashes.
	// They go before rgwConfig and can break a gateway; prefer rgwConfig.
	//
	// +nullable
	RgwCommandFlags map[string]string `json:"rgwCommandFlags,omitempty"`
	// ReadAffinity says from which copy the gateways read.
	ReadAffinity *RgwReadAffinity `json:"readAffinity,omitempty"`
}

// EndpointAddress is a gateway that runs elsewhere, by IP or by name.
//
// +structType=atomic
type EndpointAddress struct {
	// IP address. A name, when given, goes before it.
	IP string `json:"ip,omitempty"`
	// Hostname is a DNS name, needed with certificates that are made for it.
	Hostname string `json:"hostname,omitempty"`
}

// RGWServiceSpec adds to the Service in front of the gateways.
type RGWServiceSpec struct {
	// Annotations of the Service.
	Annotations Annotations `json:"annotations,omitempty"`
	// Labels of the Service.
	Labels Labels `json:"labels,omitempty"`
}

// OpsLogSidecar is a container that prints the log of all requests.
type OpsLogSidecar struct {
	// Resources of the container.
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// RgwReadAffinity says from which copy gateways read.
type RgwReadAffinity struct {
	// Type is localize (the copy nearest to the gateway), balance (any copy), or
	// default (the first copy, as Ceph does by itself).
	//
	// +kubebuilder:validation:Enum=localize;balance;default
	Type string `json:"type"`
}

// HasTLS reports whether the gateways serve HTTPS.
func (g *GatewaySpec) HasTLS() bool {
	return g.SecurePort != 0 && (g.SSLCertificateRef != "" || g.ServingCertificateSecret() != "")
}

// servingCertAnnotation makes OpenShift put a certificate for a Service into
// the Secret that its value names.
const servingCertAnnotation = "service.beta.openshift.io/serving-cert-secret-name"

// ServingCertificateSecret gives the Secret that OpenShift fills with a
// certificate for the Service, if it was asked to; else it is empty.
func (g *GatewaySpec) ServingCertificateSecret() string {
	if g.Service == nil {
		return ""
	}
	return g.Service.Annotations[servingCertAnnotation]
}

// DefaultGatewayPort is the port of the Service in front of the gateways when
// the spec names none.
const DefaultGatewayPort = 80

// EffectiveInstances gives the number of gateways to run: the instances, or 1.
// A store can be scaled to 0.
func (g *GatewaySpec) EffectiveInstances() int32 {
	if g.Instances == nil {
		return 1
	}
	return *g.Instances
}

// EffectivePort gives the HTTP port, 80 when neither port is given, and 0 when
// only HTTPS is wanted.
func (g *GatewaySpec) EffectivePort() int32 {
	if g.Port == 0 && g.SecurePort == 0 {
		return DefaultGatewayPort
	}
	return g.Port
}

// IsHost reports whether gateways use the network of their node: their own
// wish, or that of the cluster.
func (g *GatewaySpec) IsHost(cluster *NetworkSpec) bool {
	if g.HostNetwork != nil {
		return *g.HostNetwork
	}
	return cluster.IsHost()
}

// IsDashboardEnabled reports whether the store is shown in the dashboard;
// unset means yes.
func (g *GatewaySpec) IsDashboardEnabled() bool {
	return g.DashboardEnabled == nil || *g.DashboardEnabled
}

// Host gives the name of an endpoint, or its IP when it has no name.
func (e EndpointAddress) Host() string {
	if e.Hostname != "" {
		return e.Hostname
	}
	return e.IP
}
