// Package disruption keeps drains of nodes from taking data away: disruption budgets
// for OSDs by failure domain, and the flag noout for the one that is drained.
//
// It must not evict or stop anything. internal/disruption/plan decides; what is noted
// between passes is in the ConfigMap rook-ceph-pdbstatemap, and it is noted before
// anything is done by it.
package disruption

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/disruption/plan"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// Condition tells whether a drain is going on. Its name does not end as those do by
// which the phase of the cluster goes.
const Condition = "DisruptionBudgetsAtRest"

// Names of objects and keys, part of the compatibility contract.
const (
	App      = "rook-ceph-osd"
	StateMap = "rook-ceph-pdbstatemap"

	keyDomain = "draining-failure-domain"
	keySince  = "draining-failure-domain-duration"
	keyNoOut  = "set-no-out"
)

// idLabel on Deployments and pods is the OSD's number.
const idLabel = "ceph-osd-id"

// healthy are the states of placement groups that count as such unless the spec says
// otherwise: those in which all copies are there.
const healthy = `^active\+clean(\+(scrubbing|deep|snaptrim|snaptrim_wait|remapped))*$`

// Controller keeps the budgets of CephClusters.
type Controller struct {
	Cache  client.Reader
	Access access.Reader
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	toAll := kube.ToAll(&cephv1.CephClusterList{})
	return kit.Options{
		Name:   "disruption",
		Report: kit.Report{Ready: Condition, Shared: true},
		Owns:   []kit.Object{&policyv1.PodDisruptionBudget{}, &corev1.ConfigMap{}},
		Watches: []kit.Watch{
			{Object: &appsv1.Deployment{}, When: readyChanged(), Map: kube.OnlyApp(App, toAll)},
			{Object: &corev1.Node{}, When: cordonChanged(), Map: toAll},
		},
	}
}

// readyChanged passes what decides whether an OSD counts as down.
func readyChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*appsv1.Deployment)
		b, okB := e.ObjectNew.(*appsv1.Deployment)
		return !okA || !okB || a.Status.ReadyReplicas != b.Status.ReadyReplicas
	}}
}

func cordonChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, okA := e.ObjectOld.(*corev1.Node)
			b, okB := e.ObjectNew.(*corev1.Node)
			return !okA || !okB || a.Spec.Unschedulable != b.Spec.Unschedulable
		},
	}
}

// Seen is everything that the plan needs to know.
type Seen struct {
	State plan.State
	// Silence says why Ceph has not answered, where it was asked.
	Silence string
	// Type is the failure domain of the pools, "host" unless they say otherwise.
	Type string
	// Budgets are ours that exist, by name; Noted says that the note exists.
	Budgets []string
	Noted   bool
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{Type: "host", State: plan.State{Now: kit.Now(ctx), Timeout: cl.Spec.DisruptionManagement.EffectiveOSDMaintenanceTimeout()}}
	if !pods.Founded(cl) {
		return seen, nil
	}
	if err := c.objects(ctx, cl, &seen); err != nil {
		return Seen{}, err
	}
	if seen.State.Drain.Domain == "" && !slices.ContainsFunc(seen.State.OSDs, func(o plan.OSD) bool { return o.Down }) {
		return seen, nil // nothing has to be asked
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	if err := ask(ctx, cl, stored.Ceph, &seen); err != nil {
		seen.Silence, seen.State.Answered = err.Error(), false
	}
	return seen, nil
}

// objects reads OSDs, nodes, budgets and the note. The note and the budgets are read
// live: those of a former operator are not in the cache, and a drain must not be
// forgotten because of it.
func (c *Controller) objects(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	nodes, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	cordoned := map[string]bool{}
	for _, n := range nodes.Items {
		cordoned[n.Labels[corev1.LabelHostname]] = n.Spec.Unschedulable
	}
	deps, err := kube.List(ctx, c.Cache, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": App})
	if err != nil {
		return fmt.Errorf("listing the OSDs' Deployments: %w", err)
	}
	for _, d := range deps.Items {
		id, err := strconv.Atoi(d.Labels[idLabel])
		if err != nil {
			continue // somebody's copy of an OSD
		}
		seen.State.OSDs = append(seen.State.OSDs, plan.OSD{ID: id, Down: d.Status.ReadyReplicas < 1, Cordoned: cordoned[d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]]})
	}
	slices.SortFunc(seen.State.OSDs, func(a, b plan.OSD) int { return a.ID - b.ID })
	budgets, err := kube.List(ctx, c.Access.Live, &policyv1.PodDisruptionBudgetList{}, client.InNamespace(cl.Namespace))
	if err != nil {
		return fmt.Errorf("listing disruption budgets: %w", err)
	}
	for _, b := range budgets.Items {
		owned := slices.ContainsFunc(b.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == cl.UID })
		if owned && (b.Name == App || strings.HasPrefix(b.Name, App+"-")) {
			seen.Budgets = append(seen.Budgets, b.Name)
		}
	}
	cm, err := kube.Lookup[corev1.ConfigMap](ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: StateMap})
	if err != nil {
		return fmt.Errorf("reading the note about drains: %w", err)
	}
	if cm != nil {
		seen.Noted = true
		seen.State.Drain = readNote(cm.Data, seen.State.Now)
	}
	return nil
}

// readNote reads the note. A time that cannot be read counts from now.
func readNote(data map[string]string, now time.Time) plan.Drain {
	d := plan.Drain{Domain: data[keyDomain], NoOut: data[keyNoOut] == "true"}
	if d.Domain == "" {
		return plan.Drain{}
	}
	var err error
	if d.Since, err = time.Parse(time.RFC3339, data[keySince]); err != nil {
		d.Since = now.UTC().Truncate(time.Second)
	}
	return d
}

// ask reads from Ceph which domain each OSD is in, how the PGs are, and the flags.
func ask(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander, seen *Seen) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	good, err := regexp.Compile(pattern(cl))
	if err != nil {
		return err // Plan says so by the field
	}
	osds := cephosd.New(commander)
	m, err := osds.Dump(ctx)
	if err != nil {
		return fmt.Errorf("reading the OSD map: %w", err)
	}
	tree, err := osds.Tree(ctx)
	if err != nil {
		return fmt.Errorf("reading the OSD tree: %w", err)
	}
	rules, err := crush.New(commander).Rules(ctx)
	if err != nil {
		return fmt.Errorf("reading the CRUSH rules: %w", err)
	}
	st, err := status.New(commander).Status(ctx)
	if err != nil {
		return fmt.Errorf("reading the state of the PGs: %w", err)
	}
	seen.Type = FailureDomain(m.Pools, rules, tree)
	seen.State.NoOut = flagged(m, seen.Type)
	for i := range seen.State.OSDs {
		o := &seen.State.OSDs[i]
		if o.Domain = tree.Location(o.ID)[seen.Type]; seen.Type == "osd" {
			o.Domain = ceph.OSDName(o.ID)
		}
	}
	seen.State.Unclean, seen.State.Clean = st.PGMap.Except(good.MatchString)
	seen.State.Answered = true
	return nil
}

// pattern of healthy PG states.
func pattern(cl *cephv1.CephCluster) string {
	if p := cl.Spec.DisruptionManagement.PGHealthyRegex; p != "" {
		return p
	}
	return healthy
}

// flagged are the buckets that have the flag noout.
func flagged(m cephosd.Map, domain string) map[string]bool {
	out := map[string]bool{}
	for name, flags := range m.CrushNodeFlags {
		out[name] = slices.Contains(flags, "noout")
	}
	if domain == "osd" {
		for _, o := range m.OSDs {
			out[ceph.OSDName(o.ID)] = o.Is("noout")
		}
	}
	return out
}

// FailureDomain is the smallest bucket type by which any pool spreads its copies: no
// more than one such bucket may be missing. Without pools it is the host.
func FailureDomain(pools []cephosd.Pool, rules []crush.Rule, tree cephosd.Tree) string {
	level := map[string]int{}
	for _, n := range tree.Nodes {
		level[n.Type] = n.TypeID
	}
	best := ""
	for _, p := range pools {
		for _, r := range rules {
			if r.ID != p.CrushRule {
				continue
			}
			for _, t := range spreads(r) {
				if id, ok := level[t]; ok && (best == "" || id < level[best]) {
					best = t
				}
			}
		}
	}
	if best == "" {
		return "host"
	}
	return best
}

// spreads are the bucket types that a rule spreads copies by. A rule that chooses some
// OSDs of each of some hosts is made so that a host may be missing.
func spreads(r crush.Rule) []string {
	var types []string
	for _, s := range r.Steps {
		if strings.HasPrefix(s.Op, "choose") && s.Type != "" {
			types = append(types, s.Type)
		}
	}
	if len(types) > 1 {
		types = slices.DeleteFunc(types, func(t string) bool { return t == "osd" })
	}
	return types
}
