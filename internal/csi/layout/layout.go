package layout

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// OwnerRefAnnotation on a CSIDriver names the Driver that it belongs to; a
// CSIDriver is cluster scoped and cannot carry an owner reference to it.
const OwnerRefAnnotation = "csi.ceph.io/ownerref"

// MetricsLabel is set on the pods that serve liveness metrics; its value is the
// name of the driver, and the metrics Service selects by it.
const MetricsLabel = "castellan.ceph.io/csi-metrics"

// maxLabel is the longest value of a Kubernetes label.
const maxLabel = 63

// Input is all that the objects of a driver depend on.
type Input struct {
	// Name and Namespace are those of the Driver.
	Name, Namespace string
	// Owner is the Driver, as the owner of what is made for it.
	Owner metav1.OwnerReference
	// Spec is what Merge gave.
	Spec csiv1.DriverSpec
	// Images are what Overlay gave.
	Images Images
	// Nodes is the number of nodes of the cluster, or 0 if it is not known.
	Nodes int
	// ServiceAccountPrefix is put before the default names of service accounts.
	ServiceAccountPrefix string
	// OperatorImage holds castellan-node, which runs logrotate. Empty: log files are
	// written and not rotated, which the caller must tell the user.
	OperatorImage string
	// VolumeCondition makes the csi-addons node sidecar report the condition of
	// volumes.
	VolumeCondition bool
}

// FieldError says that a setting cannot be carried out.
type FieldError struct {
	Field, Message string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func fieldError(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// nameRule is how the name of a driver tells its type.
const nameRule = `^(?:.+\.)?(rbd|cephfs|nfs|nvmeof)\.csi\.ceph\.com$`

// TypeOf gives the type of a driver from its name.
func TypeOf(name string) (csiv1.DriverType, error) {
	m := regexp.MustCompile(nameRule).FindStringSubmatch(name)
	if m == nil {
		return "", fieldError("metadata.name", "invalid driver name %q: it must be [<prefix>.]<rbd|cephfs|nfs|nvmeof>.csi.ceph.com", name)
	}
	return csiv1.DriverType(m[1]), nil
}

// VolumeCondition reads the annotation csiv1.VolumeConditionAnnotation.
func VolumeCondition(annotations map[string]string) (bool, error) {
	text, ok := annotations[csiv1.VolumeConditionAnnotation]
	if !ok {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fieldError("metadata.annotations["+csiv1.VolumeConditionAnnotation+"]", "%q is neither true nor false", text)
	}
	return on, nil
}

// driver is an Input with what follows from it.
type driver struct {
	Input
	kind csiv1.DriverType
}

// Names of the objects of a driver.

func (d driver) controllerName() string { return d.Name + "-ctrlplugin" }
func (d driver) nodeName() string       { return d.Name + "-nodeplugin" }
func (d driver) addonsName() string     { return d.Name + "-nodeplugin-csi-addons" }
func (d driver) rotateName() string     { return d.Name + "-logrotate-config" }

// livenessName is a DNS label, which a driver's name with its dots is not.
func (d driver) livenessName() string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, d.Name) + "-liveness"
}

func (d driver) is(kinds ...csiv1.DriverType) bool {
	for _, k := range kinds {
		if d.kind == k {
			return true
		}
	}
	return false
}

// addons tells whether csi-addons sidecars run. The NFS driver has nothing to
// offer to them.
func (d driver) addons() bool { return *d.Spec.DeployCsiAddons && d.kind != csiv1.NFSDriver }

func (d driver) rotates() bool { return d.Spec.Log.Rotation != nil }

func (d driver) liveness() bool { return d.Spec.Liveness != nil }

// newDriver checks an Input.
func newDriver(in Input) (driver, error) {
	kind, err := TypeOf(in.Name)
	if err != nil {
		return driver{}, err
	}
	d := driver{Input: in, kind: kind}
	for _, check := range []func() error{d.checkName, d.checkImages, d.checkRotation, d.checkElection, d.checkPaths} {
		if err := check(); err != nil {
			return driver{}, err
		}
	}
	return d, nil
}

// checkName refuses names that do not fit into the labels of pods.
func (d driver) checkName() error {
	longest, why := len("-ctrlplugin"), ""
	if d.liveness() {
		longest, why = len("-nodeplugin-metrics"), " with liveness"
	}
	if d.addons() {
		longest, why = len("-nodeplugin-csi-addons"), " with deployCsiAddons"
	}
	if limit := maxLabel - longest; len(d.Name) > limit {
		return fieldError("metadata.name", "%q has %d characters; it becomes part of pod labels, which leaves %d%s: use a shorter prefix", d.Name, len(d.Name), limit, why)
	}
	return nil
}

func (d driver) checkImages() error {
	for _, key := range []string{ImagePlugin, ImageProvisioner, ImageAttacher, ImageResizer, ImageSnapshotter, ImageRegistrar, ImageAddons, ImageSnapshotMetadata} {
		if d.Images[key] == "" {
			return fieldError("spec.imageSet", "no image for key %q", key)
		}
	}
	return nil
}

// checkElection refuses timings with which the sidecars would not start: they
// insist on lease > renew deadline > 1.2 x retry period.
func (d driver) checkElection() error {
	e := d.Spec.LeaderElection
	if e.LeaseDuration <= e.RenewDeadline || 5*e.RenewDeadline <= 6*e.RetryPeriod {
		return fieldError("spec.leaderElection", "leaseDuration (%d s) must be more than renewDeadline (%d s), and that more than 1.2 times retryPeriod (%d s)",
			e.LeaseDuration, e.RenewDeadline, e.RetryPeriod)
	}
	return nil
}

func (d driver) checkPaths() error {
	if p := d.Spec.NodePlugin.KubeletDirPath; !strings.HasPrefix(p, "/") || strings.Contains(p, "..") {
		return fieldError("spec.nodePlugin.kubeletDirPath", "%q must be an absolute path", p)
	}
	if d.rotates() {
		if p := d.Spec.Log.Rotation.LogHostPath; !strings.HasPrefix(p, "/") || strings.Contains(p, "..") {
			return fieldError("spec.log.rotation.logHostPath", "%q must be an absolute path", p)
		}
	}
	return nil
}

// ServiceAccounts gives the names of the service accounts that the pods of a
// driver use. The operator does not create them.
func ServiceAccounts(in Input) (controller, node string, err error) {
	d, err := newDriver(in)
	if err != nil {
		return "", "", err
	}
	return d.controllerAccount(), d.nodeAccount(), nil
}

func (d driver) controllerAccount() string {
	if n := d.Spec.ControllerPlugin.ServiceAccountName; n != nil && *n != "" {
		return *n
	}
	return d.ServiceAccountPrefix + string(d.kind) + "-ctrlplugin-sa"
}

func (d driver) nodeAccount() string {
	if n := d.Spec.NodePlugin.ServiceAccountName; n != nil && *n != "" {
		return *n
	}
	return d.ServiceAccountPrefix + string(d.kind) + "-nodeplugin-sa"
}

// meta is the metadata of an object of a driver.
func (d driver) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: d.Namespace, OwnerReferences: []metav1.OwnerReference{d.Owner}}
}

// ownerRef is the value of OwnerRefAnnotation; the keys are capitalised, as
// ceph-csi-operator writes them.
type ownerRef struct {
	Namespace string
	Name      string
}

// OwnerOf reads OwnerRefAnnotation. ok is false if it is absent or no such thing.
func OwnerOf(annotations map[string]string) (namespace, name string, ok bool) {
	var o ownerRef
	text, present := annotations[OwnerRefAnnotation]
	if !present || json.Unmarshal([]byte(text), &o) != nil || o.Name == "" {
		return "", "", false
	}
	return o.Namespace, o.Name, true
}

// args drops empty arguments and adds those of the user for a container.
func args(container string, extra map[string][]string, list ...string) []string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		if a != "" {
			out = append(out, a)
		}
	}
	return append(out, extra[container]...)
}

// when gives an argument if a condition holds.
func when(cond bool, arg string) string {
	if cond {
		return arg
	}
	return ""
}

func resources(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	if r == nil {
		return corev1.ResourceRequirements{}
	}
	return *r
}
