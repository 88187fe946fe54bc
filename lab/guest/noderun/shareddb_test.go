package noderun_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

// TestSharedDB prepares three OSDs with their databases on one disk, and replaces the
// data disk of one of them, with what can go wrong on the way.
func TestSharedDB(t *testing.T) {
	for name, encrypted := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) { sharedDB(t, encrypted) })
	}
}

func sharedDB(t *testing.T, encrypted bool) {
	n := start(t, "shareddb", 4)
	osds := n.provision([]string{"/dev/ubdb", "/dev/ubdc", "/dev/ubdd"}, map[string]any{"MetadataDevice": "/dev/ubde", "DatabaseSizeMB": 2048, "Encrypted": encrypted})
	if len(osds) != 3 {
		t.Fatalf("%d OSDs: %+v", len(osds), osds)
	}
	for _, o := range osds {
		if o.Mode != "lvm" || o.Encrypted != encrypted || o.DB == nil || o.DB.Serial != "DISK4" || o.DB.Size != 2*guesttest.GiB {
			t.Fatalf("osd.%d: %+v, DB %+v", o.ID, o, o.DB)
		}
	}
	n.phase("provision three OSDs")
	n.up(osds...)
	n.phase("three OSDs up")
	n.pool()
	n.write()
	n.phase("pool, clean, data written")
	old := n.osd(0)
	slot := n.destroy(old, []string{"serial DISK1", "serial DISK2", "serial DISK3", "serial DISK4"})
	n.phase("out, drained, stopped, destroyed")
	siblings, heads, upFrom := osds[1:], n.heads(4096, osds[1:]...), n.upFrom()
	check := func(when string) {
		t.Helper()
		if got := n.heads(4096, siblings...); got != heads {
			t.Errorf("%s: the siblings' volumes have changed:\n%s\n%s", when, heads, got)
		}
		if got := n.upFrom(); got[1] != upFrom[1] || got[2] != upFrom[2] {
			t.Errorf("%s: a sibling was down: %v, before %v", when, got, upFrom)
		}
	}
	// The old disk still plugged in: nothing is found, and nothing is started from it.
	swapped := func() (m struct{ Device, Serial string }) {
		t.Helper()
		var out struct {
			Matches map[string]struct{ Device, Serial string }
		}
		n.stored("swaps", &out)
		return out.Matches["0"]
	}
	if got := n.provision([]string{"/dev/ubdb"}, nil, slot); len(got) != 2 || swapped().Device != "" {
		t.Fatalf("with the old disk: %+v, match %+v", got, swapped())
	}
	_, err := n.g.PullDisk(t.Context(), "DISK1")
	n.ok(err)
	_, err = n.g.AddDisk(t.Context(), 10*guesttest.GiB, "NEW1")
	n.ok(err)
	n.provision([]string{"/dev/ubdb"}, nil, slot)
	m := swapped()
	if m.Serial != "NEW1" {
		t.Fatalf("match %+v", m)
	}
	n.phase("old disk passed over, swap found")
	req := n.request(old, m.Device, m.Serial, osds)
	with := func(change map[string]any) map[string]any {
		r := maps.Clone(req)
		maps.Copy(r, change)
		return r
	}
	n.replace(with(map[string]any{"serial": "OTHER"}), "refused", "WrongDisk")
	n.replace(with(map[string]any{"minSize": 20 * guesttest.GiB}), "refused", "DiskTooSmall")
	n.replace(with(map[string]any{"device": "/dev/ubdc", "serial": "DISK2"}), "refused", "DiskInUse")
	n.badDisk(with)
	check("after what was refused")
	n.phase("four disks refused, one of them broken")
	if encrypted {
		n.mappingOpen(old, req)
		n.phase("mapping held open refused, then closed")
	}
	// mkfs fails once, after the claim.
	guesttest.Must(t, n.g, "mount", "--bind", "/usr/bin/false", "/usr/bin/ceph-osd")
	r := n.replace(req, "failed", "PrepareFailed")
	guesttest.Must(t, n.g, "umount", "/usr/bin/ceph-osd")
	if len(r.Remade) != 1 || r.Remade[0] != old.DB.VG+"/"+old.DB.LV {
		t.Errorf("remade %v", r.Remade)
	}
	t.Logf("after mkfs failed the slot is %s: %s", r.Slot, r.Message)
	check("after mkfs failed")
	n.phase("mkfs fails")
	// It is killed on the way.
	n.killed(req)
	check("after it was killed")
	cut := ""
	if encrypted {
		cut = n.leftOpen(old.DB)
	}
	n.phase("killed in mkfs")
	r = n.replaceAfterKill(req)
	check("after the replacement")
	if encrypted && n.luks(old.DB) == cut {
		t.Errorf("%s/%s has kept the key of the attempt that was killed", old.DB.VG, old.DB.LV)
	}
	n.phase("replaced")
	if r.Serial != "NEW1" {
		t.Errorf("answer %+v", r)
	}
	again := n.replace(req, "done", "")
	if again.UUID != r.UUID {
		t.Errorf("a second run made another OSD: %s, then %s", r.UUID, again.UUID)
	}
	n.phase("a second run finds it made")
	fresh := n.osd(0)
	if fresh.UUID == old.UUID || fresh.Encrypted != encrypted || fresh.DB == nil || fresh.DB.VG != old.DB.VG || fresh.DB.LV != old.DB.LV || fresh.DB.Size != old.DB.Size || fresh.Data.Serial != "NEW1" {
		t.Errorf("osd.0 is %+v, DB %+v, was %+v", fresh, fresh.DB, old.DB)
	}
	n.reboot(fresh)
	n.up(fresh)
	n.wait(n.c.WaitClean)
	n.read()
	check("at the end")
	n.phase("activated, up, clean, data read")
	if encrypted {
		for _, lv := range lvs(fresh) {
			if out := guesttest.Must(t, n.g, "cryptsetup", "status", lv["uuid"].(string)); !strings.Contains(out, "LUKS") {
				t.Errorf("%v is not encrypted: %s", lv, out)
			}
		}
	}
}

// badDisk tries a disk whose second half cannot be read: it is found out before
// anything is claimed.
func (n *node) badDisk(with func(map[string]any) map[string]any) {
	n.t.Helper()
	const half = 5 * guesttest.GiB / 512
	n.put("/run/castellan/table", fmt.Appendf(nil, "0 %d linear /dev/ubdb 0\n%d %d error\n", half, half, half), 0o600)
	guesttest.Must(n.t, n.g, "dmsetup", "create", "bad", "/run/castellan/table")
	loop := strings.TrimSpace(guesttest.Must(n.t, n.g, "losetup", "--find", "--show", "/dev/mapper/bad"))
	if r := n.replace(with(map[string]any{"device": loop, "serial": "", "allowLoop": true}), "refused", "DiskBroken"); r.Slot != "destroyed" {
		n.t.Errorf("slot %s", r.Slot)
	}
	guesttest.Must(n.t, n.g, "losetup", "--detach", loop)
	guesttest.Must(n.t, n.g, "dmsetup", "remove", "--retry", "bad")
}

// mappingOpen holds the old database's mapping open (DANGER 1): nothing may be
// prepared, and nothing lost by it.
func (n *node) mappingOpen(old osd, req map[string]any) {
	n.t.Helper()
	n.put("/run/castellan/key", []byte("0123456789abcdef0123456789abcdef"), 0o600)
	path := "/dev/" + old.DB.VG + "/" + old.DB.LV
	guesttest.Must(n.t, n.g, "cryptsetup", "open", "--type", "plain", "--cipher", "aes-xts-plain64", "--key-size", "256", "--key-file", "/run/castellan/key", path, old.DB.LVUUID)
	stop := n.background("tail", "-f", "/dev/mapper/"+old.DB.LVUUID)
	n.poll("tail to have it open", 10*time.Second, func() error {
		out := guesttest.Must(n.t, n.g, "dmsetup", "info", "-c", "--noheadings", "-o", "open", old.DB.LVUUID)
		if strings.TrimSpace(out) == "0" {
			return errors.New("nobody has it open")
		}
		return nil
	})
	if out, ok := n.run("close", map[string]any{"osd": old.ID, "uuid": old.UUID, "lvs": lvs(old)}); ok || !strings.Contains(out, old.DB.LVUUID) {
		n.t.Errorf("close of a mapping in use: %v\n%s", ok, out)
	}
	if r := n.replace(req, "refused", "MappingOpen"); r.Slot != "destroyed" {
		n.t.Errorf("slot %s", r.Slot)
	}
	stop()
	n.must("close", map[string]any{"osd": old.ID, "uuid": old.UUID, "lvs": lvs(old)})
}

// killed ends a replacement the hard way while ceph-volume makes the OSD.
func (n *node) killed(req map[string]any) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.runCtx(ctx, "replace", req)
	}()
	n.poll("mkfs", patience, func() error {
		res, err := n.g.Exec(n.t.Context(), "pgrep", "-f", "ceph-osd.*--mkfs")
		if err == nil && res.ExitCode != 0 {
			err = errors.New("it does not run")
		}
		return err
	})
	for _, what := range []string{"castellan-node replace", "ceph-volume", "ceph-osd.*--mkfs"} {
		_, _ = n.g.Exec(n.t.Context(), "pkill", "-KILL", "-f", what)
	}
	cancel()
	<-done
}

// leftOpen proves that the database volume is one that was made again, and that the
// attempt that was killed has left it open under its new uuid, which is in no record
// (DANGER 1). It gives the header's uuid: one that was formatted anew has another.
func (n *node) leftOpen(p *part) string {
	n.t.Helper()
	uuid := strings.TrimSpace(guesttest.Must(n.t, n.g, "lvs", "--noheadings", "-o", "lv_uuid", p.VG+"/"+p.LV))
	if uuid == p.LVUUID {
		n.t.Errorf("%s/%s is still the recorded volume %s", p.VG, p.LV, uuid)
	}
	if names := strings.Fields(guesttest.Must(n.t, n.g, "dmsetup", "info", "-c", "--noheadings", "-o", "name")); !slices.Contains(names, uuid) {
		n.t.Errorf("the attempt that was killed has left no mapping %s: %v", uuid, names)
	}
	return n.luks(p)
}

// luks is the uuid in the header of an encrypted volume.
func (n *node) luks(p *part) string {
	n.t.Helper()
	return strings.TrimSpace(guesttest.Must(n.t, n.g, "cryptsetup", "luksUUID", "/dev/"+p.VG+"/"+p.LV))
}

// replaceAfterKill finishes what was cut off: either it was whole, or the id has to be
// destroyed again first.
func (n *node) replaceAfterKill(req map[string]any) replaced {
	n.t.Helper()
	if _, ok := n.run("replace", req); ok {
		var r replaced
		n.stored("replace", &r)
		n.t.Logf("it was whole already: %+v", r)
		return r
	}
	var r replaced
	n.stored("replace", &r)
	if r.Result != "refused" || r.Reason != "SlotClaimed" || r.Slot != "new" {
		n.t.Fatalf("after the kill: %+v", r)
	}
	n.redestroy(r.OSD)
	return n.replace(req, "done", "")
}

// reboot ends with what a restart of the machine leaves of an OSD that does not run:
// no mapping, no active volume.
func (n *node) reboot(o osd) {
	n.t.Helper()
	n.must("close", map[string]any{"osd": o.ID, "uuid": o.UUID, "lvs": lvs(o)})
	for _, p := range []*part{&o.Data, o.DB} {
		if p != nil && p.VG != "" {
			guesttest.Must(n.t, n.g, "lvchange", "-an", p.VG+"/"+p.LV)
		}
	}
}
