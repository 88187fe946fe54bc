package config

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	foundingOpt = Option{"mgr", "mgr_stats_period"}
	brandNew    = Founding{Age: time.Minute}
	unclean     = Founding{Age: time.Minute, Pools: 1}
	cleaned     = Founding{Age: time.Minute, Pools: 1, AllClean: true}
)

// pass is one pass over a database. It stops after so many of its writes, as a process
// does that dies, and says whether it had come to its end.
func pass(d database, f Founding, users map[Option]Value, rec Record, writes int) (Record, bool) {
	want, compared := f.add(users, d.dump(), rec)
	c := Compare(want, d.dump(), compared)
	step := func() bool { writes--; return writes >= 0 }
	if !maps.Equal(c.Record, rec) {
		if !step() {
			return rec, false
		}
		rec = c.Record
	}
	for _, s := range c.Set {
		if !step() {
			return rec, false
		}
		d[s.Option] = s.Value.Text.Reveal()
	}
	for _, r := range c.Remove {
		if !step() {
			return rec, false
		}
		delete(d, r.Option)
	}
	return rec, true
}

// rest passes until nothing is written any more.
func rest(t *testing.T, d database, f Founding, users map[Option]Value, rec Record) Record {
	t.Helper()
	for range 5 {
		if _, idle := pass(d, f, users, rec, 0); idle {
			return rec
		}
		rec, _ = pass(d, f, users, rec, 9)
	}
	t.Fatalf("does not come to rest: %v, record %v", d, rec)
	return nil
}

func TestFoundingLeavesNothingBehind(t *testing.T) {
	for _, end := range []Founding{cleaned, {Age: foundingTime}, {Age: time.Hour, Pools: 3}} {
		d, users := database{}, map[Option]Value{}
		rec := rest(t, d, brandNew, users, Record{})
		if d[foundingOpt] != "1" {
			t.Fatal("a new cluster reports as seldom as an old one")
		}
		if rec = rest(t, d, unclean, users, rec); d[foundingOpt] != "1" {
			t.Error("it is gone before the PGs are clean")
		}
		rec = rest(t, d, end, users, rec)
		// Once over, it stays over, also when PGs are not clean.
		rec = rest(t, d, Founding{Age: end.Age, Pools: 1}, users, rec)
		if len(d)+len(rec) != 0 {
			t.Errorf("%+v: left over: %v, record %v", end, d, rec)
		}
	}
}

// The operator dies after each write of each pass, once or twice.
func TestFoundingSurvivesACrashAtEveryWrite(t *testing.T) {
	stages := []Founding{brandNew, unclean, cleaned}
	for first := range 4 {
		for second := range 4 {
			for at, f := range stages {
				d, users, rec := database{}, map[Option]Value{}, Record{}
				for _, before := range stages[:at] {
					rec = rest(t, d, before, users, rec)
				}
				rec, _ = pass(d, f, users, rec, first)
				rec, _ = pass(d, f, users, rec, second)
				for _, after := range stages[at:] {
					rec = rest(t, d, after, users, rec)
				}
				if len(d)+len(rec) != 0 {
					t.Errorf("dead after %d and %d writes in stage %d: left over: %v, record %v", first, second, at, d, rec)
				}
			}
		}
	}
}

func TestFoundingLeavesWhatOthersSet(t *testing.T) {
	other := Option{"global", "mgr_stats_period"}
	for _, tc := range []struct {
		name  string
		begin database         // before the cluster is looked at
		users map[Option]Value // by the spec
		then  func(d database) // once the option is set
		want  database
	}{
		{name: "set at the same place", begin: database{foundingOpt: "10"}, want: database{foundingOpt: "10"}},
		{name: "set to the same value", begin: database{foundingOpt: "1"}, want: database{foundingOpt: "1"}},
		{name: "set for all daemons", begin: database{other: "10"}, want: database{other: "10"}},
		{name: "set by the spec", users: map[Option]Value{foundingOpt: plain("7")}, want: database{foundingOpt: "7"}},
		{name: "set to the same value by the spec", users: map[Option]Value{foundingOpt: plain("1")}, want: database{foundingOpt: "1"}},
		{name: "changed meanwhile", then: func(d database) { d[foundingOpt] = "3" }, want: database{foundingOpt: "3"}},
		{name: "removed meanwhile", then: func(d database) { delete(d, foundingOpt) }, want: database{}},
		{name: "set for all daemons meanwhile", then: func(d database) { d[other] = "3" }, want: database{other: "3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := database{}
			maps.Copy(d, tc.begin)
			rec := rest(t, d, brandNew, tc.users, Record{})
			if tc.then != nil {
				tc.then(d)
			}
			for i, f := range []Founding{unclean, cleaned, {Age: time.Hour, Pools: 1}} {
				if rec = rest(t, d, f, tc.users, rec); i > 0 {
					if diff := cmp.Diff(tc.want, d); diff != "" {
						t.Errorf("stage %d (-want +got):\n%s", i, diff)
					}
				}
			}
		})
	}
}

// A cluster that is not new never gets the option, however it is.
func TestNoFoundingOfOldClusters(t *testing.T) {
	for _, f := range []Founding{unclean, cleaned, {Age: foundingTime}, {Age: 24 * time.Hour}, {Age: time.Hour, Pools: 2}} {
		if rec, idle := pass(database{}, f, map[Option]Value{}, Record{}, 0); !idle || len(rec) != 0 {
			t.Errorf("%+v: %s", f, fmt.Sprint(rec))
		}
	}
}

// A wish of the spec that is taken back goes, whether or not it was founding's value.
func TestFoundingAndAWishTakenBack(t *testing.T) {
	for _, v := range []string{"1", "10"} {
		d := database{}
		rec := rest(t, d, Founding{Age: time.Hour, Pools: 1}, map[Option]Value{foundingOpt: plain(v)}, Record{})
		rec = rest(t, d, Founding{Age: time.Hour, Pools: 1}, map[Option]Value{}, rec)
		if len(d)+len(rec) != 0 {
			t.Errorf("%s: left over: %v, record %v", v, d, rec)
		}
	}
}
