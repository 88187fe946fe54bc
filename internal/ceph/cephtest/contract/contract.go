// Package contract is the script of commands that the in-memory Ceph and a real
// one must answer alike: the same errno, the same JSON keys, and the values that
// code here relies on. Where the two differ, cephtest is wrong.
//
// On cephtest it is part of the normal tests. On a real cluster it needs
// librados of the same release, so it is built as a test binary and run inside
// the Ceph image or root:
//
//	go test -c -o contract.test ./internal/ceph/cephtest/contract
//	CASTELLAN_CONTRACT_MON_HOST='[v2:127.0.0.1:3300,v1:127.0.0.1:6789]' \
//	CASTELLAN_CONTRACT_KEYRING=/etc/ceph/ceph.client.admin.keyring \
//	    ./contract.test -test.v -test.run Real
//
// The cluster must be one to throw away: at least four OSDs on hosts of their
// own, nothing in it. The suite destroys an OSD of it.
package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Options say what the cluster is.
type Options struct {
	// Step lets a little time pass: a tick, or a fraction of a second.
	Step func()
	// Steps is how many Steps anything may take.
	Steps int
	// Real: replies come from real Ceph, so that cases which cephtest reports as
	// mistakes of the caller can be asked too.
	Real bool
}

type suite struct {
	c ceph.Commander
	o Options
}

// Run runs the whole script.
func Run(t *testing.T, c ceph.Commander, o Options) {
	s := &suite{c, o}
	s.clean(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"status", s.status}, {"mon", s.mon}, {"mgr", s.mgr}, {"config", s.config}, {"auth", s.auth},
		{"osd", s.osd}, {"crush", s.crush}, {"pool", s.pool}, {"pg", s.pg}, {"objects", s.objects}, {"fs", s.fs}, {"strict", s.strict},
		{"new", s.newOSD}, {"replace", s.replace}, {"remove mon", s.monRemove},
	} {
		t.Run(part.name, part.run)
	}
}

// send sends a command and checks its errno.
func (s *suite) send(t *testing.T, to ceph.Target, errno syscall.Errno, cmd ceph.Command) ceph.Reply {
	t.Helper()
	r, err := ceph.Do(context.Background(), s.c, to, cmd)
	var e *ceph.Error
	switch {
	case err == nil && errno == 0:
	case err == nil:
		t.Errorf("%v: succeeded (%s), want %v", cmd, r.Status, errno)
	case !errors.As(err, &e):
		t.Fatalf("%v: %v", cmd, err)
	case e.Errno != errno:
		t.Errorf("%v: %v, want %v", cmd, err, wantErrno(errno))
	}
	return r
}

func wantErrno(e syscall.Errno) string {
	if e == 0 {
		return "success"
	}
	return fmt.Sprintf("%d (%v)", int(e), e)
}

func (s *suite) monOK(t *testing.T, cmd ceph.Command) ceph.Reply {
	t.Helper()
	return s.send(t, ceph.ToMon, 0, cmd)
}

func (s *suite) mgrOK(t *testing.T, cmd ceph.Command) ceph.Reply {
	t.Helper()
	return s.send(t, ceph.ToMgr, 0, cmd)
}

func (s *suite) refused(t *testing.T, errno syscall.Errno, cmd ceph.Command) {
	t.Helper()
	s.send(t, ceph.ToMon, errno, cmd)
}

// tree is decoded JSON that is read by paths like "mons.0.name".
type tree struct {
	t   *testing.T
	cmd string
	v   any
}

func (s *suite) read(t *testing.T, to ceph.Target, cmd ceph.Command) tree {
	t.Helper()
	return decode(t, cmd.String(), s.send(t, to, 0, cmd))
}

func decode(t *testing.T, cmd string, r ceph.Reply) tree {
	t.Helper()
	v, err := ceph.Decode[any](cmd, r.Out)
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return tree{t, cmd, v}
}

func (x tree) at(path string) any {
	x.t.Helper()
	v, ok := lookup(x.v, path)
	if !ok {
		x.t.Errorf("%s: no %s in the reply", x.cmd, path)
	}
	return v
}

func (x tree) has(paths ...string) {
	x.t.Helper()
	for _, p := range paths {
		if _, ok := lookup(x.v, p); !ok {
			x.t.Errorf("%s: no %s in the reply", x.cmd, p)
		}
	}
}

func (x tree) is(path string, want any) {
	x.t.Helper()
	got, _ := json.Marshal(x.at(path))
	w, _ := json.Marshal(want)
	if string(got) != string(w) {
		x.t.Errorf("%s: %s is %s, want %s", x.cmd, path, got, w)
	}
}

func lookup(v any, path string) (any, bool) {
	if path == "" {
		return v, true
	}
	key, rest, _ := strings.Cut(path, ".")
	switch w := v.(type) {
	case map[string]any:
		x, ok := w[key]
		if !ok {
			return nil, false
		}
		return lookup(x, rest)
	case []any:
		var i int
		if _, err := fmt.Sscan(key, &i); err != nil || i < 0 || i >= len(w) {
			return nil, false
		}
		return lookup(w[i], rest)
	}
	return nil, false
}

// find gives the first element of a list whose key has the value.
func (x tree) find(list, key string, value any) (tree, bool) {
	x.t.Helper()
	l, _ := x.at(list).([]any)
	for _, e := range l {
		if got, ok := lookup(e, key); ok && fmt.Sprint(got) == fmt.Sprint(value) {
			return tree{x.t, x.cmd, e}, true
		}
	}
	return tree{}, false
}

func (x tree) must(list, key string, value any) tree {
	x.t.Helper()
	e, ok := x.find(list, key, value)
	if !ok {
		x.t.Fatalf("%s: nothing in %s has %s=%v", x.cmd, list, key, value)
	}
	return e
}

func (x tree) strings(path string) []string {
	x.t.Helper()
	l, _ := x.at(path).([]any)
	var out []string
	for _, e := range l {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

// eventually steps until cond holds.
func (s *suite) eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range s.o.Steps {
		if cond() {
			return
		}
		s.o.Step()
	}
	t.Fatalf("never: %s", what)
}

func (s *suite) allClean(t *testing.T) bool {
	t.Helper()
	x := s.read(t, ceph.ToMon, ceph.Cmd("status"))
	list, _ := x.at("pgmap.pgs_by_state").([]any)
	for _, e := range list {
		name, _ := lookup(e, "state_name")
		words := strings.Split(fmt.Sprint(name), "+")
		if !slices.Contains(words, "active") || !slices.Contains(words, "clean") {
			return false
		}
	}
	return true
}

// clean removes what an earlier run left behind.
func (s *suite) clean(t *testing.T) {
	t.Helper()
	s.monOK(t, ceph.Cmd("config set", "who", "mon", "name", "mon_allow_pool_delete", "value", "true"))
	s.monOK(t, ceph.Cmd("osd blocklist clear"))
	s.monOK(t, ceph.Cmd("osd unset", "key", "noup"))
	list, _ := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).at("osds").([]any)
	for _, o := range list {
		id, _ := lookup(o, "osd")
		state, _ := lookup(o, "state")
		if words, _ := state.([]any); slices.Contains(words, any("new")) {
			s.monOK(t, ceph.Cmd("osd purge-new", "id", int(id.(float64)), "yes_i_really_mean_it", true))
		}
	}
	for _, p := range s.read(t, ceph.ToMon, ceph.Cmd("osd pool ls")).strings("") {
		if strings.HasPrefix(p, "contract") {
			s.monOK(t, ceph.Cmd("osd pool rm", "pool", p, "pool2", p, "yes_i_really_really_mean_it", true))
		}
	}
	s.eventually(t, "a mgr serves", func() bool {
		return s.read(t, ceph.ToMon, ceph.Cmd("mgr stat")).at("available") == true
	})
	s.eventually(t, "all PGs are clean", func() bool { return s.allClean(t) })
}
