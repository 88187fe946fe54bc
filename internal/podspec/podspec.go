// Package podspec builds what all Ceph pods share: flags, environment, volumes,
// init containers, probes, placement, labels and the Deployment around them.
//
// It is pure: values in, objects out, the same input giving the same object. It
// must not read a cluster and must not know any one daemon: what a mon or an OSD
// needs beyond this is in the daemon's own folder. Nothing it builds runs a
// shell; what has to be done inside a pod, castellan-node does.
package podspec

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

// Cluster is what a pod takes from its cluster.
type Cluster struct {
	Namespace string
	// Name of the CephCluster.
	Name string
	FSID string
	// DataDir is dataDirHostPath.
	DataDir string
	// CephImage runs the daemons, NodeImage holds castellan-node.
	CephImage, NodeImage string
	PullPolicy           corev1.PullPolicy
	// CephVersion and OperatorVersion are labels of Deployments; empty leaves them
	// out.
	CephVersion, OperatorVersion string
	// OperatorNamespace is told to the pods by a label, for dashboards.
	OperatorNamespace string
	HostNetwork       bool
	// IPv6 and DualStack say which families daemons bind to; both false is IPv4
	// as Ceph does by default.
	IPv6, DualStack bool
	// Connections is set when the spec says something of connections; it goes into
	// the environment so that pods restart when it changes.
	Connections *Connections
	// Privileged containers where host paths need them (OpenShift, SELinux).
	Privileged bool
	// CephUID is the number of Ceph's user in CephImage; daemons then start as
	// that user and hold no capability. 167 in the images of quay.io/ceph. 0 when
	// it is not known: daemons start as root and drop to the user "ceph"
	// themselves, as any packaging of Ceph allows.
	CephUID int64
	// UnreachableSeconds until a pod leaves an unreachable node.
	UnreachableSeconds int64
	// RevisionHistoryLimit of Deployments, nil for Kubernetes' own.
	RevisionHistoryLimit *int32
	// LogCollector is nil when no log files are kept.
	LogCollector *LogCollector
	Owner        metav1.OwnerReference
}

// Connections are the messenger settings that pods restart for.
type Connections struct{ Msgr2, Encryption, Compression bool }

// LogCollector rotates the log files of a daemon.
type LogCollector struct {
	Periodicity string
	MaxSize     string
	Resources   corev1.ResourceRequirements
}

// Daemon is one Ceph daemon.
type Daemon struct {
	// Type as Ceph names it: mon, mgr, osd.
	Type string
	// ID as Ceph names it: a, 3, myfs-a.
	ID string
	// App is the value of the label app: rook-ceph-mon.
	App string
	// Name of the Deployment, and of other objects of the daemon.
	Name string
	// Key selects placement, resources, labels, annotations and priority class.
	Key cephv1.KeyType
	// Keyring is the Secret with the daemon's key; its version restarts the pod.
	Keyring, KeyringVersion string
	// Data is where the daemon keeps its state; nil gives an emptyDir.
	Data *corev1.VolumeSource
	// DataSubPath within Data.
	DataSubPath string
	// Stateless daemons have no data directory at all.
	Stateless bool
}

// DataDir is the daemon's directory in its pod.
func (d Daemon) DataDir() string { return "/var/lib/ceph/" + d.Type + "/ceph-" + d.ID }

// Bin is where castellan-node lies in every pod.
const Bin = "/castellan/castellan-node"

// Names of volumes that daemons' own code refers to.
const (
	VolumeData    = "ceph-daemon-data"
	VolumeConfig  = "rook-config-override"
	VolumeKeyring = "keyring"
	VolumeBin     = "castellan-bin"
	VolumeSockets = "ceph-daemons-sock-dir"
	VolumeLog     = "rook-ceph-log"
	VolumeCrash   = "rook-ceph-crash"
)

// ConfigOverride is the ConfigMap with the user's ceph.conf.
const ConfigOverride = "rook-config-override"

// Selector are the labels that a Deployment's selector holds: only what never
// changes in the life of the daemon.
func Selector(c Cluster, d Daemon) map[string]string {
	return map[string]string{"app": d.App, "rook_cluster": c.Namespace, d.Type: d.ID, "ceph_daemon_id": d.ID}
}

// Labels of the daemon's pods.
func Labels(c Cluster, d Daemon) map[string]string {
	l := Selector(c, d)
	maps.Copy(l, map[string]string{
		"ceph_daemon_type":             d.Type,
		"app.kubernetes.io/name":       "ceph-" + d.Type,
		"app.kubernetes.io/instance":   d.ID,
		"app.kubernetes.io/component":  "cephclusters.ceph.rook.io",
		"app.kubernetes.io/part-of":    c.Name,
		"app.kubernetes.io/managed-by": "rook-ceph-operator",
		"app.kubernetes.io/created-by": "rook-ceph-operator",
	})
	if c.OperatorNamespace != "" {
		l["rook.io/operator-namespace"] = c.OperatorNamespace
	}
	return l
}

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
		{Name: VolumeLog, MountPath: "/var/log/ceph"},
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

// CopyBin is the init container that puts castellan-node into the pod.
func CopyBin(c Cluster) corev1.Container {
	return corev1.Container{
		Name: "copy-castellan-node", Image: c.NodeImage, ImagePullPolicy: c.PullPolicy,
		Command:         []string{"castellan-node", "copy", "/castellan"},
		VolumeMounts:    []corev1.VolumeMount{{Name: VolumeBin, MountPath: "/castellan"}},
		SecurityContext: Confined(c),
	}
}

// Prepare is the init container that gives the daemon's directories to Ceph's
// user, and then runs command where there is one.
func Prepare(c Cluster, d Daemon, name string, command ...string) corev1.Container {
	args := []string{"chown", "/var/log/ceph", "/var/lib/ceph/crash", "/run/ceph"}
	if !d.Stateless {
		args = append(args, d.DataDir())
	}
	if len(command) > 0 {
		args = append(append(args, "--"), command...)
	}
	return corev1.Container{
		Name: name, Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{Bin}, Args: args,
		Env: Env(c), VolumeMounts: Mounts(d), SecurityContext: Rooted(c),
	}
}

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

// Probes are the built-in checks: the daemon answers on its admin socket. A
// call costs a few milliseconds, so they are frequent, and a daemon that is up
// is Ready a second later. startup is how many seconds it may take at most.
func Probes(d Daemon, startup int32) (startupProbe, liveness *corev1.Probe) {
	check := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{Bin, "probe", d.Type, d.ID}}}
	const every = 2
	startupProbe = &corev1.Probe{ProbeHandler: check, PeriodSeconds: every, TimeoutSeconds: 5, FailureThreshold: max(startup/every, 1)}
	liveness = &corev1.Probe{ProbeHandler: check, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
	return startupProbe, liveness
}

// Override applies the user's changes to a probe. A handler of the user replaces
// the check; numbers that the user gives replace ours.
func Override(probe *corev1.Probe, spec *cephv1.ProbeSpec) *corev1.Probe {
	if spec == nil {
		return probe
	}
	if spec.Disabled {
		return nil
	}
	if spec.Probe == nil || probe == nil {
		return probe
	}
	p := spec.Probe.DeepCopy()
	if p.ProbeHandler == (corev1.ProbeHandler{}) {
		p.ProbeHandler = probe.ProbeHandler
	}
	for _, f := range []struct{ to, from *int32 }{
		{&p.InitialDelaySeconds, &probe.InitialDelaySeconds}, {&p.TimeoutSeconds, &probe.TimeoutSeconds},
		{&p.PeriodSeconds, &probe.PeriodSeconds}, {&p.FailureThreshold, &probe.FailureThreshold}, {&p.SuccessThreshold, &probe.SuccessThreshold},
	} {
		if *f.to == 0 {
			*f.to = *f.from
		}
	}
	return p
}

// Place puts a placement into a pod.
func Place(pod *corev1.PodSpec, p cephv1.Placement) {
	if p.NodeAffinity != nil || p.PodAffinity != nil || p.PodAntiAffinity != nil {
		if pod.Affinity == nil {
			pod.Affinity = &corev1.Affinity{}
		}
		if p.NodeAffinity != nil {
			pod.Affinity.NodeAffinity = p.NodeAffinity.DeepCopy()
		}
		if p.PodAffinity != nil {
			pod.Affinity.PodAffinity = p.PodAffinity.DeepCopy()
		}
		if p.PodAntiAffinity != nil {
			pod.Affinity.PodAntiAffinity = p.PodAntiAffinity.DeepCopy()
		}
	}
	pod.Tolerations = append(pod.Tolerations, p.Tolerations...)
	pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, p.TopologySpreadConstraints...)
}

// Apart keeps pods with the labels on different hosts; required or preferred.
func Apart(pod *corev1.PodSpec, labels map[string]string, topologyKey string, required bool) {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.PodAntiAffinity == nil {
		pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	anti := pod.Affinity.PodAntiAffinity
	term := corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: topologyKey}
	if required {
		anti.RequiredDuringSchedulingIgnoredDuringExecution = append(anti.RequiredDuringSchedulingIgnoredDuringExecution, term)
		return
	}
	anti.PreferredDuringSchedulingIgnoredDuringExecution = append(anti.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.WeightedPodAffinityTerm{Weight: 50, PodAffinityTerm: term})
}

// LeaveUnreachable lets a pod without local data leave an unreachable node soon,
// unless the user's tolerations say something about that already.
func LeaveUnreachable(pod *corev1.PodSpec, c Cluster) {
	const key = "node.kubernetes.io/unreachable"
	if slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	}) {
		return
	}
	pod.Tolerations = append(pod.Tolerations, corev1.Toleration{
		Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(c.UnreachableSeconds),
	})
}

// User is what the spec says of a daemon's pods.
type User struct {
	Placement     cephv1.Placement
	Resources     corev1.ResourceRequirements
	Labels        cephv1.Labels
	Annotations   cephv1.Annotations
	PriorityClass string
}

// UserOf collects what the spec says for a daemon type.
func UserOf(spec *cephv1.ClusterSpec, key cephv1.KeyType, resources string) User {
	return User{
		Placement: spec.Placement.ForDaemon(key), Resources: spec.Resources[resources],
		Labels: spec.Labels.ForDaemon(key), Annotations: spec.Annotations.ForDaemon(key), PriorityClass: spec.PriorityClassNames.ForDaemon(key),
	}
}

// KeyAnnotation restarts a pod when its key changes.
const KeyAnnotation = "cephx-key-identifier"

// Deployment is the Deployment of one daemon around its pod. Labels of the user
// are added to pods and Deployment, never to the selector.
func Deployment(c Cluster, d Daemon, pod corev1.PodSpec, u User) *appsv1.Deployment {
	if pod.ServiceAccountName == "" {
		pod.ServiceAccountName = "rook-ceph-default"
	}
	pod.RestartPolicy = corev1.RestartPolicyAlways
	pod.HostNetwork = pod.HostNetwork || c.HostNetwork
	if pod.HostNetwork {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	pod.PriorityClassName = u.PriorityClass
	// Only a daemon that talks to Kubernetes gets a token; it says so before.
	if pod.AutomountServiceAccountToken == nil {
		pod.AutomountServiceAccountToken = ptr.To(false)
	}
	// The variables that Kubernetes adds for every Service of the namespace are
	// used by nothing, and make a pod's environment depend on when it started.
	pod.EnableServiceLinks = ptr.To(false)
	if c.LogCollector != nil {
		addLogCollector(&pod, c, d)
	}
	podLabels := Labels(c, d)
	addAbsent(podLabels, u.Labels)
	annotations := map[string]string{}
	maps.Copy(annotations, u.Annotations)
	if d.KeyringVersion != "" {
		annotations[KeyAnnotation] = d.KeyringVersion
	}
	labels := maps.Clone(podLabels)
	for k, v := range map[string]string{"rook-version": c.OperatorVersion, "ceph-version": c.CephVersion} {
		if v != "" {
			labels[k] = v
		}
	}
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name, Namespace: c.Namespace, Labels: labels, Annotations: maps.Clone(map[string]string(u.Annotations)),
			OwnerReferences: owners(c),
		},
		Spec: appsv1.DeploymentSpec{
			Replicas:             ptr.To[int32](1),
			RevisionHistoryLimit: c.RevisionHistoryLimit,
			Strategy:             appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector:             &metav1.LabelSelector{MatchLabels: Selector(c, d)},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels, Annotations: annotations}, Spec: pod},
		},
	}
}

func owners(c Cluster) []metav1.OwnerReference {
	if c.Owner == (metav1.OwnerReference{}) {
		return nil
	}
	return []metav1.OwnerReference{c.Owner}
}

// addAbsent adds the user's labels that do not contradict ours.
func addAbsent(to map[string]string, from map[string]string) {
	for k, v := range from {
		if _, ours := to[k]; !ours {
			to[k] = v
		}
	}
}

// addLogCollector makes the daemon write a file and adds the sidecar that
// rotates it.
func addLogCollector(pod *corev1.PodSpec, c Cluster, d Daemon) {
	pod.ShareProcessNamespace = ptr.To(true)
	args := []string{"rotate-logs", "--glob", "/var/log/ceph/*" + d.Type + "." + d.ID + "*.log", "--period", c.LogCollector.Periodicity}
	if c.LogCollector.MaxSize != "" {
		args = append(args, "--max-size", c.LogCollector.MaxSize)
	}
	pod.Containers = append(pod.Containers, corev1.Container{
		Name: "log-collector", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{Bin}, Args: args,
		Resources: c.LogCollector.Resources, SecurityContext: Daemonic(c),
		VolumeMounts: []corev1.VolumeMount{
			{Name: VolumeBin, MountPath: "/castellan", ReadOnly: true},
			{Name: VolumeLog, MountPath: "/var/log/ceph"},
			{Name: VolumeSockets, MountPath: "/run/ceph"},
		},
	})
}

// HostLabel is the part of a node's name that can be a CRUSH bucket's: dots are
// not allowed there.
func HostLabel(node string) string { return strings.ReplaceAll(node, ".", "-") }
