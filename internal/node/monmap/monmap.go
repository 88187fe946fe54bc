// Package monmap names the first mons of a cluster to each other: it tells from the
// list of mons that a pod is given whether its mon is one of them, and how monmaptool
// makes the map that all of them begin with.
//
// Without such a map a mon knows the others by address only, and a majority that forms
// before the last one was heard of goes on with a map in which that one has no address;
// mons were seen to fail an assertion when it came.
//
// It is pure, and it must not decide which mons there are.
package monmap

import (
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// Mon is one entry of a map.
type Mon struct {
	Name string
	// Addrs are its addresses as Ceph writes them: [v2:10.0.0.1:3300,v1:10.0.0.1:6789].
	Addrs string
}

// Founders reads the list of mons from mon_initial_members and mon_host, which name the
// same mons in the same order. It is nil when they do not, when mon id is not among
// them, and when the list is not what a cluster is founded with: a, b, c and so on
// without a gap. A mon that comes later learns the map from those that run.
func Founders(id, members, hosts string) []Mon {
	names, addrs := split(members), split(hosts)
	if len(names) != len(addrs) || !slices.Contains(names, id) {
		return nil
	}
	var mons []Mon
	for i, name := range names {
		if name != endpoints.ID(i) || !strings.HasPrefix(addrs[i], "[v") || !strings.HasSuffix(addrs[i], "]") {
			return nil
		}
		mons = append(mons, Mon{Name: name, Addrs: addrs[i]})
	}
	return mons
}

// split cuts at the commas that are in no brackets.
func split(list string) []string {
	var parts []string
	depth, from := 0, 0
	cut := func(to int) {
		if p := strings.TrimSpace(list[from:to]); p != "" {
			parts = append(parts, p)
		}
		from = to + 1
	}
	for i, c := range list {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			cut(i)
		}
	}
	if from < len(list) {
		cut(len(list))
	}
	return parts
}

// Args are monmaptool's for making the map at path.
func Args(fsid string, mons []Mon, path string) []string {
	args := []string{"--create", "--clobber", "--fsid", fsid}
	for _, m := range mons {
		args = append(args, "--addv", m.Name, m.Addrs)
	}
	return append(args, path)
}
