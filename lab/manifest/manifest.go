// Package manifest holds the Kubernetes objects that every lab has: the
// cluster's DNS.
package manifest

import (
	"embed"
	"fmt"
)

//go:embed coredns/*.yaml
var files embed.FS

// Object is one object and where the API has it.
type Object struct {
	Path string // of the API
	YAML []byte
}

// DNSDeployment is where the API has the DNS server.
const DNSDeployment = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"

// Objects are the objects of a fresh lab, in the order in which to make them.
func Objects() ([]Object, error) {
	const rbac, core = "/apis/rbac.authorization.k8s.io/v1/", "/api/v1/namespaces/kube-system/"
	var out []Object
	for _, o := range [][2]string{
		{"serviceaccount", core + "serviceaccounts/coredns"},
		{"clusterrole", rbac + "clusterroles/system:coredns"},
		{"clusterrolebinding", rbac + "clusterrolebindings/system:coredns"},
		{"configmap", core + "configmaps/coredns"},
		{"deployment", DNSDeployment},
		{"service", core + "services/kube-dns"},
	} {
		b, err := files.ReadFile("coredns/" + o[0] + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("reading the DNS manifest: %w", err)
		}
		out = append(out, Object{Path: o[1], YAML: b})
	}
	return out, nil
}
