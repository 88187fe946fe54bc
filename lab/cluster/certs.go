package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/pki"
	"github.com/castellan-storage/castellan/lab/network"
)

// identities are the certificates of a lab. Those of nodes are made with each
// node.
type identities struct {
	ca        *pki.CA
	accounts  pki.Pair // signs service account tokens
	server    pki.Pair
	toKubelet pki.Pair // the API server, as a client of kubelets
	admin     pki.Pair
	manager   pki.Pair
	scheduler pki.Pair
	proxy     pki.Pair
}

const masters = "system:masters"

func newIdentities(now time.Time) (identities, error) {
	var ids identities
	var err error
	if ids.ca, err = pki.NewCA("castellan-lab", now); err != nil {
		return ids, err
	}
	if ids.accounts, err = pki.SigningKey(); err != nil {
		return ids, err
	}
	for _, c := range []struct {
		pair    *pki.Pair
		subject pki.Subject
	}{
		{&ids.server, pki.Subject{CommonName: "kube-apiserver", Hosts: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"127.0.0.1", network.ControlIP, network.KubernetesIP,
		}}},
		{&ids.toKubelet, pki.Subject{CommonName: "kube-apiserver-kubelet-client", Groups: []string{masters}}},
		{&ids.admin, pki.Subject{CommonName: "lab-admin", Groups: []string{masters}}},
		{&ids.manager, pki.Subject{CommonName: "system:kube-controller-manager", Hosts: []string{"localhost", "127.0.0.1"}}},
		{&ids.scheduler, pki.Subject{CommonName: "system:kube-scheduler", Hosts: []string{"localhost", "127.0.0.1"}}},
		{&ids.proxy, pki.Subject{CommonName: "system:kube-proxy"}},
	} {
		if *c.pair, err = ids.ca.Issue(c.subject); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// node makes the identity of a node's kubelet, which serves with it too.
func (ids identities) node(n network.Node) (pki.Pair, error) {
	return ids.ca.Issue(pki.Subject{
		CommonName: "system:node:" + n.Name, Groups: []string{"system:nodes"},
		Hosts: []string{n.Name, n.Addr.Addr().String()},
	})
}

// write puts what the control plane reads from files into the lab's directory.
// server is the API server's URL, good on the machine and in the lab's network
// namespace.
func (ids identities) write(dir, name, server string) error {
	p := pkiDir(dir)
	if err := os.MkdirAll(p, 0o700); err != nil {
		return fmt.Errorf("writing certificates: %w", err)
	}
	for file, data := range map[string][]byte{
		"ca.crt":               ids.ca.Cert,
		"ca.key":               ids.ca.Key,
		"sa.pub":               ids.accounts.Cert,
		"sa.key":               ids.accounts.Key,
		"apiserver.crt":        ids.server.Cert,
		"apiserver.key":        ids.server.Key,
		"kubelet-client.crt":   ids.toKubelet.Cert,
		"kubelet-client.key":   ids.toKubelet.Key,
		"manager.kubeconfig":   pki.Kubeconfig(name, server, ids.ca.Cert, ids.manager),
		"scheduler.kubeconfig": pki.Kubeconfig(name, server, ids.ca.Cert, ids.scheduler),
	} {
		if err := os.WriteFile(filepath.Join(p, file), data, 0o600); err != nil {
			return fmt.Errorf("writing certificates: %w", err)
		}
	}
	if err := os.WriteFile(Kubeconfig(dir), pki.Kubeconfig(name, server, ids.ca.Cert, ids.admin), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

func pkiDir(dir string) string { return filepath.Join(dir, "pki") }
