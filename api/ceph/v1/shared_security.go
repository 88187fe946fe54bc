package v1

// KeyManagementServiceSpec says where encryption keys are kept.
type KeyManagementServiceSpec struct {
	// ConnectionDetails are the settings of the key management service, as
	// upper case names. KMS_PROVIDER chooses it: vault, ibmkeyprotect, kmip or
	// azure-kv; without it keys are kept in Kubernetes Secrets. Vault for
	// instance takes VAULT_ADDR, VAULT_BACKEND_PATH and VAULT_AUTH_METHOD.
	// Secret values do not belong here but into the Secrets that the settings name.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	ConnectionDetails map[string]string `json:"connectionDetails,omitempty"`
	// TokenSecretName is the Secret, in the namespace of this object, that
	// holds the credential for the service (key `token` for Vault).
	TokenSecretName string `json:"tokenSecretName,omitempty"`
}

// IsEnabled reports whether keys are kept in a key management service rather
// than in Kubernetes Secrets.
func (k KeyManagementServiceSpec) IsEnabled() bool {
	return len(k.ConnectionDetails) > 0
}

// Provider gives KMS_PROVIDER, empty for Kubernetes Secrets.
func (k KeyManagementServiceSpec) Provider() string {
	return k.ConnectionDetails["KMS_PROVIDER"]
}

// KeyRotationSpec rotates the keys that encrypt OSDs at rest on a schedule.
type KeyRotationSpec struct {
	// Enabled switches rotation on. It applies to encrypted OSDs on PVCs.
	//
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// Schedule is when, in the syntax of a CronJob. Default: @weekly.
	Schedule string `json:"schedule,omitempty"`
}

// DefaultKeyRotationSchedule is the schedule when rotation is on and none is given.
const DefaultKeyRotationSchedule = "@weekly"

// EffectiveSchedule gives the schedule or its default.
func (k KeyRotationSpec) EffectiveSchedule() string {
	if k.Schedule == "" {
		return DefaultKeyRotationSchedule
	}
	return k.Schedule
}

// SecuritySpec is where keys are kept and how they rotate.
type SecuritySpec struct {
	// KeyManagementService says where encryption keys are kept. Keys that exist
	// are not moved when it changes.
	//
	// +nullable
	KeyManagementService KeyManagementServiceSpec `json:"kms,omitzero"`
	// KeyRotation rotates the keys of encrypted OSDs.
	//
	// +nullable
	KeyRotation KeyRotationSpec `json:"keyRotation,omitzero"`
}
