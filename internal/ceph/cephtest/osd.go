package cephtest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
)

const zeroUUID = "00000000-0000-0000-0000-000000000000"

type osdDaemon struct {
	id        int
	uuid      string
	up        bool
	running   bool
	destroyed bool
	isNew     bool
	autoOut   bool
	weight    float64
	oldWeight float64
	affinity  float64
	flags     map[string]bool
	booted    bool
	upFrom    int
	downAt    time.Time
	spec      OSDSpec
	version   string
	osdHost   string
}

type osdState struct {
	epoch        int
	byID         map[int]*osdDaemon
	maxOSD       int
	flags        map[string]bool
	full         float64
	backfillfull float64
	nearfull     float64
	require      string
	nodeFlags    map[string][]string
	classFlags   map[string][]string
}

func (s *osdState) init(c *Cluster) {
	*s = osdState{epoch: 1, byID: map[int]*osdDaemon{}, flags: map[string]bool{}, full: 0.95, backfillfull: 0.9,
		nearfull: 0.85, require: releaseName(c.version), nodeFlags: map[string][]string{}, classFlags: map[string][]string{}}
}

// OSDSpec is what the node knows of an OSD that it starts.
type OSDSpec struct {
	// Host becomes the CRUSH host and the host name reported.
	Host string
	// Location adds to root=default and host=Host.
	Location map[string]string
	// Bytes is the size of the disk; 0 means 10 GiB.
	Bytes int64
	// Class is the class the OSD finds out; "" means ssd.
	Class string
	// Devices is the kernel name it reports, e.g. "sdb"; DeviceIDs
	// "sdb=VENDOR_SERIAL".
	Devices, DeviceIDs string
	// InitialWeight replaces the weight that comes from Bytes.
	InitialWeight float64
	// DB says that BlueFS has its own device.
	DB bool
}

// bump counts a new OSD map and lets PGs follow.
func (c *Cluster) bumpOSD() {
	c.osd.epoch++
	c.syncPGs()
}

// NewUUID makes an OSD uuid as ceph-volume would.
func (c *Cluster) NewUUID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uuid()
}

// AddOSD prepares and boots an OSD on a host, and gives its id.
func (c *Cluster) AddOSD(spec OSDSpec, opts ...DaemonOption) int {
	c.t.Helper()
	c.mu.Lock()
	u := c.uuid()
	id, r := c.newOSD(u, -1, osdSecrets{CephxSecret: c.newKey()})
	c.mu.Unlock()
	if r.errno != 0 {
		c.t.Fatalf("cephtest: osd new: %s", r.status)
	}
	if err := c.BootOSD(id, u, spec, opts...); err != nil {
		c.t.Fatalf("cephtest: booting osd.%d: %v", id, err)
	}
	return id
}

// BootOSD starts an OSD daemon with what is on its disk. It is refused, as by
// real mons, when there is no quorum, when the id does not exist or is destroyed,
// when the map has another uuid for it, or when its key is gone.
func (c *Cluster) BootOSD(id int, uuid string, spec OSDSpec, opts ...DaemonOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.osd.byID[id]
	switch {
	case len(c.quorum()) == 0:
		return fmt.Errorf("osd.%d: no quorum", id)
	case o == nil:
		return fmt.Errorf("osd.%d does not exist", id)
	case o.destroyed:
		return fmt.Errorf("osd.%d is destroyed", id)
	case o.uuid != uuid:
		return fmt.Errorf("osd.%d has uuid %s in the map and %s on disk", id, o.uuid, uuid)
	case c.entities[ceph.OSDName(id)] == nil:
		return fmt.Errorf("osd.%d has no key", id)
	}
	d := c.daemon(opts)
	if releaseNumber(releaseName(d.version)) < releaseNumber(c.osd.require) {
		return fmt.Errorf("osd.%d runs %s and the cluster requires %s", id, d.version, c.osd.require)
	}
	if spec.Bytes == 0 {
		spec.Bytes = 10 << 30
	}
	if spec.Class == "" {
		spec.Class = "ssd"
	}
	o.running, o.booted, o.spec, o.version, o.osdHost = true, true, spec, d.version, spec.Host
	w := spec.InitialWeight
	if w == 0 {
		w = Weight(spec.Bytes)
	}
	loc := map[string]string{"root": "default"}
	if spec.Host != "" {
		loc["host"] = spec.Host
	}
	maps.Copy(loc, spec.Location)
	c.createOrMoveOSD(id, w, loc)
	if it := c.crush.items[id]; it.class == "" {
		it.class = spec.Class
	}
	c.markUp(o)
	c.bumpOSD()
	return nil
}

func (c *Cluster) markUp(o *osdDaemon) {
	if c.osd.flags["noup"] || o.flags["noup"] {
		return
	}
	o.up, o.upFrom = true, c.osd.epoch+1
	if o.isNew && !c.osd.flags["noin"] {
		o.weight = 1
	}
	if o.autoOut && !c.osd.flags["noin"] {
		o.weight, o.autoOut = max(o.oldWeight, 1), false
	}
	o.isNew = false
}

// StopOSD stops an OSD daemon; it is marked down at once.
func (c *Cluster) StopOSD(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.osd.byID[id]
	if o == nil || !o.running {
		return
	}
	o.running = false
	if o.up && !c.osd.flags["nodown"] {
		o.up, o.downAt = false, c.now
		c.bumpOSD()
	}
}

// WipeOSD says that the disk of an OSD that does not run is gone or overwritten,
// so that it can never come back with its data.
func (c *Cluster) WipeOSD(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.osd.byID[id]; o != nil && !o.running {
		u := o.uuid
		o.uuid = "wiped"
		c.syncPGs()
		o.uuid = u
		c.syncPGs()
	}
}

// RunningOSDs lists the OSD daemons that run.
func (c *Cluster) RunningOSDs() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []int{}
	for _, id := range sortedIDs(c.osd.byID) {
		if c.osd.byID[id].running {
			out = append(out, id)
		}
	}
	return out
}

func sortedIDs[T any](m map[int]T) []int {
	ids := make([]int, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	sort.Ints(ids)
	return ids
}

// tickOSDs lets OSDs that run come up again and marks out those that are down
// for long.
func (c *Cluster) tickOSDs() {
	after := time.Duration(c.optionInt("mon_osd_down_out_interval", 600)) * time.Second
	changed := false
	for _, id := range sortedIDs(c.osd.byID) {
		o := c.osd.byID[id]
		if o.running && !o.up && !o.destroyed {
			c.markUp(o)
			changed = true
		}
		if !o.up && o.booted && !o.destroyed && o.weight > 0 && after > 0 && c.now.Sub(o.downAt) >= after && !c.hasFlag(o, "noout") {
			o.oldWeight, o.weight, o.autoOut = o.weight, 0, true
			changed = true
		}
	}
	for a, until := range c.blocklist {
		if c.now.After(until) {
			delete(c.blocklist, a)
		}
	}
	if changed {
		c.bumpOSD()
	}
}

func (c *Cluster) hasFlag(o *osdDaemon, flag string) bool {
	if c.osd.flags[flag] || o.flags[flag] {
		return true
	}
	for _, name := range c.locationOf(o.id) {
		if slices.Contains(c.osd.nodeFlags[name], flag) {
			return true
		}
	}
	it := c.crush.items[o.id]
	return it != nil && slices.Contains(c.osd.classFlags[it.class], flag)
}

// used is how full an OSD is, 0 to 1, with stored bytes of data.
func (o *osdDaemon) used(stored int64) float64 {
	if o.spec.Bytes == 0 {
		return 0
	}
	return float64(stored+baseUsed) / float64(o.spec.Bytes)
}

// baseUsed is what an empty BlueStore takes.
const baseUsed = 46 << 20

// stored is how many bytes of data each OSD holds.
func (c *Cluster) stored() map[int]int64 {
	on := map[int]int64{}
	for _, p := range c.pg.PGs() {
		if pool := c.poolByID(p.Pool); pool != nil {
			for _, id := range p.Copies {
				on[id] += pool.bytesPerCopy() / int64(max(pool.pgNum, 1))
			}
		}
	}
	return on
}

func (c *Cluster) capacity() (total, used int64, osds int) {
	on := c.stored()
	for _, o := range c.osd.byID {
		if o.booted && !o.destroyed && o.weight > 0 {
			total += o.spec.Bytes
			used += on[o.id] + baseUsed
			osds++
		}
	}
	return total, used, osds
}

func parseOSD(s string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(s, "osd."))
	return n, err == nil && n >= 0
}

func osdCommands() map[string]*spec {
	ratio := func(set func(*Cluster, float64)) func(*Cluster, args) reply {
		return func(c *Cluster, a args) reply {
			if r := a.real("ratio"); r < 0 || r > 1 {
				return fail(syscall.EINVAL, "ratio %g out of range", r)
			}
			set(c, a.real("ratio"))
			c.bumpOSD()
			return reply{}
		}
	}
	return map[string]*spec{
		"osd dump":     entry(0, "epoch:int?", (*Cluster).osdDump),
		"osd tree":     entry(0, "epoch:int? states:strs?", (*Cluster).osdTree),
		"osd metadata": entry(0, "id:int?", (*Cluster).osdMetadata),
		"osd find":     entry(0, "id:int", (*Cluster).osdFind),
		"osd df":       entry(onMgr|pgs, "output_method:str? filter_by:str? filter:str?", (*Cluster).osdDF),
		"osd out": entry(rw, "ids:strs", eachOSD(func(_ *Cluster, o *osdDaemon) string {
			if o.weight == 0 {
				return fmt.Sprintf("osd.%d is already out. ", o.id)
			}
			o.oldWeight, o.weight = o.weight, 0
			return fmt.Sprintf("marked out osd.%d. ", o.id)
		})),
		"osd in": entry(rw, "ids:strs", eachOSD(func(_ *Cluster, o *osdDaemon) string {
			if o.weight > 0 {
				return fmt.Sprintf("osd.%d is already in. ", o.id)
			}
			o.weight = 1
			if o.oldWeight > 0 {
				o.weight = o.oldWeight
			}
			o.oldWeight, o.autoOut = 0, false
			return fmt.Sprintf("marked in osd.%d. ", o.id)
		})),
		"osd down": entry(rw, "ids:strs definitely_dead:bool?", eachOSD(func(c *Cluster, o *osdDaemon) string {
			if !o.up {
				return fmt.Sprintf("osd.%d is already down. ", o.id)
			}
			o.up, o.downAt = false, c.now
			return fmt.Sprintf("marked down osd.%d. ", o.id)
		})),
		"osd destroy":   entry(onMgr|rw|pgs, "id:int force:bool? yes_i_really_mean_it:bool?", osdRemoval((*Cluster).destroy)),
		"osd purge":     entry(onMgr|rw|pgs, "id:int force:bool? yes_i_really_mean_it:bool?", osdRemoval((*Cluster).purge)),
		"osd purge-new": entry(rw, "id:int yes_i_really_mean_it:bool?", (*Cluster).purgeNew),
		"osd lost": entry(rw, "id:int yes_i_really_mean_it:bool?", func(c *Cluster, a args) reply {
			o := c.osd.byID[a.num("id")]
			switch {
			case !a.yes("yes_i_really_mean_it"):
				return fail(syscall.EPERM, "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.")
			case o == nil:
				return fail(syscall.ENOENT, "osd.%d does not exist", a.num("id"))
			case o.up:
				return fail(syscall.EBUSY, "osd.%d is not down", o.id)
			}
			return done("marked osd lost in epoch %d", c.osd.epoch)
		}),
		"osd reweight": entry(rw, "id:int weight:float", func(c *Cluster, a args) reply {
			o := c.osd.byID[a.num("id")]
			if o == nil {
				return fail(syscall.ENOENT, "osd.%d does not exist", a.num("id"))
			}
			o.weight = a.real("weight")
			c.bumpOSD()
			return done("reweighted osd.%d to %g", o.id, o.weight)
		}),
		"osd primary-affinity": entry(rw, "id:int weight:float", func(c *Cluster, a args) reply {
			o := c.osd.byID[a.num("id")]
			if o == nil {
				return fail(syscall.ENOENT, "osd.%d does not exist", a.num("id"))
			}
			o.affinity = a.real("weight")
			c.bumpOSD()
			return done("set osd.%d primary-affinity to %g", o.id, o.affinity)
		}),
		"osd new":   entry(rw, "uuid:str id:int?", (*Cluster).osdNew),
		"osd set":   entry(rw, "key:str yes_i_really_mean_it:bool?", setFlag(true)),
		"osd unset": entry(rw, "key:str", setFlag(false)),
		"osd set-group": entry(rw, "flags:str who:strs", func(c *Cluster, a args) reply {
			return c.setGroup(a, true)
		}),
		"osd unset-group": entry(rw, "flags:str who:strs", func(c *Cluster, a args) reply {
			return c.setGroup(a, false)
		}),
		"osd require-osd-release":    entry(rw, "release:str yes_i_really_mean_it:bool?", (*Cluster).requireRelease),
		"osd set-full-ratio":         entry(rw, "ratio:float", ratio(func(c *Cluster, r float64) { c.osd.full = r })),
		"osd set-backfillfull-ratio": entry(rw, "ratio:float", ratio(func(c *Cluster, r float64) { c.osd.backfillfull = r })),
		"osd set-nearfull-ratio":     entry(rw, "ratio:float", ratio(func(c *Cluster, r float64) { c.osd.nearfull = r })),
		"osd blocklist ls": entry(0, "", func(c *Cluster, _ args) reply {
			// Ceph writes two lists one after the other.
			lists := map[string][]obj{"addr": {}, "range": {}}
			for _, a := range slices.Sorted(maps.Keys(c.blocklist)) {
				key, addr := "addr", a
				if r, ok := strings.CutPrefix(a, "cidr:"); ok {
					key, addr = "range", r
				}
				lists[key] = append(lists[key], obj{key: addr, "until": stamp(c.blocklist[a])})
			}
			r := jsonReply(lists["addr"])
			r.out = append(r.out, jsonReply(lists["range"]).out[1:]...)
			r.status = fmt.Sprintf("listed %d entries", len(c.blocklist))
			return r
		}),
		"osd blocklist clear": entry(rw, "", func(c *Cluster, _ args) reply {
			clear(c.blocklist)
			c.bumpOSD()
			return done(" removed all blocklist entries")
		}),
		"osd blocklist": entry(rw, "range:str? blocklistop:str addr:str expire:float?", (*Cluster).blocklistOp),
	}
}

// eachOSD runs f on each OSD named; what does not exist is said and skipped.
func eachOSD(f func(*Cluster, *osdDaemon) string) func(*Cluster, args) reply {
	return func(c *Cluster, a args) reply {
		var said strings.Builder
		for _, s := range a.list("ids") {
			id, ok := parseOSD(s)
			if !ok {
				return fail(syscall.EINVAL, "invalid osd id '%s'", s)
			}
			if o := c.osd.byID[id]; o != nil {
				said.WriteString(f(c, o))
			} else {
				fmt.Fprintf(&said, "osd.%d does not exist. ", id)
			}
		}
		c.bumpOSD()
		return done("%s", said.String())
	}
}

func osdRemoval(act func(*Cluster, *osdDaemon) reply) func(*Cluster, args) reply {
	return func(c *Cluster, a args) reply {
		id := a.num("id")
		o := c.osd.byID[id]
		if o == nil {
			return done("osd.%d does not exist", id)
		}
		if !a.yes("force") && !a.yes("yes_i_really_mean_it") {
			if r, unknown := c.unknownPGs(); unknown {
				return r
			}
			switch c.destroyVerdict(id) {
			case active:
				return fail(syscall.EBUSY, "OSD(s) %d have PGs currently mapped to them. You can proceed by passing --force, but be warned that this will likely mean real, permanent data loss.", id)
			case storedPGs:
				return fail(syscall.EBUSY, "OSD(s) %d last reported they still store some PG data, and not all PGs are active+clean; we cannot be sure they aren't still needed.", id)
			case missingStats:
				return fail(syscall.EAGAIN, "OSD(s) %d have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions.", id)
			}
		}
		if o.up {
			return fail(syscall.EBUSY, "osd.%d is not `down`.", id)
		}
		return act(c, o)
	}
}

func (c *Cluster) forgetKeys(o *osdDaemon) {
	delete(c.entities, ceph.OSDName(o.id))
	delete(c.entities, "client.osd-lockbox."+o.uuid)
	delete(c.keys, "dm-crypt/osd/"+o.uuid+"/luks")
}

func (c *Cluster) destroy(o *osdDaemon) reply {
	if o.destroyed {
		return done("destroyed osd.%d", o.id)
	}
	c.forgetKeys(o)
	o.uuid, o.destroyed, o.isNew = zeroUUID, true, false
	o.running = false
	c.bumpOSD()
	return done("destroyed osd.%d", o.id)
}

func (c *Cluster) purge(o *osdDaemon) reply {
	c.forgetKeys(o)
	c.unlinkOSD(o.id)
	delete(c.crush.items, o.id)
	delete(c.osd.byID, o.id)
	c.osd.maxOSD = 0
	for id := range c.osd.byID {
		c.osd.maxOSD = max(c.osd.maxOSD, id+1)
	}
	c.bumpOSD()
	return done("purged osd.%d", o.id)
}

func (c *Cluster) purgeNew(a args) reply {
	o := c.osd.byID[a.num("id")]
	switch {
	case !a.yes("yes_i_really_mean_it"):
		return fail(syscall.EPERM, "Are you SURE? Did you verify with 'ceph osd safe-to-destroy' that it is safe to proceed?")
	case o == nil:
		return done("osd.%d does not exist", a.num("id"))
	case o.up:
		return fail(syscall.EBUSY, "osd.%d is not `down`.", o.id)
	case !o.isNew:
		return fail(syscall.EPERM, "osd.%d is not new", o.id)
	}
	return c.purge(o)
}

func (c *Cluster) requireRelease(a args) reply {
	want := releaseNumber(a.str("release"))
	if want == 0 {
		return fail(syscall.EINVAL, "%s is not a release", a.str("release"))
	}
	have := releaseNumber(c.osd.require)
	up := 0
	for _, o := range c.osd.byID {
		if !o.up {
			continue
		}
		up++
		if releaseNumber(releaseName(o.version)) < want {
			return fail(syscall.EPERM, "not all up OSDs have CEPH_FEATURE_SERVER_%s feature", strings.ToUpper(a.str("release")))
		}
	}
	switch {
	case want < have:
		return fail(syscall.EPERM, "require_osd_release cannot be lowered once it has been set")
	case want == have:
		return reply{}
	case up == 0 && !a.yes("yes_i_really_mean_it"):
		return fail(syscall.EPERM, "Not advisable to continue since no OSDs are up. Pass --yes-i-really-mean-it if you really wish to continue.")
	case c.minMonRelease() < want:
		return fail(syscall.EPERM, "not all mons are %s", a.str("release"))
	}
	c.osd.require = a.str("release")
	c.bumpOSD()
	return reply{}
}

func setFlag(on bool) func(*Cluster, args) reply {
	known := []string{"full", "pause", "noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover",
		"noscrub", "nodeep-scrub", "notieragent", "nosnaptrim", "noautoscale"}
	return func(c *Cluster, a args) reply {
		key := a.str("key")
		if !slices.Contains(known, key) {
			return fail(syscall.EINVAL, "unrecognized flag '%s'", key)
		}
		flags := []string{key}
		if key == "pause" {
			flags = []string{"pauserd", "pausewr"}
		}
		for _, f := range flags {
			if on {
				c.osd.flags[f] = true
			} else {
				delete(c.osd.flags, f)
			}
		}
		c.bumpOSD()
		if on {
			return done("%s is set", strings.Join(flags, ","))
		}
		return done("%s is unset", strings.Join(flags, ","))
	}
}

func (c *Cluster) setGroup(a args, on bool) reply {
	flags := strings.Split(a.str("flags"), ",")
	for _, f := range flags {
		if !slices.Contains([]string{"noup", "nodown", "noin", "noout"}, f) {
			return fail(syscall.EINVAL, "unrecognized flag '%s', must be one of {noup,nodown,noin,noout}", f)
		}
	}
	edit := func(list []string) []string {
		for _, f := range flags {
			list = slices.DeleteFunc(slices.Clone(list), func(x string) bool { return x == f })
			if on {
				list = append(list, f)
			}
		}
		return list
	}
	put := func(m map[string][]string, name string) {
		if m[name] = edit(m[name]); len(m[name]) == 0 {
			delete(m, name)
		}
	}
	for _, who := range a.list("who") {
		id, isOSD := parseOSD(who)
		switch {
		case isOSD && c.osd.byID[id] != nil:
			for _, f := range flags {
				c.osd.byID[id].flags[f] = on
			}
		case c.crush.buckets[who] != nil:
			put(c.osd.nodeFlags, who)
		case c.classExists(who):
			put(c.osd.classFlags, who)
		default:
			return fail(syscall.EINVAL, "invalid input: %s", who)
		}
	}
	c.bumpOSD()
	return reply{}
}

func (c *Cluster) blocklistOp(a args) reply {
	addr := a.str("addr")
	if a.str("range") == "range" {
		ip, bits, ok := strings.Cut(addr, "/")
		if !ok {
			return fail(syscall.EINVAL, "unable to parse range '%s'", addr)
		}
		addr = "cidr:" + ip + ":0/" + bits
	} else {
		if !strings.Contains(addr, ":") {
			addr += ":0"
		}
		if !strings.Contains(addr, "/") {
			addr += "/0"
		}
	}
	switch a.str("blocklistop") {
	case "add":
		d := time.Hour
		if a.has("expire") {
			d = time.Duration(a.real("expire") * float64(time.Second))
		}
		c.blocklist[addr] = c.now.Add(d)
		c.bumpOSD()
		return done("blocklisting %s until %s (%g sec)", addr, stamp(c.now.Add(d)), d.Seconds())
	case "rm":
		if _, ok := c.blocklist[addr]; !ok {
			return done("%s isn't blocklisted", addr)
		}
		delete(c.blocklist, addr)
		c.bumpOSD()
		return done("un-blocklisting %s", addr)
	}
	return fail(syscall.EINVAL, "invalid blocklistop %s", a.str("blocklistop"))
}
