// Package choice decides, for every block device of a node, whether it becomes
// an OSD, and says why or why not. The answer for each device is what users
// read first: "why is my disk not used?".
//
// It is pure: devices and the user's selection in, verdicts out. It must not
// look at a device itself, and it must not assume that what it was not told is
// harmless: a device that ceph-volume has not called available is never used.
package choice

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// MinSize is the smallest device that ceph-volume accepts for BlueStore: 5 GiB.
const MinSize = 5 << 30

// Config is how an OSD on a device is made. The zero value is a plain raw OSD.
type Config struct {
	DeviceClass     string
	OSDsPerDevice   int // 0 and 1 are the same
	MetadataDevice  string
	DatabaseSizeMB  uint64 // 0 lets ceph-volume divide the metadata device
	Encrypted       bool
	InitialWeight   string
	PrimaryAffinity string
}

// Named is a device that the user named, by kernel name, path or link.
type Named struct {
	Ref    string
	Config Config
}

// Selection is what the user asked for on this node. Named devices win over
// Filter, Filter over PathFilter, PathFilter over UseAll.
type Selection struct {
	UseAll     bool
	Filter     *regexp.Regexp // on the kernel name
	PathFilter *regexp.Regexp // on every path and link of the device
	Named      []Named
	Config     Config
}

// Facts are what else bears on the choice.
type Facts struct {
	// FSID is this cluster's; a device with an OSD of another cluster is never
	// taken and is reported as such.
	FSID string
	// AllowLoop admits loop devices, for tests.
	AllowLoop bool
	// Reserved are devices held for a pending replacement, by path; the value
	// says for what ("osd.5").
	Reserved map[string]string
	// Pending are OSDs that wait for another disk; what package swap finds for them
	// is reserved before anything is chosen.
	Pending []swap.Pending
}

// Reason is a word for a verdict; it is stable and part of the device report.
type Reason string

// The reasons. Selected is the only one with Use set.
const (
	Selected      Reason = "Selected"
	InUse         Reason = "InUse"         // already an OSD of this cluster
	ForeignOSD    Reason = "ForeignOSD"    // an OSD of another cluster, or of one that could not be told
	NeverUsed     Reason = "NeverUsed"     // rbd, nbd, drbd, zram
	NoDeviceNode  Reason = "NoDeviceNode"  // the kernel lists it, the node has no /dev entry
	NotADisk      Reason = "NotADisk"      // ROM, or a type that holds no data of its own
	ReadOnly      Reason = "ReadOnly"      //
	Mounted       Reason = "Mounted"       //
	HasData       Reason = "HasData"       // signature or partition table
	HasHolders    Reason = "HasHolders"    // partitions, LVs or mappings on it
	TooSmall      Reason = "TooSmall"      //
	MetadataOnly  Reason = "MetadataOnly"  // named as metadataDevice
	Held          Reason = "Held"          // kept for a pending replacement
	NotSelected   Reason = "NotSelected"   // the spec does not select it
	MustBeNamed   Reason = "MustBeNamed"   // LVM and loop devices are used only by name
	Unavailable   Reason = "Unavailable"   // ceph-volume rejects it
	NotInspected  Reason = "NotInspected"  // ceph-volume has not said anything
	NoSuchDevice  Reason = "NoSuchDevice"  // named in the spec, not on the node
	NamedTwice    Reason = "NamedTwice"    // two entries of the spec name one device
	BeingReplaced Reason = "BeingReplaced" // ceph-volume's own mark
	NoMetadata    Reason = "NoMetadata"    // its metadataDevice is missing or cannot be used
)

// Verdict is the answer for one device, or for one name in the spec that no
// device answers to (then Device has only a Path).
type Verdict struct {
	Device  device.Device
	Use     bool
	Reason  Reason
	Message string
	// Config is set when Use is.
	Config Config
	// Ref is how the spec named the device, where it did.
	Ref string
}

// Choose returns a verdict for every device, in the order of devices, followed
// by one for each named device that does not exist.
func Choose(devices []device.Device, sel Selection, facts Facts) []Verdict {
	named, missing := resolve(devices, sel)
	meta := metadataDevices(devices, sel)
	given := map[string]string{}
	verdicts := make([]Verdict, 0, len(devices)+len(missing))
	for i, d := range devices {
		v := Verdict{Device: d, Config: sel.Config}
		if n, ok := named[i]; ok {
			v.Config, v.Ref = n.Config, n.Ref
		}
		switch why, bad := unusable(d, devices, facts); {
		case bad:
			v.Reason, v.Message = why.Reason, why.Message
		case meta[i]:
			v.Reason, v.Message = MetadataOnly, "named as metadataDevice, so it holds databases and no data"
		default:
			v.Reason, v.Message, v.Use = decide(d, v, sel, facts)
			if why, bad := metadataFor(v.Config, devices, facts, given); v.Use && bad {
				v.Use, v.Reason, v.Message = false, why.Reason, why.Message
			} else if i := device.Find(devices, v.Config.MetadataDevice); v.Use && i >= 0 && WrittenWhole(devices[i]) {
				given[devices[i].Name] = d.Path
			}
		}
		if !v.Use {
			v.Config = Config{}
		}
		verdicts = append(verdicts, v)
	}
	return append(verdicts, missing...)
}

// decide is the choice for a device that nothing rules out from the start.
func decide(d device.Device, v Verdict, sel Selection, facts Facts) (Reason, string, bool) {
	chosen, ok := selects(d, v.Ref, sel, facts)
	if !ok {
		return chosen.Reason, chosen.Message, false
	}
	if why, bad := notBlank(d); bad {
		return why.Reason, why.Message, false
	}
	return Selected, chosen.Message, true
}

type because struct {
	Reason  Reason
	Message string
}

// resolve maps the user's names to devices and reports names that fit none, or
// one that an earlier entry has taken.
func resolve(devices []device.Device, sel Selection) (map[int]Named, []Verdict) {
	named := map[int]Named{}
	var missing []Verdict
	for k, n := range sel.Named {
		i := device.Find(devices, n.Ref)
		if i < 0 {
			missing = append(missing, Verdict{
				Device: device.Device{Path: n.Ref}, Ref: n.Ref, Reason: NoSuchDevice,
				Message: fmt.Sprintf("devices[%d] names %q, which this node does not have", k, n.Ref),
			})
			continue
		}
		if prev, taken := named[i]; taken {
			missing = append(missing, Verdict{
				Device: device.Device{Path: n.Ref}, Ref: n.Ref, Reason: NamedTwice,
				Message: fmt.Sprintf("devices[%d] names %q, which is the same device as %q; the first entry counts", k, n.Ref, prev.Ref),
			})
			continue
		}
		named[i] = n
	}
	return named, missing
}

// metadataDevices are the devices that some configuration names for databases.
func metadataDevices(devices []device.Device, sel Selection) map[int]bool {
	refs := []string{sel.Config.MetadataDevice}
	for _, n := range sel.Named {
		refs = append(refs, n.Config.MetadataDevice)
	}
	meta := map[int]bool{}
	for _, r := range refs {
		if i := device.Find(devices, r); i >= 0 {
			meta[i] = true
		}
	}
	return meta
}

// unusable finds what rules a device out whatever the user selected.
func unusable(d device.Device, all []device.Device, facts Facts) (because, bool) {
	switch {
	case device.Hangs(d.Name):
		return because{NeverUsed, "network block devices and compressed memory are never used"}, true
	case !d.HasNode:
		return because{NoDeviceNode, "the kernel lists this device but the node has no device node for it"}, true
	case d.Type == device.ROM:
		return because{NotADisk, "it is a ROM drive"}, true
	}
	if len(d.OSDs) > 0 {
		return osdOn(d, facts), true
	}
	if what, held := facts.Reserved[d.Path]; held {
		return because{Held, "kept for the replacement of " + what}, true
	}
	switch {
	case d.Inventory != nil && d.Inventory.BeingReplaced:
		return because{BeingReplaced, "ceph-volume has marked it as being replaced; clear the mark to use it"}, true
	case d.ReadOnly:
		return because{ReadOnly, "it is read-only"}, true
	case len(d.Mounts) > 0:
		return because{Mounted, "it is mounted at " + strings.Join(d.Mounts, ", ")}, true
	}
	if m := mountsBelow(d, all); len(m) > 0 {
		return because{Mounted, "a device on it is mounted at " + strings.Join(m, ", ")}, true
	}
	return because{}, false
}

// osdOn explains a device that already holds OSDs. An OSD whose cluster could
// not be told counts as foreign: what is not proven ours is not ours.
func osdOn(d device.Device, facts Facts) because {
	var ours, foreign []string
	for _, o := range d.OSDs {
		name := fmt.Sprintf("%s of osd.%d (%s)", o.Role, o.ID, o.UUID)
		if o.ID < 0 {
			name = fmt.Sprintf("%s of OSD %s", o.Role, o.UUID)
		}
		if facts.FSID != "" && o.FSID == facts.FSID {
			ours = append(ours, name)
		} else {
			if o.FSID != "" {
				name += " of cluster " + o.FSID
			}
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		return because{ForeignOSD, "it holds the " + strings.Join(foreign, ", the ") + ", not of this cluster"}
	}
	return because{InUse, "it holds the " + strings.Join(ours, ", the ")}
}

// mountsBelow collects the mount points of everything that lies on d.
func mountsBelow(d device.Device, all []device.Device) []string {
	var mounts []string
	seen := map[string]bool{d.Name: true}
	queue := slices.Clone(d.Children)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		for _, c := range all {
			if c.Name == name {
				mounts = append(mounts, c.Mounts...)
				queue = append(queue, c.Children...)
			}
		}
	}
	slices.Sort(mounts)
	return slices.Compact(mounts)
}

// plain types are used without being named. What somebody has built from other devices
// (dm-crypt, a RAID set), or what the kernel may come up with, is not.
func plain(t device.Type) bool {
	return t == device.Disk || t == device.Partition || t == device.Multipath || t == device.Loop
}

// selects says whether the user's selection reaches the device.
func selects(d device.Device, ref string, sel Selection, facts Facts) (because, bool) {
	if ref == "" && d.Type == device.LVM {
		return because{MustBeNamed, "logical volumes are used only when devices names them"}, false
	}
	if ref == "" && !plain(d.Type) {
		return because{MustBeNamed, fmt.Sprintf("devices of type %q are used only when devices names them", d.Type)}, false
	}
	if d.Type == device.Loop && !facts.AllowLoop {
		return because{MustBeNamed, "loop devices are used only with ROOK_CEPH_ALLOW_LOOP_DEVICES"}, false
	}
	switch {
	case len(sel.Named) > 0:
		if ref == "" {
			return because{NotSelected, "devices names other devices of this node"}, false
		}
		return because{Selected, fmt.Sprintf("named as %q", ref)}, true
	case sel.Filter != nil:
		if !sel.Filter.MatchString(d.Name) {
			return because{NotSelected, fmt.Sprintf("its name does not match deviceFilter %q", sel.Filter)}, false
		}
		return because{Selected, fmt.Sprintf("its name matches deviceFilter %q", sel.Filter)}, true
	case sel.PathFilter != nil:
		for _, p := range append([]string{d.Path}, d.Links...) {
			if sel.PathFilter.MatchString(p) {
				return because{Selected, fmt.Sprintf("%s matches devicePathFilter %q", p, sel.PathFilter)}, true
			}
		}
		return because{NotSelected, fmt.Sprintf("none of its paths matches devicePathFilter %q", sel.PathFilter)}, false
	case sel.UseAll:
		return because{Selected, "useAllDevices is set and the device is blank"}, true
	}
	return because{NotSelected, "the spec selects no device of this node"}, false
}

// notBlank finds signs of anything that somebody may miss. Whoever asks, and
// however the device was selected, it must be proven blank.
func notBlank(d device.Device) (because, bool) {
	switch {
	case len(d.Children) > 0:
		return because{HasHolders, "it has partitions or volumes on it: " + strings.Join(d.Children, ", ")}, true
	case d.FSType != "":
		return because{HasData, "it holds a " + d.FSType + " signature"}, true
	case d.PartTable != "" && d.Type != device.Partition:
		return because{HasData, "it holds a " + d.PartTable + " partition table"}, true
	case d.Size < MinSize:
		return because{TooSmall, fmt.Sprintf("it has %d bytes; an OSD needs %d (5 GiB)", d.Size, uint64(MinSize))}, true
	case d.Inventory == nil:
		return because{NotInspected, "ceph-volume has not inspected it, and what is not proven blank is not used"}, true
	case !d.Inventory.Available:
		msg := "ceph-volume calls it unavailable without a reason"
		if len(d.Inventory.Rejected) > 0 {
			msg = "ceph-volume rejects it: " + strings.Join(d.Inventory.Rejected, "; ")
		}
		return because{Unavailable, msg}, true
	}
	return because{}, false
}

// metadataFor checks the metadata device that a configuration wants. An OSD
// whose database was to lie on a fast device is not made without one: it would
// be slow for all its life and nothing would say so.
// given are volumes and partitions that another device gets for its database.
func metadataFor(c Config, devices []device.Device, facts Facts, given map[string]string) (because, bool) {
	if c.MetadataDevice == "" {
		return because{}, false
	}
	i := device.Find(devices, c.MetadataDevice)
	if i < 0 {
		return because{NoMetadata, fmt.Sprintf("its metadataDevice %q does not exist on this node", c.MetadataDevice)}, true
	}
	m := devices[i]
	bad := func(why string) (because, bool) {
		return because{NoMetadata, fmt.Sprintf("its metadataDevice %q cannot be used: %s", c.MetadataDevice, why)}, true
	}
	if len(m.Mounts) > 0 || len(mountsBelow(m, devices)) > 0 {
		return bad("it is mounted")
	}
	for _, o := range m.OSDs {
		if facts.FSID == "" || o.FSID != facts.FSID {
			return bad(osdOn(m, facts).Message)
		}
		if o.Role == device.RoleBlock {
			return bad(fmt.Sprintf("it holds the data of osd.%d", o.ID))
		}
	}
	if WrittenWhole(m) {
		if why, notFree := notForOne(m, given[m.Name]); notFree {
			return bad(why)
		}
		return because{}, false
	}
	if len(m.OSDs) == 0 {
		if why, notFree := notBlank(m); notFree {
			return bad(why.Message)
		}
	}
	return because{}, false
}

// WrittenWhole says of a metadata device that it becomes one database as it is. Of all
// others a database gets a part.
func WrittenWhole(m device.Device) bool {
	return m.Type == device.LVM || m.Type == device.Partition
}

// notForOne finds what keeps a volume or partition from becoming a database. ceph-volume
// takes one as it is named: it gives it the tags of the new OSD and writes over whatever is
// there, also over the database of an OSD that does not run at that moment.
func notForOne(m device.Device, given string) (why string, bad bool) {
	if given != "" {
		return "it is for the database of " + given + ", and a volume or partition holds one", true
	}
	for _, o := range m.OSDs {
		return fmt.Sprintf("it holds the %s of osd.%d (%s), and a volume or partition holds one", o.Role, o.ID, o.UUID), true
	}
	// A database may be smaller than a disk of an OSD.
	large := m
	large.Size = max(m.Size, MinSize)
	if m.Inventory != nil {
		large.Inventory = &device.Inventory{Rejected: ForDatabase(*m.Inventory)}
		large.Inventory.Available = len(large.Inventory.Rejected) == 0
	}
	reason, bad := notBlank(large)
	return reason.Message, bad
}

// ForDatabase are the rejections of a device that speak against a database on it.
func ForDatabase(inv device.Inventory) []string {
	return slices.DeleteFunc(slices.Clone(inv.Rejected), func(r string) bool { return r == device.InsufficientSpace })
}
