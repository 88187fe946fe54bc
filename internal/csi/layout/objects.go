package layout

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// Objects is everything that is made for one Driver. A nil field is an object
// that must not exist; Absent names those.
type Objects struct {
	CSIDriver        *storagev1.CSIDriver
	Deployment       *appsv1.Deployment
	DaemonSet        *appsv1.DaemonSet
	ControllerPolicy *networkingv1.NetworkPolicy
	RotateConfig     *corev1.ConfigMap
	Liveness         *corev1.Service
	AddonsDaemonSet  *appsv1.DaemonSet
	AddonsPolicy     *networkingv1.NetworkPolicy

	// Warnings say what works other than the user may expect.
	Warnings []string
}

// Build gives the objects of a driver. An error is a *FieldError: it names the
// setting that cannot be carried out.
func Build(in Input) (*Objects, error) {
	d, err := newDriver(in)
	if err != nil {
		return nil, err
	}
	csiDriver, err := d.csiDriver()
	if err != nil {
		return nil, err
	}
	o := &Objects{CSIDriver: csiDriver, Deployment: d.deployment(), DaemonSet: d.daemonSet(), Warnings: d.warnings()}
	if !*d.Spec.ControllerPlugin.HostNetwork {
		o.ControllerPolicy = d.controllerPolicy()
	}
	if d.rotates() {
		o.RotateConfig = d.rotateConfig()
	}
	if d.liveness() {
		o.Liveness = d.livenessService()
	}
	if d.addons() {
		o.AddonsDaemonSet, o.AddonsPolicy = d.addonsDaemonSet(), d.addonsPolicy()
	}
	return o, nil
}

// Absent gives, for the fields of o that are nil, objects with just the name, by
// which they can be deleted.
func (o *Objects) Absent(in Input) []metav1.Object {
	d := driver{Input: in}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: in.Namespace} }
	var list []metav1.Object
	if o.ControllerPolicy == nil {
		list = append(list, &networkingv1.NetworkPolicy{ObjectMeta: named(d.controllerName())})
	}
	if o.Liveness == nil {
		list = append(list, &corev1.Service{ObjectMeta: named(d.livenessName())})
	}
	if o.AddonsDaemonSet == nil {
		list = append(list, &appsv1.DaemonSet{ObjectMeta: named(d.addonsName())}, &networkingv1.NetworkPolicy{ObjectMeta: named(d.addonsName())})
	}
	if o.RotateConfig == nil {
		list = append(list, &corev1.ConfigMap{ObjectMeta: named(d.rotateName())})
	}
	return list
}

func (d driver) warnings() []string {
	var list []string
	if d.rotates() && d.OperatorImage == "" {
		list = append(list, "log files are written and not rotated, since the operator does not know its own image: set OPERATOR_IMAGE")
	}
	if d.liveness() && !d.controllerLiveness() {
		list = append(list, "the controller pods serve no liveness metrics, since they share the host's network with the node pods, which use the port")
	}
	return list
}

// csiDriver tells Kubernetes about the driver.
func (d driver) csiDriver() (*storagev1.CSIDriver, error) {
	owner, err := json.Marshal(ownerRef{Namespace: d.Namespace, Name: d.Name})
	if err != nil {
		return nil, fmt.Errorf("encoding the owner of CSIDriver %s: %w", d.Name, err)
	}
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Annotations: map[string]string{OwnerRefAnnotation: string(owner)}},
		Spec: storagev1.CSIDriverSpec{
			PodInfoOnMount: ptr.To(true),
			AttachRequired: ptr.To(*d.Spec.AttachRequired),
			FSGroupPolicy:  ptr.To(d.Spec.FsGroupPolicy),
			SELinuxMount:   ptr.To(true),
		},
	}, nil
}

// livenessService is where metrics of all pods of the driver are found.
func (d driver) livenessService() *corev1.Service {
	labels := map[string]string{MetricsLabel: d.Name}
	m := d.meta(d.livenessName())
	m.Labels = map[string]string{"app": "csi-metrics", MetricsLabel: d.Name}
	return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{
		Selector: labels,
		Ports: []corev1.ServicePort{{
			Name: "csi-http-metrics", Port: 8080, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt(d.Spec.Liveness.MetricsPort),
		}},
	}}
}

// fromAddons are the pods of the csi-addons controller, in any namespace.
func fromAddons() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "csi-addons", "control-plane": "controller-manager"}},
	}}
}

func tcp(port int) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt(port))}}
}

// policy lets pods reach everything, and lets in what rules say.
func (d driver) policy(name string, rules []networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: d.meta(name), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: *selector(name),
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     rules,
		Egress:      []networkingv1.NetworkPolicyEgressRule{{}},
	}}
}

func (d driver) controllerPolicy() *networkingv1.NetworkPolicy {
	var rules []networkingv1.NetworkPolicyIngressRule
	if d.addons() {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: fromAddons(), Ports: tcp(int(d.addonsPort()))})
	}
	if _, ok := d.snapshotMetadata(); ok {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: tcp(snapshotMetadataPort)})
	}
	if d.controllerLiveness() {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: tcp(d.Spec.Liveness.MetricsPort)})
	}
	return d.policy(d.controllerName(), rules)
}

func (d driver) addonsPolicy() *networkingv1.NetworkPolicy {
	return d.policy(d.addonsName(), []networkingv1.NetworkPolicyIngressRule{{From: fromAddons(), Ports: tcp(addonsPortNode)}})
}

// OwnerReference makes a Driver the controller of what is made for it.
func OwnerReference(d *csiv1.Driver) metav1.OwnerReference {
	return *metav1.NewControllerRef(d, csiv1.SchemeGroupVersion.WithKind("Driver"))
}
