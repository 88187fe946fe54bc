// Package crush holds the commands about the CRUSH map: its rules, and the place,
// weight and class of its items. It must not compute placements; it reads and
// edits the map.
package crush

import (
	"context"
	"sort"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends CRUSH commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// Rule is one CRUSH rule.
type Rule struct {
	ID   int    `json:"rule_id"`
	Name string `json:"rule_name"`
	// Type is 1 for replicated and 3 for erasure.
	Type  int    `json:"type"`
	Steps []Step `json:"steps"`
}

// Step is one step of a rule.
type Step struct {
	// Op is take, chooseleaf_firstn, choose_indep, emit, set_..., ...
	Op string `json:"op"`
	// Item and ItemName are set for take; the name of a class is "root~class".
	Item     int    `json:"item,omitempty"`
	ItemName string `json:"item_name,omitempty"`
	// Num and Type are set for choose steps.
	Num  int    `json:"num,omitempty"`
	Type string `json:"type,omitempty"`
}

// Bucket is a bucket of the map; weights in 1/65536.
type Bucket struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	TypeName string `json:"type_name"`
	Weight   int64  `json:"weight"`
	Items    []struct {
		ID     int   `json:"id"`
		Weight int64 `json:"weight"`
	} `json:"items"`
}

// Device is an OSD in the map.
type Device struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Class string `json:"class"`
}

// Map is the part of the CRUSH map that is used.
type Map struct {
	Devices []Device `json:"devices"`
	Types   []struct {
		ID   int    `json:"type_id"`
		Name string `json:"name"`
	} `json:"types"`
	// Buckets include the shadow buckets of classes, named "host~ssd".
	Buckets []Bucket `json:"buckets"`
	Rules   []Rule   `json:"rules"`
}

// Dump reads the map.
func (c Client) Dump(ctx context.Context) (Map, error) {
	return ceph.MonJSON[Map](ctx, c.c, ceph.Cmd("osd crush dump"))
}

// Rules reads all rules.
func (c Client) Rules(ctx context.Context) ([]Rule, error) {
	return ceph.MonJSON[[]Rule](ctx, c.c, ceph.Cmd("osd crush rule dump"))
}

// RuleNames lists the rules.
func (c Client) RuleNames(ctx context.Context) ([]string, error) {
	return ceph.MonJSON[[]string](ctx, c.c, ceph.Cmd("osd crush rule ls"))
}

// Rule reads one rule. ENOENT: no such rule.
func (c Client) Rule(ctx context.Context, name string) (Rule, error) {
	return ceph.MonJSON[Rule](ctx, c.c, ceph.Cmd("osd crush rule dump", "name", name))
}

// CreateReplicatedRule makes a rule that puts each copy below another bucket of
// type domain under root, on devices of a class when that is not empty. A rule
// of that name succeeds whatever it says: read it back. ENOENT: no such root;
// EINVAL: no such type or class.
func (c Client) CreateReplicatedRule(ctx context.Context, name, root, domain, class string) error {
	cmd := ceph.Cmd("osd crush rule create-replicated", "name", name, "root", root, "type", domain)
	if class != "" {
		cmd.Args["class"] = class
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// CreateErasureRule makes the rule an erasure code profile asks for. A rule of
// that name succeeds. EINVAL: no such profile.
func (c Client) CreateErasureRule(ctx context.Context, name, profile string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush rule create-erasure", "name", name, "profile", profile)))
}

// RemoveRule removes a rule. A missing one succeeds. EBUSY: a pool uses it.
func (c Client) RemoveRule(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush rule rm", "name", name)))
}

// Location is a place in the map as bucket type to bucket name.
type Location map[string]string

// Args writes the location as type=name, sorted.
func (l Location) Args() []string {
	out := make([]string, 0, len(l))
	for k, v := range l {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return out
}

// Reweight sets the CRUSH weight of an item, in TiB by custom. ENOENT: not in
// the map.
func (c Client) Reweight(ctx context.Context, name string, weight float64) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush reweight", "name", name, "weight", ceph.Float(weight))))
}

// CreateOrMove puts an OSD at a place. One that is already in the map keeps its
// weight. ENOENT: no such OSD id.
func (c Client) CreateOrMove(ctx context.Context, id int, weight float64, at Location) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush create-or-move",
		"id", id, "weight", ceph.Float(weight), "args", at.Args())))
}

// AddBucket makes a bucket without a parent, or below a place. Again succeeds.
func (c Client) AddBucket(ctx context.Context, name, bucketType string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush add-bucket", "name", name, "type", bucketType)))
}

// Move moves a bucket to a place. ENOENT: no such bucket.
func (c Client) Move(ctx context.Context, name string, to Location) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush move", "name", name, "args", to.Args())))
}

// Remove takes an OSD or an empty bucket out of the map. A missing one succeeds.
// ENOTEMPTY: the bucket has items; EBUSY: a rule starts from it.
func (c Client) Remove(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush rm", "name", name)))
}

// SetDeviceClass gives OSDs a class. The same class again succeeds; EBUSY: one
// has another class, which must be removed first. One that does not exist is
// skipped.
func (c Client) SetDeviceClass(ctx context.Context, class string, ids ...int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush set-device-class",
		"class", class, "ids", ceph.IDStrings(ids))))
}

// RemoveDeviceClass takes the class from OSDs. One without a class succeeds.
func (c Client) RemoveDeviceClass(ctx context.Context, ids ...int) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("osd crush rm-device-class", "ids", ceph.IDStrings(ids))))
}

// Classes lists the device classes in use.
func (c Client) Classes(ctx context.Context) ([]string, error) {
	return ceph.MonJSON[[]string](ctx, c.c, ceph.Cmd("osd crush class ls"))
}
