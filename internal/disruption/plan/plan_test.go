package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Unix(1_000_000, 0) //nolint:gochecknoglobals // the time of the tests

// six are OSDs on three hosts; down and cordoned name OSDs and hosts.
func six(down []int, cordoned ...string) []OSD {
	var out []OSD
	for id := range 6 {
		o := OSD{ID: id, Domain: []string{"a", "b", "c"}[id/2]}
		for _, d := range down {
			o.Down = o.Down || d == id
		}
		for _, h := range cordoned {
			o.Cordoned = o.Cordoned || h == o.Domain
		}
		out = append(out, o)
	}
	return out
}

func TestDecide(t *testing.T) {
	blocked := map[string][]int{"b": {2, 3}, "c": {4, 5}}
	drain := Drain{Domain: "a", Since: start, NoOut: true}
	noout := map[string]bool{"a": true}
	for name, c := range map[string]struct {
		s    State
		want Decision
	}{
		"all is well":                              {State{OSDs: six(nil), Answered: true, Clean: true}, Decision{MaxUnavailable: 1}},
		"cordoned, nothing evicted yet":            {State{OSDs: six(nil, "a"), Answered: true, Clean: true}, Decision{MaxUnavailable: 1}},
		"one OSD is dead":                          {State{OSDs: six([]int{3}), Answered: true}, Decision{MaxUnavailable: 1}},
		"one is dead and its data whole elsewhere": {State{OSDs: six([]int{3}), Answered: true, Clean: true}, Decision{MaxUnavailable: 2}},
		"one is dead and Ceph silent":              {State{OSDs: six([]int{3})}, Decision{MaxUnavailable: 1}},
		"a drain begins": {
			State{OSDs: six([]int{0}, "a"), Answered: true, Clean: true},
			Decision{Drain: drain, Blocked: blocked, Set: "a", Began: "a", Why: "osd.0 of a are down"},
		},
		"the user has set noout before": {
			State{OSDs: six([]int{0}, "a"), Answered: true, NoOut: noout},
			Decision{Drain: Drain{Domain: "a", Since: start}, Blocked: blocked, Began: "a", Why: "osd.0 of a are down"},
		},
		"two nodes are drained at once: one after the other": {
			State{OSDs: six([]int{2, 0}, "b", "a"), Answered: true},
			Decision{Drain: drain, Blocked: blocked, Set: "a", Began: "a", Why: "osd.0 of a are down"},
		},
		"a drain cannot begin without Ceph": {State{OSDs: six([]int{0}, "a")}, Decision{MaxUnavailable: 1}},
		"it goes on": {
			State{Now: start.Add(5 * time.Minute), OSDs: six([]int{0, 1}, "a"), Answered: true, Drain: drain, NoOut: noout},
			Decision{Drain: drain, Blocked: blocked, Why: "osd.0, osd.1 of a are down"},
		},
		"Ceph has not noticed": {
			State{Now: start.Add(30 * time.Second), OSDs: six([]int{0}, "a"), Answered: true, Clean: true, Drain: drain, NoOut: noout},
			Decision{Drain: drain, Blocked: blocked, Why: "osd.0 of a are down, and Ceph may not have noticed yet"},
		},
		"Ceph falls silent": {
			State{Now: start.Add(5 * time.Minute), OSDs: six(nil), Drain: drain},
			Decision{Drain: drain, Blocked: blocked, Why: "Ceph does not answer"},
		},
		"the crash came before the flag was set": {
			State{Now: start.Add(5 * time.Minute), OSDs: six([]int{0}, "a"), Answered: true, Drain: drain},
			Decision{Drain: drain, Blocked: blocked, Set: "a", Why: "osd.0 of a are down"},
		},
		"it takes too long: the flag is cleared": {
			State{Now: start.Add(31 * time.Minute), OSDs: six([]int{0}, "a"), Answered: true, Drain: drain, NoOut: noout},
			Decision{Drain: drain, Blocked: blocked, Clear: "a", Why: "osd.0 of a are down"},
		},
		"the flag is no longer ours": {
			State{Now: start.Add(31 * time.Minute), OSDs: six([]int{0}, "a"), Answered: true, Drain: drain},
			Decision{Drain: Drain{Domain: "a", Since: start}, Blocked: blocked, Why: "osd.0 of a are down"},
		},
		"all are back, PGs recover": {
			State{Now: start.Add(5 * time.Minute), OSDs: six(nil), Answered: true, Unclean: "3 peering", Drain: drain, NoOut: noout},
			Decision{Drain: drain, Blocked: blocked, Why: "not all placement groups are healthy: 3 peering"},
		},
		"clean: first the flag": {
			State{Now: start.Add(5 * time.Minute), OSDs: six(nil), Answered: true, Clean: true, Drain: drain, NoOut: noout},
			Decision{Drain: drain, Blocked: blocked, Clear: "a", Why: "the flag noout of a is being cleared"},
		},
		"clean: then the rest": {
			State{Now: start.Add(5 * time.Minute), OSDs: six(nil), Answered: true, Clean: true, Drain: drain},
			Decision{MaxUnavailable: 1, Ended: "a"},
		},
		"the node never comes back, the data is whole elsewhere": {
			State{Now: start.Add(2 * time.Hour), OSDs: six([]int{0, 1}, "a"), Answered: true, Clean: true, Drain: Drain{Domain: "a", Since: start}},
			Decision{MaxUnavailable: 3, Ended: "a"},
		},
		"the failure domain is another one now": {
			State{Now: start.Add(5 * time.Minute), OSDs: six(nil), Answered: true, Clean: true, Drain: Drain{Domain: "zone1", Since: start, NoOut: true}, NoOut: map[string]bool{"zone1": true}},
			Decision{Drain: Drain{Domain: "zone1", Since: start, NoOut: true}, Blocked: map[string][]int{"a": {0, 1}, "b": {2, 3}, "c": {4, 5}}, Clear: "zone1", Why: "the flag noout of zone1 is being cleared"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Timeout = 30 * time.Minute
			if c.s.Now.IsZero() {
				c.s.Now = start
			}
			if diff := cmp.Diff(c.want, Decide(c.s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Over all states: never may OSDs of two domains go at once, a healthy cluster always
// lets one go, and a flag is touched only where it is noted as ours.
func TestSafety(t *testing.T) {
	for mask := range 1 << 6 {
		for cordon := range 1 << 3 {
			for bits := range 1 << 5 {
				var down []int
				for id := range 6 {
					if mask&(1<<id) != 0 {
						down = append(down, id)
					}
				}
				var cordoned []string
				for i, h := range []string{"a", "b", "c"} {
					if cordon&(1<<i) != 0 {
						cordoned = append(cordoned, h)
					}
				}
				s := State{Now: start.Add(10 * time.Minute), OSDs: six(down, cordoned...), Answered: bits&1 != 0, Clean: bits&2 != 0, NoOut: map[string]bool{"a": bits&4 != 0}, Timeout: 30 * time.Minute}
				if bits&8 != 0 {
					s.Drain = Drain{Domain: "a", Since: start, NoOut: bits&16 != 0}
				}
				d := Decide(s)
				free := map[string]bool{}
				for _, o := range s.OSDs {
					if _, kept := d.Blocked[o.Domain]; !kept {
						free[o.Domain] = true
					}
				}
				if d.MaxUnavailable == 0 && len(free) != 1 {
					t.Fatalf("%+v: free are %v", s, free)
				}
				if d.MaxUnavailable > 0 && (len(d.Blocked) > 0 || d.Drain.Domain != "") {
					t.Fatalf("%+v: both %+v", s, d)
				}
				if s.Answered && s.Clean && len(down) == 0 && s.Drain.Domain == "" && d.MaxUnavailable != 1 {
					t.Fatalf("%+v: healthy, and %d", s, d.MaxUnavailable)
				}
				if d.MaxUnavailable > 1+len(down) || d.MaxUnavailable > 1 && !s.Clean {
					t.Fatalf("%+v: %d may be missing", s, d.MaxUnavailable)
				}
				if (d.Clear != "" && !s.Drain.NoOut) || (d.Set != "" && !d.Drain.NoOut) || (!s.Answered && d.Set+d.Clear != "") {
					t.Fatalf("%+v: %+v", s, d)
				}
				if d.Ended != "" && s.Drain.NoOut && s.NoOut["a"] {
					t.Fatalf("%+v: the flag stays behind", s)
				}
			}
		}
	}
}

// A whole drain from the beginning to the end, as the node's owner sees it.
func TestDrain(t *testing.T) {
	s := State{Now: start, Answered: true, Clean: true, OSDs: six(nil, "a"), NoOut: map[string]bool{}, Timeout: 30 * time.Minute}
	var log []string
	step := func(what string) {
		for range 3 {
			d := Decide(s)
			s.Drain = d.Drain
			if d.Set != "" {
				s.NoOut[d.Set] = true
			}
			if d.Clear != "" {
				delete(s.NoOut, d.Clear)
			}
			for _, e := range []struct{ word, domain string }{{"began", d.Began}, {"set", d.Set}, {"clear", d.Clear}, {"ended", d.Ended}} {
				if e.domain != "" {
					log = append(log, what+": "+e.word+" "+e.domain)
				}
			}
		}
		s.Now = s.Now.Add(2 * time.Minute)
	}
	step("cordoned")
	s.OSDs = six([]int{0}, "a")
	step("first evicted")
	s.OSDs, s.Clean = six([]int{0, 1}, "a"), false
	step("all evicted")
	s.OSDs = six([]int{0, 1})
	step("uncordoned")
	s.OSDs = six(nil)
	step("up")
	s.Clean = true
	step("clean")
	want := []string{"first evicted: began a", "first evicted: set a", "clean: clear a", "clean: ended a"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
