package ceph_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph/crush"
	"github.com/castellan-storage/castellan/internal/ceph/fs"
	"github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/ceph/pool"
	"github.com/castellan-storage/castellan/internal/ceph/replay"
	"github.com/castellan-storage/castellan/internal/ceph/status"
)

func from(t *testing.T, prefix, folder, file string) *replay.Commander {
	t.Helper()
	return replay.New(t, map[string]string{prefix: filepath.Join(folder, "testdata", file)})
}

func TestCrushReplies(t *testing.T) {
	m, err := crush.New(from(t, "osd crush dump", "crush", "osd-crush-dump.json")).Dump(t.Context())
	if err != nil || len(m.Devices) != 3 || m.Devices[0].Class != "ssd" || len(m.Types) != 12 || len(m.Buckets) != 8 || m.Buckets[0].Weight != 1158 {
		t.Errorf("%+v %v", m, err)
	}
	r, err := crush.New(from(t, "osd crush rule dump", "crush", "osd-crush-rule-dump.json")).Rules(t.Context())
	want := []crush.Rule{{Name: "replicated_rule", Type: 1, Steps: []crush.Step{{Op: "take", Item: -1, ItemName: "default"}, {Op: "chooseleaf_firstn", Type: "host"}, {Op: "emit"}}}}
	if d := cmp.Diff(want, r); d != "" || err != nil {
		t.Error(err, d)
	}
	cl, err := crush.New(from(t, "osd crush class ls", "crush", "osd-crush-class-ls.json")).Classes(t.Context())
	if d := cmp.Diff([]string{"ssd"}, cl); d != "" || err != nil {
		t.Error(err, d)
	}
}

func TestPGReplies(t *testing.T) {
	s, err := pg.New(from(t, "pg stat", "pg", "pg-stat.json")).Stat(t.Context())
	if err != nil || s.NumPGs != 201 || !s.AllClean() {
		t.Errorf("%+v %v", s, err)
	}
	l, err := pg.New(from(t, "pg dump", "pg", "pg-dump-pgs_brief.json")).Dump(t.Context())
	if err != nil || len(l) != 201 || l[0].ID != "8.15" || !l[0].Has("clean") || l[0].Has("lean") || l[0].ActingPrimary != 2 {
		t.Errorf("%+v %v", l[:1], err)
	}
	for state, clean := range map[string]bool{
		"active+clean": true, "active+clean+remapped": true, "active+clean+scrubbing+deep": true, "stale+active+clean": false,
		"active+undersized+degraded": false, "unknown": false, "peering": false, "": false,
	} {
		if pg.Clean(state) != clean {
			t.Errorf("%s", state)
		}
	}
}

func TestPoolReplies(t *testing.T) {
	l, err := pool.New(from(t, "osd pool ls", "pool", "osd-pool-ls-detail.json")).List(t.Context())
	if err != nil || len(l) != 8 || l[1].Name != "rbdpool" || l[1].ID != 2 || l[1].Size != 3 || l[1].AutoscaleMode != "on" {
		t.Fatalf("%+v %v", l, err)
	}
	if d := cmp.Diff(map[string]map[string]string{"rbd": {}}, l[1].Applications); d != "" {
		t.Error(d)
	}
	p, err := pool.New(from(t, "osd pool get", "pool", "osd-pool-get-rbdpool-all.json")).Get(t.Context(), "rbdpool")
	if err != nil || p.String("size") != "3" || p.String("crush_rule") != "replicated_rule" || p.String("bulk") != "false" || p.String("none") != "" {
		t.Errorf("%+v %v", p, err)
	}
	a, err := pool.New(from(t, "osd pool autoscale-status", "pool", "osd-pool-autoscale-status.json")).AutoscaleStatus(t.Context())
	if err != nil || len(a) != 8 || a[0].Name != ".mgr" || a[0].PGNumFinal != 1 {
		t.Errorf("%+v %v", a, err)
	}
	e, err := pool.New(from(t, "osd erasure-code-profile get", "pool", "osd-erasure-code-profile-get-default.json")).Profile(t.Context(), "default")
	if d := cmp.Diff([]string{"k=2", "m=2", "plugin=isa", "technique=reed_sol_van"}, e.Args()); d != "" || err != nil {
		t.Error(err, d)
	}
}

func TestMgrReplies(t *testing.T) {
	s, err := mgr.New(from(t, "mgr stat", "mgr", "mgr-stat.json")).Stat(t.Context())
	if d := cmp.Diff(mgr.Stat{Epoch: 4, Available: true, Active: "x"}, s); d != "" || err != nil {
		t.Error(err, d)
	}
	m, err := mgr.New(from(t, "mgr dump", "mgr", "mgr-dump.json")).Dump(t.Context())
	if err != nil || m.Active != "x" || m.ActiveGID != 4102 || !m.Available || m.ActiveAddrs.Of("v2") != "127.0.0.1:6800" {
		t.Errorf("%+v %v", m, err)
	}
	l, err := mgr.New(from(t, "mgr module ls", "mgr", "mgr-module-ls.json")).Modules(t.Context())
	if err != nil || !l.On("balancer") || !l.On("nfs") || l.On("dashboard") || len(l.Disabled) != 16 {
		t.Errorf("%+v %v", l, err)
	}
	if sv, err := mgr.New(from(t, "mgr services", "mgr", "mgr-services.json")).Services(t.Context()); err != nil || len(sv) != 0 {
		t.Errorf("%v %v", sv, err)
	}
}

func TestStatusReplies(t *testing.T) {
	read := func(file string) status.Status {
		t.Helper()
		s, err := status.New(from(t, "status", "status", file)).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := read("status.json")
	if s.Health.Status != status.HealthOK || !s.PGMap.AllClean() || s.OSDMap.NumUp != 3 || s.Monmap.NumMons != 3 || s.FSMap.Standby != 1 {
		t.Errorf("%+v", s)
	}
	if s = read("repl-1-out-draining-status.json"); s.PGMap.AllClean() || s.PGMap.DegradedObjects != 330 || s.Health.Checks["PG_DEGRADED"].Summary.Count != 27 {
		t.Errorf("%+v", s)
	}
	if s = read("repl-3osd-status-after-out.json"); !s.PGMap.AllClean() || s.PGMap.MisplacedObjects != 1100 || s.OSDMap.NumRemapped != 201 {
		t.Errorf("%+v", s)
	}
	if s = read("fail-osd-down-status.json"); s.PGMap.AllClean() || s.OSDMap.NumUp != 3 || s.MgrMap.Services["prometheus"] == "" {
		t.Errorf("%+v", s)
	}
	h, err := status.New(from(t, "health", "status", "fail-osd-down-health-detail.json")).HealthDetail(t.Context())
	if err != nil || h.Checks["OSD_DOWN"].Detail[0].Message != "osd.3 (root=default,host=node4) is down" {
		t.Errorf("%+v %v", h, err)
	}
	v, err := status.New(from(t, "versions", "status", "versions.json")).Versions(t.Context())
	if err != nil || len(v["mon"]) != 1 {
		t.Errorf("%v %v", v, err)
	}
	for line, n := range v["overall"] {
		if status.Short(line) != "20.2.4" || n != 10 {
			t.Errorf("%s %d", line, n)
		}
	}
	d, err := status.New(from(t, "df", "status", "df-detail.json")).DF(t.Context())
	if err != nil || d.Stats.Total != 19327352832 || d.ByClass["ssd"].Total != d.Stats.Total || d.Pools[0].Name != ".mgr" || d.Pools[0].Stats.MaxAvail != 6072519168 {
		t.Errorf("%+v %v", d, err)
	}
	if c, err := status.New(from(t, "crash ls-new", "status", "crash-ls.json")).Crashes(t.Context()); err != nil || len(c) != 0 {
		t.Errorf("%v %v", c, err)
	}
}

func TestFSReplies(t *testing.T) {
	l, err := fs.New(from(t, "fs ls", "fs", "fs-ls.json")).List(t.Context())
	want := []fs.FS{{Name: "myfs", MetadataPool: "myfs-metadata", MetadataPoolID: 3, DataPools: []string{"myfs-data0"}, DataPoolIDs: []int{4}}}
	if d := cmp.Diff(want, l); d != "" || err != nil {
		t.Error(err, d)
	}
	g, err := fs.New(from(t, "fs get", "fs", "fs-get-myfs.json")).Get(t.Context(), "myfs")
	if m, ok := g.MDSMap.Rank(0); err != nil || !ok || m.Name != "fsa" || m.State != "up:active" || m.JoinFSCID != 1 || g.MDSMap.MaxMDS != 1 {
		t.Errorf("%+v %v", g, err)
	}
	if _, ok := g.MDSMap.Rank(1); ok {
		t.Error("rank 1 has a daemon")
	}
	m, err := fs.New(from(t, "fs dump", "fs", "fs-dump.json")).Dump(t.Context())
	if err != nil || len(m.Standbys) != 1 || m.Standbys[0].Name != "fsb" || m.Standbys[0].Rank != -1 || len(m.Filesystems) != 1 {
		t.Errorf("%+v %v", m, err)
	}
}
