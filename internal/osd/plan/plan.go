// Package plan decides about a cluster's OSD Deployments: which are made, which
// are left, which are updated next. There is one writer for each OSD, and this
// is its head.
//
// It is pure. An OSD is started only from a record whose uuid is the one that
// Ceph knows for that id: whatever else carries the id is an old disk. What Ceph
// did not say is never a reason to change anything.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/internal/node/prepare"
)

// Known is what Ceph's OSD map says of an id.
type Known struct {
	UUID      string
	Up, In    bool
	Destroyed bool
	// Booted says that it has been up at least once.
	Booted bool
}

// Record is an OSD that a node has found on its disks.
type Record struct {
	prepare.Result
	Node, Host string
	// NodeGone says that there is no such node any more.
	NodeGone bool
}

// Live is an OSD's Deployment.
type Live struct {
	// UUID and Host it was made for; UUID is empty when its note cannot be read.
	UUID, Host string
	Record     Record
	// UpToDate says that its template is the wanted one; it is only known for those
	// that are kept.
	UpToDate bool
	// Replacing: its disk is being replaced, and internal/osd/replace is its writer.
	Replacing bool
	// Skipped by the label ceph.rook.io/do-not-reconcile, Stopped with 0 replicas,
	// Ready when its pod answers, Settled when the Deployment's controller has
	// caught up with its spec.
	Skipped, Stopped, Ready, Settled bool
	// NotReadySince is when its pod was last seen to answer; zero if it answers, or if
	// that is not known.
	NotReadySince time.Time
	// WasDown is the durable mark that it was down already when it was updated last.
	WasDown bool
}

// State is everything that bears on the decisions.
type State struct {
	Now time.Time
	// Answered says that Ceph's map has been read.
	Answered bool
	Known    map[int]Known
	Records  []Record
	Live     map[int]Live
}

// What is to be done with an OSD.
type What string

// The decisions.
const (
	Create  What = "Create"  // make the Deployment
	Keep    What = "Keep"    // it is as it should be, or will be after an update
	Rebuild What = "Rebuild" // the id has another disk now; the Deployment follows it
	Leave   What = "Leave"   // not ours to touch
	Ignore  What = "Ignore"  // a record from which nothing is started
	Ask     What = "Ask"     // a person has to decide
)

// Decision is about one OSD id.
type Decision struct {
	ID     int
	What   What
	Record Record
	// Why is for the user, for all but Create and Keep.
	Why string
}

// Decide returns one decision for each id that has a record or a Deployment, in
// the order of ids.
func Decide(s State) []Decision {
	byID := map[int][]Record{}
	for _, r := range s.Records {
		byID[r.ID] = append(byID[r.ID], r)
	}
	ids := map[int]bool{}
	for id := range byID {
		ids[id] = true
	}
	for id := range s.Live {
		ids[id] = true
	}
	var out []Decision
	for id := range ids {
		out = append(out, s.decide(id, byID[id]))
	}
	slices.SortFunc(out, func(a, b Decision) int { return a.ID - b.ID })
	return out
}

func (s State) decide(id int, records []Record) Decision {
	live, has := s.Live[id]
	d := Decision{ID: id}
	if has && live.Replacing {
		d.What, d.Why = Leave, "its disk is being replaced"
		return d
	}
	if has && live.Skipped {
		d.What, d.Why = Leave, "its Deployment has the label ceph.rook.io/do-not-reconcile"
		return d
	}
	if !s.Answered {
		d.What, d.Record, d.Why = Keep, live.Record, "Ceph does not answer"
		if !has {
			d.What = Ignore
		}
		return d
	}
	current, why := s.current(id, records)
	switch {
	case len(current) > 1:
		d.What, d.Why = Ask, fmt.Sprintf("osd.%d (%s) is reported by %s; it is started on none but where it runs; if its disk was moved, set the annotation %s of the CephCluster to a new value, and all nodes look again", id, current[0].UUID, nodesOf(current), RescanAnnotation)
		if has {
			d.Record = live.Record
		}
	case len(current) == 0 && has:
		d.What, d.Record, d.Why = Keep, live.Record, why
	case len(current) == 0:
		d.What, d.Why = Ignore, why
	case !has && current[0].NodeGone:
		d.What, d.Why = Ignore, fmt.Sprintf("osd.%d was on node %s, which does not exist any more", id, current[0].Node)
	case !has:
		d.What, d.Record = Create, current[0]
	case live.UUID == current[0].UUID || live.UUID == "":
		d.What, d.Record = Keep, KeepParts(current[0], live.Record)
	default:
		d.What, d.Record = Rebuild, current[0]
		d.Why = fmt.Sprintf("osd.%d has a new disk: uuid %s instead of %s", id, current[0].UUID, live.UUID)
	}
	return d
}

// KeepParts is a record with the database and WAL that were recorded before of the same
// OSD, where the node does not see them any more: their device has failed, and what was
// on it is known from nowhere else.
func KeepParts(r, before Record) Record {
	if r.UUID == "" || r.UUID != before.UUID {
		return r
	}
	if r.DB == nil {
		r.DB = before.DB
	}
	if r.WAL == nil {
		r.WAL = before.WAL
	}
	return r
}

// current are the records that are the OSD as Ceph knows it; why says what is
// wrong with the others.
func (s State) current(id int, records []Record) (current []Record, why string) {
	known, exists := s.Known[id]
	switch {
	case !exists:
		return nil, fmt.Sprintf("Ceph has no osd.%d", id)
	case known.Destroyed:
		return nil, fmt.Sprintf("osd.%d is destroyed and waits for a new disk", id)
	}
	for _, r := range records {
		if r.UUID == known.UUID {
			current = append(current, r)
			continue
		}
		if r.NodeGone {
			continue
		}
		why = fmt.Sprintf("the disk %s on %s carries osd.%d with uuid %s, but Ceph knows %s: it is an old disk", r.Data.Path, r.Node, id, r.UUID, known.UUID)
	}
	// A disk that has moved is reported by its new node; what a node has said that is
	// gone since counts only when nobody else knows the disk.
	if here := slices.DeleteFunc(slices.Clone(current), func(r Record) bool { return r.NodeGone }); len(here) > 0 {
		current = here
	}
	return current, why
}

func nodesOf(records []Record) string {
	var nodes []string
	for _, r := range records {
		nodes = append(nodes, r.Node)
	}
	slices.Sort(nodes)
	return "nodes " + strings.Join(nodes, " and ")
}

// RescanAnnotation on a CephCluster makes every node look at its disks again
// whenever its value changes.
const RescanAnnotation = "castellan.ceph.io/rescan"

// StuckAfter is how long an OSD may take to come up after its update before it counts as
// dead. An OSD that replays a long log takes minutes.
const StuckAfter = 10 * time.Minute

// Rolling is the state of an update.
type Rolling struct {
	// Moving are OSDs that restart right now: the next set waits for them.
	Moving []int
	// Stuck are up to date and down for so long that they do not restart any more. The
	// next set waits for them too, since the update may be what they died of.
	Stuck []int
	// Next are the OSDs to ask Ceph about: all outdated ones of one host. Others are those
	// of the other hosts, to be asked about when these may not stop.
	Next   []int
	Others [][]int
	// Left is how many outdated OSDs there are, Next included.
	Left int
}

// Roll finds the next OSDs to update: those of one host together, since Ceph's
// failure domain is a host or more and they can then go at once. An outdated OSD
// that is down is updated by itself, without waiting for anything: the new
// template may be what it needs. Such an OSD is not waited for afterwards either: the
// update did not stop it, and a dead disk must not hold up all others. What may stop
// is for Ceph to say.
//
// force goes on in spite of OSDs that are stuck: the user has switched the checks off.
func Roll(s State, outdated []int, limit int, force bool) (down []int, r Rolling) {
	r.Left = len(outdated)
	for _, id := range sortedIDs(s.Live) {
		l := s.Live[id]
		if !l.Replacing && !l.Skipped && !l.Stopped && !l.WasDown && (!l.Settled || !l.Ready || !s.Known[id].Up) && s.Known[id] != (Known{}) && !slices.Contains(outdated, id) {
			if !l.NotReadySince.IsZero() && s.Now.Sub(l.NotReadySince) >= StuckAfter {
				r.Stuck = append(r.Stuck, id)
			} else {
				r.Moving = append(r.Moving, id)
			}
		}
	}
	byHost := map[string][]int{}
	var hosts []string
	for _, id := range outdated {
		l := s.Live[id]
		if s.Answered && !s.Known[id].Up && !l.Ready {
			down = append(down, id)
			continue
		}
		if byHost[l.Host] == nil {
			hosts = append(hosts, l.Host)
		}
		byHost[l.Host] = append(byHost[l.Host], id)
	}
	if len(r.Moving) > 0 || len(r.Stuck) > 0 && !force || len(hosts) == 0 {
		return down, r
	}
	slices.Sort(hosts)
	for i, host := range hosts {
		set := byHost[host]
		slices.Sort(set)
		if limit > 0 && len(set) > limit {
			set = set[:limit]
		}
		if i == 0 {
			r.Next = set
		} else {
			r.Others = append(r.Others, set)
		}
	}
	return down, r
}

func sortedIDs(m map[int]Live) []int {
	ids := make([]int, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
