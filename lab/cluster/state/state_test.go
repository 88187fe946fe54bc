package state

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/google/go-cmp/cmp"
)

func TestPlanDown(t *testing.T) {
	lab := Lab{ID: "mine", Name: "a", Boot: "b1", Pid: 100, Start: 5}
	m := Machine{
		Self: 7, Boot: "b1",
		Processes: []Process{
			{Pid: 7, Start: 1, Lab: "mine"}, // down itself, run with the mark
			{Pid: 50, Start: 9, Lab: "mine", Comm: "kubectl"},
			{Pid: 100, Start: 5, Lab: "mine", Comm: "castellan-lab"},
			{Pid: 101, Start: 6, Lab: "other"},
			{Pid: 102, Start: 6},
			{Pid: 103, Start: 6, Lab: "mine", State: "Z"},
		},
		Loops: []disk.Attached{
			{Number: 0, Backing: "/state/a/nodes/node1/disks/1.img", Over: -1},
			{Number: 1, Backing: "/state/ab/nodes/node1/disks/1.img", Over: -1},
			{Number: 2, Backing: "/state/a/nodes/node1/disks/2.img (deleted)", Over: -1},
			{Number: 3, Backing: "/state/a", Over: -1},
			{Number: 4, Backing: "/loop2", Over: 2},
			{Number: 5, Backing: "/loop1", Over: 1},
		},
		Mounts: []string{"/", "/state/a/x", "/state/a/x/y", "/state/b/x"},
	}
	want := DownPlan{
		Kill:    []Process{{Pid: 100, Start: 5, Lab: "mine", Comm: "castellan-lab"}, {Pid: 50, Start: 9, Lab: "mine", Comm: "kubectl"}},
		Detach:  []int{4, 0, 2},
		Unmount: []string{"/state/a/x/y", "/state/a/x"},
	}
	if d := cmp.Diff(want, PlanDown(lab, "/state/a", m)); d != "" {
		t.Error(d)
	}

	// A pid that another process has now, and a record that was never written:
	// no process is the lab's.
	for name, l := range map[string]Lab{
		"pid reused": {ID: "gone", Name: "a", Boot: "b0", Pid: 102, Start: 6},
		"no record":  {Name: "a"},
	} {
		if got := PlanDown(l, "/state/a", m); len(got.Kill) != 0 || len(got.Detach) != 3 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	const tail = " S 1 100 100 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 10"
	for stat, comm := range map[string]string{"9 (sh)" + tail: "sh", "9 (a) (b c)" + tail: "a) (b c"} {
		got, err := parseStat(9, stat)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Process{Pid: 9, Start: 4242, PPid: 1, Comm: comm, State: "S"}, got); d != "" {
			t.Error(d)
		}
	}
	for _, bad := range []string{"", "9 sh S", "9 (sh) S 1"} {
		if _, err := parseStat(9, bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestParseMounts(t *testing.T) {
	got := parseMounts("1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:3 / /a\\040b rw - tmpfs x rw\n")
	if d := cmp.Diff([]string{"/", "/a b"}, got); d != "" {
		t.Error(d)
	}
}

func TestLabMark(t *testing.T) {
	for env, want := range map[string]string{"A=1\x00CASTELLAN_LAB_ID=x\x00": "x", "XCASTELLAN_LAB_ID=x\x00": "", "": ""} {
		if got := labMark([]byte(env)); got != want {
			t.Errorf("%q: %q", env, got)
		}
	}
}

func TestRecord(t *testing.T) {
	t.Setenv(EnvRoot, t.TempDir())
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if _, err := Load("a"); !errors.Is(err, ErrNotUp) {
		t.Fatalf("loading what is not there: %v", err)
	}
	l, err := Create("a", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create("a", now); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "left the lab a behind") {
		t.Fatalf("creating it again: %v", err)
	}
	if _, err := Running("a"); err == nil {
		t.Error("a lab without a supervisor counts as running")
	}
	// This very process as the supervisor: it lacks the mark, so it is not.
	l.Pid = os.Getpid()
	if l.Start, err = StartOf(l.Pid); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(); err != nil {
		t.Fatal(err)
	}
	if l.Alive() {
		t.Error("a process without the mark counts as the supervisor")
	}
	got, err := Load("a")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(l, got); d != "" {
		t.Error(d)
	}
	names, err := List()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a"}, names); d != "" {
		t.Error(d)
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{"lab": true, "a-1": true, "": false, "../x": false, "A": false, "1a": false, strings.Repeat("a", 31): false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
