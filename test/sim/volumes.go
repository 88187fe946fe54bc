package sim

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// Volume is a logical volume of an OSD.
type Volume struct {
	OSD            device.OSD
	VG, Name, UUID string
	Size           uint64
	Encrypted      bool
}

// volume of an OSD in a role; nil for none.
func (d *Disk) volume(uuid string, role device.Role) *Volume {
	for i := range d.Volumes {
		if d.Volumes[i].OSD.UUID == uuid && d.Volumes[i].OSD.Role == role {
			return &d.Volumes[i]
		}
	}
	return nil
}

// hasVolumes says that an OSD on volumes has its data, and its database where it has one.
// OSDs that are not on volumes of this node are not judged.
func (n *Node) hasVolumes(uuid string) bool {
	for _, want := range n.Needs[uuid] {
		if !slices.ContainsFunc(n.Disks, func(d *Disk) bool { return d.volume(uuid, want) != nil }) {
			return false
		}
	}
	return true
}

func (n *Node) needs(uuid string, roles ...device.Role) {
	if n.Needs == nil {
		n.Needs = map[string][]device.Role{}
	}
	n.Needs[uuid] = roles
}

// volumes makes the OSDs of a device that has several, or a database elsewhere.
func (w *World) volumes(ctx context.Context, node *Node, v choice.Verdict, fsid string) error {
	var disk, meta *Disk
	for _, d := range node.Disks {
		if d.Name == v.Device.Name {
			disk = d
		}
		if v.Config.MetadataDevice != "" && d.Answers(v.Config.MetadataDevice) {
			meta = d
		}
	}
	per := max(v.Config.OSDsPerDevice, 1)
	for range per {
		uuid := w.Ceph.NewUUID()
		key, err := identity.NewKey(rand.Reader, identity.AES256K, time.Now())
		if err != nil {
			return err
		}
		id, err := cephosd.New(w.Ceph).NewOSD(ctx, uuid, -1, cephosd.Secrets{CephxSecret: key})
		if err != nil {
			return err
		}
		osd := device.OSD{ID: id, UUID: uuid, FSID: fsid, Role: device.RoleBlock}
		disk.Volumes = append(disk.Volumes, Volume{OSD: osd, VG: "ceph-" + disk.Serial, Name: "osd-block-" + uuid, UUID: "lv-" + uuid, Size: disk.Size / uint64(per), Encrypted: v.Config.Encrypted})
		node.needs(uuid, device.RoleBlock)
		if meta != nil {
			osd.Role = device.RoleDB
			meta.Volumes = append(meta.Volumes, Volume{OSD: osd, VG: "ceph-" + meta.Serial, Name: "osd-db-" + uuid, UUID: "lv-db-" + uuid, Size: 1 << 30, Encrypted: v.Config.Encrypted})
			node.needs(uuid, device.RoleBlock, device.RoleDB)
		}
	}
	return nil
}

// rebuild makes an OSD anew on volumes: on its share of a new disk, or on its old disk
// with a database on a new one. It refuses what castellan-node refuses.
func (w *World) rebuild(ctx context.Context, node *Node, disk *Disk, req request.Replace, uuid string, key ceph.Secret, replaced *request.Replaced) error {
	osd := device.OSD{ID: req.OSD, UUID: uuid, FSID: req.FSID, Role: device.RoleBlock}
	block := Volume{OSD: osd, VG: "ceph-" + disk.Serial, Name: volume.BlockName(req.FSID, req.OldUUID), UUID: "lv-" + uuid, Size: disk.Size, Encrypted: req.Encrypted}
	keep := disk.Volumes
	if req.Data != nil {
		i := slices.IndexFunc(disk.Volumes, func(v Volume) bool { return v.VG == req.Data.VG && v.Name == req.Data.Name })
		if i < 0 || disk.Volumes[i].UUID != req.Data.UUID || disk.Volumes[i].OSD.UUID != req.OldUUID || disk.Volumes[i].OSD.ID != req.OSD {
			return fmt.Errorf("%s/%s on %s is not the destroyed osd.%d's", req.Data.VG, req.Data.Name, req.Device, req.OSD)
		}
		block.VG, block.Size = req.Data.VG, req.Data.Size
		keep = slices.Delete(slices.Clone(disk.Volumes), i, i+1)
	}
	if n := len(req.Set); n > 0 {
		ours := map[string]bool{}
		for _, old := range req.Set {
			ours[volume.BlockName(req.FSID, old)] = true
		}
		for _, v := range disk.Volumes {
			if !ours[v.Name] || v.Name == block.Name {
				return fmt.Errorf("%s holds %s, which is not of this replacement, or made already", req.Device, v.Name)
			}
		}
		block.Size = disk.Size / uint64(n)
	}
	db, err := node.database(req)
	if err != nil {
		return err
	}
	if _, err := cephosd.New(w.Ceph).NewOSD(ctx, uuid, req.OSD, cephosd.Secrets{CephxSecret: key}); err != nil {
		return err
	}
	disk.Volumes = append(keep, block)
	node.needs(uuid, device.RoleBlock)
	if db != nil {
		osd.Role = device.RoleDB
		db.Volumes = slices.DeleteFunc(db.Volumes, func(v Volume) bool { return v.OSD.UUID == req.OldUUID })
		db.Volumes = append(db.Volumes, Volume{OSD: osd, VG: "ceph-" + db.Serial, Name: req.DB.Name, UUID: "lv-db-" + uuid, Size: req.DB.Size, Encrypted: req.Encrypted})
		node.needs(uuid, device.RoleBlock, device.RoleDB)
	}
	replaced.UUID = uuid
	w.replacements.Made = append(w.replacements.Made, disk.Serial)
	if req.DBDevice != "" {
		w.replacements.Made = append(w.replacements.Made, db.Serial)
	}
	return nil
}

// database is the disk that the database is made on: the new one, or the one where it is.
func (n *Node) database(req request.Replace) (*Disk, error) {
	if req.DB == nil {
		return nil, nil
	}
	for _, d := range n.Disks {
		switch {
		case req.DBDevice != "" && d.Answers(req.DBDevice):
			if req.DBSerial != "" && d.Serial != req.DBSerial || d.OSD != nil || slices.ContainsFunc(d.Volumes, func(v Volume) bool { return v.OSD.Role == device.RoleBlock || v.VG != "ceph-"+d.Serial }) {
				return nil, fmt.Errorf("%s is not the metadata device that is meant", req.DBDevice)
			}
			return d, nil
		case req.DBDevice == "" && slices.ContainsFunc(d.Volumes, func(v Volume) bool {
			return v.VG == req.DB.VG && v.Name == req.DB.Name && v.UUID == req.DB.UUID && v.OSD.UUID == req.OldUUID
		}):
			return d, nil
		}
	}
	return nil, fmt.Errorf("the volume group %s of the database is not on this node", req.DB.VG)
}

// zap removes volumes of a purged OSD.
func (n *Node) zap(req request.Zap) {
	for _, d := range n.Disks {
		d.Volumes = slices.DeleteFunc(d.Volumes, func(v Volume) bool {
			return v.OSD.UUID == req.UUID && slices.ContainsFunc(req.LVs, func(l request.LV) bool { return l.VG == v.VG && l.Name == v.Name && l.UUID == v.UUID })
		})
	}
}

// Disks of a node.
func (w *World) Disks(node string) []*Disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[node]; n != nil {
		return slices.Clone(n.Disks)
	}
	return nil
}
