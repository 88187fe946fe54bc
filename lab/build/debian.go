package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/castellan-storage/castellan/lab/command"
	"github.com/castellan-storage/castellan/lab/image"
)

// The Debian suite that packages Ceph 20, and the version that it must give.
const (
	suite       = "forky"
	versionCeph = "20.2.4"
)

// What is found in the entries of the parts made from packages.
const (
	cephRoot    = "root"
	cephDebs    = "debs"
	guestRoot   = "rootfs"
	guestKernel = "linux"
)

// cephPackages is what the Ceph image holds: the daemons and tools that an
// operator runs, what ceph-volume and a CSI node plugin call, and what a log
// sidecar and a person at a shell need. The storage guest runs from the same
// root, so that there is one download.
var cephPackages = [...]string{
	"ceph-mon", "ceph-mgr", "ceph-mgr-modules-core", "ceph-osd", "ceph-volume", "ceph-mds", "radosgw",
	"ceph-common", "ceph-fuse", "rbd-nbd", "rbd-mirror", "cephfs-mirror",
	"nfs-ganesha", "nfs-ganesha-ceph", "nfs-ganesha-rgw", "nfs-ganesha-rados-grace",
	"lvm2", "cryptsetup-bin", "udev", "kmod", "gdisk", "e2fsprogs", "xfsprogs",
	"procps", "iproute2", "iputils-ping", "ca-certificates", "openssl", "curl", "jq", "logrotate",
}

// Packages whose files are wanted outside of the Ceph root: the guest's kernel
// and the applets of the test image.
var extraPackages = [...]string{"user-mode-linux", "busybox"}

var (
	aptOptions = [...]string{
		// The suite is a moving one: its Release file is at times past its date.
		`Acquire::Check-Valid-Until "false"`,
		`APT::Install-Recommends "false"`,
		`Acquire::Languages "none"`,
		`Acquire::Retries "3"`,
	}
	dpkgOptions = [...]string{
		"path-exclude=/usr/share/doc/*", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*",
		"path-exclude=/usr/share/locale/*",
		"force-unsafe-io", // no fsync for each file: an interrupted build is thrown away
	}
)

// systemPath keeps Debian's tools to Debian's interpreters: another Python in
// front of the path makes mmdebstrap's filters slow or fail.
const systemPath = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

// cephRecipe counts the changes of finishCeph: raise it when they change.
const cephRecipe = "patches 2"

func cephPart() *part {
	recipe := append([]string{suite, versionCeph, cephRecipe}, cephPackages[:]...)
	recipe = append(append(append(recipe, "extra"), extraPackages[:]...), "options")
	recipe = append(append(recipe, aptOptions[:]...), dpkgOptions[:]...)
	return &part{
		name: partCeph, title: "Ceph " + versionCeph + " root (Debian " + suite + ")", lane: packages,
		recipe: recipe, space: 1600 << 20,
		host: []string{"mmdebstrap", "debian-archive-keyring"},
		make: makeCeph,
	}
}

func makeCeph(ctx context.Context, j *job) error {
	root, debs := filepath.Join(j.dir, cephRoot), filepath.Join(j.dir, cephDebs)
	if err := os.Mkdir(debs, 0o755); err != nil {
		return err
	}
	args := []string{"mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"}
	for _, o := range aptOptions {
		args = append(args, "--aptopt="+o)
	}
	for _, o := range dpkgOptions {
		args = append(args, "--dpkgopt="+o)
	}
	args = append(args,
		// mmdebstrap's own apt configuration is the one that knows the suite.
		`--customize-hook=cd "$LAB_DEBS" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download `+strings.Join(extraPackages[:], " "),
		"--include="+strings.Join(cephPackages[:], ","), suite, root)
	err := command.Run(ctx, command.Cmd{
		Args: args, Env: []string{systemPath, "LAB_DEBS=" + debs}, Log: j.log, Contained: true,
		Line: func(s string) {
			if s, ok := strings.CutPrefix(s, "I: "); ok {
				j.note(s)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("installing Debian %s: %w", suite, err)
	}
	return finishCeph(ctx, j, root)
}

// finishCeph checks what was installed and changes what the lab needs changed.
func finishCeph(ctx context.Context, j *job, root string) error {
	v, err := command.Output(ctx, command.Cmd{
		Args: []string{"dpkg-query", "--admindir=" + filepath.Join(root, "var/lib/dpkg"), "-W", "-f", "${Version}", "ceph-mon"}, Log: j.log,
	})
	if err != nil {
		return fmt.Errorf("reading the version of Ceph: %w", err)
	}
	if !strings.HasPrefix(v, versionCeph+"+") && !strings.HasPrefix(v, versionCeph+"-") {
		return fmt.Errorf("the Debian suite %s now has Ceph %s, this lab is written for %s: the version is a constant of lab/build", suite, v, versionCeph)
	}
	if err := patchMgrModule(filepath.Join(root, mgrModule)); err != nil {
		return err
	}
	// Otherwise every mgr compiles it when it starts, and does not keep it.
	err = command.Run(ctx, command.Cmd{
		Args: []string{"chroot", root, "python3", "-m", "compileall", "-q", "/usr/share/ceph/mgr"}, Log: j.log,
	})
	if err != nil {
		return fmt.Errorf("compiling the mgr's Python modules: %w", err)
	}
	return cleanRoot(root)
}

// cleanRoot removes what packages leave for a machine and a container or guest
// must not share. Directories for logs stay: they have their owners.
func cleanRoot(root string) error {
	if err := removeFiles(filepath.Join(root, "var/log")); err != nil {
		return err
	}
	for _, pattern := range []string{"var/cache/apt/*", "var/lib/apt/lists/*", "dev/*", "run/*", "tmp/*", "etc/machine-id", "etc/hostname", "etc/resolv.conf", "var/cache/debconf/*-old", "var/lib/dpkg/*-old"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, p := range paths {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeFiles(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Remove(p)
	})
}

const mgrModule = "usr/share/ceph/mgr/mgr_module.py"

// patchMgrModule gives the base class of mgr modules an empty list of
// notifications. With Python 3.14 a module without one of its own is counted as
// crashed, and the warning about it keeps a cluster from HEALTH_OK for two
// weeks. Only the lab's image has this defect and this change.
func patchMgrModule(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("patching the mgr: %w", err)
	}
	patched, err := addNotifyTypes(b)
	if err != nil {
		return fmt.Errorf("patching %s: %w", mgrModule, err)
	}
	if err := os.WriteFile(path, patched, 0o644); err != nil {
		return fmt.Errorf("patching the mgr: %w", err)
	}
	return nil
}

func addNotifyTypes(src []byte) ([]byte, error) {
	const head = "\nclass MgrModule("
	i := bytes.Index(src, []byte(head))
	if i < 0 || bytes.Contains(src[i+1:], []byte(head)) {
		return nil, errors.New("the class MgrModule is not there exactly once: Ceph has changed")
	}
	end := bytes.IndexByte(src[i+1:], '\n')
	if end < 0 || !bytes.HasSuffix(src[i+1:i+1+end], []byte("):")) {
		return nil, errors.New("the class MgrModule does not open on one line: Ceph has changed")
	}
	at := i + 1 + end + 1
	return append(append(append([]byte{}, src[:at]...), "    NOTIFY_TYPES = []\n"...), src[at:]...), nil
}

func guestPart() *part {
	return &part{
		name: partGuest, title: "storage guest (User Mode Linux, Debian " + suite + ")", lane: packages,
		recipe: []string{"guest 1"}, needs: []string{partCeph}, space: 300 << 20,
		host: []string{"patchelf"},
		make: makeGuest,
	}
}

// makeGuest puts the guest's kernel modules into a copy of the Ceph root that is
// all hard links, and makes its kernel run on this machine.
func makeGuest(ctx context.Context, j *job) error {
	root := filepath.Join(j.dir, guestRoot)
	j.note("linking the root file system")
	if err := image.LinkTree(filepath.Join(j.deps[partCeph], cephRoot), root, nil); err != nil {
		return err
	}
	deb, err := oneFile(filepath.Join(j.deps[partCeph], cephDebs, "user-mode-linux_*.deb"))
	if err != nil {
		return err
	}
	j.note("unpacking the kernel")
	unpacked := filepath.Join(j.dir, "deb")
	if err := command.Run(ctx, command.Cmd{Args: []string{"dpkg-deb", "-x", deb, unpacked}, Log: j.log}); err != nil {
		return fmt.Errorf("unpacking the guest's kernel: %w", err)
	}
	if err := placeModules(j, unpacked, root); err != nil {
		return err
	}
	kernel := filepath.Join(j.dir, guestKernel)
	if err := os.Rename(filepath.Join(unpacked, "usr/bin/linux.uml"), kernel); err != nil {
		return fmt.Errorf("taking the guest's kernel: %w", err)
	}
	if err := os.RemoveAll(unpacked); err != nil {
		return err
	}
	return relocate(ctx, j, kernel, filepath.Join(j.final, guestRoot))
}

// placeModules puts the kernel's modules where modprobe looks.
func placeModules(j *job, unpacked, root string) error {
	dir, err := oneFile(filepath.Join(unpacked, "usr/lib/uml/modules/*"))
	if err != nil {
		return err
	}
	release := filepath.Base(dir)
	mods := filepath.Join(root, "usr/lib/modules")
	if err := os.MkdirAll(mods, 0o755); err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(mods, release)); err != nil {
		return fmt.Errorf("placing the guest's kernel modules: %w", err)
	}
	return os.WriteFile(filepath.Join(j.dir, "release"), []byte(release+"\n"), 0o644)
}

// relocate makes a program of the suite run on a machine with an older C
// library, with the loader and the libraries of root.
func relocate(ctx context.Context, j *job, program, root string) error {
	err := command.Run(ctx, command.Cmd{Log: j.log, Args: []string{
		"patchelf",
		"--set-interpreter", filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"),
		"--set-rpath", filepath.Join(root, "usr/lib/x86_64-linux-gnu"), program,
	}})
	if err != nil {
		return fmt.Errorf("making the guest's kernel run here: %w", err)
	}
	return nil
}

// oneFile returns the only path that matches.
func oneFile(pattern string) (string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(paths) != 1 {
		return "", fmt.Errorf("%d files match %s where there should be one: %w", len(paths), pattern, fs.ErrNotExist)
	}
	return paths[0], nil
}
