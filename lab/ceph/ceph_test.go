package ceph

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The lab has its own settings: those of deploy/operator.yaml would take them back. All
// else of the manifest stays.
func TestTheOperatorIsInstalledWithTheLabsSettings(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", "operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := string(withoutSettings(b))
	if strings.Contains(got, "kind: ConfigMap") {
		t.Error("the operator's own settings are applied too")
	}
	kinds := func(s string) int { return strings.Count(s, "\nkind: ") }
	if kinds(got) != kinds(string(b))-1 || !strings.Contains(got, "kind: Deployment") {
		t.Errorf("%d of %d objects are left:\n%s", kinds(got), kinds(string(b)), got)
	}
}

func TestPGStat(t *testing.T) {
	for _, tc := range []struct {
		line   string
		pgs    int
		states map[string]int
		ok     bool
	}{
		{"9 pgs: 9 active+clean; 577 KiB data, 160 MiB used, 60 GiB / 60 GiB avail", 9, map[string]int{"active+clean": 9}, true},
		{"ceph> 9 pgs: 1 creating+peering, 8 active+clean; 577 KiB data, 0 B used; 2/9 objects degraded", 9, map[string]int{"creating+peering": 1, "active+clean": 8}, true},
		{"0 pgs: ; 0 B data, 0 B used, 0 B / 0 B avail", 0, map[string]int{}, true},
		{"", 0, nil, false},
		{"HEALTH_OK", 0, nil, false},
	} {
		pgs, states, ok := pgStat(tc.line)
		if pgs != tc.pgs || ok != tc.ok || !maps.Equal(states, tc.states) {
			t.Errorf("%q: %d %v %v", tc.line, pgs, states, ok)
		}
	}
}

// What is installed is told apart by every manifest and by the image.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "crds"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"common.yaml", "toolbox.yaml", "operator.yaml", "crds/a.yaml"}
	for _, name := range names {
		write(name, "kind: A\n")
	}
	seen := map[string]bool{}
	sum := func(image string) {
		t.Helper()
		got, err := (&Lab{Deploy: dir, Image: image}).sum()
		if err != nil {
			t.Fatal(err)
		}
		if seen[got] {
			t.Error("two contents have the same sum")
		}
		seen[got] = true
	}
	sum("sha256:1")
	sum("sha256:2")
	for _, name := range names {
		write(name, "kind: B\n")
		sum("sha256:1")
	}
	write("crds/b.yaml", "kind: A\n")
	sum("sha256:1")
}

func TestPatched(t *testing.T) {
	const manifest = "kind: Pot\nspec:\n  lid: true\n  tea: {sort: green, minutes: 3}\n"
	got, err := patched([]byte(manifest), `{"spec":{"lid":null,"tea":{"minutes":4},"cups":[1,2],"tray":{"round":true}}}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = "kind: Pot\nspec:\n  cups:\n  - 1\n  - 2\n  tea:\n    minutes: 4\n    sort: green\n  tray:\n    round: true\n"
	if string(got) != want {
		t.Errorf("got:\n%s", got)
	}
	if _, err := patched([]byte(manifest), `[]`); err == nil {
		t.Error("a list was taken for a patch")
	}
}

func TestComplete(t *testing.T) {
	two := int32(2)
	done := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 3},
		Spec:       appsv1.DeploymentSpec{Replicas: &two},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
	}
	if !complete(done) {
		t.Error("a Deployment that is complete is not")
	}
	for what, change := range map[string]func(*appsv1.Deployment){
		"not seen by its controller": func(d *appsv1.Deployment) { d.Generation++ },
		"a pod of before":            func(d *appsv1.Deployment) { d.Status.Replicas++ },
		"one that is not new":        func(d *appsv1.Deployment) { d.Status.UpdatedReplicas-- },
		"one that is not ready":      func(d *appsv1.Deployment) { d.Status.AvailableReplicas-- },
		"no number, which is one":    func(d *appsv1.Deployment) { d.Spec.Replicas = nil },
	} {
		d := done
		change(&d)
		if complete(d) {
			t.Errorf("%s: complete", what)
		}
	}
}
