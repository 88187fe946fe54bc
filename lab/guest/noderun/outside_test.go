package noderun_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/lab/guest"
)

// envOutside makes this program one of the guest's programs that runs on the machine
// itself: an outsideEnv.
const envOutside = "CASTELLAN_TEST_OUTSIDE"

// outside is a guest whose ceph and rados run on the machine, from the guest's root file
// system and on its network: one such process takes a third of a second there, and five
// to ten seconds of the guest's only processor, which the daemons then lack. What is
// tested, castellan-node with all that it starts, runs in the guest as ever.
type outside struct {
	*guest.Guest
	rootfs string
	// dir is on the machine, and /mnt for the programs.
	dir string
}

type outsideEnv struct{ Rootfs, Dir string }

// Exec implements ceph.Runner.
func (o outside) Exec(ctx context.Context, argv ...string) (guest.Result, error) {
	if !slices.Contains([]string{"ceph", "rados"}, argv[0]) {
		return o.Guest.Exec(ctx, argv...)
	}
	for name, from := range map[string]string{"ceph.conf": "/etc/ceph/ceph.conf", "keyring": "/etc/ceph/ceph.client.admin.keyring"} {
		if err := o.fetch(ctx, from, filepath.Join(o.dir, name)); err != nil {
			return guest.Result{}, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return guest.Result{}, err
	}
	env, err := json.Marshal(outsideEnv{Rootfs: o.rootfs, Dir: o.dir})
	if err != nil {
		return guest.Result{}, err
	}
	args := append([]string{argv[0], "--conf", "/mnt/ceph.conf", "--keyring", "/mnt/keyring"}, argv[1:]...)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = []string{envOutside + "=" + string(env), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8"}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := o.StartBeside(cmd); err != nil {
		return guest.Result{}, fmt.Errorf("running %s beside the guest: %w", argv[0], err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 0) {
		return guest.Result{}, fmt.Errorf("running %s beside the guest: %w\n%s", argv[0], err, errOut.String())
	}
	return guest.Result{ExitCode: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errOut.String()}, nil
}

// fetch copies a file out of the guest, once.
func (o outside) fetch(ctx context.Context, from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	var b bytes.Buffer
	if err := o.Get(ctx, from, &b); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o600)
}

// runOutside becomes a program of the guest's root file system, which it cannot change:
// it is shared and mounted read-only, with /run and /tmp of its own, in a mount namespace
// that ends with the program.
func runOutside(text string, argv []string) error {
	var env outsideEnv
	if err := json.Unmarshal([]byte(text), &env); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	in := func(p string) string { return filepath.Join(env.Rootfs, p) }
	for _, m := range []struct {
		source, target, fstype string
		flags                  uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{env.Rootfs, env.Rootfs, "", unix.MS_BIND},
		{"", env.Rootfs, "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY},
		{"tmpfs", in("run"), "tmpfs", 0},
		{"tmpfs", in("tmp"), "tmpfs", 0},
		{"proc", in("proc"), "proc", unix.MS_RDONLY},
		{"/dev", in("dev"), "", unix.MS_BIND},
		{env.Dir, in("mnt"), "", unix.MS_BIND},
	} {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := unix.Chroot(env.Rootfs); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return unix.Exec(path, argv, slices.DeleteFunc(os.Environ(), func(kv string) bool { return len(kv) > len(envOutside) && kv[:len(envOutside)] == envOutside }))
}
