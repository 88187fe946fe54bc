package config

import (
	"maps"
	"time"

	cephconfig "github.com/castellan-storage/castellan/internal/ceph/config"
)

// While a cluster is being founded, daemons report to the mgr each second instead of each
// five (mgr_stats_period): its first PG is then known to be clean when it is, and not up
// to ten seconds later. The option is removed again when all PGs are clean, so that a
// cluster that runs has Ceph's own.

// foundingName is the option, which counts in whole seconds; foundingWho the section
// that it is read from, and foundingValue the value while a cluster is being founded.
const (
	foundingName  = "mgr_stats_period"
	foundingWho   = "mgr"
	foundingValue = "1"
)

// foundingTime is when founding is over at the latest: a cluster with too few OSDs for a
// first pool never gets one.
const foundingTime = 15 * time.Minute

// foundingAgain is how soon a cluster is looked at again that is being founded.
const foundingAgain = 5 * time.Second

// Founding is what tells that a cluster is being founded.
type Founding struct {
	// Age of the CephCluster.
	Age time.Duration
	// Pools is how many there are. The mgr makes the first one as soon as there are OSDs
	// enough for it, so that a cluster without has never held anything.
	Pools int
	// AllClean says that all PGs of these pools are active and clean. It is asked for only
	// while the option is set.
	AllClean bool
}

// foundingOption is what founding sets.
func foundingOption() Option { return Option{foundingWho, foundingName} }

// begun says that the record knows of the option as founding sets it.
func begun(record Record) bool {
	e, known := record[foundingOption().String()]
	return known && e.Want == hash(foundingValue)
}

// underway says that the option is set for a cluster that is young enough to be founded.
func (f Founding) underway(record Record) bool { return f.Age < foundingTime && begun(record) }

// wanted says whether the option is to be set, now that nobody else has.
func (f Founding) wanted(begun bool) bool {
	switch {
	case f.Age >= foundingTime:
		return false
	case begun:
		return f.Pools == 0 || !f.AllClean
	}
	return f.Pools == 0
}

// add adds the option to the settings wanted, and gives the record to compare with.
// Where somebody else has set it, by whatever way, it is theirs: the record forgets it
// then, and Compare leaves it.
func (f Founding) add(want map[Option]Value, have []cephconfig.Option, record Record) (map[Option]Value, Record) {
	for o := range want {
		if o.Name == foundingName {
			return want, record
		}
	}
	o, begun := foundingOption(), begun(record)
	for _, h := range have {
		switch {
		case h.Name != foundingName:
		case !begun:
			return want, record
		case h.Who() == o.Who && !equal(h.Value, foundingValue):
			record = maps.Clone(record)
			delete(record, o.String())
			return want, record
		}
	}
	if f.wanted(begun) {
		all := map[Option]Value{o: plain(foundingValue)}
		maps.Copy(all, want)
		want = all
	}
	return want, record
}
