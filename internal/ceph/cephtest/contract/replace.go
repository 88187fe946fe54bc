package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph"
)

const zeroUUID = "00000000-0000-0000-0000-000000000000"

// keys are two of cipher aes256k that belong to nothing.
var keys = [2]string{
	"AgARvAxrTK56ESAAWIDa4dMj1AUJ1Fx+Ke7wVk//J3BoZzPk78C6d+MxoqI=",
	"AgAnvAxrmRZdAyAAxrdBMhjSYQwV/mwh6SVppnSyX3JPW9dFe8qxb6A9qyU=",
}

func secrets(key, class string) []byte {
	m := map[string]string{"cephx_secret": key}
	if class != "" {
		m["crush_device_class"] = class
	}
	b, _ := json.Marshal(m)
	return b
}

func uuid(n int) string { return fmt.Sprintf("c0000000-0000-4000-8000-%012d", n) }

// newOSD claims an id that never boots, and gives it back.
func (s *suite) newOSD(t *testing.T) {
	ids := s.osds(t)
	claim := ceph.Cmd("osd new", "uuid", uuid(1)).WithIn(secrets(keys[0], ""))
	r := s.read(t, ceph.ToMon, claim)
	id := int(r.at("osdid").(float64))
	s.read(t, ceph.ToMon, claim).is("osdid", id)
	s.refused(t, syscall.EEXIST, ceph.Cmd("osd new", "uuid", uuid(1)).WithIn(secrets(keys[1], "")))
	s.refused(t, syscall.EINVAL, ceph.Cmd("osd new", "uuid", uuid(2), "id", ids[0]).WithIn(secrets(keys[1], "")))
	s.refused(t, syscall.EEXIST, ceph.Cmd("osd new", "uuid", uuid(1), "id", ids[0]).WithIn(secrets(keys[0], "")))
	far := s.read(t, ceph.ToMon, ceph.Cmd("osd new", "uuid", uuid(3), "id", 20).WithIn([]byte("no JSON")))
	far.is("osdid", 20) // an id that does not exist is made; what is no JSON is ignored
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth get", "entity", "osd.20"))
	s.monOK(t, ceph.Cmd("osd purge-new", "id", 20, "yes_i_really_mean_it", true))
	o := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).must("osds", "osd", id)
	o.is("uuid", uuid(1))
	o.is("state", []string{"exists", "new"})
	o.is("up", 0)
	o.is("in", 1)
	o.is("up_from", 0)
	tr := s.read(t, ceph.ToMon, ceph.Cmd("osd tree"))
	tr.must("stray", "id", id).is("status", "down")
	s.refused(t, syscall.ENOENT, ceph.Cmd("osd metadata", "id", id))
	s.read(t, ceph.ToMon, ceph.Cmd("auth get", "entity", ceph.OSDName(id))).is("0.key", keys[0])
	s.refused(t, syscall.EPERM, ceph.Cmd("osd purge-new", "id", id))
	s.monOK(t, ceph.Cmd("osd purge-new", "id", id, "yes_i_really_mean_it", true))
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth get", "entity", ceph.OSDName(id)))
	if _, ok := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).find("osds", "osd", id); ok {
		t.Errorf("osd.%d is still there", id)
	}
	crypt := fmt.Sprintf(`{"cephx_secret":%q,"cephx_lockbox_secret":%q,"dmcrypt_key":"secret"}`, keys[0], keys[1])
	r = s.read(t, ceph.ToMon, ceph.Cmd("osd new", "uuid", uuid(4)).WithIn([]byte(crypt)))
	id = int(r.at("osdid").(float64))
	s.read(t, ceph.ToMon, ceph.Cmd("auth get", "entity", "client.osd-lockbox."+uuid(4))).is("0.key", keys[1])
	s.monOK(t, ceph.Cmd("config-key exists", "key", "dm-crypt/osd/"+uuid(4)+"/luks"))
	s.monOK(t, ceph.Cmd("osd purge-new", "id", id, "yes_i_really_mean_it", true))
	s.refused(t, syscall.ENOENT, ceph.Cmd("config-key exists", "key", "dm-crypt/osd/"+uuid(4)+"/luks"))
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth get", "entity", "client.osd-lockbox."+uuid(4)))
}

// replace drains the last OSD, destroys it and claims its id anew, as a
// replacement does. The daemon is kept down by noup.
func (s *suite) replace(t *testing.T) {
	ids := s.osds(t)
	id := ids[len(ids)-1]
	one := ceph.IDStrings([]int{id})
	s.monOK(t, ceph.Cmd("osd pool create", "pool", "contract-r", "pg_num", 16, "pgp_num", 16, "pool_type", "replicated",
		"size", 3, "autoscale_mode", "off"))
	s.monOK(t, ceph.Cmd("osd pool application enable", "pool", "contract-r", "app", "rbd"))
	s.eventually(t, "all PGs are clean", func() bool { return s.allClean(t) })
	safe := func() tree {
		cmd := ceph.Cmd("osd safe-to-destroy", "ids", one)
		s.eventually(t, "all PGs are known", func() bool {
			_, err := s.c.Mgr(context.Background(), cmd)
			return !ceph.Again(err)
		})
		return s.read(t, ceph.ToMgr, cmd)
	}
	s.eventually(t, "the mgr knows that the OSD is in use", func() bool { return len(safe().strings("active")) == 1 })
	okToStop := ceph.Cmd("osd ok-to-stop", "ids", one)
	s.eventually(t, "the mgr knows that the OSD can stop", func() bool {
		_, err := s.c.Mgr(context.Background(), okToStop)
		return err == nil
	})
	stop := s.read(t, ceph.ToMgr, okToStop)
	stop.is("ok_to_stop", true)
	stop.is("osds", []int{id})
	stop.has("ok_become_degraded.0")
	s.send(t, ceph.ToMgr, syscall.EBUSY, ceph.Cmd("osd destroy", "id", id))
	s.send(t, ceph.ToMgr, syscall.EBUSY, ceph.Cmd("osd purge", "id", id))
	before := s.read(t, ceph.ToMon, ceph.Cmd("osd tree")).must("nodes", "id", id)

	s.monOK(t, ceph.Cmd("osd out", "ids", one))
	s.eventually(t, "the OSD is drained", func() bool { return len(safe().strings("safe_to_destroy")) == 1 })
	s.send(t, ceph.ToMgr, syscall.EBUSY, ceph.Cmd("osd destroy", "id", id)) // still up
	s.monOK(t, ceph.Cmd("osd set", "key", "noup"))
	s.monOK(t, ceph.Cmd("osd down", "ids", one))
	s.monOK(t, ceph.Cmd("osd down", "ids", one))
	s.read(t, ceph.ToMon, ceph.Cmd("osd tree", "states", []string{"down"})).must("nodes", "id", id).is("status", "down")
	s.eventually(t, "the OSD is safe to destroy while down", func() bool { return len(safe().strings("safe_to_destroy")) == 1 })
	for range 2 {
		s.mgrOK(t, ceph.Cmd("osd destroy", "id", id))
	}
	o := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).must("osds", "osd", id)
	o.is("uuid", zeroUUID)
	o.is("state", []string{"destroyed", "exists"})
	o.is("in", 0)
	s.refused(t, syscall.ENOENT, ceph.Cmd("auth get", "entity", ceph.OSDName(id)))
	tr := s.read(t, ceph.ToMon, ceph.Cmd("osd tree", "states", []string{"destroyed"}))
	n := tr.must("nodes", "id", id)
	n.is("status", "destroyed")
	n.is("crush_weight", before.at("crush_weight"))
	n.is("device_class", before.at("device_class"))
	safe().is("safe_to_destroy", []int{id})
	s.eventually(t, "all PGs are clean without it", func() bool { return s.allClean(t) })

	claim := ceph.Cmd("osd new", "uuid", uuid(9), "id", id).WithIn(secrets(keys[0], ""))
	s.read(t, ceph.ToMon, claim).is("osdid", id)
	s.read(t, ceph.ToMon, claim).is("osdid", id)
	o = s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).must("osds", "osd", id)
	o.is("uuid", uuid(9))
	o.is("state", []string{"exists", "new"})
	o.is("in", 0)
	s.read(t, ceph.ToMon, ceph.Cmd("osd tree", "states", []string{"destroyed"})).is("nodes", []string{})
	n = s.read(t, ceph.ToMon, ceph.Cmd("osd tree")).must("nodes", "id", id)
	n.is("crush_weight", before.at("crush_weight"))
	n.is("status", "down")
	s.monOK(t, ceph.Cmd("osd unset", "key", "noup"))
	s.mgrOK(t, ceph.Cmd("osd purge", "id", id, "yes_i_really_mean_it", true))
	if _, ok := s.read(t, ceph.ToMon, ceph.Cmd("osd dump")).find("osds", "osd", id); ok {
		t.Errorf("osd.%d is still in the map", id)
	}
	if _, ok := s.read(t, ceph.ToMon, ceph.Cmd("osd tree")).find("nodes", "id", id); ok {
		t.Errorf("osd.%d is still in the CRUSH map", id)
	}
	s.monOK(t, ceph.Cmd("osd pool rm", "pool", "contract-r", "pool2", "contract-r", "yes_i_really_really_mean_it", true))
}
