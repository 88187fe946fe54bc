package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// NodeLabel marks a ConfigMap with settings for the OSDs of one node.
const NodeLabel = "node.config.rook.io/osd"

// nodePrefix stands before the node's name in the name of such a ConfigMap.
const nodePrefix = podspec.ConfigOverride + "-"

// Override is one such ConfigMap, or the one for all daemons.
type Override struct{ Name, Conf string }

// setting is one line of a ceph.conf.
type setting struct{ section, name, value string }

// parseConf reads a ceph.conf: sections, "key = value", comments by # and ;, and lines
// that go on after a backslash. Lines that are none of these are returned by number.
func parseConf(conf string) (out []setting, bad []int) {
	section := "global"
	conf = strings.ReplaceAll(conf, "\\\n", " ")
	for i, line := range strings.Split(conf, "\n") {
		line = strings.TrimSpace(line)
		if at := strings.IndexAny(line, "#;"); at >= 0 && (at == 0 || line[at-1] == ' ' || line[at-1] == '\t') {
			line = strings.TrimSpace(line[:at])
		}
		if line == "" {
			continue
		}
		if s, ok := strings.CutPrefix(line, "["); ok {
			if s, ok = strings.CutSuffix(s, "]"); !ok || strings.TrimSpace(s) == "" {
				bad = append(bad, i+1)
				continue
			}
			section = strings.TrimSpace(s)
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if k = name(k); !ok || k == "" {
			bad = append(bad, i+1)
			continue
		}
		v = strings.TrimSpace(v)
		if n := len(v); n >= 2 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
			v = v[1 : n-1]
		}
		out = append(out, setting{section, k, v})
	}
	return out, bad
}

// nodeSettings turns the ConfigMaps of nodes into options of Ceph's database that only
// the OSDs of that host take. common is the configuration file of all daemons: what
// it sets comes before the database. Problems name ConfigMap and key.
func nodeSettings(nodes []Override, common Override) (opts map[Option]Value, problems []string) {
	opts = map[Option]Value{}
	inFile := map[string]bool{}
	all, _ := parseConf(common.Conf) // what is wrong there, Ceph says itself
	for _, s := range all {
		if s.section == "global" || s.section == "osd" {
			inFile[s.name] = true
		}
	}
	for _, cm := range nodes {
		node, ok := strings.CutPrefix(cm.Name, nodePrefix)
		if !ok || node == "" {
			problems = append(problems, fmt.Sprintf("ConfigMap %s: it has the label %s, but its name is not %s<node>", cm.Name, NodeLabel, nodePrefix))
			continue
		}
		list, bad := parseConf(cm.Conf)
		for _, line := range bad {
			problems = append(problems, fmt.Sprintf("ConfigMap %s: line %d is neither a section nor key = value", cm.Name, line))
		}
		for _, s := range list {
			who := s.section
			switch {
			case who == "global" || who == "osd":
				who = "osd/host:" + podspec.HostLabel(node)
			case !strings.HasPrefix(who, "osd."):
				problems = append(problems, fmt.Sprintf("ConfigMap %s: section [%s] is not about OSDs; write [global], [osd] or [osd.<id>]", cm.Name, s.section))
				continue
			}
			if inFile[s.name] {
				problems = append(problems, fmt.Sprintf("ConfigMap %s: %s is also in ConfigMap %s, which comes first", cm.Name, s.name, common.Name))
				continue
			}
			opts[Option{who, s.name}] = Value{Text: ceph.NewSecret(s.value), From: "ConfigMap " + cm.Name}
		}
	}
	slices.Sort(problems)
	return opts, slices.Compact(problems)
}

// merge adds options that are not wished for by the spec itself.
func merge(into, more map[Option]Value) map[Option]Value {
	out := map[Option]Value{}
	maps.Copy(out, more)
	maps.Copy(out, into)
	return out
}
