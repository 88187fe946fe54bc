package guest

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/guest/agent"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"guest": true, "g-1": true, "": false, "1g": false, "G": false, "a/b": false, "..": false, strings.Repeat("a", 21): false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestOptionsCheck(t *testing.T) {
	there := t.TempDir()
	good := func(change func(*Options)) Options {
		o := Options{Rootfs: there, Kernel: there, Agent: there}.withDefaults()
		change(&o)
		return o
	}
	blank := filepath.Join(there, "a b")
	if err := os.Mkdir(blank, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, says string
		options    Options
	}{
		{"good", "", good(func(*Options) {})},
		{"little memory", "64Mi of memory", good(func(o *Options) { o.Memory = 64 << 20 })},
		{"name", "no name", good(func(o *Options) { o.Name = "X" })},
		{"not built", "castellan-lab build", good(func(o *Options) { o.Kernel = filepath.Join(there, "none") })},
		{"no agent", "agent is not there", good(func(o *Options) { o.Agent = "" })},
		{"blank in the path", "holds a blank", good(func(o *Options) { o.Rootfs = blank })},
		{"many disks", "room for 15", good(func(o *Options) { o.Disks = make([]DiskOptions, 16) })},
		{"small disk", "too small", good(func(o *Options) { o.Disks = []DiskOptions{{Size: 4096}} })},
		{"serial", "no serial", good(func(o *Options) { o.Disks = []DiskOptions{{Size: 1 << 20, Serial: "a,b"}} })},
		{"slot", "1 to 15", good(func(o *Options) { o.Disks = []DiskOptions{{Size: 1 << 20, Slot: 16}} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.options.check()
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n")):
				t.Errorf("err = %v, want one line with %q", err, c.says)
			}
		})
	}
}

func TestKernelArgs(t *testing.T) {
	rec := &record{Memory: 2 << 30, Address: netip.MustParsePrefix("172.30.0.250/24"), Lab: "l", Token: "secret-token"}
	got := kernelArgs("/d/g", rec)
	want := []string{
		"mem=2048M", "umid=g", "uml_dir=/d/g/uml/", "initrd=/d/g/initrd", "seccomp=on", "con=null", "con0=null,fd:1",
		"vec0:transport=tap,ifname=guest250,depth=128,gro=1", "panic=-1", "quiet",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "g")
	if _, err := load(dir); !errors.Is(err, ErrNotUp) {
		t.Errorf("err = %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := &record{
		Name: "g", Created: time.Unix(5, 0).UTC(), Memory: 1, Address: netip.MustParsePrefix("10.0.0.2/30"),
		Gateway: netip.MustParseAddr("10.0.0.1"), Token: "t", Process: process{Pid: 3, Start: 4, Boot: "b"}, Ready: true,
		Disks: []diskRecord{{Serial: "S", Size: 6, Slot: 1}, {Serial: "P", Size: 6}},
	}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if st, err := os.Stat(filepath.Join(dir, recordFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the record with the token has mode %v, %v", st.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(dir); err == nil || errors.Is(err, ErrNotUp) {
		t.Errorf("a broken record gives %v", err)
	}
}

func TestSlots(t *testing.T) {
	rec := &record{Name: "g", Disks: []diskRecord{{Serial: "A", Slot: 1}, {Serial: "B", Slot: 3}, {Serial: "C"}}}
	for _, c := range []struct{ wanted, got int }{{0, 2}, {2, 2}, {15, 15}} {
		if got, err := rec.slotOf(c.wanted); got != c.got || err != nil {
			t.Errorf("slotOf(%d) = %d, %v", c.wanted, got, err)
		}
	}
	if _, err := rec.slotOf(3); err == nil || !strings.Contains(err.Error(), "B") {
		t.Errorf("err = %v", err)
	}
	for what, index := range map[string]int{"A": 0, "ubdd": 1, "/dev/ubdd": 1, "C": 2, "ubda": -1, "": -1} {
		got, err := rec.find(what)
		if index >= 0 && (got != index || err != nil) || index < 0 && err == nil {
			t.Errorf("find(%q) = %d, %v", what, got, err)
		}
	}
	full := &record{}
	for slot := 1; slot <= MaxDisks; slot++ {
		full.Disks = append(full.Disks, diskRecord{Slot: slot})
	}
	if _, err := full.slotOf(0); err == nil {
		t.Error("a full guest has a free slot")
	}
}

func TestJoinDisks(t *testing.T) {
	g := &Guest{dir: "/d"}
	got := joinDisks(
		[]diskRecord{{Serial: "P", Size: 1}, {Serial: "B", Size: 2, Slot: 15}, {Serial: "A", Size: 3, Slot: 1}},
		[]agent.Disk{{Name: "ubdb", Serial: "A", Links: []string{"l"}, Holders: []string{"h"}}}, g.disk)
	want := []Disk{
		{Name: "ubdb", Slot: 1, Serial: "A", Size: 3, File: "/d/disks/A.img", Links: []string{"l"}, Holders: []string{"h"}},
		{Name: "ubdp", Slot: 15, Serial: "B", Size: 2, File: "/d/disks/B.img"},
		{Serial: "P", Size: 1, File: "/d/disks/P.img"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFreeAddress(t *testing.T) {
	join := &Join{Lab: "l", Gateway: netip.MustParsePrefix("172.30.0.1/24")}
	others := []*record{
		{Lab: "l", Address: netip.MustParsePrefix("172.30.0.250/24")},
		{Lab: "other", Address: netip.MustParsePrefix("172.30.0.249/24")},
	}
	got, err := freeAddress(join, others)
	if err != nil || got.String() != "172.30.0.249/24" {
		t.Errorf("freeAddress = %v, %v", got, err)
	}
	for range lastGuestByte - firstGuestByte {
		a, err := freeAddress(join, others)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, &record{Lab: "l", Address: a})
	}
	if got, err := freeAddress(join, others); err == nil {
		t.Errorf("a full lab gave %v", got)
	}
}

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "g")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir, 0); err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("err = %v", err)
	}
	unlock()
	unlock, err = lock(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Who waits while the guest is taken down must not get a lock on nothing.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
	if _, err := lock(dir, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
}

func TestParseStat(t *testing.T) {
	state, start, err := parseStat("12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20")
	if state != 'S' || start != 4242 || err != nil {
		t.Errorf("%c %d %v", state, start, err)
	}
	for _, bad := range []string{"", "12 (a) S 1", "12 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"} {
		if _, _, err := parseStat(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestProcess(t *testing.T) {
	self, err := processOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := self.alive(); !alive || err != nil {
		t.Errorf("this process: %v, %v", alive, err)
	}
	for name, change := range map[string]func(*process){
		"reused pid":   func(p *process) { p.Start++ },
		"earlier boot": func(p *process) { p.Boot = "x" },
		"gone":         func(p *process) { p.Pid = 1 << 30 },
		"never was":    func(p *process) { p.Pid = 0 },
	} {
		p := self
		change(&p)
		if alive, err := p.alive(); alive || err != nil {
			t.Errorf("%s: %v, %v", name, alive, err)
		}
	}
}

// TestMarked finds a process by its mark alone, as after a crash before the
// record was written, and Down ends it.
func TestMarked(t *testing.T) {
	t.Setenv(state.EnvRoot, t.TempDir())
	dir, err := directory("g")
	if err != nil {
		t.Fatal(err)
	}
	cmd := sleeper(t, envMark+"="+dir)
	other := sleeper(t, envMark+"="+dir+"2")
	pids, err := marked(dir)
	if err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Fatalf("marked = %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	for range 2 {
		if err := Down(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
	}
	if state, _, err := readStat(cmd.Process.Pid); err == nil && state != 'Z' {
		t.Errorf("the process is in state %c", state)
	}
	if state, _, err := readStat(other.Process.Pid); err != nil || state == 'Z' {
		t.Errorf("Down ended a process of another guest: %c, %v", state, err)
	}
}

func TestDownRemovesAll(t *testing.T) {
	root := t.TempDir()
	t.Setenv(state.EnvRoot, root)
	dir, err := directory("g")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "disks"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), []byte("{broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("Down left %v, %v", left, err)
	}
	if err := Down(t.Context(), "../g"); err == nil {
		t.Error("a name that is a path was accepted")
	}
}

func TestConsoleHint(t *testing.T) {
	dir := t.TempDir()
	write := func(s string) string {
		if err := os.WriteFile(filepath.Join(dir, consoleFile), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return consoleHint(dir)
	}
	if got := consoleHint(dir); got != "" {
		t.Errorf("no console gives %q", got)
	}
	if got := write("a\nb\n"); got != ": the console says last: b" {
		t.Errorf("got %q", got)
	}
	if got := write("a\ncastellan-guest: cannot start: loading: no\nreboot: power down\n"); got != ": loading: no" {
		t.Errorf("got %q", got)
	}
}
