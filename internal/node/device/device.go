// Package device describes the block devices of a storage node as values: what
// lsblk, udev, labels and tags say of them, merged into one list that code can
// decide on.
//
// It parses text that somebody else has read. It must not run a command, open
// a file or decide whether a device is used: running is internal/node/inspect,
// deciding is internal/node/choice.
package device

import (
	"path"
	"slices"
	"strings"
)

// Type is the kind of block device as lsblk names it.
type Type string

// The types that decisions depend on. lsblk knows more; they are kept as they
// come and treated like an unknown type, which is never used on its own.
const (
	Disk      Type = "disk"
	Partition Type = "part"
	LVM       Type = "lvm"
	Loop      Type = "loop"
	ROM       Type = "rom"
	Crypt     Type = "crypt"
	Multipath Type = "mpath"
)

// Role is the part that a device plays for an OSD.
type Role string

// The roles that ceph-volume gives to a device.
const (
	RoleBlock Role = "block"
	RoleDB    Role = "db"
	RoleWAL   Role = "wal"
)

// OSD is an OSD whose data, DB or WAL was found on a device.
type OSD struct {
	// ID is the OSD's number; -1 where the listing did not say (encrypted LVM
	// OSDs in `raw list`).
	ID int `json:"id"`
	// UUID is the OSD's own uuid (ceph-volume calls it osd_uuid or osd_fsid).
	UUID string `json:"uuid"`
	// FSID is the cluster the OSD belongs to; empty where the listing did not
	// say. Empty is never the same as "ours".
	FSID string `json:"fsid,omitempty"`
	// Role is what this device holds of the OSD.
	Role Role `json:"role"`
}

// Inventory is ceph-volume's own opinion of a device.
type Inventory struct {
	Available bool `json:"available"`
	// Rejected are the reasons, sorted: ceph-volume's order varies from run to
	// run and would make equal reports differ.
	Rejected []string `json:"rejected,omitempty"`
	// BeingReplaced is set when ceph-volume found its own "being replaced"
	// header on the device.
	BeingReplaced bool `json:"beingReplaced,omitempty"`
}

// InsufficientSpace is ceph-volume's word for a device that is too small for an OSD's data.
// A database may be smaller.
const InsufficientSpace = "Insufficient space (<5GB)"

// Device is one block device of a node.
type Device struct {
	// Name is the kernel's name (sdb, dm-3), without a directory.
	Name string `json:"name"`
	// Path is the device node to use: /dev/sdb, /dev/mapper/x.
	Path string `json:"path"`
	Type Type   `json:"type"`
	// Size in bytes.
	Size       uint64 `json:"size"`
	ReadOnly   bool   `json:"readOnly,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
	// HasNode says that the device node exists where ceph-volume would open it.
	// /sys/block can list devices that belong to somebody else.
	HasNode bool `json:"hasNode"`
	// Parents are the kernel names of the devices that this one lies on; an LV
	// over two disks has two.
	Parents  []string `json:"parents,omitempty"`
	Children []string `json:"children,omitempty"`
	// Mounts are the mount points of the device itself, not of its children.
	Mounts []string `json:"mounts,omitempty"`
	// FSType is the signature udev or blkid found (ext4, LVM2_member,
	// ceph_bluestore, crypto_LUKS); empty where none is known.
	FSType string `json:"fsType,omitempty"`
	// PartTable is the kind of partition table (gpt, dos), empty where none.
	PartTable string `json:"partTable,omitempty"`
	Serial    string `json:"serial,omitempty"`
	WWN       string `json:"wwn,omitempty"`
	Model     string `json:"model,omitempty"`
	Vendor    string `json:"vendor,omitempty"`
	// Slot is udev's ID_PATH: the place the device is plugged in.
	Slot string `json:"slot,omitempty"`
	// Links are the /dev/disk/by-* and other links that udev made, sorted.
	Links []string `json:"links,omitempty"`
	// MajMin is "major:minor", the device's number in the kernel.
	MajMin string `json:"majMin,omitempty"`

	// Inventory is nil where ceph-volume was not asked.
	Inventory *Inventory `json:"inventory,omitempty"`
	OSDs      []OSD      `json:"osds,omitempty"`
}

// ByID returns the most telling /dev/disk/by-id link, or "". A WWN link is
// stable but says nothing to a person, so a link with model and serial is
// preferred.
func (d Device) ByID() string {
	best := ""
	for _, l := range d.Links {
		if !strings.HasPrefix(l, "/dev/disk/by-id/") {
			continue
		}
		if best == "" || (!isOpaque(l) && isOpaque(best)) {
			best = l
		}
	}
	return best
}

// isOpaque reports whether a by-id link is stable but tells a person nothing.
func isOpaque(link string) bool {
	base := path.Base(link)
	return strings.HasPrefix(base, "wwn-") || strings.HasPrefix(base, "nvme-eui.") || strings.HasPrefix(base, "lvm-pv-uuid-")
}

// ByPath returns the /dev/disk/by-path link, or "".
func (d Device) ByPath() string {
	for _, l := range d.Links {
		if strings.HasPrefix(l, "/dev/disk/by-path/") {
			return l
		}
	}
	return ""
}

// Answers reports whether ref names this device: its kernel name, its path, or
// one of its links. Relative names are taken as below /dev.
func (d Device) Answers(ref string) bool {
	if ref == "" {
		return false
	}
	if !strings.HasPrefix(ref, "/") {
		ref = "/dev/" + ref
	}
	ref = path.Clean(ref)
	return ref == d.Path || ref == "/dev/"+d.Name || slices.Contains(d.Links, ref)
}

// Find returns the index of the device that answers to ref, or -1.
func Find(devices []Device, ref string) int {
	return slices.IndexFunc(devices, func(d Device) bool { return d.Answers(ref) })
}

// FindPartition finds a partition by its uuid in the partition table, by the link that udev has
// made for it; -1 where there is none, or where several have it, as on a copied disk.
func FindPartition(devices []Device, uuid string) int {
	link, found := "/dev/disk/by-partuuid/"+strings.ToLower(uuid), -1
	for i, d := range devices {
		if uuid == "" || d.Type != Partition || !d.HasNode || !slices.Contains(d.Links, link) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}
