package contract

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph"
)

func (s *suite) status(t *testing.T) {
	x := s.read(t, ceph.ToMon, ceph.Cmd("status"))
	x.has("fsid", "health.status", "health.checks", "health.mutes", "election_epoch", "quorum.0", "quorum_names.0", "quorum_age",
		"monmap.epoch", "monmap.min_mon_release_name", "monmap.num_mons", "osdmap.epoch", "osdmap.num_osds", "osdmap.num_up_osds",
		"osdmap.num_in_osds", "osdmap.num_remapped_pgs", "pgmap.pgs_by_state", "pgmap.num_pgs", "pgmap.num_pools",
		"pgmap.num_objects", "pgmap.data_bytes", "pgmap.bytes_used", "pgmap.bytes_avail", "pgmap.bytes_total", "fsmap.epoch",
		"fsmap.up:standby", "mgrmap.available", "mgrmap.num_standbys", "mgrmap.modules", "mgrmap.services", "servicemap.services",
		"progress_events")
	fsid := s.read(t, ceph.ToMon, ceph.Cmd("fsid"))
	fsid.is("fsid", x.at("fsid"))
	s.read(t, ceph.ToMon, ceph.Cmd("health", "detail", "detail")).has("status", "checks", "mutes")
	v := s.read(t, ceph.ToMon, ceph.Cmd("versions"))
	v.has("mon", "mgr", "osd", "overall")
	d := s.read(t, ceph.ToMon, ceph.Cmd("df", "detail", "detail"))
	d.has("stats.total_bytes", "stats.total_avail_bytes", "stats.total_used_bytes", "stats.total_used_raw_bytes",
		"stats.total_used_raw_ratio", "stats_by_class", "pools.0.name", "pools.0.id", "pools.0.stats.stored", "pools.0.stats.objects",
		"pools.0.stats.bytes_used", "pools.0.stats.percent_used", "pools.0.stats.max_avail")
	s.read(t, ceph.ToMon, ceph.Cmd("time-sync-status")).has("timechecks.round_status")

	s.monOK(t, ceph.Cmd("osd set", "key", "noscrub"))
	s.eventually(t, "OSDMAP_FLAGS is raised", func() bool {
		_, ok := lookup(s.read(t, ceph.ToMon, ceph.Cmd("health", "detail", "detail")).v, "checks.OSDMAP_FLAGS.detail")
		return ok
	})
	h := s.read(t, ceph.ToMon, ceph.Cmd("status"))
	h.is("health.checks.OSDMAP_FLAGS.severity", "HEALTH_WARN")
	h.is("health.checks.OSDMAP_FLAGS.muted", false)
	h.is("health.checks.OSDMAP_FLAGS.summary.message", "noscrub flag(s) set")
	s.monOK(t, ceph.Cmd("health mute", "code", "OSDMAP_FLAGS"))
	h = s.read(t, ceph.ToMon, ceph.Cmd("status"))
	h.is("health.checks.OSDMAP_FLAGS.muted", true)
	h.is("health.mutes.0.code", "OSDMAP_FLAGS")
	h.is("health.mutes.0.sticky", false)
	s.monOK(t, ceph.Cmd("health unmute", "code", "OSDMAP_FLAGS"))
	// A check that is not raised can be muted only for good.
	s.refused(t, syscall.ENOENT, ceph.Cmd("health mute", "code", "BLUEFS_SPILLOVER"))
	s.monOK(t, ceph.Cmd("health mute", "code", "BLUEFS_SPILLOVER", "sticky", true))
	h = s.read(t, ceph.ToMon, ceph.Cmd("health"))
	h.is("mutes.0.code", "BLUEFS_SPILLOVER")
	h.is("mutes.0.sticky", true)
	s.monOK(t, ceph.Cmd("health unmute", "code", "BLUEFS_SPILLOVER"))
	s.monOK(t, ceph.Cmd("health unmute", "code", "BLUEFS_SPILLOVER"))
	s.monOK(t, ceph.Cmd("osd unset", "key", "noscrub"))
	s.read(t, ceph.ToMgr, ceph.Cmd("crash ls-new"))
}

func (s *suite) mon(t *testing.T) {
	q := s.read(t, ceph.ToMon, ceph.Cmd("quorum_status"))
	q.has("election_epoch", "quorum.0", "quorum_names.0", "quorum_leader_name", "quorum_age", "monmap.epoch", "monmap.fsid",
		"monmap.min_mon_release", "monmap.min_mon_release_name", "monmap.election_strategy", "monmap.disallowed_leaders",
		"monmap.stretch_mode", "monmap.tiebreaker_mon", "monmap.removed_ranks", "monmap.mons.0.rank", "monmap.mons.0.name",
		"monmap.mons.0.public_addrs.addrvec.0.type", "monmap.mons.0.public_addrs.addrvec.0.addr",
		"monmap.mons.0.public_addrs.addrvec.0.nonce", "monmap.mons.0.priority", "monmap.mons.0.weight", "monmap.mons.0.crush_location")
	name := q.strings("quorum_names")[0]
	d := s.read(t, ceph.ToMon, ceph.Cmd("mon dump"))
	d.has("epoch", "fsid", "mons.0.name", "quorum.0")
	m := s.read(t, ceph.ToMon, ceph.Cmd("mon metadata"))
	m.has("0.name", "0.hostname", "0.ceph_version", "0.ceph_version_short", "0.addrs")
	all := q.strings("quorum_names")
	s.refused(t, syscall.EBUSY, ceph.Cmd("mon ok-to-stop", "ids", all))
	s.monOK(t, ceph.Cmd("mon ok-to-stop", "ids", []string{"contract-none"}))
	s.monOK(t, ceph.Cmd("mon ok-to-rm", "id", "contract-none"))
	if len(all) == 1 {
		s.refused(t, syscall.EBUSY, ceph.Cmd("mon ok-to-rm", "id", name))
		s.refused(t, syscall.EBUSY, ceph.Cmd("mon ok-to-add-offline"))
		s.refused(t, syscall.EINVAL, ceph.Cmd("mon rm", "name", name))
	}
	if n := len(all); n >= 3 {
		s.monOK(t, ceph.Cmd("mon ok-to-stop", "ids", all[:n-n/2-1]))
		s.refused(t, syscall.EBUSY, ceph.Cmd("mon ok-to-stop", "ids", all[:n-n/2]))
		s.monOK(t, ceph.Cmd("mon ok-to-rm", "id", name))
		s.monOK(t, ceph.Cmd("mon ok-to-add-offline"))
	}
	s.monOK(t, ceph.Cmd("mon rm", "name", "contract-none"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("mon set-rank", "name", "contract-none", "rank", 0))
	s.refused(t, syscall.ENOENT, ceph.Cmd("mon set-addrs", "name", "contract-none", "addrs", "[v2:127.0.0.9:3300/0]"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("mon set_location", "name", "contract-none", "args", []string{"datacenter=a"}))
	s.refused(t, syscall.EINVAL, ceph.Cmd("mon set election_strategy", "strategy", "contract-none"))
	s.monOK(t, ceph.Cmd("mon set election_strategy", "strategy", "connectivity"))
	s.read(t, ceph.ToMon, ceph.Cmd("mon dump")).is("election_strategy", 3)
	s.monOK(t, ceph.Cmd("mon set election_strategy", "strategy", "classic"))
	s.read(t, ceph.ToMon, ceph.Cmd("mon dump")).is("election_strategy", 1)
	s.monOK(t, ceph.Cmd("mon enable-msgr2"))
}

func (s *suite) mgr(t *testing.T) {
	st := s.read(t, ceph.ToMon, ceph.Cmd("mgr stat"))
	st.has("epoch", "num_standby")
	st.is("available", true)
	d := s.read(t, ceph.ToMon, ceph.Cmd("mgr dump"))
	d.is("active_name", st.at("active_name"))
	d.has("epoch", "active_gid", "active_addrs.addrvec.0.addr", "available", "standbys", "modules", "services", "always_on_modules")
	s.read(t, ceph.ToMon, ceph.Cmd("mgr services"))
	s.read(t, ceph.ToMon, ceph.Cmd("mgr metadata")).has("0.name", "0.hostname", "0.ceph_version", "0.ceph_version_short")
	l := s.read(t, ceph.ToMon, ceph.Cmd("mgr module ls"))
	l.has("always_on_modules.0", "enabled_modules", "disabled_modules.0.name", "disabled_modules.0.can_run", "disabled_modules.0.error_string")
	if !slices.Contains(l.strings("always_on_modules"), "balancer") {
		t.Error("the balancer is not always on")
	}
	s.refused(t, syscall.ENOENT, ceph.Cmd("mgr module enable", "module", "contract_none"))
	s.monOK(t, ceph.Cmd("mgr module enable", "module", "balancer"))
	s.refused(t, syscall.EPERM, ceph.Cmd("mgr module disable", "module", "balancer"))
	s.monOK(t, ceph.Cmd("mgr module disable", "module", "contract_none"))
	s.monOK(t, ceph.Cmd("mgr fail", "who", "contract-none"))
	s.read(t, ceph.ToMgr, ceph.Cmd("osd pool autoscale-status"))
}

func (s *suite) config(t *testing.T) {
	set := func(who, name, value string) ceph.Command {
		return ceph.Cmd("config set", "who", who, "name", name, "value", value)
	}
	s.refused(t, syscall.EINVAL, set("global", "contract_no_such_option", "1"))
	s.refused(t, syscall.EINVAL, set("global", "fsid", "1"))
	s.refused(t, syscall.EINVAL, set("contract", "debug_osd", "1"))
	s.refused(t, syscall.EINVAL, set("osd", "osd_memory_target", "939524095"))
	s.monOK(t, set("osd", "osd_memory_target", "939524096"))
	s.monOK(t, set("osd/class:hdd", "osd max backfills", "2"))
	d := s.read(t, ceph.ToMon, ceph.Cmd("config dump"))
	m := d.must("", "name", "osd_memory_target")
	m.is("section", "osd")
	m.is("value", "939524096")
	m.is("mask", "")
	m.has("level", "can_update_at_runtime")
	b := d.must("", "name", "osd_max_backfills")
	b.is("section", "osd")
	b.is("mask", "class:hdd")
	get := ceph.Cmd("config get", "who", "osd.0", "key", "osd_memory_target")
	get.Plain = true
	if got := strings.TrimSpace(string(s.monOK(t, get).Out)); got != "939524096" {
		t.Errorf("config get: %q", got)
	}
	s.monOK(t, ceph.Cmd("config rm", "who", "osd", "name", "osd_memory_target"))
	s.monOK(t, ceph.Cmd("config rm", "who", "osd", "name", "osd_memory_target"))
	s.monOK(t, ceph.Cmd("config rm", "who", "osd/class:hdd", "name", "osd_max_backfills"))
	d = s.read(t, ceph.ToMon, ceph.Cmd("config dump"))
	if _, ok := d.find("", "name", "osd_memory_target"); ok {
		t.Error("osd_memory_target is still set")
	}
	if _, ok := d.find("", "mask", "class:hdd"); ok {
		t.Error("osd_max_backfills is still set")
	}
	conf := ceph.Cmd("config assimilate-conf").WithIn([]byte("[global]\nosd_pool_default_flag_nodelete = false\nfsid = x\n[osd]\nosd_max_scrubs = 2\n"))
	conf.Plain = true
	rest := string(s.monOK(t, conf).Out)
	if !strings.Contains(rest, "fsid = x") || strings.Contains(rest, "osd_max_scrubs") {
		t.Errorf("assimilate-conf gave back %q", rest)
	}
	d = s.read(t, ceph.ToMon, ceph.Cmd("config dump"))
	d.must("", "name", "osd_max_scrubs").is("value", "2")
	s.monOK(t, ceph.Cmd("config rm", "who", "osd", "name", "osd_max_scrubs"))
	s.monOK(t, ceph.Cmd("config rm", "who", "global", "name", "osd_pool_default_flag_nodelete"))

	key := "contract/key"
	s.refused(t, syscall.ENOENT, ceph.Cmd("config-key exists", "key", key))
	s.refused(t, syscall.ENOENT, ceph.Cmd("config-key get", "key", key))
	s.monOK(t, ceph.Cmd("config-key set", "key", key).WithIn([]byte("value\nof two lines")))
	s.monOK(t, ceph.Cmd("config-key exists", "key", key))
	plain := ceph.Cmd("config-key get", "key", key)
	plain.Plain = true
	if got := string(s.monOK(t, plain).Out); got != "value\nof two lines" {
		t.Errorf("config-key get: %q", got)
	}
	if keys := s.read(t, ceph.ToMon, ceph.Cmd("config-key ls")).strings(""); !slices.Contains(keys, key) {
		t.Errorf("config-key ls does not list it: %v", keys)
	}
	s.refused(t, syscall.EFBIG, ceph.Cmd("config-key set", "key", key).WithIn([]byte(strings.Repeat("x", 65537))))
	s.monOK(t, ceph.Cmd("config-key rm", "key", key))
	s.monOK(t, ceph.Cmd("config-key rm", "key", key))
}

func (s *suite) auth(t *testing.T) {
	e := "client.contract"
	caps := []string{"mon", "allow r", "osd", "allow rw pool=x"}
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth get", "entity", e))
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth get-key", "entity", e))
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth caps", "entity", e, "caps", caps))
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth rotate", "entity", e))
	s.monOK(t, ceph.Cmd("auth rm", "entity", e))
	s.refused(t, syscall.EINVAL, ceph.Cmd("auth get-or-create", "entity", e, "caps", []string{"mon", "nonsense caps"}))
	s.refused(t, syscall.EINVAL, ceph.Cmd("auth get-or-create", "entity", e, "caps", []string{"mon"}))
	made := s.read(t, ceph.ToMon, ceph.Cmd("auth get-or-create", "entity", e, "caps", caps))
	made.is("0.entity", e)
	made.is("0.caps", map[string]string{"mon": "allow r", "osd": "allow rw pool=x"})
	key, _ := made.at("0.key").(string)
	if len(key) != 60 {
		t.Errorf("a new key has %d characters", len(key))
	}
	again := s.read(t, ceph.ToMon, ceph.Cmd("auth get-or-create", "entity", e, "caps", caps))
	again.is("0.key", key)
	s.refused(t, syscall.EINVAL, ceph.Cmd("auth get-or-create", "entity", e, "caps", []string{"mon", "allow rw"}))
	s.read(t, ceph.ToMon, ceph.Cmd("auth get-key", "entity", e)).is("key", key)
	s.monOK(t, ceph.Cmd("auth caps", "entity", e, "caps", []string{"mon", "allow rw"}))
	s.refused(t, syscall.EINVAL, ceph.Cmd("auth caps", "entity", e, "caps", []string{"mon", "nonsense caps"}))
	got := s.read(t, ceph.ToMon, ceph.Cmd("auth get", "entity", e))
	got.is("0.caps", map[string]string{"mon": "allow rw"})
	got.is("0.key", key)
	l := s.read(t, ceph.ToMon, ceph.Cmd("auth ls"))
	l.must("auth_dump", "entity", e).is("key", key)
	if _, ok := l.find("auth_dump", "entity", "client.bootstrap-osd"); !ok {
		t.Error("client.bootstrap-osd does not exist")
	}
	rotated := s.read(t, ceph.ToMon, ceph.Cmd("auth rotate", "entity", e))
	if rotated.at("0.key") == any(key) {
		t.Error("auth rotate kept the key")
	}
	s.monOK(t, ceph.Cmd("auth rm", "entity", e))

	ring := []byte("[" + e + "]\n\tkey = " + key + "\n")
	add := ceph.Cmd("auth add", "entity", e, "caps", caps)
	s.monOK(t, add.WithIn(ring))
	s.monOK(t, add.WithIn(ring))
	newKey, _ := rotated.at("0.key").(string)
	s.refused(t, syscall.EEXIST, add.WithIn([]byte("["+e+"]\n\tkey = "+newKey+"\n")))
	s.read(t, ceph.ToMon, ceph.Cmd("auth get", "entity", e)).is("0.key", key)
	s.monOK(t, ceph.Cmd("auth import").WithIn([]byte("["+e+"]\n\tkey = "+newKey+"\n\tcaps mon = \"allow r\"\n")))
	imported := s.read(t, ceph.ToMon, ceph.Cmd("auth get", "entity", e))
	imported.is("0.key", newKey)
	imported.is("0.caps", map[string]string{"mon": "allow r"})
	s.refused(t, syscall.EINVAL, ceph.Cmd("auth import"))
	s.monOK(t, ceph.Cmd("auth rm", "entity", e))
}

// monRemove takes the last of three mons out of the map; its daemon ends.
func (s *suite) monRemove(t *testing.T) {
	all := s.read(t, ceph.ToMon, ceph.Cmd("quorum_status")).strings("quorum_names")
	if len(all) < 3 {
		t.Skip("needs three mons")
	}
	last := all[len(all)-1]
	for range 2 {
		s.monOK(t, ceph.Cmd("mon rm", "name", last))
	}
	d := s.read(t, ceph.ToMon, ceph.Cmd("mon dump"))
	if _, ok := d.find("mons", "name", last); ok {
		t.Errorf("mon.%s is still in the map", last)
	}
	s.eventually(t, "the rest is in quorum", func() bool {
		return len(s.read(t, ceph.ToMon, ceph.Cmd("quorum_status")).strings("quorum_names")) == len(all)-1
	})
	s.refused(t, syscall.EBUSY, ceph.Cmd("mon ok-to-stop", "ids", all[:1]))
}
