package csi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi"
)

// driver is a Driver with a name of the test's own, since a CSIDriver is cluster
// scoped.
func (w *world) driver(kind string) *csiv1.Driver {
	prefix := w.ns
	if len(prefix) > 20 {
		prefix = prefix[len(prefix)-20:]
	}
	return &csiv1.Driver{ObjectMeta: metav1.ObjectMeta{Name: strings.Trim(prefix, "-") + "." + kind + ".csi.ceph.com", Namespace: w.ns}}
}

// accounts makes the service accounts of a driver.
func (w *world) accounts(kind string) {
	w.Helper()
	for _, part := range []string{"ctrlplugin", "nodeplugin"} {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "ceph-csi-operator-" + kind + "-" + part + "-sa"}})
	}
}

// get waits until an object of the driver's namespace exists.
func get[T client.Object](w *world, name string, obj T) T {
	w.Helper()
	w.eventually(name, func() string {
		if err := w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, obj); err != nil {
			return err.Error()
		}
		return ""
	})
	return obj
}

// runPods does what the controllers of Kubernetes would do in the end.
func (w *world) runPods(d *csiv1.Driver) {
	w.Helper()
	deploy := get(w, d.Name+"-ctrlplugin", &appsv1.Deployment{})
	n := *deploy.Spec.Replicas
	deploy.Status = appsv1.DeploymentStatus{ObservedGeneration: deploy.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	if err := w.Status().Update(w.Context(), deploy); err != nil {
		w.Fatal(err)
	}
	node := get(w, d.Name+"-nodeplugin", &appsv1.DaemonSet{})
	node.Status = appsv1.DaemonSetStatus{ObservedGeneration: node.Generation, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberReady: 3, NumberAvailable: 3}
	if err := w.Status().Update(w.Context(), node); err != nil {
		w.Fatal(err)
	}
}

func TestDriverLife(t *testing.T) {
	w := newWorld(t)
	d := w.driver("rbd")
	w.create(d)
	c := w.condition(d, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonServiceAccountNotFound)
	if !strings.Contains(c.Message, "ceph-csi-operator-rbd-ctrlplugin-sa and ceph-csi-operator-rbd-nodeplugin-sa") {
		t.Errorf("the missing accounts are not named: %s", c.Message)
	}
	w.accounts("rbd")
	change(w, d, func(d *csiv1.Driver) { d.Spec.Liveness = &csiv1.LivenessSpec{MetricsPort: 9090} })
	w.condition(d, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonRollingOut)
	get(w, strings.ReplaceAll(d.Name, ".", "-")+"-liveness", &corev1.Service{})
	get(w, d.Name+"-ctrlplugin", &networkingv1.NetworkPolicy{})
	w.runPods(d)
	w.condition(d, csiv1.ConditionReady, metav1.ConditionTrue, "ReconcileSucceeded")
	if d.Status.Phase != "Ready" || *d.Status.NodePlugin != (csiv1.PodCount{Desired: 3, Updated: 3, Available: 3}) || d.Status.ObservedGeneration != d.Generation {
		t.Errorf("status %+v", d.Status)
	}
	w.quiet(time.Second)

	// Options that go take their objects along.
	change(w, d, func(d *csiv1.Driver) {
		d.Spec.Liveness = nil
		d.Spec.ControllerPlugin = &csiv1.ControllerPluginSpec{HostNetwork: ptr.To(true)}
	})
	w.gone(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(d.Name, ".", "-") + "-liveness", Namespace: w.ns}})
	w.gone(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-ctrlplugin", Namespace: w.ns}})

	// attachRequired of a CSIDriver cannot be changed.
	csiDriver := &storagev1.CSIDriver{}
	if err := w.Get(w.Context(), types.NamespacedName{Name: d.Name}, csiDriver); err != nil {
		t.Fatal(err)
	}
	change(w, d, func(d *csiv1.Driver) { d.Spec.AttachRequired = ptr.To(false) })
	w.eventually("the CSIDriver", func() string {
		again := &storagev1.CSIDriver{}
		if err := w.Get(w.Context(), types.NamespacedName{Name: d.Name}, again); err != nil {
			return err.Error()
		}
		if again.UID == csiDriver.UID || *again.Spec.AttachRequired {
			return fmt.Sprintf("attachRequired %v", *again.Spec.AttachRequired)
		}
		return ""
	})

	// It goes with the Driver.
	w.delete(d)
	w.gone(d)
	w.gone(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name}})
}

// TestDriverStrategies goes back and forth between update strategies, whose fields
// exclude one another.
func TestDriverStrategies(t *testing.T) {
	w := newWorld(t)
	w.accounts("cephfs")
	d := w.driver("cephfs")
	w.create(d)
	for _, s := range []*appsv1.DeploymentStrategy{
		{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1))}},
		nil,
		{Type: appsv1.RollingUpdateDeploymentStrategyType},
		{Type: appsv1.RecreateDeploymentStrategyType},
	} {
		want := appsv1.RecreateDeploymentStrategyType
		if s != nil {
			want = s.Type
		}
		change(w, d, func(d *csiv1.Driver) { d.Spec.ControllerPlugin = &csiv1.ControllerPluginSpec{DeploymentStrategy: s} })
		w.eventually("the strategy", func() string {
			deploy := get(w, d.Name+"-ctrlplugin", &appsv1.Deployment{})
			if got := deploy.Spec.Strategy.Type; got != want {
				return fmt.Sprintf("%s, want %s", got, want)
			}
			return ""
		})
	}
	for _, want := range []appsv1.DaemonSetUpdateStrategyType{appsv1.OnDeleteDaemonSetStrategyType, appsv1.RollingUpdateDaemonSetStrategyType} {
		change(w, d, func(d *csiv1.Driver) {
			d.Spec.NodePlugin = &csiv1.NodePluginSpec{UpdateStrategy: &appsv1.DaemonSetUpdateStrategy{Type: want}}
		})
		w.eventually("the strategy of nodes", func() string {
			if got := get(w, d.Name+"-nodeplugin", &appsv1.DaemonSet{}).Spec.UpdateStrategy.Type; got != want {
				return fmt.Sprintf("%s, want %s", got, want)
			}
			return ""
		})
	}
}

// TestDriverDefaultsAndImages: defaults of the OperatorConfig, and image sets, reach
// the pods, and changes of them too.
func TestDriverDefaultsAndImages(t *testing.T) {
	w := newWorld(t)
	w.accounts("nfs")
	oc := &csiv1.OperatorConfig{ObjectMeta: metav1.ObjectMeta{Name: csiv1.OperatorConfigDefaultName, Namespace: operatorNamespace}}
	oc.Spec.DriverSpecDefaults = &csiv1.DriverSpec{Log: &csiv1.LogSpec{Verbosity: 4}, ImageSet: &corev1.LocalObjectReference{Name: "low"}}
	low := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "low", Namespace: operatorNamespace}, Data: map[string]string{"plugin": "low/plugin:1", "resizer": "low/resizer:1"}}
	high := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Data: map[string]string{"plugin": "high/plugin:1"}}
	w.create(oc, high)
	defer func() { w.delete(oc); w.delete(low) }()
	d := w.driver("nfs")
	d.Spec.ImageSet = &corev1.LocalObjectReference{Name: "high"}
	d.Spec.ControllerPlugin = &csiv1.ControllerPluginSpec{}
	w.create(d)
	c := w.condition(d, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonImageSetNotFound)
	if !strings.Contains(c.Message, operatorNamespace+"/low") {
		t.Errorf("the missing image set is not named: %s", c.Message)
	}
	w.condition(oc, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonImageSetNotFound)
	w.create(low)
	w.condition(oc, csiv1.ConditionReady, metav1.ConditionTrue, "InUse")
	w.images(d, "high/plugin:1", "low/resizer:1", "--v=4")
	change(w, high, func(cm *corev1.ConfigMap) { cm.Data["plugin"] = "high/plugin:2" })
	w.images(d, "high/plugin:2", "low/resizer:1", "--v=4")
	change(w, oc, func(oc *csiv1.OperatorConfig) { oc.Spec.DriverSpecDefaults.Log.Verbosity = 2 })
	w.images(d, "high/plugin:2", "low/resizer:1", "--v=2")
	other := &csiv1.OperatorConfig{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	w.create(other)
	w.condition(other, csiv1.ConditionReady, metav1.ConditionFalse, "NotInUse")
}

func (w *world) images(d *csiv1.Driver, plugin, resizer, arg string) {
	w.Helper()
	w.eventually("the pods of "+d.Name, func() string {
		deploy := get(w, d.Name+"-ctrlplugin", &appsv1.Deployment{})
		got := map[string]string{}
		for _, c := range deploy.Spec.Template.Spec.Containers {
			got[c.Name] = c.Image
			if !slices.Contains(c.Args, arg) {
				return fmt.Sprintf("%s has %v", c.Name, c.Args)
			}
		}
		if got["csi-nfsplugin"] != plugin || got["csi-resizer"] != resizer {
			return fmt.Sprint(got)
		}
		return ""
	})
}

func TestDriverRefused(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]string{
		"zfs.csi.ceph.com": "the name of a Driver must be",
		"x.csi.ceph.com":   "the name of a Driver must be",
		".csi.ceph.com":    "metadata.name",
		strings.Repeat("x", 40) + ".rbd.csi.ceph.com":   "must not be longer than 52 characters",
		"two.names.xrbd.csi.ceph.com":                   "the name of a Driver must be",
		strings.Repeat("x", 36) + ".nvmeof.csi.ceph.co": "the name of a Driver must be",
	} {
		err := w.Create(w.Context(), &csiv1.Driver{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns}})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := &csiv1.Driver{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 30) + ".rbd.csi.ceph.com"}, Spec: csiv1.DriverSpec{DeployCsiAddons: ptr.To(true)}}
	w.create(long)
	c := w.condition(long, csiv1.ConditionReady, metav1.ConditionFalse, "InvalidSpec")
	if !strings.Contains(c.Message, "leaves 41 with deployCsiAddons") {
		t.Errorf("message %q", c.Message)
	}
	w.delete(long)
	w.gone(long)
}

// TestDriverNameTaken: a CSIDriver of somebody else is left alone; one that a Driver
// left behind is taken over.
func TestDriverNameTaken(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.accounts("rbd")
	first := w.driver("rbd")
	w.create(first)
	w.eventually("the CSIDriver", func() string {
		if err := w.Get(w.Context(), types.NamespacedName{Name: first.Name}, &storagev1.CSIDriver{}); err != nil {
			return err.Error()
		}
		return ""
	})
	second := &csiv1.Driver{ObjectMeta: metav1.ObjectMeta{Name: first.Name}}
	other.create(second)
	other.condition(second, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonNameTaken)
	w.delete(first)
	w.gone(first)
	other.condition(second, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonServiceAccountNotFound)
	other.eventually("the CSIDriver", func() string {
		cd := &storagev1.CSIDriver{}
		if err := w.Get(w.Context(), types.NamespacedName{Name: first.Name}, cd); err != nil {
			return err.Error()
		}
		if !strings.Contains(cd.Annotations["csi.ceph.io/ownerref"], other.ns) {
			return cd.Annotations["csi.ceph.io/ownerref"]
		}
		return ""
	})

	foreign := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: w.driver("nfs").Name}}
	if err := w.Create(w.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	third := w.driver("nfs")
	w.create(third)
	w.condition(third, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonNameTaken)
	w.delete(third)
	w.gone(third)
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("the CSIDriver of somebody else: %v", err)
	}
	w.delete(foreign)
}

// TestBrokenConfig: a file that is no JSON is told, not written over.
func TestBrokenConfig(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	cm := w.files()
	change(w, cm, func(cm *corev1.ConfigMap) { cm.Data["config.json"] = "[{ broken" })
	p := w.profile("p")
	c := w.condition(p, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonConfigBroken)
	if !strings.HasPrefix(p.Status.Message, "failed to reconcile ConfigMap: ") || !strings.Contains(c.Message, "put the file right") {
		t.Errorf("message %q, condition %q", p.Status.Message, c.Message)
	}
	if got := w.files().Data["config.json"]; got != "[{ broken" {
		t.Errorf("the file was written over: %s", got)
	}
	change(w, cm, func(cm *corev1.ConfigMap) { delete(cm.Data, "config.json") })
	w.published("p")
	w.condition(p, csiv1.ConditionReady, metav1.ConditionTrue, csi.ReasonPublished)
}

// TestConnectionMissingAndUsed: what a profile lacks is told, and what uses a
// connection too.
func TestConnectionMissingAndUsed(t *testing.T) {
	w := newWorld(t)
	p := w.profile("p")
	w.create(p)
	w.condition(p, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonConnectionNotFound)
	if want := "failed to reconcile CephConnection: CephConnection 'c' not found"; p.Status.Message != want {
		t.Errorf("message %q, want %q", p.Status.Message, want)
	}
	c := w.connection("c")
	w.create(c)
	w.published("p")
	w.eventually("the connection", func() string {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err.Error()
		}
		if c.Status.ClientProfiles != 1 {
			return c.Status.Message
		}
		return ""
	})
	change(w, c, func(c *csiv1.CephConnection) { c.Spec.Monitors = []string{"10.9.9.9:3300"} })
	w.eventually("the monitors", func() string {
		if text := w.files().Data["config.json"]; !strings.Contains(text, "10.9.9.9:3300") {
			return text
		}
		return ""
	})
	// A connection that goes leaves the record as it is.
	w.delete(c)
	w.condition(p, csiv1.ConditionReady, metav1.ConditionFalse, csi.ReasonConnectionNotFound)
	w.published("p")
}
