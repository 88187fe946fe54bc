package ceph

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
