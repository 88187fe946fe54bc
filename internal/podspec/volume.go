package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Volumes that every daemon gets.
func Volumes(c Cluster, d Daemon) []corev1.Volume {
	host := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}}
	}
	vols := []corev1.Volume{
		ConfigVolume(),
		{Name: VolumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		host(VolumeSockets, c.DataDir+"/exporter"),
		host(VolumeLog, c.DataDir+"/"+c.Namespace+"/log"),
		host(VolumeCrash, c.DataDir+"/"+c.Namespace+"/crash"),
	}
	if d.Keyring != "" {
		vols = append(vols, KeyringVolume(d.Keyring))
	}
	if !d.Stateless {
		data := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		if d.Data != nil {
			data = *d.Data
		}
		vols = append(vols, corev1.Volume{Name: VolumeData, VolumeSource: data})
	}
	return vols
}

// ConfigVolume is the user's ceph.conf.
func ConfigVolume() corev1.Volume {
	return corev1.Volume{Name: VolumeConfig, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To[int32](0o644),
		Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: ConfigOverride},
			Items:                []corev1.KeyToPath{{Key: "config", Path: "ceph.conf", Mode: ptr.To[int32](0o444)}},
		}}},
	}}}
}

// KeyringVolume is a Secret with a keyring in it.
func KeyringVolume(secret string) corev1.Volume {
	return corev1.Volume{Name: VolumeKeyring, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To[int32](0o444)}}}
}

// Mounts of a daemon's containers.
func Mounts(d Daemon) []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{
		{Name: VolumeConfig, MountPath: "/etc/ceph", ReadOnly: true},
		{Name: VolumeBin, MountPath: "/castellan", ReadOnly: true},
		{Name: VolumeSockets, MountPath: "/run/ceph"},
		{Name: VolumeLog, MountPath: logDir},
		{Name: VolumeCrash, MountPath: "/var/lib/ceph/crash"},
	}
	if d.Keyring != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: VolumeKeyring, MountPath: "/etc/ceph/keyring-store/", ReadOnly: true})
	}
	if !d.Stateless {
		mounts = append(mounts, corev1.VolumeMount{Name: VolumeData, MountPath: d.DataDir(), SubPath: d.DataSubPath})
	}
	return mounts
}
