package discover

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/statusmap"
)

// tree writes a /sys and a /run/udev; keys are paths, an entry "-> x" is a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(to, p); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const blacklist = "(?i)dm-[0-9]+,(?i)rbd[0-9]+,(?i)nbd[0-9]+"

func filter(t *testing.T, loop bool) Filter {
	t.Helper()
	f, err := NewFilter(blacklist, loop)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func sys(t *testing.T) string {
	return tree(t, map[string]string{
		"sys/class/block/sda":     "-> ../../devices/pci/sda",
		"sys/class/block/sda1":    "-> ../../devices/pci/sda/sda1",
		"sys/class/block/sdb":     "-> ../../devices/pci/sdb",
		"sys/class/block/sdc":     "-> ../../devices/pci/sdc",
		"sys/class/block/dm-0":    "-> ../../devices/virtual/dm-0",
		"sys/class/block/rbd0":    "-> ../../devices/virtual/rbd0",
		"sys/class/block/loop0":   "-> ../../devices/virtual/loop0",
		"sys/class/block/loop1":   "-> ../../devices/virtual/loop1",
		"sys/class/block/sr0":     "-> ../../devices/pci/sr0",
		"sys/devices/pci/sda/dev": "8:0", "sys/devices/pci/sda/size": "2048", "sys/devices/pci/sda/ro": "0", "sys/devices/pci/sda/queue/rotational": "1",
		"sys/devices/pci/sda/device/model": "DISK", "sys/devices/pci/sda/device/vendor": "ACME",
		"sys/devices/pci/sda/sda1/dev": "8:1", "sys/devices/pci/sda/sda1/size": "1024", "sys/devices/pci/sda/sda1/partition": "1",
		"sys/devices/pci/sdb/dev": "8:16", "sys/devices/pci/sdb/size": "20971520", "sys/devices/pci/sdb/ro": "1",
		"sys/devices/pci/sdc/dev": "8:32", "sys/devices/pci/sdc/size": "4096", "sys/devices/pci/sdc/holders/dm-0": "-> ../../dm-0",
		"sys/devices/virtual/dm-0/dev": "253:0", "sys/devices/virtual/dm-0/size": "8",
		"sys/devices/virtual/rbd0/dev": "250:0", "sys/devices/virtual/rbd0/size": "8",
		"sys/devices/virtual/loop0/dev": "7:0", "sys/devices/virtual/loop0/size": "8",
		"sys/devices/virtual/loop1/dev": "7:1", "sys/devices/virtual/loop1/size": "0",
		"sys/devices/pci/sr0/dev": "11:0", "sys/devices/pci/sr0/size": "8",
		"run/udev/data/b8:32": "S:disk/by-id/scsi-C\nE:ID_SERIAL_SHORT=SN3\nE:ID_FS_TYPE=LVM2_member\nE:ID_MODEL=Better",
	})
}

func TestList(t *testing.T) {
	got, err := List(sys(t), filter(t, false))
	if err != nil {
		t.Fatal(err)
	}
	want := []Disk{
		{Name: "sda", KernelName: "sda", RealPath: "/dev/sda", Size: 1 << 20, Type: "disk", Rotational: true, HasChildren: true, Model: "DISK", Vendor: "ACME"},
		{Name: "sda1", KernelName: "sda1", RealPath: "/dev/sda1", Size: 1 << 19, Type: "part", Parent: "sda", Rotational: true, Empty: true},
		{Name: "sdb", KernelName: "sdb", RealPath: "/dev/sdb", Size: 10 << 30, Type: "disk", ReadOnly: true, Empty: true},
		{Name: "sdc", KernelName: "sdc", RealPath: "/dev/sdc", Size: 2 << 20, Type: "disk", Serial: "SN3", Model: "Better", Filesystem: "LVM2_member", DevLinks: "/dev/disk/by-id/scsi-C"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err = List(sys(t), filter(t, true)); err != nil || len(got) != 5 || got[0].Name != "loop0" || got[0].Type != "loop" {
		t.Errorf("with loop devices: %v, %v", got, err)
	}
	if _, err := List(t.TempDir(), filter(t, false)); err == nil {
		t.Error("no /sys is no error")
	}
}

func TestABadPatternIsAnError(t *testing.T) {
	if _, err := NewFilter("a,(", false); err == nil || !strings.Contains(err.Error(), `"("`) {
		t.Errorf("error %v", err)
	}
}

func TestParseEvent(t *testing.T) {
	msg := func(parts ...string) []byte { return []byte(strings.Join(parts, "\x00") + "\x00") }
	for name, c := range map[string]struct {
		msg  []byte
		want Event
		ok   bool
	}{
		"a disk":      {msg("add@/devices/pci/block/sdb", "ACTION=add", "DEVPATH=/devices/pci/block/sdb", "SUBSYSTEM=block", "DEVNAME=sdb"), Event{"add", "sdb"}, true},
		"a full path": {msg("change@/x", "ACTION=change", "SUBSYSTEM=block", "DEVNAME=/dev/loop3"), Event{"change", "loop3"}, true},
		"a network":   {msg("add@/x", "ACTION=add", "SUBSYSTEM=net", "INTERFACE=eth0"), Event{}, false},
		"no device":   {msg("add@/x", "ACTION=add", "SUBSYSTEM=block"), Event{}, false},
		"udev":        {msg("libudev", "ACTION=add", "SUBSYSTEM=block", "DEVNAME=sdb"), Event{}, false},
		"nothing":     {nil, Event{}, false},
	} {
		if got, ok := ParseEvent(c.msg); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

// stored collects what a daemon stores, and when.
type stored struct {
	at    []time.Duration
	what  []string
	fails int
}

func (s *stored) daemon(start time.Time, list func() ([]Disk, error)) Daemon {
	return Daemon{List: list, Interval: time.Hour, Say: func(string) {}, Store: func(_ context.Context, b []byte) error {
		if s.fails > 0 {
			s.fails--
			return errors.New("no API server")
		}
		var disks []Disk
		if err := json.Unmarshal(b, &disks); err != nil {
			return err
		}
		var names []string
		for _, d := range disks {
			names = append(names, d.Name)
		}
		s.at, s.what = append(s.at, time.Since(start)), append(s.what, strings.Join(names, " "))
		return nil
	}}
}

func TestDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		disks := []Disk{{Name: "sda"}}
		var s stored
		events := make(chan string)
		go s.daemon(time.Now(), func() ([]Disk, error) { return disks, nil }).Run(ctx, events)
		time.Sleep(10 * time.Minute)
		// A disk and its partitions come within some seconds: one reading.
		disks = append(disks, Disk{Name: "sdb"})
		events <- "sdb"
		time.Sleep(3 * time.Second)
		disks = append(disks, Disk{Name: "sdb1"})
		events <- "sdb1"
		time.Sleep(10 * time.Minute)
		events <- "sdb" // nothing has changed: nothing is stored
		time.Sleep(45 * time.Minute)
		cancel()
		synctest.Wait()
		want := stored{
			at:   []time.Duration{0, 10*time.Minute + 8*time.Second, time.Hour},
			what: []string{"sda", "sda sdb sdb1", "sda sdb sdb1"},
		}
		if diff := cmp.Diff(want.at, s.at); diff != "" {
			t.Errorf("when (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.what, s.what); diff != "" {
			t.Errorf("what (-want +got):\n%s", diff)
		}
	})
}

func TestDaemonTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := stored{fails: 2}
		events := make(chan string)
		close(events)
		go s.daemon(time.Now(), func() ([]Disk, error) { return nil, nil }).Run(ctx, events)
		time.Sleep(30 * time.Minute)
		cancel()
		synctest.Wait()
		if diff := cmp.Diff([]time.Duration{2 * time.Minute}, s.at); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestStore(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/ns/configmaps/local-device-n1.example.com" || r.Header.Get("Authorization") != "Bearer canary" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	}))
	defer srv.Close()
	s := Storer{Client: &statusmap.Client{Server: srv.URL, TokenFile: token, HTTP: srv.Client()}, Namespace: "ns", Node: "n1.example.com"}
	if err := s.Store(t.Context(), []byte("[]")); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"devices": "[]"},
		"metadata": map[string]any{"name": "local-device-n1.example.com", "namespace": "ns", "labels": map[string]any{"app": "rook-discover", "rook.io/node": "n1.example.com", "castellan.ceph.io/owned": "true"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	status = http.StatusForbidden
	if err := s.Store(t.Context(), []byte("[]")); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("refused: %v", err)
	}
}

// The kernel lets anybody listen, and the channel ends with the context.
func TestListenEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	names, err := Listen(ctx, filter(t, false))
	if err != nil {
		t.Skipf("this machine has no events of the kernel: %v", err)
	}
	cancel()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case _, ok := <-names:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("still listening")
		}
	}
}
