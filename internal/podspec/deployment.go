package podspec

import (
	"cmp"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

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

// UserOver puts what an object of its own says of its daemons (a CephFilesystem
// of its MDS) over what the CephCluster says of all daemons.
func UserOver(spec *cephv1.ClusterSpec, own User) User {
	labels, annotations := maps.Clone(own.Labels), maps.Clone(own.Annotations)
	if labels == nil {
		labels = cephv1.Labels{}
	}
	if annotations == nil {
		annotations = cephv1.Annotations{}
	}
	addAbsent(labels, spec.Labels[cephv1.KeyAll])
	addAbsent(annotations, spec.Annotations[cephv1.KeyAll])
	return User{
		Placement: spec.Placement[cephv1.KeyAll].Merge(own.Placement), Resources: own.Resources,
		Labels: labels, Annotations: annotations, PriorityClass: cmp.Or(own.PriorityClass, spec.PriorityClassNames[cephv1.KeyAll]),
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
	// The kernel keeps signals from the first process of a namespace that it has no handler
	// for. Ceph's daemons install theirs at the end of their start: as the first process,
	// one that is stopped while it starts would only go when Kubernetes kills it, after the
	// 30 s of grace.
	pod.ShareProcessNamespace = ptr.To(true)
	if c.LogCollector != nil {
		addLogCollector(&pod, c, d)
	}
	podLabels := Labels(c, d)
	addAbsent(podLabels, u.Labels)
	// The key's annotation is ours alone.
	annotations := map[string]string{}
	maps.Copy(annotations, u.Annotations)
	delete(annotations, KeyAnnotation)
	own := maps.Clone(annotations)
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
			Name: d.Name, Namespace: c.Namespace, Labels: labels, Annotations: own,
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
