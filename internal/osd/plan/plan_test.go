package plan

import (
	"strings"
	"testing"

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
	down, r := Roll(s, []int{0, 1, 2, 3}, 20)
	if diff := cmp.Diff(Rolling{Next: []int{0, 1}, Left: 4}, r); diff != "" || len(down) != 0 {
		t.Errorf("one host at a time: %s %v", diff, down)
	}
	if _, r = Roll(s, []int{0, 1, 2, 3}, 1); len(r.Next) != 1 {
		t.Errorf("the limit does not hold: %+v", r)
	}
	// osd.0 is updated and not back yet: nobody else goes.
	s.Live[0] = live("n1", func(l *Live) { l.Ready = false })
	if _, r = Roll(s, []int{1, 2, 3}, 20); len(r.Next) != 0 || len(r.Moving) != 1 {
		t.Errorf("the next set does not wait: %+v", r)
	}
	// osd.0 is outdated and down: it is repaired at once.
	s.Known[0] = Known{UUID: "u"}
	if down, _ = Roll(s, []int{0, 1, 2, 3}, 20); len(down) != 1 || down[0] != 0 {
		t.Errorf("an outdated OSD that is down: %v", down)
	}
	// It does not come back, since its disk is dead: the others are not held up.
	s.Live[0] = live("n1", func(l *Live) { l.Ready, l.WasDown = false, true })
	if _, r = Roll(s, []int{1, 2, 3}, 20); len(r.Moving) != 0 || len(r.Next) == 0 {
		t.Errorf("a dead OSD holds up the others: %+v", r)
	}
}
