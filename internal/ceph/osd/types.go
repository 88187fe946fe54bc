package osd

import (
	"slices"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// ZeroUUID is what the OSD map shows for a destroyed OSD.
const ZeroUUID = "00000000-0000-0000-0000-000000000000"

// Map is the part of the OSD map that is used.
type Map struct {
	Epoch             int      `json:"epoch"`
	FSID              string   `json:"fsid"`
	FlagsSet          []string `json:"flags_set"`
	FullRatio         float64  `json:"full_ratio"`
	BackfillfullRatio float64  `json:"backfillfull_ratio"`
	NearfullRatio     float64  `json:"nearfull_ratio"`
	MaxOSD            int      `json:"max_osd"`
	// RequireOSDRelease is the name of the oldest release an OSD may run.
	RequireOSDRelease      string `json:"require_osd_release"`
	RequireMinCompatClient string `json:"require_min_compat_client"`
	Pools                  []Pool `json:"pools"`
	OSDs                   []OSD  `json:"osds"`
	// CrushNodeFlags and DeviceClassFlags are flags (noout, noup, ...) set on
	// CRUSH nodes and device classes by SetGroup.
	CrushNodeFlags   map[string][]string `json:"crush_node_flags"`
	DeviceClassFlags map[string][]string `json:"device_class_flags"`
	// Blocklist maps client addresses to the time their entry ends.
	Blocklist           map[string]string            `json:"blocklist"`
	ErasureCodeProfiles map[string]map[string]string `json:"erasure_code_profiles"`
	StretchMode         Stretch                      `json:"stretch_mode"`
}

// Stretch is the stretch state of the OSD map.
type Stretch struct {
	Enabled    bool `json:"stretch_mode_enabled"`
	Degraded   int  `json:"degraded_stretch_mode"`
	Recovering int  `json:"recovering_stretch_mode"`
}

// Find gives the OSD of that id; false when the id does not exist.
func (m Map) Find(id int) (OSD, bool) {
	for _, o := range m.OSDs {
		if o.ID == id {
			return o, true
		}
	}
	return OSD{}, false
}

// HasFlag reports whether a flag such as "noout" is set on the whole map.
func (m Map) HasFlag(flag string) bool { return slices.Contains(m.FlagsSet, flag) }

// Pool is the part of a pool that placement needs; pool.Detail has the rest.
type Pool struct {
	ID        int    `json:"pool"`
	Name      string `json:"pool_name"`
	Size      int    `json:"size"`
	MinSize   int    `json:"min_size"`
	CrushRule int    `json:"crush_rule"`
	PGNum     int    `json:"pg_num"`
	// Type is 1 for replicated and 3 for erasure-coded.
	Type int `json:"type"`
}

// OSD is one OSD of the map.
type OSD struct {
	ID int `json:"osd"`
	// UUID is the osd fsid, on disk and in the map; ZeroUUID when destroyed.
	UUID string   `json:"uuid"`
	Up   ceph.Bit `json:"up"`
	In   ceph.Bit `json:"in"`
	// Weight is the reweight, 0 (out) to 1. It is not the CRUSH weight.
	Weight          float64    `json:"weight"`
	PrimaryAffinity float64    `json:"primary_affinity"`
	PublicAddrs     ceph.Addrs `json:"public_addrs"`
	ClusterAddrs    ceph.Addrs `json:"cluster_addrs"`
	// UpFrom is the epoch of the last boot, 0 for an OSD that never was up.
	UpFrom int `json:"up_from"`
	// State holds words such as exists, up, new, destroyed, autoout, noout.
	State []string `json:"state"`
}

// Is reports whether a word is in the OSD's state.
func (o OSD) Is(word string) bool { return slices.Contains(o.State, word) }

// Destroyed reports whether the OSD's keys are gone while its id waits for a
// replacement.
func (o OSD) Destroyed() bool { return o.Is("destroyed") }

// New reports whether the id was claimed by `osd new` and never booted.
func (o OSD) New() bool { return o.Is("new") }

// Tree is the answer of `osd tree`.
type Tree struct {
	Nodes []Node `json:"nodes"`
	// Stray are OSDs that are not in the CRUSH map.
	Stray []Node `json:"stray"`
}

// Node is a bucket or an OSD of the tree.
type Node struct {
	// ID is negative for buckets.
	ID          int     `json:"id"`
	Name        string  `json:"name"`
	Type        string  `json:"type"`
	TypeID      int     `json:"type_id"`
	Children    []int   `json:"children,omitempty"`
	DeviceClass string  `json:"device_class,omitempty"`
	CrushWeight float64 `json:"crush_weight,omitempty"`
	// Status is up, down or destroyed; empty for a bucket.
	Status          string   `json:"status,omitempty"`
	Exists          ceph.Bit `json:"exists,omitempty"`
	Reweight        float64  `json:"reweight,omitempty"`
	PrimaryAffinity float64  `json:"primary_affinity,omitempty"`
}

// OSD gives the node of that OSD, in the tree or stray.
func (t Tree) OSD(id int) (Node, bool) {
	for _, list := range [][]Node{t.Nodes, t.Stray} {
		for _, n := range list {
			if n.ID == id && n.Type == "osd" {
				return n, true
			}
		}
	}
	return Node{}, false
}

// Location gives the buckets above an OSD as type to name, e.g. host, rack,
// root; empty for a stray one.
func (t Tree) Location(id int) map[string]string {
	parent := map[int]Node{}
	for _, n := range t.Nodes {
		for _, ch := range n.Children {
			parent[ch] = n
		}
	}
	loc := map[string]string{}
	for p, ok := parent[id]; ok; p, ok = parent[p.ID] {
		if _, seen := loc[p.Type]; seen {
			break // a map that is no tree would never end
		}
		loc[p.Type] = p.Name
	}
	return loc
}

// OSDIDs lists every OSD of the tree in the order of the reply, strays last.
func (t Tree) OSDIDs() []int {
	var ids []int
	for _, list := range [][]Node{t.Nodes, t.Stray} {
		for _, n := range list {
			if n.Type == "osd" && !slices.Contains(ids, n.ID) {
				ids = append(ids, n.ID)
			}
		}
	}
	return ids
}

// Metadata is what an OSD reported about itself when it last booted. That of a
// down OSD is old; that of one that never booted has only the ID.
type Metadata struct {
	ID       int    `json:"id"`
	Hostname string `json:"hostname"`
	// Version is the whole line, Short the number, e.g. "20.2.4".
	Version string `json:"ceph_version"`
	Short   string `json:"ceph_version_short"`
	// Release is the release's name.
	Release     string `json:"ceph_release"`
	OSDData     string `json:"osd_data"`
	ObjectStore string `json:"osd_objectstore"`
	// Devices are kernel names of the disks below, separated by commas;
	// DeviceIDs and DevicePaths are lists of name=value in the same way.
	Devices     string `json:"devices"`
	DeviceIDs   string `json:"device_ids"`
	DevicePaths string `json:"device_paths"`
	Rotational  string `json:"rotational"`
	BdevPath    string `json:"bluestore_bdev_partition_path"`
	BdevSize    string `json:"bluestore_bdev_size"`
	// DedicatedDB and DedicatedWAL are "1" when BlueFS has its own device.
	DedicatedDB  string `json:"bluefs_dedicated_db"`
	DedicatedWAL string `json:"bluefs_dedicated_wal"`
	FrontAddr    string `json:"front_addr"`
	BackAddr     string `json:"back_addr"`
	DefaultClass string `json:"default_device_class"`
	KernelString string `json:"kernel_version"`
}

// Usage is the answer of `osd df`; sizes in KiB.
type Usage struct {
	Nodes   []NodeUsage  `json:"nodes"`
	Stray   []NodeUsage  `json:"stray"`
	Summary UsageSummary `json:"summary"`
}

// NodeUsage is one OSD's line.
type NodeUsage struct {
	ID          int     `json:"id"`
	Name        string  `json:"name"`
	DeviceClass string  `json:"device_class"`
	CrushWeight float64 `json:"crush_weight"`
	Reweight    float64 `json:"reweight"`
	KB          int64   `json:"kb"`
	KBUsed      int64   `json:"kb_used"`
	KBUsedData  int64   `json:"kb_used_data"`
	KBAvail     int64   `json:"kb_avail"`
	// Utilization is in percent.
	Utilization float64 `json:"utilization"`
	PGs         int     `json:"pgs"`
	Status      string  `json:"status"`
}

// UsageSummary is the sum over the OSDs; sizes in KiB.
type UsageSummary struct {
	TotalKB            int64   `json:"total_kb"`
	TotalKBUsed        int64   `json:"total_kb_used"`
	TotalKBAvail       int64   `json:"total_kb_avail"`
	AverageUtilization float64 `json:"average_utilization"`
}

// StopAnswer is the answer of `osd ok-to-stop`.
type StopAnswer struct {
	OK bool `json:"ok_to_stop"`
	// OSDs is the set the answer is about: those asked for, or more when a
	// maximum was given.
	OSDs        []int `json:"osds"`
	NumOKPGs    int   `json:"num_ok_pgs"`
	NumNotOKPGs int   `json:"num_not_ok_pgs"`
	// BadInactive would become inactive, BadAlready are inactive, Unknown have
	// not been reported by any OSD yet: each makes the answer no.
	BadInactive []string `json:"bad_become_inactive,omitempty"`
	BadAlready  []string `json:"bad_already_inactive,omitempty"`
	Unknown     []string `json:"unknown_pgs,omitempty"`
	OKDegraded  []string `json:"ok_become_degraded,omitempty"`
	OKMore      []string `json:"ok_become_more_degraded,omitempty"`
}

// SafeAnswer is the answer of `osd safe-to-destroy`: each id asked for is in
// exactly one of the lists.
type SafeAnswer struct {
	Safe []int `json:"safe_to_destroy"`
	// Active still have PGs mapped to them (EBUSY).
	Active []int `json:"active"`
	// MissingStats are down and their PGs' state is not known (EAGAIN).
	MissingStats []int `json:"missing_stats"`
	// StoredPGs are drained and still hold PG data (EBUSY).
	StoredPGs []int `json:"stored_pgs"`
}

// IsSafe reports whether the id is listed as safe and nowhere else.
func (a SafeAnswer) IsSafe(id int) bool {
	return slices.Contains(a.Safe, id) && !slices.Contains(a.Active, id) &&
		!slices.Contains(a.MissingStats, id) && !slices.Contains(a.StoredPGs, id)
}

// Place is where an OSD is, by `osd find`.
type Place struct {
	ID            int               `json:"osd"`
	UUID          string            `json:"osd_fsid"`
	Host          string            `json:"host"`
	CrushLocation map[string]string `json:"crush_location"`
}

// Secrets go with `osd new` for an OSD; the zero value sends none, and Ceph
// makes no key then.
type Secrets struct {
	// CephxSecret is the OSD's key.
	CephxSecret ceph.Secret
	// CephxLockboxSecret and DmcryptKey are both set for an encrypted OSD.
	CephxLockboxSecret ceph.Secret
	DmcryptKey         ceph.Secret
	// DeviceClass is the CRUSH class to set when the OSD is made.
	DeviceClass string
}

// BlocklistEntry is one blocked client or network.
type BlocklistEntry struct {
	// Addr is "ip:port/nonce", Range "ip:0/bits"; one of them is empty.
	Addr  string `json:"addr,omitempty"`
	Range string `json:"range,omitempty"`
	Until string `json:"until"`
}
