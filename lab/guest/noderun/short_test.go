package noderun_test

import (
	"testing"

	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

// TestNeverStarted replaces the disk of an OSD that was made and never ran, on a shared
// database device: first as it should go, then with a mkfs that fails once; then its
// slot is given up. The new OSD starts after a restart of the machine.
func TestNeverStarted(t *testing.T) {
	for name, encrypted := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) { neverStarted(t, encrypted) })
	}
}

func neverStarted(t *testing.T, encrypted bool) {
	n := start(t, "short", 3)
	osds := n.provision([]string{"/dev/ubdb", "/dev/ubdc"}, map[string]any{"MetadataDevice": "/dev/ubdd", "DatabaseSizeMB": 2048, "Encrypted": encrypted})
	if len(osds) != 2 || osds[0].Encrypted != encrypted {
		t.Fatalf("%+v", osds)
	}
	n.likeCephVolume()
	n.phase("provision two OSDs")
	old := n.osd(0)
	heads := n.heads(1<<20, n.osd(1))
	swap := func(pull, add string) map[string]any {
		t.Helper()
		n.must("close", map[string]any{"osd": old.ID, "uuid": old.UUID, "lvs": lvs(old)})
		n.redestroy(0)
		_, err := n.g.PullDisk(t.Context(), pull)
		n.ok(err)
		d, err := n.g.AddDisk(t.Context(), 10*guesttest.GiB, add)
		n.ok(err)
		return n.request(old, d.ByID(), add, n.osds())
	}
	same := func(when string) {
		t.Helper()
		if got := n.heads(1<<20, n.osd(1)); got != heads {
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
	if fresh.UUID == old.UUID || fresh.Encrypted != encrypted || fresh.DB == nil || fresh.DB.LVUUID != old.DB.LVUUID || fresh.Data.Serial != "NEW1" {
		t.Errorf("osd.0 is %+v, DB %+v, was %+v", fresh, fresh.DB, old.DB)
	}
	n.reboot(fresh)
	n.up(fresh)
	same("with the new OSD up")
	n.phase("replaced, activated, up")
	n.ok(n.c.StopOSD(t.Context(), 0, false))
	giveUp := func(o osd) {
		t.Helper()
		n.must("close", map[string]any{"osd": 0, "uuid": o.UUID, "lvs": lvs(o)})
		n.redestroy(0)
		n.abandon(o, n.osd(1))
		same("after the slot was given up")
	}
	if encrypted {
		giveUp(fresh) // a mkfs that fails below dm-crypt: TestSharedDB
		return
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
	n.phase("mkfs fails")
	n.replace(req, "done", "")
	same("at the end")
	n.phase("replaced")
	giveUp(n.osd(0))
	n.phase("given up")
}

// TestOwnDatabaseDevice lets mkfs fail for an OSD whose database has a device to itself:
// ceph-volume's rollback takes the whole volume group.
func TestOwnDatabaseDevice(t *testing.T) {
	n := start(t, "owndb", 2)
	osds := n.provision([]string{"/dev/ubdb"}, map[string]any{"MetadataDevice": "/dev/ubdc"})
	if len(osds) != 1 || osds[0].DB == nil {
		t.Fatalf("%+v", osds)
	}
	old := osds[0]
	n.redestroy(0)
	_, err := n.g.PullDisk(t.Context(), old.Data.Serial)
	n.ok(err)
	d, err := n.g.AddDisk(t.Context(), 10*guesttest.GiB, "NEW1")
	n.ok(err)
	req := n.request(old, d.ByID(), "NEW1", nil)
	guesttest.Must(t, n.g, "mount", "--bind", "/usr/bin/false", "/usr/bin/ceph-osd")
	r := n.replace(req, "failed", "PrepareFailed")
	guesttest.Must(t, n.g, "umount", "/usr/bin/ceph-osd")
	if len(r.Remade) != 1 || r.Remade[0] != old.DB.VG+"/"+old.DB.LV {
		t.Errorf("remade %v", r.Remade)
	}
	// The same, cut off before anything was put in order.
	guesttest.Must(t, n.g, "vgremove", "--yes", old.DB.VG)
	guesttest.Must(t, n.g, "pvremove", "--yes", "/dev/ubdc")
	if r = n.replace(req, "done", ""); len(r.Remade) != 1 {
		t.Errorf("remade %v", r.Remade)
	}
	if fresh := n.osd(0); fresh.DB == nil || fresh.DB.VG != old.DB.VG || fresh.DB.LV != old.DB.LV || fresh.DB.Size != old.DB.Size || fresh.Data.Serial != "NEW1" {
		t.Errorf("osd.0 is %+v, DB %+v, was %+v", fresh, fresh.DB, old.DB)
	}
}
