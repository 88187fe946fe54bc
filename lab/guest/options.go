package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
)

// DefaultName is the guest that is meant when none is named.
const DefaultName = "guest"

// DefaultMemory suits a mon, a mgr and a handful of OSDs. The machine gives
// only what the guest has touched.
const DefaultMemory = 3 << 30

// minMemory is what the kernel, udev and the agent need with some room.
const minMemory = 256 << 20

// MaxDisks is how many disks a guest can have at a time: the kernel's ubd
// driver has 16 slots, and the first is left free because the kernel opens it
// as its root disk.
const MaxDisks = 15

// Options of a new guest.
type Options struct {
	// Name tells guests of one machine apart; DefaultName when empty.
	Name string
	// Memory in bytes; DefaultMemory when 0.
	Memory int64
	// Rootfs is the directory of the root file system, Kernel the User Mode
	// Linux program, Agent the statically linked castellan-guest-agent.
	Rootfs, Kernel, Agent string
	// Modules to load at boot; DefaultModules() when nil.
	Modules []string
	// FastLUKS makes luksFormat derive its keys cheaply, which suits tests
	// and nothing else.
	FastLUKS bool
	// Disks are plugged after the boot.
	Disks []DiskOptions
	// Join, when not nil, puts the guest onto the network of a lab. Otherwise
	// it gets a network of its own.
	Join *Join
}

// Join says where in a lab's network a guest goes.
type Join struct {
	// Lab is its name, for messages.
	Lab string
	// Pid is a process in the lab's network namespace.
	Pid int
	// Bridge there gets the guest's tap device.
	Bridge string
	// Gateway is the bridge's address with the length of its prefix. The guest
	// gets one of the highest addresses of that network.
	Gateway netip.Prefix
}

// DiskOptions describe a disk to plug.
type DiskOptions struct {
	// Size in bytes. The file behind the disk is sparse.
	Size int64
	// Serial number; a random one when empty.
	Serial string
	// Slot from 1 to MaxDisks; the lowest free one when 0.
	Slot int
}

// DefaultModules are what a storage node's work needs.
func DefaultModules() []string {
	return []string{"dm-mod", "dm-crypt", "dm-snapshot", "loop", "rbd", "ceph", "xfs"}
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Modules == nil {
		o.Modules = DefaultModules()
	}
	return o
}

// check says in one line what is wrong with the options.
func (o Options) check() error {
	if err := CheckName(o.Name); err != nil {
		return err
	}
	if o.Memory < minMemory {
		return fmt.Errorf("%s of memory is too little: a guest needs %s",
			disk.FormatSize(o.Memory), disk.FormatSize(minMemory))
	}
	if len(o.Disks) > MaxDisks {
		return fmt.Errorf("%d disks: a guest has room for %d", len(o.Disks), MaxDisks)
	}
	for _, d := range o.Disks {
		if err := d.check(); err != nil {
			return err
		}
	}
	for _, f := range []struct{ what, path string }{
		{"kernel", o.Kernel}, {"root file system", o.Rootfs}, {"agent", o.Agent},
	} {
		_, err := os.Stat(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || f.path == "":
			return fmt.Errorf("the guest's %s is not there (%q): run castellan-lab build", f.what, f.path)
		case err != nil:
			return fmt.Errorf("looking for the guest's %s: %w", f.what, err)
		case strings.ContainsAny(f.path, " \t\n\""):
			return fmt.Errorf("the path of the guest's %s holds a blank, which a kernel command line cannot: %q", f.what, f.path)
		}
	}
	return nil
}

func (d DiskOptions) check() error {
	// A sector less and the kernel makes a disk that LVM refuses anyway.
	if d.Size < 1<<20 {
		return fmt.Errorf("a disk of %s is too small: at least 1Mi", disk.FormatSize(d.Size))
	}
	if d.Slot < 0 || d.Slot > MaxDisks {
		return fmt.Errorf("slot %d: slots are 1 to %d", d.Slot, MaxDisks)
	}
	if d.Serial != "" && !regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`).MatchString(d.Serial) {
		return fmt.Errorf("%q is no serial number: use 1 to 32 letters, digits, underscores and hyphens", d.Serial)
	}
	return nil
}

// CheckName says in one line what is wrong with a guest's name. It is part of
// paths and the guest's host name.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[a-z][a-z0-9-]{0,19}$`).MatchString(name) {
		return fmt.Errorf("%q is no name for a guest: use 1 to 20 small letters, digits and hyphens, beginning with a letter", name)
	}
	return nil
}

// root is the directory that holds all guests. Its name cannot be a lab's.
func root() (string, error) {
	labs, err := state.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(labs, "guests.d"), nil
}

// directory is the guest's own.
func directory(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	r, err := root()
	if err != nil {
		return "", err
	}
	return filepath.Join(r, name), nil
}
