// Package config holds the commands about the mons' configuration database
// (config) and key-value store (config-key). Values can be secrets there, so
// they are ceph.Secret where Ceph keeps secrets (config-key) and plain where
// `ceph config dump` shows them to anyone with a read cap.
package config

import (
	"context"
	"errors"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends config commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// Option is one setting of the database.
type Option struct {
	// Section is who it is for: global, mon, osd.3, client.rgw.a, ...
	Section string `json:"section"`
	Name    string `json:"name"`
	Value   string `json:"value"`
	// Level is basic, advanced or dev; unknown for a name Ceph does not know.
	Level string `json:"level"`
	// Mask limits it further: "host:a", "class:ssd", "rack:r1"; often empty.
	Mask string `json:"mask"`
	// Runtime reports whether a change takes effect without a restart.
	Runtime bool `json:"can_update_at_runtime"`
}

// Who writes section and mask as Set and Remove take them: "osd/class:ssd".
func (o Option) Who() string {
	if o.Mask == "" {
		return o.Section
	}
	return o.Section + "/" + o.Mask
}

// Dump reads the whole database.
func (c Client) Dump(ctx context.Context) ([]Option, error) {
	return ceph.MonJSON[[]Option](ctx, c.c, ceph.Cmd("config dump"))
}

// Recent is Dump with an answer that may be a moment old.
func Recent(ctx context.Context, r ceph.Recent) ([]Option, error) {
	return ceph.RecentMonJSON[[]Option](ctx, r, ceph.Cmd("config dump"))
}

// Get reads the value an option has for a daemon or section, the default
// included. ENOENT: no such option.
func (c Client) Get(ctx context.Context, who, name string) (string, error) {
	cmd := ceph.Cmd("config get", "who", who, "key", name)
	cmd.Plain = true // with format json a single key is still a bare word
	r, err := c.c.Mon(ctx, cmd)
	if err != nil {
		return "", err
	}
	return trimNewline(string(r.Out)), nil
}

// Set sets an option. EINVAL: no such option, or a value it does not take;
// force sets a name that no daemon knows (yet).
func (c Client) Set(ctx context.Context, who, name, value string, force bool) error {
	cmd := ceph.Cmd("config set", "who", who, "name", name, "value", value)
	if force {
		cmd.Args["force"] = true
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// SetSecret sets an option whose value must not be printed.
func (c Client) SetSecret(ctx context.Context, who, name string, value ceph.Secret) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("config set", "who", who, "name", name, "value", value)))
}

// Remove clears an option. One that is not set succeeds.
func (c Client) Remove(ctx context.Context, who, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("config rm", "who", who, "name", name)))
}

// Assimilate puts every option of a ceph.conf that the database can hold into it
// and gives back the rest as a conf. EINVAL: a value is not taken; nothing has
// been set then.
func (c Client) Assimilate(ctx context.Context, conf []byte) (rest []byte, err error) {
	cmd := ceph.Cmd("config assimilate-conf").WithIn(conf)
	cmd.Plain = true
	r, err := c.c.Mon(ctx, cmd)
	return r.Out, err
}

// Keys lists the keys of the key-value store.
func (c Client) Keys(ctx context.Context) ([]string, error) {
	return ceph.MonJSON[[]string](ctx, c.c, ceph.Cmd("config-key ls"))
}

// GetKey reads a value of the key-value store as it was stored. ENOENT: no such
// key.
func (c Client) GetKey(ctx context.Context, key string) (ceph.Secret, error) {
	cmd := ceph.Cmd("config-key get", "key", key)
	cmd.Plain = true
	r, err := c.c.Mon(ctx, cmd)
	if err != nil {
		return ceph.Secret{}, err
	}
	return ceph.NewSecret(string(r.Out)), nil
}

// SetKey stores a value, at most 64 KiB (mon_config_key_max_entry_size; EFBIG
// above). It travels as input, so that it is in no audit log.
func (c Client) SetKey(ctx context.Context, key string, value ceph.Secret) error {
	if value.IsZero() {
		return errors.New("config-key set: Ceph takes no empty value as input")
	}
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("config-key set", "key", key).WithIn([]byte(value.Reveal()))))
}

// RemoveKey removes a key. A missing one succeeds.
func (c Client) RemoveKey(ctx context.Context, key string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("config-key rm", "key", key)))
}

// HasKey reports whether a key exists.
func (c Client) HasKey(ctx context.Context, key string) (bool, error) {
	_, err := c.c.Mon(ctx, ceph.Cmd("config-key exists", "key", key))
	switch {
	case err == nil:
		return true, nil
	case ceph.NotFound(err):
		return false, nil
	}
	return false, err
}

func trimNewline(s string) string {
	for len(s) > 0 && s[len(s)-1] == '\n' {
		s = s[:len(s)-1]
	}
	return s
}
