package crushupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/osd/selection"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Condition tells whether all OSDs are as the spec says. Its name does not end as those
// do by which the phase of the cluster goes.
const Condition = "OSDSettingsApplied"

// every is how often Ceph is asked when there is something that may change there.
const every = 5 * time.Minute

// Controller keeps the settings of the OSDs of CephClusters.
type Controller struct {
	Cache    client.Reader
	Access   access.Reader
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	toAll := kube.ToAll(&cephv1.CephClusterList{})
	return kit.Options{
		Name:   "osd-settings",
		Report: kit.Report{Ready: Condition, Shared: true},
		Watches: []kit.Watch{
			{Object: &appsv1.Deployment{}, When: firstUp(), Map: kube.OnlyApp(spec.App, toAll)},
			{Object: &corev1.Node{}, When: classChanged(), Map: toAll},
		},
	}
}

// firstUp passes an OSD that has come up.
func firstUp() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*appsv1.Deployment)
		b, okB := e.ObjectNew.(*appsv1.Deployment)
		return !okA || !okB || a.Status.ReadyReplicas == 0 && b.Status.ReadyReplicas > 0 || a.Annotations[spec.RecordAnnotation] != b.Annotations[spec.RecordAnnotation]
	}}
}

func classChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetLabels()[selection.DeviceClassLabel] != e.ObjectNew.GetLabels()[selection.DeviceClassLabel]
	}}
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Allowed Allowed
	Wanted  []Wanted
	// Asked says that there is something to compare with Ceph; Silence why it has not
	// answered.
	Asked   bool
	Silence string
	Have    map[int]Actual
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	st := &cl.Spec.Storage
	seen := Seen{Allowed: Allowed{Class: st.AllowDeviceClassUpdate, Weight: st.AllowOsdCrushWeightUpdate}, Have: map[int]Actual{}}
	if !pods.Founded(cl) {
		return seen, nil
	}
	if err := c.wanted(ctx, cl, &seen); err != nil {
		return Seen{}, err
	}
	seen.Asked = slices.ContainsFunc(seen.Wanted, func(w Wanted) bool {
		return w.Affinity != nil || seen.Allowed.Class && w.Class != "" || seen.Allowed.Weight && !w.FixedWeight
	})
	if !seen.Asked {
		return seen, nil
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	if err := ask(ctx, stored.Ceph, &seen); err != nil {
		seen.Silence = err.Error()
	}
	return seen, nil
}

// wanted reads what the spec says of the OSDs that have a Deployment.
func (c *Controller) wanted(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	set, err := c.Settings(ctx)
	if err != nil {
		return fmt.Errorf("reading the operator's settings: %w", err)
	}
	nodes, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	label := corev1.LabelHostname
	if set.HostnameLabel != "" {
		label = set.HostnameLabel
	}
	byHost := map[string]request.Selection{}
	for _, n := range selection.Resolve(&cl.Spec, nodes.Items, label).Nodes {
		byHost[n.Host] = n.Selection
	}
	deps, err := kube.List(ctx, c.Cache, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the OSDs' Deployments: %w", err)
	}
	for _, d := range deps.Items {
		sel, ok := byHost[spec.HostOf(&d)]
		var r prepare.Result
		if !ok || kube.Skipped(&d) || json.Unmarshal([]byte(d.Annotations[spec.RecordAnnotation]), &r) != nil || r.UUID == "" {
			continue // of no node that the spec speaks of, or not ours to touch
		}
		seen.Wanted = append(seen.Wanted, Of(r, sel))
	}
	slices.SortFunc(seen.Wanted, func(a, b Wanted) int { return a.ID - b.ID })
	return nil
}

// ask reads what Ceph has.
func ask(ctx context.Context, commander ceph.Commander, seen *Seen) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	osds := cephosd.New(commander)
	tree, err := osds.Tree(ctx)
	if err != nil {
		return fmt.Errorf("reading the OSD tree: %w", err)
	}
	for _, n := range tree.Nodes {
		if n.Type == "osd" {
			seen.Have[n.ID] = Actual{Class: n.DeviceClass, Affinity: n.PrimaryAffinity, Weight: n.CrushWeight}
		}
	}
	if !seen.Allowed.Weight {
		return nil
	}
	df, err := osds.DF(ctx)
	if err != nil {
		return fmt.Errorf("reading the sizes of the OSDs: %w", err)
	}
	for _, n := range df.Nodes {
		if a, ok := seen.Have[n.ID]; ok && n.KB > 0 {
			a.Size = uint64(n.KB) << 10
			seen.Have[n.ID] = a
		}
	}
	return nil
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() || !pods.Founded(cl) || !seen.Asked {
		return kit.Plan{}
	}
	if seen.Silence != "" {
		return kit.Plan{Wait: &kit.Wait{Reason: "MonsNotReady", Message: "the settings of OSDs wait for Ceph: " + seen.Silence, For: 15 * time.Second}}
	}
	p := kit.Plan{Next: every}
	for _, u := range Compare(seen.Wanted, seen.Have, seen.Allowed) {
		p.Do = append(p.Do, u)
	}
	return p
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	u, ok := action.(Update)
	if !ok {
		return fmt.Errorf("%s: no such action", action)
	}
	commander, err := c.Access.Ceph(ctx, cl.Namespace, action.String())
	if err != nil {
		return err
	}
	switch u.What {
	case DropClass:
		return crush.New(commander).RemoveDeviceClass(ctx, u.ID)
	case SetClass:
		return crush.New(commander).SetDeviceClass(ctx, u.Class, u.ID)
	case SetWeight:
		return crush.New(commander).Reweight(ctx, ceph.OSDName(u.ID), u.Number)
	default:
		return cephosd.New(commander).PrimaryAffinity(ctx, u.ID, u.Number)
	}
}

// Teardown implements kit.Controller: everything goes with the Ceph cluster.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }
