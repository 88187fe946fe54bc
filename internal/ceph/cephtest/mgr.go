package cephtest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/crypto/bcrypt"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type mgrDaemon struct {
	name, version, host string
	gid                 int
	running             bool
}

type mgrState struct {
	epoch    int
	nextGID  int
	active   *mgrDaemon
	standbys []*mgrDaemon
	enabled  []string
	services map[string]string
}

// alwaysOn and optional are the modules of a Ceph 20.2.4 without its
// orchestrators.
var (
	alwaysOn = []string{"balancer", "crash", "devicehealth", "orchestrator", "pg_autoscaler",
		"progress", "rbd_support", "status", "telemetry", "volumes"}
	optionalModules = []string{"alerts", "dashboard", "influx", "insights", "iostat", "localpool", "mirroring", "nfs",
		"nvmeof", "osd_perf_query", "osd_support", "prometheus", "rook", "selftest", "smb", "snap_schedule", "stats",
		"telegraf", "test_orchestrator"}
)

func (c *Cluster) initMgr() {
	c.mgr = mgrState{epoch: 1, nextGID: 4100, enabled: []string{"iostat", "nfs", "nvmeof"}, services: map[string]string{}}
}

func (m *mgrState) serving() bool { return m.active != nil && m.active.running }

// BootMgr starts a mgr: it becomes active when there is none, and a standby
// otherwise.
func (c *Cluster) BootMgr(name string, opts ...DaemonOption) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.daemon(opts)
	c.dropMgr(name)
	c.mgr.nextGID += 6
	m := &mgrDaemon{name: name, version: d.version, host: d.host, gid: c.mgr.nextGID, running: true}
	if c.mgr.active == nil {
		c.mgr.active = m
	} else {
		c.mgr.standbys = append(c.mgr.standbys, m)
	}
	c.mgr.epoch++
	c.serveModules()
}

// StopMgr stops a mgr. The mons notice a dead active mgr, and let a standby take
// over, at the next Tick; until then mgr commands hang.
func (c *Cluster) StopMgr(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.mgr.active; a != nil && a.name == name {
		a.running = false
		return
	}
	c.dropMgr(name)
}

func (c *Cluster) dropMgr(name string) {
	c.mgr.standbys = slices.DeleteFunc(c.mgr.standbys, func(m *mgrDaemon) bool { return m.name == name })
	if a := c.mgr.active; a != nil && a.name == name {
		c.failActive()
	}
}

func (c *Cluster) failActive() {
	c.mgr.active = nil
	if len(c.mgr.standbys) > 0 {
		c.mgr.active, c.mgr.standbys = c.mgr.standbys[0], c.mgr.standbys[1:]
	}
	c.mgr.epoch++
	c.serveModules()
}

func (c *Cluster) serveModules() {
	c.mgr.services = map[string]string{}
	if c.mgr.active == nil {
		return
	}
	if slices.Contains(c.mgr.enabled, "dashboard") {
		scheme, port := "https", "8443"
		if c.optionFor("mgr", "mgr/dashboard/ssl") == "false" {
			scheme, port = "http", "8080"
			if p := c.optionFor("mgr", "mgr/dashboard/server_port"); p != "" {
				port = p
			}
		} else if p := c.optionFor("mgr", "mgr/dashboard/ssl_server_port"); p != "" {
			port = p
		}
		c.mgr.services["dashboard"] = fmt.Sprintf("%s://%s:%s/", scheme, c.mgr.active.name, port)
	}
	if slices.Contains(c.mgr.enabled, "prometheus") {
		c.mgr.services["prometheus"] = fmt.Sprintf("http://%s:9283/", c.mgr.active.name)
	}
}

func (c *Cluster) tickMgr() {
	if a := c.mgr.active; a != nil && !a.running {
		c.failActive()
	}
	if !c.mgr.serving() || c.findPool(".mgr") != nil {
		return
	}
	up := 0
	for _, o := range c.osd.byID {
		if o.up && o.weight > 0 {
			up++
		}
	}
	if want := c.optionInt("osd_pool_default_size", 3); up >= want {
		p := c.newPool(".mgr", 1, want, "replicated_rule")
		p.apps = map[string]map[string]string{"mgr": {}}
		p.objects, p.bytes = 2, 459280
		c.syncPGs()
	}
}

func mgrCommands() map[string]*spec {
	return map[string]*spec{
		"mgr stat": entry(0, "", func(c *Cluster, _ args) reply {
			name := ""
			if c.mgr.active != nil {
				name = c.mgr.active.name
			}
			return jsonReply(obj{"epoch": c.mgr.epoch, "available": c.mgr.active != nil, "active_name": name,
				"num_standby": len(c.mgr.standbys)})
		}),
		"mgr dump":     entry(0, "epoch:int?", (*Cluster).mgrDump),
		"mgr services": entry(0, "", func(c *Cluster, _ args) reply { return jsonReply(c.mgr.services) }),
		"mgr metadata": entry(0, "who:str?", func(c *Cluster, a args) reply {
			out := []obj{}
			for _, m := range c.mgrs() {
				d := obj{"name": m.name, "hostname": m.host, "ceph_release": releaseName(m.version),
					"ceph_version": versionLine(m.version), "ceph_version_short": m.version}
				if a.str("who") == m.name {
					return jsonReply(d)
				}
				out = append(out, d)
			}
			if a.has("who") {
				return fail(syscall.ENOENT, "mgr.%s does not exist", a.str("who"))
			}
			return jsonReply(out)
		}),
		"mgr module ls":      entry(0, "", (*Cluster).moduleLs),
		"mgr module enable":  entry(rw, "module:str force:bool?", (*Cluster).moduleEnable),
		"mgr module disable": entry(rw, "module:str", (*Cluster).moduleDisable),
		"mgr fail": entry(rw, "who:str?", func(c *Cluster, a args) reply {
			who := a.str("who")
			if act := c.mgr.active; act != nil && (who == "" || who == act.name || who == fmt.Sprint(act.gid)) {
				// A mgr that was failed comes back as a standby.
				c.failActive()
				if act.running {
					c.mgr.nextGID += 6
					act.gid = c.mgr.nextGID
					c.mgr.standbys = append(c.mgr.standbys, act)
					if c.mgr.active == nil {
						c.failActive()
					}
				}
				return reply{}
			}
			for _, m := range c.mgr.standbys {
				if m.name == who {
					return reply{}
				}
			}
			return done("Daemon not found '%s', already failed?", who)
		}),
		"crash ls":     entry(onMgr, "", func(c *Cluster, _ args) reply { return jsonReply(c.crashes) }),
		"crash ls-new": entry(onMgr, "", func(c *Cluster, _ args) reply { return jsonReply(c.crashes) }),
		"osd pool autoscale-status": entry(onMgr, "", func(c *Cluster, _ args) reply {
			out := []obj{}
			for _, p := range c.pools {
				out = append(out, obj{"pool_id": p.id, "pool_name": p.name, "pg_autoscale_mode": p.autoscale,
					"pg_num_target": p.pgNum, "pg_num_final": p.pgNum, "would_adjust": false, "target_ratio": 0.0,
					"bulk": p.flags["bulk"], "bias": 1.0, "target_bytes": 0, "crush_root_id": -1})
			}
			return jsonReply(out)
		}),
		"dashboard ac-user-create": entry(onMgr|rw,
			"username:str rolename:str? name:str? email:str? enabled:bool? force_password:bool? pwd_expiration_date:int? pwd_update_required:bool?",
			dashboardCmd(func(c *Cluster, a args) reply {
				if len(a.in) == 0 {
					return fail(syscall.EINVAL, "Please specify the file containing the password with \"-i\" option")
				}
				if _, ok := c.dashboard[a.str("username")]; ok {
					return fail(syscall.EEXIST, "User '%s' already exists", a.str("username"))
				}
				c.dashboard[a.str("username")] = string(a.in)
				return c.dashboardUser(a.str("username"))
			})),
		"dashboard ac-user-set-password": entry(onMgr|rw, "username:str force_password:bool?",
			dashboardCmd(func(c *Cluster, a args) reply {
				if len(a.in) == 0 {
					return fail(syscall.EINVAL, "Please specify the file containing the password with \"-i\" option")
				}
				if _, ok := c.dashboard[a.str("username")]; !ok {
					return fail(syscall.ENOENT, "User '%s' does not exist", a.str("username"))
				}
				c.dashboard[a.str("username")] = string(a.in)
				return c.dashboardUser(a.str("username"))
			})),
		"dashboard ac-user-show": entry(onMgr, "username:str?", dashboardCmd(func(c *Cluster, a args) reply {
			if _, ok := c.dashboard[a.str("username")]; !ok {
				return fail(syscall.ENOENT, "User '%s' does not exist", a.str("username"))
			}
			return c.dashboardUser(a.str("username"))
		})),
		"dashboard create-self-signed-cert": entry(onMgr|rw, "", dashboardCmd(func(c *Cluster, _ args) reply {
			c.keys["mgr/dashboard/crt"], c.keys["mgr/dashboard/key"] = "certificate", "key"
			return done("Self-signed certificate created")
		})),
	}
}

func dashboardCmd(f func(*Cluster, args) reply) func(*Cluster, args) reply {
	return func(c *Cluster, a args) reply {
		if !slices.Contains(c.mgr.enabled, "dashboard") {
			return fail(syscall.EOPNOTSUPP, "Module 'dashboard' is not enabled (required by this command): use `ceph mgr module enable dashboard` to enable it")
		}
		return f(c, a)
	}
}

func (c *Cluster) dashboardUser(name string) reply {
	hash, err := bcrypt.GenerateFromPassword([]byte(strings.TrimRight(c.dashboard[name], "\r\n")), bcrypt.MinCost)
	if err != nil {
		return fail(syscall.EINVAL, "%v", err)
	}
	return jsonReply(obj{"username": name, "password": string(hash), "roles": []string{"administrator"}, "enabled": true, "name": nil, "email": nil})
}

// DashboardPassword gives the password a dashboard user was given.
func (c *Cluster) DashboardPassword(user string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.dashboard[user]
	return p, ok
}

func (c *Cluster) mgrs() []*mgrDaemon {
	var out []*mgrDaemon
	if c.mgr.active != nil {
		out = append(out, c.mgr.active)
	}
	return append(out, c.mgr.standbys...)
}

func (c *Cluster) mgrDump(args) reply {
	standbys := []obj{}
	for _, m := range c.mgr.standbys {
		standbys = append(standbys, obj{"gid": m.gid, "name": m.name, "available_modules": []obj{}})
	}
	d := obj{"epoch": c.mgr.epoch, "active_gid": 0, "active_name": "", "available": c.mgr.active != nil,
		"active_addrs": ceph.Addrs{Vec: []ceph.Addr{}}, "active_addr": ":/0", "active_change": stamp(c.now),
		"standbys": standbys, "modules": c.mgr.enabled, "available_modules": []obj{}, "services": c.mgr.services,
		"always_on_modules": obj{releaseName(c.version): alwaysOn}, "force_disabled_modules": obj{},
		"last_failure_osd_epoch": 0, "active_clients": []obj{}}
	if a := c.mgr.active; a != nil {
		d["active_gid"], d["active_name"] = a.gid, a.name
		d["active_addrs"] = ceph.Addrs{Vec: []ceph.Addr{{Type: "v2", Addr: "10.0.0.9:6800", Nonce: uint32(a.gid)}}}
		d["active_addr"] = fmt.Sprintf("10.0.0.9:6800/%d", a.gid)
	}
	return jsonReply(d)
}

func (c *Cluster) moduleLs(args) reply {
	off := []obj{}
	for _, m := range optionalModules {
		if !slices.Contains(c.mgr.enabled, m) {
			off = append(off, obj{"name": m, "can_run": m != "influx", "error_string": "", "module_options": obj{}})
		}
	}
	return jsonReply(obj{"always_on_modules": alwaysOn, "force_disabled_modules": []string{},
		"enabled_modules": c.mgr.enabled, "disabled_modules": off})
}

func (c *Cluster) moduleEnable(a args) reply {
	m := a.str("module")
	switch {
	case slices.Contains(alwaysOn, m):
		return done("module '%s' is already enabled (always-on)", m)
	case slices.Contains(c.mgr.enabled, m):
		return done("module '%s' is already enabled", m)
	case !slices.Contains(optionalModules, m) && !a.yes("force"):
		return fail(syscall.ENOENT, "all mgr daemons do not support module '%s', pass --force to force enablement", m)
	case m == "influx" && !a.yes("force"):
		return fail(syscall.ENOENT, "module '%s' reports that it cannot run on the active manager daemon: influxdb python module not found (pass --force to force enablement)", m)
	}
	c.mgr.enabled = append(c.mgr.enabled, m)
	slices.Sort(c.mgr.enabled)
	c.mgr.epoch++
	c.serveModules()
	return reply{}
}

func (c *Cluster) moduleDisable(a args) reply {
	m := a.str("module")
	if slices.Contains(alwaysOn, m) {
		return fail(syscall.EPERM, "module '%s' cannot be disabled (always-on), use 'ceph mgr module force disable' command to disable an always-on module", m)
	}
	if !slices.Contains(c.mgr.enabled, m) {
		return done("module '%s' is already disabled", m)
	}
	c.mgr.enabled = slices.DeleteFunc(c.mgr.enabled, func(x string) bool { return x == m })
	c.mgr.epoch++
	c.serveModules()
	return reply{}
}

// AddCrash records a crash of a daemon, as ceph-crash posts it.
func (c *Cluster) AddCrash(id, entity string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.crashes = append(c.crashes, obj{"crash_id": id, "entity_name": entity,
		"timestamp": strings.Replace(stamp(c.now), "+0000", "Z", 1)})
}
