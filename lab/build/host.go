package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/lab/command"
	"github.com/castellan-storage/castellan/lab/progress"
)

// labPackages are what running nodes needs on this machine; building their
// binaries installs them, so that "up" finds all there.
var labPackages = [...]string{"nftables", "iproute2", "util-linux"}

// goSpace is what Go's build cache and module cache grow by when Kubernetes is
// compiled for the first time.
const goSpace = 4 << 30

// preflight refuses what cannot work, and installs what is missing.
func preflight(ctx context.Context, cacheDir, source string, missing []*part, o Options) error {
	if os.Geteuid() != 0 && hasLane(missing, packages) {
		return errors.New("building needs root (it makes root file systems and installs packages): run it with sudo -E")
	}
	if err := checkSpace(cacheDir, missing); err != nil {
		return err
	}
	if hasLane(missing, compiler) {
		if err := checkGo(ctx, source, missing); err != nil {
			return err
		}
	}
	return installPackages(ctx, missing, o)
}

func hasLane(parts []*part, l lane) bool {
	for _, p := range parts {
		if p.lane == l {
			return true
		}
	}
	return false
}

// volume is a file system that something is written to.
type volume struct {
	what string // what is there, for a person
	path string
	need int64
}

// checkSpace refuses to start what would fill a disk.
func checkSpace(cacheDir string, missing []*part) error {
	need := int64(200 << 20)
	compiles := false
	for _, p := range missing {
		need += p.space
		compiles = compiles || p.name == partKubernetes
	}
	vols := []volume{{"the lab's cache", cacheDir, need}}
	if compiles {
		if d, err := os.UserCacheDir(); err == nil {
			vols = append(vols, volume{"Go's caches", filepath.Join(d, "go-build"), goSpace})
		}
	}
	return fits(vols, freeSpace)
}

// fits sums the needs of each file system.
func fits(vols []volume, free func(path string) (id uint64, bytes int64, err error)) error {
	type sum struct {
		need, have int64
		what       []string
		path       string
	}
	sums := map[uint64]*sum{}
	var order []uint64
	for _, v := range vols {
		id, have, err := free(v.path)
		if err != nil {
			return fmt.Errorf("measuring the free space for %s: %w", v.what, err)
		}
		s := sums[id]
		if s == nil {
			s = &sum{have: have, path: v.path}
			sums[id] = s
			order = append(order, id)
		}
		s.need += v.need
		s.what = append(s.what, v.what)
	}
	for _, id := range order {
		if s := sums[id]; s.have < s.need {
			return fmt.Errorf("too little disk for %s: building needs %s at %s and %s are free (CASTELLAN_LAB_CACHE and GOCACHE move it)",
				strings.Join(s.what, " and "), progress.Bytes(s.need), s.path, progress.Bytes(s.have))
		}
	}
	return nil
}

// freeSpace measures where path is or will be.
func freeSpace(path string) (id uint64, bytes int64, err error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			var s unix.Stat_t
			if err := unix.Stat(path, &s); err != nil {
				return 0, 0, err
			}
			return s.Dev, int64(st.Bavail) * st.Bsize, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return 0, 0, err
		}
		path = filepath.Dir(path)
	}
}

// goCommand is the go program: of PATH, or where Go's own archive installs it,
// which sudo's PATH often lacks.
func goCommand() string {
	if _, err := exec.LookPath("go"); err != nil {
		const usual = "/usr/local/go/bin/go"
		if _, err := os.Stat(usual); err == nil {
			return usual
		}
	}
	return "go"
}

// checkGo finds out whether the modules can be compiled: each names the version
// of Go it needs, and go itself refuses, or gets a newer toolchain.
func checkGo(ctx context.Context, source string, missing []*part) error {
	if _, err := exec.LookPath(goCommand()); err != nil {
		return errors.New("go was not found: install Go 1.26 or newer (https://go.dev/dl) and put it into the PATH")
	}
	for _, p := range missing {
		dir := filepath.Join(source, "modules", p.name)
		if p.lane != compiler || p.name == partBin {
			continue
		}
		_, err := command.Output(ctx, command.Cmd{Args: []string{goCommand(), "list", "-m"}, Dir: dir, Env: []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}})
		if err != nil {
			return fmt.Errorf("this Go cannot build %s (Go 1.26.8 or newer is needed): %w", p.name, err)
		}
	}
	return nil
}

// installPackages installs the Debian packages that are missing, or refuses to.
func installPackages(ctx context.Context, missing []*part, o Options) error {
	want := map[string]bool{}
	for _, pt := range missing {
		for _, p := range pt.host {
			want[p] = true
		}
	}
	if len(want) == 0 {
		return nil
	}
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return errors.New("this machine has no dpkg: the lab is built on Debian 12 or newer, or on a derivative of it")
	}
	var absent []string
	for p := range want {
		ok, err := installed(ctx, p)
		if err != nil {
			return err
		}
		if !ok {
			absent = append(absent, p)
		}
	}
	sort.Strings(absent)
	if len(absent) == 0 {
		return nil
	}
	if o.NoInstall || os.Geteuid() != 0 {
		return fmt.Errorf("missing Debian packages, as root run: apt-get install --no-install-recommends %s", strings.Join(absent, " "))
	}
	say(o.Out, "Installing the Debian packages %s.\n", strings.Join(absent, ", "))
	return aptInstall(ctx, absent)
}

// installed asks dpkg. A package that it does not know is not installed.
func installed(ctx context.Context, name string) (bool, error) {
	out, err := command.Output(ctx, command.Cmd{Args: []string{"dpkg-query", "-W", "-f", "${db:Status-Status}\n", name}})
	var exit *exec.ExitError
	switch {
	case err == nil:
		return strings.Contains(out, "installed") && !strings.Contains(out, "not-installed"), nil
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return false, nil
	default:
		return false, fmt.Errorf("asking dpkg for %s: %w", name, err)
	}
}

// aptInstall installs, with fresh package lists when those at hand do not do.
func aptInstall(ctx context.Context, names []string) error {
	apt := func(args ...string) error {
		return command.Run(ctx, command.Cmd{
			Args: append([]string{"apt-get", "-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, args...),
			Env:  []string{"DEBIAN_FRONTEND=noninteractive"}, Log: io.Discard,
		})
	}
	install := append([]string{"install"}, names...)
	if err := apt(install...); err == nil {
		return nil
	}
	// A source that is of no use here must not keep the others from working, so
	// only the installation decides.
	updateErr := apt("update")
	if err := apt(install...); err != nil {
		return fmt.Errorf("installing %s: %w", strings.Join(names, " "), explain(errors.Join(err, updateErr)))
	}
	return nil
}
