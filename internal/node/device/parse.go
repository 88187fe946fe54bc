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

// Found is a part of an OSD and where it is, as the device's label or the volume's tags
// tell it.
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

// Merge adds the OSDs to the devices that hold them. A physical device below an
// OSD's LV carries that OSD too, so that a shared DB device names every OSD that
// depends on it.
func Merge(devices []Device, found []Found) []Device {
	merged := slices.Clone(devices)
	for i := range merged {
		merged[i].OSDs = slices.Clone(merged[i].OSDs)
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
