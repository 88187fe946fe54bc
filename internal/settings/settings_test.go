package settings

import (
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
		"ROOK_UNREACHABLE_NODE_TOLERATION_SECONDS": "20", "ROOK_DELETE_UNUSED_CRUSH_RULES": "false",
	})
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	want := Default()
	limit, out := int32(3), 600*time.Second
	want.LogLevel, want.CommandTimeout, want.AllowLoopDevices, want.DiscoverInterval = "DEBUG", 30*time.Second, true, 90*time.Minute
	want.MonOutTimeout, want.RevisionHistoryLimit, want.UnreachableSeconds, want.DeleteUnusedCrushRules = &out, &limit, 20, false
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProblemsNameTheKeyAndKeepTheDefault(t *testing.T) {
	for key, value := range map[string]string{
		"ROOK_LOG_LEVEL": "loud", "ROOK_CEPH_COMMANDS_TIMEOUT_SECONDS": "soon", "ROOK_CEPH_ALLOW_LOOP_DEVICES": "perhaps",
		"ROOK_MON_OUT_TIMEOUT": "-5m", "ROOK_REVISION_HISTORY_LIMIT": "-1", "ROOK_NO_SUCH_KEY": "x", "ROOK_RECONCILE_CONCURRENT_CLUSTERS": "4",
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
