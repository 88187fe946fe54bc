package cephtest

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

type entity struct {
	key  string
	caps map[string]string
}

func (c *Cluster) initAuth() {
	all := map[string]string{"mon": "allow *", "osd": "allow *", "mds": "allow *", "mgr": "allow *"}
	c.entities["client.admin"] = &entity{caps: all}
	c.entities["mon."] = &entity{caps: map[string]string{"mon": "allow *"}}
	for _, n := range []string{"mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"} {
		c.entities["client.bootstrap-"+n] = &entity{caps: map[string]string{"mon": "allow profile bootstrap-" + n}}
	}
}

// newKey makes a key of the form of cipher aes256k: 60 characters.
func (c *Cluster) newKey() string {
	b := make([]byte, 44)
	binary.LittleEndian.PutUint16(b, 2) // type
	binary.LittleEndian.PutUint32(b[2:], uint32(c.now.Unix()))
	binary.LittleEndian.PutUint32(b[6:], 0)
	binary.LittleEndian.PutUint16(b[10:], 32)
	for i := 12; i < len(b); i++ {
		b[i] = byte(c.rng.UintN(256))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// Key gives an entity's key, "" when it does not exist.
func (c *Cluster) Key(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entities[name]; e != nil {
		return e.key
	}
	return ""
}

func (c *Cluster) entityJSON(name string) obj {
	e := c.entities[name]
	return obj{"entity": name, "key": e.key, "caps": e.caps}
}

// capsArg reads type, cap, type, cap.
func capsArg(list []string) (map[string]string, error) {
	if len(list)%2 != 0 {
		return nil, fmt.Errorf("bad capabilities request; odd number of arguments")
	}
	caps := map[string]string{}
	for i := 0; i < len(list); i += 2 {
		t, spec := list[i], list[i+1]
		if !slices.Contains([]string{"mon", "mgr", "osd", "mds"}, t) {
			return nil, fmt.Errorf("unknown cap type '%s'", t)
		}
		if !capSpec.MatchString(spec) {
			return nil, fmt.Errorf("%s capability parse failed, stopped at '%s' of '%s'", t, spec, spec)
		}
		caps[t] = spec
	}
	return caps, nil
}

var capSpec = regexp.MustCompile(`^\s*(allow|profile)\b`)

func authCommands() map[string]*spec {
	one := func(name string) func(*Cluster) reply {
		return func(c *Cluster) reply { return jsonReply([]obj{c.entityJSON(name)}) }
	}
	return map[string]*spec{
		"auth ls": entry(0, "", func(c *Cluster, _ args) reply {
			out := []obj{}
			for _, n := range slices.Sorted(maps.Keys(c.entities)) {
				if n != "mon." {
					out = append(out, c.entityJSON(n))
				}
			}
			return jsonReply(obj{"auth_dump": out})
		}),
		"auth get": entry(0, "entity:str", func(c *Cluster, a args) reply {
			if c.entities[a.str("entity")] == nil {
				return fail(syscall.ENOENT, "failed to find %s in keyring", a.str("entity"))
			}
			return one(a.str("entity"))(c)
		}),
		"auth get-key": entry(0, "entity:str", func(c *Cluster, a args) reply {
			e := c.entities[a.str("entity")]
			if e == nil {
				return fail(syscall.ENOENT, "don't have %s", a.str("entity"))
			}
			return jsonReply(obj{"key": e.key})
		}),
		"auth get-or-create": entry(rw, "entity:str caps:strs? key_type:str?", func(c *Cluster, a args) reply {
			name := a.str("entity")
			caps, err := capsArg(a.list("caps"))
			if err != nil {
				return fail(syscall.EINVAL, "%v", err)
			}
			if e := c.entities[name]; e != nil {
				for t, spec := range caps {
					if e.caps[t] != spec {
						return fail(syscall.EINVAL, "key for %s exists but cap %s does not match", name, t)
					}
				}
				return one(name)(c)
			}
			if !strings.Contains(name, ".") {
				return fail(syscall.EINVAL, "bad entity name")
			}
			c.entities[name] = &entity{key: c.newKey(), caps: caps}
			return one(name)(c)
		}),
		"auth add": entry(rw, "entity:str caps:strs? key_type:str?", func(c *Cluster, a args) reply {
			name := a.str("entity")
			caps, err := capsArg(a.list("caps"))
			if err != nil {
				return fail(syscall.EINVAL, "%v", err)
			}
			key := c.newKey()
			if len(a.in) > 0 {
				ring, ok := parseKeyring(a.in)
				if !ok || ring[name] == nil {
					return fail(syscall.EINVAL, "key for %s not found in provided keyring", name)
				}
				key = ring[name].key
			}
			if e := c.entities[name]; e != nil {
				if e.key != key {
					return fail(syscall.EEXIST, "entity %s exists but key does not match", name)
				}
				if !maps.Equal(e.caps, caps) {
					return fail(syscall.EINVAL, "entity %s exists but caps do not match", name)
				}
				return reply{}
			}
			c.entities[name] = &entity{key: key, caps: caps}
			return done("added key for %s", name)
		}),
		"auth import": entry(rw, "", func(c *Cluster, a args) reply {
			ring, ok := parseKeyring(a.in)
			if !ok || len(ring) == 0 {
				return fail(syscall.EINVAL, "auth import: no data supplied")
			}
			for n, e := range ring {
				c.entities[n] = e
			}
			return done("imported keyring")
		}),
		"auth caps": entry(rw, "entity:str caps:strs", func(c *Cluster, a args) reply {
			e := c.entities[a.str("entity")]
			if e == nil {
				return fail(syscall.ENOENT, "couldn't find entry %s", a.str("entity"))
			}
			caps, err := capsArg(a.list("caps"))
			if err != nil {
				return fail(syscall.EINVAL, "%v", err)
			}
			e.caps = caps
			return done("updated caps for %s", a.str("entity"))
		}),
		"auth rm": entry(rw, "entity:str", func(c *Cluster, a args) reply {
			delete(c.entities, a.str("entity"))
			return reply{}
		}),
		"auth rotate": entry(rw, "entity:str key_type:str?", func(c *Cluster, a args) reply {
			e := c.entities[a.str("entity")]
			if e == nil {
				return fail(syscall.ENOENT, "entity %s does not exist", a.str("entity"))
			}
			e.key = c.newKey()
			return one(a.str("entity"))(c)
		}),
	}
}

// parseKeyring reads a keyring file.
func parseKeyring(in []byte) (map[string]*entity, bool) {
	ring := map[string]*entity{}
	var e *entity
	for _, l := range strings.Split(string(in), "\n") {
		l = strings.TrimSpace(l)
		switch {
		case l == "" || strings.HasPrefix(l, "#"):
		case strings.HasPrefix(l, "[") && strings.HasSuffix(l, "]"):
			e = &entity{caps: map[string]string{}}
			ring[l[1:len(l)-1]] = e
		default:
			k, v, ok := strings.Cut(l, "=")
			if !ok || e == nil {
				return nil, false
			}
			k, v = strings.TrimSpace(k), strings.Trim(strings.TrimSpace(v), `"`)
			if k == "key" {
				e.key = v
			} else if t, ok := strings.CutPrefix(k, "caps "); ok {
				e.caps[t] = v
			}
		}
	}
	for _, e := range ring {
		if e.key == "" {
			return nil, false
		}
	}
	return ring, true
}
