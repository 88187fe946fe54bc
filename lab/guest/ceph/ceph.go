// Package ceph brings up a whole small Ceph cluster in a storage guest: one
// mon, one mgr, and OSDs on raw disks, on LVM with their DBs on a shared fast
// disk, with or without dm-crypt. Tests of disk replacement start from it.
//
// Every step is a program with fixed arguments that the guest's agent runs; no
// shell, no script. It must not decide anything about replacing OSDs: what is
// tested does that.
package ceph

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/guest"
)

// Runner is the guest that a cluster runs in.
type Runner interface {
	Exec(ctx context.Context, argv ...string) (guest.Result, error)
	Put(ctx context.Context, path string, perm fs.FileMode, r io.Reader) error
	Get(ctx context.Context, path string, w io.Writer) error
	Address() netip.Prefix
}

// Cluster is a Ceph cluster in a guest.
type Cluster struct {
	guest Runner
	// FSID is the cluster's id.
	FSID string
	// Step, when not nil, is called after each step with its name and how long
	// it took.
	Step func(name string, took time.Duration)
}

const (
	confPath  = "/etc/ceph/ceph.conf"
	adminRing = "/etc/ceph/ceph.client.admin.keyring"
	monRing   = "/run/ceph/mon.keyring"
	monMap    = "/run/ceph/monmap"
	bootRing  = "/var/lib/ceph/bootstrap-osd/ceph.keyring"
	mgrRing   = "/var/lib/ceph/mgr/ceph-x/keyring"
	pollEvery = time.Second
)

// config is the cluster's ceph.conf: small, quiet, and without what a cluster
// on one host cannot have. osd_class_dir is absolute because Debian's built-in
// value is relative to the working directory. 939524096 is the least that
// osd_memory_target takes.
const config = `[global]
fsid = %[1]s
mon_host = [v2:%[2]s:3300/0,v1:%[2]s:6789/0]
mon_initial_members = a
public_network = %[3]s
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 2
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
mon_warn_on_pool_no_redundancy = false
mon_data_avail_warn = 5
mon_data_avail_crit = 2
auth_allow_insecure_global_id_reclaim = false
osd_memory_target = 939524096
osd_op_num_shards = 2
osd_class_dir = /usr/lib/x86_64-linux-gnu/rados-classes
osd_mclock_skip_benchmark = true
pid_file = /run/ceph/$type.$id.pid
admin_socket = /run/ceph/$cluster-$name.asok
mgr_stats_period = 2
mgr_initial_modules =
mgr_disabled_modules = alerts cephadm dashboard influx insights iostat localpool mirroring nfs osd_perf_query osd_support prometheus rook selftest smb snap_schedule stats telegraf test_orchestrator
`

// Bootstrap starts a mon named a and a mgr named x in a guest that has no
// cluster yet, and returns when both serve. step may be nil.
func Bootstrap(ctx context.Context, g Runner, step func(string, time.Duration)) (*Cluster, error) {
	c := &Cluster{guest: g, FSID: newUUID(), Step: step}
	if err := c.Get(ctx, confPath, io.Discard); err == nil {
		return nil, errors.New("the guest has a Ceph cluster already: take the guest down and up again for a new one")
	}
	addr := g.Address()
	conf := fmt.Sprintf(config, c.FSID, addr.Addr(), addr.Masked())
	if err := g.Put(ctx, confPath, 0o644, strings.NewReader(conf)); err != nil {
		return nil, err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"keys", c.makeKeys},
		{"mon", c.startMon},
		{"mgr", c.startMgr},
		{"mgr available", c.waitMgr},
	}
	for _, s := range steps {
		if err := c.timed(ctx, s.name, s.do); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Open returns the cluster that runs in the guest.
func Open(ctx context.Context, g Runner) (*Cluster, error) {
	var conf bytes.Buffer
	if err := g.Get(ctx, confPath, &conf); err != nil {
		return nil, fmt.Errorf("looking for the guest's Ceph cluster: %w", err)
	}
	for line := range strings.Lines(conf.String()) {
		if key, value, _ := strings.Cut(line, "="); strings.TrimSpace(key) == "fsid" {
			return &Cluster{guest: g, FSID: strings.TrimSpace(value)}, nil
		}
	}
	return nil, fmt.Errorf("%s in the guest has no fsid", confPath)
}

// Get copies a file out of the guest.
func (c *Cluster) Get(ctx context.Context, path string, w io.Writer) error {
	return c.guest.Get(ctx, path, w)
}

// timed runs a step and reports how long it took.
func (c *Cluster) timed(ctx context.Context, name string, do func(context.Context) error) error {
	began := time.Now()
	if err := do(ctx); err != nil {
		return fmt.Errorf("ceph %s: %w", name, err)
	}
	if c.Step != nil {
		c.Step(name, time.Since(began))
	}
	return nil
}

// makeKeys makes all keys before there is a mon, and gives them to it in its
// first keyring: that saves a start of the ceph program for each.
func (c *Cluster) makeKeys(ctx context.Context) error {
	rings := []struct {
		path, name string
		caps       []string
	}{
		{monRing, "mon.", []string{"mon", "allow *"}},
		{adminRing, "client.admin", []string{"mon", "allow *", "osd", "allow *", "mds", "allow *", "mgr", "allow *"}},
		{bootRing, "client.bootstrap-osd", []string{"mon", "profile bootstrap-osd", "mgr", "allow r"}},
		{mgrRing, "mgr.x", []string{"mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"}},
	}
	dirs := []string{
		"mkdir", "-p", "/run/ceph", "/var/log/ceph", "/var/lib/ceph/bootstrap-osd", "/var/lib/ceph/mon",
		"/var/lib/ceph/mgr/ceph-x", "/var/lib/ceph/osd", "/var/lib/ceph/mds", "/var/lib/ceph/tmp", "/var/lib/ceph/crash/posted",
	}
	if _, err := c.run(ctx, dirs...); err != nil {
		return err
	}
	for _, r := range rings {
		argv := []string{"ceph-authtool", "--create-keyring", r.path, "--gen-key", "-n", r.name}
		for i := 0; i < len(r.caps); i += 2 {
			argv = append(argv, "--cap", r.caps[i], r.caps[i+1])
		}
		if _, err := c.run(ctx, argv...); err != nil {
			return err
		}
		if r.path != monRing {
			if _, err := c.run(ctx, "ceph-authtool", monRing, "--import-keyring", r.path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) startMon(ctx context.Context) error {
	ip := c.guest.Address().Addr()
	addrs := fmt.Sprintf("[v2:%s:3300/0,v1:%s:6789/0]", ip, ip)
	for _, argv := range [][]string{
		{"monmaptool", "--create", "--clobber", "--fsid", c.FSID, "--addv", "a", addrs, monMap},
		{"chown", "-R", "ceph:ceph", "/run/ceph", "/var/log/ceph", "/var/lib/ceph"},
		{"ceph-mon", "--mkfs", "-i", "a", "--monmap", monMap, "--keyring", monRing, "--setuser", "ceph", "--setgroup", "ceph"},
		{"ceph-mon", "-i", "a", "--setuser", "ceph", "--setgroup", "ceph"},
		{"rm", "-f", monRing, monMap},
	} {
		if _, err := c.run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startMgr(ctx context.Context) error {
	_, err := c.run(ctx, "ceph-mgr", "-i", "x", "--setuser", "ceph", "--setgroup", "ceph")
	return err
}

func (c *Cluster) waitMgr(ctx context.Context) error {
	return c.poll(ctx, "the mgr to become available", func() (bool, error) {
		var stat struct {
			Available bool `json:"available"`
		}
		err := c.JSON(ctx, &stat, "mgr", "stat")
		return stat.Available, err
	})
}

// JSON runs the ceph program with a command and decodes what it answers.
func (c *Cluster) JSON(ctx context.Context, into any, command ...string) error {
	out, err := c.Ceph(ctx, append(slices.Clone(command), "--format", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("reading the answer to ceph %s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// Ceph runs the ceph program and returns its standard output.
func (c *Cluster) Ceph(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, append([]string{"ceph", "--connect-timeout", "120"}, args...)...)
}

// CreatePool makes a replicated pool for the given application with 8 PGs.
func (c *Cluster) CreatePool(ctx context.Context, name, application string) error {
	if _, err := c.Ceph(ctx, "osd", "pool", "create", name, "8", "8"); err != nil {
		return err
	}
	_, err := c.Ceph(ctx, "osd", "pool", "application", "enable", name, application)
	return err
}

// WaitClean waits until there are PGs and all are active+clean.
func (c *Cluster) WaitClean(ctx context.Context) error {
	return c.timed(ctx, "active+clean", func(ctx context.Context) error {
		return c.poll(ctx, "all PGs to be active+clean", func() (bool, error) {
			var status pgStatus
			err := c.JSON(ctx, &status, "status")
			return status.clean(), err
		})
	})
}

// pgStatus is what of "ceph status" tells whether all PGs are clean.
type pgStatus struct {
	PGMap struct {
		NumPGs int `json:"num_pgs"`
		States []struct {
			Name  string `json:"state_name"`
			Count int    `json:"count"`
		} `json:"pgs_by_state"`
	} `json:"pgmap"`
}

func (s pgStatus) clean() bool {
	st := s.PGMap.States
	return len(st) == 1 && st[0].Name == "active+clean" && st[0].Count == s.PGMap.NumPGs && s.PGMap.NumPGs > 0
}

// CommandError is a program that exited with a code other than 0.
type CommandError struct {
	Argv   []string
	Result guest.Result
}

func (e *CommandError) Error() string {
	last := ""
	for line := range strings.Lines(e.Result.Stderr + e.Result.Stdout) {
		if s := strings.TrimSpace(line); s != "" {
			last = s
		}
	}
	return fmt.Sprintf("%s: exit code %d: %s", strings.Join(e.Argv, " "), e.Result.ExitCode, last)
}

// run runs a program in the guest; an exit code other than 0 is a
// *CommandError.
func (c *Cluster) run(ctx context.Context, argv ...string) (string, error) {
	res, err := c.guest.Exec(ctx, argv...)
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return res.Stdout, &CommandError{Argv: argv, Result: res}
	}
	return res.Stdout, nil
}

// poll asks until the answer is yes. A command that fails is asked again too,
// since a starting cluster refuses now and then; the last failure is told when
// ctx ends.
func (c *Cluster) poll(ctx context.Context, what string, ask func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		yes, err := ask()
		if err == nil && yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx)), err)
		case <-tick.C:
		}
	}
}

// newUUID makes a random (version 4) UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
