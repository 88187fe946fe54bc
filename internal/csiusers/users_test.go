package csiusers

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/kit"
)

// The names and caps that users of Rook have in their clusters.
func TestUsers(t *testing.T) {
	got := map[string]string{}
	for _, u := range Users() {
		got[u.Secret+" "+u.Entity(1)] = fmt.Sprint(u.Caps.Args())
	}
	want := map[string]string{
		"rook-csi-rbd-provisioner client.csi-rbd-provisioner":       "[mgr allow rw mon profile rbd, allow command 'osd blocklist' osd profile rbd]",
		"rook-csi-rbd-node client.csi-rbd-node":                     "[mgr allow rw mon profile rbd osd profile rbd]",
		"rook-csi-cephfs-provisioner client.csi-cephfs-provisioner": "[mds allow * mgr allow rw mon allow r, allow command 'osd blocklist' osd allow rw tag cephfs metadata=*]",
		"rook-csi-cephfs-node client.csi-cephfs-node":               "[mds allow rw mgr allow rw mon allow r osd allow rwx tag cephfs metadata=*, allow rw tag cephfs data=*]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestGenerations(t *testing.T) {
	u := Users()[1]
	for entity, want := range map[string]uint32{
		"client.csi-rbd-node": 1, "client.csi-rbd-node.2": 2, "client.csi-rbd-node.4294967295": 4294967295,
		"client.csi-rbd-node.1": 0, "client.csi-rbd-node.02": 0, "client.csi-rbd-node.": 0, "client.csi-rbd-nodes": 0, "client.csi-rbd-node.x": 0,
		"client.csi-rbd-node.-1": 0, "client.csi-rbd-node2": 0, "client.csi-rbd-provisioner": 0, "client.": 0, "client.csi-rbd-node.4294967296": 0,
	} {
		if got := u.generation(entity); got != want {
			t.Errorf("generation(%q) = %d, want %d", entity, got, want)
		}
		if want > 0 && u.Entity(want) != entity {
			t.Errorf("Entity(%d) = %q, want %q", want, u.Entity(want), entity)
		}
	}
}

const aes256kKey = "AgAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// entities are those of all users, of the generations given.
func entities(generations ...uint32) []auth.Entity {
	var list []auth.Entity
	for _, u := range Users() {
		for _, g := range generations {
			list = append(list, auth.Entity{Name: u.Entity(g), Key: ceph.NewSecret(aes256kKey), Caps: u.Caps})
		}
	}
	return list
}

// inUse are the Secrets with the users of one generation.
func inUse(generation uint32) map[string]string {
	m := map[string]string{}
	for _, u := range Users() {
		m[u.Secret] = u.Entity(generation)[len("client."):]
	}
	return m
}

func rotation(policy cephv1.CephxKeyRotationPolicy, generation uint32, keep uint8) cephv1.CSICephxConfig {
	c := cephv1.CSICephxConfig{KeepPriorKeyCountMax: keep}
	c.KeyRotationPolicy, c.KeyGeneration = policy, generation
	return c
}

func TestDecide(t *testing.T) {
	const by, off = cephv1.KeyGenerationCephxKeyRotationPolicy, cephv1.DisabledCephxKeyRotationPolicy
	for _, tt := range []struct {
		name     string
		keys     Keys
		do       []string // of the user csi-rbd-node
		apply    bool
		gen      uint32
		prior    uint8
		complete bool
	}{
		{name: "nothing there", do: []string{"making user client.csi-rbd-node"}, gen: 1},
		{name: "users without Secrets", keys: Keys{Entities: entities(1)}, apply: true, gen: 1, complete: true},
		{name: "all there", keys: Keys{Entities: entities(1), InUse: inUse(1)}, apply: true, gen: 1, complete: true},
		{name: "a Secret of a user that is gone", keys: Keys{InUse: inUse(1)}, do: []string{"making user client.csi-rbd-node"}, gen: 1},
		{name: "a Secret of somebody else", keys: Keys{Entities: entities(1), InUse: map[string]string{"rook-csi-rbd-node": "admin"}}, apply: true, gen: 1, complete: true},
		{name: "no rotation by the number alone", keys: Keys{Entities: entities(1), InUse: inUse(1), Spec: rotation(off, 5, 0)}, apply: true, gen: 1, complete: true},
		{name: "rotation begins", keys: Keys{Entities: entities(1), InUse: inUse(1), Spec: rotation(by, 3, 0)}, do: []string{"making user client.csi-rbd-node.3"}, gen: 3},
		{name: "new user, old Secret: the old one stays", keys: Keys{Entities: entities(1, 3), InUse: inUse(1), Spec: rotation(by, 3, 0)}, apply: true, gen: 3, prior: 1, complete: true},
		{name: "new Secret: the old one goes", keys: Keys{Entities: entities(1, 3), InUse: inUse(3), Spec: rotation(by, 3, 0)}, do: []string{"removing user client.csi-rbd-node of a former generation"}, apply: true, gen: 3, complete: true},
		{name: "one is kept", keys: Keys{Entities: entities(1, 3), InUse: inUse(3), Spec: rotation(by, 3, 1)}, apply: true, gen: 3, prior: 1, complete: true},
		{name: "the lowest goes first", keys: Keys{Entities: entities(2, 1, 7), InUse: inUse(7), Spec: rotation(by, 7, 1)}, do: []string{"removing user client.csi-rbd-node of a former generation"}, apply: true, gen: 7, prior: 1, complete: true},
		{name: "switched off, nothing goes", keys: Keys{Entities: entities(1, 3), InUse: inUse(3), Spec: rotation(off, 3, 0)}, apply: true, gen: 3, prior: 1, complete: true},
		{name: "the generation never goes down", keys: Keys{Entities: entities(1, 3), InUse: inUse(3), Spec: rotation(by, 2, 5)}, apply: true, gen: 3, prior: 1, complete: true},
		{name: "Secrets are lost after a rotation", keys: Keys{Entities: entities(1, 3)}, apply: true, gen: 3, prior: 1, complete: true},
		{name: "the key in use is not taken for a former one", keys: Keys{Entities: entities(3, 4), InUse: inUse(3), Spec: rotation(by, 3, 0)}, apply: true, gen: 3, complete: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Decide(tt.keys)
			var do []string
			for _, a := range d.Do {
				switch a := a.(type) {
				case Ensure:
					if Users()[1].generation(a.Entity) > 0 {
						do = append(do, a.String())
					}
				case Remove:
					if Users()[1].generation(a.Entity) > 0 {
						do = append(do, a.String())
					}
				}
			}
			if diff := cmp.Diff(tt.do, do); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if tt.apply != (len(d.Apply) == 4) || d.Generation != tt.gen || d.Prior != tt.prior || d.Complete != tt.complete {
				t.Errorf("apply %d, generation %d, prior %d, complete %v", len(d.Apply), d.Generation, d.Prior, d.Complete)
			}
			if d.Complete && d.KeyType != "aes256k" {
				t.Errorf("key type %q", d.KeyType)
			}
			if len(Decide(tt.keys).Do) != len(d.Do) {
				t.Error("another answer for the same input")
			}
		})
	}
}

// Caps that somebody has changed are put right; nobody else's user is touched.
func TestCapsArePutRight(t *testing.T) {
	have := append(entities(1), auth.Entity{Name: "client.csi-rbd-node-of-mine", Key: ceph.NewSecret("x"), Caps: auth.Caps{"mon": "allow r"}})
	have[0].Caps = auth.Caps{"mon": "allow *"}
	d := Decide(Keys{Entities: have, InUse: inUse(1)})
	want := []kit.Action{Ensure{Entity: "client.csi-rbd-provisioner", Caps: Users()[0].Caps, Exists: true}}
	if diff := cmp.Diff(want, d.Do); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
