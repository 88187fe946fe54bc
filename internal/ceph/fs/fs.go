// Package fs holds the commands about CephFS file systems and their MDS daemons.
// It must not remove a file system's pools; that is package pool's.
package fs

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends file system commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// FS is one line of `fs ls`.
type FS struct {
	Name           string   `json:"name"`
	MetadataPool   string   `json:"metadata_pool"`
	MetadataPoolID int      `json:"metadata_pool_id"`
	DataPools      []string `json:"data_pools"`
	DataPoolIDs    []int    `json:"data_pool_ids"`
}

// List reads the file systems.
func (c Client) List(ctx context.Context) ([]FS, error) {
	return ceph.MonJSON[[]FS](ctx, c.c, ceph.Cmd("fs ls"))
}

// MDS is one daemon of an MDS map.
type MDS struct {
	GID  int64  `json:"gid"`
	Name string `json:"name"`
	// Rank is -1 for a standby.
	Rank int `json:"rank"`
	// State is up:active, up:standby, up:standby-replay, up:replay, ...
	State string     `json:"state"`
	Addrs ceph.Addrs `json:"addrs"`
	// JoinFSCID is the file system it prefers, -1 for none.
	JoinFSCID int `json:"join_fscid"`
}

// MDSMap is the part of a file system's MDS map that is used.
type MDSMap struct {
	Epoch              int              `json:"epoch"`
	FSName             string           `json:"fs_name"`
	Enabled            bool             `json:"enabled"`
	MaxMDS             int              `json:"max_mds"`
	In                 []int            `json:"in"`
	Up                 map[string]int64 `json:"up"`
	Failed             []int            `json:"failed"`
	Damaged            []int            `json:"damaged"`
	Stopped            []int            `json:"stopped"`
	Info               map[string]MDS   `json:"info"`
	DataPools          []int            `json:"data_pools"`
	MetadataPool       int              `json:"metadata_pool"`
	StandbyCountWanted int              `json:"standby_count_wanted"`
	FlagsState         map[string]bool  `json:"flags_state"`
}

// Filesystem is one file system with its map.
type Filesystem struct {
	ID     int    `json:"id"`
	MDSMap MDSMap `json:"mdsmap"`
}

// Map is the whole FS map.
type Map struct {
	Epoch        int          `json:"epoch"`
	DefaultFSCID int          `json:"default_fscid"`
	Standbys     []MDS        `json:"standbys"`
	Filesystems  []Filesystem `json:"filesystems"`
}

// Dump reads the whole FS map.
func (c Client) Dump(ctx context.Context) (Map, error) {
	return ceph.MonJSON[Map](ctx, c.c, ceph.Cmd("fs dump"))
}

// Get reads one file system. ENOENT: no such file system.
func (c Client) Get(ctx context.Context, name string) (Filesystem, error) {
	return ceph.MonJSON[Filesystem](ctx, c.c, ceph.Cmd("fs get", "fs_name", name))
}

// Create makes a file system on two pools. The same again succeeds. ENOENT: no
// such pool; EINVAL: there is one with other pools, or a pool is not fit (in use,
// not empty, erasure-coded metadata).
func (c Client) Create(ctx context.Context, name, metadataPool, dataPool string, force bool) error {
	cmd := ceph.Cmd("fs new", "fs_name", name, "metadata", metadataPool, "data", dataPool)
	if force {
		cmd.Args["force"] = true
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// Set sets one property, e.g. max_mds, allow_standby_replay, joinable,
// standby_count_wanted. ENOENT: no such file system; EINVAL: not taken.
func (c Client) Set(ctx context.Context, name, property, value string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("fs set", "fs_name", name, "var", property, "val", value)))
}

// AddDataPool adds a pool. ENOENT: no such pool or file system; EINVAL: it is
// used by this or another file system already.
func (c Client) AddDataPool(ctx context.Context, name, pool string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("fs add_data_pool", "fs_name", name, "pool", pool)))
}

// Fail takes all ranks of a file system down. ENOENT: no such file system.
func (c Client) Fail(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("fs fail", "fs_name", name, "yes_i_really_mean_it", true)))
}

// Remove removes a file system, not its pools. A missing one succeeds. EINVAL:
// ranks are still up (see Fail).
func (c Client) Remove(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("fs rm", "fs_name", name, "yes_i_really_mean_it", true)))
}

// OkToStop asks whether the file systems stay served when these MDS daemons
// stop. Ceph gives the answer only as exit code and sentence (EBUSY).
func (c Client) OkToStop(ctx context.Context, names ...string) (ok bool, why string, err error) {
	r, err := c.c.Mon(ctx, ceph.Cmd("mds ok-to-stop", "ids", names))
	if err == nil {
		return true, r.Status, nil
	}
	var e *ceph.Error
	if errors.As(err, &e) && e.Errno == syscall.EBUSY {
		return false, e.Status, nil
	}
	return false, "", err
}

// FailMDS makes a standby take over from the MDS of that name, gid or role. One
// that does not exist succeeds.
func (c Client) FailMDS(ctx context.Context, who string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mds fail", "role_or_gid", who, "yes_i_really_mean_it", true)))
}

// Rank gives the daemon that holds a rank.
func (m MDSMap) Rank(rank int) (MDS, bool) {
	gid, ok := m.Up[fmt.Sprintf("mds_%d", rank)]
	if !ok {
		return MDS{}, false
	}
	d, ok := m.Info[fmt.Sprintf("gid_%d", gid)]
	return d, ok
}
