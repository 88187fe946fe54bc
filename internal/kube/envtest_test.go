package kube_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/kube"
)

var server = envtestx.Server{NoRepositoryCRDs: true}

func TestMain(m *testing.M) { os.Exit(envtestx.Main(m, &server)) }

// everyKind gives one full object of each kind that operators of storage apply, with
// values that the API server defaults or rewrites.
func everyKind(ns string) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}
	}
	global := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: ns + "-" + name} }
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"hash": "x"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "sa", HostNetwork: true, DNSPolicy: corev1.DNSClusterFirstWithHostNet, PriorityClassName: "system-node-critical",
			SecurityContext: &corev1.PodSecurityContext{},
			Affinity:        &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "x", Operator: "In", Values: []string{"y"}}}}}}}},
			Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}, {Key: "a", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](5), Effect: "NoExecute"}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: "DoNotSchedule", LabelSelector: selector}},
			InitContainers: []corev1.Container{{Name: "init", Image: "image", Command: []string{"x"}, VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}}},
			Containers: []corev1.Container{{
				Name: "a", Image: "image", Args: []string{"--x=y", ""},
				Env: []corev1.EnvVar{
					{Name: "EMPTY"}, {Name: "VALUE", Value: "1"},
					{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
					{Name: "MEM", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
					{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}},
				},
				Ports:     []corev1.ContainerPort{{Name: "v1", ContainerPort: 6789, HostPort: 6789}, {Name: "v2", ContainerPort: 3300, HostPort: 3300, Protocol: corev1.ProtocolTCP}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("2048Mi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("4096Mi")}},
				StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(3300)}},
					FailureThreshold: 720, PeriodSeconds: 1},
				LivenessProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}},
				ReadinessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("v2"), Path: "/"}}},
				SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true), RunAsUser: ptr.To[int64](0), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				VolumeMounts:    []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}, {Name: "conf", MountPath: "/etc/ceph", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "mem", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)}}},
				{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}},
				{Name: "dir", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/rook", Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}},
				{Name: "conf", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o400), Sources: []corev1.VolumeProjection{
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Items: []corev1.KeyToPath{{Key: "config", Path: "ceph.conf", Mode: ptr.To[int32](0o444)}}}},
					{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}}}},
			},
		},
	}
	job := pod.DeepCopy()
	job.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: meta("deploy"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: pod,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, RevisionHistoryLimit: ptr.To[int32](0)}},
		&appsv1.Deployment{ObjectMeta: meta("stopped"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: selector, Template: pod}},
		&appsv1.DaemonSet{ObjectMeta: meta("ds"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod,
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("10%"))}}}},
		&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: *job, BackoffLimit: ptr.To[int32](3), ActiveDeadlineSeconds: ptr.To[int64](60)}},
		&batchv1.CronJob{ObjectMeta: meta("cron"), Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: *job}}}},
		&corev1.Service{ObjectMeta: meta("svc"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "a"}, PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{Name: "v1", Port: 6789, TargetPort: intstr.FromInt32(6789), Protocol: "TCP"}, {Name: "v2", Port: 3300}}}},
		&corev1.Service{ObjectMeta: meta("headless"), Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "x", Port: 1}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: meta("slice"), AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("v2"), Port: ptr.To[int32](3300)}}},
		&corev1.Secret{ObjectMeta: meta("secret"), Type: "kubernetes.io/rook", StringData: map[string]string{"fsid": "x", "empty": ""}},
		&corev1.ConfigMap{ObjectMeta: meta("cm"), Data: map[string]string{"data": "a=1.2.3.4:3300", "empty": ""}, BinaryData: map[string][]byte{"b": {0, 255}}},
		&corev1.ServiceAccount{ObjectMeta: meta("sa"), ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("pvc"), Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
			StorageClassName: ptr.To(""), Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("10240Mi")}}}},
		&rbacv1.Role{ObjectMeta: meta("role"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta("rb"), Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "sa", Namespace: ns}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "role"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta("pdb"), Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: selector}},
		&networkingv1.NetworkPolicy{ObjectMeta: meta("np"), Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}, Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(1))}}}}}},
		&storagev1.StorageClass{ObjectMeta: global("sc"), Provisioner: "rook-ceph.rbd.csi.ceph.com", Parameters: map[string]string{"pool": "p"}, AllowVolumeExpansion: ptr.To(true)},
		&storagev1.CSIDriver{ObjectMeta: global("driver"), Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy)}},
		&rbacv1.ClusterRole{ObjectMeta: global("cr"), Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/x"}, Verbs: []string{"get"}}}},
		&corev1.PersistentVolume{ObjectMeta: global("pv"), Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{"storage": resource.MustParse("1024Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/x"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n"}}}}}}}}},
	}
}

// TestNothingChangesAfterAnApply is what a steady pass without writes rests on: for
// every kind, what the API server gives back after an apply needs no other apply,
// although it has defaulted and rewritten much of it. And an apply that is made all
// the same changes nothing on the server, which says that the comparison is right.
func TestNothingChangesAfterAnApply(t *testing.T) {
	ns := server.Namespace(t)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := server.Client(t, scheme)
	for _, obj := range everyKind(ns) {
		t.Run(obj.GetName(), func(t *testing.T) {
			want, err := kube.ToApply(scheme, obj)
			if err != nil {
				t.Fatal(err)
			}
			if err := kube.ServerSideApply(t.Context(), c, want.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			live, err := kube.NewLike(scheme, want)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(want), live); err != nil {
				t.Fatal(err)
			}
			d, err := kube.Changes(scheme, live, want)
			if err != nil || d != "" {
				t.Errorf("would be applied again for %q, %v", d, err)
			}
			before := live.DeepCopyObject()
			rv := live.GetResourceVersion()
			if err := kube.ServerSideApply(t.Context(), c, want.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(want), live); err != nil {
				t.Fatal(err)
			}
			// A claim gets a new version by an apply that changes nothing (v1.37): one reason
			// more not to apply in vain.
			if _, claim := obj.(*corev1.PersistentVolumeClaim); live.GetResourceVersion() != rv && !claim {
				t.Errorf("a second apply has changed the object:\n%s", cmp.Diff(before, live))
			}
			if obj.GetNamespace() == "" {
				if err := c.Delete(t.Context(), live); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestRemovedFieldsAreRemoved applies a value, then less, next to what a user has
// set.
func TestRemovedFieldsAreRemoved(t *testing.T) {
	ns := server.Namespace(t)
	s := scheme(t)
	c := server.Client(t, s)
	apply := func(data map[string]string) {
		t.Helper()
		u, err := kube.ToApply(s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if err := kube.ServerSideApply(t.Context(), c, u); err != nil {
			t.Fatal(err)
		}
	}
	apply(map[string]string{"one": "1", "two": "2"})
	live := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, live); err != nil {
		t.Fatal(err)
	}
	live.Data["users"] = "3"
	if err := c.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	less, err := kube.ToApply(s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}, Data: map[string]string{"one": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := kube.Changes(s, live, less); d == "" {
		t.Error("a field that is wanted no more is not seen")
	}
	apply(map[string]string{"one": "1"})
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, live); err != nil {
		t.Fatal(err)
	}
	if len(live.Data) != 2 || live.Data["one"] != "1" || live.Data["users"] != "3" {
		t.Errorf("data is %v", live.Data)
	}
}
