package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/castellan-storage/castellan/lab/guest"
)

// fakeGuest answers commands by their beginning and keeps files.
type fakeGuest struct {
	answers map[string]guest.Result
	ran     []string
	files   map[string]string
}

func (f *fakeGuest) Exec(_ context.Context, argv ...string) (guest.Result, error) {
	line := strings.Join(argv, " ")
	f.ran = append(f.ran, line)
	best := ""
	for prefix := range f.answers {
		if strings.HasPrefix(line, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return f.answers[best], nil
}

func (f *fakeGuest) Put(_ context.Context, path string, _ fs.FileMode, r io.Reader) error {
	b, err := io.ReadAll(r)
	f.files[path] = string(b)
	return err
}

func (f *fakeGuest) Get(_ context.Context, path string, w io.Writer) error {
	s, ok := f.files[path]
	if !ok {
		return fs.ErrNotExist
	}
	_, err := io.WriteString(w, s)
	return err
}

func (*fakeGuest) Address() netip.Prefix { return netip.MustParsePrefix("10.99.77.2/30") }

func newFake(answers map[string]guest.Result) *fakeGuest {
	return &fakeGuest{answers: answers, files: map[string]string{}}
}

func TestBootstrap(t *testing.T) {
	g := newFake(map[string]guest.Result{"ceph --connect-timeout 120 mgr stat": {Stdout: `{"available":true}`}})
	var steps []string
	c, err := Bootstrap(t.Context(), g, func(name string, _ time.Duration) { steps = append(steps, name) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"keys", "mon", "mgr", "mgr available"}, steps); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"fsid = " + c.FSID, "[v2:10.99.77.2:3300/0,v1:10.99.77.2:6789/0]", "public_network = 10.99.77.0/30"} {
		if !strings.Contains(g.files[confPath], want) {
			t.Errorf("ceph.conf lacks %q", want)
		}
	}
	mkfs := "ceph-mon --mkfs -i a --monmap /run/ceph/monmap --keyring /run/ceph/mon.keyring --setuser ceph --setgroup ceph"
	if !strings.Contains(strings.Join(g.ran, "\n"), mkfs) {
		t.Errorf("ran:\n%s", strings.Join(g.ran, "\n"))
	}
	for _, line := range g.ran {
		if strings.HasPrefix(line, "sh ") || strings.HasPrefix(line, "bash ") {
			t.Errorf("a shell was used: %s", line)
		}
	}
	opened, err := Open(t.Context(), g)
	if err != nil || opened.FSID != c.FSID {
		t.Errorf("Open: %v, %v", opened, err)
	}
	if _, err := Bootstrap(t.Context(), g, nil); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second Bootstrap: %v", err)
	}
}

func TestBootstrapFails(t *testing.T) {
	g := newFake(map[string]guest.Result{"ceph-mon --mkfs": {ExitCode: 1, Stderr: "one\nno space left\n\n"}})
	_, err := Bootstrap(t.Context(), g, nil)
	var failed *CommandError
	if !errors.As(err, &failed) || failed.Result.ExitCode != 1 || !strings.HasSuffix(err.Error(), "exit code 1: no space left") {
		t.Errorf("err = %v", err)
	}
}

func TestWaitTellsTheLastFailure(t *testing.T) {
	g := newFake(map[string]guest.Result{"ceph": {ExitCode: 1, Stderr: "monclient: timed out"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := (&Cluster{guest: g}).WaitClean(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "monclient: timed out") {
		t.Errorf("err = %v", err)
	}
}

func TestClean(t *testing.T) {
	for _, c := range []struct {
		name, status string
		want         bool
	}{
		{"clean", `{"pgmap":{"num_pgs":9,"pgs_by_state":[{"state_name":"active+clean","count":9}]}}`, true},
		{"no PGs", `{"pgmap":{"num_pgs":0,"pgs_by_state":[]}}`, false},
		{"degraded", `{"pgmap":{"num_pgs":9,"pgs_by_state":[{"state_name":"active+undersized","count":9}]}}`, false},
		{"some", `{"pgmap":{"num_pgs":9,"pgs_by_state":[{"state_name":"active+clean","count":8},{"state_name":"peering","count":1}]}}`, false},
		{"count behind", `{"pgmap":{"num_pgs":9,"pgs_by_state":[{"state_name":"active+clean","count":1}]}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s pgStatus
			if err := json.Unmarshal([]byte(c.status), &s); err != nil {
				t.Fatal(err)
			}
			if got := s.clean(); got != c.want {
				t.Errorf("clean = %v", got)
			}
		})
	}
}

func TestUpIDs(t *testing.T) {
	d := osdDump{OSDs: []osdEntry{{ID: 0, Up: 1}, {ID: 1}}}
	for want, ids := range map[bool][][]int{true: {{0}, nil}, false: {{1}, {0, 1}, {7}}} {
		for _, i := range ids {
			if got := d.up(i); got != want {
				t.Errorf("up(%v) = %v", i, got)
			}
		}
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		name   string
		layout Layout
		want   []string
		bad    bool
	}{
		{name: "raw", layout: Layout{Data: []string{"/dev/a", "/dev/b"}}, want: []string{
			"ceph-volume raw prepare --bluestore --data /dev/a", "ceph-volume raw prepare --bluestore --data /dev/b"}},
		{name: "lvm", layout: Layout{Data: []string{"/dev/a"}, LVM: true}, want: []string{
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd /dev/a"}},
		{name: "all", layout: Layout{Data: []string{"/dev/a", "/dev/b"}, DB: "/dev/f", LVM: true, Encrypted: true}, want: []string{
			"ceph-volume lvm batch --prepare --bluestore --yes --no-systemd /dev/a /dev/b --dmcrypt --db-devices /dev/f"}},
		{name: "none", bad: true},
		{name: "db without lvm", layout: Layout{Data: []string{"/dev/a"}, DB: "/dev/f"}, bad: true},
		{name: "encrypted without lvm", layout: Layout{Data: []string{"/dev/a"}, Encrypted: true}, bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.layout.check(); (err != nil) != c.bad {
				t.Fatalf("check = %v", err)
			}
			if c.bad {
				return
			}
			var got []string
			for _, argv := range c.layout.commands() {
				got = append(got, strings.Join(argv, " "))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParseLVMList reads what ceph-volume said after osd.0 had been replaced
// while its old disk was still plugged in.
func TestParseLVMList(t *testing.T) {
	b := read(t, "lvm-list-replaced-dmcrypt.json")
	got, err := parseLVMList(b)
	if err != nil {
		t.Fatal(err)
	}
	sortByID(got)
	var brief []string
	for _, o := range got {
		brief = append(brief, fmt.Sprintf("%d %s %v %v", o.ID, o.UUID[:8], o.Volumes["block"].Devices, o.Volumes["db"].Devices))
		for _, v := range o.Volumes {
			if v.Tags["ceph.encrypted"] != "1" || v.Tags["ceph.cephx_lockbox_secret"] != "" || v.UUID == "" || v.VG == "" {
				t.Errorf("volume %+v", v)
			}
		}
		if o.Device != o.Volumes["block"].Path || !o.LVM {
			t.Errorf("OSD %+v", o)
		}
	}
	want := []string{
		"0 cffbb4bc [/dev/ubdb] []", "0 f563ceca [/dev/ubdf] [/dev/ubde]",
		"1 74578c75 [/dev/ubdc] [/dev/ubde]", "2 f0796fd5 [/dev/ubdd] [/dev/ubde]",
	}
	if diff := cmp.Diff(want, brief); diff != "" {
		t.Error(diff)
	}
	if _, err := parseLVMList([]byte(`{"x":[]}`)); err == nil {
		t.Error("an id that is no number was accepted")
	}
	if !bytes.Contains(b, []byte("ceph.cephx_lockbox_secret")) {
		t.Error("the fixture has no secret that could have leaked")
	}
}

func TestParseRawList(t *testing.T) {
	got, err := parseRawList(read(t, "raw-list.json"), "f2b79749-5c80-4051-8f99-2b3d36e8fb05")
	if err != nil {
		t.Fatal(err)
	}
	sortByID(got)
	want := []OSD{{ID: 0, Device: "/dev/loop0"}, {ID: 1, Device: "/dev/loop1"}, {ID: 2, Device: "/dev/loop2"}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(OSD{}, "UUID")); diff != "" {
		t.Error(diff)
	}
	if got, err := parseRawList(read(t, "raw-list.json"), "another"); len(got) != 0 || err != nil {
		t.Errorf("OSDs of another cluster: %v, %v", got, err)
	}
	// Of dm-crypt OSDs only the DB is listed in part.
	if got, err := parseRawList([]byte(`{"u":{"device_db":"/dev/mapper/x","osd_uuid":"u"}}`), ""); len(got) != 0 || err != nil {
		t.Errorf("a DB became an OSD: %v, %v", got, err)
	}
}

func TestStartOSD(t *testing.T) {
	for _, c := range []struct {
		name string
		osd  OSD
		want []string
	}{
		{"lvm", OSD{ID: 3, UUID: "u", LVM: true}, []string{
			"mountpoint -q /var/lib/ceph/osd/ceph-3", "ceph-volume lvm activate --no-systemd 3 u",
			"ceph-osd -i 3 --setuser ceph --setgroup ceph"}},
		{"raw", OSD{ID: 3, UUID: "u"}, []string{
			"mountpoint -q /var/lib/ceph/osd/ceph-3", "ceph-volume raw activate --osd-id 3 --osd-uuid u --no-systemd",
			"ceph-osd -i 3 --setuser ceph --setgroup ceph"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newFake(map[string]guest.Result{"mountpoint": {ExitCode: 32}})
			if err := (&Cluster{guest: g}).StartOSD(t.Context(), c.osd); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, g.ran); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStopOSD(t *testing.T) {
	g := newFake(map[string]guest.Result{"kill -0": {ExitCode: 1}})
	g.files["/run/ceph/osd.2.pid"] = "77\n"
	c := &Cluster{guest: g}
	if err := c.StopOSD(t.Context(), 2, false); err != nil {
		t.Fatal(err)
	}
	if err := c.StopOSD(t.Context(), 2, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kill -TERM 77", "kill -0 77", "kill -KILL 77", "kill -0 77"}, g.ran); diff != "" {
		t.Error(diff)
	}
	if err := c.StopOSD(t.Context(), 9, false); err == nil {
		t.Error("stopping an OSD that does not run succeeded")
	}
}

func TestCloseMappings(t *testing.T) {
	g := newFake(map[string]guest.Result{"dmsetup info not-open": {ExitCode: 1}})
	encrypted := map[string]string{"ceph.encrypted": "1"}
	o := OSD{Volumes: map[string]Volume{
		"block": {UUID: "open", Tags: encrypted}, "db": {UUID: "not-open", Tags: encrypted}, "wal": {UUID: "plain"},
	}}
	if err := (&Cluster{guest: g}).CloseMappings(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dmsetup info open", "cryptsetup close open", "dmsetup info not-open"}, g.ran); diff != "" {
		t.Error(diff)
	}
}
