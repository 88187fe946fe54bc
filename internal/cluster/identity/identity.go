// Package identity is what makes a Ceph cluster this cluster: its fsid and the
// keys of mon. and client.admin. They are made once and never again; losing or
// remaking them loses the cluster.
//
// It is pure: randomness and time come in as values. It must not decide whether
// a cluster may be founded from one read alone: Found says what must have been
// seen, and the caller must have read it live.
package identity

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Names of the Secrets, part of the compatibility contract.
const (
	Secret       = "rook-ceph-mon"
	MonsKeyring  = "rook-ceph-mons-keyring"
	AdminKeyring = "rook-ceph-admin-keyring"
	// Finalizer holds the Secret and the endpoints until a confirmed teardown.
	Finalizer = "ceph.rook.io/disaster-protection"
	// SecretType marks every Secret that the operator makes.
	SecretType = "kubernetes.io/rook"
)

// AdminUser is the entity that the operator is.
const AdminUser = "client.admin"

// Identity of a cluster.
type Identity struct {
	FSID string
	Mon  ceph.Secret
	// User and Key are the operator's own.
	User string
	Key  ceph.Secret
}

// Cipher of a cephx key.
type Cipher uint16

// The ciphers that Ceph knows: AES for releases before 20.2.4, AES256K after.
const (
	AES     Cipher = 1
	AES256K Cipher = 2
)

// size of the secret part in bytes.
func (c Cipher) size() int {
	if c == AES256K {
		return 32
	}
	return 16
}

// NewKey makes a cephx key in the form that Ceph prints: type, time of making
// and length in front of the random part, in base64 (40 or 60 characters).
func NewKey(random io.Reader, c Cipher, now time.Time) (ceph.Secret, error) {
	secret := make([]byte, c.size())
	if _, err := io.ReadFull(random, secret); err != nil {
		return ceph.Secret{}, fmt.Errorf("making a cephx key: %w", err)
	}
	b := binary.LittleEndian.AppendUint16(nil, uint16(c))
	b = binary.LittleEndian.AppendUint32(b, uint32(now.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(now.Nanosecond()))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(secret)))
	return ceph.NewSecret(base64.StdEncoding.EncodeToString(append(b, secret...))), nil
}

// New founds an identity.
func New(random io.Reader, c Cipher, now time.Time) (Identity, error) {
	u := make([]byte, 16)
	if _, err := io.ReadFull(random, u); err != nil {
		return Identity{}, fmt.Errorf("making an fsid: %w", err)
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // RFC 9562, version 4
	id := Identity{FSID: fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), User: AdminUser}
	var err error
	if id.Mon, err = NewKey(random, c, now); err != nil {
		return Identity{}, err
	}
	id.Key, err = NewKey(random, c, now)
	return id, err
}

// Data is the content of Secret rook-ceph-mon.
func (id Identity) Data() map[string][]byte {
	return map[string][]byte{
		"fsid": []byte(id.FSID), "mon-secret": []byte(id.Mon.Reveal()),
		"ceph-username": []byte(id.User), "ceph-secret": []byte(id.Key.Reveal()),
	}
}

// Parse reads Secret rook-ceph-mon. A Secret that lacks something is an error:
// a cluster exists, and its identity must be restored, not made anew.
func Parse(data map[string][]byte) (Identity, error) {
	get := func(key string) string { return strings.TrimSpace(string(data[key])) }
	id := Identity{FSID: get("fsid"), Mon: ceph.NewSecret(get("mon-secret")), User: get("ceph-username"), Key: ceph.NewSecret(get("ceph-secret"))}
	if id.User == "" && len(data["admin-secret"]) > 0 { // as clusters before 1.0 kept it
		id.User, id.Key = AdminUser, ceph.NewSecret(get("admin-secret"))
	}
	var missing []string
	for key, absent := range map[string]bool{"fsid": id.FSID == "", "mon-secret": id.Mon.IsZero(), "ceph-username": id.User == "", "ceph-secret": id.Key.IsZero()} {
		if absent {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return Identity{}, fmt.Errorf("Secret %s lacks %s", Secret, strings.Join(missing, ", ")) //nolint:staticcheck // begins with a kind
	}
	return id, nil
}

// MonsKeyringFile is the keyring that mons start with.
func (id Identity) MonsKeyringFile() string {
	return fmt.Sprintf("[mon.]\n\tkey = %s\n\tcaps mon = \"allow *\"\n\n%s", id.Mon.Reveal(), id.AdminKeyringFile())
}

// AdminKeyringFile is client.admin's keyring with its caps.
func (id Identity) AdminKeyringFile() string {
	return fmt.Sprintf("[%s]\n\tkey = %s\n\tcaps mds = \"allow *\"\n\tcaps mon = \"allow *\"\n\tcaps osd = \"allow *\"\n\tcaps mgr = \"allow *\"\n", id.User, id.Key.Reveal())
}

// Traces are the signs of an existing cluster in a namespace, each from a live
// read that has succeeded.
type Traces struct {
	Secret, Endpoints bool
	// Mons are Deployments, pods or volume claims of mons, by name.
	Mons []string
	// Ran says how else it is known that Ceph has run here, "" if it is not: by the
	// CephCluster's status, or by OSDs.
	Ran string
}

// MayFound reports whether a new cluster may be founded; if not, the message
// says what stands against it. An identity that is partly there is a lost or
// half-restored cluster, and a second one must never be made beside it.
func (t Traces) MayFound() (bool, string) {
	var signs []string
	if t.Secret {
		signs = append(signs, "Secret "+Secret)
	}
	if t.Endpoints {
		signs = append(signs, "ConfigMap rook-ceph-mon-endpoints")
	}
	signs = append(signs, t.Mons...)
	if t.Ran != "" {
		signs = append(signs, t.Ran)
	}
	if len(signs) == 0 {
		return true, ""
	}
	return false, "a cluster has been here before: " + strings.Join(signs, ", ")
}
