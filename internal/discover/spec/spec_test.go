package spec

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/internal/settings"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got any) {
	t.Helper()
	out, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(out)); diff != "" {
		t.Errorf("%s (-want +got; run with -update if it is meant):\n%s", file, diff)
	}
}

func operator() Operator {
	return Operator{Image: "example.com/castellan:v1", Namespace: "rook-ceph", Version: "v1", Owner: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "rook-ceph-operator", UID: "1"}}
}

// Settings as users write them.
func TestGolden(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"defaults": {},
		"everything": {
			"ROOK_DISCOVER_DEVICES_INTERVAL": "10m",
			"ROOK_CEPH_ALLOW_LOOP_DEVICES":   "true",
			"ROOK_ENFORCE_HOST_NETWORK":      "true",
			"DISCOVER_DAEMON_UDEV_BLACKLIST": "(?i)dm-[0-9]+",
			"DISCOVER_TOLERATION":            "NoSchedule",
			"DISCOVER_TOLERATION_KEY":        "storage",
			"DISCOVER_TOLERATIONS":           "- effect: NoExecute\n  key: node-role.kubernetes.io/etcd\n  operator: Exists\n",
			"DISCOVER_PRIORITY_CLASS_NAME":   "system-node-critical",
			"DISCOVER_AGENT_NODE_AFFINITY":   "role=storage-node; storage=rook, ceph; disks",
			"DISCOVER_AGENT_POD_LABELS":      "key1=value1,key2=value2,app=not-this",
			"DISCOVER_DAEMON_RESOURCES":      "- name: DISCOVER_DAEMON_RESOURCES\n  resources:\n    limits:\n      memory: 512Mi\n    requests:\n      cpu: 100m\n",
		},
		"yaml": {
			"DISCOVER_AGENT_NODE_AFFINITY": "requiredDuringSchedulingIgnoredDuringExecution:\n  nodeSelectorTerms:\n  - matchExpressions:\n    - key: storage\n      operator: Exists\n",
			"DISCOVER_DAEMON_RESOURCES":    "limits:\n  memory: 100Mi\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := settings.Parse(data)
			if len(problems) > 0 {
				t.Fatalf("%v", problems)
			}
			ds, err := DaemonSet(operator(), s)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, ds)
		})
	}
}

// What cannot be read is an error that names the key.
func TestBadSettings(t *testing.T) {
	for key, value := range map[string]string{
		"DISCOVER_DAEMON_UDEV_BLACKLIST": "(",
		"DISCOVER_TOLERATION":            "Sometimes",
		"DISCOVER_TOLERATION_KEY":        "alone",
		"DISCOVER_TOLERATIONS":           "key: value",
		"DISCOVER_AGENT_NODE_AFFINITY":   "a b=c",
		"DISCOVER_AGENT_POD_LABELS":      "a=b c",
		"DISCOVER_DAEMON_RESOURCES":      "limits: 5",
		"ROOK_DISCOVER_DEVICES_INTERVAL": "1ms",
	} {
		s, problems := settings.Parse(map[string]string{key: value})
		if len(problems) > 0 {
			t.Fatalf("%v", problems)
		}
		_, err := DaemonSet(operator(), s)
		if bad := (*KeyError)(nil); !errors.As(err, &bad) || bad.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
}
