package cephtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
)

type extraCheck struct {
	severity, message string
	details           []string
}

// SetHealth makes a health check fire that the model does not know of.
func (c *Cluster) SetHealth(code, severity, message string, details ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health[code] = extraCheck{severity, message, details}
}

// ClearHealth takes it away again.
func (c *Cluster) ClearHealth(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.health, code)
}

type checks map[string]extraCheck

func (k checks) add(code, severity, message string, details ...string) {
	k[code] = extraCheck{severity, message, details}
}

func (c *Cluster) healthChecks() checks {
	k := checks(maps.Clone(c.health))
	q := c.quorumNames()
	if out := len(c.mon.mons) - len(q); out > 0 {
		var d []string
		for rank, m := range c.mon.mons {
			if !m.running {
				d = append(d, fmt.Sprintf("mon.%s (rank %d) addr %s is down (out of quorum)", m.name, rank, m.addrs))
			}
		}
		k.add("MON_DOWN", "HEALTH_WARN", fmt.Sprintf("%d/%d mons down, quorum %s", out, len(c.mon.mons), strings.Join(q, ",")), d...)
	}
	if c.mgr.active == nil && len(c.osd.byID) > 0 {
		k.add("MGR_DOWN", "HEALTH_WARN", "no active mgr")
	}
	c.osdChecks(k)
	c.pgChecks(k)
	c.poolChecks(k)
	if len(c.crashes) > 0 {
		k.add("RECENT_CRASH", "HEALTH_WARN", fmt.Sprintf("%d daemons have recently crashed", len(c.crashes)))
	}
	return k
}

func (c *Cluster) osdChecks(k checks) {
	var down []string
	n, on := 0, c.stored()
	for _, id := range sortedIDs(c.osd.byID) {
		o := c.osd.byID[id]
		if o.destroyed {
			continue
		}
		n++
		if !o.up && o.weight > 0 && !o.isNew {
			loc := c.locationOf(id)
			down = append(down, fmt.Sprintf("osd.%d (root=%s,host=%s) is down", id, loc["root"], loc["host"]))
		}
		if u := o.used(on[id]); u >= c.osd.full {
			k.add("OSD_FULL", "HEALTH_ERR", "1 full osd(s)", fmt.Sprintf("osd.%d is full", id))
		} else if u >= c.osd.nearfull {
			k.add("OSD_NEARFULL", "HEALTH_WARN", "1 nearfull osd(s)", fmt.Sprintf("osd.%d is near full", id))
		}
	}
	if len(down) > 0 {
		k.add("OSD_DOWN", "HEALTH_WARN", fmt.Sprintf("%d osds down", len(down)), down...)
	}
	if want := c.optionInt("osd_pool_default_size", 3); n < want {
		k.add("TOO_FEW_OSDS", "HEALTH_WARN", fmt.Sprintf("OSD count %d < osd_pool_default_size %d", n, want))
	}
	if flags := slices.Sorted(maps.Keys(c.osd.flags)); len(flags) > 0 {
		k.add("OSDMAP_FLAGS", "HEALTH_WARN", strings.Join(flags, ",")+" flag(s) set")
	}
	if len(c.osd.nodeFlags)+len(c.osd.classFlags) > 0 {
		k.add("OSD_FLAGS", "HEALTH_WARN", "OSDs or CRUSH {nodes, device-classes} have {NOUP,NODOWN,NOIN,NOOUT} flags set")
	}
}

func (c *Cluster) pgChecks(k checks) {
	var inactive, degraded int
	var detail []string
	var objects, total int64
	for _, p := range c.pg.PGs() {
		if !hasWord(p.State, "active") && p.State != "unknown" && p.State != "peering" {
			inactive++
		}
		if pool := c.poolByID(p.Pool); pool != nil {
			total += p.Objects * int64(pool.size)
		}
		if hasWord(p.State, "undersized") || hasWord(p.State, "degraded") {
			degraded++
			objects += p.Degraded
			detail = append(detail, fmt.Sprintf("pg %s is %s, acting %v", p.ID, p.State, p.Acting))
		}
	}
	if inactive > 0 {
		k.add("PG_AVAILABILITY", "HEALTH_WARN", fmt.Sprintf("Reduced data availability: %d pgs inactive", inactive))
	}
	if degraded > 0 {
		ratio := 0.0
		if total > 0 {
			ratio = float64(objects) / float64(total) * 100
		}
		k.add("PG_DEGRADED", "HEALTH_WARN", fmt.Sprintf("Degraded data redundancy: %d/%d objects degraded (%.3f%%), %d pgs degraded",
			objects, total, ratio, degraded), detail...)
	}
	if lost := c.pg.Lost(); len(lost) > 0 {
		k.add("OBJECT_UNFOUND", "HEALTH_ERR", fmt.Sprintf("%d pgs have lost all copies", len(lost)))
	}
}

func (c *Cluster) poolChecks(k checks) {
	var noApp, single []string
	for _, p := range c.pools {
		if len(p.apps) == 0 && p.objects > 0 {
			noApp = append(noApp, fmt.Sprintf("application not enabled on pool '%s'", p.name))
		}
		if p.size == 1 && c.optionFor("mon", "mon_warn_on_pool_no_redundancy") != "false" {
			single = append(single, fmt.Sprintf("pool '%s' has no replicas configured", p.name))
		}
	}
	if len(noApp) > 0 {
		k.add("POOL_APP_NOT_ENABLED", "HEALTH_WARN", fmt.Sprintf("%d pool(s) do not have an application enabled", len(noApp)), noApp...)
	}
	if len(single) > 0 {
		k.add("POOL_NO_REDUNDANCY", "HEALTH_WARN", fmt.Sprintf("%d pool(s) have no replicas configured", len(single)), single...)
	}
}

func (c *Cluster) healthJSON(detail bool) obj {
	status := "HEALTH_OK"
	out := obj{}
	for code, k := range c.healthChecks() {
		_, muted := c.mutes[code]
		d := obj{"severity": k.severity, "muted": muted,
			"summary": obj{"message": k.message, "count": max(len(k.details), 1)}}
		if detail {
			list := []obj{}
			for _, m := range k.details {
				list = append(list, obj{"message": m})
			}
			d["detail"] = list
		}
		out[code] = d
		if muted {
			continue
		}
		if k.severity == "HEALTH_ERR" || status == "HEALTH_OK" {
			status = k.severity
		}
	}
	mutes := []obj{}
	for _, m := range slices.Sorted(maps.Keys(c.mutes)) {
		mutes = append(mutes, obj{"code": m, "sticky": c.mutes[m], "summary": "", "count": 0})
	}
	return obj{"status": status, "checks": out, "mutes": mutes}
}

func statusCommands() map[string]*spec {
	return map[string]*spec{
		"status": entry(pgs, "", func(c *Cluster, _ args) reply { return jsonReply(c.statusJSON()) }),
		"health": entry(pgs, "detail:str?", func(c *Cluster, a args) reply {
			return jsonReply(c.healthJSON(a.str("detail") == "detail"))
		}),
		"health mute": entry(rw, "code:str ttl:str? sticky:bool?", func(c *Cluster, a args) reply {
			code, sticky := a.str("code"), a.yes("sticky")
			if _, raised := c.healthChecks()[code]; !raised && !sticky {
				return fail(syscall.ENOENT, "health alert %s is not currently raised", code)
			}
			c.mutes[code] = sticky
			return reply{}
		}),
		"health unmute": entry(rw, "code:str?", func(c *Cluster, a args) reply {
			delete(c.mutes, a.str("code"))
			return reply{}
		}),
		"versions": entry(0, "", func(c *Cluster, _ args) reply { return jsonReply(c.versionsJSON()) }),
		"fsid":     entry(0, "", func(c *Cluster, _ args) reply { return jsonReply(obj{"fsid": c.fsid}) }),
		"df":       entry(pgs, "detail:str?", func(c *Cluster, _ args) reply { return jsonReply(c.dfJSON()) }),
		"time-sync-status": entry(0, "", func(c *Cluster, _ args) reply {
			skew := obj{}
			for _, n := range c.quorumNames() {
				skew[n] = obj{"skew": 0.0, "latency": 0.0, "health": "HEALTH_OK"}
			}
			return jsonReply(obj{"time_skew_status": skew, "timechecks": obj{"epoch": c.mon.electionEpoch, "round": 1, "round_status": "finished"}})
		}),
	}
}

func (c *Cluster) statusJSON() obj {
	up, in := 0, 0
	for _, o := range c.osd.byID {
		up += bit(o.up)
		in += bit(o.weight > 0)
	}
	remapped := 0
	for _, p := range c.pg.PGs() {
		remapped += bit(hasWord(p.State, "remapped"))
	}
	total, used, _ := c.capacity()
	var objects, bytes int64
	for _, p := range c.pools {
		objects, bytes = objects+p.objects, bytes+p.bytes
	}
	pgmap := obj{"pgs_by_state": c.countsJSON("state_name", "count"), "num_pgs": len(c.pg.PGs()), "num_pools": len(c.pools),
		"num_objects": objects, "data_bytes": bytes, "bytes_used": used, "bytes_avail": total - used, "bytes_total": total}
	c.addDegraded(pgmap)
	return obj{"fsid": c.fsid, "health": c.healthJSON(false), "election_epoch": c.mon.electionEpoch, "quorum": c.quorum(),
		"quorum_names": c.quorumNames(), "quorum_age": int(c.now.Sub(c.mon.lastElection).Seconds()),
		"monmap": obj{"epoch": c.mon.epoch, "min_mon_release_name": nameOfRelease(c.minMonRelease()), "num_mons": len(c.mon.mons)},
		"osdmap": obj{"epoch": c.osd.epoch, "num_osds": len(c.osd.byID), "num_up_osds": up, "osd_up_since": 0,
			"num_in_osds": in, "osd_in_since": 0, "num_remapped_pgs": remapped},
		"pgmap": pgmap, "fsmap": c.fsSummary(),
		"mgrmap":     obj{"available": c.mgr.active != nil, "num_standbys": len(c.mgr.standbys), "modules": c.mgr.enabled, "services": c.mgr.services},
		"servicemap": obj{"epoch": 1, "modified": stamp(c.now), "services": obj{}}, "progress_events": obj{}}
}

func (c *Cluster) versionsJSON() obj {
	kinds := map[string]map[string]int{"mon": {}, "mgr": {}, "osd": {}, "overall": {}}
	count := func(kind, version string) {
		if kinds[kind] == nil {
			kinds[kind] = map[string]int{}
		}
		kinds[kind][versionLine(version)]++
		kinds["overall"][versionLine(version)]++
	}
	for _, r := range c.quorum() {
		count("mon", c.mon.mons[r].version)
	}
	for _, m := range c.mgrs() {
		count("mgr", m.version)
	}
	for _, o := range c.osd.byID {
		if o.up {
			count("osd", o.version)
		}
	}
	for _, m := range c.fs.mds {
		count("mds", m.version)
	}
	out := obj{}
	for k, v := range kinds {
		out[k] = v
	}
	return out
}

func (c *Cluster) dfJSON() obj {
	total, used, n := c.capacity()
	ratio := 0.0
	if total > 0 {
		ratio = float64(used) / float64(total)
	}
	all := obj{"total_bytes": total, "total_avail_bytes": total - used, "total_used_bytes": used,
		"total_used_raw_bytes": used, "total_used_raw_ratio": ratio, "num_osds": n, "num_per_pool_osds": n, "num_per_pool_omap_osds": n}
	classes, on := map[string][2]int64{}, c.stored()
	for id, o := range c.osd.byID {
		if it := c.crush.items[id]; it != nil && o.booted && !o.destroyed && o.weight > 0 {
			x := classes[it.class]
			classes[it.class] = [2]int64{x[0] + o.spec.Bytes, x[1] + on[id] + baseUsed}
		}
	}
	byClass := obj{}
	for cl, x := range classes {
		byClass[cl] = obj{"total_bytes": x[0], "total_avail_bytes": x[0] - x[1], "total_used_bytes": x[1],
			"total_used_raw_bytes": x[1], "total_used_raw_ratio": float64(x[1]) / float64(max(x[0], 1))}
	}
	pools := []obj{}
	for _, p := range c.pools {
		raw := p.bytesPerCopy() * int64(p.size)
		avail := (total - used) / int64(max(p.size, 1))
		pools = append(pools, obj{"name": p.name, "id": p.id, "stats": obj{"stored": p.bytes, "objects": p.objects,
			"kb_used": raw / 1024, "bytes_used": raw, "max_avail": avail,
			"percent_used": float64(p.bytes) / float64(max(p.bytes+avail, 1))}})
	}
	return obj{"stats": all, "stats_by_class": byClass, "pools": pools}
}
