package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/castellan-storage/castellan/lab/cluster/pki"
	"github.com/castellan-storage/castellan/lab/network"
)

// Places of configuration inside a node.
const (
	kubeletConfig     = "/etc/kubernetes/kubelet.yaml"
	kubeletKubeconfig = "/etc/kubernetes/kubelet.conf"
	proxyConfig       = "/etc/kubernetes/kube-proxy.yaml"
	proxyKubeconfig   = "/etc/kubernetes/kube-proxy.conf"
	containerdConfig  = "/etc/containerd/config.toml"
	containerdSocket  = "/run/containerd/containerd.sock"
)

// file is one file of a node's root.
type file struct {
	path string
	mode os.FileMode
	data []byte
}

// files are the configuration of a node, a pure function of its Spec.
func files(s Spec) []file {
	text := func(path, format string, args ...any) file {
		return file{path, 0o644, fmt.Appendf(nil, format, args...)}
	}
	secret := func(path string, data []byte) file { return file{path, 0o600, data} }
	ip := s.Addr.Addr()
	return []file{
		text("/etc/hostname", "%s\n", s.Name),
		text("/etc/hosts", "127.0.0.1 localhost\n%s %s\n", ip, s.Name),
		text("/etc/machine-id", "%s\n", s.MachineID),
		text("/etc/os-release", "NAME=\"Castellan lab node\"\nID=castellan-lab\nPRETTY_NAME=\"Castellan lab node\"\n"),
		text("/etc/resolv.conf", ""),
		text("/etc/cni/net.d/10-lab.conflist", cniFormat, s.PodCIDR),
		text(containerdConfig, containerdFormat, containerdSocket, s.Pause),
		text("/etc/kubernetes/ca.crt", "%s", s.CA),
		text("/etc/kubernetes/kubelet.crt", "%s", s.Kubelet.Cert),
		secret("/etc/kubernetes/kubelet.key", s.Kubelet.Key),
		secret(kubeletKubeconfig, pki.Kubeconfig("lab", s.Server, s.CA, s.Kubelet)),
		text(kubeletConfig, kubeletFormat, network.DNSIP, containerdSocket),
		secret(proxyKubeconfig, pki.Kubeconfig("lab", s.Server, s.CA, s.Proxy)),
		text(proxyConfig, proxyFormat, network.PodCIDR, s.Name, proxyKubeconfig),
	}
}

// cniFormat takes the pods' network. Addresses are kept in /run: they go with
// the pods when the node stops.
const cniFormat = `{
  "cniVersion": "1.0.0",
  "name": "lab",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "hairpinMode": true,
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "%s"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni"
      }
    }
  ]
}
`

// containerdFormat takes the socket and the sandbox image. restrict_oom_score_adj:
// without CAP_SYS_RESOURCE nobody may lower the score below its own.
// stats_collect_period: every second, containerd would read some thirty files of cgroups
// for each container and each pod, for a figure that only kubectl top would show; the
// kubelet's own figures are of every 10 s as well. use_internal_loopback: containerd turns
// a pod's loopback on itself, instead of running a program for it.
const containerdFormat = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]

[grpc]
  address = "%s"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "%s"

[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  restrict_oom_score_adj = true
  stats_collect_period = "10s"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    use_internal_loopback = true
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "/opt/k8s/runc"
        SystemdCgroup = false
`

// kubeletFormat takes the DNS address and containerd's socket. The eviction
// thresholds are low and images are never collected: the disk is the
// machine's, and there is no registry to get an image back from.
const kubeletFormat = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
containerRuntimeEndpoint: unix://%s
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1Gi, imagefs.available: 1Gi}
`

// proxyFormat takes the pods' network, the node's name and its kubeconfig.
// maxPerCore 0: the connection limit is the machine's, and stays as it is.
const proxyFormat = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0}
`

// tunables are kernel settings of the whole machine that a kubelet would
// change. The node sees files of its own in their place, with the values that
// the kubelet wants, and the machine's stay as they are.
func tunables() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// programs are what a node runs, in the order in which they start.
func programs(name string, ip netip.Addr) [][]string {
	return [][]string{
		{"containerd", "--config", containerdConfig},
		{"kubelet", "--config=" + kubeletConfig, "--kubeconfig=" + kubeletKubeconfig, "--hostname-override=" + name, "--node-ip=" + ip.String(), "--v=2"},
		{"kube-proxy", "--config=" + proxyConfig},
	}
}

func writeFiles(root string, fs []file) error {
	for _, f := range fs {
		path := filepath.Join(root, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	return nil
}
