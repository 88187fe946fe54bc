// Package clientprofile builds the objects by which CSI drivers find a CephCluster:
// its CephConnection, its default ClientProfile, and the profiles of RADOS namespaces
// and subvolume groups in it.
//
// It is pure. All profiles of a cluster are built here, so that what the CephCluster
// says of them reaches each. It must not decide whether they are to exist, and knows
// nothing of what becomes of them in the drivers' configuration.
package clientprofile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/release"
)

// Secrets with the drivers' users, in the namespace of the CephCluster. The names are
// part of what StorageClasses refer to.
const (
	SecretRBDProvisioner    = "rook-csi-rbd-provisioner"
	SecretRBDNode           = "rook-csi-rbd-node"
	SecretCephFSProvisioner = "rook-csi-cephfs-provisioner"
	SecretCephFSNode        = "rook-csi-cephfs-node"
)

// ClusterAnnotation on a CephConnection names the CephCluster that it leads to, as
// namespace/name.
const ClusterAnnotation = "castellan.ceph.io/ceph-cluster"

// Cluster is a CephCluster as its profiles need it.
type Cluster struct {
	// Namespace of the CephCluster, which is also the name of its connection and of its
	// default profile: the clusterID of its volumes.
	Namespace, Name string
	// Drivers is the namespace of the operator, where drivers and profiles are.
	Drivers string
	// Kernel and Fuse are mount options for CephFS, by name.
	Kernel, Fuse map[string]string
	// Owner makes connection and profile go with the CephCluster; nil where they are in
	// another namespace, where no owner reference can reach.
	Owner *metav1.OwnerReference
}

// Of takes what is needed from a CephCluster. drivers is the operator's namespace.
func Of(cl *cephv1.CephCluster, drivers string) Cluster {
	c := Cluster{Namespace: cl.Namespace, Name: cl.Name, Drivers: drivers, Kernel: Kernel(&cl.Spec), Fuse: Options(cl.Spec.CSI.CephFS.FuseMountOptions)}
	if cl.Namespace == drivers {
		// Not the controller of them, and no reason to hold the CephCluster's deletion up.
		c.Owner = &metav1.OwnerReference{APIVersion: cephv1.SchemeGroupVersion.String(), Kind: "CephCluster", Name: cl.Name, UID: cl.UID}
	}
	return c
}

// Options reads mount options as mount(8) takes them: name=value and bare names, joined
// by commas.
func Options(text string) map[string]string {
	options := map[string]string{}
	for _, item := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if name = strings.TrimSpace(name); name != "" {
			options[name] = value
		}
	}
	if len(options) == 0 {
		return nil
	}
	return options
}

// Kernel gives the options of kernel mounts: those of the CephCluster, with the
// messenger mode without which the kernel could not speak to its mons. The kernel's own
// choice is messenger v1.
func Kernel(spec *cephv1.ClusterSpec) map[string]string {
	const mode = "ms_mode"
	options := Options(spec.CSI.CephFS.KernelMountOptions)
	set := func(value string) {
		if options == nil {
			options = map[string]string{}
		}
		options[mode] = value
	}
	encrypted := false
	if k := spec.Network.Connections; k != nil {
		encrypted = k.Encryption != nil && k.Encryption.Enabled
	}
	switch _, chosen := options[mode]; {
	case encrypted:
		set("secure") // the daemons refuse all others
	case !chosen && !spec.External.Enable && pods.Msgr2Only(&spec.Network):
		set("prefer-crc")
	}
	return options
}

// Monitors lists the mons for drivers: in the order in which they were made, so that
// the list changes only when a mon does, and with the port of messenger v2 where it is
// the only one that is used.
func Monitors(list endpoints.List, msgr2 bool) []string {
	monitors := make([]string, 0, len(list.Mons))
	for _, id := range list.IDs() {
		addr := list.Mons[id].Addr
		if msgr2 {
			addr = netip.AddrPortFrom(addr.Addr(), endpoints.PortV2)
		}
		monitors = append(monitors, addr.String())
	}
	return monitors
}

// defaultLabels are the node labels by which OSDs are placed in the CRUSH map.
func defaultLabels() []string {
	labels := []string{"kubernetes.io/hostname", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"}
	for _, level := range []string{"chassis", "rack", "row", "pdu", "pod", "room", "datacenter"} {
		labels = append(labels, "topology.rook.io/"+level)
	}
	return labels
}

// ReadAffinity says by which labels drivers find the nearest copy, or nil. In Ceph
// 20.2.0 reading from near is known to be broken, so there it stays off; withheld says
// so.
func ReadAffinity(spec cephv1.ReadAffinitySpec, version release.Version) (affinity *csiv1.ReadAffinitySpec, withheld bool) {
	if !spec.Enabled {
		return nil, false
	}
	if version.Major == 20 && version.Minor == 2 && version.Patch == 0 {
		return nil, true
	}
	labels := slices.Clone(spec.CrushLocationLabels)
	if len(labels) == 0 {
		labels = defaultLabels()
	}
	return &csiv1.ReadAffinitySpec{CrushLocationLabels: labels}, false
}

func (c Cluster) meta(name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: c.Drivers}
	if c.Owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*c.Owner}
	}
	return m
}

// Connection builds the CephConnection. mirrors is the number of rbd-mirror daemons, 0
// for none. The mount options go along as annotations, for profiles of the cluster that
// have none of their own.
func (c Cluster) Connection(monitors []string, affinity *csiv1.ReadAffinitySpec, mirrors int) *csiv1.CephConnection {
	obj := &csiv1.CephConnection{
		TypeMeta:   metav1.TypeMeta{APIVersion: csiv1.SchemeGroupVersion.String(), Kind: "CephConnection"},
		ObjectMeta: c.meta(c.Namespace),
		Spec:       csiv1.CephConnectionSpec{Monitors: monitors, ReadAffinity: affinity, RbdMirrorDaemonCount: mirrors},
	}
	obj.Annotations = map[string]string{ClusterAnnotation: fmt.Sprintf("%s/%s", c.Namespace, c.Name)}
	for key, options := range map[string]map[string]string{
		clusterconfig.KernelMountOptionsAnnotation: c.Kernel, clusterconfig.FuseMountOptionsAnnotation: c.Fuse,
	} {
		if len(options) > 0 {
			obj.Annotations[key] = clusterconfig.MountOptions(options)
		}
	}
	return obj
}

func (c Cluster) profile(name string) *csiv1.ClientProfile {
	return &csiv1.ClientProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: csiv1.SchemeGroupVersion.String(), Kind: "ClientProfile"},
		ObjectMeta: c.meta(name),
		Spec:       csiv1.ClientProfileSpec{CephConnectionRef: corev1.LocalObjectReference{Name: c.Namespace}},
	}
}

func (c Cluster) secret(name string) corev1.SecretReference {
	return corev1.SecretReference{Name: name, Namespace: c.Namespace}
}

// Default builds the profile that StorageClasses of the cluster name as clusterID.
func (c Cluster) Default() *csiv1.ClientProfile {
	p := c.profile(c.Namespace)
	p.Spec.CephFs = &csiv1.CephFsConfigSpec{
		KernelMountOptions: c.Kernel, FuseMountOptions: c.Fuse,
		CephCsiSecrets: &csiv1.CephCsiSecretsSpec{ControllerPublishSecret: c.secret(SecretCephFSProvisioner)},
	}
	p.Spec.Rbd = &csiv1.RbdConfigSpec{CephCsiSecrets: &csiv1.CephCsiSecretsSpec{
		ControllerPublishSecret: c.secret(SecretRBDProvisioner), NodePublishSecret: c.secret(SecretRBDNode),
	}}
	return p
}

// RadosNamespace builds the profile of a RADOS namespace of RBD. id is its clusterID;
// provisioner and node name Secrets in the CephCluster's namespace, the cluster's own
// where they are empty.
func (c Cluster) RadosNamespace(id, namespace, provisioner, node string) *csiv1.ClientProfile {
	p := c.profile(id)
	p.Spec.Rbd = &csiv1.RbdConfigSpec{RadosNamespace: ptr.To(namespace), CephCsiSecrets: &csiv1.CephCsiSecretsSpec{
		ControllerPublishSecret: c.secret(or(provisioner, SecretRBDProvisioner)), NodePublishSecret: c.secret(or(node, SecretRBDNode)),
	}}
	return p
}

// SubVolumeGroup builds the profile of a subvolume group. id is its clusterID;
// radosNamespace, where the driver keeps its journal, and provisioner may be empty.
func (c Cluster) SubVolumeGroup(id, group, radosNamespace, provisioner string) *csiv1.ClientProfile {
	p := c.profile(id)
	p.Spec.CephFs = &csiv1.CephFsConfigSpec{
		SubVolumeGroup: group, KernelMountOptions: c.Kernel, FuseMountOptions: c.Fuse,
		CephCsiSecrets: &csiv1.CephCsiSecretsSpec{ControllerPublishSecret: c.secret(or(provisioner, SecretCephFSProvisioner))},
	}
	if radosNamespace != "" {
		p.Spec.CephFs.RadosNamespace = ptr.To(radosNamespace)
	}
	return p
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
