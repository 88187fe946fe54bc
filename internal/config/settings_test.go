package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephconfig "github.com/castellan-storage/castellan/internal/ceph/config"
)

// database is a mon's, with its habit of rewriting what it is given.
type database map[Option]string

func (d database) apply(c Change) (mutations int) {
	for _, s := range c.Set {
		v := s.Value.Text.Reveal()
		if v == "10G" {
			v = "10737418240"
		}
		d[s.Option] = v
		mutations++
	}
	for _, r := range c.Remove {
		delete(d, r.Option)
		mutations++
	}
	return mutations
}

func (d database) dump() []cephconfig.Option {
	var out []cephconfig.Option
	for o, v := range d {
		x := cephconfig.Option{Section: o.Who, Name: o.Name, Value: v}
		if s, mask, ok := strings.Cut(o.Who, "/"); ok {
			x.Section, x.Mask = s, mask
		}
		out = append(out, x)
	}
	return out
}

// settle passes until nothing changes, and fails if that takes more than three.
func settle(t *testing.T, d database, want map[Option]Value, rec Record) Record {
	t.Helper()
	for range 4 {
		c := Compare(want, d.dump(), rec)
		same := len(c.Record) == len(rec)
		for k, e := range c.Record {
			same = same && rec[k] == e
		}
		rec = c.Record
		changed := d.apply(c)
		if c.After != nil {
			rec = c.After
		}
		if changed == 0 && same {
			return rec
		}
	}
	t.Fatalf("does not settle: %v", d)
	return nil
}

func TestSettingsAreSetOnceAndRemovedAgain(t *testing.T) {
	d := database{{"osd", "users_own"}: "1"}
	want := map[Option]Value{
		{"global", "osd_pool_default_size"}:  plain("2"),
		{"osd/class:ssd", "bluestore_cache"}: plain("10G"),
		{"mgr", "mgr/balancer/mode"}:         plain("upmap"),
		{"global", "mon_cluster_log_file"}:   plain(""),
	}
	rec := settle(t, d, want, Record{})
	if got := d[Option{"osd/class:ssd", "bluestore_cache"}]; got != "10737418240" {
		t.Errorf("value %q", got)
	}
	if c := Compare(want, d.dump(), rec); len(c.Set)+len(c.Remove) != 0 {
		t.Errorf("a settled database is changed again: %+v", c)
	}
	// Somebody changes one: it is brought back.
	d[Option{"global", "osd_pool_default_size"}] = "3"
	rec = settle(t, d, want, rec)
	if d[Option{"global", "osd_pool_default_size"}] != "2" {
		t.Error("a changed value stays")
	}
	// The wishes are taken back: what was set goes, what was not ours stays.
	settle(t, d, map[Option]Value{}, rec)
	if diff := cmp.Diff(database{{"osd", "users_own"}: "1"}, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestACrashBetweenRecordAndSetLosesNothing(t *testing.T) {
	d := database{}
	want := map[Option]Value{{"global", "debug_ms"}: plain("1")}
	c := Compare(want, d.dump(), Record{})
	rec := c.Record // stored; the process dies before the option is set
	rec = settle(t, d, want, rec)
	if d[Option{"global", "debug_ms"}] != "1" {
		t.Error("the option was never set")
	}
	// And the other way: set, and dead before Ceph has shown it.
	d2 := database{{"global", "debug_ms"}: "1"}
	settle(t, d2, map[Option]Value{}, rec)
	if len(d2) != 0 {
		t.Errorf("left over: %v", d2)
	}
}

// A crash between the record and the option, where Ceph shows an older value, or shows
// nothing for an empty one.
func TestACrashBeforeTheOptionIsSet(t *testing.T) {
	for _, c := range []struct{ old, want string }{{"1", "2"}, {"10", "10Gi"}, {"x", ""}, {"", ""}} {
		o := Option{"global", "bluestore_cache"}
		d := database{}
		if c.old != "" {
			d[o] = c.old
		}
		want := map[Option]Value{o: plain(c.want)}
		rec := settle(t, d, want, Compare(want, d.dump(), Record{}).Record)
		if Compare(want, d.dump(), rec).Set != nil {
			t.Errorf("%q to %q: not steady", c.old, c.want)
		}
		if d[o] == c.old && c.old != "" || len(d) != 1 {
			t.Errorf("%q to %q: never set: %v", c.old, c.want, d)
		}
	}
}

func TestNoValueIsPrinted(t *testing.T) {
	s := Set{Option: Option{"global", "rgw_keystone_admin_password"}, Value: Value{Text: ceph.NewSecret("canary"), FromSecret: true}}
	if out := fmt.Sprintf("%v %+v %#v %s", s, s, s, s.String()); strings.Contains(out, "canary") {
		t.Error("a Set prints its value")
	}
	c := Compare(map[Option]Value{{"global", "x"}: {Text: ceph.NewSecret("canary"), FromSecret: true}}, nil, Record{})
	if strings.Contains(string(c.Record.Bytes()), "canary") {
		t.Error("the record holds a value")
	}
}

func TestRatiosNeverCross(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		want             cephv1.StorageScopeSpec
		full, back, near float64
	}{
		{cephv1.StorageScopeSpec{FullRatio: f(0.8), BackfillFullRatio: f(0.75), NearFullRatio: f(0.7)}, 0.95, 0.9, 0.85},
		{cephv1.StorageScopeSpec{}, 0.8, 0.75, 0.7},
		{cephv1.StorageScopeSpec{FullRatio: f(0.99), BackfillFullRatio: f(0.5), NearFullRatio: f(0.4)}, 0.95, 0.9, 0.85},
	} {
		now := map[string]float64{"full": c.full, "backfillfull": c.back, "nearfull": c.near}
		for _, r := range ratios(c.want, c.full, c.back, c.near) {
			now[r.Name] = r.Value
			if now["nearfull"] > now["backfillfull"] || now["backfillfull"] > now["full"] {
				t.Errorf("%s crosses: %v", r, now)
			}
		}
		if left := ratios(c.want, now["full"], now["backfillfull"], now["nearfull"]); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestBase(t *testing.T) {
	spec := cephv1.ClusterSpec{
		CephConfig: map[string]map[string]string{"global": {"mon allow pool delete": "false"}, "osd.3": {"debug-osd": "10"}},
		Network:    cephv1.NetworkSpec{Connections: &cephv1.ConnectionsSpec{Encryption: &cephv1.EncryptionSpec{Enabled: true}}},
	}
	got := wanted(&spec, nil)
	for o, v := range map[Option]string{
		{"global", "mon_allow_pool_delete"}: "false", {"osd.3", "debug_osd"}: "10", {"global", "ms_client_mode"}: "secure",
	} {
		if got[o].Text.Reveal() != v {
			t.Errorf("%s = %q, want %q", o, got[o].Text.Reveal(), v)
		}
	}
}

// The kernel speaks messenger v1 unless it is told, so the default, which has v2
// only, must tell it.
func TestKernelClientsSpeakWhatTheMonsSpeak(t *testing.T) {
	for name, c := range map[string]struct {
		k    *cephv1.ConnectionsSpec
		want string
	}{
		"by default":    {nil, "ms_mode=prefer-crc"},
		"required":      {&cephv1.ConnectionsSpec{RequireMsgr2: true}, "ms_mode=prefer-crc"},
		"both versions": {&cephv1.ConnectionsSpec{}, ""},
		"compressed":    {&cephv1.ConnectionsSpec{Compression: &cephv1.CompressionSpec{Enabled: true}}, "ms_mode=prefer-crc"},
		"encrypted":     {&cephv1.ConnectionsSpec{Encryption: &cephv1.EncryptionSpec{Enabled: true}}, "ms_mode=secure"},
	} {
		spec := cephv1.ClusterSpec{Network: cephv1.NetworkSpec{Connections: c.k}}
		v, set := base(&spec)[Option{"global", "rbd_default_map_options"}]
		if set != (c.want != "") || set && v.Text.Reveal() != c.want {
			t.Errorf("%s: rbd_default_map_options is %q", name, v.Text.Reveal())
		}
	}
}

// Address ranges are for daemons on the network of the nodes; a daemon on the pod network
// would not start for want of an address in them.
func TestAddressRangesCountOnTheHostNetwork(t *testing.T) {
	ranges := &cephv1.AddressRangesSpec{Public: cephv1.CIDRList{"192.0.2.0/24", "198.51.100.0/24"}, Cluster: cephv1.CIDRList{"203.0.113.0/24"}}
	for _, c := range []struct {
		net  cephv1.NetworkSpec
		want map[string]string
	}{
		{cephv1.NetworkSpec{AddressRanges: ranges}, map[string]string{}},
		{cephv1.NetworkSpec{Provider: "host"}, map[string]string{}},
		{cephv1.NetworkSpec{Provider: "host", AddressRanges: ranges}, map[string]string{"public_network": "192.0.2.0/24,198.51.100.0/24", "cluster_network": "203.0.113.0/24"}},
		{cephv1.NetworkSpec{HostNetwork: true, AddressRanges: &cephv1.AddressRangesSpec{Public: ranges.Public[:1]}}, map[string]string{"public_network": "192.0.2.0/24"}},
	} {
		got := map[string]string{}
		for o, v := range wanted(&cephv1.ClusterSpec{Network: c.net}, nil) {
			if strings.HasSuffix(o.Name, "_network") {
				got[o.Name] = v.Text.Reveal()
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v: %s", c.net, diff)
		}
	}
}
