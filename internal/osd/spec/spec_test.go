package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// Dashboards and users' own tools select the pods of a rack or a host by these labels.
func TestTopologyLabels(t *testing.T) {
	for _, c := range []struct {
		name, location string
		want           map[string]string
	}{
		{"host only", "root=default host=node1", map[string]string{"topology-location-root": "default", "topology-location-host": "node1"}},
		{"with a rack and a zone", "root=default host=n-1 rack=r_2 zone=a.b", map[string]string{
			"topology-location-root": "default", "topology-location-host": "n-1", "topology-location-rack": "r_2", "topology-location-zone": "a.b"}},
		{"a name that is no label's value", "root=default host=" + strings.Repeat("n", 64), map[string]string{"topology-location-root": "default"}},
		{"none", "", map[string]string{}},
	} {
		dep, err := Deployment(podspec.Cluster{Name: "c", Namespace: "ns", FSID: "f"}, OSD{Record: prepare.Result{ID: 1, UUID: "u"}, Host: "node1", Location: c.location}, podspec.User{})
		if err != nil {
			t.Fatal(err)
		}
		for what, labels := range map[string]map[string]string{"Deployment": dep.Labels, "pod": dep.Spec.Template.Labels} {
			got := map[string]string{}
			for k, v := range labels {
				if strings.HasPrefix(k, "topology-location-") {
					got[k] = v
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", c.name, what, diff)
			}
		}
	}
}
