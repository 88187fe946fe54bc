package release

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Type is a sort of daemon, as "ceph versions" names it.
type Type string

// Daemon types.
const (
	Mon          Type = "mon"
	Mgr          Type = "mgr"
	OSD          Type = "osd"
	MDS          Type = "mds"
	RGW          Type = "rgw"
	RBDMirror    Type = "rbd-mirror"
	CephFSMirror Type = "cephfs-mirror"
	NFS          Type = "nfs"
	NVMeOF       Type = "nvmeof"
)

// Running counts the running daemons of a cluster by type and version. A
// daemon whose version Ceph does not know is counted under the zero Version.
type Running map[Type]map[Version]int

// ParseRunning reads the reply to "versions". Types that are not known here
// are kept: they are daemons like others. The sum over all types is left out.
func ParseRunning(reply []byte) (Running, error) {
	var raw map[string]map[string]int
	if err := json.Unmarshal(reply, &raw); err != nil {
		return nil, fmt.Errorf("decoding the versions of daemons: %w", err)
	}
	running := Running{}
	for t, counts := range raw {
		if t == "overall" || len(counts) == 0 {
			continue
		}
		by := map[Version]int{}
		for line, n := range counts {
			v, err := Parse(line)
			if err != nil {
				v = Version{} // Ceph writes "unknown" for a daemon without metadata
			}
			by[v] += n
		}
		running[Type(t)] = by
	}
	return running, nil
}

// Count is how many daemons of a type run.
func (r Running) Count(t Type) int {
	n := 0
	for _, c := range r[t] {
		n += c
	}
	return n
}

// Versions are the versions that daemons of these types run, oldest first, all
// types when none is named. An unknown version comes first.
func (r Running) Versions(types ...Type) []Version {
	if len(types) == 0 {
		types = slices.Collect(maps.Keys(r))
	}
	var out []Version
	for _, t := range types {
		for v, n := range r[t] {
			if n > 0 && !slices.ContainsFunc(out, v.Same) {
				v.Commit = "" // several may have built it
				out = append(out, v)
			}
		}
	}
	slices.SortFunc(out, Version.Compare)
	return out
}

// Oldest is the oldest version that daemons of these types run; the zero
// Version when there is none or one is not known. What it has, the cluster has.
func (r Running) Oldest(types ...Type) Version {
	if all := r.Versions(types...); len(all) > 0 {
		return all[0]
	}
	return Version{}
}

// Newest is the newest version that daemons of these types run; the zero
// Version when there is none.
func (r Running) Newest(types ...Type) Version {
	if all := r.Versions(types...); len(all) > 0 {
		return all[len(all)-1]
	}
	return Version{}
}

// AllAt says whether there are daemons of a type and all of them run v.
func (r Running) AllAt(t Type, v Version) bool {
	all := r.Versions(t)
	return len(all) == 1 && all[0].Same(v)
}

// RequireOSDRelease is the codename for "osd require-osd-release", once every
// OSD runs one major; empty as long as they do not, when there is no OSD, or
// when the release has no name here. OSDs that do not run are not counted: Ceph
// itself refuses the command for as long as an OSD that is up is older.
func (r Running) RequireOSDRelease() string {
	all := r.Versions(OSD)
	if len(all) == 0 || all[0].Major != all[len(all)-1].Major {
		return ""
	}
	return all[0].Codename()
}
