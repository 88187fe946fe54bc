package cephtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// spec is one command of Ceph's command tables.
type spec struct {
	// mgr: it is answered by the mgr.
	mgr bool
	// mutates: its permission is rw.
	mutates bool
	// looksAtPGs: its answer depends on PGs.
	looksAtPGs bool
	params     map[string]param
	run        func(*Cluster, args) reply
}

// param is an argument: its type as in Ceph's tables, and whether it must be
// there.
type param struct {
	kind     string
	optional bool
}

// args are the arguments of one command, checked.
type args struct {
	m  map[string]any
	in []byte
}

func (a args) str(name string) string    { s, _ := a.m[name].(string); return s }
func (a args) list(name string) []string { s, _ := a.m[name].([]string); return s }
func (a args) num(name string) int       { n, _ := a.m[name].(int); return n }
func (a args) real(name string) float64  { f, _ := a.m[name].(float64); return f }
func (a args) yes(name string) bool      { b, _ := a.m[name].(bool); return b }
func (a args) has(name string) bool      { _, ok := a.m[name]; return ok }

// params reads a signature: "name:kind" separated by spaces, a question mark for
// optional. Kinds: str, strs (n=N), int, float, bool.
func params(sig string) map[string]param {
	out := map[string]param{}
	for _, f := range strings.Fields(sig) {
		name, kind, ok := strings.Cut(f, ":")
		if !ok {
			panic("cephtest: bad signature " + sig)
		}
		k, opt := strings.CutSuffix(kind, "?")
		out[name] = param{kind: k, optional: opt}
	}
	return out
}

// parseArgs checks a command against its signature as strictly as Ceph does, and
// refuses arguments that Ceph would silently ignore.
func parseArgs(sp *spec, wire []byte) (args, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(wire, &raw); err != nil {
		return args{}, err
	}
	a := args{m: map[string]any{}}
	for name, v := range raw {
		if name == "prefix" || name == "format" {
			continue
		}
		p, ok := sp.params[name]
		if !ok {
			return a, fmt.Errorf("there is no argument %q", name)
		}
		x, err := parseArg(p.kind, v)
		if err != nil {
			return a, fmt.Errorf("bad or missing field '%s': %w", name, err)
		}
		a.m[name] = x
	}
	var missing []string
	for name, p := range sp.params {
		if !p.optional && !a.has(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		sort.Strings(missing)
		return a, fmt.Errorf("missing arguments %v", missing)
	}
	return a, nil
}

func parseArg(kind string, v json.RawMessage) (any, error) {
	isReal := bytes.ContainsAny(v, ".eE")
	switch kind {
	case "str":
		var s string
		err := json.Unmarshal(v, &s)
		return s, err
	case "strs":
		var s []string
		err := json.Unmarshal(v, &s)
		return s, err
	case "int":
		var n int
		err := json.Unmarshal(v, &n)
		return n, err
	case "float":
		var f float64
		if !isReal {
			return nil, fmt.Errorf("%s is written as an integer; Ceph wants a real", v)
		}
		err := json.Unmarshal(v, &f)
		return f, err
	case "bool":
		var b bool
		err := json.Unmarshal(v, &b)
		return b, err
	}
	return nil, fmt.Errorf("kind %q does not exist", kind)
}

const (
	onMgr = 1 << iota
	rw
	pgs
)

func entry(flags int, sig string, run func(*Cluster, args) reply) *spec {
	return &spec{mgr: flags&onMgr != 0, mutates: flags&rw != 0, looksAtPGs: flags&pgs != 0,
		params: params(sig), run: run}
}

// commands is every command that is known, with the argument types of Ceph's own
// descriptions.
var commands = tables(monCommands(), mgrCommands(), osdCommands(), crushCommands(), pgCommands(),
	poolCommands(), authCommands(), configCommands(), statusCommands(), fsCommands())

func tables(ts ...map[string]*spec) map[string]*spec {
	all := map[string]*spec{}
	for _, t := range ts {
		for k, v := range t {
			all[k] = v
		}
	}
	return all
}

// Known lists every command that is known.
func Known() []string {
	out := make([]string, 0, len(commands))
	for k := range commands {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
