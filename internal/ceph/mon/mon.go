// Package mon holds the commands about mons and their quorum: reading the
// monmap, asking before a mon is stopped or removed, and changing membership.
// It must not decide which mon to fail over; that is the mon plan's work.
package mon

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends mon commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// Mon is one mon of the monmap.
type Mon struct {
	// Rank is the mon's place in the elections, lowest first; it changes when
	// mons are added or removed.
	Rank int    `json:"rank"`
	Name string `json:"name"`
	// PublicAddrs are the addresses clients use.
	PublicAddrs ceph.Addrs `json:"public_addrs"`
	Priority    int        `json:"priority"`
	Weight      int        `json:"weight"`
	// CrushLocation is written "{datacenter=a,...}" by Ceph 20 and may be an
	// empty list; only stretch clusters use it.
	CrushLocation any `json:"crush_location,omitempty"`
}

// Election strategies as the monmap numbers them.
const (
	StrategyClassic      = 1
	StrategyDisallow     = 2
	StrategyConnectivity = 3
)

// Map is the monmap.
type Map struct {
	Epoch             int    `json:"epoch"`
	FSID              string `json:"fsid"`
	MinMonRelease     int    `json:"min_mon_release"`
	MinMonReleaseName string `json:"min_mon_release_name"`
	ElectionStrategy  int    `json:"election_strategy"`
	DisallowedLeaders string `json:"disallowed_leaders"`
	StretchMode       bool   `json:"stretch_mode"`
	TiebreakerMon     string `json:"tiebreaker_mon"`
	RemovedRanks      string `json:"removed_ranks"`
	Mons              []Mon  `json:"mons"`
	// Quorum holds ranks; only Dump fills it in.
	Quorum []int `json:"quorum,omitempty"`
}

// Find gives the mon of that name.
func (m Map) Find(name string) (Mon, bool) {
	for _, x := range m.Mons {
		if x.Name == name {
			return x, true
		}
	}
	return Mon{}, false
}

// Quorum is the answer of quorum_status.
type Quorum struct {
	ElectionEpoch int `json:"election_epoch"`
	// Ranks of the mons in quorum.
	Ranks  []int    `json:"quorum"`
	Names  []string `json:"quorum_names"`
	Leader string   `json:"quorum_leader_name"`
	// Age in seconds since the last election.
	Age    int `json:"quorum_age"`
	Monmap Map `json:"monmap"`
}

// In reports whether the mon of that name is in quorum.
func (q Quorum) In(name string) bool {
	for _, n := range q.Names {
		if n == name {
			return true
		}
	}
	return false
}

// QuorumStatus reads who is in quorum, and the monmap. Without a quorum there
// is no answer but an *ceph.UnreachableError. One that names no mon, or nobody in quorum,
// is no answer: somebody has given it, and by it every mon could be taken out.
func (c Client) QuorumStatus(ctx context.Context) (Quorum, error) {
	q, err := ceph.MonJSON[Quorum](ctx, c.c, ceph.Cmd("quorum_status"))
	if err == nil && (len(q.Monmap.Mons) == 0 || len(q.Names) == 0) {
		err = &ceph.DecodeError{Prefix: "quorum_status", Err: errors.New("it names no mon, or none in quorum")}
	}
	if err != nil {
		return Quorum{}, err
	}
	return q, nil
}

// Dump reads the monmap.
func (c Client) Dump(ctx context.Context) (Map, error) {
	return ceph.MonJSON[Map](ctx, c.c, ceph.Cmd("mon dump"))
}

// Metadata of one mon, as the mon itself reported it at start.
type Metadata struct {
	Name        string `json:"name"`
	Addrs       string `json:"addrs"`
	Hostname    string `json:"hostname"`
	Version     string `json:"ceph_version"`
	VersionName string `json:"ceph_release"`
	Short       string `json:"ceph_version_short"`
}

// Metadata reads what every mon reported about itself.
func (c Client) Metadata(ctx context.Context) ([]Metadata, error) {
	return ceph.MonJSON[[]Metadata](ctx, c.c, ceph.Cmd("mon metadata"))
}

// Verdict is the answer to an ok-to question. The question itself was answered:
// a failed call is an error and no Verdict.
type Verdict struct {
	OK bool
	// Why is Ceph's own sentence.
	Why string
}

// OkToStop asks whether the quorum survives when these mons stop. Ceph gives the
// answer only as exit code and sentence. Names that are no mons change nothing.
func (c Client) OkToStop(ctx context.Context, names ...string) (Verdict, error) {
	return c.verdict(ctx, ceph.Cmd("mon ok-to-stop", "ids", names))
}

// OkToAddOffline asks whether the quorum survives when a mon is added to the
// map before it runs.
func (c Client) OkToAddOffline(ctx context.Context) (Verdict, error) {
	return c.verdict(ctx, ceph.Cmd("mon ok-to-add-offline"))
}

// OkToRemove asks whether the quorum survives when this mon is taken out of the
// map. A name that is no mon is OK.
func (c Client) OkToRemove(ctx context.Context, name string) (Verdict, error) {
	return c.verdict(ctx, ceph.Cmd("mon ok-to-rm", "id", name))
}

func (c Client) verdict(ctx context.Context, cmd ceph.Command) (Verdict, error) {
	r, err := c.c.Mon(ctx, cmd)
	if err == nil {
		return Verdict{OK: true, Why: r.Status}, nil
	}
	var e *ceph.Error
	if errors.As(err, &e) && e.Errno == syscall.EBUSY {
		return Verdict{Why: e.Status}, nil
	}
	return Verdict{}, err
}

// Remove takes a mon out of the map. Removing one that is not in it succeeds.
// EINVAL: it is the last one. EPERM or EINVAL in stretch mode, when a site
// would lose its mons.
func (c Client) Remove(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon rm", "name", name)))
}

// Add puts a mon into the map before it runs. addr is host[:port] or an address
// vector. EEXIST: the name or the address is taken by another mon. A mon that
// starts with a keyring and mon_host joins on its own, so this is only for
// addresses that it cannot find out.
func (c Client) Add(ctx context.Context, name, addr string, location ...string) error {
	cmd := ceph.Cmd("mon add", "name", name, "addr", addr)
	if len(location) > 0 {
		cmd.Args["location"] = location
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// SetAddrs changes the addresses a mon is known by. ENOENT: no such mon.
func (c Client) SetAddrs(ctx context.Context, name string, addrs ceph.Addrs) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon set-addrs", "name", name, "addrs", addrs.String())))
}

// SetRank moves a mon in the order of elections. ENOENT: no such mon; EINVAL:
// no such rank.
func (c Client) SetRank(ctx context.Context, name string, rank int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon set-rank", "name", name, "rank", rank)))
}

// EnableMsgr2 makes mons that have only a legacy address known at port 3300
// too. Setting it again succeeds.
func (c Client) EnableMsgr2(ctx context.Context) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon enable-msgr2")))
}

// SetElectionStrategy takes one of the Strategy constants. EINVAL: no such
// strategy, or stretch mode forbids it.
func (c Client) SetElectionStrategy(ctx context.Context, strategy int) error {
	name := map[int]string{
		StrategyClassic:      "classic",
		StrategyDisallow:     "disallow",
		StrategyConnectivity: "connectivity",
	}[strategy]
	if name == "" {
		return fmt.Errorf("election strategy %d does not exist", strategy)
	}
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon set election_strategy", "strategy", name)))
}

// SetLocation tells the CRUSH location of a mon, e.g. "datacenter=a", for
// stretch mode. ENOENT: no such mon.
func (c Client) SetLocation(ctx context.Context, name string, location ...string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon set_location", "name", name, "args", location)))
}

// EnableStretchMode makes the cluster peer across two buckets of the dividing
// type with tiebreaker as the third vote. EINVAL: mons, buckets or the rule do
// not fit.
func (c Client) EnableStretchMode(ctx context.Context, tiebreaker, rule, dividing string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon enable_stretch_mode",
		"tiebreaker_mon", tiebreaker, "new_crush_rule", rule, "dividing_bucket", dividing)))
}

// SetTiebreaker replaces the tiebreaker of a stretch cluster. ENOENT: no such
// mon; EINVAL: its location is one of the two sites.
func (c Client) SetTiebreaker(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mon set_new_tiebreaker", "name", name)))
}
