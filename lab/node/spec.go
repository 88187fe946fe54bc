// Package node is what a node of a lab is: a process in network, mount, pid,
// uts, ipc and cgroup namespaces of its own, which makes itself a root file
// system and starts containerd, kubelet and kube-proxy. The first process of
// that pid namespace is this program again, so that the kernel ends everything
// of the node when it ends.
//
// It must not know of other nodes or of the control plane beyond its address;
// what a node needs is in its Spec.
package node

import (
	"net/netip"
	"path/filepath"

	"github.com/castellan-storage/castellan/lab/cluster/pki"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/network"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
)

// InitCommand is the argument with which this program becomes a node's init.
const InitCommand = "node-init"

// Descriptors that init is started with, beyond the standard three.
const (
	specFD   = 3 // one byte when the node's surroundings are ready, then the Spec in JSON
	reportFD = 4 // Reports, a JSON object a line
)

// Spec is everything that a node's init is told. It holds keys, and so goes
// through a pipe.
type Spec struct {
	Name      string             `json:"name"`
	MachineID string             `json:"machineID"` // 32 hex digits
	Dir       string             `json:"dir"`       // what the node keeps over a restart
	Addr      netip.Prefix       `json:"addr"`
	PodCIDR   netip.Prefix       `json:"podCIDR"`
	Routes    []network.Route    `json:"routes"`
	Server    string             `json:"server"` // URL of the API server, as nodes reach it
	Bin       string             `json:"bin"`    // Kubernetes and containerd, on the machine
	CNI       string             `json:"cni"`
	Pause     string             `json:"pause"` // the sandbox image
	CA        []byte             `json:"ca"`
	Kubelet   pki.Pair           `json:"kubelet"`
	Proxy     pki.Pair           `json:"proxy"`
	Disks     []disk.Disk        `json:"disks"`
	Cgroups   []cgroup.Hierarchy `json:"cgroups"`
}

// Report is what a node's init tells its supervisor.
type Report struct {
	Started bool   `json:"started,omitempty"` // all programs of the node run
	Error   string `json:"error,omitempty"`   // the node cannot start, and ends
	Exited  string `json:"exited,omitempty"`  // a program ended; the others go on
}

// LogFiles are the logs of a node's programs, relative to Spec.Dir.
func LogFiles() []string {
	return []string{"init.log", "var/log/containerd.log", "var/log/kubelet.log", "var/log/kube-proxy.log"}
}

// kept are the directories under /var that outlive a restart of the node.
func kept() []string { return []string{"lib/kubelet", "lib/containerd", "lib/rook", "log"} }

// ContainerdRoot is where containerd of the node with this Spec.Dir keeps its
// images, on the machine.
func ContainerdRoot(dir string) string { return filepath.Join(dir, "var/lib/containerd") }

// env is the environment of everything in a node.
func env() []string {
	return []string{
		"PATH=/opt/lab:/opt/k8s:/opt/cni/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"TERM=xterm",
		// Kubernetes' programs collect their garbage less often: a lab has memory to spare
		// and few processors.
		"GOGC=400",
	}
}
