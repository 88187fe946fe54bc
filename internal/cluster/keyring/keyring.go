// Package keyring keeps cephx users and the Secrets that carry their keys to
// pods: which user is missing in Ceph, whose caps differ, and what the Secrets
// hold.
//
// What it decides is pure; carrying an action out is one command to Ceph. It
// never makes a key itself and never prints one.
package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// User is a cephx user that a daemon or a client needs.
type User struct {
	// Entity as Ceph names it: mgr.a, client.crash.
	Entity string
	Caps   auth.Caps
	// Secret that holds the key.
	Secret string
	// KeyOnly keeps userID and userKey in the Secret instead of a keyring file, as
	// CSI drivers read them.
	KeyOnly bool
}

// Ensure makes a user, or gives it the caps that it should have.
type Ensure struct {
	Entity string
	Caps   auth.Caps
	// Exists says that only the caps differ.
	Exists bool
}

// String implements kit.Action.
func (e Ensure) String() string {
	if e.Exists {
		return "setting the caps of " + e.Entity
	}
	return "making user " + e.Entity
}

// Kind is the metric label.
func (e Ensure) Kind() string { return "auth" }

// Do sends the command.
func (e Ensure) Do(ctx context.Context, c ceph.Commander) error {
	if e.Exists {
		return auth.New(c).SetCaps(ctx, e.Entity, e.Caps)
	}
	_, err := auth.New(c).GetOrCreate(ctx, e.Entity, e.Caps)
	return err
}

// Plan compares the users that Ceph has with the wanted ones. A Secret is built
// once its user exists, since only Ceph makes keys.
func Plan(c podspec.Cluster, have []auth.Entity, users []User) (apply []kit.Object, do []kit.Action) {
	byName := map[string]auth.Entity{}
	for _, e := range have {
		byName[e.Name] = e
	}
	for _, u := range users {
		e, ok := byName[u.Entity]
		switch {
		case !ok:
			do = append(do, Ensure{Entity: u.Entity, Caps: u.Caps})
			continue
		case !maps.Equal(e.Caps, u.Caps):
			do = append(do, Ensure{Entity: u.Entity, Caps: u.Caps, Exists: true})
		}
		if u.Secret != "" {
			apply = append(apply, Secret(c, u, e.Key))
		}
	}
	return apply, do
}

// Secret holds a user's key.
func Secret(c podspec.Cluster, u User, key ceph.Secret) *corev1.Secret {
	data := map[string][]byte{"keyring": []byte(fmt.Sprintf("[%s]\n\tkey = %s\n", u.Entity, key.Reveal()))}
	if u.KeyOnly {
		id := strings.TrimPrefix(u.Entity, "client.")
		data = map[string][]byte{"userID": []byte(id), "userKey": []byte(key.Reveal())}
	}
	return Opaque(c, u.Secret, data)
}

// Opaque is a Secret of the operator.
func Opaque(c podspec.Cluster, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Type:       identity.SecretType,
		Data:       data,
	}
}

// keysOf are the keys of a keyring file with their entities, without caps and spaces.
func keysOf(file string) string {
	var keys []string
	for line := range strings.Lines(file) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			keys = append(keys, line)
		case ok && strings.TrimSpace(name) == "key":
			keys = append(keys, strings.TrimSpace(value))
		}
	}
	return strings.Join(keys, "\n")
}

// Version tells two contents of a Secret apart without giving them away. Pods
// carry it as an annotation, so that they restart when their key changes, and
// not when somebody labels the Secret, nor when a keyring says the same in another
// way, as that of another operator does.
func Version(s *corev1.Secret) string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		v := string(s.Data[k])
		if k == "keyring" {
			v = keysOf(v)
		}
		_, _ = fmt.Fprintf(h, "%s\x00%d\x00%s", k, len(v), v)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
