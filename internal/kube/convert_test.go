package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// The short way from an object to JSON values gives what the long one does: otherwise
// every object would be applied anew by an operator that goes the other way.
func TestToMapIsWhatJSONSays(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	meta := metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "u", Generation: 3, ResourceVersion: "7", Labels: map[string]string{"a": "<b>&"}, Annotations: map[string]string{},
		CreationTimestamp: at, DeletionTimestamp: &at, DeletionGracePeriodSeconds: ptr.To[int64](0), Finalizers: []string{"x"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "K", Name: "n", UID: "o", Controller: ptr.To(false)}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}},
	}
	quantity := resource.MustParse("1000m")
	pod := corev1.PodSpec{
		NodeSelector: map[string]string{"x": "y"}, Tolerations: []corev1.Toleration{{Key: "k", TolerationSeconds: ptr.To[int64](5)}},
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](167), Sysctls: nil}, Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
		Containers: []corev1.Container{{
			Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: ""}, {Name: "B", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1")}}}},
			Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": quantity, "memory": resource.MustParse("1Gi")}},
			Ports:           []corev1.ContainerPort{{ContainerPort: 3300}},
			StartupProbe:    &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}, FailureThreshold: 3},
			LivenessProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}},
			VolumeMounts:    []corev1.VolumeMount{{Name: "v", MountPath: "/v", MountPropagation: ptr.To(corev1.MountPropagationBidirectional)}},
			SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
		Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &quantity}}},
			{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{}, DefaultMode: ptr.To[int32](0o400)}}},
		},
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: pod}
	for _, obj := range []runtime.Object{
		&appsv1.Deployment{
			ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{}, Template: template,
				Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromInt32(0))}},
			},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: "Available", LastUpdateTime: at}}},
		},
		&appsv1.Deployment{}, &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}},
		&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template, BackoffLimit: ptr.To[int32](6)}, Status: batchv1.JobStatus{StartTime: &at}},
		&batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}},
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"k": {0, 255, 1}, "empty": {}, "nil": nil}, StringData: map[string]string{"s": "t"}, Type: "x"},
		&corev1.ConfigMap{Data: map[string]string{"a": "\u2028\x7f"}, BinaryData: map[string][]byte{"b": []byte("c")}, Immutable: ptr.To(false)},
		&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}, {Port: 2, TargetPort: intstr.FromString("x")}}, PublishNotReadyAddresses: true}},
		&corev1.Pod{ObjectMeta: meta, Spec: pod, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, LastProbeTime: at}}}},
		&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": quantity}}}},
		&corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": quantity}}},
		&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}},
		&discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"1.2.3.4"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](3300)}}},
		&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{}, Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}},
		&storagev1.StorageClass{Provisioner: "p", Parameters: map[string]string{"a": "b"}, AllowVolumeExpansion: ptr.To(true)},
		// Types that say themselves how they are in JSON.
		&apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Minimum: ptr.To(1.5), Default: &apiextensionsv1.JSON{Raw: []byte(`{"a":[1,2.5,null]}`)},
			}},
		}}}},
	} {
		want, err := throughJSON(obj)
		if err != nil {
			t.Fatal(err)
		}
		got, err := toMap(obj)
		if err != nil {
			t.Fatalf("%T: %v", obj, err)
		}
		clean(want)
		clean(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%T (-by JSON +as it is):\n%s", obj, d)
		}
	}
}
