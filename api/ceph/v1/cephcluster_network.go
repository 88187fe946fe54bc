package v1

// NetworkProviderType is the kind of network that Ceph daemons use.
type NetworkProviderType string

const (
	// NetworkProviderDefault is the pod network, with Services.
	NetworkProviderDefault NetworkProviderType = ""
	// NetworkProviderHost is the network of the nodes.
	NetworkProviderHost NetworkProviderType = "host"
	// NetworkProviderMultus is the pod network with further interfaces from
	// NetworkAttachmentDefinitions.
	NetworkProviderMultus NetworkProviderType = "multus"
)

// CephNetworkType is one of the two networks of Ceph.
type CephNetworkType string

const (
	// CephNetworkPublic is between clients and daemons.
	CephNetworkPublic CephNetworkType = "public"
	// CephNetworkCluster is between OSDs, for copies and recovery.
	CephNetworkCluster CephNetworkType = "cluster"
)

// IPFamilyType is a version of IP.
type IPFamilyType string

const (
	// IPv4 only.
	IPv4 IPFamilyType = "IPv4"
	// IPv6 only.
	IPv6 IPFamilyType = "IPv6"
)

// NetworkSpec says how daemons are reached.
//
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || (self.provider != 'multus' || (self.provider == 'multus' && size(self.selectors) > 0))",message="network.selectors is needed with the provider multus: name a NetworkAttachmentDefinition for public, cluster or both"
// +kubebuilder:validation:XValidation:rule=`!has(self.hostNetwork) || self.hostNetwork == false || !has(self.provider) || self.provider == ""`,message="network.hostNetwork and network.provider exclude each other: remove hostNetwork and write provider host"
type NetworkSpec struct {
	// Provider is empty (pod network, the default), host, or multus. It can
	// change only from or to empty: running daemons are not moved from one
	// network to another by it, since the addresses of mons are part of the
	// cluster's identity.
	//
	// +kubebuilder:validation:Enum="";host;multus
	// +kubebuilder:validation:XValidation:rule="self == '' || oldSelf == '' || self == oldSelf",message="network.provider cannot change from one provider to another: set it to the empty word first"
	// +nullable
	Provider NetworkProviderType `json:"provider,omitempty"`
	// Selectors name the NetworkAttachmentDefinition, as name or
	// namespace/name, for the keys public and cluster.
	//
	// +nullable
	Selectors map[CephNetworkType]string `json:"selectors,omitempty"`
	// AddressRanges are the networks, as CIDRs, in which daemons have their
	// addresses. Needed for host networking on nodes with several networks;
	// with multus they are found out when not given.
	//
	// +nullable
	AddressRanges *AddressRangesSpec `json:"addressRanges,omitempty"`
	// Connections are settings of Ceph's messenger.
	//
	// +nullable
	Connections *ConnectionsSpec `json:"connections,omitempty"`
	// HostNetwork is the old way to write provider host. Empty provider and
	// true here mean the same.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// IPFamily is IPv4 (default) or IPv6. It is chosen when the cluster is made.
	//
	// +kubebuilder:validation:Enum=IPv4;IPv6
	// +nullable
	IPFamily IPFamilyType `json:"ipFamily,omitempty"`
	// DualStack lets daemons use both versions of IP. Default: off.
	DualStack bool `json:"dualStack,omitempty"`
	// MultiClusterService exports the Services of mons and OSDs to other
	// Kubernetes clusters, for mirroring between clusters whose pods cannot
	// reach each other.
	MultiClusterService MultiClusterServiceSpec `json:"multiClusterService,omitzero"`
}

// MultiClusterServiceSpec is about Services that other clusters can reach.
type MultiClusterServiceSpec struct {
	// Enabled makes a ServiceExport for each Service and announces the exported
	// address instead of the cluster IP.
	Enabled bool `json:"enabled,omitempty"`
	// ClusterID is the name of this Kubernetes cluster among the connected ones.
	ClusterID string `json:"clusterID,omitempty"`
}

// CIDR is a network in the form 192.168.0.0/16 or fd00::/64.
//
// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]{2,}\/[0-9]{1,3}$`
type CIDR string

// CIDRList is a list of networks.
type CIDRList []CIDR

// AddressRangesSpec are the networks of the daemons.
type AddressRangesSpec struct {
	// Public are the networks for clients and daemons (Ceph's public_network).
	Public CIDRList `json:"public,omitempty"`
	// Cluster are the networks between OSDs (Ceph's cluster_network). Default:
	// the public ones.
	Cluster CIDRList `json:"cluster,omitempty"`
}

// ConnectionsSpec are settings of Ceph's messenger. A change restarts daemons,
// and clients follow when they mount anew.
type ConnectionsSpec struct {
	// Encryption of what goes over the wire.
	//
	// +nullable
	Encryption *EncryptionSpec `json:"encryption,omitempty"`
	// Compression of what goes over the wire.
	//
	// +nullable
	Compression *CompressionSpec `json:"compression,omitempty"`
	// RequireMsgr2 leaves only port 3300 and the second version of Ceph's
	// protocol. Kernel clients need Linux 5.11 for it. Encryption and
	// compression bring it with them.
	RequireMsgr2 bool `json:"requireMsgr2,omitempty"`
}

// EncryptionSpec switches encryption on the wire.
type EncryptionSpec struct {
	// Enabled encrypts all connections. When off, connections are still
	// authenticated.
	Enabled bool `json:"enabled,omitempty"`
}

// CompressionSpec switches compression on the wire.
type CompressionSpec struct {
	// Enabled compresses what OSDs send.
	Enabled bool `json:"enabled,omitempty"`
}

// IsHost reports whether daemons use the network of their node.
func (n *NetworkSpec) IsHost() bool {
	return n.Provider == NetworkProviderHost || (n.HostNetwork && n.Provider == NetworkProviderDefault)
}

// IsMultus reports whether daemons have interfaces of their own from multus.
func (n *NetworkSpec) IsMultus() bool {
	return n.Provider == NetworkProviderMultus
}

// IsEncrypted reports whether connections are encrypted.
func (n *NetworkSpec) IsEncrypted() bool {
	return n.Connections != nil && n.Connections.Encryption != nil && n.Connections.Encryption.Enabled
}

// IsCompressed reports whether connections are compressed.
func (n *NetworkSpec) IsCompressed() bool {
	return n.Connections != nil && n.Connections.Compression != nil && n.Connections.Compression.Enabled
}

// RequiresMsgr2 reports whether only the second version of the protocol is
// spoken, either by wish or since encryption or compression needs it.
func (n *NetworkSpec) RequiresMsgr2() bool {
	return (n.Connections != nil && n.Connections.RequireMsgr2) || n.IsEncrypted() || n.IsCompressed()
}

// EffectiveIPFamily gives the version of IP or its default, IPv4.
func (n *NetworkSpec) EffectiveIPFamily() IPFamilyType {
	if n.IPFamily == "" {
		return IPv4
	}
	return n.IPFamily
}

// IsHost reports whether a mgr uses the network of its node: its own wish, or
// that of the cluster.
func (m *MgrSpec) IsHost(cluster *NetworkSpec) bool {
	if m.HostNetwork != nil {
		return *m.HostNetwork
	}
	return cluster.IsHost()
}

// ClusterSecuritySpec is about the keys of a cluster.
type ClusterSecuritySpec struct {
	// KeyManagementService says where the keys of encrypted OSDs are kept. Keys
	// that exist are not moved when it changes.
	//
	// +nullable
	KeyManagementService KeyManagementServiceSpec `json:"kms,omitzero"`
	// KeyRotation rotates the keys of encrypted OSDs on PVCs.
	//
	// +nullable
	KeyRotation KeyRotationSpec `json:"keyRotation,omitzero"`
	// CephX is about the keys with which daemons and clients prove who they are.
	CephX ClusterCephxConfig `json:"cephx,omitzero"`
}

// ClusterCephxConfig is about cephx keys, by group of users.
type ClusterCephxConfig struct {
	// AllowedCiphers are the ciphers that mons accept. Removing one locks out
	// every user whose key has it: rotate all keys first. Default: what the
	// Ceph release accepts.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=aes;aes256k
	// +listType=set
	AllowedCiphers []CephxKeyType `json:"allowedCiphers,omitempty"`
	// Daemon is for the keys of the admin and of all daemons. Daemons restart
	// when their key rotates.
	Daemon CephxConfig `json:"daemon,omitzero"`
	// RBDMirrorPeer is for the key inside bootstrap peer tokens. After a
	// rotation the tokens must be brought to the peers again.
	RBDMirrorPeer CephxConfig `json:"rbdMirrorPeer,omitzero"`
	// CSI is for the keys of the CSI drivers.
	CSI CSICephxConfig `json:"csi,omitzero"`
}

// CSICephxConfig is about the keys of the CSI drivers.
type CSICephxConfig struct {
	CephxConfig `json:",inline"`
	// KeepPriorKeyCountMax is how many older generations of keys stay valid
	// after a rotation. Volumes that are mounted go on with the key they were
	// mounted with, so keep 1 or more until all pods were restarted. Default: 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	KeepPriorKeyCountMax uint8 `json:"keepPriorKeyCountMax,omitempty"`
}
