// Package status holds the commands that look at a cluster as a whole: status,
// health, versions, capacity, crashes. It must not judge: whether a warning
// matters is for the callers.
package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
)

// Client sends status commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// The three values of a health status.
const (
	HealthOK   = "HEALTH_OK"
	HealthWarn = "HEALTH_WARN"
	HealthErr  = "HEALTH_ERR"
)

// Health is the answer of `health detail`, and part of Status.
type Health struct {
	Status string           `json:"status"`
	Checks map[string]Check `json:"checks"`
	Mutes  []Mute           `json:"mutes"`
}

// Check is one health check that fired, by its code (OSD_DOWN, ...).
type Check struct {
	Severity string `json:"severity"`
	Summary  struct {
		Message string `json:"message"`
		Count   int64  `json:"count"`
	} `json:"summary"`
	// Detail is only filled in by HealthDetail.
	Detail []struct {
		Message string `json:"message"`
	} `json:"detail,omitempty"`
	Muted bool `json:"muted"`
}

// Mute is a check that the user does not want counted.
type Mute struct {
	Code   string `json:"code"`
	Sticky bool   `json:"sticky"`
}

// Status is the answer of `status`.
type Status struct {
	FSID          string   `json:"fsid"`
	Health        Health   `json:"health"`
	ElectionEpoch int      `json:"election_epoch"`
	Quorum        []int    `json:"quorum"`
	QuorumNames   []string `json:"quorum_names"`
	// QuorumAge is in seconds.
	QuorumAge int `json:"quorum_age"`
	Monmap    struct {
		Epoch             int    `json:"epoch"`
		MinMonReleaseName string `json:"min_mon_release_name"`
		NumMons           int    `json:"num_mons"`
	} `json:"monmap"`
	OSDMap struct {
		Epoch       int `json:"epoch"`
		NumOSDs     int `json:"num_osds"`
		NumUp       int `json:"num_up_osds"`
		NumIn       int `json:"num_in_osds"`
		NumRemapped int `json:"num_remapped_pgs"`
	} `json:"osdmap"`
	PGMap  PGMap `json:"pgmap"`
	FSMap  FSMap `json:"fsmap"`
	MgrMap struct {
		Available   bool              `json:"available"`
		NumStandbys int               `json:"num_standbys"`
		Modules     []string          `json:"modules"`
		Services    map[string]string `json:"services"`
	} `json:"mgrmap"`
	ProgressEvents map[string]struct {
		Message  string  `json:"message"`
		Progress float64 `json:"progress"`
	} `json:"progress_events"`
}

// PGMap sums up PGs and capacity; bytes, per-second rates, ratios 0 to 1.
type PGMap struct {
	ByState               []StateCount `json:"pgs_by_state"`
	NumPGs                int          `json:"num_pgs"`
	NumPools              int          `json:"num_pools"`
	NumObjects            int64        `json:"num_objects"`
	DataBytes             int64        `json:"data_bytes"`
	BytesUsed             int64        `json:"bytes_used"`
	BytesAvail            int64        `json:"bytes_avail"`
	BytesTotal            int64        `json:"bytes_total"`
	DegradedObjects       int64        `json:"degraded_objects"`
	DegradedTotal         int64        `json:"degraded_total"`
	DegradedRatio         float64      `json:"degraded_ratio"`
	MisplacedObjects      int64        `json:"misplaced_objects"`
	MisplacedTotal        int64        `json:"misplaced_total"`
	MisplacedRatio        float64      `json:"misplaced_ratio"`
	UnfoundObjects        int64        `json:"unfound_objects"`
	RecoveringBytesPerSec int64        `json:"recovering_bytes_per_sec"`
	ReadBytesPerSec       int64        `json:"read_bytes_sec"`
	WriteBytesPerSec      int64        `json:"write_bytes_sec"`
	ReadOpsPerSec         int64        `json:"read_op_per_sec"`
	WriteOpsPerSec        int64        `json:"write_op_per_sec"`
}

// StateCount is how many PGs are in one state.
type StateCount struct {
	State string `json:"state_name"`
	Count int    `json:"count"`
}

// AllClean reports whether every PG is active and clean. A cluster without PGs
// is: HEALTH_OK alone is not enough, since it shows while PGs are still unknown.
func (p PGMap) AllClean() bool {
	_, all := p.Except(pg.Clean)
	return all
}

// Except says how many PGs are in which states that are not good, "" for none, and whether
// all are good: PGs that no OSD has reported yet are in no state, and are not.
func (p PGMap) Except(good func(state string) bool) (bad string, all bool) {
	var parts []string
	n := 0
	for _, s := range p.ByState {
		if n += s.Count; !good(s.State) {
			parts = append(parts, fmt.Sprintf("%d %s", s.Count, s.State))
		}
	}
	return strings.Join(parts, ", "), len(parts) == 0 && n == p.NumPGs
}

// FSMap sums up the file systems.
type FSMap struct {
	Epoch   int `json:"epoch"`
	Up      int `json:"up"`
	In      int `json:"in"`
	Max     int `json:"max"`
	Standby int `json:"up:standby"`
}

// Status reads the state of the whole cluster.
func (c Client) Status(ctx context.Context) (Status, error) {
	return ceph.MonJSON[Status](ctx, c.c, ceph.Cmd("status"))
}

// HealthDetail reads the health checks with their details.
func (c Client) HealthDetail(ctx context.Context) (Health, error) {
	return ceph.MonJSON[Health](ctx, c.c, ceph.Cmd("health", "detail", "detail"))
}

// Health reads the health checks without their details, and what is muted.
func (c Client) Health(ctx context.Context) (Health, error) {
	return ceph.MonJSON[Health](ctx, c.c, ceph.Cmd("health"))
}

// Mute keeps a check out of the health, now and whenever it fires, until Unmute.
func (c Client) Mute(ctx context.Context, code string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("health mute", "code", code, "sticky", true)))
}

// Unmute counts a check again. One that is not muted is no error.
func (c Client) Unmute(ctx context.Context, code string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("health unmute", "code", code)))
}

// Versions counts running daemons by type and version line. The type "overall"
// is the sum.
type Versions map[string]map[string]int

// Versions reads which versions run.
func (c Client) Versions(ctx context.Context) (Versions, error) {
	return ceph.MonJSON[Versions](ctx, c.c, ceph.Cmd("versions"))
}

// Short gives the number in a version line, "ceph version 20.2.4 (7f79...)
// tentacle (stable)", or "".
func Short(line string) string {
	f := strings.Fields(line)
	if len(f) < 3 || f[0] != "ceph" || f[1] != "version" {
		return ""
	}
	return f[2]
}

// FSID reads the cluster's id.
func (c Client) FSID(ctx context.Context) (string, error) {
	r, err := ceph.MonJSON[struct {
		FSID string `json:"fsid"`
	}](ctx, c.c, ceph.Cmd("fsid"))
	return r.FSID, err
}

// DF is the answer of `df detail`; sizes in bytes.
type DF struct {
	Stats   Capacity            `json:"stats"`
	ByClass map[string]Capacity `json:"stats_by_class"`
	Pools   []PoolDF            `json:"pools"`
}

// Capacity is raw capacity in bytes.
type Capacity struct {
	Total    int64   `json:"total_bytes"`
	Avail    int64   `json:"total_avail_bytes"`
	Used     int64   `json:"total_used_bytes"`
	UsedRaw  int64   `json:"total_used_raw_bytes"`
	RawRatio float64 `json:"total_used_raw_ratio"`
}

// PoolDF is the usage of one pool.
type PoolDF struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Stats struct {
		// Stored is what users put in, Used what that takes on the disks.
		Stored      int64   `json:"stored"`
		Objects     int64   `json:"objects"`
		Used        int64   `json:"bytes_used"`
		PercentUsed float64 `json:"percent_used"`
		MaxAvail    int64   `json:"max_avail"`
	} `json:"stats"`
}

// DF reads the usage of cluster and pools.
func (c Client) DF(ctx context.Context) (DF, error) {
	return ceph.MonJSON[DF](ctx, c.c, ceph.Cmd("df", "detail", "detail"))
}

// Crash is one recorded crash of a daemon.
type Crash struct {
	ID        string `json:"crash_id"`
	Entity    string `json:"entity_name"`
	Timestamp string `json:"timestamp"`
	// Archived is set once the user has seen it.
	Archived string `json:"archived,omitempty"`
}

// Crashes lists recorded crashes that are not archived, from the mgr.
func (c Client) Crashes(ctx context.Context) ([]Crash, error) {
	return ceph.MgrJSON[[]Crash](ctx, c.c, ceph.Cmd("crash ls-new"))
}
