package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// KeyType is a key of the per-daemon maps of a CephCluster: placement,
// resources, annotations, labels, priorityClassNames and probes.
type KeyType string

// Keys of the per-daemon maps. KeyAll is the base for all daemons: a daemon's
// own key adds to it (placement, labels, annotations) or replaces it
// (priority class).
const (
	KeyAll                       KeyType = "all"
	KeyMon                       KeyType = "mon"
	KeyMonArbiter                KeyType = "arbiter"
	KeyMgr                       KeyType = "mgr"
	KeyDashboard                 KeyType = "dashboard"
	KeyOSD                       KeyType = "osd"
	KeyOSDPrepare                KeyType = "prepareosd"
	KeyRotation                  KeyType = "keyrotation"
	KeyMds                       KeyType = "mds"
	KeyRgw                       KeyType = "rgw"
	KeyCleanup                   KeyType = "cleanup"
	KeyMonitoring                KeyType = "monitoring"
	KeyCrashCollector            KeyType = "crashcollector"
	KeyCephExporter              KeyType = "exporter"
	KeyClusterMetadata           KeyType = "clusterMetadata"
	KeyCmdReporter               KeyType = "cmdreporter"
	KeyStatus                    KeyType = "status"
	ResourcesKeyMon                      = "mon"
	ResourcesKeyMgr                      = "mgr"
	ResourcesKeyMgrSidecar               = "mgr-sidecar"
	ResourcesKeyOSD                      = "osd"
	ResourcesKeyOSDPrefix                = "osd-" // followed by the device class
	ResourcesKeyPrepareOSD               = "prepareosd"
	ResourcesKeyCmdReporter              = "cmd-reporter"
	ResourcesKeyMDS                      = "mds"
	ResourcesKeyCrashCollector           = "crashcollector"
	ResourcesKeyLogCollector             = "logcollector"
	ResourcesKeyRBDMirror                = "rbdmirror"
	ResourcesKeyFilesystemMirror         = "fsmirror"
	ResourcesKeyCleanup                  = "cleanup"
	ResourcesKeyCephExporter             = "exporter"
	// ResourcesKeyFloatingMonShutdown is for the container that stops the
	// floating mon in time on a node that goes down.
	ResourcesKeyFloatingMonShutdown = "floating-mon-shutdown"
)

// Annotations are added to the pods and Deployments of a daemon.
type Annotations map[string]string

// AnnotationsSpec holds annotations per daemon type.
type AnnotationsSpec map[KeyType]Annotations

// Labels are added to the pods and Deployments of a daemon.
type Labels map[string]string

// LabelsSpec holds labels per daemon type.
type LabelsSpec map[KeyType]Labels

// PriorityClassNamesSpec holds the name of a PriorityClass per daemon type.
type PriorityClassNamesSpec map[KeyType]string

// ResourceSpec holds requests and limits per daemon type. Besides the names of
// the daemons it knows `osd-<device class>`, which goes before `osd`.
type ResourceSpec map[string]corev1.ResourceRequirements

// PlacementSpec holds placement per daemon type.
type PlacementSpec map[KeyType]Placement

// Placement says on which nodes pods may run. A change moves pods one at a
// time as far as the daemon allows; OSDs on host devices stay where their disk is.
type Placement struct {
	// NodeAffinity chooses nodes by their labels.
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	// PodAffinity puts pods near to other pods.
	PodAffinity *corev1.PodAffinity `json:"podAffinity,omitempty"`
	// PodAntiAffinity keeps pods away from other pods.
	PodAntiAffinity *corev1.PodAntiAffinity `json:"podAntiAffinity,omitempty"`
	// Tolerations let pods run on tainted nodes.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// TopologySpreadConstraints spread pods over zones, racks or other domains.
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// ForDaemon gives the placement of one daemon type: the base of KeyAll with
// what the daemon's own key says on top (see Merge).
func (p PlacementSpec) ForDaemon(key KeyType) Placement {
	return p[KeyAll].Merge(p[key])
}

// Merge gives this placement with another on top: an affinity that is set in
// the other one replaces ours, lists of tolerations are joined, and spread
// constraints of the other replace ours when there are any.
func (p Placement) Merge(with Placement) Placement {
	out := *p.DeepCopy()
	top := with.DeepCopy()
	if top.NodeAffinity != nil {
		out.NodeAffinity = top.NodeAffinity
	}
	if top.PodAffinity != nil {
		out.PodAffinity = top.PodAffinity
	}
	if top.PodAntiAffinity != nil {
		out.PodAntiAffinity = top.PodAntiAffinity
	}
	out.Tolerations = append(out.Tolerations, top.Tolerations...)
	if len(top.TopologySpreadConstraints) > 0 {
		out.TopologySpreadConstraints = top.TopologySpreadConstraints
	}
	return out
}

// ForDaemon gives the annotations of one daemon type: those of KeyAll with the
// daemon's own on top.
func (a AnnotationsSpec) ForDaemon(key KeyType) Annotations {
	return mergeStrings(a[KeyAll], a[key])
}

// ForDaemon gives the labels of one daemon type: those of KeyAll with the
// daemon's own on top.
func (l LabelsSpec) ForDaemon(key KeyType) Labels {
	return mergeStrings(l[KeyAll], l[key])
}

// ForDaemon gives the priority class of one daemon type, or that of KeyAll.
func (p PriorityClassNamesSpec) ForDaemon(key KeyType) string {
	if name, ok := p[key]; ok {
		return name
	}
	return p[KeyAll]
}

func mergeStrings[M ~map[string]string](base, top M) M {
	if len(base)+len(top) == 0 {
		return nil
	}
	out := make(M, len(base)+len(top))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range top {
		out[k] = v
	}
	return out
}

// ForOSD gives the resources of an OSD of a device class: the entry
// `osd-<class>` when there is one, else the entry `osd`.
func (r ResourceSpec) ForOSD(deviceClass string) corev1.ResourceRequirements {
	if deviceClass != "" {
		if res, ok := r[ResourcesKeyOSDPrefix+deviceClass]; ok {
			return res
		}
	}
	return r[ResourcesKeyOSD]
}

// ProbeSpec changes or switches off one probe of a daemon.
type ProbeSpec struct {
	// Disabled takes the probe away from the pods.
	Disabled bool `json:"disabled,omitempty"`
	// Probe replaces the timings of the built-in probe; a handler given here
	// replaces the built-in check too.
	Probe *corev1.Probe `json:"probe,omitempty"`
}
