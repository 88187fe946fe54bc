package spec

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// A mon that has its data on the node would start on an empty volume when
// volumeClaimTemplate is set later, and forget the cluster; and the other way round.
func TestAMonStaysWhereItsDataIs(t *testing.T) {
	on := func(v corev1.VolumeSource, host bool) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.HostNetwork = host
		d.Spec.Template.Spec.Volumes = []corev1.Volume{
			{Name: "other", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
			{Name: podspec.VolumeData, VolumeSource: v},
		}
		return d
	}
	node := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
	volume := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}
	for _, tc := range []struct {
		name              string
		live              *appsv1.Deployment
		claim, host       bool
		stays, staysOnNet bool
	}{
		{"new, on a volume", nil, true, false, true, false},
		{"new, on the node and its network", nil, false, true, false, true},
		{"on the node, a template comes", on(node, false), true, false, false, false},
		{"on a volume, the template goes", on(volume, false), false, false, true, false},
		{"on a volume, the template stays", on(volume, false), true, false, true, false},
		{"behind a Service, the provider becomes host", on(node, false), false, true, false, false},
		{"on the host's network, the provider goes", on(node, true), false, false, false, true},
	} {
		m := Mon{ID: "a", HostNetwork: tc.host}
		if tc.claim {
			m.Claim = &cephv1.VolumeClaimTemplate{}
		}
		m.Stay(tc.live)
		if (m.Claim != nil) != tc.stays || m.HostNetwork != tc.staysOnNet {
			t.Errorf("%s: on a volume %v, on the host's network %v", tc.name, m.Claim != nil, m.HostNetwork)
		}
	}
}

// A mon on the host's network has its node's address: on a volume that any node reaches,
// the scheduler could put it elsewhere, where it cannot bind.
func TestAMonStaysWhereItsAddressIs(t *testing.T) {
	c := podspec.Cluster{Name: "c", Namespace: "ns"}
	for _, tc := range []struct {
		name        string
		claim, host bool
		pinned      bool
	}{
		{"on the node, behind a Service", false, false, true},
		{"on the node and its network", false, true, true},
		{"on a volume, behind a Service", true, false, false},
		{"on a volume and its node's network", true, true, true},
	} {
		m := Mon{ID: "a", HostNetwork: tc.host, Place: &endpoints.Place{Name: "n1", Hostname: "h1"}}
		if tc.claim {
			m.Claim = &cephv1.VolumeClaimTemplate{}
		}
		got := Deployment(c, m, podspec.User{}).Spec.Template.Spec.NodeSelector[corev1.LabelHostname]
		if want := map[bool]string{true: "h1"}[tc.pinned]; got != want {
			t.Errorf("%s: pinned to %q, want %q", tc.name, got, want)
		}
		// Where the mon follows the canary, the canary has to follow the volume.
		binds := slices.ContainsFunc(Canary(c, m, podspec.User{}).Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == Name("a")
		})
		if binds != (tc.claim && tc.pinned) {
			t.Errorf("%s: the canary has the claim: %v", tc.name, binds)
		}
	}
}

// A canary is only there for the scheduler: were it started, it would cost its node as
// much as a mon that starts.
func TestACanaryIsNotStarted(t *testing.T) {
	c := podspec.Cluster{Name: "c", Namespace: "ns"}
	pod := Canary(c, Mon{ID: "a"}, podspec.User{})
	waits := false
	for _, v := range pod.Spec.Volumes {
		// The kubelet waits for what a container mounts, and for nothing else.
		mounted := slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		waits = waits || mounted && v.ConfigMap != nil && v.ConfigMap.Name == NeverThere && v.ConfigMap.Optional == nil
	}
	if !waits {
		t.Errorf("nothing keeps the kubelet from starting it: volumes %v", pod.Spec.Volumes)
	}
}
