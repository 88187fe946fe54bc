// Package cluster founds a CephCluster and keeps what all its subjects build on:
// identity, keys, the user's configuration override, and the Ceph version that
// the cluster may run.
//
// It must not run any daemon. A version counts as accepted only when its own
// image has said what it is and the gates have let it pass; until then every
// other controller keeps to the version before.
package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/cleanup"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/selection"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/release"
	"github.com/castellan-storage/castellan/internal/settings"
	"github.com/castellan-storage/castellan/internal/validate/unhandled"
)

// Finalizer of a CephCluster.
const Finalizer = "cephcluster.ceph.rook.io"

// Controller keeps the foundations of CephClusters.
type Controller struct {
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
	// Random makes fsids and keys; crypto/rand's reader but for tests.
	Random io.Reader
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	return kit.Options{
		Name:      "cluster",
		Finalizer: Finalizer,
		Report:    kit.SubjectReport("Foundation"),
		AdoptFrom: pods.FormerOperators(),
		Owns:      []kit.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &batchv1.Job{}},
		Watches: []kit.Watch{
			{Object: &corev1.Pod{}, Map: jobPods, When: kube.Changed()},
			// A second CephCluster gets its turn when the first goes.
			{Object: &cephv1.CephCluster{}, Map: kube.ToAll(&cephv1.CephClusterList{}), When: kube.Gone()},
		},
	}
}

// jobPods passes the pods of this controller's own Jobs.
func jobPods(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if app := obj.GetLabels()["app"]; app != VersionJob && app != cleanup.App {
		return nil
	}
	return kube.ToAll(&cephv1.CephClusterList{})(ctx, cache, obj)
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Now     time.Time
	Cluster podspec.Cluster
	Stored  access.Cluster
	Traces  identity.Traces
	// Other is the CephCluster of the namespace that came first, if not this one.
	Other string
	// Shares says which other CephCluster keeps its data in the same directory of a node,
	// "" for none.
	Shares string
	// Said is what the version pod has said of the wanted image, Job the state of its
	// Job.
	Said     string
	Job      *batchv1.Job
	JobError string
	// Running are the versions of the running daemons; Health and Checks are Ceph's.
	// Both are empty for a cluster that does not run.
	Running release.Running
	Health  string
	// Leaving is set for a cluster that is being deleted; all else is empty then.
	Leaving *Leaving
	// Fresh is an identity to found the cluster with; it is used only if it may be
	// founded.
	Fresh *identity.Identity
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{Now: kit.Now(ctx)}
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	if !cl.DeletionTimestamp.IsZero() {
		return c.leaving(ctx, cl, set)
	}
	if seen.Stored, err = c.Access.Read(ctx, cl.Namespace); err != nil {
		return Seen{}, err
	}
	seen.Cluster = pods.Cluster(cl, c.Operator, set, seen.Stored.Identity.FSID, "")
	for _, look := range []func(context.Context, *cephv1.CephCluster, *Seen) error{c.others, c.sharing, c.traces, c.version, c.ceph} {
		if err := look(ctx, cl, &seen); err != nil {
			return Seen{}, err
		}
	}
	if ok, _ := seen.Traces.MayFound(); ok {
		if v, err := release.Parse(seen.Said); err == nil {
			return seen, c.fresh(&seen, v)
		}
	}
	return seen, nil
}

// fresh makes an identity for a cluster that is to be founded. Making one is not
// an effect: it is forgotten unless it is stored.
func (c *Controller) fresh(seen *Seen, v release.Version) error {
	random := c.Random
	if random == nil {
		random = rand.Reader
	}
	cipher := identity.AES
	if v.Has(release.AES256K) {
		cipher = identity.AES256K
	}
	id, err := identity.New(random, cipher, seen.Now)
	if err != nil {
		return fmt.Errorf("founding the cluster: %w", err)
	}
	seen.Fresh = &id
	return nil
}

// others finds the CephCluster that came first in the namespace.
func (c *Controller) others(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	list, err := kube.List(ctx, c.Cache, &cephv1.CephClusterList{}, client.InNamespace(cl.Namespace))
	if err != nil {
		return fmt.Errorf("listing CephClusters: %w", err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.UID != cl.UID && first(o, cl) {
			seen.Other = o.Name
		}
	}
	return nil
}

// first says which of two CephClusters in a namespace counts: the older, and by
// name when they are of one second.
func first(a, b *cephv1.CephCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// sharing finds another CephCluster, of another namespace, that keeps its data in the
// same directory of the same node: mon a of both would have one store. A cluster that
// has been founded is not stopped by this any more.
func (c *Controller) sharing(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	if seen.Stored.Founded || pods.Founded(cl) || cl.Spec.External.Enable {
		return nil
	}
	list, err := kube.List(ctx, c.Cache, &cephv1.CephClusterList{})
	if err != nil {
		return fmt.Errorf("listing CephClusters: %w", err)
	}
	var nodes *corev1.NodeList
	for i := range list.Items {
		o := &list.Items[i]
		if o.Namespace == cl.Namespace || o.Spec.External.Enable || path.Clean(o.Spec.DataDirHostPath) != path.Clean(cl.Spec.DataDirHostPath) || !pods.Founded(o) && !first(o, cl) {
			continue
		}
		if nodes == nil {
			if nodes, err = kube.List(ctx, c.Cache, &corev1.NodeList{}); err != nil {
				return fmt.Errorf("listing nodes: %w", err)
			}
		}
		mine, theirs := hosts(cl, nodes.Items), hosts(o, nodes.Items)
		for _, n := range slices.Sorted(maps.Keys(mine)) {
			if theirs[n] {
				seen.Shares = fmt.Sprintf("CephCluster %s/%s, which may run on node %s too", o.Namespace, o.Name, n)
				return nil
			}
		}
	}
	return nil
}

// hosts are the nodes that a cluster's mons, mgrs and OSDs may come to.
func hosts(cl *cephv1.CephCluster, nodes []corev1.Node) map[string]bool {
	out := map[string]bool{}
	for _, key := range []cephv1.KeyType{cephv1.KeyMon, cephv1.KeyMgr} {
		na := cl.Spec.Placement.ForDaemon(key).NodeAffinity
		var want *nodeaffinity.NodeSelector
		if na != nil && na.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			var err error
			if want, err = nodeaffinity.NewNodeSelector(na.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
				continue // no pod with such an affinity is made
			}
		}
		for i := range nodes {
			if want == nil || want.Match(&nodes[i]) {
				out[nodes[i].Name] = true
			}
		}
	}
	for _, n := range selection.Resolve(&cl.Spec, nodes, corev1.LabelHostname).Nodes {
		out[n.Name] = true
	}
	return out
}

// traces looks, live, for signs of a cluster that has been here. Any failure is
// an error: what could not be read may be there.
func (c *Controller) traces(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	seen.Traces = identity.Traces{Secret: seen.Stored.Founded, Endpoints: seen.Stored.Listed}
	if seen.Stored.Founded {
		return nil // nothing is going to be founded
	}
	match := []client.ListOption{client.InNamespace(cl.Namespace), client.MatchingLabels{"app": "rook-ceph-mon"}}
	deps, err := kube.List(ctx, c.Access.Live, &appsv1.DeploymentList{}, match...)
	if err != nil {
		return fmt.Errorf("looking for mons of an earlier cluster: %w", err)
	}
	for _, d := range deps.Items {
		seen.Traces.Mons = append(seen.Traces.Mons, "Deployment "+d.Name)
	}
	claims, err := kube.List(ctx, c.Access.Live, &corev1.PersistentVolumeClaimList{}, match...)
	if err != nil {
		return fmt.Errorf("looking for mons of an earlier cluster: %w", err)
	}
	for _, p := range claims.Items {
		seen.Traces.Mons = append(seen.Traces.Mons, "PersistentVolumeClaim "+p.Name)
	}
	if st := cl.Status.CephStatus; st != nil && st.FSID != "" {
		seen.Traces.Ran = "this CephCluster has run with fsid " + st.FSID
		return nil
	}
	osds, err := kube.List(ctx, c.Access.Live, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": "rook-ceph-osd"})
	if err != nil {
		return fmt.Errorf("looking for OSDs of an earlier cluster: %w", err)
	}
	if len(osds.Items) > 0 {
		seen.Traces.Ran = fmt.Sprintf("%d Deployments of OSDs", len(osds.Items))
	}
	return nil
}

// ceph asks a running cluster for what the version gates need. A cluster that
// does not answer has no versions and no health, and then a change of version
// waits.
func (c *Controller) ceph(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	if seen.Stored.Ceph == nil || !changing(cl) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st := status.New(seen.Stored.Ceph)
	r, err := seen.Stored.Ceph.Mon(ctx, ceph.Cmd("versions"))
	if err != nil {
		return nil
	}
	if seen.Running, err = release.ParseRunning(r.Out); err != nil {
		return fmt.Errorf("reading the versions of the running daemons: %w", err)
	}
	now, err := st.Status(ctx)
	if err != nil {
		return nil
	}
	seen.Health = now.Health.Status
	return nil
}

// changing says that the wanted image is not the accepted one.
func changing(cl *cephv1.CephCluster) bool {
	v := cl.Status.CephVersion
	return v == nil || v.Image != cl.Spec.CephVersion.Image
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if seen.Other != "" {
		return kit.Plan{Err: kit.Terminal("metadata.namespace", "CephCluster %s came first in this namespace; a namespace holds one cluster", seen.Other)}
	}
	if cl.Spec.External.Enable {
		return kit.Plan{Err: kit.Terminal("spec.external.enable", "external clusters are not handled yet")}
	}
	if err := check(cl); err != nil {
		return kit.Plan{Err: err}
	}
	if f := unhandled.Blocking(&cl.Spec); f != nil && !seen.Stored.Founded && !pods.Founded(cl) {
		return kit.Plan{Err: kit.Terminal(f.Path, "%s; no cluster is founded that could not become the one that is asked for", f.Instead)}
	}
	if o := seen.Stored.Owners; len(o) > 0 && !slices.Contains(o, cl.UID) {
		// Kubernetes deletes it for want of an owner at any moment. What was made from it by
		// then would be a cluster without an identity.
		return kit.Plan{Wait: &kit.Wait{
			Reason: "EarlierClusterLeaving", Blocked: true, For: time.Second,
			Message: fmt.Sprintf("Secret %s is of a CephCluster that was here before (uid %s), and goes with it; nothing is made before it is gone", identity.Secret, o[0]),
			Hint:    "if this one is to go on with the identity of the earlier, take metadata.ownerReferences out of the Secret",
		}}
	}
	if seen.Shares != "" {
		return kit.Plan{Wait: &kit.Wait{
			Reason: kit.ReasonInvalidSpec, Blocked: true, For: time.Minute,
			Message: fmt.Sprintf("spec.dataDirHostPath: %q is used by %s; their mons and sockets would be in each other's way", cl.Spec.DataDirHostPath, seen.Shares),
			Hint:    "write another directory, or keep the daemons of the two on different nodes by spec.placement",
		}}
	}
	if cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{Wait: &kit.Wait{
			Reason: "CleanupConfirmed", Blocked: true, For: time.Hour,
			Message: "spec.cleanupPolicy.confirmation is set: the cluster is left as it is until it is deleted",
		}}
	}
	p := kit.Plan{Create: []kit.Object{override(seen.Cluster)}}
	v, ok := version(cl, seen, &p)
	if !ok {
		return p
	}
	found(cl, seen, v, &p)
	return p
}

// forbidden are directories that Ceph's pods use themselves.
var forbidden = [...]string{"/etc/ceph", "/rook", "/var/log/ceph", "/var/lib/ceph", "/"}

// check refuses what can never work, by field.
func check(cl *cephv1.CephCluster) error {
	dir := path.Clean(cl.Spec.DataDirHostPath)
	if cl.Spec.DataDirHostPath == "" {
		return kit.Terminal("spec.dataDirHostPath", "a directory on the nodes is needed; write for instance /var/lib/rook")
	}
	if slices.Contains(forbidden[:], dir) {
		return kit.Terminal("spec.dataDirHostPath", "%q is used by Ceph inside its pods; write another directory, for instance /var/lib/rook", cl.Spec.DataDirHostPath)
	}
	if cl.Spec.CephVersion.Image == "" {
		return kit.Terminal("spec.cephVersion.image", "an image of Ceph is needed; write for instance quay.io/ceph/ceph:v20.2.4")
	}
	return nil
}

// override is the user's ceph.conf, made empty once so that pods can mount it.
func override(c podspec.Cluster) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: podspec.ConfigOverride, Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Data:       map[string]string{"config": ""},
	}
}

// found makes the identity, once, and the Secrets that carry it to the daemons.
func found(cl *cephv1.CephCluster, seen Seen, v release.Version, p *kit.Plan) {
	if !seen.Stored.Founded {
		ok, why := seen.Traces.MayFound()
		if !ok {
			p.Wait = &kit.Wait{
				Reason: "IdentityLost", Blocked: true, Message: why + ", but Secret " + identity.Secret + " is missing; a new cluster is not founded beside it",
				Hint: "restore the Secret from a backup, or remove what is left of the old cluster", For: time.Minute,
			}
			return
		}
		if seen.Fresh == nil {
			p.Wait = &kit.Wait{Reason: "VersionUnknown", Message: "the Ceph version is not known yet"}
			return
		}
		p.Create = append(p.Create, secret(seen.Cluster, identity.Secret, seen.Fresh.Data(), true))
		p.Events = append(p.Events, kit.Event{Reason: "ClusterFounded", Message: fmt.Sprintf("a new Ceph cluster with fsid %s is being made, Ceph %s", seen.Fresh.FSID, v)})
		return
	}
	id := seen.Stored.Identity
	if why := foreign(cl, id.FSID); why != "" {
		p.Wait = &kit.Wait{
			Reason: "IdentityMismatch", Blocked: true, Message: why + "; its keys are not given to this one's daemons",
			Hint: "put the right Secret " + identity.Secret + " back", For: time.Minute,
		}
		return
	}
	mons := secret(seen.Cluster, identity.MonsKeyring, map[string][]byte{"keyring": []byte(id.MonsKeyringFile())}, false)
	admin := secret(seen.Cluster, identity.AdminKeyring, map[string][]byte{"keyring": []byte(id.AdminKeyringFile())}, false)
	p.Apply = append(p.Apply, mons, admin)
}

// foreign says that the identity is not that of the cluster which has run here, "" where it
// may be: Secrets of several clusters are easily confused when they are restored.
func foreign(cl *cephv1.CephCluster, fsid string) string {
	st := cl.Status.CephStatus
	if st == nil || st.FSID == "" || fsid == "" || st.FSID == fsid {
		return ""
	}
	return fmt.Sprintf("Secret %s is of the cluster %s, and this CephCluster has run with fsid %s", identity.Secret, fsid, st.FSID)
}

func secret(c podspec.Cluster, name string, data map[string][]byte, protected bool) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Type:       identity.SecretType,
		Data:       data,
	}
	if protected {
		s.Finalizers = []string{identity.Finalizer}
	}
	return s
}

// Unprotect takes the disaster-protection finalizer from one object.
type Unprotect struct{ Secret, ConfigMap types.NamespacedName }

// String implements kit.Action.
func (u Unprotect) String() string {
	if u.Secret.Name != "" {
		return "releasing Secret " + u.Secret.Name
	}
	return "releasing ConfigMap " + u.ConfigMap.Name
}

// short is the first line of a text.
func short(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
