package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// DefaultOSDMaxUpdatesInParallel is how many OSDs are restarted at once when
// the spec does not say.
const DefaultOSDMaxUpdatesInParallel = 20

// StorageScopeSpec chooses the disks that become OSDs, on the nodes and from
// PVCs. Taking a disk out of the choice never removes its OSD.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nearFullRatio) || !has(self.fullRatio) || self.nearFullRatio <= self.fullRatio",message="storage.nearFullRatio cannot be above fullRatio; write for instance nearFullRatio 0.85 and fullRatio 0.95"
// +kubebuilder:validation:XValidation:rule="!has(self.backfillFullRatio) || !has(self.fullRatio) || self.backfillFullRatio <= self.fullRatio",message="storage.backfillFullRatio cannot be above fullRatio; write for instance backfillFullRatio 0.9 and fullRatio 0.95"
// +kubebuilder:validation:XValidation:rule="!has(self.nearFullRatio) || !has(self.backfillFullRatio) || self.nearFullRatio <= self.backfillFullRatio",message="storage.nearFullRatio cannot be above backfillFullRatio; write for instance nearFullRatio 0.85 and backfillFullRatio 0.9"
type StorageScopeSpec struct {
	// UseAllNodes takes every node that the placement of OSDs allows; `nodes`
	// is then not looked at.
	UseAllNodes bool `json:"useAllNodes,omitempty"`
	// Nodes are nodes by name, each with its own choice of disks.
	//
	// +nullable
	Nodes []Node `json:"nodes,omitempty"`
	// Selection is the choice of disks on nodes that make none themselves.
	Selection `json:",inline"`
	// Config are settings of new OSDs, by name: databaseSizeMB, walSizeMB,
	// osdsPerDevice, encryptedDevice, metadataDevice, deviceClass,
	// initialWeight, primaryAffinity, crushRoot, storeType. Settings of a node
	// go before these, those of a device before both. OSDs that exist keep what
	// they were made with.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Config map[string]string `json:"config,omitempty"`
	// StorageClassDeviceSets make OSDs from PVCs.
	//
	// +nullable
	StorageClassDeviceSets []StorageClassDeviceSet `json:"storageClassDeviceSets,omitempty"`
	// OnlyApplyOSDPlacement places OSDs of device sets by placement.osd alone,
	// without placement.all. Default: off.
	OnlyApplyOSDPlacement bool `json:"onlyApplyOSDPlacement,omitempty"`
	// ScheduleAlways starts OSD pods also on nodes that are not ready or
	// unschedulable just now. Default: off.
	ScheduleAlways bool `json:"scheduleAlways,omitempty"`
	// Store is how new OSDs keep data.
	Store OSDStore `json:"store,omitzero"`
	// Migration makes existing OSDs anew, one after another, when what they are
	// made of changes (the store, or encryption).
	Migration Migration `json:"migration,omitzero"`
	// FlappingRestartIntervalHours is how long, in hours, an OSD that went down
	// too often stays down before its container starts again. 0: at once.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 8760",message="flappingRestartIntervalHours must be from 0 to 8760 hours; write for instance 24"
	FlappingRestartIntervalHours int `json:"flappingRestartIntervalHours,omitempty"`
	// OSDMaxUpdatesInParallel is how many OSDs of one failure domain may restart
	// at once in an update, as far as Ceph calls it safe. Default: 20.
	//
	// +kubebuilder:validation:Minimum=1
	OSDMaxUpdatesInParallel int32 `json:"osdMaxUpdatesInParallel,omitempty"`
	// AllowDeviceClassUpdate lets a changed deviceClass in the config apply to
	// OSDs that exist. Data moves with it. Default: off.
	AllowDeviceClassUpdate bool `json:"allowDeviceClassUpdate,omitempty"`
	// AllowOsdCrushWeightUpdate raises an OSD's CRUSH weight after its volume
	// grew. Data moves with it. Default: off.
	AllowOsdCrushWeightUpdate bool `json:"allowOsdCrushWeightUpdate,omitempty"`
	// FullRatio is the used share of an OSD from 0 to 1 at which Ceph refuses
	// writes. Default of Ceph: 0.95.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	// +nullable
	FullRatio *float64 `json:"fullRatio,omitempty"`
	// NearFullRatio is the used share at which Ceph warns. Default of Ceph: 0.85.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	// +nullable
	NearFullRatio *float64 `json:"nearFullRatio,omitempty"`
	// BackfillFullRatio is the used share at which an OSD takes no more data
	// from others. Default of Ceph: 0.90.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	// +nullable
	BackfillFullRatio *float64 `json:"backfillFullRatio,omitempty"`
}

// Node is the choice of disks on one node.
type Node struct {
	// Name is the node's value of the label kubernetes.io/hostname.
	Name string `json:"name,omitempty"`
	// Resources are the requests and limits of the OSDs of this node, in place
	// of those of the cluster.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// Config are settings of new OSDs of this node.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Config map[string]string `json:"config,omitempty"`
	// Selection is the choice of disks of this node.
	Selection `json:",inline"`
}

// Selection chooses disks. The most exact way that is given wins: devices,
// then deviceFilter, then devicePathFilter, then useAllDevices. Only empty
// disks are taken, unless one is named and already belongs to this cluster.
type Selection struct {
	// UseAllDevices takes every empty disk. Default: off on the cluster.
	UseAllDevices *bool `json:"useAllDevices,omitempty"`
	// DeviceFilter is a regular expression (RE2) for the kernel name of a disk,
	// for instance ^sd[b-f].
	DeviceFilter string `json:"deviceFilter,omitempty"`
	// DevicePathFilter is a regular expression (RE2) for a path of a disk under
	// /dev, for instance ^/dev/disk/by-path/pci-.*
	DevicePathFilter string `json:"devicePathFilter,omitempty"`
	// Devices are disks by name.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Devices []Device `json:"devices,omitempty"`
	// VolumeClaimTemplates are the claims of OSDs on PVCs of a node. Only
	// device sets use them.
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`
}

// Device is one disk, partition or logical volume.
type Device struct {
	// Name is the kernel name, such as sdb or nvme0n1, or a path under /dev,
	// best a stable one such as /dev/disk/by-id/... . A logical volume is
	// written as /dev/<group>/<volume>. No part of the path may start with '.'
	// or '-', or hold blanks or characters with a meaning to a shell.
	//
	// +kubebuilder:validation:Pattern=`^$|^(/dev/)?[^-/.\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f][^/\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f]*(/[^-/.\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f][^/\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f]*)*$`
	Name string `json:"name,omitempty"`
	// FullPath is a path of the disk under /dev that goes before the name.
	//
	// +kubebuilder:validation:Pattern=`^$|^/dev/[^-/.\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f][^/\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f]*(/[^-/.\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f][^/\s;&|<>$"'(){}*?!\x60\x00-\x1f\x7f]*)*$`
	FullPath string `json:"fullpath,omitempty"`
	// Config are settings of the OSD on this disk.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Config map[string]string `json:"config,omitempty"`
}

// StorageClassDeviceSet is a number of OSDs that are alike, each on PVCs of its
// own.
type StorageClassDeviceSet struct {
	// Name of the set. It becomes part of the names of the claims.
	Name string `json:"name"`
	// Count is the number of OSDs. A lower count does not remove OSDs.
	//
	// +kubebuilder:validation:Minimum=1
	Count int `json:"count"`
	// Resources are the requests and limits of the OSDs of this set.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// Placement of the OSDs of this set.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Placement Placement `json:"placement,omitzero"`
	// PreparePlacement is for the Jobs that prepare the volumes, and so decides
	// where a volume that is bound at first use comes to lie. Default: placement.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	PreparePlacement *Placement `json:"preparePlacement,omitempty"`
	// Config are settings of new OSDs of this set.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Config map[string]string `json:"config,omitempty"`
	// VolumeClaimTemplates are the claims of one OSD: `data`, and if wanted
	// `metadata` and `wal`. They must have the volume mode Block. The
	// annotations crushDeviceClass, crushInitialWeight and crushPrimaryAffinity
	// on `data` say how Ceph sees the OSD.
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates"`
	// Portable lets an OSD move to another node with its volume; its place in
	// the CRUSH map is then the zone rather than a host. Default: off.
	Portable bool `json:"portable,omitempty"`
	// TuneSlowDeviceClass suits the OSDs to slow disks. Default: off.
	TuneSlowDeviceClass bool `json:"tuneDeviceClass,omitempty"`
	// TuneFastDeviceClass suits the OSDs to fast disks such as NVMe. Default: off.
	TuneFastDeviceClass bool `json:"tuneFastDeviceClass,omitempty"`
	// SchedulerName is the scheduler for the OSD pods. Default: that of the cluster.
	SchedulerName string `json:"schedulerName,omitempty"`
	// Encrypted encrypts the volumes with LUKS; keys are kept as security.kms
	// says. OSDs that exist change only by migration. Default: off.
	Encrypted bool `json:"encrypted,omitempty"`
}

// StoreType is how an OSD keeps its data on disk.
type StoreType string

const (
	// StoreTypeBlueStore is the store of all supported Ceph releases.
	StoreTypeBlueStore StoreType = "bluestore"
	// StoreTypeBlueStoreRDR is a build of it with further functions for
	// disaster recovery; only some Ceph images have it.
	StoreTypeBlueStoreRDR StoreType = "bluestore-rdr"
)

// OSDStore is how new OSDs keep data.
type OSDStore struct {
	// Type of store of new OSDs. Default: bluestore.
	//
	// +kubebuilder:validation:Enum=bluestore;bluestore-rdr
	Type string `json:"type,omitempty"`
	// UpdateStore yes-really-update-store makes OSDs of another type anew, one
	// after another.
	//
	// +kubebuilder:validation:Pattern=`^$|^yes-really-update-store$`
	UpdateStore string `json:"updateStore,omitempty"`
}

// UpdateStoreConfirmation is the word for storage.store.updateStore.
const UpdateStoreConfirmation = "yes-really-update-store"

// Migration makes OSDs anew.
type Migration struct {
	// Confirmation yes-really-migrate-osds allows OSDs to be destroyed and made
	// anew one at a time, each after its data was copied elsewhere.
	//
	// +kubebuilder:validation:Pattern=`^$|^yes-really-migrate-osds$`
	Confirmation string `json:"confirmation,omitempty"`
}

// MigrationConfirmation is the word for storage.migration.confirmation.
const MigrationConfirmation = "yes-really-migrate-osds"

// IsMigrationAllowed reports whether OSDs may be destroyed and made anew, by
// either confirmation.
func (s *StorageScopeSpec) IsMigrationAllowed() bool {
	return s.Migration.Confirmation == MigrationConfirmation || s.Store.UpdateStore == UpdateStoreConfirmation
}

// EffectiveStoreType gives the store of new OSDs or its default, bluestore.
func (s *StorageScopeSpec) EffectiveStoreType() StoreType {
	if s.Store.Type == "" {
		return StoreTypeBlueStore
	}
	return StoreType(s.Store.Type)
}

// EffectiveOSDMaxUpdatesInParallel gives how many OSDs may restart at once.
func (s *StorageScopeSpec) EffectiveOSDMaxUpdatesInParallel() int {
	if s.OSDMaxUpdatesInParallel < 1 {
		return DefaultOSDMaxUpdatesInParallel
	}
	return int(s.OSDMaxUpdatesInParallel)
}

// GetUseAllDevices reports whether every empty disk is taken; unset means no.
func (s *Selection) GetUseAllDevices() bool {
	return s.UseAllDevices != nil && *s.UseAllDevices
}

// IsEmpty reports whether the selection says nothing about disks.
func (s *Selection) IsEmpty() bool {
	return s.UseAllDevices == nil && s.DeviceFilter == "" && s.DevicePathFilter == "" && len(s.Devices) == 0
}

// ResolveNode gives the choice of disks, settings and resources that hold for
// a node: its own selection when it makes one, else that of the cluster; its
// settings on top of those of the cluster. It reports false when the node is
// not chosen. With useAllNodes every node is chosen and `nodes` says nothing.
func (s *StorageScopeSpec) ResolveNode(name string) (Node, bool) {
	if s.UseAllNodes {
		return Node{
			Name:      name,
			Selection: *s.Selection.DeepCopy(),
			Config:    mergeStrings(s.Config, nil),
		}, true
	}
	for i := range s.Nodes {
		if s.Nodes[i].Name != name {
			continue
		}
		node := *s.Nodes[i].DeepCopy()
		if node.IsEmpty() {
			node.Selection = *s.Selection.DeepCopy()
		}
		node.Config = mergeStrings(s.Config, node.Config)
		return node, true
	}
	return Node{}, false
}

// ConfigFor gives the settings of the OSD on a device: those of the node with
// the device's own on top.
func (n *Node) ConfigFor(d Device) map[string]string {
	return mergeStrings(n.Config, d.Config)
}

// Path gives the path of the device under /dev, from fullpath or name.
func (d Device) Path() string {
	if d.FullPath != "" {
		return d.FullPath
	}
	if d.Name == "" || d.Name[0] == '/' {
		return d.Name
	}
	return "/dev/" + d.Name
}
