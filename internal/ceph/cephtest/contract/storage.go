package contract

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/osd"
)

// osds gives the ids of the cluster's OSDs that are up.
func (s *suite) osds(t *testing.T) []int {
	t.Helper()
	x := s.read(t, ceph.ToMon, ceph.Cmd("osd dump"))
	var ids []int
	list, _ := x.at("osds").([]any)
	for _, o := range list {
		id, _ := lookup(o, "osd")
		if up, _ := lookup(o, "up"); up == any(1.0) {
			ids = append(ids, int(id.(float64)))
		}
	}
	if len(ids) < 4 {
		t.Fatalf("the contract needs four OSDs that are up, not %v", ids)
	}
	return ids
}

func (s *suite) osd(t *testing.T) {
	ids := s.osds(t)
	d := s.read(t, ceph.ToMon, ceph.Cmd("osd dump"))
	d.has("epoch", "fsid", "flags_set", "full_ratio", "backfillfull_ratio", "nearfull_ratio", "max_osd", "require_osd_release",
		"require_min_compat_client", "pools", "crush_node_flags", "device_class_flags", "blocklist", "erasure_code_profiles",
		"stretch_mode.stretch_mode_enabled", "osds.0.uuid", "osds.0.in", "osds.0.weight", "osds.0.primary_affinity",
		"osds.0.public_addrs.addrvec.0.addr", "osds.0.cluster_addrs", "osds.0.up_from", "osds.0.state")
	d.is("osds.0.state", []string{"exists", "up"})
	tr := s.read(t, ceph.ToMon, ceph.Cmd("osd tree"))
	tr.has("stray")
	n := tr.must("nodes", "id", ids[0])
	n.has("crush_weight", "device_class", "depth", "pool_weights", "exists", "reweight", "primary_affinity")
	n.is("status", "up")
	n.is("type", "osd")
	root := tr.must("nodes", "name", "default")
	root.is("type", "root")
	root.is("id", -1)
	root.has("children.0")
	none := s.read(t, ceph.ToMon, ceph.Cmd("osd tree", "states", []string{"destroyed"}))
	none.is("nodes", []string{})
	none.is("stray", []string{})
	s.read(t, ceph.ToMon, ceph.Cmd("osd metadata")).has("0.id", "0.hostname", "0.ceph_version", "0.ceph_version_short", "0.devices",
		"0.device_ids", "0.osd_objectstore", "0.rotational", "0.bluestore_bdev_size", "0.bluefs_dedicated_db")
	s.read(t, ceph.ToMon, ceph.Cmd("osd metadata", "id", ids[0])).is("id", ids[0])
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd metadata", "id", 77))
	f := s.read(t, ceph.ToMon, ceph.Cmd("osd find", "id", ids[0]))
	f.has("osd_fsid", "host", "crush_location.host", "crush_location.root", "addrs")
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd find", "id", 77))
	df := s.read(t, ceph.ToMgr, ceph.Cmd("osd df", "output_method", "plain"))
	df.has("nodes.0.id", "nodes.0.kb", "nodes.0.kb_used", "nodes.0.kb_used_data", "nodes.0.kb_avail", "nodes.0.utilization",
		"nodes.0.pgs", "nodes.0.crush_weight", "nodes.0.reweight", "nodes.0.device_class", "nodes.0.status", "summary.total_kb",
		"summary.total_kb_used", "summary.total_kb_avail", "summary.average_utilization", "stray")

	for _, verb := range []string{"osd out", "osd in", "osd down"} {
		s.monOK(t, ceph.Cmd(verb, "ids", []string{"77"}))
		s.refused(t, syscall.EINVAL, ceph.Cmd(verb, "ids", []string{"contract"}))
	}
	s.mgrOK(t, ceph.Cmd("osd destroy", "id", 77, "yes_i_really_mean_it", true))
	s.mgrOK(t, ceph.Cmd("osd destroy", "id", 77))
	s.mgrOK(t, ceph.Cmd("osd purge", "id", 77))
	s.mgrOK(t, ceph.Cmd("osd purge", "id", 77, "yes_i_really_mean_it", true))
	s.send(t, ceph.ToMgr, syscall.EBUSY, ceph.Cmd("osd destroy", "id", ids[0], "yes_i_really_mean_it", true))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd reweight", "id", 77, "weight", ceph.Float(1)))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd primary-affinity", "id", 77, "weight", ceph.Float(1)))
	s.refused(t, syscall.EBUSY, ceph.Cmd("osd lost", "id", ids[0], "yes_i_really_mean_it", true))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd lost", "id", 77, "yes_i_really_mean_it", true))
	s.refused(t, syscall.EBUSY, ceph.Cmd("osd purge-new", "id", ids[0], "yes_i_really_mean_it", true))
	s.monOK(t, ceph.Cmd("osd purge-new", "id", 77, "yes_i_really_mean_it", true))

	s.monOK(t, ceph.Cmd("osd primary-affinity", "id", ids[0], "weight", ceph.Float(0.5)))
	s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).must("osds", "osd", ids[0]).is("primary_affinity", 0.5)
	s.monOK(t, ceph.Cmd("osd primary-affinity", "id", ids[0], "weight", ceph.Float(1)))

	s.flags(t, ids)
	s.outAndIn(t, ids[0])
	s.ratios(t)
	s.blocklist(t)
}

func (s *suite) flags(t *testing.T, ids []int) {
	s.monOK(t, ceph.Cmd("osd set", "key", "noout"))
	s.monOK(t, ceph.Cmd("osd set", "key", "noout"))
	if got := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).strings("flags_set"); !slices.Contains(got, "noout") {
		t.Errorf("flags_set is %v", got)
	}
	s.monOK(t, ceph.Cmd("osd unset", "key", "noout"))
	s.monOK(t, ceph.Cmd("osd unset", "key", "noout"))
	s.monOK(t, ceph.Cmd("osd set", "key", "pause"))
	if got := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).strings("flags_set"); !slices.Contains(got, "pauserd") || !slices.Contains(got, "pausewr") {
		t.Errorf("flags_set after pause is %v", got)
	}
	s.monOK(t, ceph.Cmd("osd unset", "key", "pause"))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd set", "key", "contract"))

	host, _ := s.read(t, ceph.ToMon, ceph.Cmd("osd find", "id", ids[0])).at("crush_location.host").(string)
	who := []string{host, "osd.0"}
	s.monOK(t, ceph.Cmd("osd set-group", "flags", "noout", "who", who))
	s.monOK(t, ceph.Cmd("osd set-group", "flags", "noout", "who", who))
	d := s.read(t, ceph.ToMon, ceph.Cmd("osd dump"))
	d.is("crush_node_flags", map[string][]string{host: {"noout"}})
	d.is("osds.0.state", []string{"exists", "noout", "up"})
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd set-group", "flags", "contract", "who", who))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd set-group", "flags", "noout", "who", []string{"contract-none"}))
	s.monOK(t, ceph.Cmd("osd unset-group", "flags", "noout", "who", who))
	s.monOK(t, ceph.Cmd("osd unset-group", "flags", "noout", "who", who))
	s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).is("crush_node_flags", map[string][]string{})

	rel, _ := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).at("require_osd_release").(string)
	s.monOK(t, ceph.Cmd("osd require-osd-release", "release", rel))
	s.refused(t, syscall.EPERM, ceph.Cmd("osd require-osd-release", "release", "squid"))
}

func (s *suite) outAndIn(t *testing.T, id int) {
	one := ceph.IDStrings([]int{id})
	weight := func() any {
		return s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).must("osds", "osd", id).at("weight")
	}
	s.monOK(t, ceph.Cmd("osd reweight", "id", id, "weight", ceph.Float(0.5)))
	s.monOK(t, ceph.Cmd("osd out", "ids", one))
	s.monOK(t, ceph.Cmd("osd out", "ids", one))
	if w := weight(); w != any(0.0) {
		t.Errorf("the weight of an OSD that is out is %v", w)
	}
	s.monOK(t, ceph.Cmd("osd in", "ids", one))
	s.monOK(t, ceph.Cmd("osd in", "ids", one))
	if w := weight(); w != any(0.5) {
		t.Errorf("out and in again changed the reweight from 0.5 to %v", w)
	}
	s.monOK(t, ceph.Cmd("osd reweight", "id", id, "weight", ceph.Float(1)))
	s.eventually(t, "all PGs are clean", func() bool { return s.allClean(t) })
}

func (s *suite) ratios(t *testing.T) {
	near := func(x any, want float64) bool {
		f, _ := x.(float64)
		return f > want-0.0001 && f < want+0.0001
	}
	s.monOK(t, ceph.Cmd("osd set-nearfull-ratio", "ratio", ceph.Float(0.8)))
	s.monOK(t, ceph.Cmd("osd set-backfillfull-ratio", "ratio", ceph.Float(0.91)))
	s.monOK(t, ceph.Cmd("osd set-full-ratio", "ratio", ceph.Float(0.96)))
	d := s.read(t, ceph.ToMon, ceph.Cmd("osd dump"))
	if !near(d.at("nearfull_ratio"), 0.8) || !near(d.at("backfillfull_ratio"), 0.91) || !near(d.at("full_ratio"), 0.96) {
		t.Errorf("ratios are %v %v %v", d.at("nearfull_ratio"), d.at("backfillfull_ratio"), d.at("full_ratio"))
	}
	s.monOK(t, ceph.Cmd("osd set-nearfull-ratio", "ratio", ceph.Float(0.85)))
	s.monOK(t, ceph.Cmd("osd set-backfillfull-ratio", "ratio", ceph.Float(0.9)))
	s.monOK(t, ceph.Cmd("osd set-full-ratio", "ratio", ceph.Float(0.95)))
}

func (s *suite) blocklist(t *testing.T) {
	addr := "192.0.2.1:0/1234"
	s.monOK(t, ceph.Cmd("osd blocklist", "blocklistop", "add", "addr", addr, "expire", ceph.Float(600)))
	s.monOK(t, ceph.Cmd("osd blocklist", "blocklistop", "add", "addr", "192.0.2.2"))
	s.monOK(t, ceph.Cmd("osd blocklist", "range", "range", "blocklistop", "add", "addr", "198.51.100.0/24"))
	l, err := osd.New(s.c).Blocklist(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i := range l {
		if l[i].Until == "" {
			t.Errorf("no end: %+v", l[i])
		}
		l[i].Until = ""
	}
	want := []osd.BlocklistEntry{{Range: "198.51.100.0:0/24"}, {Addr: addr}, {Addr: "192.0.2.2:0/0"}}
	if d := cmp.Diff(want, l); d != "" {
		t.Errorf("blocklist (-want +got):\n%s", d)
	}
	s.monOK(t, ceph.Cmd("osd blocklist", "blocklistop", "rm", "addr", addr))
	s.monOK(t, ceph.Cmd("osd blocklist", "blocklistop", "rm", "addr", addr))
	s.monOK(t, ceph.Cmd("osd blocklist", "blocklistop", "rm", "addr", "192.0.2.2"))
	s.monOK(t, ceph.Cmd("osd blocklist", "range", "range", "blocklistop", "rm", "addr", "198.51.100.0/24"))
	if l, err := osd.New(s.c).Blocklist(context.Background()); err != nil || len(l) > 0 {
		t.Errorf("the blocklist is %v, %v", l, err)
	}
}

func (s *suite) crush(t *testing.T) {
	ids := s.osds(t)
	d := s.read(t, ceph.ToMon, ceph.Cmd("osd crush dump"))
	d.has("devices.0.id", "devices.0.name", "devices.0.class", "types.0.type_id", "types.0.name", "buckets.0.id", "buckets.0.name",
		"buckets.0.type_name", "buckets.0.weight", "buckets.0.items.0.id", "buckets.0.items.0.weight", "rules.0.rule_name", "tunables")
	create := func(name, root, domain string, more ...any) ceph.Command {
		return ceph.Cmd("osd crush rule create-replicated", append([]any{"name", name, "root", root, "type", domain}, more...)...)
	}
	s.monOK(t, create("contract", "default", "host"))
	s.monOK(t, create("contract", "default", "host"))
	s.monOK(t, create("contract", "default", "osd")) // Ceph looks at the name only
	r := s.read(t, ceph.ToMon, ceph.Cmd("osd crush rule dump", "name", "contract"))
	r.is("type", 1)
	r.is("steps.0.op", "take")
	r.is("steps.0.item_name", "default")
	r.is("steps.1.op", "chooseleaf_firstn")
	r.is("steps.1.type", "host")
	r.is("steps.2.op", "emit")
	s.refused(t, syscall.ENOENT, create("contract-2", "contract-none", "host"))
	s.refused(t, syscall.EINVAL, create("contract-2", "default", "contract-none"))
	s.refused(t, syscall.EINVAL, create("contract-2", "default", "host", "class", "contract-none"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd crush rule dump", "name", "contract-2"))
	class, _ := s.read(t, ceph.ToMon, ceph.Cmd("osd tree")).must("nodes", "id", ids[0]).at("device_class").(string)
	s.monOK(t, create("contract-class", "default", "osd", "class", class))
	c := s.read(t, ceph.ToMon, ceph.Cmd("osd crush rule dump", "name", "contract-class"))
	c.is("steps.0.item_name", "default~"+class)
	c.is("steps.1.op", "choose_firstn")
	if got := s.read(t, ceph.ToMon, ceph.Cmd("osd crush rule ls")).strings(""); !slices.Contains(got, "contract-class") {
		t.Errorf("rules are %v", got)
	}
	for range 2 {
		s.monOK(t, ceph.Cmd("osd crush rule rm", "name", "contract"))
	}
	s.monOK(t, ceph.Cmd("osd crush rule rm", "name", "contract-class"))
	s.refused(t, syscall.EBUSY, ceph.Cmd("osd crush rule rm", "name", "replicated_rule"))

	node := s.read(t, ceph.ToMon, ceph.Cmd("osd tree")).must("nodes", "id", ids[0])
	name := ceph.OSDName(ids[0])
	before := node.at("crush_weight").(float64)
	host, _ := s.read(t, ceph.ToMon, ceph.Cmd("osd find", "id", ids[0])).at("crush_location.host").(string)
	here := []string{"host=" + host, "root=default"}
	weight := func() any {
		return s.read(t, ceph.ToMon, ceph.Cmd("osd tree")).must("nodes", "id", ids[0]).at("crush_weight")
	}
	s.monOK(t, ceph.Cmd("osd crush create-or-move", "id", ids[0], "weight", ceph.Float(7), "args", here))
	if w := weight(); w != any(before) {
		t.Errorf("create-or-move changed the weight of an existing item from %v to %v", before, w)
	}
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd crush create-or-move", "id", 77, "weight", ceph.Float(1), "args", here))
	s.monOK(t, ceph.Cmd("osd crush reweight", "name", name, "weight", ceph.Float(0.5)))
	if w := weight(); w != any(0.5) {
		t.Errorf("the weight is %v after a reweight to 0.5", w)
	}
	s.monOK(t, ceph.Cmd("osd crush reweight", "name", name, "weight", ceph.Float(before)))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd crush reweight", "name", "osd.77", "weight", ceph.Float(1)))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd crush reweight", "name", host, "weight", ceph.Float(1)))

	for range 2 {
		s.monOK(t, ceph.Cmd("osd crush add-bucket", "name", "contract-rack", "type", "rack"))
	}
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd crush add-bucket", "name", "contract-x", "type", "contract-none"))
	s.monOK(t, ceph.Cmd("osd crush move", "name", "contract-rack", "args", []string{"root=default"}))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd crush move", "name", "contract-none", "args", []string{"root=default"}))
	s.monOK(t, ceph.Cmd("osd crush add-bucket", "name", "contract-host", "type", "host"))
	s.monOK(t, ceph.Cmd("osd crush move", "name", "contract-host", "args", []string{"rack=contract-rack"}))
	s.refused(t, syscall.ENOTEMPTY, ceph.Cmd("osd crush rm", "name", "contract-rack"))
	s.monOK(t, ceph.Cmd("osd crush rm", "name", "contract-host"))
	s.monOK(t, ceph.Cmd("osd crush rm", "name", "contract-rack"))
	s.monOK(t, ceph.Cmd("osd crush rm", "name", "contract-rack"))
	s.refused(t, syscall.ENOTEMPTY, ceph.Cmd("osd crush rm", "name", "default"))

	one := []string{name}
	s.monOK(t, ceph.Cmd("osd crush set-device-class", "class", class, "ids", one))
	s.refused(t, syscall.EBUSY, ceph.Cmd("osd crush set-device-class", "class", "contract", "ids", one))
	s.monOK(t, ceph.Cmd("osd crush set-device-class", "class", "contract", "ids", []string{"77"}))
	for range 2 {
		s.monOK(t, ceph.Cmd("osd crush rm-device-class", "ids", one))
	}
	s.monOK(t, ceph.Cmd("osd crush set-device-class", "class", "contract", "ids", one))
	if got := s.read(t, ceph.ToMon, ceph.Cmd("osd crush class ls")).strings(""); !slices.Contains(got, "contract") {
		t.Errorf("classes are %v", got)
	}
	s.monOK(t, ceph.Cmd("osd crush rm-device-class", "ids", one))
	s.monOK(t, ceph.Cmd("osd crush set-device-class", "class", class, "ids", one))
	s.eventually(t, "all PGs are clean", func() bool { return s.allClean(t) })
}

func (s *suite) pool(t *testing.T) {
	name := "contract"
	set := func(v, val string, more ...any) ceph.Command {
		return ceph.Cmd("osd pool set", append([]any{"pool", name, "var", v, "val", val}, more...)...)
	}
	rm := func(n string) ceph.Command {
		return ceph.Cmd("osd pool rm", "pool", n, "pool2", n, "yes_i_really_really_mean_it", true)
	}
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd pool get", "pool", name, "var", "all"))
	s.refused(t, syscall.ENOENT, set("size", "2"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd pool application enable", "pool", name, "app", "rbd"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd pool set-quota", "pool", name, "field", "max_bytes", "val", "1"))
	s.monOK(t, rm(name))
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd pool create", "pool", name, "pg_num", 8, "rule", "contract-none"))
	create := ceph.Cmd("osd pool create", "pool", name, "pg_num", 8, "pgp_num", 8, "pool_type", "replicated",
		"rule", "replicated_rule", "size", 3, "autoscale_mode", "off")
	s.monOK(t, create)
	s.monOK(t, create)
	p := s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", name)
	p.has("pool_id", "crush_rule", "pg_num_target", "pg_placement_num", "flags_names", "options", "application_metadata", "is_stretch_pool")
	p.is("type", 1)
	p.is("size", 3)
	p.is("min_size", 2)
	p.is("pg_num", 8)
	p.is("pg_autoscale_mode", "off")
	p.is("quota_max_bytes", 0)
	p.is("erasure_code_profile", "")
	if got := s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls")).strings(""); !slices.Contains(got, name) {
		t.Errorf("pools are %v", got)
	}
	g := s.read(t, ceph.ToMon, ceph.Cmd("osd pool get", "pool", name, "var", "all"))
	g.is("crush_rule", "replicated_rule")
	g.has("pool_id", "size", "min_size", "pg_num", "pgp_num", "nodelete", "fast_read", "bulk", "pg_autoscale_mode")
	s.read(t, ceph.ToMon, ceph.Cmd("osd pool get", "pool", name, "var", "size")).is("size", 3)
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd pool get", "pool", name, "var", "compression_mode"))

	s.refused(t, syscall.EINVAL, set("contract", "1"))
	s.refused(t, syscall.EINVAL, set("size", "x"))
	s.refused(t, syscall.EINVAL, set("size", "11"))
	s.refused(t, syscall.EPERM, set("size", "1"))
	s.refused(t, syscall.EINVAL, set("min_size", "4"))
	s.refused(t, syscall.ENOENT, set("crush_rule", "contract-none"))
	s.refused(t, syscall.EINVAL, set("allow_ec_overwrites", "true"))
	s.refused(t, syscall.EINVAL, set("pg_autoscale_mode", "contract"))
	s.monOK(t, set("size", "2"))
	p = s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", name)
	p.is("size", 2)
	p.is("min_size", 1)
	s.monOK(t, set("size", "3"))
	s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", name).is("min_size", 2)
	s.monOK(t, set("compression_mode", "aggressive"))
	s.monOK(t, set("target_size_ratio", "0.5"))
	s.monOK(t, set("bulk", "true"))
	p = s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", name)
	p.is("options.compression_mode", "aggressive")
	p.is("options.target_size_ratio", 0.5)
	if f, _ := p.at("flags_names").(string); !slices.Contains(strings.Split(f, ","), "bulk") {
		t.Errorf("flags_names is %q", f)
	}
	s.read(t, ceph.ToMon, ceph.Cmd("osd pool get", "pool", name, "var", "compression_mode")).is("compression_mode", "aggressive")
	s.monOK(t, set("target_size_ratio", "0"))
	s.monOK(t, set("bulk", "false"))

	app := func(verb, app string, more ...any) ceph.Command {
		return ceph.Cmd("osd pool application "+verb, append([]any{"pool", name, "app", app}, more...)...)
	}
	s.monOK(t, app("enable", "rbd"))
	s.monOK(t, app("enable", "rbd"))
	s.refused(t, syscall.EPERM, app("enable", "rgw"))
	s.monOK(t, app("enable", "rgw", "yes_i_really_mean_it", true))
	s.refused(t, syscall.EPERM, app("disable", "rgw"))
	s.monOK(t, app("disable", "rgw", "yes_i_really_mean_it", true))
	s.monOK(t, app("disable", "rgw", "yes_i_really_mean_it", true))
	s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", name).
		is("application_metadata", map[string]any{"rbd": map[string]any{}})

	s.monOK(t, ceph.Cmd("osd pool set-quota", "pool", name, "field", "max_bytes", "val", "1073741824"))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd pool set-quota", "pool", name, "field", "max_bytes", "val", "contract"))
	p = s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", name)
	p.is("quota_max_bytes", 1073741824)

	s.refused(t, syscall.EPERM, ceph.Cmd("osd pool rm", "pool", name))
	s.monOK(t, set("nodelete", "true"))
	s.refused(t, syscall.EPERM, rm(name))
	s.monOK(t, set("nodelete", "false"))
	s.erasure(t)
	s.eventually(t, "all PGs are clean", func() bool { return s.allClean(t) })
	s.monOK(t, rm(name))
}

func (s *suite) erasure(t *testing.T) {
	prof := func(kv ...string) ceph.Command {
		return ceph.Cmd("osd erasure-code-profile set", "name", "contract", "profile", kv)
	}
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd erasure-code-profile get", "name", "contract"))
	s.monOK(t, ceph.Cmd("osd erasure-code-profile rm", "name", "contract"))
	s.refused(t, syscall.EINVAL, prof("k=x", "m=1"))
	for range 2 {
		s.monOK(t, prof("k=2", "m=1", "crush-failure-domain=osd"))
	}
	s.refused(t, syscall.EPERM, prof("k=2", "m=2", "crush-failure-domain=osd"))
	g := s.read(t, ceph.ToMon, ceph.Cmd("osd erasure-code-profile get", "name", "contract"))
	g.is("k", "2")
	g.is("m", "1")
	g.is("crush-failure-domain", "osd")
	if got := s.read(t, ceph.ToMon, ceph.Cmd("osd erasure-code-profile ls")).strings(""); !slices.Contains(got, "contract") {
		t.Errorf("profiles are %v", got)
	}
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd pool create", "pool", "contract-ec", "pg_num", 4, "pool_type", "erasure",
		"erasure_code_profile", "contract-none"))
	s.monOK(t, ceph.Cmd("osd pool create", "pool", "contract-ec", "pg_num", 4, "pgp_num", 4, "pool_type", "erasure",
		"erasure_code_profile", "contract", "autoscale_mode", "off"))
	p := s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls", "detail", "detail")).must("", "pool_name", "contract-ec")
	p.is("type", 3)
	p.is("size", 3)
	p.is("erasure_code_profile", "contract")
	r := s.read(t, ceph.ToMon, ceph.Cmd("osd crush rule dump", "name", "contract-ec"))
	r.is("type", 3)
	s.refused(t, syscall.EOPNOTSUPP, ceph.Cmd("osd pool set", "pool", "contract-ec", "var", "size", "val", "4"))
	s.monOK(t, ceph.Cmd("osd pool set", "pool", "contract-ec", "var", "allow_ec_overwrites", "val", "true"))
	s.refused(t, syscall.EBUSY, ceph.Cmd("osd erasure-code-profile rm", "name", "contract"))
	s.monOK(t, ceph.Cmd("osd pool rm", "pool", "contract-ec", "pool2", "contract-ec", "yes_i_really_really_mean_it", true))
	s.monOK(t, ceph.Cmd("osd crush rule create-erasure", "name", "contract-ec", "profile", "contract"))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd crush rule create-erasure", "name", "contract-ec2", "profile", "contract-none"))
	s.monOK(t, ceph.Cmd("osd crush rule rm", "name", "contract-ec"))
	s.monOK(t, ceph.Cmd("osd erasure-code-profile rm", "name", "contract"))
}

func (s *suite) pg(t *testing.T) {
	ids := s.osds(t)
	s.eventually(t, "pg stat is ready", func() bool {
		return s.read(t, ceph.ToMgr, ceph.Cmd("pg stat")).at("pg_ready") == true
	})
	s.read(t, ceph.ToMgr, ceph.Cmd("pg stat")).has("pg_summary.num_pg_by_state.0.name", "pg_summary.num_pg_by_state.0.num",
		"pg_summary.num_pgs", "pg_summary.num_bytes", "pg_summary.total_bytes", "pg_summary.total_avail_bytes")
	s.read(t, ceph.ToMgr, ceph.Cmd("pg dump", "dumpcontents", []string{"pgs_brief"})).has("pg_ready", "pg_stats.0.pgid",
		"pg_stats.0.state", "pg_stats.0.up.0", "pg_stats.0.acting.0", "pg_stats.0.up_primary", "pg_stats.0.acting_primary")
	s.read(t, ceph.ToMgr, ceph.Cmd("pg dump_stuck")).is("stuck_pg_stats", []string{})
	primary := s.read(t, ceph.ToMgr, ceph.Cmd("pg dump", "dumpcontents", []string{"pgs_brief"})).at("pg_stats.0.acting_primary")
	s.read(t, ceph.ToMgr, ceph.Cmd("pg ls-by-osd", "osd", int(primary.(float64)))).has("pg_stats.0.pgid", "pg_stats.0.state")
	s.send(t, ceph.ToMgr, syscall.EAGAIN, ceph.Cmd("pg ls-by-osd", "osd", 77))

	ok := s.read(t, ceph.ToMgr, ceph.Cmd("osd ok-to-stop", "ids", []string{"77"}))
	ok.is("ok_to_stop", true)
	ok.is("osds", []int{77})
	ok.is("num_not_ok_pgs", 0)
	r := s.send(t, ceph.ToMgr, syscall.EBUSY, ceph.Cmd("osd ok-to-stop", "ids", ceph.IDStrings(ids)))
	bad := decode(t, "osd ok-to-stop", r)
	bad.is("ok_to_stop", false)
	bad.has("bad_become_inactive.0", "num_ok_pgs")
	s.send(t, ceph.ToMgr, syscall.EINVAL, ceph.Cmd("osd ok-to-stop", "ids", []string{"contract"}))

	safe := s.read(t, ceph.ToMgr, ceph.Cmd("osd safe-to-destroy", "ids", []string{"77"}))
	safe.is("safe_to_destroy", []int{77})
	safe.is("active", []int{})
	safe.is("missing_stats", []int{})
	safe.is("stored_pgs", []int{})
	s.send(t, ceph.ToMgr, syscall.EINVAL, ceph.Cmd("osd safe-to-destroy", "ids", []string{"contract"}))
}

func (s *suite) fs(t *testing.T) {
	pool := func(n string) {
		s.monOK(t, ceph.Cmd("osd pool create", "pool", n, "pg_num", 4, "pgp_num", 4, "pool_type", "replicated", "autoscale_mode", "off"))
	}
	newFS := func(name, meta, data string) ceph.Command {
		return ceph.Cmd("fs new", "fs_name", name, "metadata", meta, "data", data)
	}
	s.read(t, ceph.ToMon, ceph.Cmd("fs ls")).is("", []string{})
	s.refused(t, syscall.ENOENT, ceph.Cmd("fs get", "fs_name", "contract"))
	s.refused(t, syscall.ENOENT, newFS("contract", "contract-meta", "contract-data"))
	pool("contract-meta")
	pool("contract-data")
	pool("contract-data2")
	s.monOK(t, newFS("contract", "contract-meta", "contract-data"))
	s.monOK(t, newFS("contract", "contract-meta", "contract-data"))
	s.refused(t, syscall.EINVAL, newFS("contract", "contract-meta", "contract-data2"))
	s.refused(t, syscall.EINVAL, newFS("contract2", "contract-meta", "contract-data2"))
	l := s.read(t, ceph.ToMon, ceph.Cmd("fs ls")).must("", "name", "contract")
	l.is("metadata_pool", "contract-meta")
	l.is("data_pools", []string{"contract-data"})
	l.has("metadata_pool_id", "data_pool_ids")
	g := s.read(t, ceph.ToMon, ceph.Cmd("fs get", "fs_name", "contract"))
	g.has("id", "mdsmap.epoch", "mdsmap.enabled", "mdsmap.in", "mdsmap.up", "mdsmap.failed", "mdsmap.damaged", "mdsmap.stopped",
		"mdsmap.info", "mdsmap.data_pools", "mdsmap.metadata_pool", "mdsmap.standby_count_wanted", "mdsmap.flags_state.joinable")
	g.is("mdsmap.fs_name", "contract")
	g.is("mdsmap.max_mds", 1)
	s.read(t, ceph.ToMon, ceph.Cmd("fs dump")).has("epoch", "default_fscid", "standbys", "filesystems.0.id", "filesystems.0.mdsmap")
	set := func(v, val string) ceph.Command {
		return ceph.Cmd("fs set", "fs_name", "contract", "var", v, "val", val)
	}
	s.refused(t, syscall.EINVAL, set("max_mds", "0"))
	s.refused(t, syscall.EINVAL, set("contract", "0"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("fs set", "fs_name", "contract-none", "var", "max_mds", "val", "1"))
	s.monOK(t, set("max_mds", "2"))
	s.read(t, ceph.ToMon, ceph.Cmd("fs get", "fs_name", "contract")).is("mdsmap.max_mds", 2)
	add := func(p string) ceph.Command { return ceph.Cmd("fs add_data_pool", "fs_name", "contract", "pool", p) }
	s.refused(t, syscall.ENOENT, add("contract-none"))
	s.monOK(t, add("contract-data2"))
	s.refused(t, syscall.EINVAL, add("contract-data2"))
	s.read(t, ceph.ToMon, ceph.Cmd("fs ls")).must("", "name", "contract").is("data_pools", []string{"contract-data", "contract-data2"})
	s.monOK(t, ceph.Cmd("mds ok-to-stop", "ids", []string{"contract-none"}))
	s.monOK(t, ceph.Cmd("mds fail", "role_or_gid", "contract-none", "yes_i_really_mean_it", true))
	rm := func(n string) ceph.Command {
		return ceph.Cmd("osd pool rm", "pool", n, "pool2", n, "yes_i_really_really_mean_it", true)
	}
	s.refused(t, syscall.EBUSY, rm("contract-data"))
	s.monOK(t, ceph.Cmd("fs fail", "fs_name", "contract", "yes_i_really_mean_it", true))
	s.read(t, ceph.ToMon, ceph.Cmd("fs get", "fs_name", "contract")).is("mdsmap.flags_state.joinable", false)
	s.refused(t, syscall.EPERM, ceph.Cmd("fs rm", "fs_name", "contract"))
	for range 2 {
		s.monOK(t, ceph.Cmd("fs rm", "fs_name", "contract", "yes_i_really_mean_it", true))
	}
	for _, p := range []string{"contract-meta", "contract-data", "contract-data2"} {
		s.monOK(t, rm(p))
	}
}

// strict asks what cephtest reports as a mistake of the caller: real Ceph must
// refuse it too, or the strictness would be an invention.
func (s *suite) strict(t *testing.T) {
	if !s.o.Real {
		t.Skip("cephtest fails the test on these")
	}
	s.refused(t, syscall.EINVAL, ceph.Cmd("contract no such command"))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd metadata", "id", "0"))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd reweight", "id", 0, "weight", 1))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd out", "ids", []int{0}))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd set"))
}
