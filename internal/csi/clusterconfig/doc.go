// Package clusterconfig reads and writes the two files through which Ceph CSI
// drivers learn about clusters: config.json (one record per client profile) and
// cluster-mapping.json (pairs of profiles), both keys of the ConfigMap
// ceph-csi-config.
//
// config.json is shared with people and other programs. Records and keys that
// this package does not know survive byte for byte, and a file that is no valid
// JSON is an error, never something to overwrite. cluster-mapping.json belongs to
// the operator alone and is always written as a whole.
//
// The package is pure: values in, bytes out. It must not read or write a
// ConfigMap; that is for the controllers.
package clusterconfig

// Names in Kubernetes and on the drivers' file system.
const (
	// ConfigMapName is the ConfigMap that drivers mount at /etc/ceph-csi-config.
	ConfigMapName = "ceph-csi-config"
	// ConfigKey holds one record per client profile.
	ConfigKey = "config.json"
	// MappingKey holds the pairs of client profiles.
	MappingKey = "cluster-mapping.json"
)
