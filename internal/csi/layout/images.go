package layout

import "maps"

// Keys of an image set ConfigMap.
const (
	ImagePlugin           = "plugin"
	ImageProvisioner      = "provisioner"
	ImageAttacher         = "attacher"
	ImageResizer          = "resizer"
	ImageSnapshotter      = "snapshotter"
	ImageRegistrar        = "registrar"
	ImageSnapshotMetadata = "snapshot-metadata"
	ImageAddons           = "addons"
	// ImageExtSnapshotter has no built-in value: the container exists only where
	// an image set names one.
	ImageExtSnapshotter = "ex-snapshotter"
)

// Images is a set of container images by key.
type Images map[string]string

// BuiltInImages are used for keys that no image set names: the versions that
// ceph-csi-operator v1.1 ships with.
func BuiltInImages() Images {
	return Images{
		ImagePlugin:           "quay.io/cephcsi/cephcsi:v3.17.0",
		ImageProvisioner:      "registry.k8s.io/sig-storage/csi-provisioner:v6.2.0",
		ImageAttacher:         "registry.k8s.io/sig-storage/csi-attacher:v4.12.0",
		ImageResizer:          "registry.k8s.io/sig-storage/csi-resizer:v2.1.0",
		ImageSnapshotter:      "registry.k8s.io/sig-storage/csi-snapshotter:v8.5.0",
		ImageRegistrar:        "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0",
		ImageSnapshotMetadata: "registry.k8s.io/sig-storage/csi-snapshot-metadata:v1.0.0",
		ImageAddons:           "quay.io/csiaddons/k8s-sidecar:v0.14.0",
	}
}

// Overlay lays image sets over the built-in images, key by key, later ones over
// earlier ones. Empty values count as absent.
func Overlay(sets ...map[string]string) Images {
	images := BuiltInImages()
	for _, set := range sets {
		set = maps.Clone(set)
		maps.DeleteFunc(set, func(_, image string) bool { return image == "" })
		maps.Copy(images, set)
	}
	return images
}
