package chart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden files and values.schema.json anew")

const (
	deploy  = "../../deploy"
	drivers = deploy + "/charts/ceph-csi-drivers"
	// snapshots is what a cluster with the snapshot CRDs has.
	snapshots = "snapshot.storage.k8s.io/v1"
)

// cases are values and what they are for; each has a golden file.
var cases = []struct {
	name, namespace string
	apis            []string
	values          string
}{
	{"default", "ceph-csi", nil, ``},
	{"default-with-snapshots", "ceph-csi", []string{snapshots}, ``},
	{"rook", "rook-ceph", []string{snapshots}, "@values-rook.yaml"},
	{"everything", "storage", []string{snapshots}, everything},
	{"own-rights", "storage", nil, `{rbac: {create: false}, operatorConfig: {create: false}, drivers: {cephfs: {enabled: false}, rbd: {controllerPlugin: {serviceAccountName: mine}}}}`},
}

// everything uses all that the chart has.
const everything = `
operatorConfig:
  name: other-config
  namespace: operator
  labels: {team: storage}
  annotations: {note: "1"}
  log: {verbosity: 2}
  driverSpecDefaults:
    log: {verbosity: 5, rotation: {periodicity: hourly, maxLogSize: 500Mi, maxFiles: 3, logHostPath: /var/log/csi}}
    imageSet: {name: images}
    clusterName: east
    deployCsiAddons: true
    snapshotPolicy: volumeGroupSnapshot
    grpcTimeout: 60
    enableFencing: true
    fsGroupPolicy: ReadWriteOnceWithFSType
    leaderElection: {leaseDuration: 60, renewDeadline: 40, retryPeriod: 10}
    liveness: {metricsPort: 9090}
    controllerPlugin:
      replicas: 3
      resources: {plugin: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 1Gi}}}
      deploymentStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
    nodePlugin:
      kubeletDirPath: /var/lib/k0s/kubelet
      tolerations: [{operator: Exists}]
      updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: storage, operator: Exists}]}]}}}
drivers:
  rbd:
    name: storage.rbd.csi.ceph.com
    annotations: {addons.csi.ceph.io/volume-condition: "true"}
    generateOMapInfo: true
    encryption: {configMapName: {name: kms}}
    nodePlugin: {topology: {domainLabels: [topology.kubernetes.io/zone]}}
    controllerPlugin:
      volumes:
        - volume: {name: tls-key, secret: {secretName: snapshot-metadata}}
          mount: {name: tls-key, mountPath: /tmp/certificates, readOnly: true}
  cephfs:
    name: storage.cephfs.csi.ceph.com
    cephFsClientType: autodetect
    kernelMountOptions: {noatime: "", ms_mode: secure}
    deployCsiAddons: false
  nfs: {enabled: true, name: storage.nfs.csi.ceph.com, snapshotPolicy: none}
  nvmeof: {enabled: true, name: storage.nvmeof.csi.ceph.com, attachRequired: true}
cephConnections:
  - {name: east, monitors: ["10.0.0.1:3300"], rbdMirrorDaemonCount: 2}
clientProfiles:
  - name: east
    labels: {site: east}
    spec:
      cephConnectionRef: {name: east}
      rbd: {cephCsiSecrets: {controllerPublishSecret: {name: rbd, namespace: ceph-secrets}}}
clientProfileMappings:
  - {name: old, mappings: [{localClientProfile: gone, remoteClientProfile: east, blockPoolIdMapping: [["1", "4"]]}]}
clientProfileReplications:
  - {name: east-to-west, localClientProfile: east, remoteClientProfile: west, rbd: {poolMapping: [{name: replicapool, remoteID: "5"}]}}
imagePullSecrets: [pull, {name: pull-too}]
rbac:
  secretNamespaces: [more-secrets]
  kmsTenants: {namespaces: [tenant]}
`

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	if file, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(filepath.Join(drivers, file))
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	v, err := Values(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func render(t *testing.T, namespace, values string, apis ...string) Rendered {
	t.Helper()
	r, err := Render(drivers, "csi", namespace, valuesOf(t, values), apis...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func objects(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	list, err := Objects(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update writes it anew:\n%s", path, diff)
	}
}

func TestRender(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := render(t, c.namespace, c.values, c.apis...)
			golden(t, filepath.Join("testdata", c.name+".yaml"), r.Manifest+"---\n# NOTES\n# "+strings.ReplaceAll(strings.TrimSpace(r.Notes), "\n", "\n# ")+"\n")
		})
	}
}

// The schema is that of the CRDs as they are now.
func TestSchema(t *testing.T) {
	b, err := Schema(filepath.Join(deploy, "crds"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(drivers, "values.schema.json"), string(b))
}

// Values that cannot be meant are refused, and the message names them.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ values, message string }{
		"a field with a typing error":        {`drivers: {rbd: {snapshotPolcy: none}}`, "snapshotPolcy"},
		"a driver that does not exist":       {`drivers: {iscsi: {enabled: true}}`, "iscsi"},
		"a default with a typing error":      {`operatorConfig: {driverSpecDefaults: {grpcTimout: 30}}`, "grpcTimout"},
		"a client type that the CRD refuses": {`drivers: {cephfs: {cephFsClientType: fuse}}`, "cephFsClientType"},
		"a number out of range":              {`operatorConfig: {driverSpecDefaults: {log: {verbosity: 6}}}`, "verbosity"},
		"a name of another type":             {`drivers: {rbd: {name: rook-ceph.cephfs.csi.ceph.com}}`, "drivers.rbd.name"},
		"a name that is empty":               {`drivers: {rbd: {name: ""}}`, "drivers.rbd.name"},
		"a pool id that is a number":         {`clientProfileReplications: [{name: a, localClientProfile: a, remoteClientProfile: b, rbd: {poolMapping: [{name: p, remoteID: 5}]}}]`, "remoteID"},
		"an entry without a name":            {`cephConnections: [{monitors: ["10.0.0.1:3300"]}]`, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(drivers, "csi", "storage", valuesOf(t, c.values))
			if err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("the error %v does not name %q", err, c.message)
			}
		})
	}
}

func TestLint(t *testing.T) {
	for _, m := range lint.All(drivers, nil, "storage", true).Messages {
		if m.Severity >= support.WarningSev {
			t.Errorf("%s", m)
		}
	}
}

// right is one verb on one resource.
type right struct {
	Scope                 string // "cluster", or a namespace
	Group, Resource, Verb string
}

// rights are those of each service account, by the manifest.
func rights(t *testing.T, list []*unstructured.Unstructured) map[string][]right {
	t.Helper()
	roles := map[string][]rbacv1.PolicyRule{}
	key := func(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }
	for _, u := range list {
		if u.GetKind() != "Role" && u.GetKind() != "ClusterRole" {
			continue
		}
		var r rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &r, true); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		roles[key(u.GetKind(), u.GetNamespace(), u.GetName())] = r.Rules
	}
	out := map[string][]right{}
	for _, u := range list {
		if u.GetKind() != "RoleBinding" && u.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var b rbacv1.RoleBinding
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &b, true); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		scope := u.GetNamespace()
		if scope == "" {
			scope = "cluster"
		}
		rules, ok := roles[key(b.RoleRef.Kind, u.GetNamespace(), b.RoleRef.Name)]
		if !ok {
			t.Errorf("%s %s is of a role that is not there", u.GetKind(), u.GetName())
		}
		for _, s := range b.Subjects {
			for _, r := range rules {
				out[s.Name] = append(out[s.Name], expand(scope, r)...)
			}
		}
	}
	for name := range out {
		slices.SortFunc(out[name], func(a, b right) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		out[name] = slices.Compact(out[name])
	}
	return out
}

func expand(scope string, r rbacv1.PolicyRule) []right {
	var out []right
	for _, g := range r.APIGroups {
		for _, res := range r.Resources {
			for _, v := range r.Verbs {
				out = append(out, right{scope, g, res, v})
			}
		}
	}
	return out
}

func readManifests(t *testing.T, files ...string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(deploy, "csi", "rbac", f))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, objects(t, string(b))...)
	}
	return list
}

// manifestHeader opens the manifests for those without Helm.
const manifestHeader = `# Rights of the %[1]s driver's pods, with all features of the driver on. Apply it in
# the namespace of the Driver; change "rook-ceph" here if that is another one. It is
# made from the chart ceph-csi-drivers, which gives less where features are off; do not
# edit it.
#
# The names of the service accounts are those that the operator expects by default:
# CSI_SERVICE_ACCOUNT_PREFIX ("ceph-csi-operator-"), the driver type, and the part. A
# Driver may name others in serviceAccountName.
#
# Secrets can be read in this namespace only. Where StorageClasses keep their Secrets in
# other namespaces, apply secrets-in-namespace.yaml there, or secrets-cluster-wide.yaml;
# the latter too where generateOMapInfo is on. For encryption with the service accounts
# of tenants see kms-tenants.yaml.
`

// The manifests for those without Helm are what the chart makes with every feature
// on.
func TestManifests(t *testing.T) {
	const all = `
operatorConfig: {driverSpecDefaults: {deployCsiAddons: true}}
drivers:
  rbd: {controllerPlugin: {volumes: [{volume: {name: tls-key, secret: {secretName: s}}}]}}
  nfs: {enabled: true}
  nvmeof: {enabled: true}
`
	list := objects(t, render(t, "rook-ceph", all, snapshots).Manifest)
	for kind, name := range map[string]string{"rbd": "RBD", "cephfs": "CephFS", "nfs": "NFS", "nvmeof": "NVMe-oF"} {
		var b strings.Builder
		fmt.Fprintf(&b, manifestHeader, name)
		for _, part := range []string{"ctrlplugin", "nodeplugin"} {
			for _, u := range list {
				prefix := kind + "-csi-ceph-com-" + part
				if !strings.HasPrefix(u.GetName(), prefix) {
					continue
				}
				u.SetLabels(nil)
				y, err := yaml.Marshal(u.Object)
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString("---\n" + strings.ReplaceAll(string(y), prefix, "ceph-csi-operator-"+kind+"-"+part))
			}
		}
		golden(t, filepath.Join(deploy, "csi", "rbac", kind+".yaml"), b.String())
	}
}

// What nobody gets unless it is asked for.
func TestLeastPrivilege(t *testing.T) {
	type finding struct{ account, what string }
	risky := func(list []*unstructured.Unstructured) []finding {
		var out []finding
		for account, rs := range rights(t, list) {
			for _, r := range rs {
				switch {
				case r.Verb == "*" || r.Group == "*" || r.Resource == "*", r.Verb == "escalate" || r.Verb == "bind" || r.Verb == "impersonate":
					out = append(out, finding{account, fmt.Sprint(r)})
				case strings.Contains(r.Resource, "exec") || strings.Contains(r.Resource, "proxy") || r.Resource == "serviceaccounts/token":
					out = append(out, finding{account, fmt.Sprint(r)})
				case r.Resource == "secrets" && (r.Scope == "cluster" || r.Verb != "get"):
					out = append(out, finding{account, fmt.Sprint(r)})
				case r.Scope == "cluster" && slices.Contains([]string{"configmaps", "leases", "pods", "deployments", "daemonsets", "replicasets", "csiaddonsnodes", "serviceaccounts"}, r.Resource):
					out = append(out, finding{account, fmt.Sprint(r)})
				}
			}
		}
		slices.SortFunc(out, func(a, b finding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return out
	}
	all := `{drivers: {nfs: {enabled: true}, nvmeof: {enabled: true}}, operatorConfig: {driverSpecDefaults: {deployCsiAddons: true}}, rbac: {secretNamespaces: [other]}}`
	if f := risky(objects(t, render(t, "storage", all, snapshots).Manifest)); len(f) > 0 {
		t.Errorf("by default the chart gives %v", f)
	}
	if f := risky(readManifests(t, "rbd.yaml", "cephfs.yaml", "nfs.yaml", "nvmeof.yaml")); len(f) > 0 {
		t.Errorf("the manifests give %v", f)
	}
	// The search finds what is asked for.
	for values, want := range map[string]string{
		`{rbac: {secretsClusterWide: true}}`:           "{cluster  secrets get}",
		`{rbac: {kmsTenants: {clusterWide: true}}}`:    "{cluster  serviceaccounts/token create}",
		`{rbac: {kmsTenants: {namespaces: [tenant]}}}`: "{tenant  serviceaccounts/token create}",
		`{drivers: {rbd: {generateOMapInfo: true}}}`:   "{cluster  secrets watch}",
	} {
		found := risky(objects(t, render(t, "storage", values).Manifest))
		if !slices.ContainsFunc(found, func(f finding) bool { return f.what == want }) {
			t.Errorf("%s: %v is without %s", values, found, want)
		}
	}
}

// A feature that is off brings no rights.
func TestRightsFollowFeatures(t *testing.T) {
	has := func(values, account, resource string, apis ...string) bool {
		return slices.ContainsFunc(rights(t, objects(t, render(t, "storage", values, apis...).Manifest))[account], func(r right) bool { return r.Resource == resource })
	}
	const ctrl, node = "rbd-csi-ceph-com-ctrlplugin-sa", "rbd-csi-ceph-com-nodeplugin-sa"
	for _, c := range []struct {
		values, account, resource string
		apis                      []string
		want                      bool
	}{
		{``, ctrl, "volumesnapshotcontents", nil, false},
		{``, ctrl, "volumesnapshotcontents", []string{snapshots}, true},
		{`drivers: {rbd: {snapshotPolicy: none}}`, ctrl, "volumesnapshotcontents", []string{snapshots}, false},
		{`operatorConfig: {driverSpecDefaults: {snapshotPolicy: volumeSnapshot}}`, ctrl, "volumesnapshotcontents", nil, true},
		{``, node, "csiaddonsnodes", nil, false},
		{`drivers: {rbd: {deployCsiAddons: true}}`, node, "csiaddonsnodes", nil, true},
		{`{operatorConfig: {driverSpecDefaults: {deployCsiAddons: true}}, drivers: {rbd: {deployCsiAddons: false}}}`, node, "csiaddonsnodes", nil, false},
		{`drivers: {rbd: {deployCsiAddons: true}}`, "cephfs-csi-ceph-com-nodeplugin-sa", "csiaddonsnodes", nil, false},
		{`drivers: {nfs: {enabled: true, deployCsiAddons: true}}`, "nfs-csi-ceph-com-nodeplugin-sa", "csiaddonsnodes", nil, false},
	} {
		if got := has(c.values, c.account, c.resource, c.apis...); got != c.want {
			t.Errorf("%q %v: %s may use %s: %t", c.values, c.apis, c.account, c.resource, got)
		}
	}
}
