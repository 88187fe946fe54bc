package pid1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Boot runs as /init of the initial RAM file system. It returns only when it
// fails.
func Boot() error {
	for _, m := range []mountPoint{
		{"proc", "/proc", "proc", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	} {
		if err := m.mount(); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	cfg, err := ReadConfig(ConfigPath)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if err := overlayRoot(cfg); err != nil {
		return err
	}
	if err := installIn("/root", cfg); err != nil {
		return err
	}
	return switchRoot("/root")
}

// overlayRoot mounts the root at /root: the machine's directory below, memory
// above.
func overlayRoot(cfg Config) error {
	lower := mountPoint{"none", "/lower", "hostfs", unix.MS_RDONLY, cfg.Rootfs}
	if err := lower.mount(); err != nil {
		return fmt.Errorf("the root file system %s: %w", cfg.Rootfs, err)
	}
	// The module may be built in; whether it works shows at the mount.
	modprobe := exec.Command("/usr/sbin/modprobe", "overlay")
	modprobe.SysProcAttr = &syscall.SysProcAttr{Chroot: "/lower"}
	modprobe.Dir = "/"
	out, probeErr := modprobe.CombinedOutput()

	top := mountPoint{"overlay", "/top", "tmpfs", 0, "mode=755,size=" + cfg.OverlaySize}
	if err := top.mount(); err != nil {
		return err
	}
	for _, d := range []string{"/top/upper", "/top/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	root := mountPoint{"overlay", "/root", "overlay", 0, "lowerdir=/lower,upperdir=/top/upper,workdir=/top/work"}
	if err := root.mount(); err != nil {
		if probeErr != nil {
			probeErr = fmt.Errorf("modprobe overlay: %w: %s", probeErr, strings.TrimSpace(string(out)))
		}
		return errors.Join(err, probeErr)
	}
	return nil
}

// installIn copies the program and its configuration into the new root, and
// puts the cryptsetup wrapper there when it is wanted.
func installIn(root string, cfg Config) error {
	agent := filepath.Join(root, AgentPath)
	if err := copyFile("/init", agent, 0o755); err != nil {
		return fmt.Errorf("installing the agent: %w", err)
	}
	if err := copyFile(ConfigPath, filepath.Join(root, ConfigPath), 0o600); err != nil {
		return fmt.Errorf("installing the configuration: %w", err)
	}
	if !cfg.FastLUKS {
		return nil
	}
	tool := filepath.Join(root, cryptsetupPath)
	if err := os.Rename(tool, filepath.Join(root, cryptsetupReal)); err != nil {
		return fmt.Errorf("installing the cryptsetup wrapper: %w", err)
	}
	if err := os.Symlink(AgentPath, tool); err != nil {
		return fmt.Errorf("installing the cryptsetup wrapper: %w", err)
	}
	return nil
}

// switchRoot makes dir the root and runs Init in it as the same process.
func switchRoot(dir string) error {
	for _, d := range []string{"dev", "proc"} {
		to := filepath.Join(dir, d)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("/"+d, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving /%s: %w", d, err)
		}
	}
	// The initial file system lives in memory for ever: empty it.
	for _, f := range []string{"/init", ConfigPath} {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Exec(AgentPath, []string{AgentPath, "init"}, environment())
}

// mountPoint is one call of mount(2).
type mountPoint struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mountPoint) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s (%s): %w", m.target, m.fstype, err)
	}
	return nil
}

func copyFile(from, to string, perm os.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
