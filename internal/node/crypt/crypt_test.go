package crypt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/request"
)

const (
	dataUUID = "ozJNPe-J6Fy-hwX9-TETv-ScJ5-ElDa-HJL4l4"
	dbUUID   = "iiMSMr-cNbb-zMpH-Ih40-YK2Y-ufuX-TDu6Wa"
	vgUUID   = "0123456789abcdefghijklmnopqrstuv"
)

// sysfs is a fake /sys whose mappings cryptsetup closes.
type sysfs struct {
	t    *testing.T
	root string
	ran  []string
	busy map[string]bool
	// lies: cryptsetup says yes and does nothing.
	lies bool
}

func newSysfs(t *testing.T) *sysfs {
	s := &sysfs{t: t, root: t.TempDir(), busy: map[string]bool{}}
	s.add("sda", "", "")
	s.add("dm-0", "ceph--a-osd--block--b", "LVM-"+vgUUID+strings.ReplaceAll(dataUUID, "-", ""), "sda")
	s.add("dm-1", "ceph--fast-osd--db--1", "LVM-"+vgUUID+strings.ReplaceAll(dbUUID, "-", ""), "sdb")
	s.add("dm-2", "ceph--fast-osd--db--2", "LVM-"+vgUUID+"otherotherotherotherotherotherot", "sdb")
	s.add("dm-3", dataUUID, "CRYPT-LUKS2-0011-"+dataUUID, "dm-0")
	s.add("dm-4", dbUUID, "CRYPT-LUKS2-0022-"+dbUUID, "dm-1")
	s.add("dm-5", "sibling", "CRYPT-LUKS2-0033-sibling", "dm-2")
	return s
}

func (s *sysfs) add(kernel, name, uuid string, slaves ...string) {
	dir := filepath.Join(s.root, "sys/block", kernel)
	for _, d := range []string{"dm", "slaves", "holders"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	for f, v := range map[string]string{"dm/name": name, "dm/uuid": uuid} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(v+"\n"), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, sl := range slaves {
		if err := os.MkdirAll(filepath.Join(dir, "slaves", sl), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *sysfs) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	s.ran = append(s.ran, name+" "+strings.Join(args, " "))
	if s.busy[args[1]] {
		return nil, errors.New("Device is still in use")
	}
	if s.lies {
		return nil, nil
	}
	all, err := os.ReadDir(filepath.Join(s.root, "sys/block"))
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		dir := filepath.Join(s.root, "sys/block", e.Name())
		if b, _ := os.ReadFile(filepath.Join(dir, "dm/name")); strings.TrimSpace(string(b)) == args[1] {
			return nil, os.RemoveAll(dir)
		}
	}
	return nil, errors.New("not active")
}

var lvs = []request.LV{{VG: "ceph-a", Name: "osd-block-b", UUID: dataUUID}, {VG: "ceph-fast", Name: "osd-db-1", UUID: dbUUID}}

func TestCloseOnlyOurs(t *testing.T) {
	s := newSysfs(t)
	closed, err := Host{s.root, s}.Close(t.Context(), lvs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{dataUUID, dbUUID}, closed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"cryptsetup close " + dataUUID, "cryptsetup close " + dbUUID}, s.ran); diff != "" {
		t.Error(diff)
	}
	s.ran = nil
	if closed, err := (Host{s.root, s}).Close(t.Context(), lvs); err != nil || len(closed) != 0 || len(s.ran) != 0 {
		t.Errorf("closing again: %v, %v, ran %v", closed, err, s.ran)
	}
}

func TestByNamesWhereTheUUIDIsNotKnown(t *testing.T) {
	s := newSysfs(t)
	open, err := Host{s.root, s}.Open([]request.LV{{VG: "ceph-fast", Name: "osd-db-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Mapping{{Name: dbUUID, Kernel: "dm-4", Of: "ceph-fast/osd-db-1"}}, open); diff != "" {
		t.Error(diff)
	}
}

func TestTheDiskBelowIsGone(t *testing.T) {
	s := newSysfs(t)
	if err := os.RemoveAll(filepath.Join(s.root, "sys/block/dm-0")); err != nil {
		t.Fatal(err)
	}
	if open, err := (Host{s.root, s}).Open(lvs[:1]); err != nil || len(open) != 1 || open[0].Kernel != "dm-3" {
		t.Errorf("%+v, %v", open, err)
	}
}

func TestNotClosed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *sysfs)
		says   string
	}{
		"busy":   {func(s *sysfs) { s.busy[dbUUID] = true }, "still in use"},
		"a lie":  {func(s *sysfs) { s.lies = true }, "still open: " + dataUUID},
		"a user": {func(s *sysfs) { s.add("dm-9", "snap", "LVM-x", "dm-4"); s.hold("dm-4", "dm-9") }, "dm-9 (snap)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSysfs(t)
			c.change(s)
			if _, err := (Host{s.root, s}).Close(t.Context(), lvs); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("err = %v, want %q in it", err, c.says)
			}
		})
	}
}

// A mapping that was made by hand carries no uuid of dm-crypt's; luksFormat fails on the
// volume below it all the same, and nobody notices.
func TestByHand(t *testing.T) {
	for name, below := range map[string]string{"by-hand": "dm-1", dbUUID: "sdz"} {
		s := newSysfs(t)
		if err := os.RemoveAll(filepath.Join(s.root, "sys/block/dm-4")); err != nil {
			t.Fatal(err)
		}
		s.add("dm-8", name, "", below)
		s.add("dm-9", "snapshot", "LVM-x", "dm-1")
		if open, err := (Host{s.root, s}).Open(lvs); err != nil || len(open) != 2 || open[1].Kernel != "dm-8" {
			t.Errorf("%s: %+v, %v", name, open, err)
		}
	}
}

// What cannot be read of a device that is there is not nothing.
func TestHalfReadable(t *testing.T) {
	for _, part := range []string{"dm/uuid", "dm/name", "slaves", "holders"} {
		s := newSysfs(t)
		if err := os.RemoveAll(filepath.Join(s.root, "sys/block/dm-4", part)); err != nil {
			t.Fatal(err)
		}
		if open, err := (Host{s.root, s}).Open(lvs); err == nil {
			t.Errorf("without %s: %+v", part, open)
		}
	}
}

func (s *sysfs) hold(kernel, holder string) {
	if err := os.MkdirAll(filepath.Join(s.root, "sys/block", kernel, "holders", holder), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func TestUnreadableIsNotClosed(t *testing.T) {
	if _, err := (Host{t.TempDir(), nil}).Close(t.Context(), lvs); err == nil {
		t.Error("no /sys was taken for nothing open")
	}
}
