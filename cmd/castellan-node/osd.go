package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/activate"
	"github.com/castellan-storage/castellan/internal/node/cephconf"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/statusmap"
)

const (
	// overrideFile is where the pod mounts the user's ceph.conf override.
	overrideFile = "/etc/castellan/override/ceph.conf"
	confFile     = "/etc/ceph/ceph.conf"
)

// volumeEnv keeps ceph-volume and LVM from waiting for a udev daemon that cannot
// be reached from a pod.
func volumeEnv(allowLoop bool) []string {
	env := []string{"DM_DISABLE_UDEV=1", "CEPH_VOLUME_SKIP_RESTORECON=1", "CEPH_VOLUME_DEBUG=1"}
	if allowLoop {
		env = append(env, "CEPH_VOLUME_ALLOW_LOOP_DEVICES=true")
	}
	return env
}

func provisionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "provision", Short: "Make OSDs of this node's selected devices and report them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var req request.Provision
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			return provisionNode(cmd.Context(), req)
		},
	}
}

// makeReady gives Ceph's programs and ceph-volume what they need to make OSDs in this
// pod: the mons' addresses, LVM's settings, directories.
func makeReady(fsid, monHost string) error {
	if err := writeConf(fsid, monHost); err != nil {
		return err
	}
	if err := writeLVMConf(); err != nil {
		return err
	}
	return makeDirs("/run/ceph", "/var/log/ceph", "/var/lib/ceph/osd", "/var/lib/ceph/crash")
}

func provisionNode(ctx context.Context, req request.Provision) error {
	sel, err := req.Selection.Compile()
	if err != nil {
		return err
	}
	if err := makeReady(req.FSID, req.MonHost); err != nil {
		return err
	}
	client, err := statusmap.InCluster()
	if err != nil {
		return err
	}
	runner := run.Exec{Log: os.Stderr, Env: volumeEnv(req.AllowLoop)}
	node := inspect.Node{Root: "/", Run: runner}
	target := statusmap.Target{Namespace: req.Namespace, Name: req.ConfigMap, Node: req.Node, Labels: req.Labels}
	facts := choice.Facts{FSID: req.FSID, AllowLoop: req.AllowLoop, Reserved: req.Reserved, Pending: req.Pending}
	prep, err := newPreparer(node, runner, req.FSID, statusmap.Begun{Client: client, Target: target})
	if err != nil {
		return err
	}
	report, err := provision.Run(ctx, node, prep, sel, facts, func(ctx context.Context, r provision.Report) error {
		return client.Store(ctx, target, r)
	})
	printReport(report)
	if err != nil {
		return err
	}
	if report.State == provision.Failed {
		return fmt.Errorf("provisioning %s: %s", req.Node, report.Message)
	}
	return nil
}

// printReport leaves the report in the pod's log too.
func printReport(r provision.Report) {
	b, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		fmt.Println(string(b))
	}
}

func activateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "activate [DIR...]", Short: "Find this OSD's disk and write its directory; give the directories to Ceph's user",
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var req request.Activate
			if err := request.Decode(os.Getenv(request.Env), &req); err != nil {
				return err
			}
			uid, gid, err := cephUser()
			if err != nil {
				return err
			}
			if err := ownDirs(uid, gid, dirs); err != nil {
				return err
			}
			if req.MonHost != "" {
				if err := writeConf(req.FSID, req.MonHost); err != nil {
					return err
				}
			}
			if req.Mode == "lvm" {
				if err := writeLVMConf(); err != nil {
					return err
				}
			}
			runner := run.Exec{Log: os.Stderr, Env: volumeEnv(true)}
			node := activate.Host{Node: inspect.Node{Root: "/", Run: runner}, Host: crypt.Host{Root: "/", Run: runner}}
			return activate.Run(cmd.Context(), node, runner, activate.Request{
				ID: req.ID, UUID: req.UUID, FSID: req.FSID, Mode: req.Mode,
				Dir: filepath.Join("/var/lib/ceph/osd", "ceph-"+strconv.Itoa(req.ID)), UID: uid, GID: gid,
			})
		},
	}
}

// makeDirs makes the directories that Ceph's programs take for granted. An image
// may lack them: /run is a tmpfs on an installed system.
func makeDirs(dirs ...string) error {
	uid, gid, err := cephUser()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
		if err := os.Chown(dir, uid, gid); err != nil {
			return fmt.Errorf("giving %s to Ceph's user: %w", dir, err)
		}
	}
	return nil
}

// writeConf writes the ceph.conf that ceph-volume and its children read.
func writeConf(fsid, monHost string) error {
	override, err := os.ReadFile(overrideFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the configuration override: %w", err)
	}
	if err := os.WriteFile(confFile, []byte(cephconf.Compose(string(override), fsid, monHost)), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", confFile, err)
	}
	return nil
}

// lvmConf has no pattern that accepts: a device has many names, LVM takes it if any of them
// is accepted first, and a pattern for all would let an rbd in by its link below
// /dev/disk. What no pattern matches is taken in any case (lvm.conf(5), devices/filter).
const lvmConf = `devices {
	filter = [ "r|^/dev/rbd|", "r|^/dev/nbd|", "r|^/dev/drbd|", "r|^/dev/zram|" ]
	global_filter = [ "r|^/dev/rbd|", "r|^/dev/nbd|", "r|^/dev/drbd|", "r|^/dev/zram|" ]
	obtain_device_list_from_udev = 0
	use_devicesfile = 0
}
activation {
	udev_sync = 0
	udev_rules = 0
}
`

// writeLVMConf keeps LVM from waiting for udev and from opening devices that can
// hang. It does nothing where the image has no LVM.
func writeLVMConf() error {
	if !have("lvm") {
		return nil
	}
	const dir = "/etc/lvm"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "lvm.conf"), []byte(lvmConf), 0o644); err != nil {
		return fmt.Errorf("writing lvm.conf: %w", err)
	}
	return nil
}

// owner is the uid and gid of a file.
func owner(info fs.FileInfo) [2]int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return [2]int{-1, -1}
	}
	return [2]int{int(st.Uid), int(st.Gid)}
}
