// Package prepare turns chosen devices into the ceph-volume commands that make
// OSDs of them, and names what each command is for.
//
// It is pure: the commands are values with a fixed argument list. It must not
// run anything, and it must not choose devices: internal/node/choice has done
// that, and internal/node/inspect checks each device once more right before.
package prepare

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
)

// Command is one call of ceph-volume.
type Command struct {
	// Args follow the name of the program.
	Args []string
	// Devices are the data devices that the command will write to; each must be
	// proven blank again right before.
	Devices []string
	// MetadataDevice is the device that gets their databases, or "".
	MetadataDevice string
	// OSDs is how many OSDs the command makes.
	OSDs int
	// Encrypted asks for dm-crypt.
	Encrypted bool
	// Raw says that the command makes one plain OSD of one whole device, which takes
	// no ceph-volume; DeviceClass is then the OSD's, "" for what Ceph finds.
	Raw         bool
	DeviceClass string
}

// String is the command as a person would type it.
func (c Command) String() string { return "ceph-volume " + strings.Join(c.Args, " ") }

// Commands returns the calls for the devices to be used, in the order of the
// devices. Devices that share a metadata device without a fixed database size
// go into one call, since ceph-volume would give the first of several calls
// all of the space; every other device gets its own, so that one bad disk
// fails alone.
func Commands(verdicts []choice.Verdict, devices []device.Device) []Command {
	var commands []Command
	batches := map[choice.Config]int{} // index in commands
	for _, v := range verdicts {
		if !v.Use {
			continue
		}
		c := v.Config
		switch {
		case needsPrepare(v, devices):
			commands = append(commands, lvmPrepare(v, devices))
		case !needsLVM(v):
			commands = append(commands, raw(v))
		case c.MetadataDevice != "" && c.DatabaseSizeMB == 0:
			if i, ok := batches[c]; ok {
				commands[i] = addToBatch(commands[i], v)
				continue
			}
			batches[c] = len(commands)
			commands = append(commands, batch(v, devices))
		default:
			commands = append(commands, batch(v, devices))
		}
	}
	return commands
}

// Mode is how the OSDs on a device are kept: "raw" unless something asks for
// LVM.
func Mode(v choice.Verdict) string {
	if needsLVM(v) || v.Device.Type == device.LVM {
		return "lvm"
	}
	return "raw"
}

// needsLVM: encryption, several OSDs on a device and a metadata device are
// things that ceph-volume does with LVM only.
func needsLVM(v choice.Verdict) bool {
	return v.Config.Encrypted || v.Config.OSDsPerDevice > 1 || v.Config.MetadataDevice != ""
}

// needsPrepare: `lvm batch` takes whole devices only. A volume as data, and a
// partition or volume as database, go through `lvm prepare`.
func needsPrepare(v choice.Verdict, devices []device.Device) bool {
	if v.Device.Type == device.LVM {
		return true
	}
	i := device.Find(devices, v.Config.MetadataDevice)
	return i >= 0 && (devices[i].Type == device.LVM || devices[i].Type == device.Partition)
}

func raw(v choice.Verdict) Command {
	args := []string{"raw", "prepare", "--bluestore", "--data", v.Device.Path}
	if v.Config.DeviceClass != "" {
		args = append(args, "--crush-device-class", v.Config.DeviceClass)
	}
	return Command{Args: args, Devices: []string{v.Device.Path}, OSDs: 1, Raw: true, DeviceClass: v.Config.DeviceClass}
}

func batch(v choice.Verdict, devices []device.Device) Command {
	c := v.Config
	per := max(c.OSDsPerDevice, 1)
	args := []string{"lvm", "batch", "--prepare", "--bluestore", "--yes", "--no-systemd"}
	if c.Encrypted {
		args = append(args, "--dmcrypt")
	}
	args = append(args, "--osds-per-device", strconv.Itoa(per))
	if c.DeviceClass != "" {
		args = append(args, "--crush-device-class", c.DeviceClass)
	}
	meta := ""
	if c.MetadataDevice != "" {
		meta = pathOf(devices, c.MetadataDevice)
		args = append(args, "--db-devices", meta)
		if c.DatabaseSizeMB > 0 {
			args = append(args, "--block-db-size", bytesOf(c.DatabaseSizeMB))
			args = append(args, slots(devices, c)...)
		}
	}
	return Command{
		Args: append(args, "--", v.Device.Path), Devices: []string{v.Device.Path},
		MetadataDevice: meta, OSDs: per, Encrypted: c.Encrypted,
	}
}

// slots tells ceph-volume how many databases the metadata device is to hold. Without
// it, it takes those of this call for all, and says of a device that holds one already
// that none is available.
func slots(devices []device.Device, c choice.Config) []string {
	i := device.Find(devices, c.MetadataDevice)
	if i < 0 || devices[i].Size < lvmOverhead {
		return nil
	}
	if n := (devices[i].Size - lvmOverhead) / (c.DatabaseSizeMB << 20); n > 0 {
		return []string{"--block-db-slots", strconv.FormatUint(n, 10)}
	}
	return nil
}

// lvmOverhead is what LVM keeps of a device at most: its own metadata (1 MiB, aligned)
// and less than one extent of 4 MiB at the end.
const lvmOverhead = 8 << 20

func addToBatch(c Command, v choice.Verdict) Command {
	c.Args = append(slices.Clone(c.Args), v.Device.Path)
	c.Devices = append(slices.Clone(c.Devices), v.Device.Path)
	c.OSDs += max(v.Config.OSDsPerDevice, 1)
	return c
}

func lvmPrepare(v choice.Verdict, devices []device.Device) Command {
	c := v.Config
	args := []string{"lvm", "prepare", "--bluestore", "--no-systemd"}
	if c.Encrypted {
		args = append(args, "--dmcrypt")
	}
	if c.DeviceClass != "" {
		args = append(args, "--crush-device-class", c.DeviceClass)
	}
	args = append(args, "--data", volumeOrPath(v.Device))
	meta := ""
	if i := device.Find(devices, c.MetadataDevice); i >= 0 {
		meta = devices[i].Path
		args = append(args, "--block.db", volumeOrPath(devices[i]))
	}
	return Command{Args: args, Devices: []string{v.Device.Path}, MetadataDevice: meta, OSDs: 1, Encrypted: c.Encrypted}
}

// volumeOrPath is vg/lv for a volume, as ceph-volume wants it, else the path.
func volumeOrPath(d device.Device) string {
	if d.Type != device.LVM {
		return d.Path
	}
	for _, l := range d.Links {
		if dir, lv := path.Split(l); strings.Count(l, "/") == 3 && dir != "/dev/mapper/" && dir != "/dev/disk/" {
			return path.Base(dir) + "/" + lv
		}
	}
	return d.Path
}

func pathOf(devices []device.Device, ref string) string {
	if i := device.Find(devices, ref); i >= 0 {
		return devices[i].Path
	}
	return ref
}

// bytesOf is a size as ceph-volume's --block-db-size takes it. A user's "MB"
// has always meant MiB here.
func bytesOf(mb uint64) string { return strconv.FormatUint(mb<<20, 10) }

// Result is an OSD as the node reports it after a look at all its disks: enough
// to start its daemon, and enough to find and replace its disk later.
type Result struct {
	ID          int    `json:"id"`
	UUID        string `json:"uuid"`
	FSID        string `json:"fsid"`
	Mode        string `json:"mode"` // raw or lvm
	Encrypted   bool   `json:"encrypted,omitempty"`
	DeviceClass string `json:"deviceClass,omitempty"`
	// Data, DB and WAL say where each part is.
	Data Part  `json:"data"`
	DB   *Part `json:"db,omitempty"`
	WAL  *Part `json:"wal,omitempty"`
}

// Part is a device or volume and the disk below it.
type Part struct {
	Path   string `json:"path"`
	ByID   string `json:"byID,omitempty"`
	ByPath string `json:"byPath,omitempty"`
	Serial string `json:"serial,omitempty"`
	WWN    string `json:"wwn,omitempty"`
	Slot   string `json:"slot,omitempty"`
	Model  string `json:"model,omitempty"`
	// Size in bytes: of the LV where there is one, else of the device.
	Size       uint64 `json:"size,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
	VG         string `json:"vg,omitempty"`
	LV         string `json:"lv,omitempty"`
	LVUUID     string `json:"lvUUID,omitempty"`
	// Disk is the kernel name of the disk below an LV.
	Disk string `json:"disk,omitempty"`
}

// Results collects the OSDs of the cluster fsid that the listings found. Parts
// of one OSD are brought together by its uuid; an OSD whose data was not found
// is not reported, since nothing could be started from it. skipped says which
// and why.
func Results(found []device.Found, devices []device.Device, fsid string) (osds []Result, skipped []string) {
	type parts map[device.Role]device.Found
	byUUID := map[string]parts{}
	for _, f := range found {
		if f.FSID != fsid || f.ID < 0 || f.UUID == "" {
			continue
		}
		if byUUID[f.UUID] == nil {
			byUUID[f.UUID] = parts{}
		}
		// lvm list says more than raw list about the same part.
		if old, ok := byUUID[f.UUID][f.Role]; !ok || old.Mode == "raw" {
			byUUID[f.UUID][f.Role] = f
		}
	}
	for uuid, p := range byUUID {
		data, ok := p[device.RoleBlock]
		if !ok {
			skipped = append(skipped, fmt.Sprintf("OSD %s: only %s found, its data device is missing", uuid, rolesOf(p)))
			continue
		}
		r := Result{
			ID: data.ID, UUID: uuid, FSID: fsid, Mode: data.Mode, Encrypted: data.Encrypted,
			DeviceClass: data.DeviceClass, Data: part(data, devices),
		}
		if f, ok := p[device.RoleDB]; ok {
			r.DB = ptr(part(f, devices))
		}
		if f, ok := p[device.RoleWAL]; ok {
			r.WAL = ptr(part(f, devices))
		}
		osds = append(osds, r)
	}
	slices.SortFunc(osds, func(a, b Result) int { return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.UUID, b.UUID)) })
	slices.Sort(skipped)
	return osds, skipped
}

func ptr(p Part) *Part { return &p }

func rolesOf(p map[device.Role]device.Found) string {
	var roles []string
	for r := range p {
		roles = append(roles, string(r))
	}
	slices.Sort(roles)
	return strings.Join(roles, ", ")
}

// part describes where a piece of an OSD lies, down to the disk a person would
// pull.
func part(f device.Found, devices []device.Device) Part {
	p := Part{Path: f.Path, Size: f.LVSize, VG: f.VG, LV: f.LV, LVUUID: f.LVUUID}
	i := device.Find(devices, f.Path)
	if len(f.Devices) > 0 {
		i = device.Find(devices, f.Devices[0])
	}
	if i < 0 {
		return p
	}
	d := devices[i]
	p.Disk = d.Name
	p.ByID, p.ByPath, p.Serial, p.WWN, p.Slot, p.Model, p.Rotational = d.ByID(), d.ByPath(), d.Serial, d.WWN, d.Slot, d.Model, d.Rotational
	if p.Size == 0 {
		p.Size = d.Size
	}
	return p
}
