package spec

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/nodedaemon/facts"
	"github.com/castellan-storage/castellan/internal/podspec"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got any) {
	t.Helper()
	out, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(out)); diff != "" {
		t.Errorf("%s (-want +got; run with -update if it is meant):\n%s", file, diff)
	}
}

func cluster() podspec.Cluster {
	return podspec.Cluster{
		Namespace: "rook-ceph", Name: "my-cluster", FSID: "e9e2a1c4-0000-4000-8000-000000000001", DataDir: "/var/lib/rook",
		CephImage: "quay.io/ceph/ceph:v20.2.4", NodeImage: "example.com/castellan:v1", PullPolicy: corev1.PullIfNotPresent,
		CephVersion: "20.2.4-0", OperatorVersion: "v1", OperatorNamespace: "rook-system", UnreachableSeconds: 5, CephUID: 167,
		LogCollector: &podspec.LogCollector{Periodicity: "daily"},
		Owner:        metav1.OwnerReference{APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Name: "my-cluster", UID: "1"},
	}
}

func place() Place {
	return Place{Node: "node-1.example.com", Host: "node-1", Tolerations: []corev1.Toleration{{Key: "storage", Operator: corev1.TolerationOpExists}}}
}

func user() podspec.User {
	return podspec.User{
		Placement:     cephv1.Placement{Tolerations: []corev1.Toleration{{Key: "storage", Operator: corev1.TolerationOpExists}, {Key: "more", Operator: corev1.TolerationOpExists}}},
		Resources:     corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("60Mi")}},
		Labels:        cephv1.Labels{"team": "storage", "app": "not-this"},
		PriorityClass: "system-node-critical",
	}
}

func TestGolden(t *testing.T) {
	c := cluster()
	ipv6 := cluster()
	ipv6.IPv6, ipv6.HostNetwork = true, true
	monitoring := cephv1.MonitoringSpec{Exporter: &cephv1.CephExporterSpec{PerfCountersPrioLimit: 0, StatsPeriodSeconds: 10, Port: ptr.To[int32](9999), HostNetwork: ptr.To(false)}}
	for name, obj := range map[string]any{
		"crash-collector":  CrashCollector(c, place(), "42", user()),
		"exporter":         CephExporter(c, ExporterOf(&cephv1.MonitoringSpec{}, false), place(), "42", podspec.User{}),
		"exporter-ipv6":    CephExporter(ipv6, ExporterOf(&monitoring, true), place(), "42", podspec.User{}),
		"exporter-service": ExporterService(c, ExporterOf(&monitoring, false)),
		"pruner":           CrashPruner(c, 30, user()),
		"facts-job":        FactsJob(c, "quay.io/ceph/ceph:v20.2.5", podspec.User{}),
		"facts-map":        FactsMap(c, "quay.io/ceph/ceph:v20.2.5", facts.Facts{UID: 167, GID: 167, Exporter: true}),
		"mgr-monitor":      ServiceMonitor(c, MgrMonitor, "http-metrics", nil, nil).Object,
		"exporter-monitor": ServiceMonitor(c, ExporterMonitor, ExporterPort, &metav1.Duration{Duration: 90 * time.Second}, cephv1.Labels{"release": "prom", "rook.io/managedBy": "east"}).Object,
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, obj) })
	}
}

// No container of a node daemon runs as root, keeps a capability, can write to its
// image or runs a shell, and none has a token.
func TestConfined(t *testing.T) {
	c := cluster()
	for name, pod := range map[string]corev1.PodSpec{
		"crash":    CrashCollector(c, place(), "1", user()).Spec.Template.Spec,
		"exporter": CephExporter(c, Exporter{Port: 1}, place(), "1", user()).Spec.Template.Spec,
		"pruner":   CrashPruner(c, 1, user()).Spec.JobTemplate.Spec.Template.Spec,
		"facts":    FactsJob(c, "x", user()).Spec.Template.Spec,
	} {
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s has a token", name)
		}
		for _, ctr := range append(pod.InitContainers, pod.Containers...) {
			s := ctr.SecurityContext
			if s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || len(s.Capabilities.Add) > 0 {
				t.Errorf("%s/%s: %+v", name, ctr.Name, s)
			}
			for _, word := range append(ctr.Command, ctr.Args...) {
				if word == "sh" || strings.HasSuffix(word, "/sh") || strings.Contains(word, "bash") {
					t.Errorf("%s/%s runs a shell", name, ctr.Name)
				}
			}
		}
	}
}

// The selector cannot be changed later, so nothing of the user's is in it.
func TestSelector(t *testing.T) {
	d := CrashCollector(cluster(), place(), "1", user())
	want := map[string]string{"app": CrashApp, "rook_cluster": "rook-ceph", NodeLabel: "node-1.example.com"}
	if diff := cmp.Diff(want, d.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for k, v := range want {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("pods have %s=%s", k, d.Spec.Template.Labels[k])
		}
	}
}

func TestPromDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m30s", 2*time.Hour + time.Millisecond: "2h1ms",
	} {
		if got := promDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
