package config

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	cephconfig "github.com/castellan-storage/castellan/internal/ceph/config"
	"github.com/castellan-storage/castellan/internal/kit"
)

func TestParseConf(t *testing.T) {
	got, bad := parseConf("# a comment\nosd memory target = 4G ; why\n[osd]\nbluestore-cache-size=\"1 2\"\nlong = a \\\n b\nnonsense\n[osd.3]\ndebug_osd = 5#6\n[\n")
	want := []setting{{"global", "osd_memory_target", "4G"}, {"osd", "bluestore_cache_size", "1 2"}, {"osd", "long", "a   b"}, {"osd.3", "debug_osd", "5#6"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(setting{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{6, 9}, bad); diff != "" {
		t.Errorf("bad lines (-want +got):\n%s", diff)
	}
}

func TestNodeSettings(t *testing.T) {
	opts, problems := nodeSettings([]Override{
		{"rook-config-override-node1.example.com", "[global]\nosd_memory_target = 4G\n[osd]\nosd_max_backfills = 2\nosd_recovery_sleep = 1\n[osd.3]\ndebug_osd = 5\n[mon]\ndebug_mon = 5\n"},
		{"something-else", ""},
		{"rook-config-override-node2", "what\n"},
	}, Override{"rook-config-override", "[osd]\nosd recovery sleep = 0\n"})
	got := map[Option]string{}
	for o, v := range opts {
		got[o] = v.Text.Reveal() + " from " + v.From
	}
	from := " from ConfigMap rook-config-override-node1.example.com"
	want := map[Option]string{
		{"osd/host:node1-example-com", "osd_memory_target"}: "4G" + from,
		{"osd/host:node1-example-com", "osd_max_backfills"}: "2" + from,
		{"osd.3", "debug_osd"}:                              "5" + from,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantProblems := []string{
		"ConfigMap rook-config-override-node1.example.com: osd_recovery_sleep is also in ConfigMap rook-config-override, which comes first",
		"ConfigMap rook-config-override-node1.example.com: section [mon] is not about OSDs; write [global], [osd] or [osd.<id>]",
		"ConfigMap rook-config-override-node2: line 1 is neither a section nor key = value",
		"ConfigMap something-else: it has the label node.config.rook.io/osd, but its name is not rook-config-override-<node>",
	}
	if diff := cmp.Diff(wantProblems, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// The spec's own wish for the same option wins.
func TestMerge(t *testing.T) {
	o := Option{"osd.3", "debug_osd"}
	if got := merge(map[Option]Value{o: plain("1")}, map[Option]Value{o: plain("2")}); got[o].Text.Reveal() != "1" {
		t.Errorf("got %q", got[o].Text.Reveal())
	}
}

// mons refuse some options and quote the value, as the real ones do.
type mons struct{ set []string }

func (m *mons) do(_ context.Context, _ ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
	value := fmt.Sprint(cmd.Args["value"])
	if s, ok := cmd.Args["value"].(ceph.Secret); ok {
		value = s.Reveal()
	}
	if n := fmt.Sprint(cmd.Args["name"]); strings.HasPrefix(n, "bad") {
		return ceph.Reply{}, &ceph.Error{Prefix: cmd.Prefix, Errno: 22, Status: "error parsing value: expected integer, got: '" + value + "'"}
	}
	m.set = append(m.set, fmt.Sprint(cmd.Args["name"]))
	return ceph.Reply{}, nil
}

// A refused setting is named by where it comes from; a value from a Secret is not
// quoted though Ceph does; and what comes after it is set nevertheless.
func TestRefusedSettings(t *testing.T) {
	m := &mons{}
	s := Settle{Set: []Set{
		{Option{"global", "bad_secret"}, Value{Text: ceph.NewSecret("canary"), FromSecret: true, From: "spec.cephConfigFromSecret[global][bad secret]"}},
		{Option{"osd", "bad_plain"}, Value{Text: ceph.NewSecret("many"), From: "spec.cephConfig[osd][bad_plain]"}},
		{Option{"osd/host:n1", "bad_node"}, Value{Text: ceph.NewSecret("few"), From: "ConfigMap rook-config-override-n1"}},
		{Option{"global", "good"}, plain("1")},
	}}
	err := s.Do(t.Context(), cephconfig.New(ceph.Func(m.do)))
	wait, ok := err.(*kit.WaitError) //nolint:errorlint // the very error
	if !ok {
		t.Fatalf("got %v", err)
	}
	want := "spec.cephConfigFromSecret[global][bad secret]: global bad_secret: Ceph does not take the value in the Secret, or does not know the option; " +
		"spec.cephConfig[osd][bad_plain]: error parsing value: expected integer, got: 'many'; " +
		"ConfigMap rook-config-override-n1: osd/host:n1 bad_node: error parsing value: expected integer, got: 'few'"
	if diff := cmp.Diff(want, wait.Wait.Message); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !wait.Wait.Blocked || strings.Contains(fmt.Sprintf("%v %+v", err, s), "canary") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"good"}, m.set); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
}

// No answer is no refusal.
func TestSilenceIsNoRefusal(t *testing.T) {
	s := Settle{Set: []Set{{Option{"global", "x"}, Value{Text: ceph.NewSecret("canary"), FromSecret: true}}}}
	err := s.Do(t.Context(), cephconfig.New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
		return ceph.Reply{}, &ceph.UnreachableError{Prefix: "config set", Err: context.DeadlineExceeded}
	})))
	if _, ok := err.(*kit.WaitError); ok || err == nil { //nolint:errorlint // the very error
		t.Errorf("got %v", err)
	}
}
