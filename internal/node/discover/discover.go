// Package discover tells the operator that a node's block devices have changed: it
// keeps the ConfigMap local-device-<node> as the node's devices are, and hears the
// kernel's events so as to do that at once.
//
// It reads /sys and udev's data only. It must not open a device: one that hangs
// would hang it, and it needs no privilege this way. It decides nothing about the
// devices; what is used for OSDs is chosen by those who look closely.
package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/internal/node/device"
)

// Disk is a block device in the form in which users know the ConfigMap.
type Disk struct {
	Name        string `json:"name"`
	Parent      string `json:"parent"`
	HasChildren bool   `json:"hasChildren"`
	DevLinks    string `json:"devLinks"`
	Size        uint64 `json:"size"`
	Serial      string `json:"serial"`
	Type        string `json:"type"`
	Rotational  bool   `json:"rotational"`
	ReadOnly    bool   `json:"readOnly"`
	Filesystem  string `json:"filesystem"`
	Vendor      string `json:"vendor"`
	Model       string `json:"model"`
	WWN         string `json:"wwn"`
	// Empty says that nothing is known to be on it: no partitions, no holder, no
	// signature. It is no promise.
	Empty      bool   `json:"empty"`
	RealPath   string `json:"real-path"`
	KernelName string `json:"kernel-name"`
}

// Filter leaves devices out by their kernel names.
type Filter struct {
	patterns []*regexp.Regexp
	loop     bool
}

// NewFilter reads patterns, separated by commas, of devices whose events and
// existence do not count. loop lets loop devices count.
func NewFilter(patterns string, loop bool) (Filter, error) {
	f := Filter{loop: loop}
	for _, p := range strings.Split(patterns, ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		re, err := regexp.Compile(p)
		if err != nil {
			return Filter{}, fmt.Errorf("reading the pattern %q: %w", p, err)
		}
		f.patterns = append(f.patterns, re)
	}
	return f, nil
}

// Counts says whether a device of that kernel name is of interest.
func (f Filter) Counts(name string) bool {
	// Not a disk of the node, or one that comes and goes without meaning anything.
	if device.Hangs(name) || device.Numbered(name, "ram", "fd", "sr") || !f.loop && strings.HasPrefix(name, "loop") {
		return false
	}
	return !slices.ContainsFunc(f.patterns, func(re *regexp.Regexp) bool { return re.MatchString(name) })
}

// List reads the node's devices below root ("/" but for tests), by name. A device
// that goes while it is read is left out.
func List(root string, f Filter) ([]Disk, error) {
	entries, err := os.ReadDir(filepath.Join(root, "sys/class/block"))
	if err != nil {
		return nil, fmt.Errorf("listing block devices: %w", err)
	}
	disks := []Disk{}
	for _, e := range entries {
		if !f.Counts(e.Name()) {
			continue
		}
		d, err := read(root, e.Name(), f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading about %s: %w", e.Name(), err)
		}
		if d.Size > 0 { // a drive without a medium, a loop device without a file
			disks = append(disks, d)
		}
	}
	return disks, nil
}

// read is what /sys and udev say of one device.
func read(root, name string, f Filter) (Disk, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "sys/class/block", name))
	if err != nil {
		return Disk{}, err
	}
	numbers, err := attribute(dir, "dev")
	if err != nil {
		return Disk{}, err
	}
	blocks, err := attribute(dir, "size")
	if err != nil {
		return Disk{}, err
	}
	size, err := strconv.ParseUint(blocks, 10, 64)
	if err != nil {
		return Disk{}, fmt.Errorf("its size %q is no number", blocks)
	}
	// Unknown attributes are empty: kinds of devices differ in what they have.
	text := func(of, file string) string { s, _ := attribute(of, file); return s }
	x := device.Device{Name: name, Path: "/dev/" + name, MajMin: numbers, Model: text(dir, "device/model"), Vendor: text(dir, "device/vendor"), Serial: text(dir, "device/serial"), WWN: text(dir, "wwid")}
	udev, err := os.ReadFile(filepath.Join(root, "run/udev/data", "b"+numbers)) //nolint:gosec // the numbers are the kernel's
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Disk{}, err
	}
	device.ApplyUdev(&x, udev)
	d := Disk{
		Name: name, KernelName: name, RealPath: x.Path, DevLinks: strings.Join(x.Links, " "), Size: size * 512, // always in sectors of 512 bytes
		Serial: x.Serial, Vendor: x.Vendor, Model: x.Model, WWN: x.WWN, Filesystem: x.FSType,
		ReadOnly: text(dir, "ro") == "1", Rotational: text(dir, "queue/rotational") == "1", Type: kind(dir, name),
	}
	if d.Type == "part" {
		d.Parent = filepath.Base(filepath.Dir(dir))
		d.Rotational = text(filepath.Dir(dir), "queue/rotational") == "1"
	}
	held, err := children(dir, f)
	if err != nil {
		return Disk{}, err
	}
	d.HasChildren = held
	d.Empty = !held && x.FSType == "" && x.PartTable == ""
	return d, nil
}

// attribute reads a file of /sys.
func attribute(dir, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a directory that the kernel lists
	return strings.TrimSpace(string(b)), err
}

// kind names the type of a device as lsblk does.
func kind(dir, name string) string {
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		return "part"
	}
	switch {
	case strings.HasPrefix(name, "loop"):
		return "loop"
	case strings.HasPrefix(name, "md"):
		return "raid"
	case strings.HasPrefix(name, "dm-"):
		uuid, _ := attribute(dir, "dm/uuid")
		switch prefix, _, _ := strings.Cut(uuid, "-"); prefix {
		case "LVM":
			return "lvm"
		case "CRYPT":
			return "crypt"
		case "mpath":
			return "mpath"
		}
		return "dm"
	}
	return "disk"
}

// children says whether a device has partitions, or another one lies on it. What
// does not count itself holds nothing either: a volume that is mapped on a disk
// belongs to what is on the disk, and comes and goes with a mount.
func children(dir string, f Filter) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "partition")); err == nil {
			return true, nil
		}
	}
	holders, err := os.ReadDir(filepath.Join(dir, "holders"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(holders, func(e fs.DirEntry) bool { return f.Counts(e.Name()) }), nil
}

// Debounce is how long the kernel's events must be quiet before the devices are
// read: udev adds its links after the event, and a disk comes with its partitions.
const Debounce = 5 * time.Second

// Daemon keeps the ConfigMap of a node.
type Daemon struct {
	List  func() ([]Disk, error)
	Store func(ctx context.Context, devices []byte) error
	// Interval after which the devices are read without an event.
	Interval time.Duration
	// Say gets a line for people.
	Say func(string)
}

// Run stores the devices at once, after events, and after each interval, until ctx
// ends. What is the same as before is stored again only after an interval, so that
// a ConfigMap that somebody has deleted comes back.
func (d Daemon) Run(ctx context.Context, events <-chan string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now() // when the next reading is due in any case
	var last []byte
	for {
		select {
		case <-ctx.Done():
			return
		case name, ok := <-events:
			if !ok {
				events = nil // the interval remains
				d.Say("the kernel's events have ended; devices are looked at every " + d.Interval.String())
				continue
			}
			d.Say("heard of " + name)
			timer.Reset(Debounce)
		case now := <-timer.C:
			forced := !now.Before(due)
			stored, err := d.pass(ctx, last, forced)
			wait := d.Interval
			if err != nil {
				d.Say(err.Error())
				wait = min(wait, time.Minute)
			} else {
				last = stored
			}
			if forced || err != nil {
				due = now.Add(wait)
			}
			timer.Reset(time.Until(due))
		}
	}
}

// pass reads the devices and stores them if they differ from last, or if forced.
func (d Daemon) pass(ctx context.Context, last []byte, forced bool) ([]byte, error) {
	disks, err := d.List()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(disks)
	if err != nil {
		return nil, fmt.Errorf("encoding the devices: %w", err)
	}
	same := string(b) == string(last)
	if same && !forced {
		return b, nil
	}
	if err := d.Store(ctx, b); err != nil {
		return nil, err
	}
	if !same {
		d.Say(fmt.Sprintf("stored %d devices", len(disks)))
	}
	return b, nil
}
