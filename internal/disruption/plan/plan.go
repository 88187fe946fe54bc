// Package plan decides which OSD pods may be evicted: one of all while nothing is
// drained, and all of one failure domain, but none of any other, while that one is.
//
// It is pure. What Ceph did not say never lets more be evicted than before.
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// OSD is one OSD that has a Deployment.
type OSD struct {
	ID int
	// Domain is the CRUSH bucket of the cluster's failure domain that it is in; ""
	// where Ceph does not know it yet.
	Domain string
	// Down says that it has no pod that is ready, Cordoned that its node takes no new
	// pods.
	Down, Cordoned bool
}

// Drain is what is noted of a drain that is going on.
type Drain struct {
	// Domain is "" while there is none.
	Domain string
	Since  time.Time
	// NoOut says that the flag noout of the domain is ours to set and to clear.
	NoOut bool
}

// State is everything that bears on the decision.
type State struct {
	Now  time.Time
	OSDs []OSD
	// Drain is the note.
	Drain Drain
	// Answered says that Ceph has been asked: Clean whether all PGs are healthy, Unclean
	// which are not, in words, and NoOut which buckets have the flag.
	Answered bool
	Clean    bool
	Unclean  string
	NoOut    map[string]bool
	// Timeout is how long the OSDs of a drained domain are kept from being marked out.
	Timeout time.Duration
}

// Decision is what is to be.
type Decision struct {
	// Drain is the note to keep.
	Drain Drain
	// MaxUnavailable is how many OSDs the one budget for all allows to be missing; 0
	// when Blocked stands in its place.
	MaxUnavailable int
	// Blocked are the OSDs, by domain, of which none may be evicted.
	Blocked map[string][]int
	// Set and Clear name a bucket whose flag noout is to be set or cleared.
	Set, Clear string
	// Began and Ended are set when a drain begins or ends now.
	Began, Ended string
	// Why is what is waited for, "" when nothing is.
	Why string
}

// Grace is how long after the beginning of a drain clean PGs do not count: Ceph
// needs some time to notice that an OSD is gone.
const Grace = time.Minute

// Decide decides.
func Decide(s State) Decision {
	d := Decision{Drain: s.Drain}
	if s.Drain.Domain != "" && !known(s) {
		// The failure domain of the pools, or the tree, is another one now.
		return leave(s, d)
	}
	if s.Drain.Domain == "" {
		return begin(s, d)
	}
	down := downIn(s, s.Drain.Domain)
	age := s.Now.Sub(s.Drain.Since)
	switch {
	case !s.Answered:
		d.Why = "Ceph does not answer"
	case len(down) > 0 && (!s.Clean || age < Grace):
		d.Why = fmt.Sprintf("%s of %s are down", names(down), s.Drain.Domain)
		if s.Clean {
			d.Why += ", and Ceph may not have noticed yet"
		}
	case !s.Clean:
		d.Why = "not all placement groups are healthy: " + s.Unclean
	default:
		return leave(s, d)
	}
	hold(s, &d)
	return d
}

// begin starts a drain, or lets one OSD of all be evicted.
func begin(s State, d Decision) Decision {
	domain := drained(s)
	if domain == "" || !s.Answered {
		normal(s, &d)
		return d
	}
	d.Began = domain
	// A flag that is there already is somebody else's, and stays.
	d.Drain = Drain{Domain: domain, Since: s.Now, NoOut: !s.NoOut[domain]}
	d.Why = fmt.Sprintf("%s of %s are down", names(downIn(s, domain)), domain)
	hold(s, &d)
	return d
}

// drained is the first domain with an OSD that is down on a cordoned node.
func drained(s State) string {
	var found []string
	for _, o := range s.OSDs {
		if o.Down && o.Cordoned && o.Domain != "" {
			found = append(found, o.Domain)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// hold protects all domains but the drained one, and its OSDs from being marked out.
func hold(s State, d *Decision) {
	domain := d.Drain.Domain
	d.Blocked = map[string][]int{}
	for _, o := range s.OSDs {
		if o.Domain != domain && o.Domain != "" {
			d.Blocked[o.Domain] = append(d.Blocked[o.Domain], o.ID)
		}
	}
	for _, ids := range d.Blocked {
		slices.Sort(ids)
	}
	if !s.Answered || !d.Drain.NoOut {
		return
	}
	late := s.Now.Sub(d.Drain.Since) >= s.Timeout
	switch {
	case !late && !s.NoOut[domain]:
		d.Set = domain
	case late && s.NoOut[domain]:
		d.Clear = domain
	case late:
		d.Drain.NoOut = false // it is cleared; one that comes later is not ours
	}
}

// leave ends a drain. The note goes only when the flag is gone.
func leave(s State, d Decision) Decision {
	if s.Drain.NoOut && !s.Answered {
		d.Why = "Ceph does not answer, and the flag noout of " + s.Drain.Domain + " is to be cleared"
		hold(s, &d)
		return d
	}
	if s.Drain.NoOut && s.NoOut[s.Drain.Domain] {
		d.Clear = s.Drain.Domain
		d.Why = "the flag noout of " + s.Drain.Domain + " is being cleared"
		keep := d.Clear
		hold(s, &d)
		d.Set, d.Clear, d.Drain = "", keep, s.Drain
		return d
	}
	d.Ended, d.Drain = s.Drain.Domain, Drain{}
	normal(s, &d)
	return d
}

// normal lets one OSD be evicted. An OSD that is down anyway counts against the
// budget, so where all data is whole without it, the budget is larger by it: or a
// dead disk would hold up every drain for ever.
func normal(s State, d *Decision) {
	d.MaxUnavailable = 1
	if !s.Answered || !s.Clean {
		return
	}
	for _, o := range s.OSDs {
		if o.Down {
			d.MaxUnavailable++
		}
	}
}

// known says whether the drained domain still has OSDs.
func known(s State) bool {
	return slices.ContainsFunc(s.OSDs, func(o OSD) bool { return o.Domain == s.Drain.Domain }) || !s.Answered
}

func downIn(s State, domain string) []int {
	var ids []int
	for _, o := range s.OSDs {
		if o.Domain == domain && o.Down {
			ids = append(ids, o.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func names(ids []int) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprintf("osd.%d", id)
	}
	return strings.Join(parts, ", ")
}

// Domains of the blocked OSDs, in order.
func (d Decision) Domains() []string { return slices.Sorted(maps.Keys(d.Blocked)) }
