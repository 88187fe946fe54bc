package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNFSDefaults(t *testing.T) {
	n := CephNFS{ObjectMeta: named("rook-ceph", "my-nfs")}
	n.Spec.RADOS = GaneshaRADOSSpec{Pool: "old-pool", Namespace: "old-ns"}
	if got := n.RADOSPool() + "/" + n.RADOSNamespace(); got != ".nfs/my-nfs" {
		t.Errorf("place of the exports = %q, want .nfs/my-nfs whatever the deprecated fields say", got)
	}
	if got := n.Spec.Server.EffectivePort(); got != 2049 {
		t.Errorf("EffectivePort = %d, want 2049", got)
	}
	n.Spec.Server.Port = 12049
	if got := n.Spec.Server.EffectivePort(); got != 12049 {
		t.Errorf("EffectivePort = %d, want 12049", got)
	}
	if got := (&KerberosSpec{}).EffectivePrincipalName(); got != "nfs" {
		t.Errorf("EffectivePrincipalName = %q, want nfs", got)
	}
	if got := (&KerberosSpec{PrincipalName: "files"}).EffectivePrincipalName(); got != "files" {
		t.Errorf("EffectivePrincipalName = %q, want files", got)
	}
}

func TestUsesHostNetwork(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		own           *bool
		cluster, want bool
	}{
		{nil, false, false}, {nil, true, true},
		{&no, true, false}, {&yes, false, true},
	} {
		if got := (&GaneshaServerSpec{HostNetwork: tc.own}).UsesHostNetwork(tc.cluster); got != tc.want {
			t.Errorf("NFS with %v in a cluster with %v: %v, want %v", tc.own, tc.cluster, got, tc.want)
		}
		if got := (&NVMeOFGatewaySpec{HostNetwork: tc.own}).UsesHostNetwork(tc.cluster); got != tc.want {
			t.Errorf("NVMe-oF with %v in a cluster with %v: %v, want %v", tc.own, tc.cluster, got, tc.want)
		}
	}
}

func TestNVMeOFPorts(t *testing.T) {
	for _, tc := range []struct {
		title    string
		in       *NVMeOFGatewayPorts
		want     NVMeOFGatewayPorts
		conflict string
	}{
		{
			title: "all by default",
			want:  NVMeOFGatewayPorts{IOPort: 4420, GatewayPort: 5500, MonitorPort: 5499, DiscoveryPort: 8009},
		},
		{
			title: "some by default",
			in:    &NVMeOFGatewayPorts{IOPort: 4421},
			want:  NVMeOFGatewayPorts{IOPort: 4421, GatewayPort: 5500, MonitorPort: 5499, DiscoveryPort: 8009},
		},
		{
			title:    "one on the default of another",
			in:       &NVMeOFGatewayPorts{DiscoveryPort: 4420},
			want:     NVMeOFGatewayPorts{IOPort: 4420, GatewayPort: 5500, MonitorPort: 5499, DiscoveryPort: 4420},
			conflict: "ports.ioPort and ports.discoveryPort are both 4420",
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			s := NVMeOFGatewaySpec{Ports: tc.in}
			if diff := cmp.Diff(tc.want, s.EffectivePorts()); diff != "" {
				t.Errorf("EffectivePorts (-want +got):\n%s", diff)
			}
			if got := s.PortsConflict(); got != tc.conflict {
				t.Errorf("PortsConflict = %q, want %q", got, tc.conflict)
			}
		})
	}
}
