// Package pods turns a CephCluster and the operator's settings into what
// podspec needs: which images, which network, which directories.
//
// It is pure.
package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Operator is what this operator's own Deployment is like.
type Operator struct {
	// Image holds castellan-node.
	Image     string
	Namespace string
	// Version is shown on Deployments as rook-version.
	Version string
}

// Cluster collects what the pods of a cluster share. version is the Ceph version
// as a label, or "" while it is not known.
func Cluster(cl *cephv1.CephCluster, op Operator, s settings.Settings, fsid, version string) podspec.Cluster {
	net := &cl.Spec.Network
	c := podspec.Cluster{
		Namespace: cl.Namespace, Name: cl.Name, FSID: fsid, DataDir: cl.Spec.DataDirHostPath,
		CephImage: cl.Spec.CephVersion.Image, NodeImage: op.Image, PullPolicy: cl.Spec.CephVersion.ImagePullPolicy,
		CephVersion: version, OperatorVersion: op.Version, OperatorNamespace: op.Namespace,
		HostNetwork: net.IsHost() || s.EnforceHostNetwork,
		IPv6:        net.IPFamily == cephv1.IPv6, DualStack: net.DualStack,
		Privileged: s.HostPathRequiresPrivileged, UnreachableSeconds: s.UnreachableSeconds, RevisionHistoryLimit: s.RevisionHistoryLimit,
		Owner: Owner(cl),
	}
	if k := net.Connections; k != nil {
		c.Connections = &podspec.Connections{Msgr2: k.RequireMsgr2, Encryption: on(k.Encryption), Compression: compressed(k.Compression)}
	}
	if l := cl.Spec.LogCollector; l.Enabled {
		c.LogCollector = &podspec.LogCollector{Periodicity: l.EffectivePeriodicity(), Resources: cl.Spec.Resources[cephv1.ResourcesKeyLogCollector]}
		if l.MaxLogSize != nil {
			c.LogCollector.MaxSize = l.MaxLogSize.String()
		}
	}
	return c
}

func on(e *cephv1.EncryptionSpec) bool          { return e != nil && e.Enabled }
func compressed(c *cephv1.CompressionSpec) bool { return c != nil && c.Enabled }

// Founded reports whether the cluster's foundations are laid: its Ceph version has
// been accepted. No other controller acts on a CephCluster before, so a second one
// in a namespace, which never gets that far, can do no harm.
func Founded(cl *cephv1.CephCluster) bool {
	return cl.Status.CephVersion != nil && cl.Status.CephVersion.Version != ""
}

// NotFounded is the wait for the foundations. The accepted version and the Secrets lead
// to a pass when they come (access.When), so the time is only for what nobody has thought
// of.
func NotFounded() *kit.Wait {
	return &kit.Wait{Reason: "NotFounded", Message: "the cluster's identity, keys and Ceph version are not known yet", For: time.Minute}
}

// Msgr2Only reports whether mons speak only messenger v2. That is the default;
// a connections section without any of its three switches allows v1 too.
func Msgr2Only(n *cephv1.NetworkSpec) bool {
	k := n.Connections
	return k == nil || k.RequireMsgr2 || on(k.Encryption) || compressed(k.Compression)
}

// Owner is the reference by which Kubernetes deletes the cluster's objects with
// it.
func Owner(cl *cephv1.CephCluster) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: cephv1.SchemeGroupVersion.String(), Kind: "CephCluster", Name: cl.Name, UID: cl.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// HashAnnotation on a Deployment is a hash of the pod template it was made from.
const HashAnnotation = "castellan.ceph.io/template-hash"

// Hash of a pod template. The image of castellan-node is left out: a new
// operator must not restart every daemon because its helper has a new name.
func Hash(t corev1.PodTemplateSpec, nodeImage string) string {
	t = *t.DeepCopy()
	for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range list {
			if list[i].Image == nodeImage {
				list[i].Image = ""
			}
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		// A PodTemplateSpec made of plain values always encodes.
		panic("encoding a pod template: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Stamp puts the template's hash on the Deployment.
func Stamp(d *appsv1.Deployment, nodeImage string) *appsv1.Deployment {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[HashAnnotation] = Hash(d.Spec.Template, nodeImage)
	return d
}

// UpToDate reports whether live was made from the same template as want.
func UpToDate(live, want *appsv1.Deployment) bool {
	return live.Annotations[HashAnnotation] == want.Annotations[HashAnnotation]
}

// RolledOut reports whether the one pod of a Deployment is ready, and of its newest
// template. ReadyReplicas alone is of the pod before, until the Deployment's controller
// has seen a change.
func RolledOut(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == s.Replicas && s.ReadyReplicas > 0
}

// KeepNodeImage lets want keep the castellan-node image that live has, so that
// applying it restarts nothing. It is for Deployments that are up to date.
func KeepNodeImage(want, live *appsv1.Deployment, nodeImage string) {
	old := map[string]string{}
	for _, list := range [][]corev1.Container{live.Spec.Template.Spec.InitContainers, live.Spec.Template.Spec.Containers} {
		for _, c := range list {
			old[c.Name] = c.Image
		}
	}
	for _, list := range [][]corev1.Container{want.Spec.Template.Spec.InitContainers, want.Spec.Template.Spec.Containers} {
		for i := range list {
			if image := old[list[i].Name]; list[i].Image == nodeImage && image != "" {
				list[i].Image = image
			}
		}
	}
}

// AdoptedAnnotation marks a Deployment whose pods are still those of a former operator.
const AdoptedAnnotation = "castellan.ceph.io/adopted"

// FormerOperators are the field managers whose objects are taken over.
func FormerOperators() sets.Set[string] { return sets.New("rook") }

// Adopt lets want leave the pods of live as they are, if a former operator has made them
// of the wanted Ceph image: taking a cluster over restarts no daemon. It says whether it
// does. From the adoption on, live carries the hash of what would be wanted, so a change
// of the wish is seen, and then the pods are made anew. container is the daemon's.
//
// A selector cannot be changed, so want keeps that of live in any case.
func Adopt(want, live *appsv1.Deployment, container string) bool {
	if s := live.Spec.Selector; s != nil && len(s.MatchLabels) > 0 {
		want.Spec.Selector = s.DeepCopy()
		labels := maps.Clone(want.Spec.Template.Labels)
		maps.Copy(labels, s.MatchLabels)
		want.Spec.Template.Labels = labels
	}
	switch hash := live.Annotations[HashAnnotation]; {
	case hash == "" && image(live, container) != image(want, container), image(live, container) == "":
		return false
	case hash != "" && (live.Annotations[AdoptedAnnotation] == "" || hash != want.Annotations[HashAnnotation]):
		return false
	}
	want.Spec = *live.Spec.DeepCopy()
	want.Annotations[AdoptedAnnotation] = "the pods are those of the former operator until their specification changes"
	return true
}

func image(d *appsv1.Deployment, container string) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}
