package cluster

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/castellan-storage/castellan/lab/network"
)

// component is a program of the control plane.
type component struct {
	name string
	args []string
}

// Names of the control plane's programs.
const (
	etcdName      = "etcd"
	serverName    = "kube-apiserver"
	managerName   = "kube-controller-manager"
	schedulerName = "kube-scheduler"
)

// ComponentNames are the control plane's programs, in the order in which they
// start.
func ComponentNames() []string { return []string{etcdName, serverName, managerName, schedulerName} }

// etcd keeps nothing over a crash of the machine: a lab does not either.
func etcd(dir string) component {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return component{etcdName, []string{
		"--name=lab", "--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
		"--unsafe-no-fsync", "--log-level=warn",
	}}
}

func apiServer(dir string, port int) component {
	p := func(file string) string { return filepath.Join(pkiDir(dir), file) }
	return component{serverName, []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=" + strconv.Itoa(port), "--bind-address=0.0.0.0", "--advertise-address=" + network.ControlIP,
		"--tls-cert-file=" + p("apiserver.crt"), "--tls-private-key-file=" + p("apiserver.key"), "--client-ca-file=" + p("ca.crt"),
		"--kubelet-client-certificate=" + p("kubelet-client.crt"), "--kubelet-client-key=" + p("kubelet-client.key"),
		"--kubelet-certificate-authority=" + p("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-key-file=" + p("sa.pub"), "--service-account-signing-key-file=" + p("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-cluster-ip-range=" + network.ServiceCIDR,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		// Ceph's pods are privileged; webhooks are called at their pods, as no
		// kube-proxy runs where the API server does.
		"--allow-privileged=true", "--enable-aggregator-routing=true", "--profiling=false",
	}}
}

// controllerManager must start after the API server is ready: it exits where
// RBAC is not there yet.
func controllerManager(dir string) component {
	p := func(file string) string { return filepath.Join(pkiDir(dir), file) }
	return component{managerName, []string{
		"--kubeconfig=" + p("manager.kubeconfig"),
		"--authentication-kubeconfig=" + p("manager.kubeconfig"), "--authorization-kubeconfig=" + p("manager.kubeconfig"),
		"--authentication-skip-lookup=true", "--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
		"--service-account-private-key-file=" + p("sa.key"), "--root-ca-file=" + p("ca.crt"),
		"--cluster-signing-cert-file=" + p("ca.crt"), "--cluster-signing-key-file=" + p("ca.key"),
		"--use-service-account-credentials", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--cluster-cidr=" + network.PodCIDR, "--allocate-node-cidrs=false",
	}}
}

func scheduler(dir string) component {
	k := filepath.Join(pkiDir(dir), "scheduler.kubeconfig")
	return component{schedulerName, []string{
		"--kubeconfig=" + k, "--authentication-kubeconfig=" + k, "--authorization-kubeconfig=" + k,
		"--authentication-skip-lookup=true", "--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
	}}
}

// serverURL is the API server as the machine and the lab's namespace reach it;
// nodeServerURL as nodes do.
func serverURL(port int) string     { return fmt.Sprintf("https://127.0.0.1:%d", port) }
func nodeServerURL(port int) string { return fmt.Sprintf("https://%s:%d", network.ControlIP, port) }
