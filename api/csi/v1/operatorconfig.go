package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OperatorConfigDefaultName is the name of the OperatorConfig that is used when
// the environment of the operator (OPERATOR_CONFIG_NAME) names no other.
const OperatorConfigDefaultName = "ceph-csi-operator-config"

// OperatorConfigSpec holds settings for all drivers.
type OperatorConfigSpec struct {
	// How much the operator logs.
	// +optional
	Log *OperatorLogSpec `json:"log,omitempty"`

	// Defaults for every Driver: each field that a Driver leaves out is taken from
	// here, and where both leave it out, from the operator's own defaults. Maps
	// and lists are taken whole, never merged. A change updates every Driver that
	// does not set the field itself.
	// +optional
	DriverSpecDefaults *DriverSpec `json:"driverSpecDefaults,omitempty"`
}

// OperatorLogSpec says how much the operator logs.
type OperatorLogSpec struct {
	// From 0, the least, to 3. Default 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3
	// +optional
	Verbosity int `json:"verbosity,omitempty"`
}

// OperatorConfigStatus is what the operator reports on an OperatorConfig.
type OperatorConfigStatus struct {
	CommonStatus `json:",inline"`

	// Ready when the operator uses this object, Ignored when it reads another
	// one, Failed when something the object names is missing.
	// +optional
	Phase string `json:"phase,omitempty"`

	// The phase in words.
	// +optional
	Message string `json:"message,omitempty"`

	// How many Drivers take defaults from this object.
	// +optional
	Drivers int32 `json:"drivers,omitempty"`
}

// OperatorConfig holds the defaults of all Drivers. The operator reads one of
// them, in its own namespace, by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Drivers",type=integer,JSONPath=`.status.drivers`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OperatorConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Settings for all drivers.
	Spec OperatorConfigSpec `json:"spec,omitempty"`
	// What the operator reports.
	Status OperatorConfigStatus `json:"status,omitempty"`
}

// OperatorConfigList is a list of OperatorConfigs.
//
// +kubebuilder:object:root=true
type OperatorConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OperatorConfig `json:"items"`
}
