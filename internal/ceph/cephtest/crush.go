package cephtest

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"syscall"
)

// crushTypes are the bucket types of a new cluster, by id.
var crushTypes = []string{"osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"}

type bucket struct {
	id       int
	name     string
	kind     string
	parent   *bucket
	children []int // bucket ids (negative) and OSD ids, as added
}

type crushItem struct {
	// weight is in 1/65536.
	weight int64
	class  string
	parent *bucket
}

type rule struct {
	id                  int
	name                string
	kind                int // 1 replicated, 3 erasure
	root, class, domain string
}

type crushState struct {
	version int
	nextID  int
	buckets map[string]*bucket
	byID    map[int]*bucket
	items   map[int]*crushItem // by OSD id
	rules   []*rule
	nextRul int
}

func (c *Cluster) initCrush() {
	c.crush = crushState{version: 1, nextID: -1, buckets: map[string]*bucket{}, byID: map[int]*bucket{}, items: map[int]*crushItem{}}
	c.newBucket("default", "root")
	c.addRule(&rule{name: "replicated_rule", kind: 1, root: "default", domain: "host"})
}

func (c *Cluster) newBucket(name, kind string) *bucket {
	b := &bucket{id: c.crush.nextID, name: name, kind: kind}
	// Real ids skip the shadow bucket of the class.
	c.crush.nextID -= 2
	c.crush.buckets[name], c.crush.byID[b.id] = b, b
	return b
}

func (c *Cluster) addRule(r *rule) {
	r.id = c.crush.nextRul
	c.crush.nextRul++
	c.crush.rules = append(c.crush.rules, r)
	c.crush.version++
}

func (c *Cluster) findRule(name string) *rule {
	for _, r := range c.crush.rules {
		if r.name == name {
			return r
		}
	}
	return nil
}

func kindID(kind string) int { return slices.Index(crushTypes, kind) }

// location parses type=name arguments.
func location(list []string) (map[string]string, bool) {
	loc := map[string]string{}
	for _, a := range list {
		k, v, ok := strings.Cut(a, "=")
		if !ok || kindID(k) < 1 || v == "" {
			return nil, false
		}
		loc[k] = v
	}
	return loc, true
}

// ensure makes the chain of buckets of a location, from its root down, and gives
// the lowest.
func (c *Cluster) ensure(loc map[string]string) *bucket {
	kinds := make([]string, 0, len(loc))
	for k := range loc {
		kinds = append(kinds, k)
	}
	sort.Slice(kinds, func(i, j int) bool { return kindID(kinds[i]) > kindID(kinds[j]) })
	var at *bucket
	for _, k := range kinds {
		b := c.crush.buckets[loc[k]]
		if b == nil {
			b = c.newBucket(loc[k], k)
		}
		if at != nil && b.parent == nil && b != at {
			c.link(b, at)
		}
		at = b
	}
	return at
}

func (c *Cluster) link(b, parent *bucket) {
	if b.parent != nil {
		b.parent.children = slices.DeleteFunc(b.parent.children, func(x int) bool { return x == b.id })
	}
	b.parent = parent
	parent.children = append(parent.children, b.id)
	c.crush.version++
}

func (c *Cluster) placeOSD(id int, at *bucket) {
	it := c.crush.items[id]
	if it.parent == at {
		return
	}
	c.unlinkOSD(id)
	it.parent = at
	if at != nil {
		at.children = append(at.children, id)
	}
	c.crush.version++
}

func (c *Cluster) unlinkOSD(id int) {
	if it := c.crush.items[id]; it != nil && it.parent != nil {
		it.parent.children = slices.DeleteFunc(it.parent.children, func(x int) bool { return x == id })
		it.parent = nil
	}
}

// locationOf gives the buckets above an OSD.
func (c *Cluster) locationOf(id int) map[string]string {
	loc := map[string]string{}
	if it := c.crush.items[id]; it != nil {
		for b := it.parent; b != nil; b = b.parent {
			loc[b.kind] = b.name
		}
	}
	return loc
}

// below lists the OSDs under a bucket.
func (c *Cluster) below(b *bucket) []int {
	var out []int
	for _, ch := range b.children {
		if ch >= 0 {
			out = append(out, ch)
		} else if sub := c.crush.byID[ch]; sub != nil {
			out = append(out, c.below(sub)...)
		}
	}
	return out
}

func weight(w float64) int64 { return int64(math.Round(w * 65536)) }

// Weight gives the CRUSH weight a disk of that many bytes gets: its size in TiB,
// in steps of 1/65536.
func Weight(bytes int64) float64 { return float64(int64(float64(bytes)/(1<<40)*65536)) / 65536 }

func crushCommands() map[string]*spec {
	return map[string]*spec{
		"osd crush dump":      entry(0, "", (*Cluster).crushDump),
		"osd crush rule ls":   entry(0, "", func(c *Cluster, _ args) reply { return jsonReply(c.ruleNames()) }),
		"osd crush rule dump": entry(0, "name:str?", (*Cluster).ruleDump),
		"osd crush class ls": entry(0, "", func(c *Cluster, _ args) reply {
			classes := []string{}
			for _, it := range c.crush.items {
				if it.class != "" && !slices.Contains(classes, it.class) {
					classes = append(classes, it.class)
				}
			}
			sort.Strings(classes)
			return jsonReply(classes)
		}),
		"osd crush rule create-replicated": entry(rw, "name:str root:str type:str class:str?", (*Cluster).ruleCreate),
		"osd crush rule create-erasure":    entry(rw, "name:str profile:str?", (*Cluster).ruleCreateErasure),
		"osd crush rule rm":                entry(rw, "name:str", (*Cluster).ruleRm),
		"osd crush reweight":               entry(rw, "name:str weight:float", (*Cluster).crushReweight),
		"osd crush create-or-move":         entry(rw, "id:int weight:float args:strs", (*Cluster).createOrMove),
		"osd crush add-bucket":             entry(rw, "name:str type:str args:strs?", (*Cluster).addBucket),
		"osd crush move":                   entry(rw, "name:str args:strs", (*Cluster).crushMove),
		"osd crush rm":                     entry(rw, "name:str ancestor:str?", (*Cluster).crushRm),
		"osd crush set-device-class":       entry(rw, "class:str ids:strs", (*Cluster).setClass),
		"osd crush rm-device-class":        entry(rw, "ids:strs", (*Cluster).rmClass),
	}
}

func (c *Cluster) ruleNames() []string {
	names := []string{}
	for _, r := range c.crush.rules {
		names = append(names, r.name)
	}
	return names
}

func (c *Cluster) ruleJSON(r *rule) obj {
	take := r.root
	if r.class != "" {
		take += "~" + r.class
	}
	item := -1
	if b := c.crush.buckets[r.root]; b != nil {
		item = b.id
	}
	op, steps := "chooseleaf_firstn", []obj{}
	if r.kind == 3 {
		op = "chooseleaf_indep"
		steps = append(steps, obj{"op": "set_chooseleaf_tries", "num": 5}, obj{"op": "set_choose_tries", "num": 100})
	}
	if r.domain == "osd" {
		op = strings.Replace(op, "chooseleaf", "choose", 1)
	}
	steps = append(steps, obj{"op": "take", "item": item, "item_name": take},
		obj{"op": op, "num": 0, "type": r.domain}, obj{"op": "emit"})
	return obj{"rule_id": r.id, "rule_name": r.name, "type": r.kind, "steps": steps}
}

func (c *Cluster) ruleDump(a args) reply {
	if a.has("name") {
		r := c.findRule(a.str("name"))
		if r == nil {
			return fail(syscall.ENOENT, "unknown crush rule '%s'", a.str("name"))
		}
		return jsonReply(c.ruleJSON(r))
	}
	out := []obj{}
	for _, r := range c.crush.rules {
		out = append(out, c.ruleJSON(r))
	}
	return jsonReply(out)
}

func (c *Cluster) crushDump(args) reply {
	devices, buckets, rules, types := []obj{}, []obj{}, []obj{}, []obj{}
	for _, id := range sortedIDs(c.crush.items) {
		d := obj{"id": id, "name": fmt.Sprintf("osd.%d", id)}
		if cl := c.crush.items[id].class; cl != "" {
			d["class"] = cl
		}
		devices = append(devices, d)
	}
	for i, t := range crushTypes {
		types = append(types, obj{"type_id": i, "name": t})
	}
	for _, id := range sortedBuckets(c.crush.byID) {
		b := c.crush.byID[id]
		items := []obj{}
		for pos, ch := range b.children {
			items = append(items, obj{"id": ch, "weight": c.weightOf(ch), "pos": pos})
		}
		buckets = append(buckets, obj{"id": b.id, "name": b.name, "type_id": kindID(b.kind), "type_name": b.kind,
			"weight": c.weightOf(b.id), "alg": "straw2", "hash": "rjenkins1", "items": items})
	}
	for _, r := range c.crush.rules {
		rules = append(rules, c.ruleJSON(r))
	}
	return jsonReply(obj{"devices": devices, "types": types, "buckets": buckets, "rules": rules,
		"tunables": obj{"profile": "jewel"}, "choose_args": obj{}})
}

func (c *Cluster) weightOf(id int) int64 {
	if id >= 0 {
		if it := c.crush.items[id]; it != nil {
			return it.weight
		}
		return 0
	}
	var w int64
	for _, ch := range c.crush.byID[id].children {
		w += c.weightOf(ch)
	}
	return w
}

func sortedBuckets(m map[int]*bucket) []int {
	ids := make([]int, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	sort.Sort(sort.Reverse(sort.IntSlice(ids)))
	return ids
}

func (c *Cluster) ruleCreate(a args) reply {
	n := &rule{name: a.str("name"), kind: 1, root: a.str("root"), class: a.str("class"), domain: a.str("type")}
	if old := c.findRule(n.name); old != nil {
		if old.root == n.root && old.class == n.class && old.domain == n.domain && old.kind == n.kind {
			return done("rule %s already exists", n.name)
		}
		// Ceph looks at the name only.
		return done("rule %s already exists", n.name)
	}
	if c.crush.buckets[n.root] == nil {
		return fail(syscall.ENOENT, "root item %s does not exist", n.root)
	}
	if kindID(n.domain) < 0 {
		return fail(syscall.EINVAL, "unknown type %s", n.domain)
	}
	if n.class != "" && !c.classExists(n.class) {
		return fail(syscall.EINVAL, "device class %s does not exist", n.class)
	}
	c.addRule(n)
	c.bumpOSD()
	return reply{}
}

func (c *Cluster) classExists(class string) bool {
	for _, it := range c.crush.items {
		if it.class == class {
			return true
		}
	}
	return false
}

func (c *Cluster) ruleCreateErasure(a args) reply {
	profile := a.str("profile")
	if profile == "" {
		profile = "default"
	}
	if c.findRule(a.str("name")) != nil {
		return done("rule %s already exists", a.str("name"))
	}
	p := c.profiles[profile]
	if p == nil {
		return fail(syscall.EINVAL, "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {}")
	}
	c.addRule(erasureRule(a.str("name"), p))
	c.bumpOSD()
	return done("created rule %s at %d", a.str("name"), c.crush.nextRul-1)
}

func erasureRule(name string, p map[string]string) *rule {
	r := &rule{name: name, kind: 3, root: "default", domain: "host", class: p["crush-device-class"]}
	if v := p["crush-root"]; v != "" {
		r.root = v
	}
	if v := p["crush-failure-domain"]; v != "" {
		r.domain = v
	}
	return r
}

func (c *Cluster) ruleRm(a args) reply {
	r := c.findRule(a.str("name"))
	if r == nil {
		return done("rule %s does not exist", a.str("name"))
	}
	for _, p := range c.pools {
		if p.rule == r.name {
			return fail(syscall.EBUSY, "crush rule %s (%d) is in use", r.name, r.id)
		}
	}
	c.crush.rules = slices.DeleteFunc(c.crush.rules, func(x *rule) bool { return x == r })
	c.bumpOSD()
	return reply{}
}

func osdIDOf(name string) (int, bool) {
	var id int
	if _, err := fmt.Sscanf(name, "osd.%d", &id); err == nil && name == fmt.Sprintf("osd.%d", id) {
		return id, true
	}
	return 0, false
}

func (c *Cluster) crushReweight(a args) reply {
	id, ok := osdIDOf(a.str("name"))
	if !ok && c.crush.buckets[a.str("name")] != nil {
		return fail(syscall.EINVAL, "device '%s' is not a leaf in the crush map", a.str("name"))
	}
	it := c.crush.items[id]
	if !ok || it == nil || it.parent == nil {
		return fail(syscall.ENOENT, "device '%s' does not appear in the crush map", a.str("name"))
	}
	it.weight = weight(a.real("weight"))
	c.bumpOSD()
	return done("reweighted item id %d name '%s' to %g in crush map", id, a.str("name"), a.real("weight"))
}

func (c *Cluster) createOrMove(a args) reply {
	id := a.num("id")
	if c.osd.byID[id] == nil {
		return fail(syscall.ENOENT, "osd.%d does not exist.  create it before updating the crush map", id)
	}
	loc, ok := location(a.list("args"))
	if !ok {
		return fail(syscall.EINVAL, "bad location %v", a.list("args"))
	}
	c.createOrMoveOSD(id, a.real("weight"), loc)
	c.bumpOSD()
	return done("create-or-move updating item name 'osd.%d' weight %g at location {%s} to crush map", id, a.real("weight"), strings.Join(a.list("args"), ","))
}

func (c *Cluster) createOrMoveOSD(id int, w float64, loc map[string]string) {
	it := c.crush.items[id]
	if it == nil {
		it = &crushItem{}
		c.crush.items[id] = it
	}
	if it.parent == nil {
		it.weight = weight(w)
	}
	c.placeOSD(id, c.ensure(loc))
}

func (c *Cluster) addBucket(a args) reply {
	if c.crush.buckets[a.str("name")] != nil {
		return done("bucket '%s' already exists", a.str("name"))
	}
	if kindID(a.str("type")) < 1 {
		return fail(syscall.EINVAL, "type '%s' does not exist", a.str("type"))
	}
	b := c.newBucket(a.str("name"), a.str("type"))
	if loc, ok := location(a.list("args")); ok && len(loc) > 0 {
		c.link(b, c.ensure(loc))
	}
	c.bumpOSD()
	return done("added bucket %s type %s to crush map", b.name, b.kind)
}

func (c *Cluster) crushMove(a args) reply {
	b := c.crush.buckets[a.str("name")]
	id, isOSD := osdIDOf(a.str("name"))
	if b == nil && (!isOSD || c.crush.items[id] == nil) {
		return fail(syscall.ENOENT, "item %s does not exist", a.str("name"))
	}
	loc, ok := location(a.list("args"))
	if !ok {
		return fail(syscall.EINVAL, "bad location %v", a.list("args"))
	}
	to := c.ensure(loc)
	if isOSD {
		c.placeOSD(id, to)
	} else if b.parent != to {
		for p := to; p != nil; p = p.parent {
			if p == b {
				return fail(syscall.EINVAL, "cannot move %s below itself", b.name)
			}
		}
		c.link(b, to)
	}
	c.bumpOSD()
	return done("moved item name '%s' to location %v in crush map", a.str("name"), a.list("args"))
}

func (c *Cluster) crushRm(a args) reply {
	name := a.str("name")
	if id, ok := osdIDOf(name); ok {
		if c.crush.items[id] == nil {
			return done("device '%s' does not appear in the crush map", name)
		}
		c.unlinkOSD(id)
		delete(c.crush.items, id)
		c.bumpOSD()
		return done("removed item id %d name '%s' from crush map", id, name)
	}
	b := c.crush.buckets[name]
	if b == nil {
		return done("device '%s' does not appear in the crush map", name)
	}
	if len(b.children) > 0 {
		return fail(syscall.ENOTEMPTY, "bucket '%s' is not empty", name)
	}
	for _, r := range c.crush.rules {
		if r.root == name {
			return fail(syscall.EBUSY, "bucket '%s' is in use by rule %s", name, r.name)
		}
	}
	if b.parent != nil {
		b.parent.children = slices.DeleteFunc(b.parent.children, func(x int) bool { return x == b.id })
	}
	delete(c.crush.buckets, name)
	delete(c.crush.byID, b.id)
	c.bumpOSD()
	return done("removed item id %d name '%s' from crush map", b.id, name)
}

func (c *Cluster) setClass(a args) reply {
	class := a.str("class")
	var ids []int
	for _, s := range a.list("ids") {
		id, ok := parseOSD(s)
		if !ok {
			return fail(syscall.EINVAL, "unable to parse osd id or 'osd.%s'", s)
		}
		it := c.crush.items[id]
		if it == nil {
			continue // said in the status and skipped
		}
		if it.class != "" && it.class != class {
			return fail(syscall.EBUSY, "osd.%d has already bound to class '%s', can not reset class to '%s'; use 'ceph osd crush rm-device-class <id>' to remove old class first", id, it.class, class)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		c.crush.items[id].class = class
	}
	c.bumpOSD()
	return done("set osd(s) %v to class '%s'", a.list("ids"), class)
}

func (c *Cluster) rmClass(a args) reply {
	for _, s := range a.list("ids") {
		id, ok := parseOSD(s)
		if !ok {
			return fail(syscall.EINVAL, "unable to parse osd id or 'osd.%s'", s)
		}
		if it := c.crush.items[id]; it != nil {
			it.class = ""
		}
	}
	c.bumpOSD()
	return done("done removing class of osd(s): %v", a.list("ids"))
}
