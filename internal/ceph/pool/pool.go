// Package pool holds the commands about pools, their properties, applications,
// quotas and erasure code profiles. It must not choose defaults: what is not
// asked for is left to Ceph.
package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends pool commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// Pool types as the OSD map numbers them.
const (
	TypeReplicated = 1
	TypeErasure    = 3
)

// Detail is what `osd pool ls detail` says of a pool.
type Detail struct {
	ID      int    `json:"pool_id"`
	Name    string `json:"pool_name"`
	Type    int    `json:"type"`
	Size    int    `json:"size"`
	MinSize int    `json:"min_size"`
	// CrushRule is the rule's id.
	CrushRule     int    `json:"crush_rule"`
	PGNum         int    `json:"pg_num"`
	PGNumTarget   int    `json:"pg_num_target"`
	PGPNum        int    `json:"pg_placement_num"`
	AutoscaleMode string `json:"pg_autoscale_mode"`
	// FlagsNames is words joined by commas: hashpspool, ec_overwrites, bulk, ...
	FlagsNames      string `json:"flags_names"`
	QuotaMaxBytes   int64  `json:"quota_max_bytes"`
	QuotaMaxObjects int64  `json:"quota_max_objects"`
	ECProfile       string `json:"erasure_code_profile"`
	// Options are the settings that are not at their default, e.g.
	// target_size_ratio, compression_mode, pg_num_min.
	Options map[string]any `json:"options"`
	// Applications maps rbd, rgw, cephfs, ... to their metadata.
	Applications map[string]map[string]string `json:"application_metadata"`
	IsStretch    bool                         `json:"is_stretch_pool"`
}

// List reads all pools.
func (c Client) List(ctx context.Context) ([]Detail, error) {
	return ceph.MonJSON[[]Detail](ctx, c.c, ceph.Cmd("osd pool ls", "detail", "detail"))
}

// Names lists all pools.
func (c Client) Names(ctx context.Context) ([]string, error) {
	return ceph.MonJSON[[]string](ctx, c.c, ceph.Cmd("osd pool ls"))
}

// Properties are the settings of a pool by name, as `osd pool get all` gives
// them; numbers are json.Number.
type Properties map[string]any

// Get reads all properties. ENOENT: no such pool.
func (c Client) Get(ctx context.Context, name string) (Properties, error) {
	return ceph.MonJSON[Properties](ctx, c.c, ceph.Cmd("osd pool get", "pool", name, "var", "all"))
}

// Spec says what pool to create; zero values are left to Ceph.
type Spec struct {
	Name  string
	PGNum int
	// ECProfile makes the pool erasure-coded.
	ECProfile string
	// Rule is a CRUSH rule's name.
	Rule string
	// Size is the number of copies.
	Size int
	// AutoscaleMode is on, off or warn.
	AutoscaleMode string
	Bulk          bool
}

// Create makes a pool. One of that name succeeds whatever its settings are.
// ENOENT: no such rule; EINVAL: no such profile; ERANGE: it would exceed
// mon_max_pg_per_osd; EPERM: size 1 is not allowed.
func (c Client) Create(ctx context.Context, s Spec) error {
	cmd := ceph.Cmd("osd pool create", "pool", s.Name)
	if s.PGNum > 0 {
		cmd.Args["pg_num"] = s.PGNum
		cmd.Args["pgp_num"] = s.PGNum
	}
	cmd.Args["pool_type"] = "replicated"
	if s.ECProfile != "" {
		cmd.Args["pool_type"] = "erasure"
		cmd.Args["erasure_code_profile"] = s.ECProfile
	}
	if s.Rule != "" {
		cmd.Args["rule"] = s.Rule
	}
	if s.Size > 0 {
		cmd.Args["size"] = s.Size
	}
	if s.AutoscaleMode != "" {
		cmd.Args["autoscale_mode"] = s.AutoscaleMode
	}
	if s.Bulk {
		cmd.Args["bulk"] = true
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// Set sets one property. ENOENT: no such pool or rule; EINVAL or EPERM: a value
// it does not take; EOPNOTSUPP: not on an erasure-coded pool.
func (c Client) Set(ctx context.Context, name, property, value string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd pool set", "pool", name, "var", property, "val", value)))
}

// SetUnchecked is Set with the confirmation Ceph asks for before it does what
// loses redundancy (size 1). Only for what the user has asked for by name.
func (c Client) SetUnchecked(ctx context.Context, name, property, value string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd pool set", "pool", name, "var", property, "val", value,
		"yes_i_really_mean_it", true)))
}

// Delete removes a pool and everything in it. A missing one succeeds. EPERM:
// mon_allow_pool_delete is off; EBUSY: a file system uses it.
func (c Client) Delete(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd pool rm", "pool", name, "pool2", name,
		"yes_i_really_really_mean_it", true)))
}

// EnableApplication tags a pool with what uses it: rbd, rgw, cephfs, ... The
// same again succeeds. EPERM: it has another one already; ENOENT: no such pool.
func (c Client) EnableApplication(ctx context.Context, name, app string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd pool application enable", "pool", name, "app", app,
		"yes_i_really_mean_it", true)))
}

// DisableApplication removes a tag. ENOENT: no such pool.
func (c Client) DisableApplication(ctx context.Context, name, app string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd pool application disable", "pool", name, "app", app,
		"yes_i_really_mean_it", true)))
}

// SetQuota limits a pool; 0 takes the limit away. ENOENT: no such pool.
func (c Client) SetQuota(ctx context.Context, name string, maxBytes, maxObjects int64) error {
	for _, q := range []struct {
		field string
		val   int64
	}{{"max_bytes", maxBytes}, {"max_objects", maxObjects}} {
		err := ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd pool set-quota", "pool", name,
			"field", q.field, "val", fmt.Sprint(q.val))))
		if err != nil {
			return err
		}
	}
	return nil
}

// Autoscale is what the PG autoscaler thinks of a pool.
type Autoscale struct {
	ID          int     `json:"pool_id"`
	Name        string  `json:"pool_name"`
	Mode        string  `json:"pg_autoscale_mode"`
	PGNumTarget int     `json:"pg_num_target"`
	PGNumFinal  int     `json:"pg_num_final"`
	WouldAdjust bool    `json:"would_adjust"`
	TargetRatio float64 `json:"target_ratio"`
	Bulk        bool    `json:"bulk"`
}

// AutoscaleStatus reads what the PG autoscaler would do, from the mgr.
// EOPNOTSUPP: the module does not run.
func (c Client) AutoscaleStatus(ctx context.Context) ([]Autoscale, error) {
	return ceph.MgrJSON[[]Autoscale](ctx, c.c, ceph.Cmd("osd pool autoscale-status"))
}

// Profile is an erasure code profile: k, m, plugin, crush-failure-domain, ...
type Profile map[string]string

// Args writes the profile as key=value, sorted.
func (p Profile) Args() []string {
	out := make([]string, 0, len(p))
	for k, v := range p {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return out
}

// Profiles lists the erasure code profiles.
func (c Client) Profiles(ctx context.Context) ([]string, error) {
	return ceph.MonJSON[[]string](ctx, c.c, ceph.Cmd("osd erasure-code-profile ls"))
}

// Profile reads one. ENOENT: no such profile.
func (c Client) Profile(ctx context.Context, name string) (Profile, error) {
	return ceph.MonJSON[Profile](ctx, c.c, ceph.Cmd("osd erasure-code-profile get", "name", name))
}

// SetProfile makes a profile. The same again succeeds; EPERM: one of that name
// differs (pools keep using what they were made with, so it is never
// overwritten); EINVAL: the plugin does not take it.
func (c Client) SetProfile(ctx context.Context, name string, p Profile) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd erasure-code-profile set", "name", name, "profile", p.Args())))
}

// RemoveProfile removes a profile. A missing one succeeds. EBUSY: a pool uses
// it.
func (c Client) RemoveProfile(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd erasure-code-profile rm", "name", name)))
}

// String gives a property as text, "" when it is not there.
func (p Properties) String(name string) string {
	v, ok := p[name]
	if !ok {
		return ""
	}
	return fmt.Sprint(v)
}

// UnmarshalJSON keeps numbers as they are written.
func (p *Properties) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*p = make(Properties, len(raw))
	for k, v := range raw {
		var n json.Number
		if len(v) > 0 && v[0] != '"' && json.Unmarshal(v, &n) == nil {
			(*p)[k] = n
			continue
		}
		var a any
		if err := json.Unmarshal(v, &a); err != nil {
			return err
		}
		(*p)[k] = a
	}
	return nil
}
