package clusterconfig

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// Record is one client profile as the drivers read it. Field order is the order
// of the keys in the file.
type Record struct {
	ClusterID    string       `json:"clusterID"`
	Monitors     []string     `json:"monitors"`
	CephFS       CephFS       `json:"cephFS"`
	RBD          RBD          `json:"rbd"`
	NFS          NFS          `json:"nfs"`
	NVMeoF       NVMeoF       `json:"nvmeof"`
	ReadAffinity ReadAffinity `json:"readAffinity"`
	// ReplicationDestination is absent where volumes are not replicated.
	ReplicationDestination *ReplicationDestination `json:"replicationDestination,omitempty"`
}

// CephFS is the CephFS part of a Record.
type CephFS struct {
	SubvolumeGroup             string    `json:"subvolumeGroup,omitempty"`
	KernelMountOptions         string    `json:"kernelMountOptions"`
	FuseMountOptions           string    `json:"fuseMountOptions"`
	RadosNamespace             string    `json:"radosNamespace,omitempty"`
	ControllerPublishSecretRef SecretRef `json:"controllerPublishSecretRef"`
}

// RBD is the RBD part of a Record. The number of rbd-mirror daemons is written
// under two names: drivers read mirrorDaemonCount, while ceph-csi-operator writes
// mirrorCount, and tools that compare with it expect that one.
type RBD struct {
	RadosNamespace             string    `json:"radosNamespace,omitempty"`
	MirrorCount                int       `json:"mirrorCount,omitempty"`
	MirrorDaemonCount          int       `json:"mirrorDaemonCount,omitempty"`
	ControllerPublishSecretRef SecretRef `json:"controllerPublishSecretRef"`
	NodePublishSecretRef       SecretRef `json:"nodePublishSecretRef"`
}

// NFS is the NFS part of a Record; there is nothing in it.
type NFS struct{}

// NVMeoF is the NVMe-oF part of a Record.
type NVMeoF struct {
	RadosNamespace             string    `json:"radosNamespace,omitempty"`
	ControllerPublishSecretRef SecretRef `json:"controllerPublishSecretRef"`
}

// ReadAffinity says by which node labels the nearest replica is found.
type ReadAffinity struct {
	Enabled             bool     `json:"enabled,omitempty"`
	CrushLocationLabels []string `json:"crushLocationLabels,omitempty"`
}

// SecretRef names a Secret.
type SecretRef struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// ReplicationDestination says where the volumes of a profile are replicated to.
type ReplicationDestination struct {
	RemoteClusterID string          `json:"remoteClusterID"`
	RBD             *RBDDestination `json:"rbd,omitempty"`
}

// RBDDestination gives the remote pool of each local pool, by the local name.
type RBDDestination struct {
	RemotePoolMapping map[string]RemotePool `json:"remotePoolMapping,omitempty"`
}

// RemotePool is a pool of the destination cluster.
type RemotePool struct {
	// PoolID is a decimal number; a string since that is what the drivers parse.
	PoolID string `json:"poolID"`
}

// Annotations of a CephConnection with the mount options of its cluster, joined by
// commas. They go for the CephFS volumes of every profile of the connection that has
// none of its own.
const (
	KernelMountOptionsAnnotation = "castellan.ceph.io/kernel-mount-options"
	FuseMountOptionsAnnotation   = "castellan.ceph.io/fuse-mount-options"
)

// Build makes the record of a profile. replication is the one that is in effect
// for the profile, or nil.
func Build(profile *csiv1.ClientProfile, connection *csiv1.CephConnection, replication *csiv1.ClientProfileReplication) Record {
	r := Record{ClusterID: profile.Name, Monitors: slices.Clone(connection.Spec.Monitors)}
	if r.Monitors == nil {
		r.Monitors = []string{}
	}
	if fs := profile.Spec.CephFs; fs != nil {
		r.CephFS = CephFS{
			SubvolumeGroup:             fs.SubVolumeGroup,
			KernelMountOptions:         orElse(MountOptions(fs.KernelMountOptions), connection.Annotations[KernelMountOptionsAnnotation]),
			FuseMountOptions:           orElse(MountOptions(fs.FuseMountOptions), connection.Annotations[FuseMountOptionsAnnotation]),
			RadosNamespace:             deref(fs.RadosNamespace),
			ControllerPublishSecretRef: controllerSecret(fs.CephCsiSecrets),
		}
	}
	if rbd := profile.Spec.Rbd; rbd != nil {
		r.RBD = RBD{
			RadosNamespace:             deref(rbd.RadosNamespace),
			MirrorCount:                connection.Spec.RbdMirrorDaemonCount,
			MirrorDaemonCount:          connection.Spec.RbdMirrorDaemonCount,
			ControllerPublishSecretRef: controllerSecret(rbd.CephCsiSecrets),
		}
		if s := rbd.CephCsiSecrets; s != nil {
			r.RBD.NodePublishSecretRef = secretRef(s.NodePublishSecret)
		}
	}
	if nvmeof := profile.Spec.Nvmeof; nvmeof != nil {
		r.NVMeoF = NVMeoF{
			RadosNamespace:             deref(nvmeof.RadosNamespace),
			ControllerPublishSecretRef: controllerSecret(nvmeof.CephCsiSecrets),
		}
	}
	if ra := connection.Spec.ReadAffinity; ra != nil {
		r.ReadAffinity = ReadAffinity{Enabled: true, CrushLocationLabels: slices.Clone(ra.CrushLocationLabels)}
	}
	if replication != nil {
		r.ReplicationDestination = BuildDestination(replication)
	}
	return r
}

// BuildDestination makes the destination part of a record.
func BuildDestination(replication *csiv1.ClientProfileReplication) *ReplicationDestination {
	d := &ReplicationDestination{RemoteClusterID: replication.Spec.RemoteClientProfile}
	if rbd := replication.Spec.RBD; rbd != nil && len(rbd.PoolMapping) > 0 {
		d.RBD = &RBDDestination{RemotePoolMapping: make(map[string]RemotePool, len(rbd.PoolMapping))}
		for _, p := range rbd.PoolMapping {
			d.RBD.RemotePoolMapping[p.Name] = RemotePool{PoolID: p.RemoteID}
		}
	}
	return d
}

// MountOptions joins options for mount(8): sorted by name, "name=value", and just
// the name where the value is empty.
func MountOptions(options map[string]string) string {
	list := make([]string, 0, len(options))
	for name, value := range options {
		if value != "" {
			name += "=" + value
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

func controllerSecret(s *csiv1.CephCsiSecretsSpec) SecretRef {
	if s == nil {
		return SecretRef{}
	}
	return secretRef(s.ControllerPublishSecret)
}

func secretRef(s corev1.SecretReference) SecretRef {
	return SecretRef{Name: s.Name, Namespace: s.Namespace}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// encode writes a record as it stands in the file.
func (r Record) encode() (json.RawMessage, error) { return json.Marshal(r) }
