package csiusers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/csi/clientprofile"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// User is a cephx user of the drivers.
type User struct {
	// Name is the user's without "client.", and without a generation.
	Name string
	// Secret holds userID and userKey.
	Secret string
	Caps   auth.Caps
}

// Users are the four users of the drivers. NFS drivers use those of CephFS, NVMe-oF
// drivers those of RBD.
func Users() []User {
	return []User{
		{Name: "csi-rbd-provisioner", Secret: clientprofile.SecretRBDProvisioner, Caps: auth.Caps{
			"mon": "profile rbd, allow command 'osd blocklist'", "mgr": "allow rw", "osd": "profile rbd"}},
		{Name: "csi-rbd-node", Secret: clientprofile.SecretRBDNode, Caps: auth.Caps{
			"mon": "profile rbd", "mgr": "allow rw", "osd": "profile rbd"}},
		{Name: "csi-cephfs-provisioner", Secret: clientprofile.SecretCephFSProvisioner, Caps: auth.Caps{
			"mon": "allow r, allow command 'osd blocklist'", "mgr": "allow rw", "osd": "allow rw tag cephfs metadata=*", "mds": "allow *"}},
		{Name: "csi-cephfs-node", Secret: clientprofile.SecretCephFSNode, Caps: auth.Caps{
			"mon": "allow r", "mgr": "allow rw", "osd": "allow rwx tag cephfs metadata=*, allow rw tag cephfs data=*", "mds": "allow rw"}},
	}
}

// Entity names a user's entity of a generation: the first has no number.
func (u User) Entity(generation uint32) string {
	if generation <= 1 {
		return "client." + u.Name
	}
	return fmt.Sprintf("client.%s.%d", u.Name, generation)
}

// generation is the inverse of Entity; 0 for the name of another user.
func (u User) generation(entity string) uint32 {
	rest, ok := strings.CutPrefix(entity, "client."+u.Name)
	if !ok {
		return 0
	}
	if rest == "" {
		return 1
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(rest, "."), 10, 32)
	if err != nil || u.Entity(uint32(n)) != entity {
		return 0
	}
	return uint32(n)
}

// Ensure makes an entity, or gives it the caps that it should have.
type Ensure struct {
	Entity string
	Caps   auth.Caps
	// Exists says that only the caps differ.
	Exists bool
	// KeyType is the cipher of a new key; "" is Ceph's own choice.
	KeyType string
}

// String implements kit.Action.
func (e Ensure) String() string {
	if e.Exists {
		return "setting the caps of " + e.Entity
	}
	return "making user " + e.Entity
}

// Kind is the metric label.
func (Ensure) Kind() string { return "auth" }

// Remove removes an entity of a former generation.
type Remove struct{ Entity string }

// String implements kit.Action.
func (r Remove) String() string { return "removing user " + r.Entity + " of a former generation" }

// Kind is the metric label.
func (Remove) Kind() string { return "auth" }

// Keys is what is known of the users' keys.
type Keys struct {
	Cluster podspec.Cluster
	// Entities are those that Ceph has.
	Entities []auth.Entity
	// InUse are the userIDs in the Secrets that exist, by the Secret's name.
	InUse map[string]string
	Spec  cephv1.CSICephxConfig
}

// Decision is what to do about them.
type Decision struct {
	Apply []kit.Object
	Do    []kit.Action
	// Generation is the lowest of the generations in the Secrets as they are to be.
	Generation uint32
	// Prior counts the former generations that stay valid.
	Prior uint8
	// KeyType is the cipher of the keys in use, "" if they differ in it.
	KeyType string
	// Complete says that Secrets and users are as they should be once Apply is done.
	Complete bool
}

// Decide compares users and Secrets with what is wanted. A key is never changed: a new
// generation is a new user, and a user of a former one is removed only when the Secret
// names the new one, and only if rotation is asked for. A user whose key is lost from
// the Secret is read again, not made anew.
func Decide(k Keys) Decision {
	d := Decision{Complete: true}
	byName := map[string]auth.Entity{}
	for _, e := range k.Entities {
		byName[e.Name] = e
	}
	types := map[string]bool{}
	for _, u := range Users() {
		want := u.wanted(k)
		if d.Generation == 0 || want < d.Generation {
			d.Generation = want
		}
		e, exists := byName[u.Entity(want)]
		switch {
		case !exists:
			d.Complete = false
			d.Do = append(d.Do, Ensure{Entity: u.Entity(want), Caps: u.Caps, KeyType: string(k.Spec.KeyType)})
			continue
		case !maps.Equal(e.Caps, u.Caps):
			d.Do = append(d.Do, Ensure{Entity: e.Name, Caps: u.Caps, Exists: true})
		}
		types[cipher(e)] = true
		d.Apply = append(d.Apply, keyring.Secret(k.Cluster, keyring.User{Entity: e.Name, Secret: u.Secret, KeyOnly: true}, e.Key))
		prior := u.former(k.Entities, want)
		if k.rotates() && k.InUse[u.Secret] == strings.TrimPrefix(e.Name, "client.") {
			for len(prior) > int(k.Spec.KeepPriorKeyCountMax) {
				d.Do = append(d.Do, Remove{Entity: u.Entity(prior[0])})
				prior = prior[1:]
			}
		}
		d.Prior = max(d.Prior, uint8(min(len(prior), 255)))
	}
	if len(types) == 1 {
		for t := range types {
			d.KeyType = t
		}
	}
	return d
}

func (k Keys) rotates() bool {
	return k.Spec.KeyRotationPolicy == cephv1.KeyGenerationCephxKeyRotationPolicy
}

// wanted is the generation that a user's Secret is to hold: the one that it holds, or a
// higher one that the spec asks for. Without a Secret it is the newest that Ceph has.
func (u User) wanted(k Keys) uint32 {
	generation := u.generation("client." + k.InUse[u.Secret])
	if generation == 0 {
		generation = 1
		for _, e := range k.Entities {
			generation = max(generation, u.generation(e.Name))
		}
	}
	if k.rotates() {
		generation = max(generation, k.Spec.KeyGeneration)
	}
	return generation
}

// former lists the generations below one that Ceph has, the lowest first.
func (u User) former(entities []auth.Entity, below uint32) []uint32 {
	var list []uint32
	for _, e := range entities {
		if g := u.generation(e.Name); g > 0 && g < below {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, cmp.Compare[uint32])
	return list
}

// cipher tells the type of a key by its length, which its encoding fixes; "" if it is of
// neither.
func cipher(e auth.Entity) string {
	switch len(e.Key.Reveal()) {
	case 40:
		return string(cephv1.CephxKeyTypeAES)
	case 60:
		return string(cephv1.CephxKeyTypeAES256K)
	}
	return ""
}

// handedOver lists the Secrets to remove when somebody else provides the users: those
// that are the CephCluster's own.
func handedOver(secrets []corev1.Secret, owner metav1.OwnerReference) []kit.Object {
	var gone []kit.Object
	for i := range secrets {
		s := &secrets[i]
		if slices.ContainsFunc(s.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
			gone = append(gone, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, UID: s.UID}})
		}
	}
	return gone
}
