package cephtest

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph/cephtest/pgmodel"
)

// syncPGs tells the PG model what the maps say now.
func (c *Cluster) syncPGs() {
	osds, on := map[int]pgmodel.OSD{}, c.stored()
	for id, o := range c.osd.byID {
		it := c.crush.items[id]
		if it == nil {
			it = &crushItem{}
		}
		osds[id] = pgmodel.OSD{
			UUID: o.uuid, Up: o.up, Reweight: o.weight, CrushWeight: float64(it.weight) / 65536,
			Class: it.class, Location: c.locationOf(id), BackfillFull: o.used(on[id]) > c.osd.backfillfull,
		}
	}
	var pools []pgmodel.Pool
	for _, p := range c.pools {
		r := c.findRule(p.rule)
		if r == nil {
			r = &rule{root: "default", domain: "host"}
		}
		pools = append(pools, pgmodel.Pool{ID: p.id, PGNum: p.pgNum, Size: p.size, MinSize: p.minSize,
			Root: r.root, Class: r.class, Domain: r.domain, Objects: p.objects, Bytes: p.bytes})
	}
	c.pg.Sync(osds, pools)
}

func (c *Cluster) stateCounts() map[string]int {
	n := map[string]int{}
	for _, p := range c.pg.PGs() {
		n[p.State]++
	}
	return n
}

func (c *Cluster) allClean() bool {
	for s := range c.stateCounts() {
		if !hasWord(s, "active") || !hasWord(s, "clean") || hasWord(s, "stale") {
			return false
		}
	}
	return true
}

func hasWord(state, w string) bool { return slices.Contains(strings.Split(state, "+"), w) }

// byOSD counts, for an OSD, PGs it serves or should serve, and PGs it stores.
func (c *Cluster) byOSD(id int) (mapped, stored int) {
	for _, p := range c.pg.PGs() {
		if slices.Contains(p.Acting, id) || slices.Contains(p.Up, id) {
			mapped++
		}
		if slices.Contains(p.Copies, id) {
			stored++
		}
	}
	return mapped, stored
}

// activeClean reports whether all PGs are, as the mgr counts it for destroy: a
// stale one that was clean counts.
func (c *Cluster) activeClean() bool {
	for s := range c.stateCounts() {
		if !hasWord(s, "active") || !hasWord(s, "clean") {
			return false
		}
	}
	return true
}

// unknownPGs is the answer to any question about safety while a PG has not been
// reported yet.
func (c *Cluster) unknownPGs() (reply, bool) {
	n := c.stateCounts()["unknown"]
	return fail(syscall.EAGAIN, "%d pgs have unknown state; cannot draw any conclusions", n), n > 0
}

type verdict int

const (
	safe verdict = iota
	active
	missingStats
	storedPGs
)

// destroyVerdict is the mgr's judgement of safe-to-destroy, destroy and purge.
func (c *Cluster) destroyVerdict(id int) verdict {
	o := c.osd.byID[id]
	if o == nil {
		return safe
	}
	mapped, stored := c.byOSD(id)
	switch {
	case mapped > 0:
		return active
	case c.activeClean():
		return safe
	case !o.up:
		return missingStats
	case stored > 0:
		return storedPGs
	}
	return safe
}

func pgCommands() map[string]*spec {
	return map[string]*spec{
		"pg stat": entry(onMgr|pgs, "", func(c *Cluster, _ args) reply {
			s := obj{"num_pg_by_state": c.countsJSON("name", "num"), "num_pgs": len(c.pg.PGs())}
			total, used, _ := c.capacity()
			var bytes int64
			for _, p := range c.pools {
				bytes += p.bytes
			}
			s["num_bytes"], s["total_bytes"], s["total_avail_bytes"] = bytes, total, total-used
			s["total_used_bytes"], s["total_used_raw_bytes"] = used, used
			c.addDegraded(s)
			return jsonReply(obj{"pg_ready": true, "pg_summary": s})
		}),
		"pg dump":        entry(onMgr|pgs, "dumpcontents:strs?", (*Cluster).pgDump),
		"pg dump_stuck":  entry(onMgr|pgs, "stuckops:strs? threshold:int?", (*Cluster).pgStuck),
		"pg ls-by-osd":   entry(onMgr|pgs, "osd:int pool:int? states:strs?", (*Cluster).pgLsByOSD),
		"osd ok-to-stop": entry(onMgr|pgs, "ids:strs max:int?", (*Cluster).okToStop),
		"osd safe-to-destroy": entry(onMgr|pgs, "ids:strs", func(c *Cluster, a args) reply {
			if r, unknown := c.unknownPGs(); unknown {
				return r
			}
			lists := map[verdict][]int{safe: {}, active: {}, missingStats: {}, storedPGs: {}}
			for _, s := range a.list("ids") {
				id, ok := parseOSD(s)
				if !ok {
					return fail(syscall.EINVAL, "unable to parse osd id or 'osd.%s'", s)
				}
				v := c.destroyVerdict(id)
				lists[v] = append(lists[v], id)
			}
			return jsonReply(obj{"safe_to_destroy": lists[safe], "active": lists[active],
				"missing_stats": lists[missingStats], "stored_pgs": lists[storedPGs]})
		}),
	}
}

// countsJSON lists PG states, most PGs first.
func (c *Cluster) countsJSON(name, num string) []obj {
	n := c.stateCounts()
	states := make([]string, 0, len(n))
	for s := range n {
		states = append(states, s)
	}
	sort.Slice(states, func(i, j int) bool {
		return n[states[i]] > n[states[j]] || n[states[i]] == n[states[j]] && states[i] < states[j]
	})
	out := []obj{}
	for _, s := range states {
		out = append(out, obj{name: s, num: n[s]})
	}
	return out
}

// addDegraded adds the fields that are only there when they are not zero.
func (c *Cluster) addDegraded(s obj) {
	var degraded, misplaced, total int64
	for _, p := range c.pg.PGs() {
		degraded += p.Degraded
		misplaced += p.Misplaced
		if pool := c.poolByID(p.Pool); pool != nil {
			total += p.Objects * int64(pool.size)
		}
	}
	if degraded > 0 {
		s["degraded_objects"], s["degraded_total"] = degraded, total
		s["degraded_ratio"] = float64(degraded) / float64(total)
	}
	if misplaced > 0 {
		s["misplaced_objects"], s["misplaced_total"] = misplaced, total
		s["misplaced_ratio"] = float64(misplaced) / float64(total)
	}
}

func pgJSON(p pgmodel.PG) obj {
	ints := func(l []int) []int {
		if l == nil {
			return []int{}
		}
		return l
	}
	first := func(l []int) int {
		if len(l) == 0 {
			return -1
		}
		return l[0]
	}
	return obj{"pgid": p.ID, "state": p.State, "up": ints(p.Up), "acting": ints(p.Acting),
		"up_primary": first(p.Up), "acting_primary": first(p.Acting)}
}

func (c *Cluster) pgDump(a args) reply {
	if !slices.Equal(a.list("dumpcontents"), []string{"pgs_brief"}) {
		c.t.Errorf("cephtest: pg dump knows only pgs_brief, not %v", a.list("dumpcontents"))
		return fail(syscall.EINVAL, "not known")
	}
	out := []obj{}
	for _, p := range c.pg.PGs() {
		out = append(out, pgJSON(p))
	}
	r := jsonReply(obj{"pg_ready": true, "pg_stats": out})
	r.status = "dumped pgs_brief"
	return r
}

func (c *Cluster) pgStuck(a args) reply {
	want := a.list("stuckops")
	if len(want) == 0 {
		want = []string{"unclean"}
	}
	out := []obj{}
	for _, p := range c.pg.PGs() {
		is := map[string]bool{
			"inactive": !hasWord(p.State, "active"), "unclean": !hasWord(p.State, "clean"),
			"stale": hasWord(p.State, "stale"), "undersized": hasWord(p.State, "undersized"),
			"degraded": hasWord(p.State, "degraded"),
		}
		for _, w := range want {
			if is[w] {
				out = append(out, pgJSON(p))
				break
			}
		}
	}
	return jsonReply(obj{"stuck_pg_stats": out})
}

func (c *Cluster) pgLsByOSD(a args) reply {
	if o := c.osd.byID[a.num("osd")]; o == nil || !o.up {
		return fail(syscall.EAGAIN, "osd %d is not up", a.num("osd"))
	}
	out := []obj{}
	for _, p := range c.pg.PGs() {
		if slices.Contains(p.Up, a.num("osd")) || slices.Contains(p.Acting, a.num("osd")) {
			out = append(out, pgJSON(p))
		}
	}
	return jsonReply(obj{"pg_ready": true, "pg_stats": out})
}

type stopReport struct {
	ok, notOK, unknown, inactive, become, degraded, more []string
}

// offline is the mgr's judgement of ok-to-stop for a set.
func (c *Cluster) offline(set []int) stopReport {
	var r stopReport
	for _, p := range c.pg.PGs() {
		if p.State == "unknown" {
			r.unknown = append(r.unknown, p.ID)
			continue
		}
		serving := p.Acting
		if hasWord(p.State, "degraded") {
			serving = nil
			for _, o := range p.Copies {
				if x := c.osd.byID[o]; x != nil && x.up {
					serving = append(serving, o)
				}
			}
		}
		left, found := 0, false
		for _, o := range serving {
			if slices.Contains(set, o) {
				found = true
			} else {
				left++
			}
		}
		if !found {
			continue
		}
		bad := false
		if !hasWord(p.State, "active") {
			r.inactive, bad = append(r.inactive, p.ID), true
		}
		if pool := c.poolByID(p.Pool); pool != nil && left < pool.minSize {
			r.become, bad = append(r.become, p.ID), true
		}
		switch {
		case bad:
			r.notOK = append(r.notOK, p.ID)
		case hasWord(p.State, "degraded"):
			r.ok, r.more = append(r.ok, p.ID), append(r.more, p.ID)
		default:
			r.ok, r.degraded = append(r.ok, p.ID), append(r.degraded, p.ID)
		}
	}
	return r
}

func (r stopReport) fine() bool { return len(r.notOK) == 0 && len(r.unknown) == 0 }

func (c *Cluster) okToStop(a args) reply {
	var set []int
	for _, s := range a.list("ids") {
		id, ok := parseOSD(s)
		if !ok {
			return fail(syscall.EINVAL, "unable to parse osd id or 'osd.%s'", s)
		}
		set = append(set, id)
	}
	rep := c.offline(set)
	if rep.fine() && a.num("max") > len(set) {
		set = c.grow(set, a.num("max"))
		rep = c.offline(set)
	}
	sort.Ints(set)
	out := obj{"ok_to_stop": rep.fine(), "osds": set, "num_ok_pgs": len(rep.ok), "num_not_ok_pgs": len(rep.notOK)}
	for k, l := range map[string][]string{"unknown_pgs": rep.unknown, "bad_already_inactive": rep.inactive,
		"bad_become_inactive": rep.become, "ok_become_degraded": rep.degraded, "ok_become_more_degraded": rep.more} {
		if len(l) > 0 {
			out[k] = l
		}
	}
	r := jsonReply(out)
	if !rep.fine() {
		r.errno = syscall.EBUSY
		r.status = fmt.Sprintf("unsafe to stop osd(s) at this time (%d PGs are or would become offline)", len(rep.notOK))
		if len(rep.unknown) > 0 {
			r.status = fmt.Sprintf("unsafe to stop osd(s) at this time (%d PGs are or would become offline, %d PGs have unknown state)", len(rep.notOK), len(rep.unknown))
		}
	}
	return r
}

// grow adds neighbours, nearest buckets first, as long as the answer stays yes.
func (c *Cluster) grow(set []int, most int) []int {
	it := c.crush.items[set[0]]
	if it == nil {
		return set
	}
	for b := it.parent; b != nil && len(set) < most; b = b.parent {
		near := c.below(b)
		sort.Ints(near)
		for _, o := range near {
			if len(set) >= most || slices.Contains(set, o) {
				continue
			}
			if more := append(slices.Clone(set), o); c.offline(more).fine() {
				set = more
			}
		}
	}
	return set
}
