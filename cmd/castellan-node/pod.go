package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/internal/node/asok"
	"github.com/castellan-storage/castellan/internal/node/run"
)

// terminationLog is where Kubernetes reads a container's last word.
const terminationLog = "/dev/termination-log"

// copyCmd puts this binary where the other containers of the pod find it.
func copyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "copy DIR", Short: "Copy this binary into DIR", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this binary: %w", err)
			}
			return copyFile(self, filepath.Join(args[0], "castellan-node"))
		},
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // this program itself
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	defer func() { _ = in.Close() }()
	tmp := to + ".new"
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // the directory is an argument on purpose
	if err != nil {
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	if err := os.Rename(tmp, to); err != nil {
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	return nil
}

// versionCmd reports the Ceph version of the image it runs in. It asks ceph-mon,
// which is a plain binary: `ceph --version` would start Python.
func versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ceph-version", Short: "Report the image's Ceph version as the termination message", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := run.Exec{}.Run(cmd.Context(), "ceph-mon", "--version")
			if err != nil {
				return fmt.Errorf("asking for the Ceph version: %w", err)
			}
			if _, err := cmd.OutOrStdout().Write(out); err != nil {
				return err
			}
			if err := os.WriteFile(terminationLog, out, 0o644); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("writing the termination message: %w", err)
			}
			return nil
		},
	}
}

// probeTimeout bounds a daemon's answer; the kubelet waits longer.
const probeTimeout = 4 * time.Second

// probe answers the command line that all pods have, "probe TYPE ID", without anything
// being set up for it: a node runs it every few seconds for each daemon, and the tree of
// commands alone would cost as much as the question. ok is false for any other.
func probe(args []string) (ok bool, err error) {
	if len(args) != 3 || args[0] != "probe" || strings.HasPrefix(args[1], "-") || strings.HasPrefix(args[2], "-") {
		return false, nil
	}
	return true, asok.Probe(args[1], args[2], probeTimeout)
}

// probeCmd is the same with another bound, and for the help.
func probeCmd() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "probe TYPE ID", Short: "Check that a daemon answers on its admin socket", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return asok.Probe(args[0], args[1], timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", probeTimeout, "bound for the answer")
	return cmd
}

// chownCmd gives directories to Ceph's user, whose number differs from image to
// image, and then becomes the command after "--", where there is one.
func chownCmd() *cobra.Command {
	return &cobra.Command{
		Use: "chown DIR... [-- COMMAND...]", Short: "Give directories to Ceph's user, made where missing", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, command := args, []string(nil)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				dirs, command = args[:dash], args[dash:]
			}
			uid, gid, err := cephUser()
			if err != nil {
				return err
			}
			if err := ownDirs(uid, gid, dirs); err != nil {
				return err
			}
			if len(command) == 0 {
				return nil
			}
			return become(command)
		},
	}
}

// ownDirs makes directories where they are missing and gives them to a user.
func ownDirs(uid, gid int, dirs []string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
		if err := chownTree(dir, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// become replaces this process by a program of the image.
func become(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("finding %s: %w", command[0], err)
	}
	if err := syscall.Exec(path, command, os.Environ()); err != nil { //nolint:gosec // fixed by the pod's spec, no shell
		return fmt.Errorf("starting %s: %w", path, err)
	}
	return nil
}

// chownTree touches only what has another owner: on a mon with a large store a
// blind walk would write every inode at every start. Daemons on the node share some
// of these directories and write to them while this runs as root: what has just
// gone is passed over, and no link leads out of dir.
func chownTree(dir string, uid, gid int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("giving %s to Ceph's user: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if err == nil && owner(info) != [2]int{uid, gid} {
			err = root.Lchown(p, uid, gid)
		}
		if p != "." && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("giving %s to Ceph's user: %w", dir, err)
	}
	return nil
}

// cephUser is the ceph user of this image: 167 in the upstream images, another
// number in distributions.
func cephUser() (uid, gid int, err error) {
	u, err := user.Lookup("ceph")
	if err != nil {
		return 0, 0, fmt.Errorf("finding Ceph's user in this image: %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, fmt.Errorf("finding Ceph's user in this image: uid %q", u.Uid)
	}
	if gid, err = strconv.Atoi(u.Gid); err != nil {
		return 0, 0, fmt.Errorf("finding Ceph's user in this image: gid %q", u.Gid)
	}
	return uid, gid, nil
}

// have reports whether a program is in the image.
func have(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}
