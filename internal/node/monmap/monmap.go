// Package monmap names the first mons of a cluster to each other: it tells from the
// list of mons that a pod is given whether its mon is one of them, how monmaptool
// makes the map that all of them begin with, and which of them should come last.
//
// Without such a map a mon knows the others by address only, and a majority that forms
// before the last one was heard of goes on with a map in which that one has no address;
// mons were seen to fail an assertion when it came.
//
// It is pure, and it must not decide which mons there are.
package monmap

import (
	"net/netip"
	"slices"

	"github.com/castellan-storage/castellan/internal/ceph/monhost"
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
	names, addrs := monhost.Split(members), monhost.Split(hosts)
	if len(names) != len(addrs) || !slices.Contains(names, id) {
		return nil
	}
	var mons []Mon
	for i, name := range names {
		if name != endpoints.ID(i) || !monhost.Vector(addrs[i]) {
			return nil
		}
		mons = append(mons, Mon{Name: name, Addrs: addrs[i]})
	}
	return mons
}

// Args are monmaptool's for making the map at path.
func Args(fsid string, mons []Mon, path string) []string {
	args := []string{"--create", "--clobber", "--fsid", fsid}
	for _, m := range mons {
		args = append(args, "--addv", m.Name, m.Addrs)
	}
	return append(args, path)
}

// Last says whether mon id should come after the others, and where those are. It is the
// one that wins elections: Ceph ranks mons by address, and the lowest rank wins. While one
// of a higher rank is waited for, an election of the others goes on for mon_election_timeout
// (5 s), and with the map that they make then comes another one; the winner is deferred to
// whenever it comes, and all are in quorum at once.
func Last(id string, mons []Mon) (others []netip.AddrPort, last bool) {
	var own netip.AddrPort
	for _, m := range mons {
		addrs, err := monhost.Addrs(m.Addrs)
		if err != nil || addrs[0].Proto != monhost.V2 {
			return nil, false
		}
		if addr := addrs[0].AddrPort; m.Name == id {
			own = addr
		} else {
			others = append(others, addr)
		}
	}
	wins := own.IsValid() && !slices.ContainsFunc(others, func(o netip.AddrPort) bool { return o.Compare(own) < 0 })
	return others, wins && len(others) > 0
}
