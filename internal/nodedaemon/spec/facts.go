package spec

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// FactsApp is the name of the Job that asks an image for its facts, of the ConfigMap
// that keeps the answer, and the label app of both.
const FactsApp = "rook-ceph-image-facts"

// FactsContainer is the container whose termination message is the answer.
const FactsContainer = "facts"

// ImageAnnotation on the Job says which image it asks.
const ImageAnnotation = "castellan.ceph.io/image"

// FactsJob asks image for its facts. The answer comes back as the pod's termination
// message, so the pod needs no rights at all.
func FactsJob(c podspec.Cluster, image string, u podspec.User) *batchv1.Job {
	labels := map[string]string{"app": FactsApp, "rook_cluster": c.Namespace}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "rook-ceph-default", AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks: ptr.To(false), PriorityClassName: u.PriorityClass,
		InitContainers: []corev1.Container{podspec.CopyBin(c)},
		Containers: []corev1.Container{{
			Name: FactsContainer, Image: image, ImagePullPolicy: c.PullPolicy, Command: []string{podspec.Bin, "image-facts"},
			VolumeMounts:    []corev1.VolumeMount{{Name: podspec.VolumeBin, MountPath: "/castellan", ReadOnly: true}},
			SecurityContext: podspec.Confined(c), Resources: u.Resources,
		}},
		Volumes: []corev1.Volume{binVolume()},
	}
	podspec.Place(&pod, u.Placement)
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: FactsApp, Namespace: c.Namespace, Labels: labels, Annotations: map[string]string{ImageAnnotation: image},
			OwnerReferences: []metav1.OwnerReference{c.Owner},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](3), ActiveDeadlineSeconds: ptr.To[int64](900),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// FactsMap keeps the facts of an image.
func FactsMap(c podspec.Cluster, image string, f facts.Facts) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: FactsApp, Namespace: c.Namespace, Labels: map[string]string{"app": FactsApp, "rook_cluster": c.Namespace}, OwnerReferences: []metav1.OwnerReference{c.Owner},
		},
		Data: map[string]string{"image": image, "facts": f.String()},
	}
}
