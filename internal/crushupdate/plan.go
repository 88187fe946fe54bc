// Package crushupdate keeps what Ceph knows of existing OSDs as the spec says:
// primary affinity, and, where the spec allows it, device class and CRUSH weight.
//
// It must not touch an OSD that the spec says nothing of, and it never lowers a
// weight. OSDs themselves are internal/osd's.
package crushupdate

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
)

// Wanted is what the spec says of one OSD.
type Wanted struct {
	ID int
	// Class is "" where the spec has none.
	Class string
	// Affinity is nil where the spec has none.
	Affinity *float64
	// FixedWeight says that the user has chosen a weight of his own.
	FixedWeight bool
}

// Actual is what Ceph has of it.
type Actual struct {
	Class    string
	Affinity float64
	// Weight in CRUSH, and Size in bytes; 0 where it is not known.
	Weight float64
	Size   uint64
}

// Allowed are the updates of existing OSDs that the spec allows.
type Allowed struct{ Class, Weight bool }

// Update is one change of one OSD.
type Update struct {
	ID int
	// What is class, no-class, weight or affinity.
	What   string
	Class  string
	Number float64
}

// The kinds of Update.
const (
	SetClass    = "class"
	DropClass   = "no-class"
	SetWeight   = "weight"
	SetAffinity = "affinity"
)

// String implements kit.Action.
func (u Update) String() string {
	osd := ceph.OSDName(u.ID)
	switch u.What {
	case DropClass:
		return "taking the device class from " + osd
	case SetClass:
		return "giving " + osd + " the device class " + u.Class
	case SetWeight:
		return fmt.Sprintf("raising the CRUSH weight of %s to %s", osd, strconv.FormatFloat(u.Number, 'f', -1, 64))
	default:
		return fmt.Sprintf("setting the primary affinity of %s to %s", osd, strconv.FormatFloat(u.Number, 'f', -1, 64))
	}
}

// Kind is the metric label.
func (Update) Kind() string { return "crush" }

// tolerance is by what part a weight may be below the size without being raised:
// Ceph's numbers are rounded, and BlueStore keeps something for itself.
const tolerance = 0.01

// Compare finds the updates. An OSD that Ceph does not have in its tree is left alone.
func Compare(want []Wanted, have map[int]Actual, allow Allowed) []Update {
	var out []Update
	for _, w := range want {
		a, ok := have[w.ID]
		if !ok {
			continue
		}
		if allow.Class && w.Class != "" && w.Class != a.Class {
			// A class has to go before another comes. Without any, an OSD is in no rule that
			// asks for one, so both follow each other at once.
			if a.Class != "" {
				out = append(out, Update{ID: w.ID, What: DropClass})
			}
			out = append(out, Update{ID: w.ID, What: SetClass, Class: w.Class})
		}
		size := float64(a.Size) / (1 << 40)
		if allow.Weight && !w.FixedWeight && a.Weight > 0 && size > 0 && a.Weight < size*(1-tolerance) {
			out = append(out, Update{ID: w.ID, What: SetWeight, Number: math.Floor(size*1e5) / 1e5})
		}
		if w.Affinity != nil && math.Abs(*w.Affinity-a.Affinity) > 1e-4 {
			out = append(out, Update{ID: w.ID, What: SetAffinity, Number: *w.Affinity})
		}
	}
	return out
}

// Of is what a node's selection says of one OSD that is on it.
func Of(r prepare.Result, sel request.Selection) Wanted {
	c := sel.Config
	for _, n := range sel.Named {
		if names(n.Ref, r.Data) {
			c = n.Config
			break
		}
	}
	return fromConfig(r.ID, c)
}

func fromConfig(id int, c choice.Config) Wanted {
	w := Wanted{ID: id, Class: c.DeviceClass, FixedWeight: c.InitialWeight != ""}
	if f, err := strconv.ParseFloat(c.PrimaryAffinity, 64); err == nil {
		w.Affinity = &f
	}
	return w
}

// names says whether a reference of the user's is to this part.
func names(ref string, p prepare.Part) bool {
	if ref == "" {
		return false
	}
	if !strings.HasPrefix(ref, "/") {
		ref = "/dev/" + ref
	}
	ref = path.Clean(ref)
	own := []string{p.Path, p.ByID, p.ByPath}
	if p.Disk != "" {
		own = append(own, "/dev/"+p.Disk)
	}
	return slices.Contains(own, ref)
}
