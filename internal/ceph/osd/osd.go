// Package osd holds the commands about OSDs: the OSD map and tree, what must be
// asked before an OSD is stopped or destroyed, and the changes of one OSD's
// state. CRUSH rules and items are in package crush, pools in package pool.
// It must not decide when an OSD may go: it asks and carries out.
package osd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends OSD commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// Dump reads the OSD map.
func (c Client) Dump(ctx context.Context) (Map, error) {
	return ceph.MonJSON[Map](ctx, c.c, ceph.Cmd("osd dump"))
}

// Tree reads the CRUSH tree with the state of each OSD. States limit it to OSDs
// in one of them and the buckets above: up, down, in, out, destroyed.
func (c Client) Tree(ctx context.Context, states ...string) (Tree, error) {
	cmd := ceph.Cmd("osd tree")
	if len(states) > 0 {
		cmd.Args = ceph.Args{"states": states}
	}
	return ceph.MonJSON[Tree](ctx, c.c, cmd)
}

// Metadata reads what every OSD reported about itself at its last boot.
func (c Client) Metadata(ctx context.Context) ([]Metadata, error) {
	return ceph.MonJSON[[]Metadata](ctx, c.c, ceph.Cmd("osd metadata"))
}

// MetadataOf reads one OSD's. ENOENT: the id does not exist, or has never
// booted.
func (c Client) MetadataOf(ctx context.Context, id int) (Metadata, error) {
	return ceph.MonJSON[Metadata](ctx, c.c, ceph.Cmd("osd metadata", "id", id))
}

// DF reads the usage of each OSD, from the mgr.
func (c Client) DF(ctx context.Context) (Usage, error) {
	return ceph.MgrJSON[Usage](ctx, c.c, ceph.Cmd("osd df", "output_method", "plain"))
}

// Find reads where an OSD is in the CRUSH map. ENOENT: no such id.
func (c Client) Find(ctx context.Context, id int) (Place, error) {
	return ceph.MonJSON[Place](ctx, c.c, ceph.Cmd("osd find", "id", id))
}

// OkToStop asks whether all PGs stay active when the whole set stops at once.
// With max above len(ids), Ceph adds neighbours as long as the answer stays yes
// (StopAnswer.OSDs). The refusal (EBUSY) is an answer, not an error. A missing
// id counts as ok to stop: check that it exists.
func (c Client) OkToStop(ctx context.Context, max int, ids ...int) (StopAnswer, error) {
	cmd := ceph.Cmd("osd ok-to-stop", "ids", ceph.IDStrings(ids))
	if max > len(ids) {
		cmd.Args["max"] = max
	}
	r, err := c.c.Mgr(ctx, cmd)
	var e *ceph.Error
	if errors.As(err, &e) && e.Errno == syscall.EBUSY && len(r.Out) > 0 {
		a, derr := ceph.Decode[StopAnswer](cmd.Prefix, r.Out)
		if derr != nil {
			return StopAnswer{}, derr
		}
		if a.OK {
			// Refused and "ok": whoever says both is not to be believed.
			return StopAnswer{}, err
		}
		return a, nil
	}
	if err != nil {
		return StopAnswer{}, err
	}
	return ceph.Decode[StopAnswer](cmd.Prefix, r.Out)
}

// SafeToDestroy asks which of the OSDs can be destroyed without losing
// durability. Ceph exits 0 whatever the answer is, but for EAGAIN while a PG has
// not been reported yet. An id that does not exist counts as safe: check that it
// exists first.
func (c Client) SafeToDestroy(ctx context.Context, ids ...int) (SafeAnswer, error) {
	return ceph.MgrJSON[SafeAnswer](ctx, c.c, ceph.Cmd("osd safe-to-destroy", "ids", ceph.IDStrings(ids)))
}

// Safety is what is known about destroying one OSD.
type Safety struct {
	// Exists: the id is in the OSD map. Ceph calls a missing one safe.
	Exists bool
	// Destroyed: it is in the map and was destroyed before.
	Destroyed bool
	// Up: its daemon runs; it must not when it is destroyed.
	Up bool
	// Safe: no data is lost or less durable without it. Only when Exists.
	Safe bool
	// Why says what speaks against it.
	Why string
	// Unreported: no more does than that it has not reported, being down, or that others
	// have not, so that Ceph cannot tell: the mgr knows of no PG on it.
	Unreported bool
}

// Safety asks the OSD map and SafeToDestroy about one OSD, in that order: the
// confirming read before it is destroyed. That Ceph cannot tell yet (EAGAIN) is an
// answer: not safe.
func (c Client) Safety(ctx context.Context, id int) (Safety, error) {
	m, err := c.Dump(ctx)
	if err != nil {
		return Safety{}, err
	}
	o, ok := m.Find(id)
	if !ok {
		return Safety{Why: fmt.Sprintf("osd.%d does not exist", id)}, nil
	}
	s := Safety{Exists: true, Destroyed: o.Destroyed(), Up: bool(o.Up)}
	a, err := c.SafeToDestroy(ctx, id)
	var e *ceph.Error
	switch {
	case errors.As(err, &e) && e.Errno == syscall.EAGAIN:
		s.Why, s.Unreported = e.Status, true
	case err != nil:
		return Safety{}, err
	case a.IsSafe(id):
		s.Safe = true
	case slices.Contains(a.Active, id):
		s.Why = "PGs are mapped to it"
	case slices.Contains(a.StoredPGs, id):
		s.Why = "it stores PG data and not all PGs are active+clean"
	case slices.Contains(a.MissingStats, id):
		s.Why, s.Unreported = "it is down, and not all PGs are active+clean", true
	default:
		s.Why = "Ceph's answer does not mention it"
	}
	return s, nil
}

// Out marks OSDs out, so that their PGs move away. Again succeeds. A missing id
// is skipped by Ceph with exit 0.
func (c Client) Out(ctx context.Context, ids ...int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd out", "ids", ceph.IDStrings(ids))))
}

// In marks OSDs in again, with the reweight they had when they were marked out.
func (c Client) In(ctx context.Context, ids ...int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd in", "ids", ceph.IDStrings(ids))))
}

// Down marks OSDs down. One that runs marks itself up again. Again succeeds.
func (c Client) Down(ctx context.Context, ids ...int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd down", "ids", ceph.IDStrings(ids))))
}

// Destroy removes an OSD's keys and uuid and keeps its id, weight and place for
// a replacement. Ceph checks first: EBUSY when it is up or holds data that is
// not safe elsewhere, EAGAIN when it cannot tell yet (just stopped, peering).
// A missing id exits 0.
func (c Client) Destroy(ctx context.Context, id int) error {
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("osd destroy", "id", id)))
}

// DestroyUnchecked is Destroy without Ceph's own check: it destroys the only
// copy of a PG without a word. Only for what a live SafeToDestroy has just
// proven, or what the user has confirmed as lost. EBUSY when the OSD is up.
func (c Client) DestroyUnchecked(ctx context.Context, id int) error {
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("osd destroy", "id", id,
		"yes_i_really_mean_it", true)))
}

// Purge removes all traces of an OSD: id, keys, CRUSH item. Ceph checks first,
// as for Destroy.
func (c Client) Purge(ctx context.Context, id int) error {
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("osd purge", "id", id)))
}

// PurgeUnchecked is Purge without Ceph's own check; see DestroyUnchecked.
func (c Client) PurgeUnchecked(ctx context.Context, id int) error {
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("osd purge", "id", id,
		"yes_i_really_mean_it", true)))
}

// PurgeNew removes an id that was claimed by `osd new` and never booted. EBUSY:
// it is up; EINVAL or EPERM: it is not new.
func (c Client) PurgeNew(ctx context.Context, id int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd purge-new", "id", id,
		"yes_i_really_mean_it", true)))
}

// Lost declares that a down OSD's data will never come back, so that PGs stop
// waiting for it. EBUSY: it is up; ENOENT: no such id.
func (c Client) Lost(ctx context.Context, id int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd lost", "id", id,
		"yes_i_really_mean_it", true)))
}

// Reweight sets the override weight, 0 to 1. ENOENT: no such id.
func (c Client) Reweight(ctx context.Context, id int, weight float64) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd reweight", "id", id, "weight", ceph.Float(weight))))
}

// PrimaryAffinity sets how readily an OSD becomes primary, 0 to 1. ENOENT: no
// such id.
func (c Client) PrimaryAffinity(ctx context.Context, id int, weight float64) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd primary-affinity", "id", id, "weight", ceph.Float(weight))))
}

// NewOSD claims an id for the uuid: the given one, or the lowest free one when id
// is negative. EINVAL: the id is in use and not destroyed. An id that does not
// exist is made, whatever its number: check that it is destroyed first. Claiming
// again with the same uuid, id and secrets gives the same id; EEXIST when they
// differ.
func (c Client) NewOSD(ctx context.Context, uuid string, id int, s Secrets) (int, error) {
	cmd := ceph.Cmd("osd new", "uuid", uuid)
	if id >= 0 {
		cmd.Args["id"] = id
	}
	in := map[string]string{}
	for k, v := range map[string]string{
		"cephx_secret":         s.CephxSecret.Reveal(),
		"cephx_lockbox_secret": s.CephxLockboxSecret.Reveal(),
		"dmcrypt_key":          s.DmcryptKey.Reveal(),
		"crush_device_class":   s.DeviceClass,
	} {
		if v != "" {
			in[k] = v
		}
	}
	if len(in) > 0 {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("encoding the secrets of a new OSD: %w", err)
		}
		cmd.In = b
	}
	r, err := ceph.MonJSON[struct {
		OSDID *int `json:"osdid"`
	}](ctx, c.c, cmd)
	if err != nil {
		return 0, err
	}
	if r.OSDID == nil {
		return 0, &ceph.DecodeError{Prefix: cmd.Prefix, Err: errors.New("no osdid in it")}
	}
	return *r.OSDID, nil
}

// SetFlag sets a flag of the whole map: noout, noin, noup, nodown, norebalance,
// nobackfill, norecover, pause, noscrub, nodeep-scrub, ... Again succeeds.
func (c Client) SetFlag(ctx context.Context, flag string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd set", "key", flag)))
}

// UnsetFlag clears a flag of the whole map. Again succeeds.
func (c Client) UnsetFlag(ctx context.Context, flag string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd unset", "key", flag)))
}

// SetGroup sets flags (a comma list of noup, nodown, noin, noout) on OSDs, CRUSH
// nodes or device classes, by name. EINVAL: a name that is none of them.
func (c Client) SetGroup(ctx context.Context, flags string, who ...string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd set-group", "flags", flags, "who", who)))
}

// UnsetGroup clears what SetGroup set.
func (c Client) UnsetGroup(ctx context.Context, flags string, who ...string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd unset-group", "flags", flags, "who", who)))
}

// RequireRelease raises the oldest release an OSD may run, by name. EPERM: an
// OSD that is up is older, or no OSD is up; lowering it is refused with EPERM.
func (c Client) RequireRelease(ctx context.Context, release string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd require-osd-release", "release", release)))
}

// SetFullRatio sets the usage, 0 to 1, at which writes stop.
func (c Client) SetFullRatio(ctx context.Context, ratio float64) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd set-full-ratio", "ratio", ceph.Float(ratio))))
}

// SetBackfillfullRatio sets the usage, 0 to 1, at which an OSD takes no
// backfill.
func (c Client) SetBackfillfullRatio(ctx context.Context, ratio float64) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd set-backfillfull-ratio", "ratio", ceph.Float(ratio))))
}

// SetNearfullRatio sets the usage, 0 to 1, at which Ceph warns.
func (c Client) SetNearfullRatio(ctx context.Context, ratio float64) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd set-nearfull-ratio", "ratio", ceph.Float(ratio))))
}

// Blocklist reads the blocked client addresses and networks, sorted. The
// reply is two JSON lists, one after the other, in no order.
func (c Client) Blocklist(ctx context.Context) ([]BlocklistEntry, error) {
	cmd := ceph.Cmd("osd blocklist ls")
	r, err := c.c.Mon(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return decodeBlocklist(r.Out)
}

func decodeBlocklist(out []byte) ([]BlocklistEntry, error) {
	all := []BlocklistEntry{}
	d := json.NewDecoder(bytes.NewReader(out))
	for lists := 0; ; lists++ {
		var l []BlocklistEntry
		err := d.Decode(&l)
		if errors.Is(err, io.EOF) && lists > 0 {
			slices.SortFunc(all, func(a, b BlocklistEntry) int {
				return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Range, b.Range))
			})
			return all, nil
		}
		if err != nil {
			return nil, &ceph.DecodeError{Prefix: "osd blocklist ls", Err: err}
		}
		all = append(all, l...)
	}
}

// BlocklistAdd blocks one client address ("ip:port/nonce", or an ip with port
// and nonce 0 for all of it) for a time; 0 means Ceph's default of one hour.
// EINVAL: no address.
func (c Client) BlocklistAdd(ctx context.Context, addr string, expire time.Duration) error {
	cmd := ceph.Cmd("osd blocklist", "blocklistop", "add", "addr", addr)
	if expire > 0 {
		cmd.Args["expire"] = ceph.Float(expire.Seconds())
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// BlocklistAddRange blocks a CIDR network in the same way.
func (c Client) BlocklistAddRange(ctx context.Context, cidr string, expire time.Duration) error {
	cmd := ceph.Cmd("osd blocklist", "range", "range", "blocklistop", "add", "addr", cidr)
	if expire > 0 {
		cmd.Args["expire"] = ceph.Float(expire.Seconds())
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// BlocklistRemove lets a client in again. One that is not blocked succeeds.
func (c Client) BlocklistRemove(ctx context.Context, addr string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd blocklist", "blocklistop", "rm", "addr", addr)))
}

// BlocklistRemoveRange lets a CIDR network in again.
func (c Client) BlocklistRemoveRange(ctx context.Context, cidr string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd blocklist", "range", "range", "blocklistop", "rm", "addr", cidr)))
}
