package release

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRunning(t *testing.T) {
	// Captured from a real cluster of Ceph 20.2.4.
	reply, err := os.ReadFile("testdata/versions-20.2.4.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseRunning(reply)
	if err != nil {
		t.Fatal(err)
	}
	v := Version{20, 2, 4, 0, "7f793731f1b39eb4f465e960113d2363c311b964"}
	want := Running{Mon: {v: 3}, Mgr: {v: 1}, OSD: {v: 3}, MDS: {v: 2}, RGW: {v: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseRunning (-want +got):\n%s", diff)
	}

	got, err = ParseRunning([]byte(`{"mon":{"ceph version 19.2.3 (aaaaaaaa) squid (stable)":2,"unknown":1},"osd":{},"overall":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	want = Running{Mon: {Version{19, 2, 3, 0, "aaaaaaaa"}: 2, {}: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseRunning (-want +got):\n%s", diff)
	}

	for _, bad := range []string{"", "[]", `{"mon":3}`} {
		if _, err := ParseRunning([]byte(bad)); err == nil {
			t.Errorf("ParseRunning(%q) gave no error", bad)
		}
	}
}

var (
	squid    = V(19, 2, 3)
	tentacle = V(20, 2, 4)
)

func at(v Version, n int) map[Version]int { return map[Version]int{v: n} }

func TestMayStart(t *testing.T) {
	mixed := func(n, m int) map[Version]int { return map[Version]int{squid: n, tentacle: m} }
	for _, tc := range []struct {
		title   string
		t       Type
		running Running
		want    []Blocker
		message string
	}{
		{title: "mons of a new cluster", t: Mon},
		{title: "mons begin an upgrade", t: Mon, running: Running{Mon: at(squid, 3), Mgr: at(squid, 2), OSD: at(squid, 9)}},
		{
			title: "mgr of a cluster without mons", t: Mgr, want: []Blocker{{Type: Mon}},
			message: "mgr daemons wait for others to run Ceph 20.2.4 first: no mon is running",
		},
		{title: "first mgr", t: Mgr, running: Running{Mon: at(tentacle, 3)}},
		{
			title: "mgr while a mon is old", t: Mgr, running: Running{Mon: mixed(1, 2), Mgr: at(squid, 2)},
			want: []Blocker{{Mon, squid, 1}}, message: "mgr daemons wait for others to run Ceph 20.2.4 first: 1 mon at 19.2.3",
		},
		{
			title: "OSDs without a mgr", t: OSD, running: Running{Mon: at(tentacle, 3)},
			want: []Blocker{{Type: Mgr}}, message: "osd daemons wait for others to run Ceph 20.2.4 first: no mgr is running",
		},
		{title: "OSDs in their turn", t: OSD, running: Running{Mon: at(tentacle, 3), Mgr: at(tentacle, 2), OSD: mixed(5, 4)}},
		{
			title: "MDS while OSDs are old", t: MDS, running: Running{Mon: at(tentacle, 3), Mgr: at(tentacle, 2), OSD: mixed(5, 4), RGW: at(squid, 1)},
			want: []Blocker{{OSD, squid, 5}}, message: "mds daemons wait for others to run Ceph 20.2.4 first: 5 osd at 19.2.3",
		},
		{title: "MDS beside an old RGW", t: MDS, running: Running{Mon: at(tentacle, 3), Mgr: at(tentacle, 2), OSD: at(tentacle, 9), RGW: at(squid, 1)}},
		{title: "RGW of a cluster without OSDs", t: RGW, running: Running{Mon: at(tentacle, 3), Mgr: at(tentacle, 2)}},
		{title: "a type that is not known here comes last", t: "tcmu-runner", running: Running{Mon: at(tentacle, 3), Mgr: at(squid, 2)},
			want: []Blocker{{Mgr, squid, 2}}, message: "tcmu-runner daemons wait for others to run Ceph 20.2.4 first: 2 mgr at 19.2.3"},
		{
			title: "unknown versions are not good ones", t: OSD, running: Running{Mon: map[Version]int{tentacle: 2, {}: 1}, Mgr: at(tentacle, 1)},
			want: []Blocker{{Mon, Version{}, 1}}, message: "osd daemons wait for others to run Ceph 20.2.4 first: 1 mon of unknown version",
		},
		{
			title: "newer is not the target either: going back", t: Mgr, running: Running{Mon: at(V(20, 2, 5), 3)},
			want: []Blocker{{Mon, V(20, 2, 5), 3}}, message: "mgr daemons wait for others to run Ceph 20.2.4 first: 3 mon at 20.2.5",
		},
		{
			title: "two builds of the target", t: Mgr,
			running: Running{Mon: {Version{20, 2, 4, 0, "aaaaaaa"}: 1, Version{20, 2, 4, 0, "bbbbbbb"}: 2}},
		},
		{
			title: "several in order", t: RGW, running: Running{OSD: at(squid, 9), Mgr: at(squid, 2), Mon: mixed(1, 2)},
			want:    []Blocker{{Mon, squid, 1}, {Mgr, squid, 2}, {OSD, squid, 9}},
			message: "rgw daemons wait for others to run Ceph 20.2.4 first: 1 mon at 19.2.3, 2 mgr at 19.2.3, 9 osd at 19.2.3",
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			got := MayStart(tc.t, tentacle, tc.running)
			if diff := cmp.Diff(Gate{Open: len(tc.want) == 0, Blockers: tc.want}, got); diff != "" {
				t.Errorf("MayStart (-want +got):\n%s", diff)
			}
			if m := got.Message(tc.t, tentacle); m != tc.message {
				t.Errorf("Message = %q, want %q", m, tc.message)
			}
		})
	}
}

// Whatever the mixture, a gate opens only when every running daemon of every
// earlier type is at the target: the order mon, mgr, osd, rest can not be
// broken. All mixtures of one daemon a type are tried.
func TestMayStartSafety(t *testing.T) {
	types := []Type{Mon, Mgr, OSD, MDS}
	states := []map[Version]int{nil, at(squid, 1), at(tentacle, 1), at(Version{}, 1), {squid: 1, tentacle: 1}}
	total := 1
	for range types {
		total *= len(states)
	}
	for n := range total {
		running, rest := Running{}, n
		for _, typ := range types {
			running[typ] = states[rest%len(states)]
			rest /= len(states)
		}
		for i, typ := range types {
			open := MayStart(typ, tentacle, running).Open
			want := true
			for _, before := range types[:i] {
				want = want && (running.AllAt(before, tentacle) || (before == OSD && running.Count(OSD) == 0))
			}
			if open != want {
				t.Fatalf("MayStart(%s) with %v = %v, want %v", typ, running, open, want)
			}
		}
	}
}

// An upgrade that always takes the type Next names, and only if its gate is
// open, goes through to the end.
func TestUpgradeGoesThrough(t *testing.T) {
	running := Running{Mon: at(squid, 3), Mgr: at(squid, 2), OSD: at(squid, 4), MDS: at(squid, 2), RGW: at(squid, 1)}
	var order []Type
	for step := 0; ; step++ {
		typ, more := Next(tentacle, running)
		if !more {
			break
		}
		if step > 20 {
			t.Fatalf("no end: %v", running)
		}
		if gate := MayStart(typ, tentacle, running); !gate.Open {
			t.Fatalf("Next names %s, whose gate is shut: %s", typ, gate.Message(typ, tentacle))
		}
		if len(order) == 0 || order[len(order)-1] != typ {
			order = append(order, typ)
		}
		by := map[Version]int{tentacle: running[typ][tentacle] + 1}
		if left := running[typ][squid] - 1; left > 0 {
			by[squid] = left
		}
		running[typ] = by
	}
	if diff := cmp.Diff([]Type{Mon, Mgr, OSD, MDS, RGW}, order); diff != "" {
		t.Errorf("order of the upgrade (-want +got):\n%s", diff)
	}
}

func TestRunningAnswers(t *testing.T) {
	r := Running{
		Mon: at(tentacle, 3),
		OSD: {squid: 1, V(19, 2, 2): 2, Version{19, 2, 3, 0, "abcdefa"}: 1, V(18, 2, 7): 0},
	}
	if got := r.Count(OSD); got != 4 {
		t.Errorf("Count = %d, want 4", got)
	}
	if diff := cmp.Diff([]Version{V(19, 2, 2), squid, tentacle}, r.Versions()); diff != "" {
		t.Errorf("Versions (-want +got):\n%s", diff)
	}
	if got := r.Oldest(); !got.Same(V(19, 2, 2)) {
		t.Errorf("Oldest = %v", got)
	}
	if got := r.Newest(OSD); !got.Same(squid) {
		t.Errorf("Newest = %v", got)
	}
	if got := (Running{}).Oldest(); !got.IsZero() {
		t.Errorf("Oldest of nothing = %v", got)
	}
	if r.AllAt(OSD, squid) || !r.AllAt(Mon, tentacle) || r.AllAt(RGW, tentacle) {
		t.Error("AllAt must be true only where there are daemons and all run the version")
	}
}

func TestRequireOSDRelease(t *testing.T) {
	for _, tc := range []struct {
		title string
		osds  map[Version]int
		want  string
	}{
		{"none", nil, ""},
		{"all", at(tentacle, 3), "tentacle"},
		{"all of one major", map[Version]int{V(20, 2, 3): 1, tentacle: 2}, "tentacle"},
		{"one old", map[Version]int{squid: 1, tentacle: 2}, ""},
		{"one unknown", map[Version]int{{}: 1, tentacle: 2}, ""},
		{"a release without a name here", at(V(25, 2, 0), 3), ""},
	} {
		if got := (Running{OSD: tc.osds}).RequireOSDRelease(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.title, got, tc.want)
		}
	}
}
