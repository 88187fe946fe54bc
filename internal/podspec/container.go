package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Flags that every daemon gets.
func Flags(c Cluster, d Daemon) []string {
	flags := []string{
		"--fsid=" + c.FSID,
		"--keyring=/etc/ceph/keyring-store/keyring",
		"--default-log-to-stderr=true",
		"--default-err-to-stderr=true",
		"--default-mon-cluster-log-to-stderr=true",
		"--default-log-stderr-prefix=debug ",
		"--default-log-to-file=false",
		"--default-mon-cluster-log-to-file=false",
		"--mon-host=$(ROOK_CEPH_MON_HOST)",
		"--mon-initial-members=$(ROOK_CEPH_MON_INITIAL_MEMBERS)",
		"--id=" + d.ID,
		"--setuser=ceph",
		"--setgroup=ceph",
	}
	return append(flags, BindFlags(c)...)
}

// BindFlags choose the address families.
func BindFlags(c Cluster) []string {
	switch {
	case c.DualStack:
		return []string{"--ms-bind-ipv4=true", "--ms-bind-ipv6=true"}
	case c.IPv6:
		return []string{"--ms-bind-ipv4=false", "--ms-bind-ipv6=true"}
	}
	return nil
}

// Env that every daemon gets.
func Env(c Cluster) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "CONTAINER_IMAGE", Value: c.CephImage},
		FieldEnv("POD_NAME", "metadata.name"),
		FieldEnv("POD_NAMESPACE", "metadata.namespace"),
		FieldEnv("NODE_NAME", "spec.nodeName"),
		resourceEnv("POD_MEMORY_LIMIT", "limits.memory"),
		resourceEnv("POD_MEMORY_REQUEST", "requests.memory"),
		resourceEnv("POD_CPU_LIMIT", "limits.cpu"),
		resourceEnv("POD_CPU_REQUEST", "requests.cpu"),
		{Name: "CEPH_USE_RANDOM_NONCE", Value: "true"},
	}
	if k := c.Connections; k != nil {
		env = append(env, corev1.EnvVar{Name: "ROOK_MSGR2", Value: "msgr2_" + word(k.Msgr2) + "_encryption_" + word(k.Encryption) + "_compression_" + word(k.Compression)})
	}
	return append(env, MonEnv()...)
}

// MonEnv tells a container where the mons are.
func MonEnv() []corev1.EnvVar {
	return []corev1.EnvVar{
		secretEnv("ROOK_CEPH_MON_HOST", "rook-ceph-config", "mon_host"),
		secretEnv("ROOK_CEPH_MON_INITIAL_MEMBERS", "rook-ceph-config", "mon_initial_members"),
	}
}

func word(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// FieldEnv is a variable from a field of the pod.
func FieldEnv(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}}
}

func resourceEnv(name, res string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: res, Divisor: resource.MustParse("0")}}}
}

func secretEnv(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
	}}}
}

// CopyBin is the init container that puts castellan-node into the pod.
func CopyBin(c Cluster) corev1.Container {
	return corev1.Container{
		Name: "copy-castellan-node", Image: c.NodeImage, ImagePullPolicy: c.PullPolicy,
		Command:         []string{"castellan-node", "copy", "/castellan"},
		VolumeMounts:    []corev1.VolumeMount{{Name: VolumeBin, MountPath: "/castellan"}},
		SecurityContext: Confined(c),
	}
}

// SharedDirs are the directories that a node's daemons share and that belong to Ceph's
// user.
func SharedDirs() []string { return []string{logDir, "/var/lib/ceph/crash", "/run/ceph"} }

// Owned is the command line that gives the daemon's directories to Ceph's user, and then
// becomes command where there is one. It needs Rooted.
func Owned(d Daemon, command ...string) (name, args []string) {
	args = append([]string{"chown"}, SharedDirs()...)
	if !d.Stateless {
		args = append(args, d.DataDir())
	}
	if len(command) > 0 {
		args = append(append(args, "--"), command...)
	}
	return []string{Bin}, args
}

// Prepare is the init container that gives the daemon's directories to Ceph's
// user, and then runs command where there is one.
func Prepare(c Cluster, d Daemon, name string, command ...string) corev1.Container {
	bin, args := Owned(d, command...)
	return corev1.Container{
		Name: name, Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: bin, Args: args,
		Env: Env(c), VolumeMounts: Mounts(d), SecurityContext: Rooted(c),
	}
}
