package release

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// order is the ranks of daemon types in an upgrade: a type starts when all
// types of lower ranks are done. Ceph asks for mons, then mgrs, then OSDs; the
// others talk to these and may follow in any order.
func order(t Type) int {
	switch t {
	case Mon:
		return 0
	case Mgr:
		return 1
	case OSD:
		return 2
	}
	return 3
}

// Gate is the answer to whether daemons of a type may be brought to a version.
type Gate struct {
	// Open says that they may.
	Open bool
	// Blockers are the daemons that must come first, in upgrade order.
	Blockers []Blocker
}

// Blocker is a number of daemons of one type that are not at the wanted
// version.
type Blocker struct {
	Type Type
	// Version they run; zero when Ceph does not know it, or when none runs.
	Version Version
	// Count of them; 0 when there should be some and none runs.
	Count int
}

func (b Blocker) String() string {
	switch {
	case b.Count == 0:
		return fmt.Sprintf("no %s is running", b.Type)
	case b.Version.IsZero():
		return fmt.Sprintf("%d %s of unknown version", b.Count, b.Type)
	}
	return fmt.Sprintf("%d %s at %s", b.Count, b.Type, b.Version)
}

// Message says for a person what is waited for; empty when the gate is open.
func (g Gate) Message(t Type, target Version) string {
	if g.Open {
		return ""
	}
	parts := make([]string, len(g.Blockers))
	for i, b := range g.Blockers {
		parts[i] = b.String()
	}
	return fmt.Sprintf("%s daemons wait for others to run Ceph %s first: %s", t, target, strings.Join(parts, ", "))
}

// MayStart says whether daemons of type t may be brought to target, given what
// runs: all daemons of the types that come before must run target. It holds for
// going back as for going on. Daemons that are down do not run and hold up
// nothing: they start with the new version.
//
// At least one mon must run before anything else starts, and one mgr before
// anything after mgrs: without them nothing can be known of the others. A
// cluster without OSDs is none the less a cluster.
func MayStart(t Type, target Version, running Running) Gate {
	var blockers []Blocker
	for _, before := range slices.SortedFunc(maps.Keys(withCore(running)), byOrder) {
		if order(before) >= order(t) {
			continue
		}
		if running.Count(before) == 0 && before != OSD {
			blockers = append(blockers, Blocker{Type: before})
		}
		for _, v := range running.Versions(before) {
			if !v.Same(target) {
				blockers = append(blockers, Blocker{Type: before, Version: v, Count: running.count(before, v)})
			}
		}
	}
	return Gate{Open: len(blockers) == 0, Blockers: blockers}
}

// withCore is running with the types that a cluster must have, so that their
// absence is seen.
func withCore(running Running) Running {
	out := maps.Clone(running)
	if out == nil {
		out = Running{}
	}
	for _, t := range []Type{Mon, Mgr, OSD} {
		if _, ok := out[t]; !ok {
			out[t] = nil
		}
	}
	return out
}

func byOrder(a, b Type) int {
	if d := order(a) - order(b); d != 0 {
		return d
	}
	return strings.Compare(string(a), string(b))
}

// count is how many daemons of a type run a version, whatever their commits.
func (r Running) count(t Type, v Version) int {
	n := 0
	for w, c := range r[t] {
		if w.Same(v) {
			n += c
		}
	}
	return n
}

// Next is the first type, in upgrade order, of which daemons run another
// version than target; false when all daemons run target. It is where an
// upgrade stands.
func Next(target Version, running Running) (Type, bool) {
	for _, t := range slices.SortedFunc(maps.Keys(running), byOrder) {
		if running.Count(t) > 0 && !running.AllAt(t, target) {
			return t, true
		}
	}
	return "", false
}
