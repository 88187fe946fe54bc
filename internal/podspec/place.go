package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

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
