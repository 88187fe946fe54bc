// Package volume describes a node's logical volumes and volume groups as values: what
// lvs and vgs say of them, and the names that a replacement gives to its own.
//
// It parses and computes. It must not run a command, and it must not keep a secret:
// an LV has no lockbox key among its tags.
package volume

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/request"
)

// LVsArgs are the arguments of lvs that ParseLVs needs.
func LVsArgs() []string {
	return []string{"--reportformat", "json", "--units", "b", "--nosuffix", "--options", "vg_name,lv_name,lv_uuid,lv_size,lv_tags,lv_path,devices"}
}

// VGsArgs are the arguments of vgs that ParseVGs needs.
func VGsArgs() []string {
	return []string{"--reportformat", "json", "--units", "b", "--nosuffix", "--options", "vg_name,vg_uuid,vg_free,vg_size,vg_extent_size,pv_name"}
}

// secretTag holds a key.
const secretTag = "ceph.cephx_lockbox_secret"

// RemadeTag marks a database volume that was made again, with the uuid of the OSD that
// it was made for: its own uuid is not the recorded one.
const RemadeTag = "castellan.replaces"

// LV is a logical volume.
type LV struct {
	VG, Name, UUID string
	// Path is its device node, /dev/<vg>/<lv>.
	Path string
	// Size in bytes.
	Size uint64
	// Tags of Ceph by name (without the lockbox key), and the others with an empty value.
	Tags map[string]string
	// Devices are the disks below it.
	Devices []string
}

// Named is the volume as requests and their answers name it.
func (l LV) Named() request.LV { return request.LV{VG: l.VG, Name: l.Name, UUID: l.UUID, Size: l.Size} }

// Full is the volume as commands name it.
func (l LV) Full() string { return l.VG + "/" + l.Name }

// OSDUUID is the OSD that the volume is part of, "" for none.
func (l LV) OSDUUID() string { return l.Tags["ceph.osd_fsid"] }

// OSD is the OSD's id, -1 for none.
func (l LV) OSD() int {
	if id, err := strconv.Atoi(l.Tags["ceph.osd_id"]); err == nil {
		return id
	}
	return -1
}

// TagText is the volume's tags in one line, to compare two looks.
func (l LV) TagText() string {
	var tags []string
	for k, v := range l.Tags {
		tags = append(tags, k+"="+v)
	}
	slices.Sort(tags)
	return strings.Join(tags, ",")
}

// Found are the parts of OSDs that lie on volumes, of all clusters, as the tags that
// ceph-volume gives its volumes tell it. A volume without an OSD's id, uuid and part is
// nobody's. While a replaced disk is still plugged in, one id stands for two OSDs with
// different uuids.
func Found(lvs []LV) []device.Found {
	var found []device.Found
	for _, l := range lvs {
		role := device.Role(l.Tags["ceph.type"])
		if l.OSD() < 0 || l.OSDUUID() == "" || role != device.RoleBlock && role != device.RoleDB && role != device.RoleWAL {
			continue
		}
		found = append(found, device.Found{
			OSD:  device.OSD{ID: l.OSD(), UUID: l.OSDUUID(), FSID: l.Tags["ceph.cluster_fsid"], Role: role},
			Path: l.Path, Mode: "lvm", Encrypted: l.Tags["ceph.encrypted"] == "1", DeviceClass: l.Tags["ceph.crush_device_class"],
			VG: l.VG, LV: l.Name, LVUUID: l.UUID, LVSize: l.Size, Devices: slices.Sorted(slices.Values(l.Devices)),
		})
	}
	slices.SortFunc(found, func(a, b device.Found) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.UUID, b.UUID), strings.Compare(string(a.Role), string(b.Role)), strings.Compare(a.Path, b.Path))
	})
	return found
}

// VG is a volume group.
type VG struct {
	Name, UUID         string
	Size, Free, Extent uint64 // bytes
	// PVs are the disks that it lies on; a missing one is "[unknown]".
	PVs []string
}

// ParseLVs reads lvs. A volume of several segments comes once.
func ParseLVs(out []byte) ([]LV, error) {
	var doc struct {
		Report []struct {
			LV []map[string]string `json:"lv"`
		} `json:"report"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("reading lvs: %w", err)
	}
	var lvs []LV
	for _, r := range doc.Report {
		for _, f := range r.LV {
			l := LV{VG: f["vg_name"], Name: f["lv_name"], UUID: f["lv_uuid"], Path: f["lv_path"]}
			l.Tags, _ = ParseTags(f["lv_tags"]) // the key is dropped
			if l.Path == "" {
				l.Path = "/dev/" + l.VG + "/" + l.Name
			}
			var err error
			if l.Size, err = number(f["lv_size"]); err != nil {
				return nil, fmt.Errorf("reading lvs: the size of %s: %w", l.Full(), err)
			}
			i := slices.IndexFunc(lvs, func(o LV) bool { return o.VG == l.VG && o.Name == l.Name })
			if i < 0 {
				lvs, i = append(lvs, l), len(lvs)
			}
			for d := range strings.SplitSeq(f["devices"], ",") {
				if d, _, _ = strings.Cut(d, "("); d != "" && !slices.Contains(lvs[i].Devices, d) {
					lvs[i].Devices = append(lvs[i].Devices, d)
				}
			}
		}
	}
	return lvs, nil
}

// ParseTags reads a volume's tags. The key to an encrypted OSD's lockbox, which is one of
// them, is kept apart: the tags are compared and told, the key never.
func ParseTags(text string) (tags map[string]string, lockbox string) {
	tags = map[string]string{}
	for t := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		k, v, _ := strings.Cut(t, "=")
		switch k {
		case "":
		case secretTag:
			lockbox = v
		default:
			tags[k] = v
		}
	}
	return tags, lockbox
}

func number(s string) (uint64, error) {
	return strconv.ParseUint(strings.TrimSuffix(s, "B"), 10, 64)
}

// ParseVGs reads vgs with one line for each PV.
func ParseVGs(out []byte) ([]VG, error) {
	var doc struct {
		Report []struct {
			VG []map[string]string `json:"vg"`
		} `json:"report"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("reading vgs: %w", err)
	}
	var vgs []VG
	for _, r := range doc.Report {
		for _, f := range r.VG {
			i := slices.IndexFunc(vgs, func(v VG) bool { return v.UUID == f["vg_uuid"] })
			if i < 0 {
				v := VG{Name: f["vg_name"], UUID: f["vg_uuid"]}
				for key, into := range map[string]*uint64{"vg_size": &v.Size, "vg_free": &v.Free, "vg_extent_size": &v.Extent} {
					n, err := number(f[key])
					if err != nil {
						return nil, fmt.Errorf("reading vgs: %s of %s: %w", key, v.Name, err)
					}
					*into = n
				}
				vgs, i = append(vgs, v), len(vgs)
			}
			vgs[i].PVs = append(vgs[i].PVs, f["pv_name"])
		}
	}
	return vgs, nil
}

// FindLV is the volume with a name, or nil.
func FindLV(lvs []LV, vg, name string) *LV {
	for i := range lvs {
		if lvs[i].VG == vg && lvs[i].Name == name {
			return &lvs[i]
		}
	}
	return nil
}

// FindVG is the volume group with a name, or nil.
func FindVG(vgs []VG, name string) *VG {
	for i := range vgs {
		if vgs[i].Name == name {
			return &vgs[i]
		}
	}
	return nil
}

// Named derives a uuid from words: the same words give the same uuid. A replacement
// names what it makes by what it replaces, so that after a crash it knows its own.
func Named(words ...string) string {
	s := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	s[6], s[8] = s[6]&0x0f|0x80, s[8]&0x3f|0x80 // version 8: of a scheme of one's own (RFC 9562)
	return fmt.Sprintf("%x-%x-%x-%x-%x", s[:4], s[4:6], s[6:8], s[8:10], s[10:16])
}

// BlockName is the name of the data volume that replaces the one of a destroyed OSD.
func BlockName(fsid, oldUUID string) string { return "osd-block-" + Named("block", fsid, oldUUID) }

// AttemptUUID is the uuid of an OSD that is made on a whole disk in a destroyed one's
// place. Its first half is random, since every attempt is another OSD; its second half
// says whom it replaces, so that what a crash has left of an attempt is told from an OSD
// that somebody may miss.
func AttemptUUID(random [8]byte, fsid, oldUUID string) string {
	random[6] = random[6]&0x0f | 0x80 // version 8, as of Named
	head := fmt.Sprintf("%x-%x-%x", random[:4], random[4:6], random[6:])
	return head + Named("attempt", head, fsid, oldUUID)[len(head):]
}

// IsAttempt reports whether a uuid was made by AttemptUUID for this destroyed OSD.
func IsAttempt(uuid, fsid, oldUUID string) bool {
	const head = len("01234567-0123-0123")
	return fsid != "" && oldUUID != "" && len(uuid) == len("01234567-0123-0123-0123-0123456789ab") &&
		uuid[head:] == Named("attempt", uuid[:head], fsid, oldUUID)[head:]
}

// Mangled is device mapper's name of a volume: dashes double.
func Mangled(vg, lv string) string { return mangle(vg) + "-" + mangle(lv) }

func mangle(s string) string { return strings.ReplaceAll(s, "-", "--") }

// MangledIs reports whether device mapper's name is of a volume lv, in any group.
func MangledIs(dm, lv string) bool { return strings.HasSuffix(dm, "-"+mangle(lv)) }
