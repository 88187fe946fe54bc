package noderun_test

import (
	"testing"

	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

// TestLayouts makes an encrypted OSD without a database of its own, and one on a volume
// that somebody has made. Each is activated after a restart of the machine, before it
// ever ran and after. (Two on one disk: TestSeveralPerDevice.)
func TestLayouts(t *testing.T) {
	n := start(t, "layouts", 2)
	guesttest.Must(t, n.g, "vgcreate", "data", "/dev/ubdc")
	guesttest.Must(t, n.g, "lvcreate", "--yes", "--extents", "90%FREE", "--name", "one", "data")
	osds := n.provisionNamed([]map[string]any{
		{"ref": "/dev/ubdb", "config": map[string]any{"Encrypted": true, "DeviceClass": "ssd"}},
		{"ref": "/dev/data/one"},
	})
	if len(osds) != 2 || osds[0].Mode != "lvm" || osds[1].Mode != "lvm" || osds[0].DB != nil || osds[1].DB != nil {
		t.Fatalf("%+v", osds)
	}
	e, v := osds[0], osds[1]
	if v.Encrypted {
		e, v = v, e
	}
	if !e.Encrypted || e.Data.Serial != "DISK1" || v.Encrypted || v.Data.VG != "data" || v.Data.LV != "one" || v.Data.Serial != "DISK2" {
		t.Errorf("encrypted %+v, on a volume %+v", e, v)
	}
	n.likeCephVolume()
	n.phase("provision both")
	for _, o := range osds {
		n.reboot(o)
	}
	n.up(osds...)
	n.pool()
	n.write()
	n.phase("activated, up, clean, data written")
	n.restart(osds...)
	n.phase("restarted")
	n.up(osds...)
	n.wait(n.c.WaitClean)
	n.read()
	n.phase("activated, up, clean, data read")
}
