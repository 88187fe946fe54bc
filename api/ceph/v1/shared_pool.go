package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultFailureDomain is the CRUSH type over which a pool spreads its copies
// when the spec names none.
const DefaultFailureDomain = "host"

// PoolSpec describes a RADOS pool, for block storage, filesystems and object
// stores alike. A pool is either replicated or erasure coded, and stays so:
// Ceph cannot turn one into the other.
//
// A field that holds a list of PoolSpec needs a MaxItems marker (64 is more
// than Ceph can use in one filesystem), or the rules below would not fit into
// the API server's cost budget.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicated) && self.replicated.size > 0 && has(self.erasureCoded) && (self.erasureCoded.dataChunks > 0 || self.erasureCoded.codingChunks > 0))",message="replicated and erasureCoded exclude each other: a pool is one or the other; remove replicated.size, or erasureCoded"
type PoolSpec struct {
	// FailureDomain is the CRUSH type over which copies or chunks are spread:
	// host (default), osd, rack, zone, or another type of the CRUSH map. A
	// change makes a new CRUSH rule and moves data; for an erasure coded pool
	// too.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="failureDomain must be the name of a CRUSH type: letters, digits, '_', '.' and '-', not starting with '-'; write for instance host, rack or zone"
	FailureDomain string `json:"failureDomain,omitempty"`

	// CrushRoot is the CRUSH bucket under which the pool's OSDs are sought.
	// Default: the root `default`. A change moves data.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.~][A-Za-z0-9_.~-]*)?$')",message="crushRoot must be the name of a CRUSH bucket: letters, digits, '_', '.', '~' and '-', not starting with '-'; write for instance default"
	// +nullable
	CrushRoot string `json:"crushRoot,omitempty"`

	// DeviceClass limits the pool to OSDs of one class, such as hdd, ssd or
	// nvme. Default: all classes. A change moves data.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="deviceClass must be a CRUSH device class: letters, digits, '_', '.' and '-', not starting with '-'; write for instance hdd, ssd or nvme"
	// +nullable
	DeviceClass string `json:"deviceClass,omitempty"`

	// EnableCrushUpdates lets a change of failureDomain, crushRoot or
	// deviceClass of an existing pool take effect. Default: off, since it moves
	// data; the change is then reported and nothing is moved.
	//
	// +nullable
	EnableCrushUpdates *bool `json:"enableCrushUpdates,omitempty"`

	// CompressionMode is the old place of parameters.compression_mode, which
	// goes before it. Deprecated: write parameters.compression_mode.
	//
	// +kubebuilder:validation:Enum=none;passive;aggressive;force;""
	// +nullable
	CompressionMode string `json:"compressionMode,omitempty"`

	// Replicated keeps whole copies of each object.
	Replicated ReplicatedSpec `json:"replicated,omitzero"`

	// ErasureCoded cuts each object into data chunks and adds coding chunks.
	// Images and files of such a pool keep their metadata in a replicated pool.
	ErasureCoded ErasureCodedSpec `json:"erasureCoded,omitzero"`

	// Parameters are pool settings by their Ceph name (`ceph osd pool set`),
	// for instance compression_mode, pg_num or bulk. An unknown name or a value
	// of the wrong type is reported and named in a condition. A parameter that
	// is removed here goes back to Ceph's default where there is one.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Parameters map[string]string `json:"parameters,omitempty"`

	// EnableRBDStats lets the prometheus module of the mgr count per-image I/O
	// of this pool. Off by default: the number of time series grows with the
	// number of images.
	EnableRBDStats bool `json:"enableRBDStats,omitempty"`

	// Mirroring copies the RBD images of the pool to another cluster.
	Mirroring MirroringSpec `json:"mirroring,omitzero"`

	// StatusCheck says how often the state of mirroring is read.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	StatusCheck MirrorHealthCheckSpec `json:"statusCheck,omitzero"`

	// Quotas bound what the pool may hold. Writes beyond a quota are refused by
	// Ceph. Removing a quota here lifts it.
	//
	// +nullable
	Quotas QuotaSpec `json:"quotas,omitzero"`

	// Application is the tag that tells Ceph what the pool is for: rbd, cephfs,
	// rgw, nfs or a word of the user. Default: that of the kind which holds the
	// pool.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.:-]*)?$')",message="application must be letters, digits, '_', '.', ':' and '-', not starting with '-'; write for instance rbd, cephfs or rgw"
	Application string `json:"application,omitempty"`
}

// ReplicatedSpec describes a pool of whole copies.
//
// +kubebuilder:validation:XValidation:rule="!(self.size == 1 && has(self.requireSafeReplicaSize) && self.requireSafeReplicaSize)",message="replicated.size 1 keeps no second copy: write size 2 or more, or set requireSafeReplicaSize to false to accept the loss of data"
// +kubebuilder:validation:XValidation:rule="!has(self.replicasPerFailureDomain) || self.size == 0 || (self.replicasPerFailureDomain <= self.size && self.size % self.replicasPerFailureDomain == 0)",message="replicated.size must be a multiple of replicasPerFailureDomain; write for instance size 4 and replicasPerFailureDomain 2"
type ReplicatedSpec struct {
	// Size is the number of copies, the first included; 3 is the usual choice.
	// 0 leaves the kind of the pool to erasureCoded. It may change at any time:
	// Ceph makes or drops copies.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self <= 10",message="replicated.size must be from 1 to 10: Ceph takes no more copies; write for instance 3"
	Size uint `json:"size"`
	// TargetSizeRatio is the share of the cluster's data that the pool is
	// expected to hold, relative to the ratios of other pools; the PG
	// autoscaler plans with it. 0 or none: no forecast.
	//
	// +kubebuilder:validation:Minimum=0
	TargetSizeRatio float64 `json:"targetSizeRatio,omitempty"`
	// RequireSafeReplicaSize refuses a size of 1. Set it to false, and the size
	// to 1, only for data that may be lost.
	RequireSafeReplicaSize bool `json:"requireSafeReplicaSize,omitempty"`
	// ReplicasPerFailureDomain is how many copies one failure domain holds, for
	// instance 2 copies in each of 2 zones. The size must be a multiple of it.
	// Default: 1.
	//
	// +kubebuilder:validation:Minimum=1
	ReplicasPerFailureDomain uint `json:"replicasPerFailureDomain,omitempty"`
	// SubFailureDomain is the CRUSH type that keeps apart the copies inside one
	// failure domain. Default: host.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.][A-Za-z0-9_.-]*)?$')",message="subFailureDomain must be the name of a CRUSH type: letters, digits, '_', '.' and '-', not starting with '-'; write for instance host"
	SubFailureDomain string `json:"subFailureDomain,omitempty"`
	// HybridStorage puts the first copy on a faster device class than the others.
	//
	// +nullable
	HybridStorage *HybridStorageSpec `json:"hybridStorage,omitempty"`
}

// HybridStorageSpec names the device classes of a pool with a fast first copy.
type HybridStorageSpec struct {
	// PrimaryDeviceClass holds the first copy, from which clients read.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.][A-Za-z0-9_.-]*$')",message="primaryDeviceClass must be a CRUSH device class: letters, digits, '_', '.' and '-', not starting with '-'; write for instance ssd"
	PrimaryDeviceClass string `json:"primaryDeviceClass"`
	// SecondaryDeviceClass holds the other copies.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.][A-Za-z0-9_.-]*$')",message="secondaryDeviceClass must be a CRUSH device class: letters, digits, '_', '.' and '-', not starting with '-'; write for instance hdd"
	SecondaryDeviceClass string `json:"secondaryDeviceClass"`
}

// ErasureCodedSpec describes an erasure coded pool. The profile of a pool that
// exists cannot change: chunks, algorithm and stripe unit are fixed when the
// pool is made.
//
// +kubebuilder:validation:XValidation:rule="has(self.crushNumFailureDomains) == has(self.crushOSDsPerFailureDomain)",message="crushNumFailureDomains and crushOSDsPerFailureDomain belong together: set both, or none"
// +kubebuilder:validation:XValidation:rule="(self.dataChunks == 0 && self.codingChunks == 0) || (self.dataChunks >= 2 && self.codingChunks >= 1)",message="erasureCoded needs dataChunks of 2 or more and codingChunks of 1 or more; write for instance dataChunks 4 and codingChunks 2"
// +kubebuilder:validation:XValidation:rule="self.dataChunks <= 254 && self.codingChunks <= 254 && self.dataChunks + self.codingChunks <= 255",message="erasureCoded takes at most 255 chunks in all; write for instance dataChunks 4 and codingChunks 2"
type ErasureCodedSpec struct {
	// DataChunks (k) is the number of parts an object is cut into. 0 together
	// with codingChunks 0 means: not erasure coded.
	//
	// +kubebuilder:validation:Minimum=0
	DataChunks uint `json:"dataChunks"`
	// CodingChunks (m) is the number of parts added to them, and so the number
	// of OSDs or failure domains that can be lost at once without losing data.
	//
	// +kubebuilder:validation:Minimum=0
	CodingChunks uint `json:"codingChunks"`
	// Algorithm is the plugin that computes the chunks: isa or jerasure.
	// Default: that of the Ceph release.
	//
	// +kubebuilder:validation:Enum=isa;jerasure
	Algorithm string `json:"algorithm,omitempty"`
	// CrushNumFailureDomains is over how many failure domains the chunks are
	// spread when one domain holds several. Goes with
	// crushOSDsPerFailureDomain; the product must hold all chunks.
	//
	// +kubebuilder:validation:Minimum=1
	CrushNumFailureDomains int32 `json:"crushNumFailureDomains,omitempty"`
	// CrushOSDsPerFailureDomain is how many chunks, each on its own OSD, one
	// failure domain holds.
	//
	// +kubebuilder:validation:Minimum=1
	CrushOSDsPerFailureDomain int32 `json:"crushOSDsPerFailureDomain,omitempty"`
	// StripeUnit is the amount of data in one chunk of a stripe. Default: that
	// of Ceph, 4Ki. Larger units suit large sequential writes.
	//
	// +kubebuilder:validation:Enum="4Ki";"16Ki";"64Ki";"256Ki";"1Mi"
	StripeUnit *resource.Quantity `json:"stripeUnit,omitempty"`
}

// QuotaSpec bounds a pool. Ceph looks at usage in intervals, so that a pool
// can exceed its quota a little.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxObjects) || self.maxObjects >= 0",message="quotas.maxObjects cannot be negative: write a number of objects, or 0 for no limit"
// +kubebuilder:validation:XValidation:rule="!has(self.maxBytes) || self.maxBytes >= 0",message="quotas.maxBytes cannot be negative: write maxSize instead, for instance 10Gi"
type QuotaSpec struct {
	// MaxBytes is the largest amount of data in bytes. Deprecated: write
	// maxSize, which goes before it.
	MaxBytes *uint64 `json:"maxBytes,omitempty"`
	// MaxSize is the largest amount of data, as a quantity such as 10Gi. 0: no
	// limit.
	//
	// +kubebuilder:validation:Pattern=`^[0-9]+[\.]?[0-9]*([KMGTPE]i|[kMGTPE])?$`
	MaxSize *string `json:"maxSize,omitempty"`
	// MaxObjects is the largest number of RADOS objects. 0: no limit.
	MaxObjects *uint64 `json:"maxObjects,omitempty"`
}

// MirroringSpec copies the images of a pool to another cluster.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.enabled) && self.enabled) || has(self.mode)",message="mirroring.mode is needed when mirroring is enabled: write image, pool or init-only"
type MirroringSpec struct {
	// Enabled makes the pool ready for mirroring and writes the bootstrap token
	// of this cluster into a Secret. Switching it off stops mirroring of the
	// pool; images stay on both sides.
	Enabled bool `json:"enabled,omitempty"`
	// Mode is image (each image is chosen by its own), pool (every image with
	// journaling), or init-only (the peers are set up, images are mirrored
	// through their RADOS namespaces).
	//
	// +kubebuilder:validation:Enum=pool;image;init-only
	Mode string `json:"mode,omitempty"`
	// SnapshotSchedules are the times at which mirror snapshots of images are
	// taken. A schedule that is removed here is removed from Ceph.
	SnapshotSchedules []SnapshotScheduleSpec `json:"snapshotSchedules,omitempty"`
	// Peers are the other clusters.
	//
	// +nullable
	Peers *MirroringPeerSpec `json:"peers,omitempty"`
}

// SnapshotScheduleSpec says when snapshots are taken.
type SnapshotScheduleSpec struct {
	// Path is the directory of a filesystem that the schedule covers; unused
	// for pools of images.
	Path string `json:"path,omitempty"`
	// Interval between snapshots: a number with m (minutes), h (hours) or d
	// (days), for instance 1h.
	Interval string `json:"interval,omitempty"`
	// StartTime is when the first one is taken, in the form 2006-01-02T15:04:05,
	// or a time of day such as 14:00:00-05:00 for images. Default: midnight UTC.
	StartTime string `json:"startTime,omitempty"`
}

// MirroringPeerSpec names the peers of a pool or a filesystem.
type MirroringPeerSpec struct {
	// SecretNames are Secrets of this namespace that hold the bootstrap token
	// of a peer each (keys `token` and `pool`). Ceph takes one peer per pool.
	SecretNames []string `json:"secretNames,omitempty"`
}

// MirrorHealthCheckSpec says how the state of mirroring is read.
type MirrorHealthCheckSpec struct {
	// Mirror is the check of the mirroring daemons and peers.
	//
	// +nullable
	Mirror HealthCheckSpec `json:"mirror,omitzero"`
}

// HealthCheckSpec is one periodic check.
type HealthCheckSpec struct {
	// Disabled switches the check off.
	Disabled bool `json:"disabled,omitempty"`
	// Interval between two checks, for instance 60s.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="interval must be a duration, a number with a unit; write for instance 60s or 5m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout after which the check counts as failed, as a duration such as
	// 10m; 0 for never, where the check allows it.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+)?$')",message="timeout must be a duration, a number with a unit; write for instance 600s or 10m"
	Timeout string `json:"timeout,omitempty"`
}

// IsReplicated reports whether the pool keeps whole copies.
func (p *PoolSpec) IsReplicated() bool {
	return p.Replicated.Size > 0
}

// IsErasureCoded reports whether the pool keeps chunks.
func (p *PoolSpec) IsErasureCoded() bool {
	return p.ErasureCoded.DataChunks > 0 || p.ErasureCoded.CodingChunks > 0
}

// IsEmpty reports whether the spec describes no pool at all: neither copies
// nor chunks.
func (p *PoolSpec) IsEmpty() bool {
	return !p.IsReplicated() && !p.IsErasureCoded()
}

// IsHybridStoragePool reports whether the first copy has its own device class.
func (p *PoolSpec) IsHybridStoragePool() bool {
	return p.Replicated.HybridStorage != nil
}

// IsCompressionEnabled reports whether the deprecated field asks for a
// compression mode. Parameters may ask for one without it.
func (p *PoolSpec) IsCompressionEnabled() bool {
	return p.CompressionMode != ""
}

// EffectiveFailureDomain gives the failure domain or its default, host.
func (p *PoolSpec) EffectiveFailureDomain() string {
	if p.FailureDomain == "" {
		return DefaultFailureDomain
	}
	return p.FailureDomain
}

// EffectiveSubFailureDomain gives the CRUSH type inside a failure domain or
// its default, host.
func (r *ReplicatedSpec) EffectiveSubFailureDomain() string {
	if r.SubFailureDomain == "" {
		return DefaultFailureDomain
	}
	return r.SubFailureDomain
}

// SnapshotSchedulesEnabled reports whether mirror snapshots are scheduled.
func (m *MirroringSpec) SnapshotSchedulesEnabled() bool {
	return len(m.SnapshotSchedules) > 0
}
