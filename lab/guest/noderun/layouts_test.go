package noderun_test

import (
	"testing"

	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

// TestLayouts makes OSDs in the layouts without a shared database: one encrypted, two on
// one disk, one on a volume that somebody has made. Each is activated after a restart of
// the machine, before it ever ran and after.
func TestLayouts(t *testing.T) {
	n := start(t, "layouts", 3)
	guesttest.Must(t, n.g, "vgcreate", "data", "/dev/ubdd")
	guesttest.Must(t, n.g, "lvcreate", "--yes", "--extents", "90%FREE", "--name", "one", "data")
	osds := n.provisionNamed([]map[string]any{
		{"ref": "/dev/ubdb", "config": map[string]any{"Encrypted": true, "DeviceClass": "ssd"}},
		{"ref": "/dev/ubdc", "config": map[string]any{"OSDsPerDevice": 2}},
		{"ref": "/dev/data/one"},
	})
	on := map[string][]osd{}
	for _, o := range osds {
		on[o.Data.Serial] = append(on[o.Data.Serial], o)
		if o.Mode != "lvm" || o.DB != nil {
			t.Errorf("osd.%d: %+v", o.ID, o)
		}
	}
	if len(osds) != 4 || len(on["DISK1"]) != 1 || len(on["DISK2"]) != 2 || len(on["DISK3"]) != 1 {
		t.Fatalf("%+v", osds)
	}
	if e, v := on["DISK1"][0], on["DISK3"][0]; !e.Encrypted || v.Encrypted || v.Data.VG != "data" || v.Data.LV != "one" {
		t.Errorf("encrypted %+v, on a volume %+v", e, v)
	}
	for _, o := range on["DISK2"] {
		if o.Encrypted || o.Data.Size < 4*guesttest.GiB || o.Data.Size > 6*guesttest.GiB {
			t.Errorf("one of two: %+v", o)
		}
	}
	n.likeCephVolume()
	for _, o := range osds {
		n.reboot(o)
	}
	n.up(osds...)
	n.pool()
	n.write()
	n.restart(osds...)
	n.up(osds...)
	n.wait(n.c.WaitClean)
	n.read()
}
