package layout

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// Built-in values, used where neither the Driver nor the OperatorConfig says
// anything.
const (
	defaultGRPCTimeout   = 150 // seconds
	defaultLeaseDuration = 137 // seconds
	defaultRenewDeadline = 107 // seconds
	defaultRetryPeriod   = 26  // seconds
	defaultMaxFiles      = 7
	defaultLogHostPath   = "/var/lib/cephcsi"
	defaultKubeletDir    = "/var/lib/kubelet"
)

// Merge gives the settings of a driver: of each field what the Driver says, else
// what the defaults of the OperatorConfig say (which may be nil), else the
// built-in value. Fields within log, log.rotation, leaderElection, nodePlugin,
// controllerPlugin and resources are merged one by one; lists, maps, affinity,
// strategies, topology, encryption and liveness are taken whole. imageSet is not
// merged: both sets of images are used, one over the other.
//
// A number that is 0 counts as absent.
func Merge(driver csiv1.DriverSpec, defaults *csiv1.DriverSpec) csiv1.DriverSpec {
	d := csiv1.DriverSpec{}
	if defaults != nil {
		d = *defaults.DeepCopy()
	}
	s := *driver.DeepCopy()
	m := csiv1.DriverSpec{
		Log:                mergeLog(s.Log, d.Log),
		ImageSet:           s.ImageSet,
		ClusterName:        first(s.ClusterName, d.ClusterName),
		GRpcTimeout:        nonZero(s.GRpcTimeout, d.GRpcTimeout, defaultGRPCTimeout),
		SnapshotPolicy:     nonZero(s.SnapshotPolicy, d.SnapshotPolicy, csiv1.VolumeSnapshotPolicy),
		GenerateOMapInfo:   first(s.GenerateOMapInfo, d.GenerateOMapInfo, ptr.To(false)),
		EnableFencing:      first(s.EnableFencing, d.EnableFencing, ptr.To(false)),
		FsGroupPolicy:      nonZero(s.FsGroupPolicy, d.FsGroupPolicy, storagev1.FileFSGroupPolicy),
		Encryption:         first(s.Encryption, d.Encryption),
		AttachRequired:     first(s.AttachRequired, d.AttachRequired, ptr.To(true)),
		Liveness:           first(s.Liveness, d.Liveness),
		LeaderElection:     mergeElection(s.LeaderElection, d.LeaderElection),
		DeployCsiAddons:    first(s.DeployCsiAddons, d.DeployCsiAddons, ptr.To(false)),
		CephFsClientType:   nonZero(s.CephFsClientType, d.CephFsClientType, csiv1.AutoDetectCephFsClient),
		KernelMountOptions: nonNil(s.KernelMountOptions, d.KernelMountOptions),
		FuseMountOptions:   nonNil(s.FuseMountOptions, d.FuseMountOptions),
		NodePlugin:         mergeNode(s.NodePlugin, d.NodePlugin),
		ControllerPlugin:   mergeController(s.ControllerPlugin, d.ControllerPlugin),
	}
	return m
}

func mergeLog(s, d *csiv1.LogSpec) *csiv1.LogSpec {
	s, d = orEmpty(s), orEmpty(d)
	m := &csiv1.LogSpec{Verbosity: min(max(nonZero(s.Verbosity, d.Verbosity), 0), 5)}
	if s.Rotation == nil && d.Rotation == nil {
		return m
	}
	sr, dr := orEmpty(s.Rotation), orEmpty(d.Rotation)
	m.Rotation = &csiv1.LogRotationSpec{
		MaxFiles:    nonZero(sr.MaxFiles, dr.MaxFiles, defaultMaxFiles),
		Periodicity: nonZero(sr.Periodicity, dr.Periodicity),
		LogHostPath: nonZero(sr.LogHostPath, dr.LogHostPath, defaultLogHostPath),
		MaxLogSize:  dr.MaxLogSize,
	}
	// Clients written in Go send "0" where nothing was said.
	if sr.MaxLogSize != nil && !sr.MaxLogSize.IsZero() {
		m.Rotation.MaxLogSize = sr.MaxLogSize
	}
	return m
}

func mergeElection(s, d *csiv1.LeaderElectionSpec) *csiv1.LeaderElectionSpec {
	s, d = orEmpty(s), orEmpty(d)
	return &csiv1.LeaderElectionSpec{
		LeaseDuration: nonZero(s.LeaseDuration, d.LeaseDuration, defaultLeaseDuration),
		RenewDeadline: nonZero(s.RenewDeadline, d.RenewDeadline, defaultRenewDeadline),
		RetryPeriod:   nonZero(s.RetryPeriod, d.RetryPeriod, defaultRetryPeriod),
	}
}

func mergePod(s, d csiv1.PodCommonSpec) csiv1.PodCommonSpec {
	return csiv1.PodCommonSpec{
		ServiceAccountName: first(s.ServiceAccountName, d.ServiceAccountName),
		PriorityClassName:  first(s.PriorityClassName, d.PriorityClassName),
		Labels:             nonNil(s.Labels, d.Labels),
		Annotations:        nonNil(s.Annotations, d.Annotations),
		Affinity:           first(s.Affinity, d.Affinity),
		Tolerations:        nonNilList(s.Tolerations, d.Tolerations),
		Volumes:            nonNilList(s.Volumes, d.Volumes),
		ImagePullPolicy:    nonZero(s.ImagePullPolicy, d.ImagePullPolicy, corev1.PullIfNotPresent),
		ContainerExtraArgs: nonNil(s.ContainerExtraArgs, d.ContainerExtraArgs),
	}
}

func mergeNode(s, d *csiv1.NodePluginSpec) *csiv1.NodePluginSpec {
	s, d = orEmpty(s), orEmpty(d)
	return &csiv1.NodePluginSpec{
		PodCommonSpec:          mergePod(s.PodCommonSpec, d.PodCommonSpec),
		UpdateStrategy:         first(s.UpdateStrategy, d.UpdateStrategy),
		KubeletDirPath:         nonZero(s.KubeletDirPath, d.KubeletDirPath, defaultKubeletDir),
		EnableSeLinuxHostMount: first(s.EnableSeLinuxHostMount, d.EnableSeLinuxHostMount, ptr.To(false)),
		Topology:               first(s.Topology, d.Topology),
		Resources: csiv1.NodePluginResourcesSpec{
			Registrar:  first(s.Resources.Registrar, d.Resources.Registrar),
			Liveness:   first(s.Resources.Liveness, d.Resources.Liveness),
			Addons:     first(s.Resources.Addons, d.Resources.Addons),
			LogRotator: first(s.Resources.LogRotator, d.Resources.LogRotator),
			Plugin:     first(s.Resources.Plugin, d.Resources.Plugin),
		},
	}
}

func mergeController(s, d *csiv1.ControllerPluginSpec) *csiv1.ControllerPluginSpec {
	s, d = orEmpty(s), orEmpty(d)
	return &csiv1.ControllerPluginSpec{
		PodCommonSpec:      mergePod(s.PodCommonSpec, d.PodCommonSpec),
		DeploymentStrategy: first(s.DeploymentStrategy, d.DeploymentStrategy),
		Replicas:           first(s.Replicas, d.Replicas),
		Privileged:         first(s.Privileged, d.Privileged),
		HostNetwork:        first(s.HostNetwork, d.HostNetwork, ptr.To(false)),
		Resources: csiv1.ControllerPluginResourcesSpec{
			Attacher:      first(s.Resources.Attacher, d.Resources.Attacher),
			Snapshotter:   first(s.Resources.Snapshotter, d.Resources.Snapshotter),
			Resizer:       first(s.Resources.Resizer, d.Resources.Resizer),
			Provisioner:   first(s.Resources.Provisioner, d.Resources.Provisioner),
			OMapGenerator: first(s.Resources.OMapGenerator, d.Resources.OMapGenerator),
			Liveness:      first(s.Resources.Liveness, d.Resources.Liveness),
			Addons:        first(s.Resources.Addons, d.Resources.Addons),
			LogRotator:    first(s.Resources.LogRotator, d.Resources.LogRotator),
			Plugin:        first(s.Resources.Plugin, d.Resources.Plugin),
		},
	}
}

// first gives the first pointer that is set.
func first[T any](list ...*T) *T {
	for _, p := range list {
		if p != nil {
			return p
		}
	}
	return nil
}

// nonZero gives the first value that is not the zero one.
func nonZero[T comparable](list ...T) T {
	var zero T
	for _, v := range list {
		if v != zero {
			return v
		}
	}
	return zero
}

// nonNil gives the first map that is set. An empty map is set: it takes the
// defaults away.
func nonNil[M ~map[K]V, K comparable, V any](list ...M) M {
	for _, m := range list {
		if m != nil {
			return m
		}
	}
	return nil
}

// nonNilList is nonNil for lists.
func nonNilList[T any](list ...[]T) []T {
	for _, l := range list {
		if l != nil {
			return l
		}
	}
	return nil
}

func orEmpty[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}
