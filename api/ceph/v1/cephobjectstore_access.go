package v1

// ProtocolSpec says which interfaces gateways offer.
type ProtocolSpec struct {
	// EnableAPIs are the interfaces to offer (RGW's rgw_enable_apis). Default:
	// all of them. It goes before s3.enabled. Without s3 neither bucket claims
	// nor the dashboard work; without admin no user can be managed.
	//
	// +nullable
	EnableAPIs []ObjectStoreAPI `json:"enableAPIs,omitempty"`
	// S3 are settings of the S3 interface.
	//
	// +nullable
	S3 *S3Spec `json:"s3,omitempty"`
	// Swift are settings of the Swift interface.
	//
	// +nullable
	Swift *SwiftSpec `json:"swift,omitempty"`
}

// ObjectStoreAPI is one interface of the gateways.
//
// +kubebuilder:validation:Enum=s3;s3website;swift;swift_auth;admin;sts;iam;notifications
type ObjectStoreAPI string

// S3Spec are settings of the S3 interface.
type S3Spec struct {
	// Enabled switches S3 on or off. Deprecated: write enableAPIs.
	//
	// +nullable
	Enabled *bool `json:"enabled,omitempty"`
	// AuthUseKeystone lets users of Keystone use S3.
	//
	// +nullable
	AuthUseKeystone *bool `json:"authUseKeystone,omitempty"`
}

// SwiftSpec are settings of the Swift interface.
type SwiftSpec struct {
	// AccountInUrl puts the account into the URL, as OpenStack expects.
	//
	// +nullable
	AccountInUrl *bool `json:"accountInUrl,omitempty"`
	// UrlPrefix is the first part of the path of Swift URLs. Default: swift. "/"
	// takes the place of S3, which must then be off.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.~%/-]*$')",message="protocols.swift.urlPrefix must be a path of letters, digits and '_.~%/-'; write for instance swift"
	// +nullable
	UrlPrefix *string `json:"urlPrefix,omitempty"`
	// VersioningEnabled lets Swift keep versions of objects.
	//
	// +nullable
	VersioningEnabled *bool `json:"versioningEnabled,omitempty"`
}

// AuthSpec is about checking users elsewhere.
type AuthSpec struct {
	// Keystone lets users of OpenStack's Keystone in.
	//
	// +nullable
	Keystone *KeystoneSpec `json:"keystone,omitempty"`
}

// KeystoneSpec connects gateways to Keystone.
type KeystoneSpec struct {
	// URL of Keystone, for instance https://keystone.example.net/
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^[:cntrl:][:space:]]*$')",message="auth.keystone.url cannot hold blanks or control characters; write for instance https://keystone.example.net/"
	Url string `json:"url"`
	// ServiceUserSecretName is the Secret with the account by which the gateways
	// check tokens: the variables of an OpenStack rc file (OS_USERNAME,
	// OS_PASSWORD, OS_PROJECT_NAME, ...), API version 3, password type.
	ServiceUserSecretName string `json:"serviceUserSecretName"`
	// AcceptedRoles are the roles of Keystone whose users may come in.
	AcceptedRoles []string `json:"acceptedRoles"`
	// ImplicitTenants gives each Keystone project a tenant of its own: true,
	// false, swift (only for Swift) or s3 (only for S3).
	ImplicitTenants ImplicitTenantSetting `json:"implicitTenants,omitempty"`
	// TokenCacheSize is the number of tokens to remember.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="auth.keystone.tokenCacheSize cannot be negative; write for instance 10000"
	// +nullable
	TokenCacheSize *int `json:"tokenCacheSize,omitempty"`
	// RevocationInterval is how often, in seconds, revoked tokens are asked for.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="auth.keystone.revocationInterval cannot be negative: write a number of seconds"
	// +nullable
	RevocationInterval *int `json:"revocationInterval,omitempty"`
}

// ImplicitTenantSetting is true, false, swift or s3.
type ImplicitTenantSetting string

const (
	// ImplicitTenantSwift is for Swift only.
	ImplicitTenantSwift ImplicitTenantSetting = "swift"
	// ImplicitTenantS3 is for S3 only.
	ImplicitTenantS3 ImplicitTenantSetting = "s3"
	// ImplicitTenantTrue is for both.
	ImplicitTenantTrue ImplicitTenantSetting = "true"
	// ImplicitTenantFalse is for none.
	ImplicitTenantFalse ImplicitTenantSetting = "false"
)

// ObjectStoreHostingSpec are the names under which clients reach a store.
//
// By default a store is reached through its Service, and buckets by path. To
// let clients put the bucket into the host name, name all hosts in dnsNames,
// and let wildcards of each (*.name) lead to the gateways.
type ObjectStoreHostingSpec struct {
	// AdvertiseEndpoint is the address that is given to users, in the status, in
	// Secrets of users and in bucket claims. Default: the Service, or the first
	// external gateway.
	//
	// +nullable
	AdvertiseEndpoint *ObjectEndpointSpec `json:"advertiseEndpoint,omitempty"`
	// DNSNames are host names that gateways take as their own. The advertised
	// name and the Service are always among them once the list is not empty.
	DNSNames []string `json:"dnsNames,omitempty"`
}

// ObjectEndpointSpec is an address of a store.
type ObjectEndpointSpec struct {
	// DnsName is the host name, without wildcard.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$')",message="advertiseEndpoint.dnsName must be a host name, without scheme, port or wildcard; write for instance s3.example.net"
	DnsName string `json:"dnsName"`
	// Port of the address.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// UseTls makes it an https address.
	UseTls bool `json:"useTls"`
}

// ObjectStoreSecuritySpec is about encryption of objects and of connections.
type ObjectStoreSecuritySpec struct {
	SecuritySpec `json:",inline"`
	// ServerSideEncryptionS3 says where the keys of SSE-S3 are kept. Of the
	// services only Vault with the transit engine can do it.
	//
	// +nullable
	ServerSideEncryptionS3 KeyManagementServiceSpec `json:"s3,omitzero"`
	// SSLOptions are options of OpenSSL for the gateways' HTTPS.
	SSLOptions *SSLOptionsSpec `json:"sslOptions,omitempty"`
	// Ciphers are the ciphers of TLS up to 1.2, by OpenSSL name, best first.
	// Default: those of OpenSSL.
	//
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=1000
	Ciphers []string `json:"ciphers,omitempty"`
	// CipherSuites are the cipher suites of TLS 1.3, by OpenSSL name, best first.
	//
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=1000
	CipherSuites []string `json:"cipherSuites,omitempty"`
	// TLSGroups are the key exchange groups of TLS, by OpenSSL name, best first.
	TLSGroups []string `json:"tlsGroups,omitempty"`
}

// SSLOptionsSpec are options of OpenSSL for the gateways' HTTPS. Each is off
// when left out, save for those that say otherwise.
type SSLOptionsSpec struct {
	// DefaultWorkarounds keeps OpenSSL's workarounds for faulty clients.
	DefaultWorkarounds *bool `json:"defaultWorkarounds,omitempty"`
	// NoCompression switches compression of TLS off.
	NoCompression *bool `json:"noCompression,omitempty"`
	// SingleDiffieHellmanUse makes a new key for each exchange.
	SingleDiffieHellmanUse *bool `json:"singleDiffieHellmanUse,omitempty"`
	// SSLv2 allows SSL 2, which is broken.
	SSLv2 *bool `json:"sslv2,omitempty"`
	// SSLv3 allows SSL 3, which is broken.
	SSLv3 *bool `json:"sslv3,omitempty"`
	// TLSv1_0 allows TLS 1.0, which is obsolete.
	TLSv1_0 *bool `json:"tlsv1_0,omitempty"`
	// TLSv1_1 allows TLS 1.1, which is obsolete.
	TLSv1_1 *bool `json:"tlsv1_1,omitempty"`
	// TLSv1_2 allows TLS 1.2. Default: allowed.
	TLSv1_2 *bool `json:"tlsv1_2,omitempty"`
}

// IsS3Enabled reports whether the gateways offer S3. The list of interfaces
// decides when there is one; else S3 is on unless switched off.
func (p *ProtocolSpec) IsS3Enabled() bool {
	if len(p.EnableAPIs) > 0 {
		for _, api := range p.EnableAPIs {
			if api == "s3" {
				return true
			}
		}
		return false
	}
	return p.S3 == nil || p.S3.Enabled == nil || *p.S3.Enabled
}
