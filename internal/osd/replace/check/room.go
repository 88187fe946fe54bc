package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
)

// Capacity is what there is of OSDs, pools and rules, for the question where the
// data of OSDs could go.
type Capacity struct {
	Map   cephosd.Map
	Tree  cephosd.Tree
	Usage cephosd.Usage
	Rules []crush.Rule
	// Held is what was noted, when they were marked out, of OSDs that are draining:
	// `osd df` says 0 of them from then on. KiB.
	Held map[int]int64
	// Coming are OSDs whose disks are being replaced: they are out, and take data again when
	// they have their new disks.
	Coming map[int]bool
	// ever: they count as if they had.
	ever bool
}

// Ever is what there will be when all replacements under way are done: what does not
// fit into that can never be drained, and what does is a matter of waiting.
func (c Capacity) Ever() Capacity {
	c.ever = true
	return c
}

// takes reports whether an OSD takes data.
func (c Capacity) takes(o cephosd.OSD) bool { return bool(o.In) || c.ever && c.Coming[o.ID] }

// Fits says why the data of all OSDs of a set could not leave them, and what the user
// can do; "" when it can, as far as this can be told. OSDs that are out already take
// nothing. Rules of another form than "take, choose or chooseleaf one type, emit" are
// not judged: what does not fit is found out by Ceph, and the OSD stays as it is.
func (c Capacity) Fits(set []int) (why, hint string) {
	for _, p := range c.Map.Pools {
		root, class, domain, ok := c.rule(p.CrushRule)
		if !ok {
			continue
		}
		if why, hint := c.pool(p, root, class, domain, set); why != "" {
			return why, hint
		}
	}
	return c.space(set)
}

// pool checks that a pool has as many failure domains as copies without the set.
func (c Capacity) pool(p cephosd.Pool, root, class, domain string, set []int) (why, hint string) {
	left, touched := map[string]int64{}, false
	need := map[string]int64{}
	for _, o := range c.Map.OSDs {
		node, ok := c.Tree.OSD(o.ID)
		loc := c.Tree.Location(o.ID)
		if !ok || loc["root"] != root && !under(c.Tree, o.ID, root) || class != "" && node.DeviceClass != class || node.CrushWeight == 0 {
			continue
		}
		where := loc[domain]
		if domain == "osd" {
			where = node.Name
		}
		if where == "" {
			continue
		}
		if slices.Contains(set, o.ID) {
			touched = true
			need[where] += c.used(o.ID)
			continue
		}
		if c.takes(o) {
			left[where] += c.free(o.ID)
		}
	}
	if !touched {
		return "", ""
	}
	if len(left) < p.Size {
		return fmt.Sprintf("pool %s keeps %d copies in different failure domains of type %s, and without it only %d are left", p.Name, p.Size, domain, len(left)),
			fmt.Sprintf("add a %s with OSDs, or another OSD to the same %s", domain, domain)
	}
	if len(left) > p.Size || domain == "osd" {
		return "", ""
	}
	// As many domains as copies: what leaves an OSD must find room in its own domain.
	for where, kb := range need {
		if free, ok := left[where]; ok && free < kb {
			return fmt.Sprintf("the %d GiB on it must stay in %s %s, where %d GiB are free below the backfillfull ratio", gib(kb), domain, where, gib(free)),
				fmt.Sprintf("add an OSD to that %s, or another %s", domain, domain)
		}
	}
	return "", ""
}

// under reports whether an OSD is below a bucket of any type.
func under(t cephosd.Tree, id int, bucket string) bool {
	for _, name := range t.Location(id) {
		if name == bucket {
			return true
		}
	}
	return false
}

// space checks that what is on the set has room on all others together.
func (c Capacity) space(set []int) (why, hint string) {
	var need, free int64
	for _, o := range c.Map.OSDs {
		if slices.Contains(set, o.ID) {
			need += c.used(o.ID)
		} else if c.takes(o) {
			free += c.free(o.ID)
		}
	}
	if need <= free {
		return "", ""
	}
	return fmt.Sprintf("%d GiB must go elsewhere, and the other OSDs have %d GiB below the backfillfull ratio", gib(need), gib(free)), "add OSDs, or delete data"
}

func gib(kb int64) int64 { return (kb + 1<<20 - 1) >> 20 }

// used is what is on an OSD, in KiB.
func (c Capacity) used(id int) int64 {
	for _, n := range c.Usage.Nodes {
		if n.ID == id && n.KB > 0 {
			return n.KBUsedData
		}
	}
	return c.Held[id]
}

// free is what an OSD can take before Ceph stops backfilling to it, in KiB.
func (c Capacity) free(id int) int64 {
	ratio := c.Map.BackfillfullRatio
	if ratio <= 0 {
		ratio = 0.9 // Ceph's default of mon_osd_backfillfull_ratio
	}
	for _, n := range c.Usage.Nodes {
		if n.ID == id && n.KB > 0 {
			return max(int64(float64(n.KB)*ratio)-n.KBUsed, 0)
		}
	}
	// Ceph knows nothing of a disk that is not there. The weight is its size in TiB.
	if node, ok := c.Tree.OSD(id); ok && c.ever && c.Coming[id] {
		return int64(node.CrushWeight * (1 << 30) * ratio)
	}
	return 0
}

// rule reads a simple rule.
func (c Capacity) rule(id int) (root, class, domain string, ok bool) {
	for _, r := range c.Rules {
		if r.ID != id {
			continue
		}
		takes := 0
		for _, s := range r.Steps {
			switch {
			case s.Op == "take":
				takes++
				root, class, _ = strings.Cut(s.ItemName, "~")
			case strings.HasPrefix(s.Op, "choose"):
				if domain != "" {
					return "", "", "", false
				}
				domain = s.Type
			}
		}
		return root, class, domain, takes == 1 && domain != ""
	}
	return "", "", "", false
}

// Turn says why OSDs must wait before they are marked out: together with those that
// are ahead of them, they would not fit. mine are all that have to go together; ahead is
// in the order of the requests and holds all other accepted replacements that are not
// back yet.
func (c Capacity) Turn(mine, ahead []int) string {
	set := []int{}
	for _, a := range ahead {
		if why, _ := c.Fits(append(slices.Clone(set), a)); why == "" || c.out(a) {
			set = append(set, a)
		}
	}
	why, _ := c.Fits(append(slices.Clone(set), mine...))
	if why == "" {
		return ""
	}
	if len(set) == 0 {
		return "it has to wait: " + why
	}
	return fmt.Sprintf("it waits for %s: together, %s", names(set), why)
}

func (c Capacity) out(id int) bool {
	o, ok := c.Map.Find(id)
	return ok && !bool(o.In)
}
