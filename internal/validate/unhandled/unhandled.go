// Package unhandled knows the fields of a CephCluster that are accepted, since users
// keep their manifests, and that nothing acts on yet. A field that is set in vain is
// worse than one that is refused: its user believes in it. So each is told, with what
// happens instead.
//
// It is pure, and it is the only list: what is built leaves it. It must not judge values;
// that is the schema's and the subjects' own work.
package unhandled

import (
	"fmt"
	"strings"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/validate/storageconfig"
)

// Field is one field that is set and not acted on.
type Field struct {
	// Path of the field, as a person would write it.
	Path string
	// Instead says what is the case without it.
	Instead string
	// Founding says that a cluster made without it would be another one than was asked
	// for, and could not become it later. Such a cluster is not founded.
	Founding bool
}

// String is the field as one clause of a message.
func (f Field) String() string { return f.Path + ": " + f.Instead }

// Join gives the fields as the text of a condition.
func Join(fields []Field) string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.String()
	}
	return strings.Join(out, "; ")
}

// Blocking is the first field without which no cluster must be founded, or nil.
func Blocking(spec *cephv1.ClusterSpec) *Field {
	for _, f := range Fields(spec) {
		if f.Founding {
			return &f
		}
	}
	return nil
}

// Fields finds what is set in vain, in the order of the spec. A field that is set to
// its default asks for nothing and is not listed.
func Fields(spec *cephv1.ClusterSpec) []Field {
	var out []Field
	add := func(set bool, path, instead string) {
		if set {
			out = append(out, Field{Path: path, Instead: instead})
		}
	}
	shape := func(set bool, path, instead string) {
		if set {
			out = append(out, Field{Path: path, Instead: instead, Founding: true})
		}
	}
	mon := &spec.Mon
	shape(mon.StretchCluster != nil && len(mon.StretchCluster.Zones) > 0, "spec.mon.stretchCluster", "stretch mode is not handled yet; mons would be spread over the zones without a tiebreaker")
	shape(mon.FloatingMon != nil, "spec.mon.floatingMon", "a floating mon is not handled yet")
	add(spec.RemoveOSDsIfOutAndSafeToRemove, "spec.removeOSDsIfOutAndSafeToRemove", "no OSD is removed by itself; it stays out until it is replaced or given up")
	network(spec, add, shape)
	storage(&spec.Storage, add)
	security(&spec.Security, add)
	add(spec.CleanupPolicy.WipeDevicesFromOtherClusters, "spec.cleanupPolicy.wipeDevicesFromOtherClusters", "disks that hold an OSD of another cluster are left alone; wipe them by hand")
	return out
}

type adder func(set bool, path, instead string)

func network(spec *cephv1.ClusterSpec, add, shape adder) {
	n := &spec.Network
	shape(n.Provider == cephv1.NetworkProviderMultus, "spec.network.provider", "multus is not handled yet; daemons would get no further interface")
	shape(n.MultiClusterService.Enabled, "spec.network.multiClusterService", "Services are not exported to other Kubernetes clusters yet, and mons would have addresses that these cannot reach")
	add(len(spec.Monitoring.ExternalMgrEndpoints) > 0, "spec.monitoring.externalMgrEndpoints", "it is about external clusters, which are not handled yet")
}

func storage(s *cephv1.StorageScopeSpec, add adder) {
	config(s.Config, "spec.storage.config", add)
	devices(s.Devices, "spec.storage.devices", add)
	for i := range s.Nodes {
		at := fmt.Sprintf("spec.storage.nodes[%d]", i)
		config(s.Nodes[i].Config, at+".config", add)
		devices(s.Nodes[i].Devices, at+".devices", add)
		add(len(s.Nodes[i].VolumeClaimTemplates) > 0, at+".volumeClaimTemplates", "no OSD is made from a PVC yet")
	}
	add(len(s.VolumeClaimTemplates) > 0, "spec.storage.volumeClaimTemplates", "no OSD is made from a PVC yet")
	add(len(s.StorageClassDeviceSets) > 0, "spec.storage.storageClassDeviceSets", "no OSD is made from a PVC yet; OSDs on host devices are not affected")
	add(s.FlappingRestartIntervalHours > 0, "spec.storage.flappingRestartIntervalHours", "an OSD that was marked down too often starts again by Kubernetes' own back-off, of at most five minutes")
	add(s.Store.Type != "" && s.Store.Type != string(cephv1.StoreTypeBlueStore), "spec.storage.store.type", "OSDs are made with bluestore")
	add(s.Store.UpdateStore != "", "spec.storage.store.updateStore", "existing OSDs keep their store")
	add(s.Migration.Confirmation != "", "spec.storage.migration", "existing OSDs are not made anew; replace their disks one after another instead")
}

func devices(list []cephv1.Device, path string, add adder) {
	for i := range list {
		config(list[i].Config, fmt.Sprintf("%s[%d].config", path, i), add)
	}
}

// config is a map of settings of new OSDs; what cannot be read in it is told elsewhere.
func config(m map[string]string, path string, add adder) {
	given, _ := storageconfig.Parse(m)
	add(given.WalSizeMB > 0, path+"["+storageconfig.WalSizeMB+"]", "the write-ahead log has no volume of its own; it lies in the database's, or on the data device")
	add(given.StoreType != "" && given.StoreType != string(cephv1.StoreTypeBlueStore), path+"["+storageconfig.StoreType+"]", "OSDs are made with bluestore")
}

func security(s *cephv1.ClusterSecuritySpec, add adder) {
	add(s.KeyManagementService.IsEnabled(), "spec.security.kms", "keys of encrypted OSDs on host devices are in the mons; none is put into a key management service")
	add(s.KeyRotation.Enabled, "spec.security.keyRotation", "the keys of encrypted disks are not rotated yet")
	add(s.CephX.Daemon.KeyRotationPolicy == cephv1.KeyGenerationCephxKeyRotationPolicy, "spec.security.cephx.daemon", "the cephx keys of daemons are not rotated yet; those of CSI users are, by spec.security.cephx.csi")
	add(s.CephX.RBDMirrorPeer.KeyRotationPolicy == cephv1.KeyGenerationCephxKeyRotationPolicy, "spec.security.cephx.rbdMirrorPeer", "the keys of mirroring peers are not rotated yet")
	add(len(s.CephX.AllowedCiphers) > 0, "spec.security.cephx.allowedCiphers", "the mons keep the list of ciphers with which they were founded")
}
