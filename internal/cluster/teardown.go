package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cleanup"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	osdspec "github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// blockedAgain is when a deletion that is blocked is looked at again.
const blockedAgain = 10 * time.Second

// Leaving is what is known of a cluster that is being deleted. Everything in it has
// been read live.
type Leaving struct {
	// Other is the CephCluster that came first in the namespace: all that is there
	// is that one's.
	Other string
	// Blockers need the cluster, by kind and name.
	Blockers []string
	// SecretHeld and EndpointsHeld say which objects still have our protection.
	SecretHeld, EndpointsHeld bool
	// Leftovers are objects of ours that no owner reference takes along.
	Leftovers []kit.Object
	// Jobs of cleaning, by name, and the pods of such Jobs.
	Jobs map[string]*batchv1.Job
	Pods []corev1.Pod

	// The rest is known only if data is to be destroyed.

	// Listed says that the list of hosts has been stored; Stored is that list, Found
	// what can be seen now.
	Listed        bool
	Stored, Found cleanup.Hosts
	// StoredFSID is the fsid that was stored with the list.
	StoredFSID string
	// Workloads are what keeps daemons running, Daemons the pods that are left of them.
	Workloads []kit.Object
	Daemons   []corev1.Pod
	Nodes     []corev1.Node
}

// leaving reads all of it. A read that fails is an error: what could not be read may
// be there.
func (c *Controller) leaving(ctx context.Context, cl *cephv1.CephCluster, set settings.Settings) (Seen, error) {
	seen := Seen{Now: kit.Now(ctx), Leaving: &Leaving{Jobs: map[string]*batchv1.Job{}}}
	l := seen.Leaving
	list, err := kube.List(ctx, c.Access.Live, &cephv1.CephClusterList{}, client.InNamespace(cl.Namespace))
	if err != nil {
		return Seen{}, fmt.Errorf("listing CephClusters: %w", err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.UID != cl.UID && first(o, cl) {
			l.Other = o.Name
			return seen, nil
		}
	}
	fsid := ""
	looks := []func(context.Context, *cephv1.CephCluster, *Leaving) error{c.blockers, c.volumes, c.cleanups, c.leftovers}
	if destroys(cl) {
		// Daemons before reports: what a daemon or a Job has told before it ended is
		// seen then.
		looks = append(looks, c.daemons, c.hosts)
	}
	for _, look := range append([]func(context.Context, *cephv1.CephCluster, *Leaving) error{
		func(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) (err error) {
			fsid, err = c.protected(ctx, cl, l)
			return err
		},
	}, looks...) {
		if err := look(ctx, cl, l); err != nil {
			return Seen{}, err
		}
	}
	if destroys(cl) {
		if err := c.find(ctx, cl, cmp.Or(fsid, l.StoredFSID), l); err != nil {
			return Seen{}, err
		}
	}
	seen.Cluster = pods.Cluster(cl, c.Operator, set, cmp.Or(fsid, l.StoredFSID), "")
	if v := cl.Status.CephVersion; v != nil && v.Image != "" {
		seen.Cluster.CephImage = v.Image
	}
	return seen, nil
}

// destroys says that the user has confirmed that data goes with the cluster. Ceph of
// somebody else is never ours to destroy.
func destroys(cl *cephv1.CephCluster) bool {
	return cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() && !cl.Spec.External.Enable
}

// protected reads the fsid, and what still carries the protection.
func (c *Controller) protected(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) (fsid string, err error) {
	var secret corev1.Secret
	found, err := kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: identity.Secret}, &secret)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's identity: %w", err)
	}
	if found {
		fsid = strings.TrimSpace(string(secret.Data["fsid"]))
		l.SecretHeld = slices.Contains(secret.Finalizers, identity.Finalizer)
	}
	var cm corev1.ConfigMap
	if found, err = kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: endpoints.ConfigMap}, &cm); err != nil {
		return "", fmt.Errorf("reading the list of mons: %w", err)
	}
	l.EndpointsHeld = found && slices.Contains(cm.Finalizers, identity.Finalizer)
	return fsid, nil
}

// dependent is a kind whose objects need a cluster.
type dependent struct {
	kind string
	list client.ObjectList
	// of gives the namespace of the cluster where that is not the object's own.
	of func(obj runtime.Object) string
}

// dependents are all kinds that refer to the cluster of a namespace. Users and topics
// may live in other namespaces.
func dependents() []dependent {
	return []dependent{
		{kind: "CephBlockPool", list: &cephv1.CephBlockPoolList{}},
		{kind: "CephBlockPoolRadosNamespace", list: &cephv1.CephBlockPoolRadosNamespaceList{}},
		{kind: "CephRBDMirror", list: &cephv1.CephRBDMirrorList{}},
		{kind: "CephFilesystem", list: &cephv1.CephFilesystemList{}},
		{kind: "CephFilesystemSubVolumeGroup", list: &cephv1.CephFilesystemSubVolumeGroupList{}},
		{kind: "CephFilesystemMirror", list: &cephv1.CephFilesystemMirrorList{}},
		{kind: "CephObjectStore", list: &cephv1.CephObjectStoreList{}},
		{kind: "CephObjectRealm", list: &cephv1.CephObjectRealmList{}},
		{kind: "CephObjectZoneGroup", list: &cephv1.CephObjectZoneGroupList{}},
		{kind: "CephObjectZone", list: &cephv1.CephObjectZoneList{}},
		{kind: "CephObjectStoreAccount", list: &cephv1.CephObjectStoreAccountList{}},
		{kind: "CephObjectStoreUser", list: &cephv1.CephObjectStoreUserList{}, of: func(obj runtime.Object) string {
			if u, ok := obj.(*cephv1.CephObjectStoreUser); ok {
				return u.Spec.ClusterNamespace
			}
			return ""
		}},
		{kind: "CephBucketTopic", list: &cephv1.CephBucketTopicList{}, of: func(obj runtime.Object) string {
			if t, ok := obj.(*cephv1.CephBucketTopic); ok {
				return t.Spec.ObjectStoreNamespace
			}
			return ""
		}},
		{kind: "CephBucketNotification", list: &cephv1.CephBucketNotificationList{}},
		{kind: "CephNFS", list: &cephv1.CephNFSList{}},
		{kind: "CephNVMeOFGateway", list: &cephv1.CephNVMeOFGatewayList{}},
		{kind: "CephClient", list: &cephv1.CephClientList{}},
	}
}

// blockers names the objects that need the cluster. Children know the cluster by its
// namespace alone, so kit's dependents, which go by name, do not serve.
func (c *Controller) blockers(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) error {
	for _, d := range dependents() {
		names := map[string]bool{}
		collect := func(r client.Reader, opts ...client.ListOption) error {
			if err := r.List(ctx, d.list, opts...); err != nil {
				if meta.IsNoMatchError(err) {
					return nil // the kind is not installed, so there is none
				}
				return fmt.Errorf("listing dependents of kind %s: %w", d.kind, err)
			}
			return meta.EachListItem(d.list, func(item runtime.Object) error {
				obj, ok := item.(client.Object)
				if !ok {
					return fmt.Errorf("listing dependents of kind %s: %T is no object", d.kind, item)
				}
				of := ""
				if d.of != nil {
					of = d.of(item)
				}
				if cmp.Or(of, obj.GetNamespace()) == cl.Namespace {
					names[d.kind+" "+obj.GetNamespace()+"/"+obj.GetName()] = true
				}
				return nil
			})
		}
		if err := collect(c.Access.Live, client.InNamespace(cl.Namespace)); err != nil {
			return err
		}
		if d.of != nil {
			// The operator may have no rights beyond the namespaces that it watches; the
			// cache knows which these are.
			if err := collect(c.Cache); err != nil {
				return err
			}
		}
		l.Blockers = append(l.Blockers, slices.Sorted(maps.Keys(names))...)
	}
	return nil
}

// drivers are the ends of the names of Ceph's CSI drivers; in front of them stands
// the operator's namespace or a prefix of the user's.
var drivers = [...]string{"rbd.csi.ceph.com", "cephfs.csi.ceph.com", "nfs.csi.ceph.com", "nvmeof.csi.ceph.com"}

// volumePage is how many volumes are read at once.
const volumePage = 500

// volumes names the PersistentVolumes whose data is in the cluster.
func (c *Controller) volumes(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) error {
	if cl.Spec.CleanupPolicy.AllowUninstallWithVolumes {
		return nil
	}
	page := &corev1.PersistentVolumeList{}
	for {
		if err := c.Access.Live.List(ctx, page, client.Limit(volumePage), client.Continue(page.Continue)); err != nil {
			return fmt.Errorf("listing PersistentVolumes: %w", err)
		}
		for i := range page.Items {
			if pv := &page.Items[i]; inCluster(pv, cl.Namespace) {
				l.Blockers = append(l.Blockers, "PersistentVolume "+pv.Name)
			}
		}
		if page.Continue == "" {
			return nil
		}
	}
}

func inCluster(pv *corev1.PersistentVolume, clusterID string) bool {
	csi := pv.Spec.CSI
	return csi != nil && csi.VolumeAttributes["clusterID"] == clusterID && slices.ContainsFunc(drivers[:], func(d string) bool {
		return csi.Driver == d || strings.HasSuffix(csi.Driver, "."+d)
	})
}

// cleanups reads the Jobs of cleaning and their pods.
func (c *Controller) cleanups(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) error {
	match := []client.ListOption{client.InNamespace(cl.Namespace), client.MatchingLabels{"app": cleanup.App}}
	jobs, err := kube.List(ctx, c.Access.Live, &batchv1.JobList{}, match...)
	if err != nil {
		return fmt.Errorf("listing cleanup Jobs: %w", err)
	}
	for i := range jobs.Items {
		l.Jobs[jobs.Items[i].Name] = &jobs.Items[i]
	}
	list, err := kube.List(ctx, c.Access.Live, &corev1.PodList{}, match...)
	if err != nil {
		return fmt.Errorf("listing the pods of cleanup Jobs: %w", err)
	}
	l.Pods = list.Items
	return nil
}

// leftovers are objects that would stay: nodes' reports, which nodes write, and what
// an operator that was here before has made without an owner.
func (c *Controller) leftovers(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) error {
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &policyv1.PodDisruptionBudgetList{}, &discoveryv1.EndpointSliceList{},
	} {
		if err := c.Access.Live.List(ctx, list, client.InNamespace(cl.Namespace)); err != nil {
			return fmt.Errorf("looking for what the cluster leaves behind: listing %T: %w", list, err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if obj, ok := item.(client.Object); ok && orphan(obj) {
				obj.SetResourceVersion("") // it may have changed by the time it goes
				l.Leftovers = append(l.Leftovers, obj)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// orphan says that an object is the cluster's and that nothing takes it along. In the
// operator's own namespace are objects of others with our label.
func orphan(obj client.Object) bool {
	if len(obj.GetOwnerReferences()) > 0 {
		return false
	}
	labels := obj.GetLabels()
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		if labels["app"] == "rook-ceph-osd" && labels["status"] == "provisioning" || o.Name == "rook-ceph-pdbstatemap" {
			return true
		}
	case *policyv1.PodDisruptionBudget:
		if o.Spec.Selector != nil && strings.HasPrefix(o.Spec.Selector.MatchLabels["app"], "rook-ceph-") && strings.HasPrefix(o.Name, "rook-ceph-") {
			return true
		}
	}
	return labels[kube.OwnedLabel] == "true" && labels["rook_cluster"] == obj.GetNamespace()
}

// daemons reads what runs of the cluster.
func (c *Controller) daemons(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) error {
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &batchv1.CronJobList{}, &batchv1.JobList{}, &corev1.PodList{}} {
		if err := c.Access.Live.List(ctx, list, client.InNamespace(cl.Namespace)); err != nil {
			return fmt.Errorf("looking for what runs of the cluster: listing %T: %w", list, err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			obj, ok := item.(client.Object)
			if !ok || obj.GetLabels()["app"] == cleanup.App {
				return nil
			}
			pod, isPod := item.(*corev1.Pod)
			if isPod && daemonic(obj, cl) && !cleanup.Ended(pod) {
				l.Daemons = append(l.Daemons, *pod)
			}
			// A pod of its own is a canary; all others go with what has made them.
			if ownedBy(obj, cl) || !isPod && daemonic(obj, cl) {
				obj.SetResourceVersion("") // its status changes all the time
				l.Workloads = append(l.Workloads, obj)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ownedBy(obj client.Object, cl *cephv1.CephCluster) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == cl.UID })
}

// daemonic says that an object is one of the cluster's daemons, of the Jobs that
// prepare its disks, or a copy of either that somebody has made for maintenance.
func daemonic(obj client.Object, cl *cephv1.CephCluster) bool {
	labels := obj.GetLabels()
	if labels["rook_cluster"] != cl.Namespace {
		return ownedBy(obj, cl)
	}
	app := labels["app"]
	return labels["ceph_daemon_type"] != "" || ownedBy(obj, cl) || strings.HasPrefix(app, "rook-ceph-mon") || strings.HasPrefix(app, "rook-ceph-mgr") || strings.HasPrefix(app, "rook-ceph-osd")
}

// hosts reads the list of hosts that has been stored, and the nodes.
func (c *Controller) hosts(ctx context.Context, cl *cephv1.CephCluster, l *Leaving) error {
	nodes, err := kube.List(ctx, c.Access.Live, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	l.Nodes = nodes.Items
	var cm corev1.ConfigMap
	if l.Listed, err = kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: cleanup.ConfigMap}, &cm); err != nil {
		return fmt.Errorf("reading the hosts to clean: %w", err)
	}
	if l.Listed {
		l.Stored, l.StoredFSID, err = cleanup.Parse(cm.Data)
	}
	return err
}

// find sees where the cluster's data is.
func (c *Controller) find(ctx context.Context, cl *cephv1.CephCluster, fsid string, l *Leaving) error {
	facts := cleanup.Facts{Namespace: cl.Namespace, FSID: fsid, Nodes: l.Nodes}
	var cm corev1.ConfigMap
	found, err := kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: endpoints.ConfigMap}, &cm)
	if err != nil {
		return fmt.Errorf("reading the list of mons: %w", err)
	}
	if found {
		if facts.Mons, err = endpoints.Parse(cm.Data); err != nil {
			return fmt.Errorf("reading the list of mons from ConfigMap %s: %w", endpoints.ConfigMap, err)
		}
	}
	for _, w := range l.Workloads {
		if d, ok := w.(*appsv1.Deployment); ok {
			facts.Deployments = append(facts.Deployments, *d)
		}
	}
	reports, err := kube.List(ctx, c.Access.Live, &corev1.ConfigMapList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": "rook-ceph-osd", "status": "provisioning"})
	if err != nil {
		return fmt.Errorf("listing the nodes' reports: %w", err)
	}
	facts.Reports = reports.Items
	l.Found, err = cleanup.Find(facts)
	return err
}

// Teardown implements kit.Controller.
func (c *Controller) Teardown(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	l := seen.Leaving
	switch {
	case l == nil:
		// It was observed before it was deleted.
		return kit.Plan{Wait: &kit.Wait{Reason: "Deleting", Message: "the cluster is being deleted", For: time.Second}}
	case l.Other != "":
		return kit.Plan{} // nothing was ever made for this one
	case len(l.Blockers) > 0:
		return blocked(kit.ReasonHasDependents, "deletion waits for "+some(l.Blockers), "delete them, or keep this object", blockedAgain, true)
	case destroys(cl):
		return destroy(cl, seen)
	}
	p := letGo(cl, l)
	for _, name := range slices.Sorted(maps.Keys(l.Jobs)) {
		// The confirmation has been taken back.
		p.Delete = append(p.Delete, jobOf(l.Jobs[name]))
	}
	return p
}

// blocked is a plan that waits, with the condition that says why.
func blocked(reason, message, hint string, after time.Duration, stuck bool) kit.Plan {
	return kit.Plan{
		Wait:       &kit.Wait{Reason: reason, Message: message, Hint: hint, For: after, Blocked: stuck},
		Conditions: []kit.Condition{{Type: "DeletionIsBlocked", Status: metav1.ConditionTrue, Reason: reason, Message: message}},
	}
}

// named bounds the names in a message.
const named = 20

func some(names []string) string {
	if len(names) <= named {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), len(names)-named)
}

// letGo lets everything go; what has an owner goes by Kubernetes' own hand.
func letGo(cl *cephv1.CephCluster, l *Leaving) kit.Plan {
	p := kit.Plan{
		Delete:     l.Leftovers,
		Conditions: []kit.Condition{{Type: "DeletionIsBlocked", Status: metav1.ConditionFalse, Reason: kit.ReasonNoDependents, Message: "nothing holds the deletion back any more"}},
	}
	if l.SecretHeld {
		p.Do = append(p.Do, Unprotect{Secret: types.NamespacedName{Namespace: cl.Namespace, Name: identity.Secret}})
	}
	if l.EndpointsHeld {
		p.Do = append(p.Do, Unprotect{ConfigMap: types.NamespacedName{Namespace: cl.Namespace, Name: endpoints.ConfigMap}})
	}
	return p
}

// Confirmed is the check that the user's confirmation still stands.
type Confirmed struct{}

// String implements kit.Check.
func (Confirmed) String() string { return "the destruction of data is confirmed" }

// confirmed makes an action depend on the confirmation.
func confirmed(a kit.Action) kit.Action { return kit.Confirmed{Check: Confirmed{}, Then: a} }

func jobOf(j *batchv1.Job) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: j.Name, Namespace: j.Namespace, UID: j.UID}}
}

// destroy goes one step a pass: store where everything is, stop all daemons, clean
// the hosts, let go. The case order is the flow.
func destroy(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	l := seen.Leaving
	all := l.Stored.With(l.Found)
	left := all.Without(cl.Annotations[cleanup.SkipAnnotation])
	data, err := all.Data(seen.Cluster.FSID)
	stored, storedErr := l.Stored.Data(l.StoredFSID)
	running := stillThere(l, all, left)
	switch {
	case err != nil || storedErr != nil:
		return kit.Plan{Err: cmp.Or(err, storedErr)}
	case len(all) > 0 && seen.Cluster.FSID == "":
		return blocked("IdentityLost", "it is not known which fsid the cluster has, so that no disk can be proven to be its own: "+some(all.Names()),
			"restore Secret "+identity.Secret+" from a backup, or take spec.cleanupPolicy.confirmation back", blockedAgain, true)
	case len(all) > 0 && foreign(cl, seen.Cluster.FSID) != "":
		return blocked("IdentityMismatch", foreign(cl, seen.Cluster.FSID)+": disks of that one must not be taken for this cluster's",
			"put the right Secret "+identity.Secret+" back, or take spec.cleanupPolicy.confirmation back", blockedAgain, true)
	case len(all) > 0 && l.StoredFSID != "" && l.StoredFSID != seen.Cluster.FSID:
		return blocked("IdentityMismatch", fmt.Sprintf("Secret %s names the cluster %s, and when the cleanup began it was %s: disks of the one must not be taken for the other's", identity.Secret, seen.Cluster.FSID, l.StoredFSID),
			"put the right Secret "+identity.Secret+" back, or take spec.cleanupPolicy.confirmation back", blockedAgain, true)
	case len(all) > 0 && (!l.Listed || !maps.Equal(data, stored)):
		p := blocked("CleanupPreparing", "the hosts to clean are "+some(all.Names()), "", time.Second, false)
		p.Apply = []kit.Object{hostsMap(seen.Cluster, data)}
		return p
	case len(l.Workloads) > 0 || len(running) > 0:
		return stop(l, running)
	}
	return clean(cl, seen, left)
}

// hostsMap stores the list.
func hostsMap(c podspec.Cluster, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: cleanup.ConfigMap, Namespace: c.Namespace, Labels: map[string]string{"app": cleanup.App, "rook_cluster": c.Namespace},
			OwnerReferences: []metav1.OwnerReference{c.Owner},
		},
		Data: data,
	}
}

// stillThere names the pods of daemons that may still run. Those of a host that the
// user has taken off the list are not waited for.
func stillThere(l *Leaving, all, left cleanup.Hosts) []string {
	ready := map[string]bool{}
	off := map[string]bool{}
	for i := range l.Nodes {
		n := &l.Nodes[i]
		host := cmp.Or(n.Labels[corev1.LabelHostname], n.Name)
		_, known := all[host]
		_, wanted := left[host]
		off[n.Name] = known && !wanted
		for _, c := range n.Status.Conditions {
			ready[n.Name] = ready[n.Name] || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
	}
	var names []string
	for i := range l.Daemons {
		p := &l.Daemons[i]
		name := "Pod " + p.Name
		switch node := p.Spec.NodeName; {
		case node != "" && off[node]:
			continue
		case node != "" && !ready[node]:
			name += " (node " + node + " does not answer)"
		case kube.Skipped(p):
			name += " (has label " + kube.SkipLabel + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// stop deletes what keeps daemons running and waits for their pods. A host that was
// cleaned while something still ran on it has to be cleaned again.
func stop(l *Leaving, running []string) kit.Plan {
	message := "the daemons of the cluster are being stopped"
	stuck := slices.ContainsFunc(running, func(s string) bool { return strings.Contains(s, "(") })
	var hints []string
	if stuck {
		hints = append(hints, "bring the node back, delete its pods by force when the machine is off for certain, or name the host in the annotation "+cleanup.SkipAnnotation+" of this object")
	}
	var fenced []string
	for _, w := range l.Workloads {
		if kube.Skipped(w) && !fencedByUs(w) {
			fenced = append(fenced, kit.Name(w)+" (has label "+kube.SkipLabel+")")
		}
	}
	if len(fenced) > 0 {
		stuck = true
		hints = append(hints, "remove the label "+kube.SkipLabel)
	}
	if running = slices.Concat(running, fenced); len(running) > 0 {
		message += "; still there: " + some(running)
	}
	p := blocked("StoppingDaemons", message, strings.Join(hints, "; "), 2*time.Second, stuck)
	for _, name := range slices.Sorted(maps.Keys(l.Jobs)) {
		p.Delete = append(p.Delete, jobOf(l.Jobs[name]))
	}
	for _, w := range l.Workloads {
		if w.GetDeletionTimestamp() == nil {
			p.Do = append(p.Do, confirmed(kit.Delete{Object: w, Ours: fencedByUs(w)}))
		}
	}
	return p
}

// fencedByUs reports whether it is a replacement that has set the label by which an
// OSD's Deployment is left alone. The replacement ends with the cluster.
func fencedByUs(w kit.Object) bool {
	_, ok := w.(*appsv1.Deployment)
	return ok && osdspec.Replacing(w.GetAnnotations())
}

// clean runs a Job on each host, and lets go when all have succeeded.
func clean(cl *cephv1.CephCluster, seen Seen, hosts cleanup.Hosts) kit.Plan {
	l := seen.Leaving
	p := kit.Plan{}
	there := map[string]bool{}
	for i := range l.Nodes {
		there[cmp.Or(l.Nodes[i].Labels[corev1.LabelHostname], l.Nodes[i].Name)] = true
	}
	var busy, failing, done []string
	wanted := map[string]bool{}
	for _, name := range hosts.Names() {
		h := hosts[name]
		want, err := cleanup.Job(seen.Cluster, h, cleanup.Request(seen.Cluster, h, cl.Spec.CleanupPolicy.SanitizeDisks), &cl.Spec)
		if err != nil {
			return kit.Plan{Err: fmt.Errorf("building the cleanup Job of host %s: %w", name, err)}
		}
		wanted[want.Name] = true
		job := l.Jobs[want.Name]
		switch state, why := cleanup.Look(want, job, l.Pods, seen.Now); state {
		case cleanup.Done:
			done = append(done, name+": "+cmp.Or(why, "cleaned"))
		case cleanup.Failing:
			failing = append(failing, name+": "+why)
		case cleanup.Running:
			if !there[name] {
				failing = append(failing, name+": there is no node of this name any more")
				break
			}
			busy = append(busy, strings.TrimSuffix(name+": "+why, ": "))
		case cleanup.Stale:
			p.Delete = append(p.Delete, jobOf(job))
			busy = append(busy, name+": "+why)
		case cleanup.Missing:
			if !there[name] {
				failing = append(failing, name+": there is no node of this name")
				break
			}
			p.Do = append(p.Do, confirmed(kit.Create{Object: want}))
			busy = append(busy, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Jobs)) {
		if !wanted[name] {
			p.Delete = append(p.Delete, jobOf(l.Jobs[name]))
		}
	}
	if len(busy)+len(failing) == 0 {
		end := letGo(cl, l)
		end.Delete = append(end.Delete, p.Delete...)
		if len(done) > 0 {
			end.Events = []kit.Event{{Reason: "HostsCleaned", Message: strings.Join(done, "; ")}}
		}
		return end
	}
	w := waiting(busy, failing, len(hosts))
	w.Delete, w.Do = p.Delete, p.Do
	return w
}

// waiting says how the hosts are doing, failures first.
func waiting(busy, failing []string, hosts int) kit.Plan {
	if len(failing) == 0 {
		return blocked("CleaningHosts", fmt.Sprintf("%d of %d hosts are being cleaned: %s", len(busy), hosts, some(busy)), "", blockedAgain, false)
	}
	message := fmt.Sprintf("%d of %d hosts could not be cleaned: %s", len(failing), hosts, strings.Join(failing, "; "))
	if len(busy) > 0 {
		message += fmt.Sprintf("; %d are being cleaned: %s", len(busy), some(busy))
	}
	return blocked("HostCleanupFailed", message, "it is tried again; a host that is gone for good can be named in the annotation "+cleanup.SkipAnnotation+" of this object, what is on it then stays",
		blockedAgain, true)
}
