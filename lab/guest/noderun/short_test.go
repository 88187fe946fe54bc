package noderun_test

import (
	"testing"

	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

// TestNeverStarted replaces the disk of an OSD that was made and never ran, on a shared
// database device: first as it should go, then with a mkfs that fails once.
func TestNeverStarted(t *testing.T) {
	n := start(t, "short", 3)
	osds := n.provision([]string{"/dev/ubdb", "/dev/ubdc"}, map[string]any{"MetadataDevice": "/dev/ubdd", "DatabaseSizeMB": 2048})
	if len(osds) != 2 {
		t.Fatalf("%+v", osds)
	}
	old := n.osd(0)
	heads := n.heads(n.osd(1))
	swap := func(pull, add string) map[string]any {
		t.Helper()
		n.redestroy(0)
		_, err := n.g.PullDisk(t.Context(), pull)
		n.ok(err)
		d, err := n.g.AddDisk(t.Context(), 10*guesttest.GiB, add)
		n.ok(err)
		return n.request(old, d.ByID(), add, n.osds())
	}
	same := func(when string) {
		t.Helper()
		if got := n.heads(n.osd(1)); got != heads {
			t.Errorf("%s: the sibling's volumes have changed:\n%s\n%s", when, heads, got)
		}
	}
	req := swap(old.Data.Serial, "NEW1")
	r := n.replace(req, "done", "")
	same("after the replacement")
	if again := n.replace(req, "done", ""); again.UUID != r.UUID {
		t.Errorf("a second run made another OSD: %s, then %s", r.UUID, again.UUID)
	}
	fresh := n.osd(0)
	if fresh.UUID == old.UUID || fresh.DB == nil || fresh.DB.LVUUID != old.DB.LVUUID || fresh.Data.Serial != "NEW1" {
		t.Errorf("osd.0 is %+v, DB %+v, was %+v", fresh, fresh.DB, old.DB)
	}
	old = fresh
	req = swap("NEW1", "NEW2")
	guesttest.Must(t, n.g, "mount", "--bind", "/usr/bin/false", "/usr/bin/ceph-osd")
	r = n.replace(req, "failed", "PrepareFailed")
	guesttest.Must(t, n.g, "umount", "/usr/bin/ceph-osd")
	if len(r.Remade) != 1 || r.Remade[0] != old.DB.VG+"/"+old.DB.LV {
		t.Errorf("remade %v, slot %s", r.Remade, r.Slot)
	}
	same("after mkfs failed")
	n.replace(req, "done", "")
	same("at the end")
}
