package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/guest"
	"github.com/castellan-storage/castellan/lab/guest/guesttest"
	"github.com/castellan-storage/castellan/lab/network"
)

const gib = guesttest.GiB

func options(t *testing.T) guest.Options {
	t.Helper()
	return guesttest.Options(t, guest.Options{Name: "smoke", FastLUKS: true})
}

func TestSmoke(t *testing.T) {
	o := options(t)
	o.Disks = []guest.DiskOptions{{Size: gib, Serial: "FIRST"}, {Size: gib}}
	g := guesttest.Start(t, o)
	info, err := g.Info(t.Context())
	if err != nil || len(info.MissingModules) > 0 || info.Hostname != "smoke" {
		t.Errorf("info %+v, %v", info, err)
	}

	if _, err := guest.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "up already") {
		t.Errorf("a second Start: %v", err)
	}
	res, err := g.Exec(t.Context(), "ls", "/no/such/file")
	if err != nil || res.ExitCode != 2 || res.Stdout != "" || !strings.Contains(res.Stderr, "No such file") {
		t.Errorf("ls: %+v, %v", res, err)
	}

	first := guest.Disk{Name: "ubdb", Slot: 1, Serial: "FIRST"}
	if got := strings.TrimSpace(guesttest.Must(t, g, "readlink", "-f", first.ByID(), first.ByPath())); got != "/dev/ubdb\n/dev/ubdb" {
		t.Errorf("the links of %s lead to %q", first.Serial, got)
	}
	if got := guesttest.Must(t, g, "udevadm", "info", "-q", "property", "/dev/ubdb"); !strings.Contains(got, "ID_SERIAL=UBD_FIRST\n") ||
		!strings.Contains(got, "ID_PATH=platform-uml-blkdev.1\n") {
		t.Errorf("udev says:\n%s", got)
	}

	// A logical volume with dm-crypt on it, with data that survives a pull and
	// a plug into another slot.
	guesttest.Must(t, g, "pvcreate", "/dev/ubdb")
	guesttest.Must(t, g, "vgcreate", "vg", "/dev/ubdb")
	guesttest.Must(t, g, "lvcreate", "--yes", "-L", "100M", "-n", "lv", "vg")
	if err := g.Put(t.Context(), "/run/key", 0o600, strings.NewReader("0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	guesttest.Must(t, g, "cryptsetup", "--batch-mode", "luksFormat", "--key-file", "/run/key", "/dev/vg/lv")
	t.Logf("luksFormat took %.1f s", time.Since(began).Seconds())
	guesttest.Must(t, g, "cryptsetup", "open", "--key-file", "/run/key", "/dev/vg/lv", "secret")
	content := bytes.Repeat([]byte("castellan"), 100_000)
	write := func(to string) guest.Result {
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
	if got := guesttest.Must(t, g, "ls", "/dev/disk/by-id"); strings.Contains(got, "FIRST") {
		t.Errorf("udev still knows the pulled disk: %s", got)
	}
	guesttest.Must(t, g, "dmsetup", "remove", "secret")
	guesttest.Must(t, g, "dmsetup", "remove", "vg-lv")
	back, err := g.PlugDisk(t.Context(), pulled.Serial, 9)
	if err != nil || back.Name != "ubdj" {
		t.Fatalf("plugging it again: %+v, %v", back, err)
	}
	guesttest.Must(t, g, "vgchange", "-ay", "vg")
	guesttest.Must(t, g, "cryptsetup", "open", "--key-file", "/run/key", "/dev/vg/lv", "secret")
	var got bytes.Buffer
	if err := g.Get(t.Context(), "/dev/mapper/secret", &got); err != nil || !bytes.HasPrefix(got.Bytes(), content) {
		t.Errorf("the data did not survive: %v, %d bytes", err, got.Len())
	}

	// A disk that a process or a mount holds stays, and the error says why.
	guesttest.Must(t, g, "mkfs.xfs", "-f", "/dev/ubdc")
	guesttest.Must(t, g, "mount", "/dev/ubdc", "/mnt")
	if _, err := g.PullDisk(t.Context(), "/dev/ubdc"); err == nil || !strings.Contains(err.Error(), "mounted on /mnt") {
		t.Errorf("pulling a mounted disk: %v", err)
	}
	guesttest.Must(t, g, "umount", "/mnt")

	again, err := guest.Open("smoke")
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
// nothing but files, which guest.Down removes, twice.
func TestSmokeCrash(t *testing.T) {
	o := options(t)
	g := guesttest.Start(t, o)
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
	if _, err := guest.Open("smoke"); err == nil || !strings.Contains(err.Error(), "crashed") {
		t.Errorf("guest.Open of a crashed guest: %v", err)
	}
	for range 2 {
		if err := guest.Down(t.Context(), "smoke"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv(state.EnvRoot), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := guest.Open("smoke"); !errors.Is(err, guest.ErrNotUp) {
		t.Errorf("Open: %v", err)
	}
}

// TestSmokeCancelled: who gives up on a boot finds nothing of it.
func TestSmokeCancelled(t *testing.T) {
	o := options(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := guest.Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
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
	o.Join = &guest.Join{Lab: "l", Pid: lab, Bridge: network.Bridge, Gateway: netip.MustParsePrefix(network.ControlIP + "/24")}
	o.Memory = 512 << 20
	one := guesttest.Start(t, o)
	o.Name = "smoke2"
	two := guesttest.Start(t, o)
	if one.Address() == two.Address() {
		t.Fatalf("both guests have the address %s", one.Address())
	}
	for _, to := range []string{two.Address().Addr().String(), one.Gateway().String()} {
		guesttest.Must(t, one, "ping", "-c", "1", "-W", "5", to)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := taps(t, lab), []string{guest.TapName(two)}; !slices.Equal(got, want) {
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
	err := guest.InNewNetNS(func() error {
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
	err := guest.InNetNSOf(pid, func() error {
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
