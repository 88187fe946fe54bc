package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephCOSIDriver runs the driver of the Container Object Storage Interface for
// all object stores. There is one, named ceph-cosi-driver, in the namespace of
// the operator. It has no status: its Deployment tells how it is.
//
// +genclient
// +genclient:noStatus
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cephcosi
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.deploymentStrategy`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephCOSIDriver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted driver.
	Spec CephCOSIDriverSpec `json:"spec"`
}

// CephCOSIDriverList is a list of CephCOSIDriver.
//
// +kubebuilder:object:root=true
type CephCOSIDriverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephCOSIDriver `json:"items"`
}

// CephCOSIDriverSpec is the wanted state of the driver.
type CephCOSIDriverSpec struct {
	// Image of the driver. Default: the one that this release was tested with.
	Image string `json:"image,omitempty"`
	// ObjectProvisionerImage is the image of the sidecar. Default: the one that
	// this release was tested with.
	ObjectProvisionerImage string `json:"objectProvisionerImage,omitempty"`
	// DeploymentStrategy is Never, Auto (as soon as there is an object store,
	// the default) or Always.
	//
	// +kubebuilder:validation:Enum=Never;Auto;Always
	DeploymentStrategy COSIDeploymentStrategy `json:"deploymentStrategy,omitempty"`
	// Placement of the driver's pod.
	Placement Placement `json:"placement,omitzero"`
	// Resources of the driver's container.
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// COSIDeploymentStrategy is when the driver runs.
type COSIDeploymentStrategy string

const (
	// COSIDeploymentStrategyNever means that it does not run.
	COSIDeploymentStrategyNever COSIDeploymentStrategy = "Never"
	// COSIDeploymentStrategyAuto means that it runs while there is an object store.
	COSIDeploymentStrategyAuto COSIDeploymentStrategy = "Auto"
	// COSIDeploymentStrategyAlways means that it runs.
	COSIDeploymentStrategyAlways COSIDeploymentStrategy = "Always"
)

// EffectiveDeploymentStrategy gives the strategy or its default, Auto.
func (s *CephCOSIDriverSpec) EffectiveDeploymentStrategy() COSIDeploymentStrategy {
	if s.DeploymentStrategy == "" {
		return COSIDeploymentStrategyAuto
	}
	return s.DeploymentStrategy
}

func init() {
	SchemeBuilder.Register(&CephCOSIDriver{}, &CephCOSIDriverList{})
}
