package clientprofile_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clientprofile"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/release"
)

func TestOptions(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"": nil, " , ": nil, "noatime": {"noatime": ""}, "a=b": {"a": "b"}, " a = b ,c,=d,e=f=g ": {"a": " b", "c": "", "e": "f=g"},
	} {
		if d := cmp.Diff(want, clientprofile.Options(text)); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
	}
}

func spec(kernel string, connections *cephv1.ConnectionsSpec, external bool) *cephv1.ClusterSpec {
	s := &cephv1.ClusterSpec{}
	s.CSI.CephFS.KernelMountOptions, s.Network.Connections, s.External.Enable = kernel, connections, external
	return s
}

func TestKernel(t *testing.T) {
	encrypted := &cephv1.ConnectionsSpec{Encryption: &cephv1.EncryptionSpec{Enabled: true}}
	for name, tt := range map[string]struct {
		spec *cephv1.ClusterSpec
		want map[string]string
	}{
		"messenger v2 only":        {spec("", nil, false), map[string]string{"ms_mode": "prefer-crc"}},
		"required":                 {spec("a", &cephv1.ConnectionsSpec{RequireMsgr2: true}, false), map[string]string{"a": "", "ms_mode": "prefer-crc"}},
		"compressed":               {spec("", &cephv1.ConnectionsSpec{Compression: &cephv1.CompressionSpec{Enabled: true}}, false), map[string]string{"ms_mode": "prefer-crc"}},
		"the user's mode":          {spec("ms_mode=crc", nil, false), map[string]string{"ms_mode": "crc"}},
		"encrypted":                {spec("", encrypted, false), map[string]string{"ms_mode": "secure"}},
		"encrypted, another mode":  {spec("ms_mode=crc", encrypted, false), map[string]string{"ms_mode": "secure"}},
		"messenger v1 is allowed":  {spec("a=b", &cephv1.ConnectionsSpec{}, false), map[string]string{"a": "b"}},
		"external: who knows":      {spec("", nil, true), nil},
		"external, but encrypted":  {spec("", encrypted, true), map[string]string{"ms_mode": "secure"}},
		"nothing at all to be set": {spec("", &cephv1.ConnectionsSpec{}, false), nil},
	} {
		if d := cmp.Diff(tt.want, clientprofile.Kernel(tt.spec)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// The order of the mons is that of their making, whatever the map says, and stays when
// one goes.
func TestMonitors(t *testing.T) {
	list := endpoints.Empty()
	for i := range 30 {
		var err error
		if list, err = list.With(endpoints.Mon{ID: endpoints.ID(i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 6789)}); err != nil {
			t.Fatal(err)
		}
	}
	first := clientprofile.Monitors(list, true)
	if first[0] != "10.0.0.1:3300" || first[25] != "10.0.0.26:3300" || first[26] != "10.0.0.27:3300" {
		t.Errorf("%v", first)
	}
	for range 20 {
		if d := cmp.Diff(first, clientprofile.Monitors(list, true)); d != "" {
			t.Fatalf("another order:\n%s", d)
		}
	}
	less, err := list.Without("b")
	if err != nil {
		t.Fatal(err)
	}
	if got := clientprofile.Monitors(less, false); got[0] != "10.0.0.1:6789" || got[1] != "10.0.0.3:6789" || len(got) != 29 {
		t.Errorf("%v", got)
	}
	six, err := endpoints.Empty().With(endpoints.Mon{ID: "a", Addr: netip.MustParseAddrPort("[fd00::1]:6789")})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"[fd00::1]:3300"}, clientprofile.Monitors(six, true)); d != "" {
		t.Error(d)
	}
}

func TestReadAffinity(t *testing.T) {
	on := cephv1.ReadAffinitySpec{Enabled: true}
	if a, held := clientprofile.ReadAffinity(cephv1.ReadAffinitySpec{CrushLocationLabels: []string{"x"}}, release.V(20, 2, 4)); a != nil || held {
		t.Errorf("off: %v, %v", a, held)
	}
	if a, held := clientprofile.ReadAffinity(on, release.V(20, 2, 0)); a != nil || !held {
		t.Errorf("20.2.0: %v, %v", a, held)
	}
	a, held := clientprofile.ReadAffinity(on, release.V(20, 2, 4))
	want := []string{"kubernetes.io/hostname", "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.rook.io/chassis", "topology.rook.io/rack",
		"topology.rook.io/row", "topology.rook.io/pdu", "topology.rook.io/pod", "topology.rook.io/room", "topology.rook.io/datacenter"}
	if d := cmp.Diff(&csiv1.ReadAffinitySpec{CrushLocationLabels: want}, a); d != "" || held {
		t.Errorf("%v\n%s", held, d)
	}
}

// config.json of the default profile is what ceph-csi-operator makes of Rook's objects,
// byte for byte but for the second name of the number of mirror daemons; and the
// cluster's mount options reach a profile that somebody else has made.
func TestRecord(t *testing.T) {
	c := clientprofile.Cluster{Namespace: "rook-ceph", Name: "rook-ceph", Drivers: "rook-ceph"}
	conn := c.Connection([]string{"10.0.0.1:3300", "10.0.0.2:3300"}, &csiv1.ReadAffinitySpec{CrushLocationLabels: []string{"kubernetes.io/hostname"}}, 1)
	check := func(p *csiv1.ClientProfile, conn *csiv1.CephConnection, want string) {
		t.Helper()
		raw, err := json.Marshal(clusterconfig.Build(p, conn, nil))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(raw)); d != "" {
			t.Errorf("%s (-want +got):\n%s", p.Name, d)
		}
	}
	check(c.Default(), conn, `{"clusterID":"rook-ceph","monitors":["10.0.0.1:3300","10.0.0.2:3300"],"cephFS":{"kernelMountOptions":"","fuseMountOptions":"","controllerPublishSecretRef":{"name":"rook-csi-cephfs-provisioner","namespace":"rook-ceph"}},"rbd":{"mirrorCount":1,"mirrorDaemonCount":1,"controllerPublishSecretRef":{"name":"rook-csi-rbd-provisioner","namespace":"rook-ceph"},"nodePublishSecretRef":{"name":"rook-csi-rbd-node","namespace":"rook-ceph"}},"nfs":{},"nvmeof":{"controllerPublishSecretRef":{}},"readAffinity":{"enabled":true,"crushLocationLabels":["kubernetes.io/hostname"]}}`)

	c.Kernel, c.Fuse = map[string]string{"ms_mode": "secure", "noatime": ""}, map[string]string{"debug": ""}
	conn = c.Connection([]string{"m"}, nil, 0)
	const rest = `"nfs":{},"nvmeof":{"controllerPublishSecretRef":{}},"readAffinity":{}}`
	const options = `"kernelMountOptions":"ms_mode=secure,noatime","fuseMountOptions":"debug"`
	check(c.SubVolumeGroup("svg", "group", "csi", ""), conn, `{"clusterID":"svg","monitors":["m"],"cephFS":{"subvolumeGroup":"group",`+options+`,"radosNamespace":"csi","controllerPublishSecretRef":{"name":"rook-csi-cephfs-provisioner","namespace":"rook-ceph"}},"rbd":{"controllerPublishSecretRef":{},"nodePublishSecretRef":{}},`+rest)
	check(c.RadosNamespace("rns", "ns1", "mine", ""), conn, `{"clusterID":"rns","monitors":["m"],"cephFS":{"kernelMountOptions":"","fuseMountOptions":"","controllerPublishSecretRef":{}},"rbd":{"radosNamespace":"ns1","controllerPublishSecretRef":{"name":"mine","namespace":"rook-ceph"},"nodePublishSecretRef":{"name":"rook-csi-rbd-node","namespace":"rook-ceph"}},`+rest)
	mine := &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: csiv1.ClientProfileSpec{CephFs: &csiv1.CephFsConfigSpec{SubVolumeGroup: "g"}}}
	check(mine, conn, `{"clusterID":"mine","monitors":["m"],"cephFS":{"subvolumeGroup":"g",`+options+`,"controllerPublishSecretRef":{}},"rbd":{"controllerPublishSecretRef":{},"nodePublishSecretRef":{}},`+rest)
	mine.Spec.CephFs.KernelMountOptions = map[string]string{"own": ""}
	check(mine, conn, `{"clusterID":"mine","monitors":["m"],"cephFS":{"subvolumeGroup":"g","kernelMountOptions":"own","fuseMountOptions":"debug","controllerPublishSecretRef":{}},"rbd":{"controllerPublishSecretRef":{},"nodePublishSecretRef":{}},`+rest)
}
