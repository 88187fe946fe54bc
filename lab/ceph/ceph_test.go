package ceph

import (
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
