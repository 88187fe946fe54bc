// Package mgr holds the commands about mgrs, their modules and the dashboard's
// users. It must not send a password in any way but as input of a command.
package mgr

import (
	"context"
	"errors"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Client sends mgr commands by one Commander.
type Client struct{ c ceph.Commander }

// New makes a Client. It costs nothing and keeps no state.
func New(c ceph.Commander) Client { return Client{c} }

// Stat is the short state of the mgrs.
type Stat struct {
	Epoch int `json:"epoch"`
	// Available: there is an active mgr and it has loaded its modules.
	Available  bool   `json:"available"`
	Active     string `json:"active_name"`
	NumStandby int    `json:"num_standby"`
}

// Stat reads the short state, from the mons: it answers without a mgr.
func (c Client) Stat(ctx context.Context) (Stat, error) {
	return ceph.MonJSON[Stat](ctx, c.c, ceph.Cmd("mgr stat"))
}

// Standby is a mgr that waits.
type Standby struct {
	GID  int64  `json:"gid"`
	Name string `json:"name"`
}

// Map is the part of the mgrmap that is used. It is 75 KB on the wire, most of
// it descriptions of modules: read Stat where that is enough.
type Map struct {
	Epoch       int        `json:"epoch"`
	ActiveGID   int64      `json:"active_gid"`
	Active      string     `json:"active_name"`
	ActiveAddrs ceph.Addrs `json:"active_addrs"`
	Available   bool       `json:"available"`
	Standbys    []Standby  `json:"standbys"`
	// Modules are the enabled ones that are not always on.
	Modules []string `json:"modules"`
	// Services maps dashboard and prometheus to the URL of the active mgr's.
	Services map[string]string `json:"services"`
}

// Dump reads the mgrmap.
func (c Client) Dump(ctx context.Context) (Map, error) {
	return ceph.MonJSON[Map](ctx, c.c, ceph.Cmd("mgr dump"))
}

// Services reads the URLs the active mgr serves, by module.
func (c Client) Services(ctx context.Context) (map[string]string, error) {
	return ceph.MonJSON[map[string]string](ctx, c.c, ceph.Cmd("mgr services"))
}

// Modules says which modules are on.
type Modules struct {
	AlwaysOn []string       `json:"always_on_modules"`
	Enabled  []string       `json:"enabled_modules"`
	Disabled []ModuleStatus `json:"disabled_modules"`
}

// ModuleStatus is a module that is off.
type ModuleStatus struct {
	Name string `json:"name"`
	// CanRun is false when something it needs is missing; Error says what.
	CanRun bool   `json:"can_run"`
	Error  string `json:"error_string"`
}

// On reports whether a module is enabled or always on.
func (m Modules) On(name string) bool {
	for _, list := range [][]string{m.AlwaysOn, m.Enabled} {
		for _, n := range list {
			if n == name {
				return true
			}
		}
	}
	return false
}

// Modules reads which modules are on.
func (c Client) Modules(ctx context.Context) (Modules, error) {
	return ceph.MonJSON[Modules](ctx, c.c, ceph.Cmd("mgr module ls"))
}

// EnableModule enables a module; the active mgr restarts itself for it. Again
// succeeds. ENOENT: no mgr knows it, unless forced; EINVAL or ENOENT: it cannot
// run.
func (c Client) EnableModule(ctx context.Context, name string, force bool) error {
	cmd := ceph.Cmd("mgr module enable", "module", name)
	if force {
		cmd.Args["force"] = true
	}
	return ceph.Discard(c.c.Mon(ctx, cmd))
}

// DisableModule disables a module. One that is off succeeds. EPERM: it is always
// on.
func (c Client) DisableModule(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mgr module disable", "module", name)))
}

// Fail makes a standby take over from the named mgr, or drops that standby. One
// that is neither succeeds.
func (c Client) Fail(ctx context.Context, name string) error {
	return ceph.Discard(c.c.Mon(ctx, ceph.Cmd("mgr fail", "who", name)))
}

// Metadata is what a mgr reported about itself.
type Metadata struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
	Version  string `json:"ceph_version"`
	Short    string `json:"ceph_version_short"`
}

// Metadata reads what every mgr reported about itself.
func (c Client) Metadata(ctx context.Context) ([]Metadata, error) {
	return ceph.MonJSON[[]Metadata](ctx, c.c, ceph.Cmd("mgr metadata"))
}

// DashboardUser is a user of the dashboard.
type DashboardUser struct {
	Name    string   `json:"username"`
	Roles   []string `json:"roles"`
	Enabled bool     `json:"enabled"`
	// Hash is the password's, by bcrypt.
	Hash ceph.Secret `json:"password"`
}

// DashboardUser reads one user. ENOENT: no such user; EOPNOTSUPP: the dashboard
// module does not run (yet).
func (c Client) DashboardUser(ctx context.Context, name string) (DashboardUser, error) {
	return ceph.MgrJSON[DashboardUser](ctx, c.c, ceph.Cmd("dashboard ac-user-show", "username", name))
}

// CreateDashboardUser makes a user with one role, e.g. administrator. EEXIST:
// there is one of that name; EINVAL: the password is empty.
func (c Client) CreateDashboardUser(ctx context.Context, name, role string, password ceph.Secret) error {
	if password.IsZero() {
		return errors.New("dashboard ac-user-create: the password is empty")
	}
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("dashboard ac-user-create", "username", name,
		"rolename", role, "force_password", true).WithIn([]byte(password.Reveal()))))
}

// SetDashboardPassword changes a user's password. ENOENT: no such user.
func (c Client) SetDashboardPassword(ctx context.Context, name string, password ceph.Secret) error {
	if password.IsZero() {
		return errors.New("dashboard ac-user-set-password: the password is empty")
	}
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("dashboard ac-user-set-password", "username", name,
		"force_password", true).WithIn([]byte(password.Reveal()))))
}

// HasDashboardCertificate reports whether the dashboard has a certificate for all mgrs,
// of its own or a user's. The mons know it.
func (c Client) HasDashboardCertificate(ctx context.Context) (bool, error) {
	err := ceph.Discard(c.c.Mon(ctx, ceph.Cmd("config-key exists", "key", "mgr/dashboard/crt")))
	if ceph.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// CreateDashboardCertificate makes the dashboard sign a certificate for itself.
func (c Client) CreateDashboardCertificate(ctx context.Context) error {
	return ceph.Discard(c.c.Mgr(ctx, ceph.Cmd("dashboard create-self-signed-cert")))
}
