package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/layout"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// DriverFinalizer keeps a Driver until its CSIDriver is gone, which is cluster
// scoped and cannot go by an owner reference.
const DriverFinalizer = "castellan.ceph.io/csidriver"

// Reasons of a Driver's conditions.
const (
	ReasonImageSetNotFound       = "ImageSetNotFound"
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	ReasonNameTaken              = "DriverNameTaken"
	ReasonRollingOut             = "RollingOut"
)

// ConditionWarning is True on a Driver that works other than the user may expect.
const ConditionWarning = "Warning"

// driverController makes the objects of a Driver.
type driverController struct {
	client client.Client
	live   client.Reader
	files  *store.Store
	opt    Options
}

// driverState is what the objects of a Driver depend on.
type driverState struct {
	opt      Options
	defaults *csiv1.DriverSpec
	// images are the image sets, the lower first; missing names those that do not
	// exist.
	images  []map[string]string
	missing []string
	nodes   int
	// accounts are the names of service accounts that do not exist.
	accounts  []string
	csiDriver *storagev1.CSIDriver // nil: there is none
	// rival is the other Driver that the CSIDriver belongs to, if that exists.
	rival      string
	deployment *appsv1.Deployment
	daemonSet  *appsv1.DaemonSet
	addons     *appsv1.DaemonSet
}

func driverParts(env kit.Env, files *store.Store, opt Options) (kit.Controller[*csiv1.Driver, driverState], kit.Options) {
	c := &driverController{client: env.Client, live: env.Live, files: files, opt: opt}
	all := allDrivers
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return c, kit.Options{
		Name:      "csi-driver",
		Finalizer: DriverFinalizer,
		Phases:    &kit.Phases{Ready: "Ready", Waiting: "Progressing", Failed: "Failed", Deleting: "Deleting"},
		AdoptFrom: sets.New("manager", "ceph-csi-operator"),
		Owns:      []kit.Object{&appsv1.Deployment{}, &appsv1.DaemonSet{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}},
		Watches: []kit.Watch{
			{Object: &csiv1.OperatorConfig{}, Map: all, When: kube.SpecChanged()},
			{Object: &storagev1.CSIDriver{}, Map: driverOfCSIDriver},
			{Object: node, Map: all, When: nodesChanged(), MetadataOnly: true},
		},
		Sources: []source.Source{files.Source(func(ctx context.Context, cm *corev1.ConfigMap) []types.NamespacedName {
			return driversOfConfigMap(ctx, env.Client, cm, opt)
		})},
	}
}

// allDrivers maps anything to every Driver: the OperatorConfig, and the number of
// nodes, concern them all.
func allDrivers(ctx context.Context, cache client.Reader, _ client.Object) []kit.Key {
	list, err := kube.List(ctx, cache, &csiv1.DriverList{})
	if err != nil {
		return nil // the cache is not filled yet; every Driver gets a pass of its own then
	}
	var keys []kit.Key
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return keys
}

// driverOfCSIDriver finds the Driver by the annotation, and Drivers of the name that
// wait for it to be free.
func driverOfCSIDriver(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	var keys []kit.Key
	for _, key := range allDrivers(ctx, cache, obj) {
		if key.Name == obj.GetName() {
			keys = append(keys, key)
		}
	}
	return keys
}

// driversOfConfigMap finds the Drivers whose images or log rotation a ConfigMap
// holds.
func driversOfConfigMap(ctx context.Context, cache client.Reader, cm *corev1.ConfigMap, opt Options) []kit.Key {
	list, err := kube.List(ctx, cache, &csiv1.DriverList{})
	if err != nil {
		return nil
	}
	var keys []kit.Key
	for i := range list.Items {
		d := &list.Items[i]
		own := d.Namespace == cm.Namespace && (d.Spec.ImageSet != nil && d.Spec.ImageSet.Name == cm.Name || strings.HasPrefix(cm.Name, d.Name+"-"))
		// Which ConfigMap the OperatorConfig names is looked up by the pass.
		if own || cm.Namespace == opt.OperatorNamespace && imageSetOf(ctx, cache, opt) == cm.Name {
			keys = append(keys, client.ObjectKeyFromObject(d))
		}
	}
	return keys
}

func imageSetOf(ctx context.Context, cache client.Reader, opt Options) string {
	oc := &csiv1.OperatorConfig{}
	found, err := kube.Get(ctx, cache, opt.operatorConfig(), oc)
	if err != nil || !found || oc.Spec.DriverSpecDefaults == nil || oc.Spec.DriverSpecDefaults.ImageSet == nil {
		return ""
	}
	return oc.Spec.DriverSpecDefaults.ImageSet.Name
}

// nodesChanged passes nodes that come and go, not their heartbeats.
func nodesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// New implements kit.Controller.
func (*driverController) New() *csiv1.Driver { return &csiv1.Driver{} }

// Observe implements kit.Controller.
func (c *driverController) Observe(ctx context.Context, d *csiv1.Driver) (driverState, error) {
	s := driverState{opt: c.opt}
	for _, read := range []func(context.Context, *csiv1.Driver, *driverState) error{c.observeDefaults, c.observeImages, c.observeCluster, c.observeObjects} {
		if err := read(ctx, d, &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (c *driverController) observeDefaults(ctx context.Context, _ *csiv1.Driver, s *driverState) error {
	oc := &csiv1.OperatorConfig{}
	found, err := kube.Get(ctx, c.client, c.opt.operatorConfig(), oc)
	if err != nil {
		return err
	}
	if found {
		s.defaults = oc.Spec.DriverSpecDefaults
	}
	return nil
}

func (c *driverController) observeImages(ctx context.Context, d *csiv1.Driver, s *driverState) error {
	var keys []types.NamespacedName
	if s.defaults != nil && s.defaults.ImageSet != nil {
		keys = append(keys, types.NamespacedName{Namespace: c.opt.OperatorNamespace, Name: s.defaults.ImageSet.Name})
	}
	if d.Spec.ImageSet != nil {
		keys = append(keys, types.NamespacedName{Namespace: d.Namespace, Name: d.Spec.ImageSet.Name})
	}
	for _, key := range keys {
		set, found, err := c.files.Live(ctx, key)
		if err != nil {
			return fmt.Errorf("reading image set %s: %w", key, err)
		}
		if !found {
			s.missing = append(s.missing, key.String())
		}
		s.images = append(s.images, set)
	}
	return nil
}

func (c *driverController) observeCluster(ctx context.Context, d *csiv1.Driver, s *driverState) error {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := c.client.List(ctx, nodes); err != nil {
		return fmt.Errorf("counting nodes: %w", err)
	}
	s.nodes = len(nodes.Items)
	controller, node, err := layout.ServiceAccounts(s.input(d))
	if err != nil {
		return nil //nolint:nilerr // the plan finds the same error and tells it
	}
	for _, name := range []string{controller, node} {
		found, err := kube.Get(ctx, c.live, types.NamespacedName{Namespace: d.Namespace, Name: name}, &corev1.ServiceAccount{})
		if err != nil {
			return fmt.Errorf("looking for the service account of the driver: %w", err)
		}
		if !found {
			s.accounts = append(s.accounts, name)
		}
	}
	return nil
}

func (c *driverController) observeObjects(ctx context.Context, d *csiv1.Driver, s *driverState) error {
	key := func(suffix string) types.NamespacedName {
		return types.NamespacedName{Namespace: d.Namespace, Name: d.Name + suffix}
	}
	var err error
	if s.deployment, err = kube.Lookup[appsv1.Deployment](ctx, c.client, key("-ctrlplugin")); err != nil {
		return err
	}
	if s.daemonSet, err = kube.Lookup[appsv1.DaemonSet](ctx, c.client, key("-nodeplugin")); err != nil {
		return err
	}
	if s.addons, err = kube.Lookup[appsv1.DaemonSet](ctx, c.client, key("-nodeplugin-csi-addons")); err != nil {
		return err
	}
	if s.csiDriver, err = kube.Lookup[storagev1.CSIDriver](ctx, c.client, types.NamespacedName{Name: d.Name}); err != nil || s.csiDriver == nil {
		return err
	}
	ns, name, ok := layout.OwnerOf(s.csiDriver.Annotations)
	if !ok || ns == d.Namespace && name == d.Name {
		return nil
	}
	// The other Driver may be gone, and its CSIDriver left behind.
	found, err := kube.Get(ctx, c.live, types.NamespacedName{Namespace: ns, Name: name}, &csiv1.Driver{})
	if err != nil {
		return err
	}
	if found {
		s.rival = ns + "/" + name
	}
	return nil
}

// input puts together what layout needs.
func (s driverState) input(d *csiv1.Driver) layout.Input {
	return layout.Input{
		Name: d.Name, Namespace: d.Namespace, Owner: layout.OwnerReference(d),
		Spec: layout.Merge(d.Spec, s.defaults), Images: layout.Overlay(s.images...), Nodes: s.nodes,
		ServiceAccountPrefix: s.opt.ServiceAccountPrefix, OperatorImage: s.opt.OperatorImage,
	}
}

// Plan implements kit.Controller.
func (*driverController) Plan(d *csiv1.Driver, s driverState) kit.Plan {
	status := d.DeepCopy()
	p := kit.Plan{Status: status}
	switch {
	case len(s.missing) > 0:
		return blocked(p, status, ReasonImageSetNotFound, "image set ConfigMap "+strings.Join(s.missing, " and ")+" not found", "create it, or change spec.imageSet")
	case s.rival != "":
		return blocked(p, status, ReasonNameTaken, "invalid driver name: CSIDriver "+d.Name+" belongs to Driver "+s.rival, "delete that Driver, or use another name")
	case s.csiDriver != nil && s.csiDriver.Annotations[layout.OwnerRefAnnotation] == "":
		return blocked(p, status, ReasonNameTaken, "invalid driver name: CSIDriver "+d.Name+" exists and belongs to no Driver",
			"delete it, or annotate it with "+layout.OwnerRefAnnotation)
	}
	in := s.input(d)
	objects, err := s.build(d, &in)
	if err != nil {
		status.Status.Message = err.Error()
		p.Err = err
		return p
	}
	p.Apply = applied(objects)
	for _, gone := range objects.Absent(in) {
		if obj, ok := gone.(kit.Object); ok {
			p.Delete = append(p.Delete, obj)
		}
	}
	if s.strategyChanges(objects) {
		p.Apply = p.Apply[1:]
		p.Do = append(p.Do, recreateStrategy{Namespace: d.Namespace, Name: objects.Deployment.Name}, kit.Apply{Object: objects.Deployment})
	}
	if s.attachChanges(objects) {
		p.Do = append(p.Do, kit.Delete{Object: &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name}}}, kit.Apply{Object: objects.CSIDriver})
	} else {
		p.Apply = append(p.Apply, objects.CSIDriver)
	}
	p.Conditions = []kit.Condition{warning(objects.Warnings)}
	s.report(&p, status)
	return p
}

// build gives the objects; an error of it names the field that is wrong.
func (s driverState) build(d *csiv1.Driver, in *layout.Input) (*layout.Objects, error) {
	var err error
	var objects *layout.Objects
	if in.VolumeCondition, err = layout.VolumeCondition(d.Annotations); err == nil {
		objects, err = layout.Build(*in)
	}
	if f, ok := errors.AsType[*layout.FieldError](err); ok {
		return nil, kit.Terminal(f.Field, "%s", f.Message)
	}
	return objects, err
}

// attachChanges: attachRequired of a CSIDriver cannot be changed, so the object is
// made anew. Mounted volumes do not notice.
func (s driverState) attachChanges(o *layout.Objects) bool {
	return s.csiDriver != nil && s.csiDriver.Spec.AttachRequired != nil && *s.csiDriver.Spec.AttachRequired != *o.CSIDriver.Spec.AttachRequired
}

// strategyChanges: the API server refuses a Deployment of strategy Recreate that still
// has the rollingUpdate which the API server itself has put there, and an apply
// does not remove what it does not own.
func (s driverState) strategyChanges(o *layout.Objects) bool {
	return s.deployment != nil && s.deployment.Spec.Strategy.RollingUpdate != nil && o.Deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// recreateStrategy makes Recreate the strategy of a Deployment.
type recreateStrategy struct{ Namespace, Name string }

// String implements kit.Action.
func (a recreateStrategy) String() string {
	return "making Recreate the strategy of Deployment " + a.Namespace + "/" + a.Name
}

// Kind is the label of the action's metric.
func (recreateStrategy) Kind() string { return "patch-strategy" }

// Do implements kit.Doer.
func (c *driverController) Do(ctx context.Context, _ *csiv1.Driver, action kit.Action) error {
	a, ok := action.(recreateStrategy)
	if !ok {
		return fmt.Errorf("%s: unknown action %T", action, action)
	}
	deploy := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`))
	return c.client.Patch(ctx, deploy, patch, client.FieldOwner(kube.FieldOwner))
}

// applied lists the objects that exist, but for the CSIDriver. The Deployment is
// the first.
func applied(o *layout.Objects) []kit.Object {
	list := []kit.Object{o.Deployment, o.DaemonSet}
	if o.ControllerPolicy != nil {
		list = append(list, o.ControllerPolicy)
	}
	if o.RotateConfig != nil {
		list = append(list, o.RotateConfig)
	}
	if o.Liveness != nil {
		list = append(list, o.Liveness)
	}
	if o.AddonsDaemonSet != nil {
		list = append(list, o.AddonsDaemonSet, o.AddonsPolicy)
	}
	return list
}

func warning(texts []string) kit.Condition {
	if len(texts) == 0 {
		return kit.Condition{Type: ConditionWarning, Status: metav1.ConditionFalse, Reason: "NoWarning", Message: "nothing to be warned of"}
	}
	return kit.Condition{Type: ConditionWarning, Status: metav1.ConditionTrue, Reason: "SeeMessage", Message: strings.Join(texts, "; ")}
}

// blocked completes the plan of a Driver that waits for somebody to act.
func blocked(p kit.Plan, status *csiv1.Driver, reason, message, hint string) kit.Plan {
	p.Phase, status.Status.Message = "Failed", message
	p.Wait = &kit.Wait{Reason: reason, Message: message, Hint: hint, Blocked: true, For: time.Minute}
	return p
}

// report counts the pods and says what is missing.
func (s driverState) report(p *kit.Plan, status *csiv1.Driver) {
	st := &status.Status
	st.ControllerPlugin, st.NodePlugin, st.NodePluginAddons = countDeployment(s.deployment), countDaemonSet(s.daemonSet), countDaemonSet(s.addons)
	if len(s.accounts) > 0 {
		*p = blocked(*p, status, ReasonServiceAccountNotFound, "ServiceAccount "+strings.Join(s.accounts, " and ")+" not found in namespace "+status.Namespace,
			"apply the RBAC manifests of the driver, or set serviceAccountName")
		return
	}
	var open []string
	for _, part := range []struct {
		name  string
		count *csiv1.PodCount
		there bool
	}{{"controller", st.ControllerPlugin, true}, {"node plugin", st.NodePlugin, true}, {"node plugin csi-addons", st.NodePluginAddons, s.addons != nil}} {
		switch {
		case !part.there:
		case part.count == nil:
			open = append(open, part.name+" is being made")
		case !part.count.Complete():
			open = append(open, fmt.Sprintf("%s: %d of %d pods available, %d up to date", part.name, part.count.Available, part.count.Desired, part.count.Updated))
		}
	}
	if len(open) > 0 {
		st.Message = strings.Join(open, "; ")
		p.Wait = &kit.Wait{Reason: ReasonRollingOut, Message: st.Message, For: 5 * time.Minute}
		return
	}
	st.Message = "all pods run"
}

// countDeployment gives nil while the Deployment's controller has not seen its
// present spec.
func countDeployment(d *appsv1.Deployment) *csiv1.PodCount {
	if d == nil || d.Status.ObservedGeneration < d.Generation {
		return nil
	}
	c := &csiv1.PodCount{Desired: 1, Updated: d.Status.UpdatedReplicas, Available: d.Status.AvailableReplicas}
	if d.Spec.Replicas != nil {
		c.Desired = *d.Spec.Replicas
	}
	return c
}

// countDaemonSet is countDeployment for a DaemonSet. Pods of an OnDelete strategy
// stay as they are until they are deleted, which is what was asked for.
func countDaemonSet(d *appsv1.DaemonSet) *csiv1.PodCount {
	if d == nil || d.Status.ObservedGeneration < d.Generation {
		return nil
	}
	c := &csiv1.PodCount{Desired: d.Status.DesiredNumberScheduled, Updated: d.Status.UpdatedNumberScheduled, Available: d.Status.NumberAvailable}
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		c.Updated = c.Desired
	}
	return c
}

// Teardown implements kit.Controller: everything else goes with the Driver by owner
// references.
func (*driverController) Teardown(d *csiv1.Driver, s driverState) kit.Plan {
	if s.csiDriver == nil {
		return kit.Plan{}
	}
	ns, name, ok := layout.OwnerOf(s.csiDriver.Annotations)
	if !ok || ns != d.Namespace || name != d.Name {
		return kit.Plan{}
	}
	return kit.Plan{Delete: []kit.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name, UID: s.csiDriver.UID}}}}
}
