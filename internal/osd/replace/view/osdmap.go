package view

import (
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
)

// Holds finds an OSD that Ceph still has as the one that it was: not destroyed, and not made
// anew.
func Holds(m cephosd.Map, id int, uuid string) (cephosd.OSD, bool) {
	o, exists := m.Find(id)
	return o, exists && !o.Destroyed() && o.UUID == uuid
}

// MadeAnew finds an OSD that Ceph has under another uuid than it had.
func MadeAnew(m cephosd.Map, id int, uuid string) (cephosd.OSD, bool) {
	o, exists := m.Find(id)
	return o, exists && !o.Destroyed() && o.UUID != uuid
}

// Void reports whether nothing can be lost with an OSD that Ceph does not call safe to
// destroy: the mons' map says that no data was ever on it (empty), and the mgr knows of no PG
// on it. What is left of the mgr's objection is that an OSD that is down does not report
// while PGs elsewhere are not clean, or have not been reported themselves.
func Void(o cephosd.OSD, a cephosd.Safety) bool { return empty(o) && a.Unreported }

// empty reports whether the mons' map proves that an OSD has no data: it is destroyed; or it
// was claimed ("new", a flag that goes when an OSD is marked in) and is out, so that it was
// never in since; or it has never been up at all. An id that is claimed for the first time is
// in from the beginning, and one that was destroyed before has been up as what it was then:
// neither flag alone would do.
func empty(o cephosd.OSD) bool {
	if bool(o.Up) {
		return false
	}
	return o.Destroyed() || o.New() && (!bool(o.In) || o.UpFrom == 0)
}

// Settled reports whether there are PGs and none of them is on its way to more copies.
func Settled(stat pg.Stat) bool {
	for _, n := range stat.ByState {
		for _, word := range []string{"recovering", "recovery_wait", "backfilling", "backfill_wait", "peering", "activating", "creating", "unknown", "forced_recovery", "forced_backfill"} {
			if pg.HasState(n.Name, word) && n.Num > 0 {
				return false
			}
		}
	}
	return stat.NumPGs > 0
}
