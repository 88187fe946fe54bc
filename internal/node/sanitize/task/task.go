// Package task is what the operator asks a host to clean and what the host
// answers: plain values, shared by both, so that they cannot drift.
//
// It must hold no secret and no logic beyond putting an answer into words.
package task

import (
	"fmt"
	"slices"
	"strings"
)

// Methods and sources, as spec.cleanupPolicy.sanitizeDisks names them.
const (
	Quick    = "quick"
	Complete = "complete"
	Zero     = "zero"
	Random   = "random"
)

// Request asks a host to remove what belongs to one cluster. The host proves for
// each store and each disk that it does.
type Request struct {
	// FSID is the cluster's; nothing that carries another one is touched.
	FSID string `json:"fsid"`
	// Namespace of the CephCluster; its directory below DataDir is named so.
	Namespace string `json:"namespace"`
	// DataDir is dataDirHostPath as the user wrote it, for messages.
	DataDir string `json:"dataDir"`
	// Mons and OSDs are what is known to be on the host. What else is found there of
	// this fsid is cleaned as well.
	Mons []string `json:"mons,omitempty"`
	OSDs []OSD    `json:"osds,omitempty"`
	// Method is Quick or Complete, Source is Zero or Random.
	Method string `json:"method"`
	Source string `json:"source"`
	// Iterations is how often data is overwritten, at least 1.
	Iterations int `json:"iterations"`
}

// OSD is one that is known to be on the host.
type OSD struct {
	// ID is the OSD's number, for messages; it identifies nothing.
	ID   int    `json:"id"`
	UUID string `json:"uuid"`
}

// Outcome of one item.
type Outcome string

// The outcomes. Cleaned and Absent are what was asked for; Left is something of
// somebody else's, which stays; Failed needs another try or the user.
const (
	Cleaned Outcome = "cleaned"
	Absent  Outcome = "absent"
	Left    Outcome = "left"
	Failed  Outcome = "failed"
)

// Item is one store, disk or directory.
type Item struct {
	// What is it: "osd.3", "mon.a", "directory".
	What string `json:"what"`
	// Where it is: a device or a path on the host.
	Where   string  `json:"where,omitempty"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message,omitempty"`
}

// String gives the item in one line.
func (i Item) String() string {
	s := i.What
	if i.Where != "" {
		s += " on " + i.Where
	}
	s += ": " + string(i.Outcome)
	if i.Message != "" {
		s += ", " + i.Message
	}
	return s
}

// Report is what became of a request.
type Report struct {
	Items []Item `json:"items"`
}

// Failures are the items that need another try or the user.
func (r Report) Failures() []Item {
	var f []Item
	for _, i := range r.Items {
		if i.Outcome == Failed {
			f = append(f, i)
		}
	}
	return f
}

// Summary is the report in at most limit bytes, failures first.
func (r Report) Summary(limit int) string {
	items := slices.Clone(r.Items)
	rank := map[Outcome]int{Failed: 0, Left: 1, Absent: 2, Cleaned: 3}
	slices.SortStableFunc(items, func(a, b Item) int { return rank[a.Outcome] - rank[b.Outcome] })
	if len(items) == 0 {
		return "nothing of the cluster was found"
	}
	var b strings.Builder
	for n, i := range items {
		line := i.String()
		if n > 0 {
			line = "; " + line
		}
		more := fmt.Sprintf("; and %d more", len(items)-n)
		if b.Len()+len(line)+len(more) > limit {
			if b.Len() == 0 {
				return strings.ToValidUTF8(line[:min(len(line), limit)], "")
			}
			b.WriteString(more)
			break
		}
		b.WriteString(line)
	}
	return b.String()
}
