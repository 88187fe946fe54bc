package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/prepare"
)

func rec(id int, uuid, node string) Record {
	return Record{Result: prepare.Result{ID: id, UUID: uuid, Mode: "raw"}, Node: node, Host: node}
}

func TestDecide(t *testing.T) {
	up := map[int]Known{5: {UUID: "new", Up: true, In: true}}
	cases := []struct {
		name string
		s    State
		want What
		says string
	}{
		{"found, known to Ceph, no Deployment", State{Answered: true, Known: up, Records: []Record{rec(5, "new", "n1")}}, Create, ""},
		{"runs", State{Answered: true, Known: up, Records: []Record{rec(5, "new", "n1")}, Live: map[int]Live{5: {UUID: "new"}}}, Keep, ""},
		{"old disk still plugged in, nothing runs", State{Answered: true, Known: up, Records: []Record{rec(5, "old", "n1")}}, Ignore, "old disk"},
		{"old disk beside the new one", State{Answered: true, Known: up, Records: []Record{rec(5, "old", "n1"), rec(5, "new", "n1")}}, Create, ""},
		{"purged", State{Answered: true, Known: map[int]Known{}, Records: []Record{rec(5, "new", "n1")}}, Ignore, "no osd.5"},
		{"destroyed", State{Answered: true, Known: map[int]Known{5: {Destroyed: true}}, Records: []Record{rec(5, "old", "n1")}}, Ignore, "destroyed"},
		{"destroyed, Deployment still there", State{Answered: true, Known: map[int]Known{5: {Destroyed: true}}, Records: []Record{rec(5, "old", "n1")}, Live: map[int]Live{5: {UUID: "old"}}}, Keep, "destroyed"},
		{"new disk under the id", State{Answered: true, Known: up, Records: []Record{rec(5, "new", "n1")}, Live: map[int]Live{5: {UUID: "old"}}}, Rebuild, "instead of old"},
		{"one disk seen by two nodes", State{Answered: true, Known: up, Records: []Record{rec(5, "new", "n1"), rec(5, "new", "n2")}}, Ask, "n1 and n2"},
		{"fenced", State{Answered: true, Known: up, Records: []Record{rec(5, "new", "n1")}, Live: map[int]Live{5: {UUID: "old", Skipped: true}}}, Leave, "do-not-reconcile"},
		{"no record, runs", State{Answered: true, Known: up, Live: map[int]Live{5: {UUID: "new"}}}, Keep, ""},
		{"Ceph silent, runs", State{Records: []Record{rec(5, "other", "n1")}, Live: map[int]Live{5: {UUID: "new"}}}, Keep, "not answer"},
		{"Ceph silent, nothing runs", State{Records: []Record{rec(5, "new", "n1")}}, Ignore, "not answer"},
	}
	for _, c := range cases {
		got := Decide(c.s)
		if len(got) != 1 || got[0].What != c.want || !strings.Contains(got[0].Why, c.says) {
			t.Errorf("%s: %+v, want %s %q", c.name, got, c.want, c.says)
		}
	}
}

// Whatever the state, an OSD is only started or moved to a disk whose uuid Ceph
// knows for this very id, and never while Ceph is silent.
func TestNothingStartsFromAnUnprovenDisk(t *testing.T) {
	uuids := []string{"", "a", "b"}
	for _, answered := range []bool{true, false} {
		for _, known := range uuids {
			for _, destroyed := range []bool{true, false} {
				for _, r1 := range uuids {
					for _, r2 := range uuids {
						for _, live := range uuids {
							for _, skipped := range []bool{true, false} {
								s := State{Answered: answered, Known: map[int]Known{}, Live: map[int]Live{}}
								if known != "" {
									s.Known[1] = Known{UUID: known, Destroyed: destroyed}
								}
								for i, u := range []string{r1, r2} {
									if u != "" {
										s.Records = append(s.Records, rec(1, u, []string{"n1", "n2"}[i]))
									}
								}
								if live != "" {
									s.Live[1] = Live{UUID: live, Skipped: skipped, Record: rec(1, live, "n1")}
								}
								for _, d := range Decide(s) {
									if d.What != Create && d.What != Rebuild {
										continue
									}
									if !answered || destroyed || skipped && live != "" || d.Record.UUID != known || known == "" {
										t.Fatalf("%+v from %+v", d, s)
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestRoll(t *testing.T) {
	live := func(host string, change ...func(*Live)) Live {
		l := Live{Host: host, Ready: true, Settled: true}
		for _, c := range change {
			c(&l)
		}
		return l
	}
	s := State{Answered: true, Known: map[int]Known{}, Live: map[int]Live{}}
	for id, host := range []string{"n1", "n1", "n2", "n2"} {
		s.Known[id], s.Live[id] = Known{UUID: "u", Up: true}, live(host)
	}
	down, r := Roll(s, []int{0, 1, 2, 3}, 20, false)
	if diff := cmp.Diff(Rolling{Next: []int{0, 1}, Others: [][]int{{2, 3}}, Left: 4}, r); diff != "" || len(down) != 0 {
		t.Errorf("one host at a time: %s %v", diff, down)
	}
	if _, r = Roll(s, []int{0, 1, 2, 3}, 1, false); len(r.Next) != 1 {
		t.Errorf("the limit does not hold: %+v", r)
	}
	// osd.0 is updated and not back yet: nobody else goes.
	s.Live[0] = live("n1", func(l *Live) { l.Ready = false })
	if _, r = Roll(s, []int{1, 2, 3}, 20, false); len(r.Next) != 0 || len(r.Moving) != 1 {
		t.Errorf("the next set does not wait: %+v", r)
	}
	// osd.0 is outdated and down: it is repaired at once.
	s.Known[0] = Known{UUID: "u"}
	if down, _ = Roll(s, []int{0, 1, 2, 3}, 20, false); len(down) != 1 || down[0] != 0 {
		t.Errorf("an outdated OSD that is down: %v", down)
	}
	// It does not come back, since its disk is dead: the others are not held up.
	s.Live[0] = live("n1", func(l *Live) { l.Ready, l.WasDown = false, true })
	if _, r = Roll(s, []int{1, 2, 3}, 20, false); len(r.Moving) != 0 || len(r.Next) == 0 {
		t.Errorf("a dead OSD holds up the others: %+v", r)
	}
}

// Disks that were moved to another node start there, when their old node is gone or has
// looked again; until then the user is told how to make it look.
func TestMovedDisks(t *testing.T) {
	known := map[int]Known{5: {UUID: "u", In: true}}
	gone := rec(5, "u", "n1")
	gone.NodeGone = true
	for _, c := range []struct {
		name    string
		records []Record
		live    map[int]Live
		want    What
		says    string
	}{
		{"old node gone", []Record{gone, rec(5, "u", "n2")}, nil, Create, ""},
		{"old node gone, Deployment there", []Record{gone, rec(5, "u", "n2")}, map[int]Live{5: {UUID: "u", Host: "n1"}}, Keep, ""},
		{"both say so", []Record{rec(5, "u", "n1"), rec(5, "u", "n2")}, nil, Ask, RescanAnnotation},
		{"node gone with its disk", []Record{gone}, nil, Ignore, "n1, which does not exist"},
		{"node gone, Deployment there", []Record{gone}, map[int]Live{5: {UUID: "u", Host: "n1"}}, Keep, ""},
	} {
		got := Decide(State{Answered: true, Known: known, Records: c.records, Live: c.live})
		if len(got) != 1 || got[0].What != c.want || !strings.Contains(got[0].Why, c.says) {
			t.Errorf("%s: %+v", c.name, got)
		}
		if c.want == Create && got[0].Record.Node != "n2" {
			t.Errorf("%s: it starts on %s", c.name, got[0].Record.Node)
		}
	}
}

// An OSD that dies after its own update is not restarting for ever. The others wait
// for it, unless the user has switched the checks off.
func TestAnOSDThatDiesAfterItsUpdate(t *testing.T) {
	now := time.Unix(1790000000, 0)
	s := State{
		Now: now, Answered: true,
		Known: map[int]Known{0: {UUID: "a", In: true, Booted: true}, 1: {UUID: "b", Up: true, In: true, Booted: true}},
		Live:  map[int]Live{0: {Host: "n1", Settled: true, NotReadySince: now.Add(-time.Minute)}, 1: {Host: "n2", Settled: true, Ready: true}},
	}
	if _, r := Roll(s, []int{1}, 20, false); len(r.Moving) != 1 || len(r.Stuck) != 0 || len(r.Next) != 0 {
		t.Errorf("after a minute: %+v", r)
	}
	s.Now = now.Add(StuckAfter)
	if _, r := Roll(s, []int{1}, 20, false); len(r.Moving) != 0 || len(r.Stuck) != 1 || len(r.Next) != 0 {
		t.Errorf("after long: %+v", r)
	}
	if _, r := Roll(s, []int{1}, 20, true); len(r.Stuck) != 1 || len(r.Next) != 1 {
		t.Errorf("with the checks off: %+v", r)
	}
}
