package osd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/selection"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// Daemons runs the OSDs that nodes have found.
type Daemons struct{ Base }

// DaemonOptions of the daemon controller for kit.Register.
func DaemonOptions() kit.Options {
	toAll := kube.ToAll(&cephv1.CephClusterList{})
	return kit.Options{
		Name:   "osd",
		Report: kit.SubjectReport("OSD"), When: access.When(), AdoptFrom: pods.FormerOperators(),
		Owns: []kit.Object{&appsv1.Deployment{}}, OwnsNamed: kube.Named(spec.App + "-"),
		Watches: []kit.Watch{
			{Object: &corev1.ConfigMap{}, Map: kube.OnlyApp("rook-ceph-osd", toAll), When: kube.Changed()},
			{Object: &corev1.Node{}, Map: toAll, When: NodeChanged()},
		},
	}
}

// DaemonSeen is everything that the daemons' plan needs to know.
type DaemonSeen struct {
	Now     time.Time
	Cluster podspec.Cluster
	Founded bool
	Silence string
	State   plan.State
	Map     cephosd.Map
	// Live are the Deployments by id.
	Live map[int]*appsv1.Deployment
	// Lingering are pods, by id, of OSDs that have no Deployment.
	Lingering map[int]string
	// Nodes by name. HostLabel is the label by which spec.storage.nodes names them, ""
	// for the usual one.
	Nodes     map[string]*corev1.Node
	HostLabel string
	// AnyTopology lets a label value stand at two CRUSH levels.
	AnyTopology bool
	// Wanted are the Deployments as they should be, by id; Problems say why one could
	// not be built.
	Wanted   map[int]*appsv1.Deployment
	Problems []string
	// Decisions and Outdated come from the plan, computed once the Deployments are
	// built.
	Decisions []plan.Decision
	Outdated  []int
	// Stop is Ceph's answer about the next OSDs to restart, if it was asked. Unclean says
	// which PGs the update waits for, "" for none.
	Stop    *cephosd.StopAnswer
	Unclean string
	Down    []int
	Roll    plan.Rolling
	// Gate says what must come first before OSDs get a new Ceph version.
	Gate string
	// StartGate says what must come first before new OSDs start.
	StartGate string
	// Expected is how many OSDs the nodes' reports promise.
	Expected int
}

// New implements kit.Controller.
func (*Daemons) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Daemons) Observe(ctx context.Context, cl *cephv1.CephCluster) (DaemonSeen, error) {
	seen := DaemonSeen{Now: kit.Now(ctx), Live: map[int]*appsv1.Deployment{}, Nodes: map[string]*corev1.Node{}, Wanted: map[int]*appsv1.Deployment{}}
	set, stored, cluster, err := c.base(ctx, cl)
	if err != nil {
		return DaemonSeen{}, err
	}
	seen.Cluster, seen.Founded, seen.HostLabel, seen.AnyTopology = cluster, stored.Founded, set.HostnameLabel, set.SkipTopologyCheck
	seen.State = plan.State{Now: seen.Now, Known: map[int]plan.Known{}, Live: map[int]plan.Live{}}
	if err := c.objects(ctx, cl, &seen); err != nil {
		return DaemonSeen{}, err
	}
	if stored.Ceph == nil || !stored.Founded {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	if len(seen.State.Records) == 0 && len(seen.Live) == 0 {
		return seen, nil // nothing to ask about
	}
	if seen.Map, seen.Silence = osdMap(ctx, stored); seen.Silence == "" {
		seen.State.Answered = true
		for _, o := range seen.Map.OSDs {
			seen.State.Known[o.ID] = plan.Known{UUID: o.UUID, Up: bool(o.Up), In: bool(o.In), Destroyed: o.Destroyed(), Booted: o.UpFrom > 0}
		}
	}
	seen.Decisions = plan.Decide(seen.State)
	if seen.starts() {
		if err := c.lingering(ctx, cl, &seen); err != nil {
			return DaemonSeen{}, err
		}
	}
	seen.build(cl)
	seen.Down, seen.Roll = plan.Roll(seen.State, seen.Outdated, cl.Spec.Storage.EffectiveOSDMaxUpdatesInParallel(), cl.Spec.SkipUpgradeChecks)
	return seen, c.update(ctx, cl, stored.Ceph, &seen)
}

// objects reads reports, Deployments and nodes.
func (c *Daemons) objects(ctx context.Context, cl *cephv1.CephCluster, seen *DaemonSeen) error {
	nodes, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		seen.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	maps, err := reports.StatusMaps(ctx, c.Cache, cl.Namespace)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(maps) {
		records, err := reports.Records(maps[name])
		if err != nil {
			seen.Problems = append(seen.Problems, err.Error())
			continue
		}
		for _, r := range records {
			n := seen.Nodes[r.Node]
			if r.NodeGone = n == nil; !r.NodeGone {
				r.Host = n.Labels[corev1.LabelHostname]
			}
			if r.FSID == seen.Cluster.FSID {
				seen.State.Records = append(seen.State.Records, r)
				seen.Expected++
			}
		}
	}
	if err := c.deployments(ctx, cl, c.Cache, seen); err != nil {
		return err
	}
	// Before an OSD is started, the API server is asked: the cache may be behind, and it
	// does not hold Deployments that somebody else has made.
	if slices.ContainsFunc(seen.State.Records, func(r plan.Record) bool { return seen.Live[r.ID] == nil }) {
		return c.deployments(ctx, cl, c.Access.Live, seen)
	}
	return nil
}

// lingering finds pods that have outlived their Deployment, live: on a node that does not
// answer, or to which the disk no longer belongs, the OSD may run for as long as they are
// there.
func (c *Daemons) lingering(ctx context.Context, cl *cephv1.CephCluster, seen *DaemonSeen) error {
	list, err := kube.List(ctx, c.Access.Live, &corev1.PodList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the pods of OSDs: %w", err)
	}
	seen.Lingering = map[int]string{}
	for _, p := range list.Items {
		if id, err := strconv.Atoi(p.Labels[spec.IDLabel]); err == nil && seen.Live[id] == nil {
			seen.Lingering[id] = p.Name + " on node " + p.Spec.NodeName
		}
	}
	return nil
}

// deployments reads the OSDs' Deployments.
func (c *Daemons) deployments(ctx context.Context, cl *cephv1.CephCluster, from client.Reader, seen *DaemonSeen) error {
	deps, err := kube.List(ctx, from, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the OSDs' Deployments: %w", err)
	}
	for i := range deps.Items {
		d := &deps.Items[i]
		id, err := strconv.Atoi(d.Labels[spec.IDLabel])
		if err != nil || d.Name != spec.Name(id) {
			continue // somebody's copy of an OSD
		}
		seen.Live[id] = d
		seen.State.Live[id] = liveOf(d)
	}
	return nil
}

// liveOf reads a Deployment's notes.
func liveOf(d *appsv1.Deployment) plan.Live {
	l := plan.Live{
		Replacing: spec.Replacing(d.Annotations), Skipped: kube.Skipped(d), Stopped: d.Spec.Replicas != nil && *d.Spec.Replicas == 0,
		Ready: d.Status.ReadyReplicas > 0, Settled: d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas,
		Host: spec.HostOf(d), WasDown: d.Annotations[spec.WasDownAnnotation] != "",
	}
	if r, ok := reports.OnDeployment(d); ok {
		l.UUID, l.Record = r.UUID, r
	}
	return l
}

// build makes the Deployments that the decisions ask for, and notes which live
// ones are outdated.
func (s *DaemonSeen) build(cl *cephv1.CephCluster) {
	for _, d := range s.Decisions {
		if d.What != plan.Create && d.What != plan.Keep && d.What != plan.Rebuild || d.Record.UUID == "" {
			continue
		}
		if live := s.State.Live[d.ID]; d.Record.NodeGone && live.Host != "" {
			// What the label of a node was that is gone is on the Deployment, and nowhere else.
			d.Record.Host = live.Host
		}
		want, err := s.deployment(cl, d)
		if err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("osd.%d: %v", d.ID, err))
			continue
		}
		s.Wanted[d.ID] = want
		live := s.Live[d.ID]
		if live == nil || d.What == plan.Rebuild {
			continue
		}
		if s.State.Live[d.ID].Stopped {
			want.Spec.Replicas = live.Spec.Replicas
		}
		if v := live.Annotations[spec.WasDownAnnotation]; v != "" && !s.State.Known[d.ID].Up {
			want.Annotations[spec.WasDownAnnotation] = v
		}
		if pods.Adopt(want, live, "osd") || pods.UpToDate(live, want) {
			pods.KeepNodeImage(want, live, s.Cluster.NodeImage)
		} else {
			s.Outdated = append(s.Outdated, d.ID)
		}
	}
}

func (s *DaemonSeen) deployment(cl *cephv1.CephCluster, d plan.Decision) (*appsv1.Deployment, error) {
	class := d.Record.DeviceClass
	user := podspec.UserOf(&cl.Spec, cephv1.KeyOSD, cephv1.ResourcesKeyOSD)
	user.Resources = cl.Spec.Resources.ForOSD(class)
	conf, location, err := s.place(cl, d)
	if err != nil {
		return nil, err
	}
	for _, n := range cl.Spec.Storage.Nodes {
		if n.Name == s.named(d.Record) && (len(n.Resources.Requests) > 0 || len(n.Resources.Limits) > 0) {
			user.Resources = n.Resources
		}
	}
	dep, err := spec.Deployment(s.Cluster, spec.OSD{
		Record: d.Record.Result, Host: d.Record.Host, Location: location, DeviceClass: class,
		InitialWeight: conf.Device.InitialWeight,
		Startup:       cl.Spec.HealthCheck.StartupProbe[cephv1.KeyOSD], Liveness: cl.Spec.HealthCheck.LivenessProbe[cephv1.KeyOSD],
	}, user)
	if err != nil {
		return nil, err
	}
	return pods.Stamp(dep, s.Cluster.NodeImage), nil
}

// named is what spec.storage.nodes calls the node of an OSD: by the label that the
// operator's settings name.
func (s *DaemonSeen) named(r plan.Record) string {
	if n := s.Nodes[r.Node]; n != nil && s.HostLabel != "" {
		return n.Labels[s.HostLabel]
	}
	return r.Host
}

// place is the OSD's CRUSH location. It is decided once, when the OSD is made: a
// label that changes later must not move data by itself.
func (s *DaemonSeen) place(cl *cephv1.CephCluster, d plan.Decision) (selection.Settings, string, error) {
	conf, problems := selection.Config(cl.Spec.Storage.Config, "spec.storage.config", selection.Settings{})
	for i, n := range cl.Spec.Storage.Nodes {
		if n.Name == s.named(d.Record) && !cl.Spec.Storage.UseAllNodes {
			var more []selection.Problem
			conf, more = selection.Config(n.Config, fmt.Sprintf("spec.storage.nodes[%d].config", i), conf)
			problems = append(problems, more...)
		}
	}
	if live := s.Live[d.ID]; live != nil && live.Annotations[spec.LocationAnnotation] != "" {
		return conf, live.Annotations[spec.LocationAnnotation], nil
	}
	if len(problems) > 0 {
		return conf, "", fmt.Errorf("%s: %s", problems[0].Field, problems[0].Message)
	}
	labels := map[string]string{}
	if n := s.Nodes[d.Record.Node]; n != nil {
		labels = n.Labels
	}
	location, err := selection.Topology(labels, d.Record.Host, conf.CrushRoot, s.AnyTopology)
	return conf, location, err
}

// starts says that an OSD is about to be started for the first time.
func (s *DaemonSeen) starts() bool {
	return slices.ContainsFunc(s.Decisions, func(d plan.Decision) bool { return d.What == plan.Create || d.What == plan.Rebuild })
}

func image(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "osd" {
			return c.Image
		}
	}
	return ""
}

// Plan implements kit.Controller.
func (c *Daemons) Plan(cl *cephv1.CephCluster, seen DaemonSeen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	if !pods.Founded(cl) {
		return kit.Plan{Wait: pods.NotFounded()}
	}
	if seen.Silence != "" {
		return kit.Plan{Wait: &kit.Wait{Reason: "MonsNotReady", Message: "OSDs wait for the mons: " + seen.Silence, For: time.Second}}
	}
	p := kit.Plan{Next: time.Minute, Conditions: []kit.Condition{upCondition(seen)}}
	asked := slices.Clone(seen.Problems)
	for _, d := range seen.Decisions {
		want := seen.Wanted[d.ID]
		switch d.What {
		case plan.Create, plan.Rebuild:
			if seen.StartGate != "" {
				p.Wait = &kit.Wait{Reason: "UpgradeOrder", Message: ceph.OSDName(d.ID) + " is not started yet: " + seen.StartGate, For: 10 * time.Second}
				continue
			}
			if pod := seen.Lingering[d.ID]; pod != "" {
				p.Wait = &kit.Wait{
					Reason: "OldPodThere", Object: ceph.OSDName(d.ID), For: 2 * time.Second,
					Message: fmt.Sprintf("%s is not started: its pod %s is not gone yet, and no OSD may run twice; if that node is lost for good, delete the pod by force", ceph.OSDName(d.ID), pod),
				}
				continue
			}
			if want != nil {
				p.Apply = append(p.Apply, want)
			}
			if d.What == plan.Rebuild {
				p.Events = append(p.Events, kit.Event{Reason: "OSDRebuilt", Message: d.Why})
			}
		case plan.Keep:
			switch {
			case want == nil || seen.Gate != "" && seen.changesImage(d.ID):
			case slices.Contains(seen.Down, d.ID):
				want.Annotations[spec.WasDownAnnotation] = "true"
				p.Apply = append(p.Apply, want)
			case !slices.Contains(seen.Outdated, d.ID):
				p.Apply = append(p.Apply, want)
			}
		case plan.Ask:
			asked = append(asked, d.Why)
		}
	}
	roll(cl, seen, &p)
	if p.Wait == nil {
		p.Wait = starting(seen)
	}
	if len(asked) > 0 {
		p.Wait = &kit.Wait{Reason: "OSDProblem", Message: strings.Join(asked, "; "), Blocked: true, For: time.Minute}
	}
	return p
}

// starting waits for OSDs that have never been up. One that went down later does
// not take the cluster back to its beginning: that is a condition of its own.
func starting(seen DaemonSeen) *kit.Wait {
	never, _ := notUp(seen)
	if len(never) == 0 {
		return nil
	}
	w := &kit.Wait{Reason: "OSDsNotUp", Message: names(never) + " are not up yet", Object: names(never), For: 2 * time.Second}
	for _, id := range never {
		if why := seen.fenced(id); why != "" {
			w.Message += "; " + why
		}
	}
	return w
}

// fenced says of an OSD that somebody has fenced what it is that keeps it from starting.
// The label is also one of the marks of a replacement: where the others and its note were
// taken away by hand, it alone is left, and nothing else would tell what is awaited.
func (s *DaemonSeen) fenced(id int) string {
	live, known := s.State.Live[id], s.State.Known[id]
	if !live.Skipped {
		return ""
	}
	why := fmt.Sprintf("%s is left alone, as its Deployment has the label %s", ceph.OSDName(id), kube.SkipLabel)
	if live.UUID != "" && live.UUID != known.UUID {
		why += fmt.Sprintf(", and is for uuid %s, which is %s now: remove the label, and the Deployment is made for the disk that carries it", live.UUID, known.UUID)
	}
	return why
}

// notUp are the OSDs that should run and do not: those that never did, and those
// that went down.
func notUp(seen DaemonSeen) (never, down []int) {
	for _, d := range seen.Decisions {
		k, ok := seen.State.Known[d.ID]
		if d.What == plan.Ignore || d.What == plan.Ask || seen.State.Live[d.ID].Replacing || seen.State.Live[d.ID].Stopped || !ok || k.Up || k.Destroyed {
			continue
		}
		if k.Booted {
			down = append(down, d.ID)
		} else {
			never = append(never, d.ID)
		}
	}
	return never, down
}

// upCondition says which OSDs went down.
func upCondition(seen DaemonSeen) kit.Condition {
	_, down := notUp(seen)
	if len(down) == 0 {
		return kit.Condition{Type: "OSDsUp", Status: metav1.ConditionTrue, Reason: "AllUp", Message: "no OSD is down"}
	}
	return kit.Condition{Type: "OSDsUp", Status: metav1.ConditionFalse, Reason: "OSDDown", Message: names(down) + " went down"}
}

func badPGs(a cephosd.StopAnswer) string {
	bad := slices.Concat(a.BadInactive, a.BadAlready, a.Unknown)
	slices.Sort(bad)
	bad = slices.Compact(bad)
	if len(bad) == 0 {
		return "Ceph gives no reason"
	}
	more := ""
	if len(bad) > 5 {
		bad, more = bad[:5], fmt.Sprintf(" and %d more", len(bad)-5)
	}
	return "pgs " + strings.Join(bad, ", ") + more + " would be inactive"
}

func names(ids []int) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = ceph.OSDName(id)
	}
	return strings.Join(parts, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Do implements kit.Doer; the plan's actions are Kubernetes objects only.
func (c *Daemons) Do(_ context.Context, _ *cephv1.CephCluster, action kit.Action) error {
	return fmt.Errorf("%s: no such action", action)
}

// Teardown implements kit.Controller: Deployments go with the CephCluster.
func (*Daemons) Teardown(*cephv1.CephCluster, DaemonSeen) kit.Plan { return kit.Plan{} }
