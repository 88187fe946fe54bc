// Package endpoints keeps the list of a cluster's mons in the form that users,
// the CSI driver and the kubectl plugin know: the ConfigMap
// rook-ceph-mon-endpoints, and mon_host made from it.
//
// It is pure. It must not decide which mons there should be; it only guards
// what must hold for the list: ids are never used twice, no two mons share an
// address, and the list is never written empty.
package endpoints

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Names of the objects, part of the compatibility contract.
const (
	ConfigMap = "rook-ceph-mon-endpoints"
	Secret    = "rook-ceph-config"
	// Slices of the headless service rook-ceph-active-mons.
	Service = "rook-ceph-active-mons"
)

// Ports of a mon: messenger v1 and v2.
const (
	PortV1 = 6789
	PortV2 = 3300
)

// Place is where a mon runs. An empty Node means that the scheduler decides
// each time (mons on volumes).
type Place struct {
	Name     string `json:"Name"`
	Hostname string `json:"Hostname"`
	Address  string `json:"Address"`
	Zone     string `json:"zone,omitempty"`
}

// Mon is one entry.
type Mon struct {
	ID string
	// Addr is the mon's address and the port in the list: 3300 where only
	// messenger v2 is used, else 6789.
	Addr netip.AddrPort
	// Place is nil when nothing is pinned.
	Place *Place
	// OutOfQuorum is set while the mon has been missing from the quorum.
	OutOfQuorum bool
}

// List is the whole of the ConfigMap that matters to Ceph.
type List struct {
	// Mons by id.
	Mons map[string]Mon
	// MaxID is the index of the highest id ever given out (a is 0), -1 at first.
	// It only grows, so an id never comes back.
	MaxID int
	// External are mons that somebody else runs.
	External []string
}

// Empty is the list of a cluster that has no mon yet.
func Empty() List { return List{Mons: map[string]Mon{}, MaxID: -1} }

// ID is the name of the mon with index i: a..z, aa..az, ba...
func ID(i int) string {
	name := ""
	for i >= 0 {
		name = string(rune('a'+i%26)) + name
		i = i/26 - 1
	}
	return name
}

// Index is the inverse of ID, or an error for what ID never makes.
func Index(id string) (int, error) {
	if id == "" || len(id) > 6 {
		return 0, fmt.Errorf("mon id %q is none of a, b and so on to z, then aa, ab and so on", id)
	}
	n := 0
	for _, c := range id {
		if c < 'a' || c > 'z' {
			return 0, fmt.Errorf("mon id %q is none of a, b and so on to z, then aa, ab and so on", id)
		}
		n = n*26 + int(c-'a') + 1
	}
	return n - 1, nil
}

// Next is the id for a new mon and the list that has given it out.
func (l List) Next() (string, List) {
	l = l.clone()
	l.MaxID++
	return ID(l.MaxID), l
}

// With returns the list with mon m, or an error when its address is taken.
func (l List) With(m Mon) (List, error) {
	for _, id := range l.IDs() {
		if o := l.Mons[id]; id != m.ID && o.Addr == m.Addr {
			return List{}, fmt.Errorf("mon %s cannot have address %s: mon %s has it", m.ID, m.Addr, id)
		}
	}
	i, err := Index(m.ID)
	if err != nil {
		return List{}, err
	}
	l = l.clone()
	l.Mons[m.ID] = m
	l.MaxID = max(l.MaxID, i)
	return l, nil
}

// Without returns the list without mon id. The last mon cannot be taken out: a
// list without mons would make every daemon and every client lose the cluster.
func (l List) Without(id string) (List, error) {
	if _, ok := l.Mons[id]; ok && len(l.Mons) == 1 {
		return List{}, fmt.Errorf("mon %s is the last one in the list and stays in it", id)
	}
	l = l.clone()
	delete(l.Mons, id)
	return l, nil
}

// IDs in their order of creation.
func (l List) IDs() []string {
	ids := slices.Collect(maps.Keys(l.Mons))
	slices.SortFunc(ids, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return ids
}

func (l List) clone() List {
	l.Mons = maps.Clone(l.Mons)
	if l.Mons == nil {
		l.Mons = map[string]Mon{}
	}
	return l
}

// MonHost is the value of Ceph's mon_host.
func (l List) MonHost() string {
	var hosts []string
	for _, id := range l.IDs() {
		a := l.Mons[id].Addr
		v2 := "v2:" + netip.AddrPortFrom(a.Addr(), PortV2).String()
		if a.Port() == PortV2 {
			hosts = append(hosts, "["+v2+"]")
		} else {
			hosts = append(hosts, "["+v2+",v1:"+netip.AddrPortFrom(a.Addr(), PortV1).String()+"]")
		}
	}
	return strings.Join(hosts, ",")
}

// Members is the value of Ceph's mon_initial_members.
func (l List) Members() string { return strings.Join(l.IDs(), ",") }

// Data is the ConfigMap's data. csi is the legacy CSI configuration, kept as it
// is.
func (l List) Data(csi string) (map[string]string, error) {
	if len(l.Mons) == 0 {
		return nil, fmt.Errorf("the list of mons is empty and is not written")
	}
	nodes := map[string]*Place{}
	var pairs, out []string
	for _, id := range l.IDs() {
		m := l.Mons[id]
		pairs = append(pairs, id+"="+m.Addr.String())
		nodes[id] = m.Place
		if m.OutOfQuorum {
			out = append(out, id)
		}
	}
	mapping, err := json.Marshal(map[string]any{"node": nodes})
	if err != nil {
		return nil, fmt.Errorf("encoding the places of the mons: %w", err)
	}
	data := map[string]string{
		"data": strings.Join(pairs, ","), "maxMonId": strconv.Itoa(l.MaxID), "mapping": string(mapping),
		"outOfQuorum": strings.Join(out, ","), "externalMons": strings.Join(l.External, ","),
	}
	if csi != "" {
		data["csi-cluster-config-json"] = csi
	}
	return data, nil
}

// Parse reads the ConfigMap's data. What cannot be read is an error that names
// the key: a list that was half understood must not lead to a new mon.
func Parse(data map[string]string) (List, error) {
	l := Empty()
	if s := data["maxMonId"]; s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			return List{}, fmt.Errorf("maxMonId %q is no number", s)
		}
		l.MaxID = n
	}
	mapping := struct {
		Node map[string]*Place `json:"node"`
	}{}
	if s := data["mapping"]; s != "" {
		if err := json.Unmarshal([]byte(s), &mapping); err != nil {
			return List{}, fmt.Errorf("mapping: %w", err)
		}
	}
	out := split(data["outOfQuorum"])
	l.External = split(data["externalMons"])
	for _, pair := range split(data["data"]) {
		id, addr, ok := strings.Cut(pair, "=")
		if !ok {
			return List{}, fmt.Errorf("data: %q is not of the form id=address:port", pair)
		}
		i, err := Index(id)
		if err != nil && !slices.Contains(l.External, id) {
			return List{}, fmt.Errorf("data: %w", err)
		}
		ap, err := netip.ParseAddrPort(addr)
		if err != nil {
			return List{}, fmt.Errorf("data: address of mon %s: %w", id, err)
		}
		if _, twice := l.Mons[id]; twice {
			return List{}, fmt.Errorf("data: mon %s is listed twice", id)
		}
		l.Mons[id] = Mon{ID: id, Addr: ap, Place: mapping.Node[id], OutOfQuorum: slices.Contains(out, id)}
		l.MaxID = max(l.MaxID, i)
	}
	return l, nil
}

func split(s string) []string {
	var parts []string
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}
