// Package pgmodel is the part of the in-memory Ceph that knows where data is:
// placement groups, the OSDs CRUSH would choose for them, which OSDs hold a full
// copy, and recovery step by step. It is coarse on purpose: a copy is there or
// not, and recovery moves whole copies. It is exact in what an operator must
// never get wrong: when a PG stays active, when the last copy of it is gone, and
// when an OSD that is out can never be emptied because there is nowhere to go.
//
// It knows nothing of commands, and it is deterministic: the same calls give the
// same placement.
package pgmodel

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sort"
	"strings"
)

// OSD is what placement needs to know of one OSD.
type OSD struct {
	// UUID is another one after a replacement: what was on the old disk is gone.
	UUID string
	Up   bool
	// Reweight is 0 for out.
	Reweight    float64
	CrushWeight float64
	Class       string
	// Location is bucket type to bucket name, e.g. host, rack, root; empty for
	// an OSD that is not in the CRUSH map.
	Location map[string]string
	// BackfillFull stops new copies from coming.
	BackfillFull bool
}

// Pool is what placement needs to know of one pool.
type Pool struct {
	ID, PGNum, Size, MinSize int
	// Root, Class and Domain are those of the pool's CRUSH rule.
	Root, Class, Domain string
	Objects, Bytes      int64
}

// PG is the state of one placement group.
type PG struct {
	ID   string
	Pool int
	// State is words joined by plus signs, in Ceph's order.
	State      string
	Up, Acting []int
	// Copies are the OSDs with a full and current copy, up or not.
	Copies []int
	// Objects in this PG, and how many copies of objects are missing or in the
	// wrong place.
	Objects, Degraded, Misplaced int64
}

type pg struct {
	pool    int
	seed    int
	created bool
	peering bool
	lost    bool
	up      []int
	acting  []int
	have    map[int]bool
	moving  map[int]string // target to backfilling, backfill_wait or _toofull
	last    string
}

// Model holds all PGs. The zero value is not usable; see New.
type Model struct {
	osds  map[int]OSD
	pools map[int]Pool
	pgs   map[string]*pg
	ids   []string
}

// New makes a model without OSDs and pools.
func New() *Model {
	return &Model{osds: map[int]OSD{}, pools: map[int]Pool{}, pgs: map[string]*pg{}}
}

// Sync tells the model what is now. Copies on disks that are gone are gone;
// copies on OSDs that are down become stale if writes can go on without them.
// PGs that are touched peer until the next Step.
func (m *Model) Sync(osds map[int]OSD, pools []Pool) {
	old := m.osds
	m.osds = osds
	m.syncPools(pools)
	from := make(map[int][]candidate, len(pools))
	for _, p := range pools {
		from[p.ID] = m.candidates(p)
	}
	for _, id := range m.ids {
		p := m.pgs[id]
		pool := m.pools[p.pool]
		gone := m.dropCopies(p, pool, old)
		up := place(pool, p.seed, from[p.pool])
		touched := gone || !slices.Equal(up, p.up)
		p.up = up
		acting := m.chooseActing(p, pool)
		touched = touched || !slices.Equal(acting, p.acting)
		p.acting = acting
		if touched && p.created {
			p.peering = true
			p.moving = nil
		}
	}
}

// dropCopies removes copies that the change of the OSDs made worthless.
func (m *Model) dropCopies(p *pg, pool Pool, old map[int]OSD) (changed bool) {
	if !p.created {
		return false
	}
	had := len(p.have) > 0
	live := 0
	for o := range p.have {
		if now, ok := m.osds[o]; !ok || now.UUID != old[o].UUID {
			delete(p.have, o)
			changed = true
		} else if now.Up {
			live++
		}
	}
	for o := range p.have {
		if !m.osds[o].Up && old[o].Up {
			changed = true
			if live >= pool.MinSize {
				delete(p.have, o) // writes go on without it
			}
		}
	}
	if had && len(p.have) == 0 {
		p.lost = true
	}
	return changed
}

func (m *Model) syncPools(pools []Pool) {
	m.pools = make(map[int]Pool, len(pools))
	keep := map[string]bool{}
	for _, pool := range pools {
		m.pools[pool.ID] = pool
		for s := range pool.PGNum {
			id := fmt.Sprintf("%d.%x", pool.ID, s)
			keep[id] = true
			if m.pgs[id] != nil {
				continue
			}
			n := &pg{pool: pool.ID, seed: s, have: map[int]bool{}}
			// A split PG starts where its parent is.
			if parent := m.pgs[fmt.Sprintf("%d.%x", pool.ID, s/2)]; parent != nil && s > 0 && parent.created {
				n.created = true
				for o := range parent.have {
					n.have[o] = true
				}
			}
			m.pgs[id] = n
		}
	}
	m.ids = m.ids[:0]
	for id := range m.pgs {
		if !keep[id] {
			delete(m.pgs, id)
			continue
		}
		m.ids = append(m.ids, id)
	}
	sort.Slice(m.ids, func(i, j int) bool {
		a, b := m.pgs[m.ids[i]], m.pgs[m.ids[j]]
		if a.pool != b.pool {
			return a.pool < b.pool
		}
		return a.seed < b.seed
	})
}

// Step lets time pass: PGs that peer are done, PGs that nobody created yet are
// created, and up to budget copies are completed. With recovery off nothing
// moves.
func (m *Model) Step(budget int, recovery bool) {
	for _, id := range m.ids {
		p := m.pgs[id]
		pool := m.pools[p.pool]
		switch {
		case !p.created:
			if len(p.up) > 0 {
				p.created = true
				for _, o := range p.up {
					p.have[o] = true
				}
			}
		case p.peering:
			p.peering = false
			m.plan(p)
		default:
			m.plan(p)
			if recovery {
				budget = m.recover(p, pool, budget)
			}
		}
		p.acting = m.chooseActing(p, pool)
	}
}

// plan lists what has to be copied where.
func (m *Model) plan(p *pg) {
	p.moving = map[int]string{}
	if len(p.acting) == 0 {
		return
	}
	for _, o := range p.up {
		if !p.have[o] {
			p.moving[o] = "backfill_wait"
			if m.osds[o].BackfillFull {
				p.moving[o] = "backfill_toofull"
			}
		}
	}
}

func (m *Model) recover(p *pg, pool Pool, budget int) int {
	for _, o := range p.up {
		if p.moving[o] != "backfill_wait" {
			continue
		}
		empty := pool.Objects == 0
		if !empty && budget <= 0 {
			continue
		}
		if !empty {
			budget--
		}
		p.have[o] = true
		delete(p.moving, o)
	}
	for _, o := range p.up {
		if p.moving[o] == "backfill_wait" {
			p.moving[o] = "backfilling"
			break
		}
	}
	for o, s := range p.moving {
		if s == "backfilling" && budget <= 0 {
			p.moving[o] = "backfill_wait"
		}
	}
	if len(p.up) == pool.Size && len(p.moving) == 0 {
		// All copies are where they belong: strays are removed.
		p.have = map[int]bool{}
		for _, o := range p.up {
			p.have[o] = true
		}
	}
	return budget
}

// chooseActing prefers copies where CRUSH wants them, and keeps strays as long
// as those are too few (what Ceph does with pg_temp).
func (m *Model) chooseActing(p *pg, pool Pool) []int {
	if !p.created {
		return nil
	}
	var acting []int
	for _, o := range p.up {
		if p.have[o] {
			acting = append(acting, o)
		}
	}
	var strays []int
	for o := range p.have {
		if m.osds[o].Up && !slices.Contains(p.up, o) {
			strays = append(strays, o)
		}
	}
	sort.Ints(strays)
	for _, o := range strays {
		if len(acting) < pool.Size {
			acting = append(acting, o)
		}
	}
	return acting
}

// PGs gives all PGs, by pool and number.
func (m *Model) PGs() []PG {
	out := make([]PG, 0, len(m.ids))
	for _, id := range m.ids {
		p := m.pgs[id]
		pool := m.pools[p.pool]
		r := PG{
			ID: id, Pool: p.pool, State: m.state(p, pool),
			Up: slices.Clone(p.up), Acting: slices.Clone(p.acting),
			Objects: perPG(pool.Objects, pool.PGNum, p.seed),
		}
		for o := range p.have {
			r.Copies = append(r.Copies, o)
		}
		sort.Ints(r.Copies)
		if p.created && len(p.acting) > 0 {
			r.Degraded = r.Objects * int64(max(pool.Size-len(p.acting), 0))
			for _, o := range p.acting {
				if !slices.Contains(p.up, o) {
					r.Misplaced += r.Objects
				}
			}
		}
		out = append(out, r)
	}
	return out
}

func perPG(total int64, pgs, seed int) int64 {
	n := total / int64(max(pgs, 1))
	if int64(seed) < total%int64(max(pgs, 1)) {
		n++
	}
	return n
}

func (m *Model) state(p *pg, pool Pool) string {
	switch {
	case !p.created:
		return "unknown"
	case len(p.acting) == 0:
		if p.last == "" || strings.HasPrefix(p.last, "stale+") {
			return p.last
		}
		p.last = "stale+" + p.last
		return p.last
	case p.peering:
		p.last = "peering"
		return p.last
	}
	n := len(p.acting)
	remapped := !slices.Equal(p.acting, p.up)
	var w []string
	if n >= pool.MinSize {
		w = append(w, "active")
	}
	if n >= pool.Size && len(p.moving) == 0 {
		w = append(w, "clean")
	}
	if n < pool.Size {
		w = append(w, "undersized")
		if pool.Objects > 0 {
			w = append(w, "degraded")
		}
	}
	if remapped {
		w = append(w, "remapped")
	}
	for _, s := range []string{"backfill_wait", "backfilling", "backfill_toofull"} {
		if slices.Contains(values(p.moving), s) {
			w = append(w, s)
			break
		}
	}
	if n < pool.MinSize {
		w = append(w, "peered")
	}
	p.last = strings.Join(w, "+")
	return p.last
}

func values(m map[int]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// Lost lists PGs whose last copy was destroyed. An operator that makes this list
// grow without being told to has lost a user's data.
func (m *Model) Lost() []string {
	var out []string
	for _, id := range m.ids {
		if m.pgs[id].lost {
			out = append(out, id)
		}
	}
	return out
}

// candidate is an OSD that a pool's rule may choose.
type candidate struct {
	id     int
	weight float64
	// reweight is 0 for out.
	reweight float64
	up       bool
	domain   string
}

// candidates lists the OSDs under a pool's rule, by id.
func (m *Model) candidates(pool Pool) []candidate {
	var out []candidate
	for id, o := range m.osds {
		if o.CrushWeight <= 0 || pool.Class != "" && o.Class != pool.Class || !under(o, pool.Root) {
			continue
		}
		name := o.Location[pool.Domain]
		if pool.Domain == "osd" {
			name = fmt.Sprintf("osd.%d", id)
		}
		if name != "" {
			out = append(out, candidate{id, o.CrushWeight, o.Reweight, o.Up, name})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return a.id - b.id })
	return out
}

// under reports whether an OSD is below a bucket.
func under(o OSD, root string) bool {
	for _, n := range o.Location {
		if n == root {
			return true
		}
	}
	return false
}

// place is CRUSH, coarsely: the pool's size of failure domains by weighted
// rendezvous hashing, and one OSD in each. OSDs that are out are passed over;
// OSDs that are down keep their place and leave a hole.
func place(pool Pool, seed int, from []candidate) []int {
	type domain struct {
		name   string
		weight float64
		score  float64
		best   int // index into from, -1 for none
		low    float64
	}
	key := hash(uint64(pool.ID)<<32 | uint64(seed))
	domains := map[string]*domain{}
	for i, o := range from {
		d := domains[o.domain]
		if d == nil {
			d = &domain{name: o.domain, best: -1}
			domains[o.domain] = d
		}
		d.weight += o.weight
		if o.reweight <= 0 || o.reweight < 1 && unit(hash(key^uint64(o.id)*3+1)) > o.reweight {
			continue
		}
		if s := -math.Log(unit(hash(key^uint64(o.id)*3))) / o.weight; d.best < 0 || s < d.low {
			d.best, d.low = i, s
		}
	}
	order := make([]*domain, 0, len(domains))
	for _, d := range domains {
		if d.best >= 0 {
			d.score = -math.Log(unit(hash(key^hashString(d.name)))) / d.weight
			order = append(order, d)
		}
	}
	slices.SortFunc(order, func(a, b *domain) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	var up []int
	for i := 0; i < len(order) && i < pool.Size; i++ {
		if o := from[order[i].best]; o.up {
			up = append(up, o.id)
		}
	}
	return up
}

// hash mixes 64 bits (the finalizer of splitmix64).
func hash(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashString(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// unit makes a number in (0, 1) of a hash.
func unit(x uint64) float64 { return (float64(x>>11) + 0.5) / (1 << 53) }
