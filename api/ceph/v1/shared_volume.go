package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// ConfigFileVolumeSource is the part of a pod's volume sources that can hold
// configuration files. Exactly one member is to be set.
type ConfigFileVolumeSource struct {
	// HostPath is a file or directory of the node. It must exist on every node
	// that the pod can run on.
	HostPath *corev1.HostPathVolumeSource `json:"hostPath,omitempty"`
	// EmptyDir is an empty directory that lives as long as the pod.
	EmptyDir *corev1.EmptyDirVolumeSource `json:"emptyDir,omitempty"`
	// Secret takes files from a Secret of the same namespace.
	Secret *corev1.SecretVolumeSource `json:"secret,omitempty"`
	// PersistentVolumeClaim mounts a claim of the same namespace.
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
	// ConfigMap takes files from a ConfigMap of the same namespace.
	ConfigMap *corev1.ConfigMapVolumeSource `json:"configMap,omitempty"`
	// Projected joins several sources in one directory.
	Projected *corev1.ProjectedVolumeSource `json:"projected,omitempty"`
}

// ToVolumeSource gives the pod volume source with the same member set.
func (c ConfigFileVolumeSource) ToVolumeSource() corev1.VolumeSource {
	v := c.DeepCopy()
	return corev1.VolumeSource{
		HostPath:              v.HostPath,
		EmptyDir:              v.EmptyDir,
		Secret:                v.Secret,
		PersistentVolumeClaim: v.PersistentVolumeClaim,
		ConfigMap:             v.ConfigMap,
		Projected:             v.Projected,
	}
}

// IsEmpty reports whether no source is given.
func (c ConfigFileVolumeSource) IsEmpty() bool {
	return c == ConfigFileVolumeSource{}
}

// AdditionalVolumeMount brings files of the user into a daemon's container.
type AdditionalVolumeMount struct {
	// SubPath is the directory under the daemon's fixed base directory at which
	// the files appear: /var/rgw/<subPath> in a gateway, /etc/sssd/rook-additional/<subPath>
	// in an SSSD sidecar. Two mounts cannot have the same one.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[^:]+$`
	SubPath string `json:"subPath"`
	// VolumeSource is where the files come from.
	VolumeSource *ConfigFileVolumeSource `json:"volumeSource"`
}

// AdditionalVolumeMounts is a list of mounts, unique by subPath.
type AdditionalVolumeMounts []AdditionalVolumeMount
