// Package settings reads the operator's own settings from the ConfigMap
// rook-ceph-operator-config as one value.
//
// It is pure. A key that is removed falls back to its default at the next read;
// nothing is kept in the process environment and no value is logged. A key that
// is not known, or a value that cannot be read, is a problem with a name, never
// a silent default.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ConfigMap holds the settings, in the operator's namespace.
const ConfigMap = "rook-ceph-operator-config"

// Settings of the operator.
type Settings struct {
	LogLevel string
	// CommandTimeout bounds a command to Ceph that has no bound of its own; at most
	// librados' (conn.DefaultOpTimeout).
	CommandTimeout time.Duration
	// CurrentNamespaceOnly limits the operator to its own namespace; nil leaves it to the
	// environment.
	CurrentNamespaceOnly *bool
	EnforceHostNetwork   bool
	// HostPathRequiresPrivileged makes containers with host paths privileged.
	HostPathRequiresPrivileged bool
	AllowLoopDevices           bool
	EnableDiscovery            bool
	DiscoverInterval           time.Duration
	DisableHotplug             bool
	RevisionHistoryLimit       *int32
	// HostnameLabel replaces kubernetes.io/hostname where set.
	HostnameLabel string
	// UnreachableSeconds until a pod leaves an unreachable node.
	UnreachableSeconds int64
	// SkipTopologyCheck accepts a label value that stands at two CRUSH levels.
	SkipTopologyCheck bool
	// MonOutTimeout and MonCheckInterval override the CephCluster's, as they did
	// before it had fields for them; nil where unset.
	MonOutTimeout, MonCheckInterval, StatusInterval *time.Duration
	// Discover is how the discovery daemon's pods are placed.
	Discover Discover
}

// Discover is the pod part of the discovery daemon's settings, as text that its
// own code reads.
type Discover struct {
	UdevBlacklist, Toleration, TolerationKey, Tolerations string
	PriorityClass, NodeAffinity, PodLabels, Resources     string
}

// Problem is a key that does not do what the user may think.
type Problem struct{ Key, Message string }

// Default settings.
func Default() Settings {
	return Settings{
		LogLevel: "INFO", CommandTimeout: 15 * time.Second, DiscoverInterval: time.Hour,
		UnreachableSeconds: 5,
		Discover:           Discover{UdevBlacklist: "(?i)dm-[0-9]+,(?i)rbd[0-9]+,(?i)nbd[0-9]+"},
	}
}

// elsewhere are keys of features that are settled in other places or do not
// exist here; the message says what to do.
var elsewhere = map[string]string{
	"ROOK_RECONCILE_CONCURRENT_CLUSTERS":         "clusters never wait for each other; the key has no effect",
	"ROOK_CEPH_MON_RUN_AS_ROOT":                  "mons drop to Ceph's user in every image; the key has no effect",
	"ROOK_OPERATOR_METRICS_BIND_ADDRESS":         "metrics are on by default; set the flag --metrics-bind-address instead",
	"ROOK_OBC_WATCH_OPERATOR_NAMESPACE":          "object bucket claims are not handled yet; the key has no effect",
	"ROOK_OBC_PROVISIONER_NAME_PREFIX":           "object bucket claims are not handled yet; the key has no effect",
	"ROOK_OBC_ALLOW_ADDITIONAL_CONFIG_FIELDS":    "object bucket claims are not handled yet; the key has no effect",
	"ROOK_DISABLE_OBJECT_BUCKET_CLAIM":           "object bucket claims are not handled yet; the key has no effect",
	"CSI_CEPHFS_KERNEL_MOUNT_OPTIONS":            "set spec.csi.cephfs.kernelMountOptions of the CephCluster instead",
	"OPERATOR_RESOURCES_SPECIFIED":               "the key has no effect",
	"ROOK_DELETE_UNUSED_CRUSH_RULES":             "pools are not handled yet, and no CRUSH rule is deleted; the key has no effect",
	"ROOK_USE_CSI_OPERATOR":                      "the CSI operator is always in use; the key has no effect",
	"ROOK_DISABLE_ADMISSION_CONTROLLER":          "there is no admission webhook; the key has no effect",
	"ROOK_OBC_PROVISIONER_ALLOW_UNTRUSTED_STORE": "object bucket claims are not handled yet; the key has no effect",
}

// Parse reads the ConfigMap's data. Problems are sorted by key.
func Parse(data map[string]string) (Settings, []Problem) {
	s := Default()
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value := strings.TrimSpace(data[key])
		if why, ok := elsewhere[key]; ok {
			problems = append(problems, Problem{key, why})
			continue
		}
		set, known := s.setter(key)
		if !known {
			problems = append(problems, Problem{key, "this key is not known; the value is not used"})
			continue
		}
		if value == "" {
			continue
		}
		if err := set(value); err != nil {
			problems = append(problems, Problem{key, err.Error() + "; the default is used"})
		}
	}
	return s, problems
}

// setter returns what stores a value of a key.
func (s *Settings) setter(key string) (func(string) error, bool) {
	set, ok := map[string]func(string) error{
		"ROOK_LOG_LEVEL":                           oneOf(&s.LogLevel, "TRACE", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR"),
		"ROOK_CEPH_COMMANDS_TIMEOUT_SECONDS":       seconds(&s.CommandTimeout, 1, 60),
		"ROOK_CURRENT_NAMESPACE_ONLY":              either(&s.CurrentNamespaceOnly),
		"ROOK_ENFORCE_HOST_NETWORK":                boolean(&s.EnforceHostNetwork),
		"ROOK_HOSTPATH_REQUIRES_PRIVILEGED":        boolean(&s.HostPathRequiresPrivileged),
		"ROOK_CEPH_ALLOW_LOOP_DEVICES":             boolean(&s.AllowLoopDevices),
		"ROOK_ENABLE_DISCOVERY_DAEMON":             boolean(&s.EnableDiscovery),
		"ROOK_DISCOVER_DEVICES_INTERVAL":           duration(&s.DiscoverInterval),
		"ROOK_DISABLE_DEVICE_HOTPLUG":              boolean(&s.DisableHotplug),
		"ROOK_CUSTOM_HOSTNAME_LABEL":               text(&s.HostnameLabel),
		"ROOK_SKIP_OSD_TOPOLOGY_CHECK":             boolean(&s.SkipTopologyCheck),
		"ROOK_UNREACHABLE_NODE_TOLERATION_SECONDS": number(&s.UnreachableSeconds, 0, 86400),
		"ROOK_REVISION_HISTORY_LIMIT": func(v string) error {
			var n int64
			if err := number(&n, 0, 1000)(v); err != nil {
				return err
			}
			limit := int32(n)
			s.RevisionHistoryLimit = &limit
			return nil
		},
		"ROOK_MON_OUT_TIMEOUT":            pointer(&s.MonOutTimeout),
		"ROOK_MON_HEALTHCHECK_INTERVAL":   pointer(&s.MonCheckInterval),
		"ROOK_CEPH_STATUS_CHECK_INTERVAL": pointer(&s.StatusInterval),
		"DISCOVER_DAEMON_UDEV_BLACKLIST":  text(&s.Discover.UdevBlacklist),
		"DISCOVER_TOLERATION":             text(&s.Discover.Toleration),
		"DISCOVER_TOLERATION_KEY":         text(&s.Discover.TolerationKey),
		"DISCOVER_TOLERATIONS":            text(&s.Discover.Tolerations),
		"DISCOVER_PRIORITY_CLASS_NAME":    text(&s.Discover.PriorityClass),
		"DISCOVER_AGENT_NODE_AFFINITY":    text(&s.Discover.NodeAffinity),
		"DISCOVER_AGENT_POD_LABELS":       text(&s.Discover.PodLabels),
		"DISCOVER_DAEMON_RESOURCES":       text(&s.Discover.Resources),
	}[key]
	return set, ok
}

func boolean(to *bool) func(string) error {
	return func(v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*to = b
		return nil
	}
}

func either(to **bool) func(string) error {
	return func(v string) error {
		var b bool
		if err := boolean(&b)(v); err != nil {
			return err
		}
		*to = &b
		return nil
	}
}

func text(to *string) func(string) error {
	return func(v string) error { *to = v; return nil }
}

func oneOf(to *string, words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, strings.ToUpper(v)) {
			return fmt.Errorf("%q is not one of %s", v, strings.Join(words, ", "))
		}
		*to = strings.ToUpper(v)
		return nil
	}
}

func number(to *int64, low, high int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is no number from %d to %d", v, low, high)
		}
		*to = n
		return nil
	}
}

func seconds(to *time.Duration, low, high int64) func(string) error {
	return func(v string) error {
		var n int64
		if err := number(&n, low, high)(v); err != nil {
			return err
		}
		*to = time.Duration(n) * time.Second
		return nil
	}
}

// duration reads 90s, 10m, 1h; a plain number is seconds.
func duration(to *time.Duration) func(string) error {
	return func(v string) error {
		if n, err := strconv.ParseInt(v, 10, 32); err == nil {
			v = strconv.FormatInt(n, 10) + "s"
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is no duration such as 90s, 10m or 1h", v)
		}
		*to = d
		return nil
	}
}

func pointer(to **time.Duration) func(string) error {
	return func(v string) error {
		var d time.Duration
		if err := duration(&d)(v); err != nil {
			return err
		}
		*to = &d
		return nil
	}
}
