package request

import "github.com/castellan-storage/castellan/internal/node/swap"

// LV is a logical volume by its names and its own uuid.
type LV struct {
	VG   string `json:"vg"`
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
	// Size in bytes.
	Size uint64 `json:"size,omitempty"`
	// Device is a stable path of the disk below, where it is known. If a failed
	// preparation has taken the whole volume group with it, which happens to one that has
	// no other volume, the group is made again there; only if the disk is blank, and the
	// path is one by id.
	Device string `json:"device,omitempty"`
}

// Sibling is another OSD whose database or WAL shares a volume group with that of the
// OSD that is replaced; its volumes must be the same before and after.
type Sibling struct {
	OSD  int    `json:"osd"`
	UUID string `json:"uuid"`
	LVs  []LV   `json:"lvs,omitempty"`
}

// Watch asks a node to wait until its disks differ from what was reported.
type Watch struct {
	Namespace string         `json:"namespace"`
	Node      string         `json:"node"`
	ConfigMap string         `json:"configMap"`
	FSID      string         `json:"fsid"`
	Pending   []swap.Pending `json:"pending,omitempty"`
	// Known are the disks of the last report: provision.Known(data.devices).
	Known []string `json:"known,omitempty"`
}

// Replace asks a node to make the OSD with the given id on a new disk. The answer is
// a Replaced in the status ConfigMap (ReplacedKey); when it is Done, data.osds is
// written before it. The rest is left as the last prepare Job wrote it.
type Replace struct {
	Namespace string            `json:"namespace"`
	Node      string            `json:"node"`
	ConfigMap string            `json:"configMap"`
	Labels    map[string]string `json:"labels,omitempty"`
	FSID      string            `json:"fsid"`
	MonHost   string            `json:"monHost"`
	OSD       int               `json:"osd"`
	// OldUUID is the uuid of the OSD that was destroyed.
	OldUUID string `json:"oldUUID"`
	// Attempt is the number of this one, which the answer repeats.
	Attempt int `json:"attempt,omitempty"`
	// Device is the new disk; its serial must be Serial, unless that is empty.
	Device string `json:"device"`
	Serial string `json:"serial,omitempty"`
	// MinSize in bytes; a smaller disk is refused. 0 is Ceph's own minimum.
	MinSize     uint64 `json:"minSize,omitempty"`
	Mode        string `json:"mode"` // raw or lvm
	Encrypted   bool   `json:"encrypted,omitempty"`
	DB          *LV    `json:"db,omitempty"`
	WAL         *LV    `json:"wal,omitempty"`
	DeviceClass string `json:"deviceClass,omitempty"`
	// Set are the old uuids of all OSDs of the old disk, this one's included, where there
	// are several: each gets its share of the new disk by a request of its own, one
	// after the other. Empty for an OSD that has a disk to itself.
	Set []string `json:"set,omitempty"`
	// Data, where it is set, is the destroyed OSD's own data volume, on Device: the disk
	// is kept, and the volume on it is made anew. That is how OSDs are rebuilt whose
	// metadata device was lost. The volume's uuid and its tags must be the OSD's.
	Data *LV `json:"data,omitempty"`
	// DBDevice, where it is set, is a blank disk that takes the place of the lost
	// metadata device: DB and WAL are made on it with their recorded names and sizes, in
	// a volume group that all OSDs with the same DBDevice and the same former group
	// share. DBSerial is that disk's.
	DBDevice string `json:"dbDevice,omitempty"`
	DBSerial string `json:"dbSerial,omitempty"`
	// Siblings share a volume group with DB or WAL.
	Siblings  []Sibling `json:"siblings,omitempty"`
	AllowLoop bool      `json:"allowLoop,omitempty"`
	// Pending are the other slots of the node that wait for a disk: their old
	// uuids are not reported, and what is theirs is not touched.
	Pending []swap.Pending `json:"pending,omitempty"`
}

// Close asks a node to close the dm-crypt mappings of an OSD's volumes.
type Close struct {
	OSD  int    `json:"osd"`
	UUID string `json:"uuid"`
	LVs  []LV   `json:"lvs,omitempty"`
}
