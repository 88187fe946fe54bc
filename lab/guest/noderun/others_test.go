package noderun_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/castellan-storage/castellan/lab/guest/guesttest"
)

// TestSeveralPerDevice replaces a disk that carries two OSDs: each gets its share of the
// new one, under its old id.
func TestSeveralPerDevice(t *testing.T) {
	for name, encrypted := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) { severalPerDevice(t, encrypted) })
	}
}

func severalPerDevice(t *testing.T, encrypted bool) {
	n := start(t, "perdevice", 3)
	two := n.provision([]string{"/dev/ubdb"}, map[string]any{"OSDsPerDevice": 2, "Encrypted": encrypted})
	if len(two) != 2 || two[0].Data.Serial != "DISK1" || two[1].Data.Serial != "DISK1" || two[0].Encrypted != encrypted || two[1].Encrypted != encrypted {
		t.Fatalf("%+v", two)
	}
	all := n.provision([]string{"/dev/ubdc", "/dev/ubdd"}, nil)
	for _, o := range two {
		n.reboot(o) // activation has to open what a restart has closed
	}
	n.phase("provision four OSDs, two of them on one disk")
	n.up(all...)
	n.phase("up")
	n.pool()
	n.write()
	var slots []map[string]any
	for _, o := range two {
		slots = append(slots, n.destroy(o, []string{"serial DISK1", "serial DISK2", "serial DISK3"}))
	}
	_, err := n.g.PullDisk(t.Context(), "DISK1")
	n.ok(err)
	_, err = n.g.AddDisk(t.Context(), 10*guesttest.GiB, "NEW1")
	n.ok(err)
	n.provision([]string{"/dev/ubdb"}, nil, slots...)
	var swaps struct {
		Matches map[string]struct{ Device, Serial string }
	}
	n.stored("swaps", &swaps)
	n.phase("clean, data written, two destroyed, swap found")
	if swaps.Matches["0"].Serial != "NEW1" || swaps.Matches["0"] != swaps.Matches["1"] {
		t.Fatalf("swaps %+v", swaps)
	}
	set := []string{two[0].UUID, two[1].UUID}
	var made []osd
	for _, o := range two {
		req := n.request(o, swaps.Matches["0"].Device, "NEW1", nil)
		req["set"] = set
		r := n.replace(req, "done", "")
		t.Logf("MEASURED replace osd.%d %v", o.ID, r.Seconds)
		made = append(made, n.osd(o.ID))
	}
	n.phase("two replaced")
	for i, o := range made {
		if o.Data.Serial != "NEW1" || o.UUID == two[i].UUID || o.Data.Size < 4*guesttest.GiB || o.Data.Size > 6*guesttest.GiB {
			t.Errorf("osd.%d: %+v", o.ID, o.Data)
		}
	}
	for _, o := range made {
		n.reboot(o)
	}
	n.up(made...)
	n.wait(n.c.WaitClean)
	n.read()
	n.phase("activated, up, clean, data read")
}

// TestMetadataLost rebuilds two OSDs whose common metadata device has gone, on their
// own data disks and a new device, under their old ids.
func TestMetadataLost(t *testing.T) {
	n := start(t, "metalost", 5)
	two := n.provision([]string{"/dev/ubdb", "/dev/ubdc"}, map[string]any{"MetadataDevice": "/dev/ubdd"})
	if len(two) != 2 || two[0].DB == nil || two[1].DB == nil || two[0].DB.Serial != "DISK3" {
		t.Fatalf("%+v", two)
	}
	n.up(n.provision([]string{"/dev/ubde", "/dev/ubdf"}, nil)...)
	n.pool()
	n.write()
	n.phase("provision four OSDs, up, data written")
	for _, o := range two {
		n.destroy(o, nil)
	}
	n.phase("two destroyed")
	_, err := n.g.PullDisk(t.Context(), "DISK3")
	n.ok(err)
	_, err = n.g.AddDisk(t.Context(), 10*guesttest.GiB, "FAST2")
	n.ok(err)
	var made []osd
	for _, o := range two {
		req := n.request(o, o.Data.ByID, o.Data.Serial, nil)
		req["data"] = o.Data.lv()
		// Without the new device it must not begin.
		n.replace(maps.Clone(req), "refused", "DBMissing")
		req["dbDevice"], req["dbSerial"] = "/dev/disk/by-id/ubd-UBD_FAST2", "FAST2"
		n.replace(req, "done", "")
		made = append(made, n.osd(o.ID))
	}
	n.phase("two rebuilt")
	for i, o := range made {
		if o.Data.Serial != two[i].Data.Serial || o.UUID == two[i].UUID || o.DB == nil || o.DB.Serial != "FAST2" || o.DB.Size != two[i].DB.Size {
			t.Errorf("osd.%d: %+v, DB %+v", o.ID, o.Data, o.DB)
		}
	}
	if !slices.Equal([]string{made[0].DB.VG}, []string{made[1].DB.VG}) {
		t.Errorf("the databases are in %s and %s", made[0].DB.VG, made[1].DB.VG)
	}
	n.up(made...)
	n.wait(n.c.WaitClean)
	n.read()
	n.phase("activated, up, clean, data read")
}
