// Package spec builds the DaemonSet of the discovery daemon from the operator's
// settings.
//
// It is pure. A setting that cannot be read is an error that names its key, never
// half a pod.
package spec

import (
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/internal/node/discover"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// App is the name of the DaemonSet, and the label app of its pods and of the
// ConfigMaps that they write.
const App = discover.App

// Account writes the reports of nodes, and may do nothing else.
const Account = "rook-ceph-osd"

// KeyError is a setting that cannot be read.
type KeyError struct {
	Key string
	Err error
}

// Error implements error.
func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// Operator is what the DaemonSet takes from the operator.
type Operator struct {
	// Image holds castellan-node.
	Image, Namespace, Version string
	// Owner is the operator's Deployment; none if it is not known.
	Owner *metav1.OwnerReference
}

// DaemonSet of the discovery daemon. The daemon reads /sys, which every container
// has, and udev's data; it needs no privilege and opens no device.
func DaemonSet(op Operator, s settings.Settings) (*appsv1.DaemonSet, error) {
	if _, err := discover.NewFilter(s.Discover.UdevBlacklist, s.AllowLoopDevices); err != nil {
		return nil, &KeyError{"DISCOVER_DAEMON_UDEV_BLACKLIST", err}
	}
	if s.DiscoverInterval < time.Second {
		return nil, &KeyError{"ROOK_DISCOVER_DEVICES_INTERVAL", fmt.Errorf("%v is less than a second", s.DiscoverInterval)}
	}
	args := []string{"discover", "--interval", s.DiscoverInterval.String(), "--skip", s.Discover.UdevBlacklist}
	if s.AllowLoopDevices {
		args = append(args, "--loop")
	}
	c := podspec.Cluster{Privileged: s.HostPathRequiresPrivileged}
	pod := corev1.PodSpec{
		ServiceAccountName: Account, PriorityClassName: s.Discover.PriorityClass, EnableServiceLinks: ptr.To(false),
		Containers: []corev1.Container{{
			Name: App, Image: op.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"castellan-node"}, Args: args,
			Env: []corev1.EnvVar{
				podspec.FieldEnv("POD_NAMESPACE", "metadata.namespace"), podspec.FieldEnv("NODE_NAME", "spec.nodeName"),
			},
			SecurityContext: podspec.Confined(c),
			VolumeMounts:    []corev1.VolumeMount{{Name: "run-udev", MountPath: "/run/udev", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "run-udev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/udev", Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}}},
	}
	if s.EnforceHostNetwork {
		pod.HostNetwork, pod.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
	}
	labels := map[string]string{"app": App}
	if err := place(&pod, labels, s.Discover); err != nil {
		return nil, err
	}
	ds := &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{
			Name: App, Namespace: op.Namespace, Labels: map[string]string{"app": App},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{"app": App}},
			RevisionHistoryLimit: s.RevisionHistoryLimit,
			// The daemons are independent of each other.
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("100%"))}},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
	if op.Version != "" {
		ds.Labels["rook-version"] = op.Version
	}
	if op.Owner != nil {
		ds.OwnerReferences = []metav1.OwnerReference{*op.Owner}
	}
	return ds, nil
}

// place adds what the settings say of the pods.
func place(pod *corev1.PodSpec, labels map[string]string, d settings.Discover) error {
	switch {
	case d.Toleration != "":
		effect := corev1.TaintEffect(d.Toleration)
		switch effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return &KeyError{"DISCOVER_TOLERATION", fmt.Errorf("%q is not one of NoSchedule, PreferNoSchedule, NoExecute", d.Toleration)}
		}
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Effect: effect, Key: d.TolerationKey, Operator: corev1.TolerationOpExists})
	case d.TolerationKey != "":
		return &KeyError{"DISCOVER_TOLERATION_KEY", fmt.Errorf("it has no effect without DISCOVER_TOLERATION")}
	}
	if d.Tolerations != "" {
		var list []corev1.Toleration
		if err := yaml.UnmarshalStrict([]byte(d.Tolerations), &list); err != nil {
			return &KeyError{"DISCOVER_TOLERATIONS", fmt.Errorf("not a list of tolerations: %w", err)}
		}
		pod.Tolerations = append(pod.Tolerations, list...)
	}
	if d.NodeAffinity != "" {
		a, err := affinity(d.NodeAffinity)
		if err != nil {
			return &KeyError{"DISCOVER_AGENT_NODE_AFFINITY", err}
		}
		pod.Affinity = &corev1.Affinity{NodeAffinity: a}
	}
	more, err := podLabels(d.PodLabels)
	if err != nil {
		return &KeyError{"DISCOVER_AGENT_POD_LABELS", err}
	}
	maps.DeleteFunc(more, func(k, _ string) bool { _, ours := labels[k]; return ours })
	maps.Copy(labels, more)
	if pod.Containers[0].Resources, err = resources(d.Resources); err != nil {
		return &KeyError{"DISCOVER_DAEMON_RESOURCES", err}
	}
	return nil
}

// affinity reads a node affinity: as YAML of Kubernetes' type, or as "key=a,b; other",
// all of which a node must have.
func affinity(s string) (*corev1.NodeAffinity, error) {
	if strings.Contains(s, ":") {
		var a corev1.NodeAffinity
		if err := yaml.UnmarshalStrict([]byte(s), &a); err != nil {
			return nil, fmt.Errorf("not a node affinity: %w", err)
		}
		return &a, nil
	}
	var term corev1.NodeSelectorTerm
	for _, part := range strings.Split(s, ";") {
		key, values, some := strings.Cut(strings.TrimSpace(part), "=")
		key = strings.TrimSpace(key)
		if key == "" {
			continue
		}
		if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
			return nil, fmt.Errorf("%q is no label: %s", key, msgs[0])
		}
		req := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists}
		if some {
			req.Operator = corev1.NodeSelectorOpIn
			for _, v := range strings.Split(values, ",") {
				req.Values = append(req.Values, strings.TrimSpace(v))
			}
		}
		term.MatchExpressions = append(term.MatchExpressions, req)
	}
	if len(term.MatchExpressions) == 0 {
		return nil, fmt.Errorf("%q names no label", s)
	}
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}, nil
}

// podLabels reads "key=value,key=value".
func podLabels(s string) (map[string]string, error) {
	out := map[string]string{}
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		k, v, _ := strings.Cut(part, "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if msgs := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(msgs) > 0 {
			return nil, fmt.Errorf("%q is no label: %s", part, msgs[0])
		}
		out[k] = v
	}
	return out, nil
}

// resources reads requests and limits: as YAML of Kubernetes' type, or in a list with
// the names of containers, as users have it from charts.
func resources(s string) (corev1.ResourceRequirements, error) {
	var r corev1.ResourceRequirements
	if strings.TrimSpace(s) == "" {
		return r, nil
	}
	var list []struct {
		Name     string                      `json:"name"`
		Resource corev1.ResourceRequirements `json:"resource"`
		// Resources is the other spelling that is in use.
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	if err := yaml.Unmarshal([]byte(s), &list); err == nil {
		for _, e := range list {
			if len(e.Resources.Limits)+len(e.Resources.Requests) > 0 {
				return e.Resources, nil
			}
			if len(e.Resource.Limits)+len(e.Resource.Requests) > 0 {
				return e.Resource, nil
			}
		}
		return r, nil
	}
	if err := yaml.UnmarshalStrict([]byte(s), &r); err != nil {
		return r, fmt.Errorf("not resources: %w", err)
	}
	return r, nil
}
