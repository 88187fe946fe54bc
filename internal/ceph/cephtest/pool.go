package cephtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

type poolInfo struct {
	id, pgNum     int
	name          string
	size, minSize int
	erasure       bool
	k             int
	rule          string
	profile       string
	autoscale     string
	flags         map[string]bool
	options       map[string]any
	apps          map[string]map[string]string
	quotaBytes    int64
	quotaObjects  int64
	objects       int64
	bytes         int64
	fs            string
}

// bytesPerCopy is what one OSD of each PG stores of all the pool's data.
func (p *poolInfo) bytesPerCopy() int64 {
	if p.erasure && p.k > 0 {
		return p.bytes / int64(p.k)
	}
	return p.bytes
}

// PutData says how much is in a pool.
func (c *Cluster) PutData(pool string, objects, bytes int64) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.findPool(pool)
	if p == nil {
		c.t.Fatalf("cephtest: no pool %s", pool)
	}
	p.objects, p.bytes = objects, bytes
	c.syncPGs()
}

func (c *Cluster) findPool(name string) *poolInfo {
	for _, p := range c.pools {
		if p.name == name {
			return p
		}
	}
	return nil
}

func (c *Cluster) poolByID(id int) *poolInfo {
	for _, p := range c.pools {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (c *Cluster) newPool(name string, pgNum, size int, rule string) *poolInfo {
	c.poolMax++
	p := &poolInfo{id: c.poolMax, name: name, pgNum: pgNum, size: size, minSize: size - size/2, rule: rule,
		autoscale: "on", flags: map[string]bool{"hashpspool": true}, options: map[string]any{},
		apps: map[string]map[string]string{}}
	if m := c.optionFor("global", "osd_pool_default_pg_autoscale_mode"); m != "" {
		p.autoscale = m
	}
	c.pools = append(c.pools, p)
	c.osd.epoch++
	return p
}

func (c *Cluster) ruleID(name string) int {
	if r := c.findRule(name); r != nil {
		return r.id
	}
	return -1
}

// poolJSON is the pool as `osd pool ls detail` (key pool_id) and `osd dump` (key
// pool) show it.
func (c *Cluster) poolJSON(p *poolInfo, idKey string) obj {
	kind := 1
	if p.erasure {
		kind = 3
	}
	flags := slices.Sorted(maps.Keys(p.flags))
	flags = slices.DeleteFunc(flags, func(f string) bool { return !p.flags[f] })
	return obj{idKey: p.id, "pool_name": p.name, "type": kind, "size": p.size, "min_size": p.minSize,
		"crush_rule": c.ruleID(p.rule), "pg_num": p.pgNum, "pg_num_target": p.pgNum, "pg_placement_num": p.pgNum,
		"pg_placement_num_target": p.pgNum, "pg_autoscale_mode": p.autoscale, "flags_names": strings.Join(flags, ","),
		"quota_max_bytes": p.quotaBytes, "quota_max_objects": p.quotaObjects, "erasure_code_profile": p.profile,
		"options": p.options, "application_metadata": p.apps, "is_stretch_pool": false, "object_hash": 2,
		"create_time": stamp(c.now), "stripe_width": 0}
}

func poolCommands() map[string]*spec {
	return map[string]*spec{
		"osd pool ls": entry(0, "detail:str?", func(c *Cluster, a args) reply {
			names, detail := []string{}, []obj{}
			for _, p := range c.pools {
				names, detail = append(names, p.name), append(detail, c.poolJSON(p, "pool_id"))
			}
			if a.str("detail") == "detail" {
				return jsonReply(detail)
			}
			return jsonReply(names)
		}),
		"osd pool get": entry(0, "pool:str var:str", (*Cluster).poolGet),
		"osd pool create": entry(rw, "pool:str pg_num:int? pgp_num:int? pool_type:str? erasure_code_profile:str? rule:str? "+
			"expected_num_objects:int? size:int? pg_num_min:int? pg_num_max:int? autoscale_mode:str? bulk:bool? "+
			"target_size_bytes:int? target_size_ratio:float? yes_i_really_mean_it:bool?", (*Cluster).poolCreate),
		"osd pool set": entry(rw, "pool:str var:str val:str yes_i_really_mean_it:bool?", (*Cluster).poolSet),
		"osd pool rm":  entry(rw, "pool:str pool2:str? yes_i_really_really_mean_it:bool? yes_i_really_really_mean_it_not_faking:bool?", (*Cluster).poolRm),
		"osd pool set-quota": entry(rw, "pool:str field:str val:str", func(c *Cluster, a args) reply {
			p := c.findPool(a.str("pool"))
			if p == nil {
				return fail(syscall.ENOENT, "unrecognized pool '%s'", a.str("pool"))
			}
			n, err := strconv.ParseInt(a.str("val"), 10, 64)
			if err != nil {
				return fail(syscall.EINVAL, "error parsing value '%s'", a.str("val"))
			}
			switch a.str("field") {
			case "max_bytes":
				p.quotaBytes = n
			case "max_objects":
				p.quotaObjects = n
			default:
				return fail(syscall.EINVAL, "unrecognized option '%s'", a.str("field"))
			}
			c.osd.epoch++
			return done("set-quota %s = %d for pool %s", a.str("field"), n, p.name)
		}),
		"osd pool application enable":  entry(rw, "pool:str app:str yes_i_really_mean_it:bool?", (*Cluster).appEnable),
		"osd pool application disable": entry(rw, "pool:str app:str yes_i_really_mean_it:bool?", (*Cluster).appDisable),
		"osd erasure-code-profile ls": entry(0, "", func(c *Cluster, _ args) reply {
			return jsonReply(slices.Sorted(maps.Keys(c.profiles)))
		}),
		"osd erasure-code-profile get": entry(0, "name:str", func(c *Cluster, a args) reply {
			p, ok := c.profiles[a.str("name")]
			if !ok {
				return fail(syscall.ENOENT, "unknown erasure code profile '%s'", a.str("name"))
			}
			return jsonReply(p)
		}),
		"osd erasure-code-profile set": entry(rw, "name:str profile:strs? force:bool? yes_i_really_mean_it:bool?", (*Cluster).profileSet),
		"osd erasure-code-profile rm": entry(rw, "name:str", func(c *Cluster, a args) reply {
			if c.profiles[a.str("name")] == nil {
				return done("erasure-code-profile %s does not exist", a.str("name"))
			}
			for _, p := range c.pools {
				if p.profile == a.str("name") {
					return fail(syscall.EBUSY, "%s pool(s) are using the erasure code profile '%s'", p.name, a.str("name"))
				}
			}
			delete(c.profiles, a.str("name"))
			c.osd.epoch++
			return reply{}
		}),
	}
}

func (c *Cluster) poolGet(a args) reply {
	p := c.findPool(a.str("pool"))
	if p == nil {
		return fail(syscall.ENOENT, "unrecognized pool '%s'", a.str("pool"))
	}
	all := obj{"pool": p.name, "pool_id": p.id, "size": p.size, "min_size": p.minSize, "pg_num": p.pgNum, "pgp_num": p.pgNum,
		"crush_rule": p.rule, "hashpspool": true, "nodelete": p.flags["nodelete"], "nopgchange": p.flags["nopgchange"],
		"nosizechange": p.flags["nosizechange"], "write_fadvise_dontneed": false, "noscrub": p.flags["noscrub"],
		"nodeep-scrub": p.flags["nodeep-scrub"], "use_gmt_hitset": true, "fast_read": 0,
		"pg_autoscale_mode": p.autoscale, "eio": false, "bulk": p.flags["bulk"]}
	if p.erasure {
		all["erasure_code_profile"], all["allow_ec_overwrites"] = p.profile, p.flags["ec_overwrites"]
	}
	maps.Copy(all, p.options)
	if v := a.str("var"); v != "all" {
		x, ok := all[v]
		if !ok {
			return fail(syscall.ENOENT, "option '%s' is not set on pool '%s'", v, p.name)
		}
		return jsonReply(obj{"pool": p.name, "pool_id": p.id, v: x})
	}
	return jsonReply(all)
}

func (c *Cluster) poolCreate(a args) reply {
	name := a.str("pool")
	if c.findPool(name) != nil {
		return done("pool '%s' already exists", name)
	}
	erasure := a.str("pool_type") == "erasure"
	pgNum := a.num("pg_num")
	if pgNum == 0 {
		pgNum = c.optionInt("osd_pool_default_pg_num", 32)
	}
	size, rule, profile := c.optionInt("osd_pool_default_size", 3), a.str("rule"), ""
	k := 0
	if erasure {
		if profile = a.str("erasure_code_profile"); profile == "" {
			profile = "default"
		}
		ec := c.profiles[profile]
		if ec == nil {
			return fail(syscall.EINVAL, "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {}")
		}
		k, _ = strconv.Atoi(ec["k"])
		m, _ := strconv.Atoi(ec["m"])
		size = k + m
		if rule == "" {
			rule = name
			if c.findRule(rule) == nil {
				c.addRule(erasureRule(rule, ec))
			}
		}
	} else if rule == "" {
		rule = "replicated_rule"
	}
	if c.findRule(rule) == nil {
		return fail(syscall.ENOENT, "specified rule %s doesn't exist", rule)
	}
	if n := a.num("size"); n > 0 && !erasure {
		if n == 1 && c.optionFor("mon", "mon_allow_pool_size_one") != "true" {
			return fail(syscall.EPERM, "configuring pool size as 1 is disabled by default.")
		}
		size = n
	}
	osds := max(len(c.osd.byID), 1)
	if limit := c.optionInt("mon_max_pg_per_osd", 500) * osds; c.pgTotal()+pgNum*size > limit {
		return fail(syscall.ERANGE, "pg_num %d size %d for this pool would result in %d cumulative PGs per OSD", pgNum, size, (c.pgTotal()+pgNum*size)/osds)
	}
	p := c.newPool(name, pgNum, size, rule)
	p.erasure, p.profile, p.k = erasure, profile, k
	if erasure {
		p.minSize = min(k+1, size)
	}
	if m := a.str("autoscale_mode"); m != "" {
		p.autoscale = m
	}
	if a.yes("bulk") {
		p.flags["bulk"] = true
	}
	c.syncPGs()
	return done("pool '%s' created", name)
}

func (c *Cluster) pgTotal() int {
	n := 0
	for _, p := range c.pools {
		n += p.pgNum * p.size
	}
	return n
}

func (c *Cluster) poolSet(a args) reply {
	p := c.findPool(a.str("pool"))
	if p == nil {
		return fail(syscall.ENOENT, "unrecognized pool '%s'", a.str("pool"))
	}
	v, val := a.str("var"), a.str("val")
	n, numErr := strconv.Atoi(val)
	needNumber := func() *reply {
		if numErr != nil {
			r := fail(syscall.EINVAL, "error parsing integer value '%s': strict_strtoll: expected integer, got: '%s'", val, val)
			return &r
		}
		return nil
	}
	truth := val == "true" || val == "1" || val == "yes"
	switch v {
	case "size":
		if r := needNumber(); r != nil {
			return *r
		}
		if p.erasure {
			return fail(syscall.EOPNOTSUPP, "can not change the size of an erasure-coded pool")
		}
		if p.flags["nosizechange"] {
			return fail(syscall.EPERM, "pool size change is disabled; you must unset nosizechange flag for the pool first")
		}
		if n < 1 || n > 10 {
			return fail(syscall.EINVAL, "pool size must be between 1 and 10")
		}
		if n == 1 {
			if c.optionFor("mon", "mon_allow_pool_size_one") != "true" {
				return fail(syscall.EPERM, "configuring pool size as 1 is disabled by default.")
			}
			if !a.yes("yes_i_really_mean_it") {
				return fail(syscall.EPERM, "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.")
			}
		}
		p.size, p.minSize = n, n-n/2
	case "min_size":
		if r := needNumber(); r != nil {
			return *r
		}
		if n < 1 || n > p.size || p.erasure && n < p.k {
			return fail(syscall.EINVAL, "pool min_size must be between 1 and size, which is set to %d", p.size)
		}
		p.minSize = n
	case "pg_num", "pg_num_actual":
		if r := needNumber(); r != nil {
			return *r
		}
		if n < 1 {
			return fail(syscall.EINVAL, "specified pg_num %d < 1", n)
		}
		p.pgNum = n
	case "pgp_num":
		if r := needNumber(); r != nil {
			return *r
		}
	case "crush_rule":
		if c.findRule(val) == nil {
			return fail(syscall.ENOENT, "crush rule %s does not exist", val)
		}
		p.rule = val
	case "pg_autoscale_mode":
		if !slices.Contains([]string{"on", "off", "warn"}, val) {
			return fail(syscall.EINVAL, "unrecognized autoscale mode '%s'", val)
		}
		p.autoscale = val
	case "allow_ec_overwrites":
		if !p.erasure {
			return fail(syscall.EINVAL, "ec overwrites can only be enabled for an erasure coded pool")
		}
		p.flags["ec_overwrites"] = truth
	case "nodelete", "nopgchange", "nosizechange", "noscrub", "nodeep-scrub", "bulk", "hashpspool", "write_fadvise_dontneed":
		p.flags[v] = truth
	case "fast_read":
		p.options[v] = bit(truth)
	case "compression_mode", "compression_algorithm", "csum_type":
		if val == "unset" {
			delete(p.options, v)
		} else {
			p.options[v] = val
		}
	case "target_size_ratio", "target_size_bytes", "pg_num_min", "pg_num_max", "compression_required_ratio", "pg_autoscale_bias",
		"compression_min_blob_size", "compression_max_blob_size", "deep_scrub_interval", "scrub_min_interval",
		"scrub_max_interval", "recovery_priority", "recovery_op_priority", "read_ratio":
		f, err := strconv.ParseFloat(val, 64)
		if err != nil {
			return fail(syscall.EINVAL, "error parsing value '%s'", val)
		}
		if f == 0 {
			delete(p.options, v)
		} else {
			p.options[v] = f
		}
	default:
		return fail(syscall.EINVAL, "invalid command: %s is not a pool option", v)
	}
	c.bumpOSD()
	return done("set pool %d %s to %s", p.id, v, val)
}

func (c *Cluster) poolRm(a args) reply {
	p := c.findPool(a.str("pool"))
	if p == nil {
		return done("pool '%s' does not exist", a.str("pool"))
	}
	if a.str("pool2") != p.name || !a.yes("yes_i_really_really_mean_it") {
		return fail(syscall.EPERM, "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool %s.", p.name)
	}
	if c.optionFor("mon", "mon_allow_pool_delete") != "true" {
		return fail(syscall.EPERM, "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool")
	}
	if p.flags["nodelete"] {
		return fail(syscall.EPERM, "pool deletion is disabled; you must unset nodelete flag for the pool first")
	}
	if p.fs != "" {
		return fail(syscall.EBUSY, "pool '%s' is in use by CephFS", p.name)
	}
	c.pools = slices.DeleteFunc(c.pools, func(x *poolInfo) bool { return x == p })
	for o := range c.objects {
		if o.Pool == p.name {
			delete(c.objects, o)
		}
	}
	c.bumpOSD()
	return done("pool '%s' removed", p.name)
}

func (c *Cluster) appEnable(a args) reply {
	p := c.findPool(a.str("pool"))
	if p == nil {
		return fail(syscall.ENOENT, "unrecognized pool '%s'", a.str("pool"))
	}
	app := a.str("app")
	if _, ok := p.apps[app]; ok {
		return done("application '%s' is already enabled on pool '%s'", app, p.name)
	}
	if len(p.apps) > 0 && !a.yes("yes_i_really_mean_it") {
		return fail(syscall.EPERM, "Are you SURE? Pool '%s' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway", p.name)
	}
	p.apps[app] = map[string]string{}
	c.osd.epoch++
	return done("enabled application '%s' on pool '%s'", app, p.name)
}

func (c *Cluster) appDisable(a args) reply {
	p := c.findPool(a.str("pool"))
	if p == nil {
		return fail(syscall.ENOENT, "unrecognized pool '%s'", a.str("pool"))
	}
	if _, ok := p.apps[a.str("app")]; !ok {
		return done("application '%s' is not enabled on pool '%s'", a.str("app"), p.name)
	}
	if !a.yes("yes_i_really_mean_it") {
		return fail(syscall.EPERM, "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway")
	}
	delete(p.apps, a.str("app"))
	c.osd.epoch++
	return done("disable application '%s' on pool '%s'", a.str("app"), p.name)
}

func (c *Cluster) profileSet(a args) reply {
	p := map[string]string{"plugin": "isa", "technique": "reed_sol_van", "k": "2", "m": "2",
		"crush-failure-domain": "host", "crush-root": "default", "crush-device-class": "",
		"crush-num-failure-domains": "0", "crush-osds-per-failure-domain": "0"}
	for _, kv := range a.list("profile") {
		k, v, _ := strings.Cut(kv, "=")
		p[k] = v
	}
	k, err1 := strconv.Atoi(p["k"])
	m, err2 := strconv.Atoi(p["m"])
	if err1 != nil || err2 != nil || k < 2 || m < 1 {
		return fail(syscall.EINVAL, "k=%s must be >= 2 and m=%s >= 1", p["k"], p["m"])
	}
	if !slices.Contains([]string{"isa", "jerasure", "lrc", "shec", "clay"}, p["plugin"]) {
		return fail(syscall.ENOENT, "load dlopen(%s): no such file", p["plugin"])
	}
	if old := c.profiles[a.str("name")]; old != nil {
		if maps.Equal(old, p) {
			return reply{}
		}
		if !a.yes("force") {
			return fail(syscall.EPERM, "will not override erasure code profile %s because the existing profile is different", a.str("name"))
		}
	}
	c.profiles[a.str("name")] = p
	c.osd.epoch++
	return reply{}
}

// Pools lists the pools, for assertions.
func (c *Cluster) Pools() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, p := range c.pools {
		out = append(out, p.name)
	}
	sort.Strings(out)
	return out
}

// String dumps the PG states, for test failures.
func (c *Cluster) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := json.Marshal(c.stateCounts())
	return fmt.Sprintf("cluster %s: pgs %s", c.fsid, b)
}
