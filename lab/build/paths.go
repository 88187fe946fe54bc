package build

import (
	"path/filepath"
)

// Paths says where what a build made is found. All are absolute, and nothing
// behind them may be written to: entries of the cache are shared by hard links.
type Paths struct {
	// Bin holds hyper (Kubernetes in one binary) and the links etcd,
	// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
	// kube-proxy and kubectl to it, containerd, containerd-shim-runc-v2, ctr
	// and runc. A node can mount it as it is.
	Bin string
	// Containerd holds containerd and ctr alone, for what needs no node.
	Containerd string
	// CNI holds the plugins bridge, host-local and loopback.
	CNI string
	// Assets can be used as KUBEBUILDER_ASSETS: etcd, kube-apiserver, kubectl.
	Assets string
	// Images is an OCI image layout with the images named below.
	Images string
	// Golden is a containerd root directory (overlayfs snapshotter, namespace
	// k8s.io) into which those images and the loaded ones are imported. A node's
	// own is seeded from it by image.SeedRoot: hard links for layers and blobs,
	// copies of the databases.
	Golden string
	// CephRoot is the root file system of the Ceph image.
	CephRoot string
	// GuestRoot is the root file system of the storage guest (the Ceph root
	// with the modules of GuestKernel in /lib/modules), to be mounted read-only.
	GuestRoot string
	// GuestKernel is the User Mode Linux kernel, which runs on this machine.
	GuestKernel string
}

// HyperBinary is the Kubernetes multi-call binary; its first argument names the
// program.
func (p Paths) HyperBinary() string { return filepath.Join(p.Bin, "hyper") }

// Kubectl is the kubectl of the lab's Kubernetes.
func (p Paths) Kubectl() string { return filepath.Join(p.Bin, "kubectl") }

// Names of the images that a golden root holds.
const (
	ImagePause   = "localhost/pause:1"   // the sandbox of every pod
	ImageCoreDNS = "localhost/coredns:1" // /coredns
	ImageTest    = "localhost/test:1"    // busybox applets with Debian's libc, for test pods
	ImageCeph    = "localhost/ceph:20.2.4"
)
