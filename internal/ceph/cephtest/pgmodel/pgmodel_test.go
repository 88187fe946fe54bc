package pgmodel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func hosts(n int) map[int]OSD {
	m := map[int]OSD{}
	for i := range n {
		m[i] = OSD{UUID: fmt.Sprintf("u%d", i), Up: true, Reweight: 1, CrushWeight: 1,
			Location: map[string]string{"root": "default", "host": fmt.Sprintf("n%d", i)}}
	}
	return m
}

func with(m map[int]OSD, id int, f func(*OSD)) map[int]OSD {
	out := map[int]OSD{}
	for k, v := range m {
		out[k] = v
	}
	o := out[id]
	f(&o)
	out[id] = o
	return out
}

var three = []Pool{{ID: 1, PGNum: 16, Size: 3, MinSize: 2, Root: "default", Domain: "host", Objects: 160}}

func settle(m *Model, n int) {
	for range n {
		m.Step(1000, true)
	}
}

func count(m *Model) map[string]int {
	out := map[string]int{}
	for _, p := range m.PGs() {
		out[p.State]++
	}
	return out
}

func TestCreateAndClean(t *testing.T) {
	m := New()
	m.Sync(hosts(3), three)
	if got := count(m); got["unknown"] != 16 {
		t.Fatalf("before the first step: %v", got)
	}
	m.Step(10, true)
	if got := count(m); got["active+clean"] != 16 {
		t.Fatalf("after the first step: %v", got)
	}
}

func TestOutWithTooFewHostsNeverEmpties(t *testing.T) {
	m := New()
	o := hosts(3)
	m.Sync(o, three)
	settle(m, 3)
	m.Sync(with(o, 1, func(x *OSD) { x.Reweight = 0 }), three)
	if got := count(m); got["peering"] != 16 {
		t.Fatalf("right after out: %v", got)
	}
	settle(m, 20)
	if got := count(m); got["active+clean+remapped"] != 16 {
		t.Fatalf("settled: %v", got)
	}
	for _, p := range m.PGs() {
		if !slices.Contains(p.Acting, 1) || p.Misplaced != p.Objects {
			t.Fatalf("%+v", p)
		}
	}
}

func TestDrainWithFourthHost(t *testing.T) {
	m := New()
	o := hosts(4)
	m.Sync(o, three)
	settle(m, 3)
	m.Sync(with(o, 1, func(x *OSD) { x.Reweight = 0 }), three)
	m.Step(2, true) // peering ends
	steps := 0
	for ; count(m)["active+clean"] != 16; steps++ {
		if steps > 50 {
			t.Fatalf("never drained: %v", count(m))
		}
		m.Step(2, true)
		for s := range count(m) {
			if !strings.HasPrefix(s, "active") {
				t.Fatalf("a drain made a PG %s", s)
			}
		}
	}
	if steps < 3 {
		t.Fatalf("a budget of 2 drained everything in %d steps", steps)
	}
	for _, p := range m.PGs() {
		if slices.Contains(p.Copies, 1) {
			t.Fatalf("osd.1 still holds %s", p.ID)
		}
	}
}

func TestDownDegradesAndRecovers(t *testing.T) {
	m := New()
	o := hosts(3)
	m.Sync(o, three)
	settle(m, 3)
	down := with(o, 2, func(x *OSD) { x.Up = false })
	m.Sync(down, three)
	settle(m, 2)
	if got := count(m); got["active+undersized+degraded"] != 16 {
		t.Fatalf("one down: %v", got)
	}
	m.Sync(o, three)
	settle(m, 3)
	if got := count(m); got["active+clean"] != 16 {
		t.Fatalf("back: %v", got)
	}
}

func TestBelowMinSizeIsInactive(t *testing.T) {
	m := New()
	o := hosts(3)
	m.Sync(o, three)
	settle(m, 3)
	o = with(o, 2, func(x *OSD) { x.Up = false })
	m.Sync(o, three)
	settle(m, 1)
	o = with(o, 1, func(x *OSD) { x.Up = false })
	m.Sync(o, three)
	settle(m, 1)
	if got := count(m); got["undersized+degraded+peered"] != 16 {
		t.Fatalf("two down: %v", got)
	}
	o = with(o, 0, func(x *OSD) { x.Up = false })
	m.Sync(o, three)
	if got := count(m); got["stale+undersized+degraded+peered"] != 16 {
		t.Fatalf("all down: %v", got)
	}
}

func TestDestroyingTheLastCopyIsLoss(t *testing.T) {
	one := []Pool{{ID: 1, PGNum: 4, Size: 1, MinSize: 1, Root: "default", Domain: "host", Objects: 4}}
	m := New()
	o := hosts(1)
	m.Sync(o, one)
	settle(m, 2)
	o = with(o, 0, func(x *OSD) { x.Up = false })
	m.Sync(o, one)
	if len(m.Lost()) != 0 {
		t.Fatalf("a down OSD is no loss: %v", m.Lost())
	}
	m.Sync(with(o, 0, func(x *OSD) { x.UUID = "" }), one)
	if len(m.Lost()) != 4 {
		t.Fatalf("lost %v", m.Lost())
	}
}

func TestPlacementSpreads(t *testing.T) {
	m := New()
	pool := []Pool{{ID: 7, PGNum: 512, Size: 3, MinSize: 2, Root: "default", Domain: "host"}}
	m.Sync(hosts(6), pool)
	m.Step(0, true)
	n := map[int]int{}
	for _, p := range m.PGs() {
		if len(p.Up) != 3 {
			t.Fatalf("%+v", p)
		}
		for _, o := range p.Up {
			n[o]++
		}
	}
	for o, c := range n {
		if c < 180 || c > 330 { // 256 each on average
			t.Errorf("osd.%d has %d of 512 PGs", o, c)
		}
	}
}

func TestClassAndDomainOSD(t *testing.T) {
	m := New()
	o := hosts(3)
	o = with(o, 0, func(x *OSD) { x.Class = "ssd" })
	o = with(o, 1, func(x *OSD) { x.Class = "ssd"; x.Location = o[0].Location })
	m.Sync(o, []Pool{{ID: 1, PGNum: 8, Size: 2, MinSize: 1, Root: "default", Class: "ssd", Domain: "osd"}})
	m.Step(0, true)
	for _, p := range m.PGs() {
		up := slices.Sorted(slices.Values(p.Up))
		if !slices.Equal(up, []int{0, 1}) {
			t.Fatalf("%s is on %v", p.ID, p.Up)
		}
	}
}

func TestBackfillFullStops(t *testing.T) {
	m := New()
	o := hosts(4)
	m.Sync(o, three)
	settle(m, 2)
	for i := range o {
		o = with(o, i, func(x *OSD) { x.BackfillFull = true })
	}
	m.Sync(with(o, 1, func(x *OSD) { x.Reweight = 0 }), three)
	settle(m, 10)
	if got := count(m); got["active+remapped+backfill_toofull"] == 0 {
		t.Fatalf("%v", got)
	}
}
