package v1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ports of services around the daemons.
const (
	// DefaultDashboardPort is the port of the dashboard over HTTP.
	DefaultDashboardPort = 7000
	// DefaultDashboardSSLPort is the port of the dashboard over HTTPS.
	DefaultDashboardSSLPort = 8443
	// DefaultMetricsPort is the port of the prometheus module of the mgr.
	DefaultMetricsPort = 9283
	// DefaultExporterPort is the port of ceph-exporter on each node.
	DefaultExporterPort = 9926
	// DefaultOSDMaintenanceTimeout is how long a drained failure domain is
	// spared from being marked out.
	DefaultOSDMaintenanceTimeout = 30 * time.Minute
)

// DashboardSpec is the web interface of the mgr. The user is admin, the
// password is in the Secret rook-ceph-dashboard-password.
type DashboardSpec struct {
	// Enabled switches the dashboard on.
	Enabled bool `json:"enabled,omitempty"`
	// URLPrefix is the path under which it is served, for a proxy in front.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.~%/-]*$')",message="dashboard.urlPrefix must be a path of letters, digits and '_.~%/-'; write for instance /ceph-dashboard"
	URLPrefix string `json:"urlPrefix,omitempty"`
	// Port of the dashboard. 0: 8443 with ssl, 7000 without.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// SSL serves HTTPS with a self-signed certificate. Default: off in the type,
	// so write true.
	SSL bool `json:"ssl,omitempty"`
	// PrometheusEndpoint is the URL of the Prometheus from which the dashboard
	// shows graphs.
	PrometheusEndpoint string `json:"prometheusEndpoint,omitempty"`
	// PrometheusEndpointSSLVerify checks the certificate of that Prometheus.
	// Default: off.
	PrometheusEndpointSSLVerify bool `json:"prometheusEndpointSSLVerify,omitempty"`
}

// EffectivePort gives the port of the dashboard, or its default by ssl.
func (d DashboardSpec) EffectivePort() int {
	switch {
	case d.Port > 0:
		return d.Port
	case d.SSL:
		return DefaultDashboardSSLPort
	default:
		return DefaultDashboardPort
	}
}

// MonitoringSpec is about metrics for Prometheus.
type MonitoringSpec struct {
	// Enabled makes ServiceMonitors; the Prometheus operator must be installed.
	// Metrics are served even without it.
	Enabled bool `json:"enabled,omitempty"`
	// MetricsDisabled switches the metrics themselves off: the prometheus module
	// and the exporters.
	MetricsDisabled bool `json:"metricsDisabled,omitempty"`
	// ExternalMgrEndpoints are the mgrs of an external cluster, as addresses.
	//
	// +nullable
	ExternalMgrEndpoints []corev1.EndpointAddress `json:"externalMgrEndpoints,omitempty"`
	// ExternalMgrPrometheusPort is the port of those mgrs. 0: 9283.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	ExternalMgrPrometheusPort uint16 `json:"externalMgrPrometheusPort,omitempty"`
	// Port of the prometheus module, its Service and its container port. 0:
	// 9283.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// Interval between two scrapes, for instance 10s. Default: that of
	// Prometheus.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="monitoring.interval must be a duration, a number with a unit; write for instance 10s or 1m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Exporter are settings of ceph-exporter, which serves the performance
	// counters of the daemons of each node.
	Exporter *CephExporterSpec `json:"exporter,omitempty"`
}

// CephExporterSpec are settings of ceph-exporter.
type CephExporterSpec struct {
	// PerfCountersPrioLimit is the lowest priority of the counters to serve: 10
	// few, 0 all.
	//
	// +kubebuilder:default=5
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="exporter.perfCountersPrioLimit cannot be negative; write for instance 5"
	PerfCountersPrioLimit int64 `json:"perfCountersPrioLimit,omitempty"`
	// StatsPeriodSeconds is how often the counters are read, in seconds.
	//
	// +kubebuilder:default=5
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 86400",message="exporter.statsPeriodSeconds must be from 1 to 86400 seconds; write for instance 5"
	StatsPeriodSeconds int64 `json:"statsPeriodSeconds,omitempty"`
	// HostNetwork runs the exporters on the network of their node. Default: as
	// the cluster.
	//
	// +nullable
	HostNetwork *bool `json:"hostNetwork,omitempty"`
	// Port of the exporters. Default: 9926.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
}

// EffectivePort gives the port of the prometheus module or its default.
func (m *MonitoringSpec) EffectivePort() int {
	if m.Port == 0 {
		return DefaultMetricsPort
	}
	return m.Port
}

// EffectiveExternalPort gives the port of external mgrs or its default.
func (m *MonitoringSpec) EffectiveExternalPort() int {
	if m.ExternalMgrPrometheusPort == 0 {
		return DefaultMetricsPort
	}
	return int(m.ExternalMgrPrometheusPort)
}

// EffectiveExporterPort gives the port of the exporters or its default.
func (m *MonitoringSpec) EffectiveExporterPort() int32 {
	if m.Exporter == nil || m.Exporter.Port == nil {
		return DefaultExporterPort
	}
	return *m.Exporter.Port
}

// LogCollectorSpec writes daemon logs to files under dataDirHostPath.
type LogCollectorSpec struct {
	// Enabled writes log files and rotates them. When off, logs go to the
	// container's output only.
	Enabled bool `json:"enabled,omitempty"`
	// Periodicity of rotation: hourly, daily, weekly, monthly, 1h, 24h or 1d.
	// Default: daily.
	//
	// +kubebuilder:validation:Pattern=`^$|^(hourly|daily|weekly|monthly|1h|24h|1d)$`
	Periodicity string `json:"periodicity,omitempty"`
	// MaxLogSize is the size at which a file is rotated before its time, a
	// quantity of at least 1M, for instance 500M. Default: no limit.
	MaxLogSize *resource.Quantity `json:"maxLogSize,omitempty"`
}

// EffectivePeriodicity gives the word that logrotate knows: hourly, daily,
// weekly or monthly.
func (l LogCollectorSpec) EffectivePeriodicity() string {
	switch l.Periodicity {
	case "1h":
		return "hourly"
	case "", "24h", "1d":
		return "daily"
	}
	return l.Periodicity
}

// CrashCollectorSpec gathers crash dumps.
type CrashCollectorSpec struct {
	// Disable takes the collectors away.
	Disable bool `json:"disable,omitempty"`
	// DaysToRetain is after how many days a crash report is deleted from Ceph.
	// 0: never.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 36500",message="crashCollector.daysToRetain must be from 0 (for ever) to 36500 days; write for instance 30"
	DaysToRetain uint `json:"daysToRetain,omitempty"`
}

// CephClusterHealthCheckSpec says how daemons and the cluster are checked.
type CephClusterHealthCheckSpec struct {
	// DaemonHealth are the checks that this operator makes.
	//
	// +nullable
	DaemonHealth DaemonHealthSpec `json:"daemonHealth,omitzero"`
	// LivenessProbe changes the liveness probes, by daemon type (mon, mgr, osd,
	// mds, ...).
	LivenessProbe map[KeyType]*ProbeSpec `json:"livenessProbe,omitempty"`
	// StartupProbe changes the startup probes, by daemon type.
	StartupProbe map[KeyType]*ProbeSpec `json:"startupProbe,omitempty"`
	// MuteHealthWarning mutes health codes of Ceph (such as OSD_NEARFULL), or
	// takes a mute back.
	//
	// +kubebuilder:validation:MinProperties=0
	// +kubebuilder:validation:MaxProperties=10
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Z]+(_[A-Z]+)+$'))",message="the keys of muteHealthWarning must be health codes of Ceph: upper case words joined by '_'; write for instance OSD_NEARFULL"
	MuteHealthWarning map[string]HealthWarningMuteSpec `json:"muteHealthWarning,omitempty"`
}

// HealthWarningMutePolicy is what to do with a health code.
type HealthWarningMutePolicy string

const (
	// HealthWarningMute keeps the code out of the cluster's health.
	HealthWarningMute HealthWarningMutePolicy = "mute"
	// HealthWarningUnmute counts the code again.
	HealthWarningUnmute HealthWarningMutePolicy = "unmute"
)

// HealthWarningMuteSpec is what to do with a health code.
type HealthWarningMuteSpec struct {
	// Policy is mute or unmute.
	//
	// +kubebuilder:validation:Enum=mute;unmute
	Policy HealthWarningMutePolicy `json:"policy"`
}

// Defaults of the checks of this operator.
const (
	// DefaultMonHealthInterval is how often the quorum is looked at.
	DefaultMonHealthInterval = 45 * time.Second
	// DefaultMonOutTimeout is how long a mon may be out of quorum before it is
	// replaced.
	DefaultMonOutTimeout = 600 * time.Second
	// DefaultStatusInterval is how often the health of the cluster is read.
	DefaultStatusInterval = 60 * time.Second
	// DefaultOSDHealthInterval is how often the state of the OSDs is read.
	DefaultOSDHealthInterval = 60 * time.Second
)

// DaemonHealthSpec are the checks that this operator makes.
type DaemonHealthSpec struct {
	// Status reads the health of the cluster. Default: every 60s.
	//
	// +nullable
	Status HealthCheckSpec `json:"status,omitzero"`
	// Monitor looks at the quorum every 45s by default; a mon that was out of
	// it for `timeout` (default 600s, 0 for never) is replaced.
	//
	// +nullable
	Monitor HealthCheckSpec `json:"mon,omitzero"`
	// ObjectStorageDaemon looks at the OSDs. Default: every 60s.
	//
	// +nullable
	ObjectStorageDaemon HealthCheckSpec `json:"osd,omitzero"`
}

// EffectiveInterval gives the interval, or the default when there is none.
func (h HealthCheckSpec) EffectiveInterval(otherwise time.Duration) time.Duration {
	if h.Interval == nil || h.Interval.Duration <= 0 {
		return otherwise
	}
	return h.Interval.Duration
}

// EffectiveTimeout gives the timeout, or the default when there is none. The
// words 0 and 0s give 0, which means: never. An unreadable timeout gives the
// default and false.
func (h HealthCheckSpec) EffectiveTimeout(otherwise time.Duration) (time.Duration, bool) {
	if h.Timeout == "" {
		return otherwise, true
	}
	d, err := time.ParseDuration(h.Timeout)
	if err != nil || d < 0 {
		return otherwise, false
	}
	return d, true
}

// DisruptionManagementSpec keeps node drains from taking data away.
type DisruptionManagementSpec struct {
	// ManagePodBudgets makes PodDisruptionBudgets that let one failure domain be
	// drained at a time. Default: off in the type, so write true.
	ManagePodBudgets bool `json:"managePodBudgets,omitempty"`
	// OSDMaintenanceTimeout is how long, in minutes, the OSDs of a drained
	// failure domain are kept from being marked out. 0: 30.
	//
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 525600",message="osdMaintenanceTimeout must be from 0 (default of 30) to 525600 minutes; write for instance 30"
	OSDMaintenanceTimeout time.Duration `json:"osdMaintenanceTimeout,omitempty"`
	// PGHealthCheckTimeout has no effect any more. Deprecated: leave it out.
	PGHealthCheckTimeout time.Duration `json:"pgHealthCheckTimeout,omitempty"`
	// PGHealthyRegex is a regular expression (RE2) for states of placement
	// groups that count as healthy when the end of a drain is decided. Default:
	// active and clean, scrubbing or not.
	PGHealthyRegex string `json:"pgHealthyRegex,omitempty"`
	// ManageMachineDisruptionBudgets has no effect any more. Deprecated: leave
	// it out.
	ManageMachineDisruptionBudgets bool `json:"manageMachineDisruptionBudgets,omitempty"`
	// MachineDisruptionBudgetNamespace has no effect any more. Deprecated: leave
	// it out.
	MachineDisruptionBudgetNamespace string `json:"machineDisruptionBudgetNamespace,omitempty"`
}

// EffectiveOSDMaintenanceTimeout gives OSDMaintenanceTimeout as a real
// duration, or its default. (The field holds a bare number of minutes.)
func (d DisruptionManagementSpec) EffectiveOSDMaintenanceTimeout() time.Duration {
	if d.OSDMaintenanceTimeout <= 0 {
		return DefaultOSDMaintenanceTimeout
	}
	return d.OSDMaintenanceTimeout * time.Minute
}

// CSIDriverSpec are settings for the CSI drivers that mount from this cluster.
type CSIDriverSpec struct {
	// ReadAffinity lets clients read from the copy that is nearest to them.
	ReadAffinity ReadAffinitySpec `json:"readAffinity,omitzero"`
	// CephFS are settings for mounts of filesystems.
	CephFS CSICephFSSpec `json:"cephfs,omitzero"`
	// SkipUserCreation leaves the cephx users of the drivers, and their Secrets,
	// to somebody else. Default: off.
	SkipUserCreation bool `json:"skipUserCreation,omitempty"`
}

// ReadAffinitySpec lets clients read from near.
type ReadAffinitySpec struct {
	// Enabled switches reading from near on.
	Enabled bool `json:"enabled,omitempty"`
	// CrushLocationLabels are the node labels that say where a client is.
	// Default: the topology labels that OSDs are placed by.
	CrushLocationLabels []string `json:"crushLocationLabels,omitempty"`
}

// CSICephFSSpec are settings for mounts of filesystems.
type CSICephFSSpec struct {
	// KernelMountOptions for the kernel client, joined by commas, for instance
	// ms_mode=secure. It goes for mounts made from now on.
	KernelMountOptions string `json:"kernelMountOptions,omitempty"`
	// FuseMountOptions for ceph-fuse, joined by commas.
	FuseMountOptions string `json:"fuseMountOptions,omitempty"`
}
