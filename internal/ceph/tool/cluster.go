package tool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Identity is how a program reaches a cluster: by mon_host on its command line
// and a keyring file.
type Identity struct {
	// MonHost is what the option mon_host takes.
	MonHost string
	// User is a whole entity name, e.g. "client.admin".
	User string
	Key  ceph.Secret
}

// Cluster runs Ceph's programs against one cluster. Its keyring file lives until
// Close.
type Cluster struct {
	runner Runner
	id     Identity
	dir    string
}

// NewCluster writes the keyring file into a new folder below dir ("" is the
// system's place for temporary files), which should be in memory.
func NewCluster(r Runner, dir string, id Identity) (*Cluster, error) {
	d, err := os.MkdirTemp(dir, "ceph-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the keyring: %w", err)
	}
	c := &Cluster{runner: r, id: id, dir: d}
	ring := fmt.Sprintf("[%s]\n\tkey = %s\n", id.User, id.Key.Reveal())
	if err := os.WriteFile(c.keyring(), []byte(ring), 0o600); err != nil {
		_ = os.RemoveAll(d)
		return nil, fmt.Errorf("writing the keyring of %s: %w", id.User, err)
	}
	return c, nil
}

func (c *Cluster) keyring() string { return filepath.Join(c.dir, "keyring") }

// Close removes the keyring file.
func (c *Cluster) Close() error {
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("removing the keyring of %s: %w", c.id.User, err)
	}
	return nil
}

// Run runs a program that takes Ceph's common options (rbd, radosgw-admin, rados,
// ceph). They go in front of the call's own arguments; no ceph.conf is read.
func (c *Cluster) Run(ctx context.Context, call Call) (Output, error) {
	call.Args = append([]string{
		"--conf", "/dev/null", "--mon-host", c.id.MonHost, "--name", c.id.User, "--keyring", c.keyring(),
	}, call.Args...)
	return c.runner.Run(ctx, call)
}

// RBD runs rbd with format json.
func (c *Cluster) RBD(ctx context.Context, args ...string) (Output, error) {
	return c.Run(ctx, Call{Program: "rbd", Args: append(slices.Clone(args), "--format", "json")})
}

// RadosGWAdmin runs radosgw-admin. Exit codes are errnos: EEXIST for what exists,
// ENOENT for a missing realm, EINVAL for a missing user.
func (c *Cluster) RadosGWAdmin(ctx context.Context, args ...string) (Output, error) {
	return c.Run(ctx, Call{Program: "radosgw-admin", Args: args})
}

// Grace changes the grace database of an NFS cluster: verb is add, remove, start,
// noenforce, enforce, lift, dump; nodes are its members.
// The program reads a ceph.conf only, so it gets one that names the keyring.
func (c *Cluster) Grace(ctx context.Context, pool, namespace, verb string, nodes ...string) (Output, error) {
	conf := filepath.Join(c.dir, "ceph.conf")
	body := fmt.Sprintf("[global]\nmon_host = %s\nkeyring = %s\n", c.id.MonHost, c.keyring())
	if err := os.WriteFile(conf, []byte(body), 0o600); err != nil {
		return Output{}, fmt.Errorf("writing a ceph.conf: %w", err)
	}
	args := []string{"--cephconf", conf, "--userid", entityID(c.id.User), "--pool", pool, "--ns", namespace, verb}
	return c.runner.Run(ctx, Call{Program: "ganesha-rados-grace", Args: append(args, nodes...)})
}

// entityID is the part behind "client.".
func entityID(user string) string {
	const p = "client."
	if len(user) > len(p) && user[:len(p)] == p {
		return user[len(p):]
	}
	return user
}
