package jobs

import (
	"testing"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
)

// The databases of all OSDs that wait for one metadata device come into one volume group,
// whatever group each was in last.
func TestDatabasesOfTwoSetsComeIntoOneGroup(t *testing.T) {
	set := &plan.Set{Kind: plan.OnMetadata, Leader: 4, Members: []plan.Member{{ID: 4, UUID: "v4"}}}
	for _, c := range []struct {
		name string
		vg   string // that is joined
		of   string // its own
	}{{"it joins others", "vg-OLD", "vg-X"}, {"it is in that group", "", "vg-OLD"}} {
		note := &plan.Note{UUID: "v4", Node: "n1", Host: "n1", Set: set, Attempt: &plan.Attempt{Number: 1, Device: "/dev/nvme2n1", Serial: "Y", VG: c.vg},
			Record: prepare.Result{ID: 4, UUID: "v4", Mode: "lvm", Data: prepare.Part{Path: "/dev/sde", Serial: "HDD4", VG: "data", LV: "block", LVUUID: "lv"}, DB: &prepare.Part{VG: c.of, LV: "db4", LVUUID: "db-v4"}}}
		r := Inputs{}.replaceRequest(plan.State{ID: 4, Note: note})
		if r.DB == nil || r.DB.VG != "vg-OLD" || r.DB.Name != "db4" || r.DBDevice != "/dev/nvme2n1" || r.DBSerial != "Y" || r.Device != "/dev/sde" || r.Serial != "HDD4" {
			t.Errorf("%s: %+v, database %+v", c.name, r, r.DB)
		}
	}
}
