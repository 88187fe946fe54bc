// Package pg holds the commands about placement groups. All are answered by the
// mgr from what OSDs have reported, so they are seconds old and may be missing
// PGs that nobody has reported yet. It must not judge: HEALTH_OK and active PGs
// are different questions, and both are the caller's.
package pg

import (
	"context"
	"errors"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends PG commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// PG is one placement group.
type PG struct {
	ID string `json:"pgid"`
	// State is words joined by plus signs, e.g. "active+clean+remapped".
	State string `json:"state"`
	// Up is where CRUSH wants the PG, Acting where it is served from.
	Up            []int `json:"up"`
	Acting        []int `json:"acting"`
	UpPrimary     int   `json:"up_primary"`
	ActingPrimary int   `json:"acting_primary"`
}

// Has reports whether a word is in the PG's state.
func (p PG) Has(word string) bool { return HasState(p.State, word) }

// HasState reports whether a word is in a state joined by plus signs.
func HasState(state, word string) bool {
	for _, w := range strings.Split(state, "+") {
		if w == word {
			return true
		}
	}
	return false
}

// Clean reports whether a PG of that state has all its copies: active and clean,
// wherever they are, and reported by an OSD that is alive.
func Clean(state string) bool {
	return HasState(state, "active") && HasState(state, "clean") && !HasState(state, "stale")
}

// Count is how many PGs are in one state.
type Count struct {
	Name string `json:"name"`
	Num  int    `json:"num"`
}

// Stat is the summary of `pg stat`; sizes in bytes.
type Stat struct {
	ByState             []Count `json:"num_pg_by_state"`
	NumPGs              int     `json:"num_pgs"`
	NumBytes            int64   `json:"num_bytes"`
	TotalBytes          int64   `json:"total_bytes"`
	TotalAvailBytes     int64   `json:"total_avail_bytes"`
	TotalUsedBytes      int64   `json:"total_used_bytes"`
	TotalUsedRawBytes   int64   `json:"total_used_raw_bytes"`
	DegradedObjects     int64   `json:"degraded_objects"`
	DegradedTotal       int64   `json:"degraded_total"`
	MisplacedObjects    int64   `json:"misplaced_objects"`
	MisplacedTotal      int64   `json:"misplaced_total"`
	UnfoundObjects      int64   `json:"unfound_objects"`
	RecoveringBytesSec  int64   `json:"recovering_bytes_per_sec"`
	RecoveringObjectSec int64   `json:"recovering_objects_per_sec"`
}

// AllClean reports whether there are PGs and every one is Clean.
func (s Stat) AllClean() bool {
	n := 0
	for _, c := range s.ByState {
		if !Clean(c.Name) {
			return false
		}
		n += c.Num
	}
	return n > 0 && n == s.NumPGs
}

// errNotReady: the mgr has just started and has not heard of all PGs.
var errNotReady = errors.New("pg_ready is false")

// Stat reads the summary. EAGAIN does not exist here: a mgr that is not ready
// yet is a *ceph.DecodeError.
func (c Client) Stat(ctx context.Context) (Stat, error) {
	cmd := ceph.Cmd("pg stat")
	r, err := ceph.MgrJSON[struct {
		Ready   bool `json:"pg_ready"`
		Summary Stat `json:"pg_summary"`
	}](ctx, c.c, cmd)
	if err != nil {
		return Stat{}, err
	}
	if !r.Ready {
		return Stat{}, &ceph.DecodeError{Prefix: cmd.Prefix, Err: errNotReady}
	}
	return r.Summary, nil
}

// Dump reads every PG's state and place. A mgr that is not ready yet is a
// *ceph.DecodeError.
func (c Client) Dump(ctx context.Context) ([]PG, error) {
	cmd := ceph.Cmd("pg dump", "dumpcontents", []string{"pgs_brief"})
	r, err := ceph.MgrJSON[struct {
		Ready bool `json:"pg_ready"`
		PGs   []PG `json:"pg_stats"`
	}](ctx, c.c, cmd)
	if err != nil {
		return nil, err
	}
	if !r.Ready {
		return nil, &ceph.DecodeError{Prefix: cmd.Prefix, Err: errNotReady}
	}
	return r.PGs, nil
}

// Stuck reads the PGs that have been in one of the states (inactive, unclean,
// stale, undersized, degraded) for longer than mon_pg_stuck_threshold; none
// means unclean.
func (c Client) Stuck(ctx context.Context, states ...string) ([]PG, error) {
	cmd := ceph.Cmd("pg dump_stuck")
	if len(states) > 0 {
		cmd.Args = ceph.Args{"stuckops": states}
	}
	r, err := ceph.MgrJSON[struct {
		PGs []PG `json:"stuck_pg_stats"`
	}](ctx, c.c, cmd)
	return r.PGs, err
}

// OnOSD reads the PGs that have the OSD in their up or acting set. EAGAIN: it
// does not exist or is not up.
func (c Client) OnOSD(ctx context.Context, id int) ([]PG, error) {
	r, err := ceph.MgrJSON[struct {
		PGs []PG `json:"pg_stats"`
	}](ctx, c.c, ceph.Cmd("pg ls-by-osd", "osd", id))
	return r.PGs, err
}
