package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/vishvananda/netlink"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/network"
)

// envSmoke turns these tests on: they boot real guests, which takes minutes
// and most of a core.
const envSmoke = "CASTELLAN_LAB_SMOKE"

const gib = 1 << 30

func options(t *testing.T) Options {
	t.Helper()
	if os.Getenv(envSmoke) == "" {
		t.Skipf("boots a real guest: set %s=1 to run it", envSmoke)
	}
	if os.Geteuid() != 0 {
		t.Skip("boots a real guest: needs root")
	}
	o, err := Built(t.Context(), Options{Name: "smoke", Memory: 3 * gib, FastLUKS: true})
	var missing *build.NotBuiltError
	if errors.As(err, &missing) {
		t.Skipf("boots a real guest: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(state.EnvRoot, shortDir(t))
	return o
}

// shortDir is a temporary directory whose path is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func bootGuest(t *testing.T, o Options) *Guest {
	t.Helper()
	began := time.Now()
	g, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if b, err := os.ReadFile(g.ConsolePath()); err == nil {
				t.Logf("the guest's console:\n%s", b)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("booted in %.1f s", time.Since(began).Seconds())
	return g
}

// must runs a command in the guest and fails the test unless it exits with 0.
func must(t *testing.T, g *Guest, argv ...string) string {
	t.Helper()
	res, err := g.Exec(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("%v: exit code %d\n%s%s", argv, res.ExitCode, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

func TestSmoke(t *testing.T) {
	o := options(t)
	o.Disks = []DiskOptions{{Size: gib, Serial: "FIRST"}, {Size: gib}}
	g := bootGuest(t, o)
	info, err := g.Info(t.Context())
	if err != nil || len(info.MissingModules) > 0 || info.Hostname != "smoke" {
		t.Errorf("info %+v, %v", info, err)
	}

	if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "up already") {
		t.Errorf("a second Start: %v", err)
	}
	res, err := g.Exec(t.Context(), "ls", "/no/such/file")
	if err != nil || res.ExitCode != 2 || res.Stdout != "" || !strings.Contains(res.Stderr, "No such file") {
		t.Errorf("ls: %+v, %v", res, err)
	}

	first := Disk{Name: "ubdb", Slot: 1, Serial: "FIRST"}
	if got := strings.TrimSpace(must(t, g, "readlink", "-f", first.ByID(), first.ByPath())); got != "/dev/ubdb\n/dev/ubdb" {
		t.Errorf("the links of %s lead to %q", first.Serial, got)
	}
	if got := must(t, g, "udevadm", "info", "-q", "property", "/dev/ubdb"); !strings.Contains(got, "ID_SERIAL=UBD_FIRST\n") ||
		!strings.Contains(got, "ID_PATH=platform-uml-blkdev.1\n") {
		t.Errorf("udev says:\n%s", got)
	}

	// A logical volume with dm-crypt on it, with data that survives a pull and
	// a plug into another slot.
	must(t, g, "pvcreate", "/dev/ubdb")
	must(t, g, "vgcreate", "vg", "/dev/ubdb")
	must(t, g, "lvcreate", "--yes", "-L", "100M", "-n", "lv", "vg")
	if err := g.Put(t.Context(), "/run/key", 0o600, strings.NewReader("0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	must(t, g, "cryptsetup", "--batch-mode", "luksFormat", "--key-file", "/run/key", "/dev/vg/lv")
	t.Logf("luksFormat took %.1f s", time.Since(began).Seconds())
	must(t, g, "cryptsetup", "open", "--key-file", "/run/key", "/dev/vg/lv", "secret")
	content := bytes.Repeat([]byte("castellan"), 100_000)
	write := func(to string) Result {
		t.Helper()
		res, err := g.ExecInput(t.Context(), bytes.NewReader(content), "dd", "of="+to, "bs=64k", "iflag=fullblock", "oflag=direct,sync", "conv=notrunc")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	content = append(content, make([]byte, 65536-len(content)%65536)...)
	if res := write("/dev/mapper/secret"); res.ExitCode != 0 {
		t.Fatalf("writing: %s", res.Stderr)
	}

	pulled, err := g.PullDisk(t.Context(), "FIRST")
	if err != nil {
		t.Fatal(err)
	}
	if res := write("/dev/mapper/secret"); res.ExitCode == 0 {
		t.Error("writing to a pulled disk succeeded")
	}
	if got := must(t, g, "ls", "/dev/disk/by-id"); strings.Contains(got, "FIRST") {
		t.Errorf("udev still knows the pulled disk: %s", got)
	}
	must(t, g, "dmsetup", "remove", "secret")
	must(t, g, "dmsetup", "remove", "vg-lv")
	back, err := g.PlugDisk(t.Context(), pulled.Serial, 9)
	if err != nil || back.Name != "ubdj" {
		t.Fatalf("plugging it again: %+v, %v", back, err)
	}
	must(t, g, "vgchange", "-ay", "vg")
	must(t, g, "cryptsetup", "open", "--key-file", "/run/key", "/dev/vg/lv", "secret")
	var got bytes.Buffer
	if err := g.Get(t.Context(), "/dev/mapper/secret", &got); err != nil || !bytes.HasPrefix(got.Bytes(), content) {
		t.Errorf("the data did not survive: %v, %d bytes", err, got.Len())
	}

	// A disk that a process or a mount holds stays, and the error says why.
	must(t, g, "mkfs.xfs", "-f", "/dev/ubdc")
	must(t, g, "mount", "/dev/ubdc", "/mnt")
	if _, err := g.PullDisk(t.Context(), "/dev/ubdc"); err == nil || !strings.Contains(err.Error(), "mounted on /mnt") {
		t.Errorf("pulling a mounted disk: %v", err)
	}
	must(t, g, "umount", "/mnt")

	again, err := Open("smoke")
	if err != nil {
		t.Fatal(err)
	}
	added, err := again.AddDisk(t.Context(), gib, "LATE")
	if err != nil || added.Slot != 1 {
		t.Errorf("adding a disk: %+v, %v", added, err)
	}
	if _, err := again.AddDisk(t.Context(), gib, "LATE"); err == nil {
		t.Error("two disks got one serial number")
	}
	disks, err := g.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var brief []string
	for _, d := range disks {
		if d.Serial == "FIRST" || d.Serial == "LATE" {
			brief = append(brief, fmt.Sprintf("%d %s %v", d.Slot, d.Serial, d.Holders))
		}
	}
	if want := "1 LATE [], 9 FIRST [device-mapper vg-lv]"; strings.Join(brief, ", ") != want {
		t.Errorf("disks %v", brief)
	}
}

// TestSmokeCrash: a guest that was killed is reported as such, and leaves
// nothing but files, which Down removes, twice.
func TestSmokeCrash(t *testing.T) {
	o := options(t)
	g := bootGuest(t, o)
	proc, err := os.FindProcess(g.Pid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	running := make(chan error, 1)
	go func() {
		_, err := g.Exec(ctx, "sleep", "600")
		running <- err
	}()
	if err := proc.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-running; err == nil {
		t.Error("a command in a killed guest has an exit code")
	}
	if _, err := Open("smoke"); err == nil || !strings.Contains(err.Error(), "crashed") {
		t.Errorf("Open of a crashed guest: %v", err)
	}
	for range 2 {
		if err := Down(t.Context(), "smoke"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv(state.EnvRoot), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := Open("smoke"); !errors.Is(err, ErrNotUp) {
		t.Errorf("Open: %v", err)
	}
}

// TestSmokeCancelled: who gives up on a boot finds nothing of it.
func TestSmokeCancelled(t *testing.T) {
	o := options(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv(state.EnvRoot), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestSmokeJoin puts two guests onto one bridge, as a lab has it, where they
// reach each other and its gateway.
func TestSmokeJoin(t *testing.T) {
	o := options(t)
	lab := labNetwork(t)
	o.Join = &Join{Lab: "l", Pid: lab, Bridge: network.Bridge, Gateway: netip.MustParsePrefix(network.ControlIP + "/24")}
	o.Memory = 512 << 20
	one := bootGuest(t, o)
	o.Name = "smoke2"
	two := bootGuest(t, o)
	if one.Address() == two.Address() {
		t.Fatalf("both guests have the address %s", one.Address())
	}
	for _, to := range []string{two.Address().Addr().String(), one.Gateway().String()} {
		must(t, one, "ping", "-c", "1", "-W", "5", to)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := taps(t, lab), []string{tapName(two.rec)}; !slices.Equal(got, want) {
		t.Errorf("tap devices %v, want %v", got, want)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	if got := taps(t, lab); len(got) > 0 {
		t.Errorf("tap devices left in the lab's network: %v", got)
	}
}

// labNetwork is a process in a network namespace with a lab's bridge.
func labNetwork(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	err := inNetNS(newNetNS, func() error {
		if err := network.SetupBridge(); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// taps are the guests' devices in the network namespace of a process.
func taps(t *testing.T, pid int) []string {
	t.Helper()
	var out []string
	err := inNetNS(netNSOf(pid), func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "guest") {
				out = append(out, l.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
