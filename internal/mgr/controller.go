// Package mgr runs a cluster's mgrs: their users, Deployments and Services, the
// label that marks the active one, and the modules that the spec asks for.
//
// It must not hold up anything else: a module that cannot run is a condition of
// its own, and mgrs wait for mons only as far as a new Ceph version demands.
package mgr

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/ceph/config"
	cephmgr "github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mgr/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/release"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Controller runs the mgrs of CephClusters.
type Controller struct {
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
	// Write labels pods.
	Write interface {
		Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
	}
	// Random makes the dashboard's password; crypto/rand's reader but for tests.
	Random io.Reader

	passwords passwords
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	return kit.Options{
		Name:   "mgr",
		Report: kit.SubjectReport("Mgr"), When: access.When(), AdoptFrom: pods.FormerOperators(),
		Owns:      []kit.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.Secret{}, &policyv1.PodDisruptionBudget{}},
		OwnsNamed: access.Named(spec.App, spec.App+"-", PasswordSecret),
		// Of pods only labels are read: whether a mgr is up, its Deployment and Ceph say.
		Watches: []kit.Watch{{Object: &corev1.Pod{}, When: kube.SpecChanged(), Map: kube.OnlyApp(spec.App, kube.ToAll(&cephv1.CephClusterList{}))}},
	}
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Now       time.Time
	Cluster   podspec.Cluster
	Ready     bool // Ceph has answered
	Silence   string
	Version   string
	Users     []auth.Entity
	Stat      cephmgr.Stat
	Modules   cephmgr.Modules
	Config    []config.Option
	Dashboard Dashboard
	Live      map[string]*appsv1.Deployment
	Keys      map[string]string // version of each mgr's key Secret
	Pods      []corev1.Pod
	// Mons says what stands against restarting mgrs with a new Ceph version.
	Mons string
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{Now: kit.Now(ctx), Live: map[string]*appsv1.Deployment{}, Keys: map[string]string{}}
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	if v := cl.Status.CephVersion; v != nil {
		seen.Version = v.Version
	}
	seen.Cluster = pods.Cluster(cl, c.Operator, set, stored.Identity.FSID, seen.Version)
	if v := cl.Status.CephVersion; v != nil && v.Image != "" {
		seen.Cluster.CephImage = v.Image
	}
	if err := c.objects(ctx, cl, &seen); err != nil {
		return Seen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	return seen, c.ceph(ctx, cl, stored.Ceph, &seen)
}

// objects reads the mgrs' objects.
func (c *Controller) objects(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	match := []client.ListOption{client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App}}
	if err := deployments(ctx, c.Cache, seen, match); err != nil {
		return err
	}
	for i := range cl.Spec.Mgr.EffectiveCount() {
		if seen.Live[spec.ID(i)] != nil {
			continue
		}
		// Before a mgr is started, the API server is asked: the cache may be behind, and
		// it does not hold Deployments that somebody else has made.
		if err := deployments(ctx, c.Access.Live, seen, match); err != nil {
			return err
		}
		break
	}
	list, err := kube.List(ctx, c.Cache, &corev1.PodList{}, match...)
	if err != nil {
		return fmt.Errorf("listing the mgrs' pods: %w", err)
	}
	seen.Pods = list.Items
	for i := range cl.Spec.Mgr.EffectiveCount() {
		user := spec.User(spec.ID(i))
		var s corev1.Secret
		found, err := kube.Get(ctx, c.Cache, types.NamespacedName{Namespace: cl.Namespace, Name: user.Secret}, &s)
		if err != nil {
			return fmt.Errorf("reading the key of %s: %w", user.Entity, err)
		}
		if found {
			seen.Keys[spec.ID(i)] = keyring.Version(&s)
		}
	}
	return c.password(ctx, cl, seen)
}

// deployments reads the mgrs' Deployments.
func deployments(ctx context.Context, from client.Reader, seen *Seen, match []client.ListOption) error {
	deps, err := kube.List(ctx, from, &appsv1.DeploymentList{}, match...)
	if err != nil {
		return fmt.Errorf("listing the mgrs' Deployments: %w", err)
	}
	for i := range deps.Items {
		d := &deps.Items[i]
		if id := d.Labels["mgr"]; d.Name == spec.Name(id) {
			seen.Live[id] = d
		}
	}
	return nil
}

// ceph asks for users, the active mgr, modules and settings. Mons that do not
// answer are not an error of the pass.
func (c *Controller) ceph(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander, seen *Seen) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	if seen.Users, err = auth.Recent(ctx, ceph.Recently(commander)); err != nil {
		seen.Silence = err.Error()
		return nil
	}
	m := cephmgr.New(commander)
	if seen.Stat, err = m.Stat(ctx); err != nil {
		return fmt.Errorf("asking for the active mgr: %w", err)
	}
	if seen.Modules, err = m.Modules(ctx); err != nil {
		return fmt.Errorf("asking for the mgr modules: %w", err)
	}
	if seen.Config, err = config.Recent(ctx, ceph.Recently(commander)); err != nil {
		return fmt.Errorf("reading Ceph's settings: %w", err)
	}
	seen.Ready = true
	if err := c.look(ctx, cl, m, seen); err != nil {
		return err
	}
	return c.gate(ctx, cl, commander, seen)
}

// gate reads which versions run, when a mgr has another image than wanted or is to be
// started.
func (c *Controller) gate(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander, seen *Seen) error {
	changes := false
	for i := range cl.Spec.Mgr.EffectiveCount() {
		d := seen.Live[spec.ID(i)]
		changes = changes || d == nil || image(d) != seen.Cluster.CephImage
	}
	if !changes || cl.Spec.SkipUpgradeChecks {
		return nil
	}
	r, err := commander.Mon(ctx, ceph.Cmd("versions"))
	if err != nil {
		return fmt.Errorf("asking for the versions of the daemons: %w", err)
	}
	running, err := release.ParseRunning(r.Out)
	if err != nil {
		return fmt.Errorf("reading the versions of the daemons: %w", err)
	}
	target, err := release.ParseLabel(seen.Version)
	if err != nil {
		return fmt.Errorf("reading the accepted Ceph version: %w", err)
	}
	// Mons that run the old version are in the way; that none runs is not, for a mgr
	// without mons does no harm.
	if g := release.MayStart(release.Mgr, target, running); slices.ContainsFunc(g.Blockers, func(b release.Blocker) bool { return b.Count > 0 }) {
		seen.Mons = g.Message(release.Mgr, target)
	}
	return nil
}

// image of a daemon's Deployment.
func image(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "mgr" {
			return c.Image
		}
	}
	return ""
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	if seen.Version == "" {
		return kit.Plan{Wait: pods.NotFounded()}
	}
	if !seen.Ready {
		return kit.Plan{Wait: &kit.Wait{Reason: "MonsNotReady", Message: "mgrs wait for the mons: " + seen.Silence, For: time.Second}}
	}
	p := kit.Plan{Next: 15 * time.Second}
	var users []keyring.User
	for i := range cl.Spec.Mgr.EffectiveCount() {
		users = append(users, spec.User(spec.ID(i)))
	}
	p.Apply, p.Do = keyring.Plan(seen.Cluster, seen.Users, users)
	daemons(cl, seen, &p)
	dash, port := spec.DashboardOf(cl.Spec.Dashboard), spec.MetricsPort(cl.Spec.Monitoring)
	for _, s := range spec.Services(seen.Cluster, port, dash) {
		p.Apply = append(p.Apply, s)
	}
	if port == 0 {
		p.Delete = append(p.Delete, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: spec.App, Namespace: cl.Namespace}})
	}
	if dash == nil {
		p.Delete = append(p.Delete, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: spec.App + "-dashboard", Namespace: cl.Namespace}})
	}
	if b := spec.Budget(seen.Cluster, cl.Spec.Mgr.EffectiveCount()); b != nil {
		p.Apply = append(p.Apply, b)
	} else {
		p.Delete = append(p.Delete, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: spec.App + "-pdb", Namespace: cl.Namespace}})
	}
	roles(seen, &p)
	modules(cl, seen, &p)
	if p.Wait == nil && !seen.Stat.Available {
		p.Wait = &kit.Wait{Reason: "MgrNotAvailable", Message: "no mgr is active yet", For: time.Second}
	}
	return p
}

// standbyAfter is how long a standby waits at most for a new cluster to become ready. It
// is longer than a small machine takes, and short enough where the first mgr cannot start.
const standbyAfter = 90 * time.Second

// early says that a standby need not be started yet: a cluster that has never been ready
// has nothing yet that a standby could take over, and loading a mgr's Python modules takes
// several seconds of processor time from the OSDs that everybody waits for.
func early(cl *cephv1.CephCluster, seen Seen) bool {
	if cl.Status.ObservedGeneration > 0 && cl.Status.Phase == cephv1.ConditionReady {
		return false
	}
	first := seen.Live[spec.ID(0)]
	return first == nil || seen.Now.Sub(first.CreationTimestamp.Time) < standbyAfter
}

// daemons makes one mgr after another follow the spec. A standby goes first, so
// that there is one to take over when the active one restarts.
func daemons(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) {
	user := podspec.UserOf(&cl.Spec, cephv1.KeyMgr, cephv1.ResourcesKeyMgr)
	host := seen.Cluster.HostNetwork
	if h := cl.Spec.Mgr.HostNetwork; h != nil {
		host = *h
	}
	var outdated []*appsv1.Deployment
	count := cl.Spec.Mgr.EffectiveCount()
	for i := range count {
		id := spec.ID(i)
		live := seen.Live[id]
		if seen.Keys[id] == "" || live != nil && kube.Skipped(live) {
			continue
		}
		want := pods.Stamp(spec.Deployment(seen.Cluster, spec.Mgr{
			ID: id, HostNetwork: host, AllowMultiplePerNode: cl.Spec.Mgr.AllowMultiplePerNode,
			MetricsPort: spec.MetricsPort(cl.Spec.Monitoring), Dashboard: spec.DashboardOf(cl.Spec.Dashboard),
			Startup: cl.Spec.HealthCheck.StartupProbe[cephv1.KeyMgr], Liveness: cl.Spec.HealthCheck.LivenessProbe[cephv1.KeyMgr],
			KeyVersion: seen.Keys[id],
		}, user), seen.Cluster.NodeImage)
		switch {
		case live == nil && seen.Mons != "":
			p.Wait = &kit.Wait{Reason: "UpgradeOrder", Message: "mgr " + id + " is not started yet: " + seen.Mons, For: 10 * time.Second}
		case live == nil && i > 0 && early(cl, seen):
			p.Next = time.Second
		case live == nil:
			p.Apply = append(p.Apply, want)
		case pods.Adopt(want, live, "mgr") || pods.UpToDate(live, want):
			pods.KeepNodeImage(want, live, seen.Cluster.NodeImage)
			p.Apply = append(p.Apply, want)
		default:
			outdated = append(outdated, want)
		}
	}
	update(seen, outdated, p)
	for id, d := range seen.Live {
		if !wanted(id, count) && !kube.Skipped(d) {
			p.Delete = append(p.Delete, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, UID: d.UID}})
			p.Delete = append(p.Delete, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: spec.User(id).Secret, Namespace: d.Namespace}})
		}
	}
}

func wanted(id string, count int) bool {
	for i := range count {
		if spec.ID(i) == id {
			return true
		}
	}
	return false
}

// update restarts one outdated mgr, if all others are up. One that is not up itself
// waits for nobody: the new template may be what it needs.
func update(seen Seen, outdated []*appsv1.Deployment, p *kit.Plan) {
	if len(outdated) == 0 {
		return
	}
	slices.SortStableFunc(outdated, func(a, b *appsv1.Deployment) int { return rank(seen, a) - rank(seen, b) })
	next := outdated[0]
	id := next.Spec.Selector.MatchLabels["mgr"]
	broken := seen.Live[id].Status.ReadyReplicas < 1
	if live := seen.Live[id]; image(live) != image(next) && seen.Mons != "" {
		p.Wait = &kit.Wait{Reason: "UpgradeOrder", Message: seen.Mons, For: 10 * time.Second}
		return
	}
	for other, d := range seen.Live {
		if other != id && !pods.RolledOut(d) && !broken {
			p.Wait = &kit.Wait{Reason: "MgrStarting", Message: "mgr " + id + " is updated when mgr " + other + " is ready", For: 5 * time.Second}
			return
		}
	}
	p.Apply = append(p.Apply, next)
	p.Wait = &kit.Wait{Reason: "MgrUpdating", Message: "mgr " + id + " restarts with a new specification", For: 2 * time.Second}
}

// rank puts the active mgr last, and one that is not up first.
func rank(seen Seen, d *appsv1.Deployment) int {
	if live := seen.Live[d.Spec.Selector.MatchLabels["mgr"]]; live != nil && live.Status.ReadyReplicas < 1 {
		return -1
	}
	if d.Spec.Selector.MatchLabels["mgr"] == seen.Stat.Active {
		return 1
	}
	return 0
}

// roles marks the active mgr's pod and unmarks the others.
func roles(seen Seen, p *kit.Plan) {
	for _, pod := range seen.Pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		role := "standby"
		if pod.Labels["mgr"] == seen.Stat.Active && seen.Stat.Active != "" {
			role = "active"
		}
		if pod.Labels[spec.RoleLabel] != role {
			p.Do = append(p.Do, Label{Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, Role: role})
		}
	}
}

// Teardown implements kit.Controller: everything goes with the CephCluster.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }
