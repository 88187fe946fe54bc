package v1

// CephxKeyType is the cipher of a cephx key: aes, or aes256k from Ceph 20.2 on.
//
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=7
type CephxKeyType string

const (
	// CephxKeyTypeAES is the cipher that every Ceph release knows.
	CephxKeyTypeAES CephxKeyType = "aes"
	// CephxKeyTypeAES256K is the stronger cipher; daemons and clients that are
	// older than it cannot use such a key.
	CephxKeyTypeAES256K CephxKeyType = "aes256k"
)

// CephxKeyRotationPolicy says when cephx keys are made anew.
type CephxKeyRotationPolicy string

const (
	// DisabledCephxKeyRotationPolicy keeps keys as they are; so does the empty word.
	DisabledCephxKeyRotationPolicy CephxKeyRotationPolicy = "Disabled"
	// KeyGenerationCephxKeyRotationPolicy rotates when spec.keyGeneration is
	// above the generation in the status.
	KeyGenerationCephxKeyRotationPolicy CephxKeyRotationPolicy = "KeyGeneration"
)

// CephxConfig says when and how the cephx keys of one group of users rotate.
// Rotation needs Ceph 19.2.3 or newer.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.keyGeneration) || has(self.keyGeneration)",message="keyGeneration cannot be removed once it was set: keep the last value, and set keyRotationPolicy to Disabled to stop rotation"
type CephxConfig struct {
	// KeyRotationPolicy is Disabled (also when empty) or KeyGeneration.
	//
	// +kubebuilder:validation:Enum="";Disabled;KeyGeneration
	KeyRotationPolicy CephxKeyRotationPolicy `json:"keyRotationPolicy,omitempty"`
	// KeyGeneration is the wanted generation of the keys. With the policy
	// KeyGeneration, raising it above the generation in the status rotates each
	// key once; a jump of several generations is still one rotation. It cannot
	// go down, since an old key cannot be brought back.
	//
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="keyGeneration cannot go down: write the current generation or a higher one"
	KeyGeneration uint32 `json:"keyGeneration,omitempty"`
	// KeyType is the cipher of keys made from now on. It takes effect at the
	// next rotation; keys that exist are not changed by it alone. Default: the
	// newest cipher that the running Ceph release makes by itself.
	//
	// +kubebuilder:validation:Enum=aes;aes256k
	KeyType CephxKeyType `json:"keyType,omitempty"`
}

// RotationWanted reports whether the keys described by the status are to be
// made anew.
func (c CephxConfig) RotationWanted(current CephxStatus) bool {
	return c.KeyRotationPolicy == KeyGenerationCephxKeyRotationPolicy && c.KeyGeneration > current.KeyGeneration
}

// CephxStatus describes the cephx key that is in use now.
type CephxStatus struct {
	// KeyGeneration counts rotations: 1 for the first key, 0 while unknown (a
	// key from before generations were counted).
	KeyGeneration uint32 `json:"keyGeneration,omitempty"`
	// KeyCephVersion is the Ceph version that made the key, for instance
	// 20.2.2-0; empty while unknown.
	KeyCephVersion string `json:"keyCephVersion,omitempty"`
	// KeyType is the cipher of the key; empty while unknown.
	KeyType CephxKeyType `json:"keyType,omitempty"`
}

// LocalCephxStatus is the key status of kinds that run one sort of daemon.
type LocalCephxStatus struct {
	// Daemon describes the keys of the daemons of this object.
	Daemon CephxStatus `json:"daemon,omitzero"`
}
