package cephtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type mdsDaemon struct {
	name, version, join string
	gid                 int
	fs                  string // "" for a standby
	rank                int
	replay              bool
}

type filesystem struct {
	id       int
	name     string
	metadata string
	data     []string
	maxMDS   int
	joinable bool
	replay   bool
	standbys int
	failed   bool
}

type fsState struct {
	epoch   int
	nextID  int
	nextGID int
	list    []*filesystem
	mds     []*mdsDaemon
}

func (c *Cluster) initFS() { c.fs = fsState{epoch: 1, nextID: 1, nextGID: 5000} }

// BootMDS starts an MDS that prefers a file system ("" for any).
func (c *Cluster) BootMDS(name, join string, opts ...DaemonOption) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fs.mds = slices.DeleteFunc(c.fs.mds, func(m *mdsDaemon) bool { return m.name == name })
	c.fs.nextGID += 6
	c.fs.mds = append(c.fs.mds, &mdsDaemon{name: name, join: join, version: c.daemon(opts).version, gid: c.fs.nextGID, rank: -1})
	c.assignMDS()
}

// StopMDS stops an MDS; a standby takes over.
func (c *Cluster) StopMDS(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fs.mds = slices.DeleteFunc(c.fs.mds, func(m *mdsDaemon) bool { return m.name == name })
	c.assignMDS()
}

func (c *Cluster) tickFS() {}

func (c *Cluster) findFS(name string) *filesystem {
	for _, f := range c.fs.list {
		if f.name == name {
			return f
		}
	}
	return nil
}

// assignMDS gives each rank without a daemon the best standby.
func (c *Cluster) assignMDS() {
	c.fs.epoch++
	for _, m := range c.fs.mds {
		f := c.findFS(m.fs)
		if m.fs != "" && (f == nil || f.failed || m.rank >= f.maxMDS) || m.replay {
			m.fs, m.rank, m.replay = "", -1, false
		}
	}
	pick := func(fs string) *mdsDaemon {
		var any *mdsDaemon
		for _, m := range c.fs.mds {
			if m.fs != "" {
				continue
			}
			if m.join == fs {
				return m
			}
			if m.join == "" && any == nil {
				any = m
			}
		}
		return any
	}
	for _, f := range c.fs.list {
		if f.failed || !f.joinable {
			continue
		}
		for rank := range f.maxMDS {
			if c.holder(f.name, rank) != nil {
				continue
			}
			if m := pick(f.name); m != nil {
				m.fs, m.rank = f.name, rank
			}
		}
		for rank := 0; f.replay && rank < f.maxMDS; rank++ {
			if m := pick(f.name); m != nil {
				m.fs, m.rank, m.replay = f.name, rank, true
			}
		}
	}
}

func (c *Cluster) holder(fs string, rank int) *mdsDaemon {
	for _, m := range c.fs.mds {
		if m.fs == fs && m.rank == rank && !m.replay {
			return m
		}
	}
	return nil
}

func (c *Cluster) mdsJSON(m *mdsDaemon) obj {
	state := "up:standby"
	if m.replay {
		state = "up:standby-replay"
	} else if m.fs != "" {
		state = "up:active"
	}
	join := -1
	if f := c.findFS(m.join); f != nil {
		join = f.id
	}
	return obj{"gid": m.gid, "name": m.name, "rank": m.rank, "incarnation": 1, "state": state, "state_seq": 1,
		"addr": fmt.Sprintf("10.0.2.1:6800/%d", m.gid), "join_fscid": join,
		"addrs": ceph.Addrs{Vec: []ceph.Addr{{Type: "v2", Addr: "10.0.2.1:6800", Nonce: uint32(m.gid)}}}}
}

func (c *Cluster) fsJSON(f *filesystem) obj {
	up, info, in := obj{}, obj{}, []int{}
	failed := []int{}
	for rank := range f.maxMDS {
		m := c.holder(f.name, rank)
		if m == nil {
			if f.failed {
				failed = append(failed, rank)
			}
			continue
		}
		in = append(in, rank)
		up[fmt.Sprintf("mds_%d", rank)] = m.gid
	}
	for _, m := range c.fs.mds {
		if m.fs == f.name {
			info[fmt.Sprintf("gid_%d", m.gid)] = c.mdsJSON(m)
		}
	}
	data := []int{}
	for _, d := range f.data {
		if p := c.findPool(d); p != nil {
			data = append(data, p.id)
		}
	}
	meta := -1
	if p := c.findPool(f.metadata); p != nil {
		meta = p.id
	}
	return obj{"id": f.id, "mdsmap": obj{"epoch": c.fs.epoch, "fs_name": f.name, "enabled": true, "max_mds": f.maxMDS,
		"in": in, "up": up, "failed": failed, "damaged": []int{}, "stopped": []int{}, "info": info, "data_pools": data,
		"metadata_pool": meta, "standby_count_wanted": f.standbys,
		"flags_state": obj{"joinable": f.joinable, "allow_standby_replay": f.replay, "allow_snaps": true}}}
}

func (c *Cluster) fsSummary() obj {
	s := obj{"epoch": c.fs.epoch, "btime": stamp(c.now), "by_rank": []obj{}}
	up, maxMDS, standby := 0, 0, 0
	for _, f := range c.fs.list {
		maxMDS += f.maxMDS
	}
	for _, m := range c.fs.mds {
		if m.fs == "" {
			standby++
		} else if !m.replay {
			up++
		}
	}
	if len(c.fs.list) > 0 {
		s["id"], s["up"], s["in"], s["max"] = c.fs.list[0].id, up, up, maxMDS
	}
	s["up:standby"] = standby
	return s
}

func fsCommands() map[string]*spec {
	withFS := func(f func(*Cluster, *filesystem, args) reply) func(*Cluster, args) reply {
		return func(c *Cluster, a args) reply {
			x := c.findFS(a.str("fs_name"))
			if x == nil {
				return fail(syscall.ENOENT, "filesystem '%s' not found", a.str("fs_name"))
			}
			r := f(c, x, a)
			c.assignMDS()
			return r
		}
	}
	return map[string]*spec{
		"fs ls": entry(0, "", func(c *Cluster, _ args) reply {
			out := []obj{}
			for _, f := range c.fs.list {
				m := c.fsJSON(f)["mdsmap"].(obj)
				out = append(out, obj{"name": f.name, "metadata_pool": f.metadata, "metadata_pool_id": m["metadata_pool"],
					"data_pool_ids": m["data_pools"], "data_pools": f.data})
			}
			return jsonReply(out)
		}),
		"fs dump": entry(0, "epoch:int?", func(c *Cluster, _ args) reply {
			list, standbys := []obj{}, []obj{}
			for _, f := range c.fs.list {
				list = append(list, c.fsJSON(f))
			}
			for _, m := range c.fs.mds {
				if m.fs == "" {
					standbys = append(standbys, c.mdsJSON(m))
				}
			}
			def := -1
			if len(c.fs.list) > 0 {
				def = c.fs.list[0].id
			}
			r := jsonReply(obj{"epoch": c.fs.epoch, "default_fscid": def, "standbys": standbys, "filesystems": list})
			r.status = fmt.Sprintf("dumped fsmap epoch %d", c.fs.epoch)
			return r
		}),
		"fs get": entry(0, "fs_name:str", func(c *Cluster, a args) reply {
			f := c.findFS(a.str("fs_name"))
			if f == nil {
				return fail(syscall.ENOENT, "filesystem '%s' not found", a.str("fs_name"))
			}
			return jsonReply(c.fsJSON(f))
		}),
		"fs new": entry(rw, "fs_name:str metadata:str data:str force:bool? allow_dangerous_metadata_overlay:bool? fscid:int? recover:bool?", (*Cluster).fsNew),
		"fs set": entry(rw, "fs_name:str var:str val:str yes_i_really_mean_it:bool?", withFS(func(_ *Cluster, f *filesystem, a args) reply {
			n, err := strconv.Atoi(a.str("val"))
			truth := a.str("val") == "true" || a.str("val") == "1"
			switch a.str("var") {
			case "max_mds":
				if err != nil || n < 1 {
					return fail(syscall.EINVAL, "You must specify at least one MDS")
				}
				f.maxMDS = n
			case "standby_count_wanted":
				if err != nil {
					return fail(syscall.EINVAL, "standby_count_wanted requires an integer value")
				}
				f.standbys = n
			case "allow_standby_replay":
				f.replay = truth
			case "joinable":
				f.joinable = truth
				if truth {
					f.failed = false
				}
			case "session_timeout", "session_autoclose", "max_file_size", "allow_new_snaps", "balancer", "down",
				"refuse_client_session", "max_xattr_size", "bal_rank_mask", "balance_automate", "refuse_standby_for_another_fs":
			default:
				return fail(syscall.EINVAL, "unknown variable %s", a.str("var"))
			}
			return reply{}
		})),
		"fs add_data_pool": entry(rw, "fs_name:str pool:str", withFS(func(c *Cluster, f *filesystem, a args) reply {
			p := c.findPool(a.str("pool"))
			if p == nil {
				return fail(syscall.ENOENT, "pool '%s' does not exist", a.str("pool"))
			}
			if slices.Contains(f.data, p.name) {
				return fail(syscall.EINVAL, "RADOS pool '%s' is already used by filesystem '%s' as a 'data' pool for application 'cephfs'", p.name, f.name)
			}
			if p.fs != "" {
				return fail(syscall.EINVAL, "pool '%s' (id '%d') has a non-CephFS application enabled or is in use", p.name, p.id)
			}
			p.fs = f.name
			p.apps["cephfs"] = map[string]string{"data": f.name}
			f.data = append(f.data, p.name)
			return done("added data pool %d to fsmap", p.id)
		})),
		"fs fail": entry(rw, "fs_name:str yes_i_really_mean_it:bool?", withFS(func(_ *Cluster, f *filesystem, _ args) reply {
			f.failed, f.joinable = true, false
			return done("%s marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed.", f.name)
		})),
		"fs rm": entry(rw, "fs_name:str yes_i_really_mean_it:bool?", func(c *Cluster, a args) reply {
			f := c.findFS(a.str("fs_name"))
			switch {
			case f == nil:
				return done("filesystem '%s' does not exist", a.str("fs_name"))
			case c.holder(f.name, 0) != nil:
				return fail(syscall.EINVAL, "all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.")
			case !a.yes("yes_i_really_mean_it"):
				return fail(syscall.EPERM, "this is a DESTRUCTIVE operation and will make data in your filesystem permanently inaccessible.  Add --yes-i-really-mean-it if you are sure you wish to continue.")
			}
			c.fs.list = slices.DeleteFunc(c.fs.list, func(x *filesystem) bool { return x == f })
			for _, p := range c.pools {
				if p.fs == f.name {
					p.fs = ""
				}
			}
			c.assignMDS()
			return reply{}
		}),
		"mds ok-to-stop": entry(0, "ids:strs", func(c *Cluster, a args) reply {
			ids := a.list("ids")
			for _, m := range c.fs.mds {
				if !slices.Contains(ids, m.name) || m.fs == "" || m.replay {
					continue
				}
				spare := false
				for _, s := range c.fs.mds {
					if !slices.Contains(ids, s.name) && (s.fs == "" || s.replay && s.fs == m.fs) && (s.join == "" || s.join == m.fs) {
						spare = true
					}
				}
				if !spare {
					return fail(syscall.EBUSY, "one or more filesystems would be offline or degraded by stopping [%s]", strings.Join(ids, ","))
				}
			}
			return done("should be safe to stop [%s]", strings.Join(ids, ","))
		}),
		"mds fail": entry(rw, "role_or_gid:str yes_i_really_mean_it:bool?", func(c *Cluster, a args) reply {
			who := a.str("role_or_gid")
			for _, m := range c.fs.mds {
				if m.name == who || fmt.Sprint(m.gid) == who || fmt.Sprintf("%s:%d", m.fs, m.rank) == who {
					m.fs, m.rank, m.replay = "", -1, false
					c.fs.mds = append(slices.DeleteFunc(c.fs.mds, func(x *mdsDaemon) bool { return x == m }), m)
					c.assignMDS()
					return done("failed mds gid %d", m.gid)
				}
			}
			return done("MDS named '%s' does not exist, or is not up", who)
		}),
	}
}

func (c *Cluster) fsNew(a args) reply {
	name := a.str("fs_name")
	meta, data := c.findPool(a.str("metadata")), c.findPool(a.str("data"))
	if meta == nil {
		return fail(syscall.ENOENT, "pool '%s' does not exist", a.str("metadata"))
	}
	if data == nil {
		return fail(syscall.ENOENT, "pool '%s' does not exist", a.str("data"))
	}
	if f := c.findFS(name); f != nil {
		if f.metadata == meta.name && f.data[0] == data.name {
			return done("filesystem '%s' already exists", name)
		}
		return fail(syscall.EINVAL, "filesystem already exists with name '%s'", name)
	}
	if meta.erasure {
		return fail(syscall.EINVAL, "pool '%s' (id '%d') is an erasure-coded pool. Use of EC pools for CephFS metadata is not permitted", meta.name, meta.id)
	}
	if data.erasure && !a.yes("force") {
		return fail(syscall.EINVAL, "pool '%s' (id '%d') is an erasure-coded pool. Use of an EC pool for the default data pool is discouraged; use --force to override", data.name, data.id)
	}
	if meta.fs != "" || data.fs != "" {
		return fail(syscall.EINVAL, "pool is already in use by another file system")
	}
	f := &filesystem{id: c.fs.nextID, name: name, metadata: meta.name, data: []string{data.name}, maxMDS: 1, joinable: true}
	c.fs.nextID++
	meta.fs, data.fs = name, name
	meta.apps["cephfs"] = map[string]string{"metadata": name}
	data.apps["cephfs"] = map[string]string{"data": name}
	c.fs.list = append(c.fs.list, f)
	c.assignMDS()
	return done("new fs with metadata pool %d and data pool %d", meta.id, data.id)
}
