package device

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// LsblkColumns are the columns that ParseLsblk needs, for `lsblk --json --bytes
// --all --output`. All of them exist in util-linux 2.37 and newer.
const LsblkColumns = "NAME,KNAME,PATH,TYPE,SIZE,RO,ROTA,PKNAME,MOUNTPOINTS,FSTYPE,PTTYPE,SERIAL,WWN,MODEL,VENDOR,MAJ:MIN"

type lsblkDevice struct {
	KName    string        `json:"kname"`
	Path     string        `json:"path"`
	Type     string        `json:"type"`
	Size     flexUint      `json:"size"`
	RO       flexBool      `json:"ro"`
	Rota     flexBool      `json:"rota"`
	Mounts   []*string     `json:"mountpoints"`
	FSType   string        `json:"fstype"`
	PTType   string        `json:"pttype"`
	Serial   string        `json:"serial"`
	WWN      string        `json:"wwn"`
	Model    string        `json:"model"`
	Vendor   string        `json:"vendor"`
	MajMin   string        `json:"maj:min"`
	Children []lsblkDevice `json:"children"`
	PKName   string        `json:"pkname"`
}

// flexUint accepts 5 and "5": util-linux changed its mind between releases.
type flexUint uint64

func (u *flexUint) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" || s == "" {
		*u = 0
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("size %q is not a number of bytes (was lsblk run with --bytes?)", s)
	}
	*u = flexUint(n)
	return nil
}

// flexBool accepts true, "1" and 1.
type flexBool bool

func (f *flexBool) UnmarshalJSON(b []byte) error {
	switch s := strings.Trim(string(b), `"`); s {
	case "true", "1":
		*f = true
	case "false", "0", "null", "":
		*f = false
	default:
		return fmt.Errorf("%q is neither true nor false", s)
	}
	return nil
}

// ParseLsblk reads `lsblk --json --bytes --all --output LsblkColumns`. Devices
// come sorted by kernel name, each once, however many parents it has.
func ParseLsblk(out []byte) ([]Device, error) {
	var doc struct {
		BlockDevices []lsblkDevice `json:"blockdevices"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("reading lsblk's JSON: %w", err)
	}
	byName := map[string]*Device{}
	var walk func(list []lsblkDevice, parent string)
	walk = func(list []lsblkDevice, parent string) {
		for _, l := range list {
			d := byName[l.KName]
			if d == nil {
				d = l.device()
				byName[l.KName] = d
			}
			if parent != "" && !slices.Contains(d.Parents, parent) {
				d.Parents = append(d.Parents, parent)
			}
			for _, c := range l.Children {
				if !slices.Contains(d.Children, c.KName) {
					d.Children = append(d.Children, c.KName)
				}
			}
			walk(l.Children, l.KName)
		}
	}
	walk(doc.BlockDevices, "")
	devices := make([]Device, 0, len(byName))
	for _, d := range byName {
		slices.Sort(d.Parents)
		slices.Sort(d.Children)
		devices = append(devices, *d)
	}
	slices.SortFunc(devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return devices, nil
}

func (l lsblkDevice) device() *Device {
	d := &Device{
		Name: l.KName, Path: l.Path, Type: Type(l.Type), Size: uint64(l.Size),
		ReadOnly: bool(l.RO), Rotational: bool(l.Rota), HasNode: true,
		FSType: l.FSType, PartTable: l.PTType,
		Serial: strings.TrimSpace(l.Serial), WWN: strings.TrimSpace(l.WWN),
		Model: strings.TrimSpace(l.Model), Vendor: strings.TrimSpace(l.Vendor),
		MajMin: strings.TrimSpace(l.MajMin),
	}
	if d.Path == "" {
		d.Path = "/dev/" + d.Name
	}
	for _, m := range l.Mounts {
		if m != nil && *m != "" {
			d.Mounts = append(d.Mounts, *m)
		}
	}
	return d
}

// ApplyUdev adds what a udev database entry (/run/udev/data/b<major>:<minor>)
// says to a device. udev knows serial, slot and links where lsblk, run without
// access to udev's socket, may not. An empty entry changes nothing.
func ApplyUdev(d *Device, entry []byte) {
	props := map[string]string{}
	for line := range strings.Lines(string(entry)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "S:"):
			d.Links = append(d.Links, "/dev/"+line[2:])
		case strings.HasPrefix(line, "E:"):
			if k, v, ok := strings.Cut(line[2:], "="); ok {
				props[k] = v
			}
		}
	}
	slices.Sort(d.Links)
	d.Links = slices.Compact(d.Links)
	first := func(old string, keys ...string) string {
		for _, k := range keys {
			if props[k] != "" {
				return props[k]
			}
		}
		return old
	}
	d.Serial = first(d.Serial, "ID_SERIAL_SHORT", "ID_SCSI_SERIAL", "SCSI_IDENT_SERIAL", "ID_SERIAL")
	d.WWN = first(d.WWN, "ID_WWN_WITH_EXTENSION", "ID_WWN")
	d.Model = first(d.Model, "ID_MODEL")
	d.Vendor = first(d.Vendor, "ID_VENDOR")
	d.Slot = first(d.Slot, "ID_PATH")
	d.FSType = first(d.FSType, "ID_FS_TYPE")
	d.PartTable = first(d.PartTable, "ID_PART_TABLE_TYPE")
}

type inventoryItem struct {
	Path          string   `json:"path"`
	Available     bool     `json:"available"`
	Rejected      []string `json:"rejected_reasons"`
	BeingReplaced bool     `json:"being_replaced"`
}

// ParseInventory reads `ceph-volume inventory --format json [device]`: a list,
// or one object when a device was named. The key is the device's path.
func ParseInventory(out []byte) (map[string]Inventory, error) {
	var items []inventoryItem
	if err := json.Unmarshal(out, &items); err != nil {
		var one inventoryItem
		if errOne := json.Unmarshal(out, &one); errOne != nil {
			return nil, fmt.Errorf("reading ceph-volume's inventory: %w", err)
		}
		items = []inventoryItem{one}
	}
	inv := make(map[string]Inventory, len(items))
	for _, it := range items {
		if it.Path == "" {
			return nil, fmt.Errorf("reading ceph-volume's inventory: an entry has no path")
		}
		reasons := slices.Clone(it.Rejected)
		slices.Sort(reasons)
		inv[it.Path] = Inventory{Available: it.Available, Rejected: reasons, BeingReplaced: it.BeingReplaced}
	}
	return inv, nil
}

// Found is an OSD as a ceph-volume listing names it: the OSD and where it is.
type Found struct {
	OSD
	// Path is the device or LV that holds this part of the OSD.
	Path string `json:"path"`
	// Mode is "raw" or "lvm".
	Mode string `json:"mode"`
	// Encrypted is set for LVM OSDs made with --dmcrypt.
	Encrypted bool `json:"encrypted,omitempty"`
	// DeviceClass is what ceph-volume was told, empty where it chose.
	DeviceClass string `json:"deviceClass,omitempty"`
	// LV details, empty for raw OSDs. LVSize is in bytes.
	VG     string `json:"vg,omitempty"`
	LV     string `json:"lv,omitempty"`
	LVUUID string `json:"lvUUID,omitempty"`
	LVSize uint64 `json:"lvSize,omitempty"`
	// Devices are the physical devices below an LV.
	Devices []string `json:"devices,omitempty"`
	// LabelSize is the size in bytes that BlueStore's label knows, DeviceSize what
	// the device has now; both 0 where no label was read.
	LabelSize  uint64 `json:"labelSize,omitempty"`
	DeviceSize uint64 `json:"deviceSize,omitempty"`
}

// ParseRawList reads `ceph-volume raw list --format json`. Entries of every
// cluster on the node are returned; encrypted LVM OSDs may come with little
// more than their uuid, and then have ID -1 and an empty FSID.
func ParseRawList(out []byte) ([]Found, error) {
	var doc map[string]struct {
		FSID   string `json:"ceph_fsid"`
		Device string `json:"device"`
		DB     string `json:"device_db"`
		WAL    string `json:"device_wal"`
		ID     *int   `json:"osd_id"`
		UUID   string `json:"osd_uuid"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("reading `ceph-volume raw list`: %w", err)
	}
	var found []Found
	for key, e := range doc {
		uuid := e.UUID
		if uuid == "" {
			uuid = key
		}
		id := -1
		if e.ID != nil {
			id = *e.ID
		}
		for _, part := range []struct {
			path string
			role Role
		}{{e.Device, RoleBlock}, {e.DB, RoleDB}, {e.WAL, RoleWAL}} {
			if part.path != "" {
				found = append(found, Found{OSD: OSD{ID: id, UUID: uuid, FSID: e.FSID, Role: part.role}, Path: part.path, Mode: "raw"})
			}
		}
	}
	sortFound(found)
	return found, nil
}

// ParseLVMList reads `ceph-volume lvm list --format json`. While a replaced
// disk is still plugged in, one id stands for two OSDs with different uuids:
// callers choose by uuid.
func ParseLVMList(out []byte) ([]Found, error) {
	var doc map[string][]struct {
		Devices []string          `json:"devices"`
		LV      string            `json:"lv_name"`
		Path    string            `json:"lv_path"`
		Size    flexUint          `json:"lv_size"`
		LVUUID  string            `json:"lv_uuid"`
		VG      string            `json:"vg_name"`
		Type    string            `json:"type"`
		AltPath string            `json:"path"`
		Tags    map[string]string `json:"tags"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("reading `ceph-volume lvm list`: %w", err)
	}
	var found []Found
	for key, parts := range doc {
		id, err := strconv.Atoi(key)
		if err != nil {
			return nil, fmt.Errorf("reading `ceph-volume lvm list`: %q is no OSD id", key)
		}
		for _, p := range parts {
			f := Found{
				OSD:  OSD{ID: id, UUID: p.Tags["ceph.osd_fsid"], FSID: p.Tags["ceph.cluster_fsid"], Role: Role(p.Type)},
				Path: p.Path, Mode: "lvm", Encrypted: p.Tags["ceph.encrypted"] == "1",
				DeviceClass: p.Tags["ceph.crush_device_class"],
				VG:          p.VG, LV: p.LV, LVUUID: p.LVUUID, LVSize: uint64(p.Size), Devices: slices.Sorted(slices.Values(p.Devices)),
			}
			if f.Path == "" {
				f.Path = p.AltPath
			}
			found = append(found, f)
		}
	}
	sortFound(found)
	return found, nil
}

func sortFound(found []Found) {
	slices.SortFunc(found, func(a, b Found) int {
		if a.ID != b.ID {
			return a.ID - b.ID
		}
		if c := strings.Compare(a.UUID, b.UUID); c != 0 {
			return c
		}
		return strings.Compare(string(a.Role), string(b.Role))
	})
}

// Merge adds ceph-volume's inventory and listings to the devices. A physical
// device below an OSD's LV carries that OSD too, so that a shared DB device
// names every OSD that depends on it.
func Merge(devices []Device, inv map[string]Inventory, found []Found) []Device {
	merged := slices.Clone(devices)
	for i := range merged {
		d := &merged[i]
		d.OSDs = slices.Clone(d.OSDs)
		for p, item := range inv {
			if d.Answers(p) {
				d.Inventory = &item
			}
		}
	}
	for _, f := range found {
		for _, ref := range append([]string{f.Path}, f.Devices...) {
			i := Find(merged, ref)
			if i < 0 {
				i = findLV(merged, f)
			}
			if i >= 0 && !slices.Contains(merged[i].OSDs, f.OSD) {
				merged[i].OSDs = append(merged[i].OSDs, f.OSD)
			}
		}
	}
	return merged
}

// findLV finds an LV by device mapper's name for it, in which dashes double.
func findLV(devices []Device, f Found) int {
	if f.VG == "" {
		return -1
	}
	esc := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return Find(devices, path.Join("/dev/mapper", esc(f.VG)+"-"+esc(f.LV)))
}
