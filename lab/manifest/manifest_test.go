package manifest

import (
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/network"
)

// TestObjects: what the manifests repeat of other packages is the same there.
func TestObjects(t *testing.T) {
	objects, err := Objects()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, o := range objects {
		all[o.Path] = string(o.YAML)
		name := o.Path[strings.LastIndex(o.Path, "/")+1:]
		if !strings.Contains(string(o.YAML), "name: "+name) && !strings.Contains(string(o.YAML), `name: "`+name+`"`) {
			t.Errorf("%s is not the path of this object:\n%s", o.Path, o.YAML)
		}
	}
	if !strings.Contains(all[DNSDeployment], "image: "+build.ImageCoreDNS+"\n") {
		t.Errorf("the DNS server does not run %s", build.ImageCoreDNS)
	}
	if !strings.Contains(all["/api/v1/namespaces/kube-system/services/kube-dns"], "clusterIP: "+network.DNSIP+"\n") {
		t.Errorf("the DNS Service is not at %s", network.DNSIP)
	}
}
