// Package spec builds the Kubernetes objects of mgrs: Deployment, Services and
// disruption budget.
//
// It is pure.
package spec

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// App is the label app of mgrs.
const App = "rook-ceph-mgr"

// RoleLabel on a pod says whether its mgr is the active one; Services select by
// it.
const RoleLabel = "mgr_role"

// Name of the objects of mgr id.
func Name(id string) string { return App + "-" + id }

// ID of the i-th mgr: a, b, ...
func ID(i int) string { return endpoints.ID(i) }

// User of mgr id.
func User(id string) keyring.User {
	return keyring.User{
		Entity: "mgr." + id, Secret: Name(id) + "-keyring",
		Caps: auth.Caps{"mon": "allow profile mgr", "mds": "allow *", "osd": "allow *"},
	}
}

// Daemon describes mgr id for podspec.
func Daemon(id, keyVersion string) podspec.Daemon {
	return podspec.Daemon{
		Type: "mgr", ID: id, App: App, Name: Name(id), Key: cephv1.KeyMgr,
		Keyring: Name(id) + "-keyring", KeyringVersion: keyVersion,
	}
}

// Mgr is one mgr to build.
type Mgr struct {
	ID string
	// KeyVersion restarts the mgr when its key changes.
	KeyVersion           string
	HostNetwork          bool
	AllowMultiplePerNode bool
	// MetricsPort is where the prometheus module serves, 0 when it is off.
	MetricsPort       int32
	Dashboard         *Dashboard
	Startup, Liveness *cephv1.ProbeSpec
}

// Dashboard is how the web interface is served.
type Dashboard struct {
	SSL  bool
	Port int32
}

// DashboardOf reads the spec; nil when it is off.
func DashboardOf(d cephv1.DashboardSpec) *Dashboard {
	if !d.Enabled {
		return nil
	}
	return &Dashboard{SSL: d.SSL, Port: int32(d.EffectivePort())}
}

// MetricsPort reads the spec; 0 when metrics are off.
func MetricsPort(m cephv1.MonitoringSpec) int32 {
	switch {
	case m.MetricsDisabled:
		return 0
	case m.Port > 0:
		return int32(m.Port)
	}
	return cephv1.DefaultMetricsPort
}

// portName is what users know the dashboard's port by.
func (d Dashboard) portName() string {
	if d.SSL {
		return "https-dashboard"
	}
	return "http-dashboard"
}

// Deployment of a mgr.
func Deployment(c podspec.Cluster, m Mgr, u podspec.User) *appsv1.Deployment {
	d := Daemon(m.ID, m.KeyVersion)
	c.HostNetwork = m.HostNetwork
	pod := corev1.PodSpec{
		ServiceAccountName: App,
		// The mgr's own modules do not talk to Kubernetes.
		AutomountServiceAccountToken: ptr.To(false),
		InitContainers:               []corev1.Container{podspec.CopyBin(c)},
		Containers:                   []corev1.Container{container(c, d, m, u)},
		Volumes:                      podspec.Volumes(c, d),
	}
	podspec.Place(&pod, u.Placement)
	podspec.Apart(&pod, map[string]string{"app": App, "rook_cluster": c.Namespace}, corev1.LabelHostname, !m.AllowMultiplePerNode)
	podspec.LeaveUnreachable(&pod, c)
	dep := podspec.Deployment(c, d, pod, u)
	dep.Spec.Template.Labels["instance"] = m.ID
	if m.MetricsPort > 0 && len(u.Annotations) == 0 {
		dep.Spec.Template.Annotations["prometheus.io/scrape"] = "true"
		dep.Spec.Template.Annotations["prometheus.io/port"] = strconv.Itoa(int(m.MetricsPort))
	}
	return dep
}

func container(c podspec.Cluster, d podspec.Daemon, m Mgr, u podspec.User) corev1.Container {
	mgr := append([]string{"ceph-mgr"}, podspec.Flags(c, d)...)
	mgr = append(mgr, "--client-mount-uid=0", "--client-mount-gid=0", "--foreground")
	if !m.HostNetwork {
		mgr = append(mgr, "--public-addr=$(ROOK_POD_IP)")
	}
	// No init container owns the directories first: one takes longer to start than to run,
	// and a mgr that fails over is waited for.
	command, args := podspec.Owned(d, mgr...)
	ports := []corev1.ContainerPort{{Name: "mgr", ContainerPort: 6800, Protocol: corev1.ProtocolTCP}}
	if m.MetricsPort > 0 {
		ports = append(ports, corev1.ContainerPort{Name: "http-metrics", ContainerPort: m.MetricsPort, Protocol: corev1.ProtocolTCP})
	}
	if m.Dashboard != nil {
		ports = append(ports, corev1.ContainerPort{Name: "dashboard", ContainerPort: m.Dashboard.Port, Protocol: corev1.ProtocolTCP})
	}
	startup, liveness := podspec.Probes(d, 60)
	return corev1.Container{
		Name: "mgr", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: command, Args: args,
		Env: append(podspec.Env(c),
			corev1.EnvVar{Name: "ROOK_OPERATOR_NAMESPACE", Value: c.OperatorNamespace},
			corev1.EnvVar{Name: "ROOK_CEPH_CLUSTER_CRD_VERSION", Value: "v1"},
			corev1.EnvVar{Name: "ROOK_CEPH_CLUSTER_CRD_NAME", Value: c.Name},
			podspec.FieldEnv("ROOK_POD_IP", "status.podIP"),
		),
		Ports: ports, VolumeMounts: podspec.Mounts(d), WorkingDir: "/var/log/ceph", Resources: u.Resources,
		StartupProbe: podspec.Override(startup, m.Startup), LivenessProbe: podspec.Override(liveness, m.Liveness),
		SecurityContext: podspec.Rooted(c),
	}
}

// Services of the active mgr: metrics, and the dashboard where it is on.
func Services(c podspec.Cluster, metricsPort int32, dash *Dashboard) []*corev1.Service {
	selector := map[string]string{"app": App, "rook_cluster": c.Namespace, RoleLabel: "active"}
	service := func(name, port string, n int32) *corev1.Service {
		return &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: map[string]string{"app": App, "rook_cluster": c.Namespace}, OwnerReferences: []metav1.OwnerReference{c.Owner}},
			Spec: corev1.ServiceSpec{
				Selector: selector,
				Ports:    []corev1.ServicePort{{Name: port, Port: n, TargetPort: intstr.FromInt32(n), Protocol: corev1.ProtocolTCP}},
			},
		}
	}
	var list []*corev1.Service
	if metricsPort > 0 {
		list = append(list, service(App, "http-metrics", metricsPort))
	}
	if dash != nil {
		list = append(list, service(App+"-dashboard", dash.portName(), dash.Port))
	}
	return list
}

// Budget keeps one of several mgrs; nil for a single one, which a drain may move.
func Budget(c podspec.Cluster, count int) *policyv1.PodDisruptionBudget {
	if count < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: App + "-pdb", Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": App, "rook_cluster": c.Namespace}},
		},
	}
}
