package cephtest

import (
	_ "embed" // the list of options
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// options are the names that `config ls` of Ceph 20.2.4 lists.
//
//go:embed options.txt
var options string

// knownOption reports whether Ceph knows an option. Those of mgr modules are taken
// as they come: which there are depends on the modules installed.
func knownOption(name string) bool {
	return strings.HasPrefix(name, "mgr/") || strings.HasPrefix(name, "debug_") ||
		strings.Contains("\n"+options, "\n"+name+"\n")
}

type option struct{ section, mask, name, value string }

// RejectOptions makes option names unknown to Ceph, so that config set refuses
// them.
func (c *Cluster) RejectOptions(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.rejects[n] = true
	}
}

func splitWho(who string) (section, mask string, ok bool) {
	section, mask, _ = strings.Cut(who, "/")
	if strings.Contains(section, ":") {
		return "", "", false
	}
	kind, _, _ := strings.Cut(section, ".")
	if !slices.Contains([]string{"global", "mon", "mgr", "osd", "mds", "client"}, kind) {
		return "", "", false
	}
	return section, mask, true
}

// optionFor is the value the database has for a section or daemon, "" for none.
func (c *Cluster) optionFor(who, name string) string {
	value, best := "", -1
	for _, o := range c.config {
		if o.name != name || o.mask != "" {
			continue
		}
		rank := -1
		switch {
		case o.section == "global":
			rank = 0
		case o.section == who:
			rank = 2
		case strings.HasPrefix(who, o.section+"."):
			rank = 1
		}
		if rank > best {
			value, best = o.value, rank
		}
	}
	return value
}

func (c *Cluster) optionInt(name string, def int) int {
	for _, who := range []string{"mon", "global"} {
		if n, err := strconv.Atoi(c.optionFor(who, name)); err == nil {
			return n
		}
	}
	return def
}

// SetOption sets an option as a ceph.conf would.
func (c *Cluster) SetOption(who, name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setOption(who, name, value)
}

func (c *Cluster) setOption(who, name, value string) {
	section, mask, _ := splitWho(who)
	for _, o := range c.config {
		if o.section == section && o.mask == mask && o.name == name {
			o.value = value
			return
		}
	}
	c.config = append(c.config, &option{section, mask, name, value})
}

// optionName writes a name as Ceph keeps it.
func optionName(n string) string { return strings.NewReplacer(" ", "_", "-", "_").Replace(n) }

// checkOption is what config set refuses.
func (c *Cluster) checkOption(name, value string) *reply {
	refuse := func(f string, a ...any) *reply { r := fail(syscall.EINVAL, f, a...); return &r }
	if c.rejects[name] || !knownOption(name) {
		return refuse("unrecognized config option '%s'", name)
	}
	if name == "osd_memory_target" {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 939524096 {
			return refuse("error parsing value: Value '%s' is below minimum 939524096", value)
		}
	}
	if slices.Contains([]string{"fsid", "keyring", "mon_host", "key", "keyfile", "mon_data", "osd_data"}, name) {
		return refuse("%s is special and cannot be stored by the mon", name)
	}
	return nil
}

func configCommands() map[string]*spec {
	return map[string]*spec{
		"config dump": entry(0, "", func(c *Cluster, _ args) reply {
			out := []obj{}
			for _, o := range c.config {
				out = append(out, obj{"section": o.section, "name": o.name, "value": o.value, "level": "advanced",
					"can_update_at_runtime": true, "mask": o.mask})
			}
			sort.SliceStable(out, func(i, j int) bool {
				a, b := out[i]["section"].(string), out[j]["section"].(string)
				return a < b || a == b && out[i]["name"].(string) < out[j]["name"].(string)
			})
			return jsonReply(out)
		}),
		"config get": entry(0, "who:str key:str?", func(c *Cluster, a args) reply {
			if !a.has("key") {
				c.t.Errorf("cephtest: config get knows only one key")
				return fail(syscall.EINVAL, "not known")
			}
			if c.rejects[a.str("key")] {
				return fail(syscall.ENOENT, "unrecognized key '%s'", a.str("key"))
			}
			return reply{out: []byte(c.optionFor(a.str("who"), optionName(a.str("key"))) + "\n")}
		}),
		"config set": entry(rw, "who:str name:str value:str force:bool?", func(c *Cluster, a args) reply {
			if _, _, ok := splitWho(a.str("who")); !ok {
				return fail(syscall.EINVAL, "unrecognized config target '%s'", a.str("who"))
			}
			name := optionName(a.str("name"))
			if r := c.checkOption(name, a.str("value")); r != nil && !a.yes("force") {
				return *r
			}
			c.setOption(a.str("who"), name, a.str("value"))
			c.serveModules()
			return reply{}
		}),
		"config rm": entry(rw, "who:str name:str", func(c *Cluster, a args) reply {
			section, mask, ok := splitWho(a.str("who"))
			if !ok {
				return fail(syscall.EINVAL, "unrecognized config target '%s'", a.str("who"))
			}
			c.config = slices.DeleteFunc(c.config, func(o *option) bool {
				return o.section == section && o.mask == mask && o.name == optionName(a.str("name"))
			})
			c.serveModules()
			return reply{}
		}),
		"config assimilate-conf": entry(rw, "", (*Cluster).assimilate),
		"config-key ls": entry(0, "", func(c *Cluster, _ args) reply {
			return jsonReply(append([]string{}, slices.Sorted(maps.Keys(c.keys))...))
		}),
		"config-key get": entry(0, "key:str", func(c *Cluster, a args) reply {
			v, ok := c.keys[a.str("key")]
			if !ok {
				return fail(syscall.ENOENT, "error obtaining '%s': (2) No such file or directory", a.str("key"))
			}
			return reply{out: []byte(v), status: "obtained '" + a.str("key") + "'"}
		}),
		"config-key exists": entry(0, "key:str", func(c *Cluster, a args) reply {
			if _, ok := c.keys[a.str("key")]; !ok {
				return fail(syscall.ENOENT, "key '%s' doesn't exist", a.str("key"))
			}
			return done("key '%s' exists", a.str("key"))
		}),
		"config-key set": entry(rw, "key:str val:str?", func(c *Cluster, a args) reply {
			v := a.str("val")
			if !a.has("val") {
				v = string(a.in)
			}
			if len(v) > 64<<10 {
				return fail(syscall.EFBIG, "error: entry size limited to 65536 bytes. Use 'mon config key max entry size' to manually adjust")
			}
			c.keys[a.str("key")] = v
			return done("set %s", a.str("key"))
		}),
		"config-key rm": entry(rw, "key:str", func(c *Cluster, a args) reply {
			if _, ok := c.keys[a.str("key")]; !ok {
				return done("no such key '%s'", a.str("key"))
			}
			delete(c.keys, a.str("key"))
			return done("key deleted")
		}),
	}
}

// assimilate takes what the database can hold and gives back the rest.
func (c *Cluster) assimilate(a args) reply {
	type line struct{ section, name, value string }
	var take []line
	rest := map[string][]string{}
	section := "global"
	for _, l := range strings.Split(string(a.in), "\n") {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") || strings.HasPrefix(l, ";") {
			continue
		}
		if strings.HasPrefix(l, "[") && strings.HasSuffix(l, "]") {
			section = l[1 : len(l)-1]
			continue
		}
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return fail(syscall.EINVAL, "error parsing conf")
		}
		name, v := optionName(strings.TrimSpace(k)), strings.TrimSpace(v)
		if c.checkOption(name, v) != nil {
			rest[section] = append(rest[section], "\t"+name+" = "+v)
			continue
		}
		take = append(take, line{section, name, v})
	}
	for _, t := range take {
		c.setOption(t.section, t.name, t.value)
	}
	var b strings.Builder
	for _, s := range slices.Sorted(maps.Keys(rest)) {
		b.WriteString("\n[" + s + "]\n" + strings.Join(rest[s], "\n") + "\n")
	}
	return reply{out: []byte(b.String())}
}
