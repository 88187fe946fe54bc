package settings

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultsAndEmptyValues(t *testing.T) {
	for _, data := range []map[string]string{nil, {}, {"ROOK_LOG_LEVEL": "", "ROOK_REVISION_HISTORY_LIMIT": " "}} {
		s, problems := Parse(data)
		if diff := cmp.Diff(Default(), s); diff != "" || len(problems) != 0 {
			t.Errorf("%v: %s %v", data, diff, problems)
		}
	}
}

func TestValues(t *testing.T) {
	s, problems := Parse(map[string]string{
		"ROOK_LOG_LEVEL": "debug", "ROOK_CEPH_COMMANDS_TIMEOUT_SECONDS": "30", "ROOK_CEPH_ALLOW_LOOP_DEVICES": "true",
		"ROOK_DISCOVER_DEVICES_INTERVAL": "90m", "ROOK_MON_OUT_TIMEOUT": "600", "ROOK_REVISION_HISTORY_LIMIT": "3",
		"ROOK_UNREACHABLE_NODE_TOLERATION_SECONDS": "20", "ROOK_SKIP_OSD_TOPOLOGY_CHECK": "true",
	})
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	want := Default()
	limit, out := int32(3), 600*time.Second
	want.LogLevel, want.CommandTimeout, want.AllowLoopDevices, want.DiscoverInterval = "DEBUG", 30*time.Second, true, 90*time.Minute
	want.MonOutTimeout, want.RevisionHistoryLimit, want.UnreachableSeconds, want.SkipTopologyCheck = &out, &limit, 20, true
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProblemsNameTheKeyAndKeepTheDefault(t *testing.T) {
	for key, value := range map[string]string{
		"ROOK_LOG_LEVEL": "loud", "ROOK_CEPH_COMMANDS_TIMEOUT_SECONDS": "soon", "ROOK_CEPH_ALLOW_LOOP_DEVICES": "perhaps",
		"ROOK_MON_OUT_TIMEOUT": "-5m", "ROOK_REVISION_HISTORY_LIMIT": "-1", "ROOK_NO_SUCH_KEY": "x", "ROOK_RECONCILE_CONCURRENT_CLUSTERS": "4",
		"ROOK_DELETE_UNUSED_CRUSH_RULES": "true",
	} {
		s, problems := Parse(map[string]string{key: value})
		if len(problems) != 1 || problems[0].Key != key || problems[0].Message == "" {
			t.Errorf("%s=%s: %v", key, value, problems)
		}
		if diff := cmp.Diff(Default(), s); diff != "" {
			t.Errorf("%s=%s changes something: %s", key, value, diff)
		}
	}
	_, problems := Parse(map[string]string{"B": "canary-secret", "A": "canary-secret"})
	if len(problems) != 2 || problems[0].Key != "A" || strings.Contains(problems[0].Message+problems[1].Message, "canary") {
		t.Errorf("problems must be sorted and must not repeat the value of a key that is not known: %v", problems)
	}
}

// A key that is read into a field which nobody looks at would have no effect, and nothing
// would say so. Fields are known by their names only.
func TestEverySettingIsUsed(t *testing.T) {
	used := map[string]bool{}
	root := filepath.Join("..", "..")
	for _, dir := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "settings" {
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					used[s.Sel.Name] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Settings](), reflect.TypeFor[Discover]()} {
		for i := range typ.NumField() {
			if name := typ.Field(i).Name; !used[name] {
				t.Errorf("%s.%s is read from the ConfigMap and used nowhere", typ.Name(), name)
			}
		}
	}
}
