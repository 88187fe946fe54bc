package v1

import (
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephClient is a cephx user for a program outside the operator's care, and
// the Secret that hands over its key.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephcl
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.status.info.secretName`,priority=1
// +kubebuilder:printcolumn:name="Key-Generation",type=integer,JSONPath=`.status.cephx.keyGeneration`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephClient struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the user as it should be.
	Spec ClientSpec `json:"spec"`

	// Status is the user as it was last seen.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status CephClientStatus `json:"status,omitzero"`
}

// CephClientList is a list of CephClient.
//
// +kubebuilder:object:root=true
type CephClientList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephClient `json:"items"`
}

// ClientSpec is a cephx user: its name, what it may do, and where its key is
// written.
type ClientSpec struct {
	// Name is the user's name without "client."; metadata.name when unset.
	// Names of the users that the operator itself keeps, such as "admin", are
	// refused. A change makes a new user; the old one is removed when it was
	// made by this object.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9._][A-Za-z0-9._-]{0,252}$')",message="name must be 1 to 253 letters, digits, '.', '_' or '-', not begin with '-', and be written without 'client.'"
	Name string `json:"name,omitempty"`

	// SecretName is the Secret that the key is written to, in the same
	// namespace; "rook-ceph-client-<metadata.name>" when unset. It must not be
	// a Secret of somebody else.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="secretName cannot change after creation: create another CephClient instead"
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$')",message="secretName must be the name of a Secret: lower case letters, digits, '-' and '.'"
	SecretName string `json:"secretName,omitempty"`

	// RemoveSecret true writes no Secret, and deletes the one that was
	// written; the user stays in Ceph. Set it back to false to have the key
	// written again.
	// +optional
	RemoveSecret bool `json:"removeSecret,omitempty"`

	// Caps are the user's capabilities: for "mon", "mgr", "osd" and "mds" each
	// a capability string such as "profile rbd pool=volumes". They are
	// replaced as a whole when they change, and the key stays the same.
	// +kubebuilder:pruning:PreserveUnknownFields
	Caps map[string]string `json:"caps"`

	// Security is how the key is rotated.
	// +optional
	Security ClientSecuritySpec `json:"security,omitzero"`
}

// ClientSecuritySpec is how the key of a client is rotated.
type ClientSecuritySpec struct {
	// CephX is when the key is made anew, and of which type. The new key is
	// in the Secret at once, and the old one is then no longer valid: users
	// of the key must read the Secret again.
	// +optional
	CephX CephxConfig `json:"cephx,omitzero"`
}

// CephClientStatus is what was last seen of a client.
type CephClientStatus struct {
	// Phase is one word for a person: Progressing, Ready, Failure, Deleting.
	// +optional
	Phase ConditionType `json:"phase,omitempty"`

	// Info holds facts for people and scripts: "secretName" is the Secret
	// with the key.
	// +optional
	// +nullable
	Info map[string]string `json:"info,omitempty"`

	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Cephx says which key the user has.
	// +optional
	Cephx CephxStatus `json:"cephx,omitzero"`

	// Conditions say what is done, what is awaited and what is wrong.
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// clientSecretPrefix begins the name of a client's Secret, when the spec does
// not name it.
const clientSecretPrefix = "rook-ceph-client-"

// ClientName is the user's name in Ceph without "client.": spec.name when it
// is set, the object's name otherwise.
func (c *CephClient) ClientName() string {
	if c.Spec.Name != "" {
		return c.Spec.Name
	}
	return c.Name
}

// EntityName is the user's name in Ceph as "auth" commands take it.
func (c *CephClient) EntityName() string {
	return "client." + c.ClientName()
}

// SecretName is the name of the Secret with the key: spec.secretName, or one
// made of the object's name, which unlike spec.name is always fit for it.
func (c *CephClient) SecretName() string {
	if c.Spec.SecretName != "" {
		return c.Spec.SecretName
	}
	return clientSecretPrefix + c.Name
}

// ReservedClientName says whether a user's name (without "client.") belongs to
// a user that the operator keeps itself: its own users, those of daemons, and
// those of Ceph. A CephClient by that name would fight over its key and caps.
//
// The names of the CSI users are not among them: with csi.skipUserCreation in
// the CephCluster they are the administrator's to make, so whether they are
// free depends on the cluster.
func ReservedClientName(name string) bool {
	return reservedClientName.MatchString(name)
}

// reservedClientName is compiled once; see ReservedClientName.
var reservedClientName = regexp.MustCompile(`^(` +
	`admin|admin-rotator|operator|` + // the operator's own
	`crash|ceph-exporter|fs-mirror|rbd-mirror|` + // daemons with one user for all
	`rbd-mirror\..*|rgw\..*|nfs-ganesha\..*|nvmeof\..*|` + // daemons with a user each
	`rbd-mirror-peer|mirror-peer|` + // users inside bootstrap peer tokens
	`bootstrap-.*|osd-lockbox\..*` + // Ceph's
	`)$`)

func init() { SchemeBuilder.Register(&CephClient{}, &CephClientList{}) }
