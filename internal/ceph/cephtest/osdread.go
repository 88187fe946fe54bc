package cephtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph"
)

func (o *osdDaemon) words() []string {
	w := []string{"exists"}
	add := func(yes bool, word string) {
		if yes {
			w = append(w, word)
		}
	}
	add(o.up, "up")
	add(o.autoOut, "autoout")
	add(o.isNew, "new")
	add(o.destroyed, "destroyed")
	for _, f := range []string{"noup", "nodown", "noin", "noout"} {
		add(o.flags[f], f)
	}
	sort.Strings(w)
	return w
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *Cluster) osdDump(args) reply {
	osds, pools := []obj{}, []obj{}
	for _, id := range sortedIDs(c.osd.byID) {
		o := c.osd.byID[id]
		addrs := ceph.Addrs{Vec: []ceph.Addr{}}
		if o.booted {
			addrs.Vec = []ceph.Addr{{Type: "v2", Addr: fmt.Sprintf("10.0.1.%d:6800", id+1), Nonce: uint32(o.upFrom)},
				{Type: "v1", Addr: fmt.Sprintf("10.0.1.%d:6801", id+1), Nonce: uint32(o.upFrom)}}
		}
		osds = append(osds, obj{"osd": id, "uuid": o.uuid, "up": bit(o.up), "in": bit(o.weight > 0), "weight": o.weight,
			"primary_affinity": o.affinity, "last_clean_begin": 0, "last_clean_end": 0, "up_from": o.upFrom, "up_thru": o.upFrom,
			"down_at": 0, "lost_at": 0, "public_addrs": addrs, "cluster_addrs": addrs, "state": o.words()})
	}
	for _, p := range c.pools {
		pools = append(pools, c.poolJSON(p, "pool"))
	}
	flags := []string{"pglog_hardlimit", "purged_snapdirs", "recovery_deletes", "sortbitwise"}
	for f := range c.osd.flags {
		flags = append(flags, f)
	}
	sort.Strings(flags)
	blocked := map[string]string{}
	for a, until := range c.blocklist {
		blocked[a] = stamp(until)
	}
	return jsonReply(obj{"epoch": c.osd.epoch, "fsid": c.fsid, "created": stamp(c.now), "modified": stamp(c.now),
		"flags_set": flags, "crush_version": c.crush.version, "full_ratio": c.osd.full,
		"backfillfull_ratio": c.osd.backfillfull, "nearfull_ratio": c.osd.nearfull, "pool_max": c.poolMax,
		"max_osd": c.osd.maxOSD, "require_min_compat_client": "luminous", "min_compat_client": "jewel",
		"require_osd_release": c.osd.require, "pools": pools, "osds": osds, "osd_xinfo": []obj{}, "pg_upmap": []obj{},
		"pg_upmap_items": []obj{}, "pg_temp": []obj{}, "blocklist": blocked, "range_blocklist": obj{},
		"erasure_code_profiles": c.profiles, "crush_node_flags": c.osd.nodeFlags, "device_class_flags": c.osd.classFlags,
		"stretch_mode": obj{"stretch_mode_enabled": c.mon.stretch, "stretch_bucket_count": 0, "degraded_stretch_mode": 0,
			"recovering_stretch_mode": 0, "stretch_mode_bucket": 0}})
}

func (c *Cluster) osdInState(o *osdDaemon, states []string) bool {
	for _, s := range states {
		switch s {
		case "up":
			if o.up {
				return true
			}
		case "down":
			if !o.up && !o.destroyed {
				return true
			}
		case "in":
			if o.weight > 0 {
				return true
			}
		case "out":
			if o.weight == 0 {
				return true
			}
		case "destroyed":
			if o.destroyed {
				return true
			}
		}
	}
	return len(states) == 0
}

func (c *Cluster) osdNode(o *osdDaemon, depth int) obj {
	status := "down"
	if o.destroyed {
		status = "destroyed"
	} else if o.up {
		status = "up"
	}
	n := obj{"id": o.id, "name": ceph.OSDName(o.id), "type": "osd", "type_id": 0, "crush_weight": 0.0, "depth": depth,
		"pool_weights": obj{}, "exists": 1, "status": status, "reweight": o.weight, "primary_affinity": o.affinity}
	if it := c.crush.items[o.id]; it != nil {
		n["crush_weight"] = float64(it.weight) / 65536
		if it.class != "" {
			n["device_class"] = it.class
		}
	}
	return n
}

func (c *Cluster) osdTree(a args) reply {
	states := a.list("states")
	for _, s := range states {
		if !slices.Contains([]string{"up", "down", "in", "out", "destroyed"}, s) {
			return fail(syscall.EINVAL, "invalid state '%s'", s)
		}
	}
	nodes, stray := []obj{}, []obj{}
	var shown func(id int) bool
	shown = func(id int) bool {
		if id >= 0 {
			return c.osd.byID[id] != nil && c.osdInState(c.osd.byID[id], states)
		}
		for _, ch := range c.crush.byID[id].children {
			if shown(ch) {
				return true
			}
		}
		return len(states) == 0
	}
	var walk func(b *bucket, depth int)
	walk = func(b *bucket, depth int) {
		kids := []int{}
		for _, ch := range b.children {
			if shown(ch) {
				kids = append(kids, ch)
			}
		}
		sort.Ints(kids)
		n := obj{"id": b.id, "name": b.name, "type": b.kind, "type_id": kindID(b.kind), "children": kids}
		if b.kind != "root" {
			n["pool_weights"] = obj{}
		}
		nodes = append(nodes, n)
		for i := len(kids) - 1; i >= 0; i-- {
			if kids[i] >= 0 {
				nodes = append(nodes, c.osdNode(c.osd.byID[kids[i]], depth+1))
			} else {
				walk(c.crush.byID[kids[i]], depth+1)
			}
		}
	}
	for _, id := range sortedBuckets(c.crush.byID) {
		if b := c.crush.byID[id]; b.parent == nil && shown(id) {
			walk(b, 0)
		}
	}
	for _, id := range sortedIDs(c.osd.byID) {
		o := c.osd.byID[id]
		if it := c.crush.items[id]; (it == nil || it.parent == nil) && c.osdInState(o, states) {
			stray = append(stray, c.osdNode(o, 0))
		}
	}
	return jsonReply(obj{"nodes": nodes, "stray": stray})
}

func (c *Cluster) metadataJSON(o *osdDaemon) obj {
	d := obj{"id": o.id}
	if !o.booted {
		return d
	}
	maps.Copy(d, obj{"hostname": o.osdHost, "ceph_version": versionLine(o.version), "ceph_version_short": o.version,
		"ceph_release": releaseName(o.version), "osd_data": fmt.Sprintf("/var/lib/ceph/osd/ceph-%d", o.id),
		"osd_objectstore": "bluestore", "devices": o.spec.Devices, "device_ids": o.spec.DeviceIDs, "device_paths": "",
		"rotational": fmt.Sprint(bit(o.spec.Class == "hdd")), "bluestore_bdev_size": fmt.Sprint(o.spec.Bytes),
		"bluestore_bdev_partition_path": "/dev/" + o.spec.Devices, "bluefs_dedicated_db": fmt.Sprint(bit(o.spec.DB)),
		"bluefs_dedicated_wal": "0", "default_device_class": o.spec.Class})
	return d
}

func (c *Cluster) osdMetadata(a args) reply {
	if a.has("id") {
		o := c.osd.byID[a.num("id")]
		if o == nil {
			return fail(syscall.ENOENT, "osd.%d does not exist", a.num("id"))
		}
		if !o.booted {
			return fail(syscall.ENOENT, "no metadata for osd.%d", o.id)
		}
		return jsonReply(c.metadataJSON(o))
	}
	out := []obj{}
	for _, id := range sortedIDs(c.osd.byID) {
		out = append(out, c.metadataJSON(c.osd.byID[id]))
	}
	return jsonReply(out)
}

func (c *Cluster) osdFind(a args) reply {
	o := c.osd.byID[a.num("id")]
	if o == nil {
		return fail(syscall.ENOENT, "osd.%d does not exist", a.num("id"))
	}
	d := obj{"osd": o.id, "osd_fsid": o.uuid, "addrs": ceph.Addrs{Vec: []ceph.Addr{}}, "crush_location": c.locationOf(o.id)}
	if o.booted {
		d["host"] = o.osdHost
	}
	return jsonReply(d)
}

func (c *Cluster) osdDF(args) reply {
	nodes, on := []obj{}, c.stored()
	mapped := map[int]int{}
	for _, p := range c.pg.PGs() {
		for _, id := range p.Acting {
			mapped[id]++
		}
	}
	var total, used int64
	for _, id := range sortedIDs(c.osd.byID) {
		o := c.osd.byID[id]
		it := c.crush.items[id]
		if it == nil || it.parent == nil {
			continue
		}
		n := c.osdNode(o, 2)
		delete(n, "exists")
		delete(n, "primary_affinity")
		var kb, kbUsed, data int64
		if o.booted && !o.destroyed && o.weight > 0 {
			data = on[id] / 1024
			kb, kbUsed = o.spec.Bytes/1024, data+baseUsed/1024
		}
		n["kb"], n["kb_used"], n["kb_used_data"], n["kb_avail"], n["pgs"] = kb, kbUsed, data, kb-kbUsed, mapped[id]
		n["kb_used_omap"], n["kb_used_meta"], n["var"], n["utilization"] = 0, kbUsed-data, 1.0, 0.0
		if kb > 0 {
			n["utilization"] = float64(kbUsed) / float64(kb) * 100
		}
		total, used = total+kb, used+kbUsed
		nodes = append(nodes, n)
	}
	avg := 0.0
	if total > 0 {
		avg = float64(used) / float64(total) * 100
	}
	return jsonReply(obj{"nodes": nodes, "stray": []obj{}, "summary": obj{"total_kb": total, "total_kb_used": used,
		"total_kb_avail": total - used, "average_utilization": avg, "min_var": 1, "max_var": 1, "dev": 0}})
}

type osdSecrets struct {
	CephxSecret        string `json:"cephx_secret"`
	CephxLockboxSecret string `json:"cephx_lockbox_secret"`
	DmcryptKey         string `json:"dmcrypt_key"`
	DeviceClass        string `json:"crush_device_class"`
}

func (c *Cluster) osdNew(a args) reply {
	var s osdSecrets
	if json.Unmarshal(a.in, &s) != nil {
		s = osdSecrets{} // Ceph takes what it cannot read for no secrets
	}
	if (s.DmcryptKey == "") != (s.CephxLockboxSecret == "") {
		return fail(syscall.EINVAL, "requires both cephx_lockbox_secret and dmcrypt_key")
	}
	id := -1
	if a.has("id") {
		id = a.num("id")
	}
	_, r := c.newOSD(a.str("uuid"), id, s)
	return r
}

// newOSD claims an id, the lowest free one when id is negative.
func (c *Cluster) newOSD(uuid string, id int, s osdSecrets) (int, reply) {
	if len(uuid) != 36 || uuid == zeroUUID {
		return 0, fail(syscall.EINVAL, "bad uuid '%s'", uuid)
	}
	for _, o := range c.osd.byID {
		if o.uuid != uuid {
			continue
		}
		if id >= 0 && id != o.id {
			return 0, fail(syscall.EEXIST, "uuid %s already in use for different id %d", uuid, o.id)
		}
		if e := c.entities[ceph.OSDName(o.id)]; e != nil && s.CephxSecret != "" && e.key != s.CephxSecret {
			return 0, fail(syscall.EEXIST, "osd.%d already exists with a different key", o.id)
		}
		return o.id, jsonReply(obj{"osdid": o.id})
	}
	old := c.osd.byID[id]
	switch {
	case old != nil && !old.destroyed:
		return 0, fail(syscall.EINVAL, "id %d already in use and does not match uuid %s", id, uuid)
	}
	o := &osdDaemon{id: id, uuid: uuid, isNew: true, weight: 1, affinity: 1, flags: map[string]bool{}}
	if old != nil {
		o.weight, o.oldWeight, o.affinity, o.spec = old.weight, old.oldWeight, old.affinity, old.spec
		o.flags = old.flags
	} else if id < 0 {
		for o.id = 0; c.osd.byID[o.id] != nil; o.id++ {
		}
	}
	c.osd.byID[o.id] = o
	c.osd.maxOSD = max(c.osd.maxOSD, o.id+1)
	if s.CephxSecret != "" {
		c.entities[ceph.OSDName(o.id)] = &entity{key: s.CephxSecret,
			caps: map[string]string{"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"}}
	}
	if s.DmcryptKey != "" {
		c.entities["client.osd-lockbox."+uuid] = &entity{key: s.CephxLockboxSecret,
			caps: map[string]string{"mon": fmt.Sprintf("allow command \"config-key get\" with key=\"dm-crypt/osd/%s/luks\"", uuid)}}
		c.keys["dm-crypt/osd/"+uuid+"/luks"] = s.DmcryptKey
	}
	if s.DeviceClass != "" {
		it := c.crush.items[o.id]
		if it == nil {
			it = &crushItem{}
			c.crush.items[o.id] = it
		}
		it.class = s.DeviceClass
	}
	c.bumpOSD()
	return o.id, jsonReply(obj{"osdid": o.id})
}
