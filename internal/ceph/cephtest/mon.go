package cephtest

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type monDaemon struct {
	name     string
	addrs    ceph.Addrs
	version  string
	host     string
	running  bool
	location string
	added    time.Time
}

type monState struct {
	epoch         int
	electionEpoch int
	lastElection  time.Time
	mons          []*monDaemon // the monmap, by rank
	waiting       []*monDaemon // running, not in the map: they join when there is a quorum
	strategy      int
	disallowed    []string
	stretch       bool
	tiebreaker    string
	modified      time.Time
}

// MonAddrs makes the addresses of a mon on an IP: v2 on port 3300, and v1 on
// 6789 unless msgr2Only.
func MonAddrs(ip string, msgr2Only bool) ceph.Addrs {
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	a := ceph.Addrs{Vec: []ceph.Addr{{Type: "v2", Addr: ip + ":3300"}}}
	if !msgr2Only {
		a.Vec = append(a.Vec, ceph.Addr{Type: "v1", Addr: ip + ":6789"})
	}
	return a
}

// BootMon starts a mon. The first one of all makes the monmap; later ones join
// it when there is a quorum. A name that is in the map just runs again.
func (c *Cluster) BootMon(name string, addrs ceph.Addrs, opts ...DaemonOption) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.daemon(opts)
	for _, m := range c.mon.mons {
		if m.name == name {
			m.running, m.version, m.host = true, d.version, d.host
			c.elect()
			return
		}
	}
	m := &monDaemon{name: name, addrs: addrs, version: d.version, host: d.host, running: true, added: c.now}
	if len(c.mon.mons) == 0 {
		c.mon.strategy = 1
		c.addMon(m)
		return
	}
	c.mon.waiting = append(slices.DeleteFunc(c.mon.waiting, func(w *monDaemon) bool { return w.name == name }), m)
	c.elect()
}

// StopMon stops a mon; it stays in the map.
func (c *Cluster) StopMon(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.mon.mons {
		if m.name == name {
			m.running = false
		}
	}
	c.mon.waiting = slices.DeleteFunc(c.mon.waiting, func(w *monDaemon) bool { return w.name == name })
	c.elect()
}

// RunningMons lists the mons that run and are in the map.
func (c *Cluster) RunningMons() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, m := range c.mon.mons {
		if m.running {
			out = append(out, m.name)
		}
	}
	return out
}

func (c *Cluster) addMon(m *monDaemon) {
	c.mon.mons = append(c.mon.mons, m)
	// Mons are ranked by address.
	sort.SliceStable(c.mon.mons, func(i, j int) bool {
		return c.mon.mons[i].addrs.String() < c.mon.mons[j].addrs.String()
	})
	c.newMonmap()
}

func (c *Cluster) newMonmap() {
	c.mon.epoch++
	c.mon.modified = c.now
	c.elect()
}

// elect makes mons that wait join, and counts an election.
func (c *Cluster) elect() {
	c.mon.electionEpoch += 2
	c.mon.lastElection = c.now
	if len(c.quorum()) == 0 || len(c.mon.waiting) == 0 {
		return
	}
	m := c.mon.waiting[0]
	c.mon.waiting = c.mon.waiting[1:]
	c.addMon(m)
}

// quorum gives the ranks in quorum, none when there is no majority.
func (c *Cluster) quorum() []int {
	var in []int
	for rank, m := range c.mon.mons {
		if m.running {
			in = append(in, rank)
		}
	}
	if len(in) < len(c.mon.mons)/2+1 || len(c.mon.mons) == 0 {
		return nil
	}
	return in
}

func (c *Cluster) quorumNames() []string {
	names := []string{}
	for _, r := range c.quorum() {
		names = append(names, c.mon.mons[r].name)
	}
	return names
}

func (c *Cluster) leader() string {
	for _, n := range c.quorumNames() {
		if !slices.Contains(c.mon.disallowed, n) {
			return n
		}
	}
	return ""
}

func (c *Cluster) minMonRelease() int {
	low := 0
	for _, m := range c.mon.mons {
		if n := releaseNumber(releaseName(m.version)); low == 0 || n < low {
			low = n
		}
	}
	return low
}

func nameOfRelease(n int) string {
	for _, name := range []string{"quincy", "reef", "squid", "tentacle", "umbrella"} {
		if releaseNumber(name) == n {
			return name
		}
	}
	return "unknown"
}

func (c *Cluster) monmap() obj {
	mons := []obj{}
	for rank, m := range c.mon.mons {
		addr := "-"
		if a := m.addrs.Of("v1"); a != "" {
			addr = a + "/0"
		} else if a := m.addrs.Of("v2"); a != "" {
			addr = a + "/0"
		}
		mons = append(mons, obj{"rank": rank, "name": m.name, "public_addrs": m.addrs,
			"addr": addr, "public_addr": addr, "priority": 0, "weight": 0,
			"time_added": stamp(m.added), "crush_location": m.location})
	}
	r := c.minMonRelease()
	cipher := obj{"name": "aes256k", "value": 2}
	return obj{"epoch": c.mon.epoch, "auth_epoch": 0, "auth_service_cipher": cipher,
		"auth_allowed_ciphers": []obj{cipher}, "auth_preferred_cipher": cipher,
		"fsid": c.fsid, "modified": stamp(c.mon.modified), "created": stamp(c.mon.modified),
		"min_mon_release": r, "min_mon_release_name": nameOfRelease(r),
		"election_strategy": c.mon.strategy, "disallowed_leaders": strings.Join(c.mon.disallowed, ","),
		"stretch_mode": c.mon.stretch, "tiebreaker_mon": c.mon.tiebreaker, "removed_ranks": "",
		"features": obj{"persistent": []string{}, "optional": []string{}}, "mons": mons}
}

func (c *Cluster) findMon(name string) *monDaemon {
	for _, m := range c.mon.mons {
		if m.name == name {
			return m
		}
	}
	return nil
}

func monCommands() map[string]*spec {
	return map[string]*spec{
		"quorum_status":    entry(0, "", (*Cluster).quorumStatus),
		"mon dump":         entry(0, "epoch:int?", (*Cluster).monDump),
		"mon metadata":     entry(0, "id:str?", (*Cluster).monMetadata),
		"mon ok-to-stop":   entry(0, "ids:strs", (*Cluster).monOkToStop),
		"mon ok-to-rm":     entry(0, "id:str", (*Cluster).monOkToRm),
		"mon rm":           entry(rw, "name:str", (*Cluster).monRm),
		"mon add":          entry(rw, "name:str addr:str location:strs?", (*Cluster).monAdd),
		"mon set-addrs":    entry(rw, "name:str addrs:str", (*Cluster).monSetAddrs),
		"mon set-rank":     entry(rw, "name:str rank:int", (*Cluster).monSetRank),
		"mon enable-msgr2": entry(rw, "", (*Cluster).monEnableMsgr2),
		"mon set_location": entry(rw, "name:str args:strs", func(c *Cluster, a args) reply {
			m := c.findMon(a.str("name"))
			if m == nil {
				return fail(syscall.ENOENT, "mon.%s does not exist", a.str("name"))
			}
			m.location = "{" + strings.Join(a.list("args"), ",") + "}"
			c.newMonmap()
			return reply{}
		}),
		"mon set election_strategy": entry(rw, "strategy:str", func(c *Cluster, a args) reply {
			n := slices.Index([]string{"classic", "disallow", "connectivity"}, a.str("strategy")) + 1
			if n == 0 {
				return fail(syscall.EINVAL, "%s is not a valid election strategy", a.str("strategy"))
			}
			if c.mon.strategy != n {
				c.mon.strategy = n
				c.newMonmap()
			}
			return reply{}
		}),
		"mon ok-to-add-offline": entry(0, "", func(c *Cluster, _ args) reply {
			if len(c.quorum()) < (len(c.mon.mons)+1)/2+1 {
				return fail(syscall.EBUSY, "adding a monitor may break quorum (until that monitor starts)")
			}
			return done("adding another mon that is not yet started will not break quorum")
		}),
		"mon enable_stretch_mode": entry(rw, "tiebreaker_mon:str? new_crush_rule:str dividing_bucket:str", func(c *Cluster, a args) reply {
			if c.findMon(a.str("tiebreaker_mon")) == nil {
				return fail(syscall.ENOENT, "mon %s does not exist", a.str("tiebreaker_mon"))
			}
			if c.mon.strategy != 3 {
				return fail(syscall.EINVAL, "stretch mode requires the connectivity election strategy")
			}
			c.mon.stretch, c.mon.tiebreaker = true, a.str("tiebreaker_mon")
			c.mon.disallowed = []string{c.mon.tiebreaker}
			c.newMonmap()
			return reply{}
		}),
		"mon set_new_tiebreaker": entry(rw, "name:str yes_i_really_mean_it:bool?", func(c *Cluster, a args) reply {
			if c.findMon(a.str("name")) == nil {
				return fail(syscall.ENOENT, "mon %s does not exist", a.str("name"))
			}
			if !c.mon.stretch {
				return fail(syscall.EINVAL, "Stretch mode is not enabled, so there is no tiebreaker")
			}
			c.mon.tiebreaker = a.str("name")
			c.newMonmap()
			return reply{}
		}),
	}
}

func (c *Cluster) quorumStatus(args) reply {
	q := c.quorum()
	return jsonReply(obj{"election_epoch": c.mon.electionEpoch, "quorum": q, "quorum_names": c.quorumNames(),
		"quorum_leader_name": c.leader(), "quorum_age": int(c.now.Sub(c.mon.lastElection).Seconds()),
		"features": obj{"quorum_con": "4541880224203014143", "quorum_mon": []string{}}, "monmap": c.monmap()})
}

func (c *Cluster) monDump(args) reply {
	m := c.monmap()
	m["quorum"] = c.quorum()
	r := jsonReply(m)
	r.status = fmt.Sprintf("dumped monmap epoch %d", c.mon.epoch)
	return r
}

func (c *Cluster) monMetadata(a args) reply {
	out := []obj{}
	for _, m := range c.mon.mons {
		d := obj{"name": m.name, "addrs": m.addrs.String(), "arch": "x86_64", "ceph_release": releaseName(m.version),
			"ceph_version": versionLine(m.version), "ceph_version_short": m.version, "hostname": m.host}
		if a.str("id") == m.name {
			return jsonReply(d)
		}
		out = append(out, d)
	}
	if a.has("id") {
		return fail(syscall.ENOENT, "mon.%s does not exist", a.str("id"))
	}
	return jsonReply(out)
}

func (c *Cluster) monOkToStop(a args) reply {
	stop := a.list("ids")
	var left []string
	for _, n := range c.quorumNames() {
		if !slices.Contains(stop, n) {
			left = append(left, n)
		}
	}
	which := strings.Join(stop, ",")
	if len(left) < len(c.mon.mons)/2+1 {
		return fail(syscall.EBUSY, "not enough monitors would be available (%s) after stopping mons [%s]",
			strings.Join(left, ","), which)
	}
	return done("quorum should be preserved (%s) after stopping [%s]", strings.Join(left, ","), which)
}

func (c *Cluster) monOkToRm(a args) reply {
	name := a.str("id")
	if c.findMon(name) == nil {
		return done("mon.%s does not exist", name)
	}
	left := len(c.quorum())
	if slices.Contains(c.quorumNames(), name) {
		left--
	}
	if left < (len(c.mon.mons)-1)/2+1 {
		return fail(syscall.EBUSY, "removing mon.%s would break quorum", name)
	}
	return done("safe to remove mon.%s", name)
}

func (c *Cluster) monRm(a args) reply {
	name := a.str("name")
	i := slices.IndexFunc(c.mon.mons, func(m *monDaemon) bool { return m.name == name })
	if i < 0 {
		return done("mon.%s does not exist or has already been removed", name)
	}
	if len(c.mon.mons) == 1 {
		return fail(syscall.EINVAL, "error: refusing removal of last monitor %s", name)
	}
	// A mon that finds itself removed ends.
	c.mon.mons = slices.Delete(c.mon.mons, i, i+1)
	c.newMonmap()
	return done("removing mon.%s, there will be %d monitors", name, len(c.mon.mons))
}

func (c *Cluster) monAdd(a args) reply {
	name, addr := a.str("name"), a.str("addr")
	if m := c.findMon(name); m != nil {
		if strings.Contains(m.addrs.String(), addr) {
			return done("mon.%s at %s already exists", name, addr)
		}
		return fail(syscall.EEXIST, "mon.%s already exists at address %s", name, m.addrs)
	}
	for _, m := range c.mon.mons {
		if strings.Contains(m.addrs.String(), addr) {
			return fail(syscall.EEXIST, "mon.%s already exists with address %s", m.name, addr)
		}
	}
	host, _, _ := strings.Cut(addr, ":")
	c.addMon(&monDaemon{name: name, addrs: MonAddrs(host, false), version: c.version, added: c.now})
	return done("adding mon.%s at %s", name, addr)
}

func (c *Cluster) monSetAddrs(a args) reply {
	m := c.findMon(a.str("name"))
	if m == nil {
		return fail(syscall.ENOENT, "mon.%s does not exist", a.str("name"))
	}
	var v ceph.Addrs
	for _, p := range strings.Split(strings.Trim(a.str("addrs"), "[]"), ",") {
		kind, addr, ok := strings.Cut(p, ":")
		if !ok || kind != "v1" && kind != "v2" {
			return fail(syscall.EINVAL, "failed to parse addrs '%s'", a.str("addrs"))
		}
		v.Vec = append(v.Vec, ceph.Addr{Type: kind, Addr: strings.TrimSuffix(addr, "/0")})
	}
	m.addrs = v
	c.newMonmap()
	return reply{}
}

func (c *Cluster) monSetRank(a args) reply {
	i := slices.IndexFunc(c.mon.mons, func(m *monDaemon) bool { return m.name == a.str("name") })
	r := a.num("rank")
	if i < 0 {
		return fail(syscall.ENOENT, "mon.%s does not exist", a.str("name"))
	}
	if r < 0 || r >= len(c.mon.mons) {
		return fail(syscall.EINVAL, "rank %d is invalid", r)
	}
	m := c.mon.mons[i]
	c.mon.mons = slices.Insert(slices.Delete(c.mon.mons, i, i+1), r, m)
	c.newMonmap()
	return reply{}
}

func (c *Cluster) monEnableMsgr2(args) reply {
	changed := false
	for _, m := range c.mon.mons {
		if m.addrs.Of("v2") == "" && strings.HasSuffix(m.addrs.Of("v1"), ":6789") {
			v2 := strings.TrimSuffix(m.addrs.Of("v1"), "6789") + "3300"
			m.addrs.Vec = slices.Insert(m.addrs.Vec, 0, ceph.Addr{Type: "v2", Addr: v2})
			changed = true
		}
	}
	if changed {
		c.newMonmap()
	}
	return reply{}
}
