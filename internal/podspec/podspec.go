// Package podspec builds what all Ceph pods share: flags, environment, volumes,
// init containers, probes, placement, labels and the Deployment around them.
//
// It is pure: values in, objects out, the same input giving the same object. It
// must not read a cluster and must not know any one daemon: what a mon or an OSD
// needs beyond this is in the daemon's own folder. Nothing it builds runs a
// shell; what has to be done inside a pod, castellan-node does.
package podspec

import (
	"cmp"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// Periodicity is a word of logCollector.periodicity: hourly, daily, ...
	Periodicity string
	// MaxSize of a file as a Kubernetes quantity; empty for no bound.
	MaxSize   string
	Resources corev1.ResourceRequirements
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
	// Component is the kind that the daemon is part of, as resource and group:
	// "cephfilesystems.ceph.rook.io". Empty means the CephCluster.
	Component string
	// PartOf is the name of the object of that kind; empty means the CephCluster's.
	PartOf string
	// Labels that tell more of the daemon, such as rook_file_system. They are on
	// its pods and its Deployment, never in the selector.
	Labels map[string]string
	// LogName is the name of its log file, where that is not "ceph-<type>.<id>.log".
	LogName string
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
		"app.kubernetes.io/component":  cmp.Or(d.Component, "cephclusters.ceph.rook.io"),
		"app.kubernetes.io/part-of":    cmp.Or(d.PartOf, c.Name),
		"app.kubernetes.io/managed-by": "rook-ceph-operator",
		"app.kubernetes.io/created-by": "rook-ceph-operator",
	})
	if c.OperatorNamespace != "" {
		l["rook.io/operator-namespace"] = c.OperatorNamespace
	}
	addAbsent(l, d.Labels)
	return l
}

// HostLabel is the part of a node's name that can be a CRUSH bucket's: dots are
// not allowed there.
func HostLabel(node string) string { return strings.ReplaceAll(node, ".", "-") }
