package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// nobody is a user that owns no file in any image.
const nobody int64 = 65532

// Confined is the security context of containers that need nothing: no root, no
// capability, no file of the image that they could change.
func Confined(c Cluster) *corev1.SecurityContext {
	if c.Privileged {
		return &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	s := capable()
	s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = ptr.To(nobody), ptr.To(nobody), ptr.To(true)
	s.ReadOnlyRootFilesystem = ptr.To(true)
	return s
}

// Daemonic is the security context of daemons. They run as Ceph's user where its
// number is known. Otherwise they start as root, with just what it takes to own
// Ceph's directories and to drop to Ceph's user.
func Daemonic(c Cluster) *corev1.SecurityContext {
	if c.Privileged {
		return &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	if c.CephUID == 0 {
		return Rooted(c)
	}
	s := capable()
	s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = ptr.To(c.CephUID), ptr.To(c.CephUID), ptr.To(true)
	return s
}

// Rooted is the security context of containers that give directories to Ceph's
// user: root, with no more than that takes.
func Rooted(c Cluster) *corev1.SecurityContext {
	if c.Privileged {
		return &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	s := capable("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
	s.RunAsUser, s.RunAsGroup = ptr.To[int64](0), ptr.To[int64](0)
	return s
}

// capable is a security context with these capabilities and no others.
func capable(add ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		Privileged:               ptr.To(false),
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}
