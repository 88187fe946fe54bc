package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephNFS runs NFS-Ganesha servers over CephFS and object stores. Exports are
// made with the mgr's nfs module ("ceph nfs export create ..."); every server
// of a CephNFS offers all of them. NFS version 4 only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nfs,path=cephnfses
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Servers",type=integer,JSONPath=`.spec.server.active`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephNFS struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the servers as they should be.
	Spec NFSGaneshaSpec `json:"spec"`

	// Status is the servers as they were last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status NFSStatus `json:"status,omitzero"`
}

// CephNFSList is a list of CephNFS.
//
// +kubebuilder:object:root=true
type CephNFSList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephNFS `json:"items"`
}

// NFSGaneshaSpec is a group of NFS-Ganesha servers that share their exports
// and their grace period.
type NFSGaneshaSpec struct {
	// RADOS is where exports and client recovery data used to be placed.
	//
	// Deprecated: the pool is ".nfs" and the namespace is the name of the
	// object, as the mgr's nfs module expects. Leave it out.
	// +optional
	// +nullable
	RADOS GaneshaRADOSSpec `json:"rados,omitzero"`

	// Server is the servers.
	Server GaneshaServerSpec `json:"server"`

	// Security is how users are known and how they prove who they are.
	// Without it, servers trust the numeric user ids of clients (AUTH_SYS).
	// +optional
	// +nullable
	Security *NFSSecuritySpec `json:"security,omitempty"`
}

// GaneshaRADOSSpec is a pool and a namespace in it.
type GaneshaRADOSSpec struct {
	// Pool used to be the pool.
	//
	// Deprecated: the pool is ".nfs". Another value is reported and has no
	// effect.
	// +optional
	Pool string `json:"pool,omitempty"`

	// Namespace used to be the rados namespace.
	//
	// Deprecated: it is the name of the object. Another value is reported and
	// has no effect.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// GaneshaServerSpec is the servers of a CephNFS.
type GaneshaServerSpec struct {
	// Active is the number of servers, 1 to 64. Each has a Service of its own:
	// a client stays with the server it mounted from, since that server holds
	// its locks. Lowering it takes the highest servers away, and the locks of
	// their clients with them.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 64",message="active must be from 1 to 64 NFS servers; delete the CephNFS to run none"
	Active int `json:"active"`

	// Placement is where the pods may run. It adds to the "all" placement of
	// the CephCluster.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Placement Placement `json:"placement,omitzero"`

	// Annotations are put on the pods. A change restarts them.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Annotations Annotations `json:"annotations,omitempty"`

	// Labels are put on the pods. A change restarts them.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Labels Labels `json:"labels,omitempty"`

	// Resources of each NFS-Ganesha container.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// PriorityClassName is the priority class of the pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// LogLevel is how much the servers log: NIV_NULL, NIV_FATAL, NIV_MAJ,
	// NIV_CRIT, NIV_WARN, NIV_EVENT, NIV_INFO, NIV_DEBUG, NIV_MID_DEBUG or
	// NIV_FULL_DEBUG. NIV_INFO when unset. A change restarts the servers.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^((NIV_)?[A-Z_]{1,20})?$')",message="logLevel must be one of Ganesha's log levels in capitals, such as NIV_INFO or NIV_DEBUG"
	LogLevel string `json:"logLevel,omitempty"`

	// HostNetwork runs the servers on the network of their node, and so at
	// most one on a node. When unset, the setting of the CephCluster holds.
	// +optional
	// +nullable
	HostNetwork *bool `json:"hostNetwork,omitempty"`

	// Port is the TCP port of NFS; 2049 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// LivenessProbe tunes or disables the check that a server answers.
	// +optional
	LivenessProbe *ProbeSpec `json:"livenessProbe,omitempty"`

	// Image is the container image of NFS-Ganesha; the Ceph image of the
	// CephCluster when unset. It needs the RADOS and CephFS libraries of a
	// release that the cluster talks to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1572864
	Image string `json:"image,omitempty"`

	// ImagePullPolicy of that image; that of the CephCluster when unset or
	// empty.
	// +optional
	// +kubebuilder:validation:Enum=IfNotPresent;Always;Never;""
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// NFSSecuritySpec is how users are known and how they prove who they are.
type NFSSecuritySpec struct {
	// SSSD gives the servers users and groups from a directory, such as LDAP
	// or Active Directory, by way of the System Security Services Daemon.
	// +optional
	// +nullable
	SSSD *SSSDSpec `json:"sssd,omitempty"`

	// Kerberos makes clients authenticate with Kerberos.
	// +optional
	// +nullable
	Kerberos *KerberosSpec `json:"kerberos,omitempty"`
}

// SSSDSpec is where the System Security Services Daemon runs.
type SSSDSpec struct {
	// Sidecar runs it beside each NFS server. It is the only way there is.
	// +optional
	Sidecar *SSSDSidecar `json:"sidecar,omitempty"`
}

// SSSDSidecar is an SSSD container beside an NFS server.
type SSSDSidecar struct {
	// Image is a container image with SSSD in it.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// SSSDConfigFile is where sssd.conf comes from. The source must hold a
	// file of that name that only its owner may read (mode 0600). When unset,
	// the image must hold its configuration itself.
	// +optional
	SSSDConfigFile *SSSDSidecarConfigFile `json:"sssdConfigFile,omitempty"`

	// AdditionalFiles are further files for SSSD, such as CA certificates.
	// They appear under /etc/sssd/rook-additional/<subPath>, which sssd.conf
	// may name.
	// +optional
	AdditionalFiles AdditionalVolumeMounts `json:"additionalFiles,omitempty"`

	// Resources of the sidecar container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// DebugLevel of SSSD, from 0 (fatal failures) to 10; when unset or 0,
	// SSSD's own setting holds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	DebugLevel int `json:"debugLevel,omitempty"`
}

// SSSDSidecarConfigFile is where sssd.conf comes from.
type SSSDSidecarConfigFile struct {
	// VolumeSource holds a file "sssd.conf".
	// +optional
	VolumeSource *ConfigFileVolumeSource `json:"volumeSource,omitempty"`
}

// KerberosSpec is how the servers take part in a Kerberos realm. An export
// asks for Kerberos by its "sectype".
type KerberosSpec struct {
	// PrincipalName is the service part of the servers' principal, as in
	// <principalName>/<hostname>@<realm>, where the hostname is
	// <namespace>-<name of the CephNFS>.
	// +optional
	// +kubebuilder:default=nfs
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._/@-]*$') && !self.startsWith('-')",message="principalName must be letters, digits, '.', '_', '/', '@' or '-', and not begin with '-'; the usual one is nfs"
	PrincipalName string `json:"principalName,omitempty"`

	// DomainName is the NFSv4 domain in which names of users are unique
	// (the Domain of idmapd.conf), such as "example.com". When unset, the
	// server derives one from its host name.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')",message="domainName must be a DNS domain, such as example.com"
	DomainName string `json:"domainName,omitempty"`

	// ConfigFiles is where Kerberos configuration comes from; every file of
	// it is put in /etc/krb5.conf.rook/, which krb5.conf includes. When unset,
	// the image must hold its configuration itself.
	// +optional
	ConfigFiles KerberosConfigFiles `json:"configFiles,omitzero"`

	// KeytabFile is where the keytab of the servers' principal comes from;
	// it becomes /etc/krb5.keytab.
	// +optional
	KeytabFile KerberosKeytabFile `json:"keytabFile,omitzero"`
}

// KerberosConfigFiles is where files for krb5.conf come from.
type KerberosConfigFiles struct {
	// VolumeSource holds one or more krb5.conf fragments.
	// +optional
	VolumeSource *ConfigFileVolumeSource `json:"volumeSource,omitempty"`
}

// KerberosKeytabFile is where the keytab comes from.
type KerberosKeytabFile struct {
	// VolumeSource holds a file "krb5.keytab".
	// +optional
	VolumeSource *ConfigFileVolumeSource `json:"volumeSource,omitempty"`
}

// NFSStatus is what was last seen of the servers.
type NFSStatus struct {
	Status `json:",inline"`

	// Cephx says which keys the servers run with.
	// +optional
	Cephx LocalCephxStatus `json:"cephx,omitzero"`
}

const (
	// DefaultNFSPort is the TCP port of NFS (RFC 7530, section 2.1).
	DefaultNFSPort int32 = 2049
	// NFSPoolName is the pool in which the mgr's nfs module keeps exports.
	NFSPoolName = ".nfs"
	// DefaultKerberosPrincipalName is the service name of NFS in Kerberos
	// (RFC 7530, section 3.2.1.1).
	DefaultKerberosPrincipalName = "nfs"
)

// RADOSPool is the pool of exports and recovery data; always NFSPoolName,
// whatever the deprecated spec.rados says.
func (n *CephNFS) RADOSPool() string { return NFSPoolName }

// RADOSNamespace is the RADOS namespace of exports and recovery data, by which
// the mgr's nfs module knows the cluster of servers: the name of the object.
func (n *CephNFS) RADOSNamespace() string { return n.Name }

// EffectivePort is the TCP port of NFS, the default filled in.
func (s *GaneshaServerSpec) EffectivePort() int32 {
	if s.Port == 0 {
		return DefaultNFSPort
	}
	return s.Port
}

// UsesHostNetwork says whether the servers run on the network of their node:
// their own setting, or that of the cluster when they have none.
func (s *GaneshaServerSpec) UsesHostNetwork(cluster bool) bool {
	if s.HostNetwork != nil {
		return *s.HostNetwork
	}
	return cluster
}

// EffectivePrincipalName is the service part of the principal, the default
// filled in.
func (k *KerberosSpec) EffectivePrincipalName() string {
	if k.PrincipalName == "" {
		return DefaultKerberosPrincipalName
	}
	return k.PrincipalName
}

func init() { SchemeBuilder.Register(&CephNFS{}, &CephNFSList{}) }
