// Package auth holds the commands about cephx entities: their keys and caps.
// Keys are ceph.Secret everywhere, so neither an entity nor an error can print
// one. Their length is not looked at: aes256k keys have 60 characters, aes keys
// 40, and only Ceph knows which it takes.
package auth

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends auth commands by one Commander.
type Client struct {
	c       ceph.Commander
	keyType string
}

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c: c} }

// WithKeyType makes GetOrCreate and Rotate ask for keys of a cipher ("aes",
// "aes256k"), which Ceph 20 and newer know. Empty is Ceph's own choice.
func (c Client) WithKeyType(cipher string) Client {
	c.keyType = cipher
	return c
}

func (c Client) typed(cmd ceph.Command) ceph.Command {
	if c.keyType != "" {
		cmd.Args["key_type"] = c.keyType
	}
	return cmd
}

// Caps are what an entity may do, by daemon type: mon, mgr, osd, mds.
type Caps map[string]string

// Args writes the caps as Ceph takes them: type, cap, type, cap, ..., sorted.
func (c Caps) Args() []string {
	types := make([]string, 0, len(c))
	for t := range c {
		types = append(types, t)
	}
	sort.Strings(types)
	out := make([]string, 0, 2*len(c))
	for _, t := range types {
		out = append(out, t, c[t])
	}
	return out
}

// Entity is one entry of the auth database.
type Entity struct {
	// Name is e.g. client.admin or osd.3.
	Name string      `json:"entity"`
	Key  ceph.Secret `json:"key"`
	// PendingKey replaces Key at its first use, if there is one.
	PendingKey ceph.Secret `json:"pending_key,omitzero"`
	Caps       Caps        `json:"caps"`
}

// Keyring writes the entity as a keyring file, in the clear.
func (e Entity) Keyring() ceph.Secret {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]\n\tkey = %s\n", e.Name, e.Key.Reveal())
	args := e.Caps.Args()
	for i := 0; i < len(args); i += 2 {
		fmt.Fprintf(&b, "\tcaps %s = %q\n", args[i], args[i+1])
	}
	return ceph.NewSecret(b.String())
}

// List reads all entities.
func (c Client) List(ctx context.Context) ([]Entity, error) {
	r, err := ceph.MonJSON[entities](ctx, c.c, ceph.Cmd("auth ls"))
	return r.Dump, err
}

// Recent is List with an answer that may be a moment old.
func Recent(ctx context.Context, r ceph.Recent) ([]Entity, error) {
	list, err := ceph.RecentMonJSON[entities](ctx, r, ceph.Cmd("auth ls"))
	return list.Dump, err
}

// entities is the answer of `auth ls`.
type entities struct {
	Dump []Entity `json:"auth_dump"`
}

// Get reads one entity. ENOENT: no such entity.
func (c Client) Get(ctx context.Context, entity string) (Entity, error) {
	return c.one(ctx, ceph.Cmd("auth get", "entity", entity))
}

// GetKey reads one entity's key. ENOENT: no such entity.
func (c Client) GetKey(ctx context.Context, entity string) (ceph.Secret, error) {
	cmd := ceph.Cmd("auth get-key", "entity", entity)
	r, err := ceph.MonJSON[struct {
		Key ceph.Secret `json:"key"`
	}](ctx, c.c, cmd)
	if err == nil && r.Key.IsZero() {
		err = &ceph.DecodeError{Prefix: cmd.Prefix, Err: errors.New("no key in it")}
	}
	return r.Key, err
}

// GetOrCreate gives the entity, made with these caps if it was missing. EINVAL:
// it exists with other caps (see SetCaps).
func (c Client) GetOrCreate(ctx context.Context, entity string, caps Caps) (Entity, error) {
	return c.one(ctx, c.typed(ceph.Cmd("auth get-or-create", "entity", entity, "caps", caps.Args())))
}

// Add makes the entity with the key and caps given. EEXIST: it exists with
// another key; EINVAL: with other caps.
func (c Client) Add(ctx context.Context, e Entity) error {
	keyring := fmt.Sprintf("[%s]\n\tkey = %s\n", e.Name, e.Key.Reveal())
	return ceph.Discard(c.c.Mon(ctx,
		ceph.Cmd("auth add", "entity", e.Name, "caps", e.Caps.Args()).WithIn([]byte(keyring))))
}

// Import makes or overwrites entities from a keyring file's content. EINVAL: it
// is no keyring.
func (c Client) Import(ctx context.Context, keyring ceph.Secret) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("auth import").WithIn([]byte(keyring.Reveal()))))
}

// SetCaps replaces all caps of an entity. ENOENT: no such entity; EINVAL: a cap
// that does not parse.
func (c Client) SetCaps(ctx context.Context, entity string, caps Caps) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("auth caps", "entity", entity, "caps", caps.Args())))
}

// Remove removes an entity. A missing one succeeds.
func (c Client) Remove(ctx context.Context, entity string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("auth rm", "entity", entity)))
}

// Rotate gives an entity a new key at once; whoever uses the old one is cut off.
// ENOENT: no such entity; EINVAL: Ceph is older than 20.
func (c Client) Rotate(ctx context.Context, entity string) (Entity, error) {
	return c.one(ctx, c.typed(ceph.Cmd("auth rotate", "entity", entity)))
}

func (c Client) one(ctx context.Context, cmd ceph.Command) (Entity, error) {
	list, err := ceph.MonJSON[[]Entity](ctx, c.c, cmd)
	if err != nil {
		return Entity{}, err
	}
	if len(list) != 1 || list[0].Key.IsZero() {
		return Entity{}, &ceph.DecodeError{Prefix: cmd.Prefix,
			Err: fmt.Errorf("%d entities in it, or no key", len(list))}
	}
	return list[0], nil
}
