// Package osd runs a cluster's OSDs: the provisioning controller asks nodes to
// look at their disks and make OSDs, the daemon controller runs what they found.
//
// It must not decide which device is used (the node does, by internal/node/choice)
// nor which OSD runs (internal/osd/plan does), and one node that hangs must not
// hold up another: nothing here waits inside a pass.
package osd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	"github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/selection"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

const (
	// RescanAnnotation is plan.RescanAnnotation.
	RescanAnnotation = plan.RescanAnnotation
	// retryAfter is when a node that failed is asked again without a change.
	retryAfter = 10 * time.Minute
	// longLook is after which a node that is still at it is mentioned with its time.
	longLook = 5 * time.Minute
)

// Base is what both controllers of this package need.
type Base struct {
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Provisioner asks nodes to make OSDs.
type Provisioner struct{ Base }

// ProvisionOptions of the provisioning controller for kit.Register.
func ProvisionOptions() kit.Options {
	toAll := kube.ToAll(&cephv1.CephClusterList{})
	return kit.Options{
		Name:   "osd-provision",
		Report: kit.SubjectReport("Provisioning"), When: access.When(), AdoptFrom: pods.FormerOperators(),
		Owns: []kit.Object{&batchv1.Job{}, &corev1.Secret{}}, OwnsNamed: access.Named(spec.App+"-", spec.BootstrapSecret),
		Watches: []kit.Watch{
			{Object: &corev1.Node{}, Map: toAll, When: NodeChanged()},
			{Object: &corev1.ConfigMap{}, Map: kube.OnlyApp("rook-ceph-osd", toAll), When: kube.Changed()},
			{Object: &corev1.ConfigMap{}, Map: kube.OnlyApp("rook-discover", everywhere), When: kube.Changed()},
			{Object: &corev1.Pod{}, Map: kube.OnlyApp(spec.PrepareApp, toAll), When: kube.Changed()},
			{Object: &appsv1.Deployment{}, Map: onlyReplacing(toAll), When: kube.Changed()},
		},
	}
}

// everywhere are the clusters of all namespaces: the discovery daemon's ConfigMaps are in
// the operator's, and a node may hold the disks of any of them.
func everywhere(ctx context.Context, cache client.Reader, _ client.Object) []kit.Key {
	return kube.KeysIn(ctx, cache, &cephv1.CephClusterList{}, "")
}

// onlyReplacing passes Deployments whose disk is being replaced, or was.
func onlyReplacing(next kube.MapFunc) kube.MapFunc {
	return func(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
		if _, replaced := obj.GetAnnotations()[spec.ReplacedAnnotation]; !replaced && !spec.Replacing(obj.GetAnnotations()) {
			return nil
		}
		return next(ctx, cache, obj)
	}
}

// NodeChanged passes what decides whether a node takes OSDs; a kubelet writes its
// status every few seconds otherwise.
func NodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*corev1.Node)
		b, okB := e.ObjectNew.(*corev1.Node)
		if !okA || !okB {
			return true
		}
		return nodeReady(a) != nodeReady(b) || a.Spec.Unschedulable != b.Spec.Unschedulable ||
			fmt.Sprint(a.Labels, a.Spec.Taints) != fmt.Sprint(b.Labels, b.Spec.Taints)
	}}
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ProvisionSeen is everything that the provisioning plan needs to know.
type ProvisionSeen struct {
	Now      time.Time
	Cluster  podspec.Cluster
	Founded  bool
	MonHost  string
	Loop     bool
	Users    []auth.Entity
	Silence  string
	HasKey   bool
	Resolved selection.Result
	// Jobs and Reports by node name, and what keeps a Job's pod from running.
	Jobs    map[string]*batchv1.Job
	Stuck   map[string]string
	Reports map[string]Report
	// Devices is, by node, a fingerprint of what the discovery daemon has last seen.
	Devices map[string]string
	// Slots are OSDs that wait for another disk, by node; Asks say what else about them is
	// a reason to look, Making are nodes on which a disk is just being prepared for one.
	Slots  map[string][]swap.Pending
	Asks   map[string]slotReasons
	Making map[string]bool
	// Hosts have Deployments of OSDs; Unsaid are hosts with a free slot that nobody knows,
	// and whose.
	Hosts  map[string]bool
	Unsaid map[string]string
}

// Report is what a node's status ConfigMap says.
type Report struct {
	State, Message string
	// Missing are devices that the spec names and the node does not have.
	Missing []string
	// Request that it answers.
	Request  string
	Problems []string
	// Updated is when the ConfigMap was written last, as far as it says.
	Name string
	// Labels of the ConfigMap.
	Labels map[string]string
}

// New implements kit.Controller.
func (*Provisioner) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Provisioner) Observe(ctx context.Context, cl *cephv1.CephCluster) (ProvisionSeen, error) {
	seen := ProvisionSeen{Now: kit.Now(ctx), Jobs: map[string]*batchv1.Job{}, Stuck: map[string]string{}, Reports: map[string]Report{}, Devices: map[string]string{}}
	set, stored, cluster, err := c.base(ctx, cl)
	if err != nil {
		return ProvisionSeen{}, err
	}
	seen.Cluster, seen.Founded, seen.Loop, seen.MonHost = cluster, stored.Founded, set.AllowLoopDevices, stored.List.MonHost()
	nodes, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return ProvisionSeen{}, fmt.Errorf("listing nodes: %w", err)
	}
	label := corev1.LabelHostname
	if set.HostnameLabel != "" {
		label = set.HostnameLabel
	}
	seen.Resolved = selection.Resolve(&cl.Spec, nodes.Items, label)
	if err := c.objects(ctx, cl, set, stored, &seen); err != nil {
		return ProvisionSeen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	if seen.HasKey {
		return seen, nil // nothing has to be asked
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if e, err := auth.New(stored.Ceph).Get(ctx, spec.Bootstrap().Entity); err != nil {
		seen.Silence = err.Error()
	} else {
		seen.Users = []auth.Entity{e}
	}
	return seen, nil
}

// base reads what every pass of this package starts from.
func (b *Base) base(ctx context.Context, cl *cephv1.CephCluster) (settings.Settings, access.Cluster, podspec.Cluster, error) {
	set, err := b.Settings(ctx)
	if err != nil {
		return set, access.Cluster{}, podspec.Cluster{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	stored, err := b.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return set, access.Cluster{}, podspec.Cluster{}, err
	}
	version := ""
	if v := cl.Status.CephVersion; v != nil {
		version = v.Version
	}
	cluster := pods.Cluster(cl, b.Operator, set, stored.Identity.FSID, version)
	if v := cl.Status.CephVersion; v != nil && v.Image != "" {
		cluster.CephImage = v.Image
	}
	return set, stored, cluster, nil
}

// objects reads Jobs, status ConfigMaps and what the discovery daemon has seen.
func (c *Provisioner) objects(ctx context.Context, cl *cephv1.CephCluster, set settings.Settings, stored access.Cluster, seen *ProvisionSeen) error {
	jobs, err := kube.List(ctx, c.Cache, &batchv1.JobList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.PrepareApp})
	if err != nil {
		return fmt.Errorf("listing prepare Jobs: %w", err)
	}
	byName := map[string]*batchv1.Job{}
	for i := range jobs.Items {
		byName[jobs.Items[i].Name] = &jobs.Items[i]
	}
	maps, err := reports.StatusMaps(ctx, c.Cache, cl.Namespace)
	if err != nil {
		return err
	}
	// Before a node is asked for the first time, the API server is: the cache does not
	// hold a Job of the same name that somebody else has made.
	if slices.ContainsFunc(seen.Resolved.Nodes, func(n selection.Node) bool {
		return byName[spec.JobName(n.Name)] == nil && maps[spec.StatusMap(n.Name)] == nil
	}) {
		if jobs, err = kube.List(ctx, c.Access.Live, &batchv1.JobList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.PrepareApp}); err != nil {
			return fmt.Errorf("listing prepare Jobs: %w", err)
		}
		for i := range jobs.Items {
			byName[jobs.Items[i].Name] = &jobs.Items[i]
		}
	}
	stuck, err := c.stuck(ctx, cl.Namespace)
	if err != nil {
		return err
	}
	for _, n := range seen.Resolved.Nodes {
		if j := byName[spec.JobName(n.Name)]; j != nil && j.DeletionTimestamp == nil {
			seen.Jobs[n.Name], seen.Stuck[n.Name] = j, stuck[j.UID]
		}
		if cm, ok := maps[spec.StatusMap(n.Name)]; ok {
			seen.Reports[n.Name] = readReport(cm)
		}
	}
	if err := c.slots(ctx, cl, stored, seen); err != nil {
		return err
	}
	var key corev1.Secret
	if seen.HasKey, err = kube.Get(ctx, c.Cache, types.NamespacedName{Namespace: cl.Namespace, Name: spec.BootstrapSecret}, &key); err != nil {
		return fmt.Errorf("reading the bootstrap key: %w", err)
	}
	if !set.EnableDiscovery || set.DisableHotplug {
		return nil
	}
	found, err := kube.List(ctx, c.Cache, &corev1.ConfigMapList{}, client.InNamespace(c.Operator.Namespace), client.MatchingLabels{"app": "rook-discover"})
	if err != nil {
		return fmt.Errorf("listing discovered devices: %w", err)
	}
	for _, cm := range found.Items {
		seen.Devices[strings.TrimPrefix(cm.Name, "local-device-")] = naming.Hash(cm.Data["devices"])
	}
	return nil
}

// stuck says, by the uid of the Job, why a prepare pod does not run.
func (c *Provisioner) stuck(ctx context.Context, ns string) (map[types.UID]string, error) {
	list, err := kube.List(ctx, c.Cache, &corev1.PodList{}, client.InNamespace(ns), client.MatchingLabels{"app": spec.PrepareApp})
	if err != nil {
		return nil, fmt.Errorf("listing prepare pods: %w", err)
	}
	out := map[types.UID]string{}
	for i := range list.Items {
		p := &list.Items[i]
		why := waitsFor(p)
		for _, r := range p.OwnerReferences {
			if why != "" && p.DeletionTimestamp == nil {
				out[r.UID] = "pod " + p.Name + " " + why
			}
		}
	}
	return out, nil
}

// waitsFor is what a pod needs from somebody else before it can run: a node, an image, a
// volume. One that is on its way needs nothing.
func waitsFor(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return "has no node: " + c.Message
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := s.State.Waiting
		if w == nil || w.Reason == "" || w.Reason == "PodInitializing" || w.Reason == "ContainerCreating" {
			continue
		}
		why := "cannot start container " + s.Name + ": " + w.Reason
		if w.Message != "" {
			line, _, _ := strings.Cut(strings.TrimSpace(w.Message), "\n")
			why += ": " + line
		}
		return why
	}
	return ""
}

func readReport(cm *corev1.ConfigMap) Report {
	var status struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	}
	r := Report{Request: cm.Labels[spec.RequestLabel], Name: cm.Name, Labels: cm.Labels}
	if err := json.Unmarshal([]byte(cm.Data["status"]), &status); err != nil {
		r.Message = "its report cannot be read: " + err.Error()
		return r
	}
	r.State, r.Message = status.Status, status.Message
	var devices []struct {
		Path   string        `json:"path"`
		Reason choice.Reason `json:"reason"`
	}
	if err := json.Unmarshal([]byte(cm.Data["devices"]), &devices); err == nil {
		for _, d := range devices {
			if d.Reason == choice.NoSuchDevice {
				r.Missing = append(r.Missing, d.Path)
			}
		}
	}
	if err := json.Unmarshal([]byte(cm.Data["problems"]), &r.Problems); err != nil {
		r.Problems = []string{"its list of problems cannot be read: " + err.Error()}
	}
	return r
}

// Plan implements kit.Controller.
func (c *Provisioner) Plan(cl *cephv1.CephCluster, seen ProvisionSeen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	if !seen.Founded || !pods.Founded(cl) {
		return kit.Plan{Wait: pods.NotFounded()}
	}
	if seen.Silence != "" {
		return kit.Plan{Wait: &kit.Wait{Reason: "MonsNotReady", Message: "OSDs wait for the mons: " + seen.Silence, For: time.Second}}
	}
	p := kit.Plan{}
	if !seen.HasKey {
		p.Apply, _ = keyring.Plan(seen.Cluster, seen.Users, []keyring.User{spec.Bootstrap()})
		if len(p.Apply) == 0 {
			return kit.Plan{Wait: &kit.Wait{Reason: "BootstrapKeyMissing", Message: "Ceph has no user " + spec.Bootstrap().Entity, Blocked: true}}
		}
		return p
	}
	var busy, broken, swaps, lacks []string
	for _, n := range seen.Resolved.Nodes {
		state, why, err := c.node(cl, seen, n, &p)
		replacing := replacing(seen, n)
		switch {
		case err != nil:
			p.Err = err
			return p
		case state == nodeBusy && replacing != "":
			p.Next = 30 * time.Second // the condition of the replacement says what is awaited
		case state == nodeBusy:
			busy = append(busy, n.Name+": "+why)
		case (state == nodeBroken || state == nodeLacks) && replacing != "":
			swaps = append(swaps, n.Name+": while the new disk of "+replacing+" is looked for: "+why)
		case state == nodeBroken:
			broken = append(broken, n.Name+": "+why)
		case state == nodeLacks:
			lacks = append(lacks, n.Name+": "+why)
		}
	}
	for _, pr := range seen.Resolved.Problems {
		broken = append(broken, pr.Field+": "+pr.Message)
	}
	finish(seen, outcome{busy, broken, swaps, lacks}, &p)
	return p
}

// replacing are the OSDs of a node whose disks are being replaced, "" for none: what its
// disks look like meanwhile is no failure of provisioning.
func replacing(seen ProvisionSeen, n selection.Node) string {
	var ids []string
	for _, s := range seen.Slots[n.Name] {
		ids = append(ids, fmt.Sprintf("osd.%d", s.OSD))
	}
	// The look that follows a replacement belongs to it.
	if len(ids) == 0 && (seen.Making[n.Host] || seen.Reports[n.Name].Labels[pending.SlotsLabel] != "") {
		return "an OSD"
	}
	return strings.Join(ids, ", ")
}

// missing are the devices that the spec names and the node does not have, without those
// that were pulled for a replacement.
func missing(named []string, slots []swap.Pending) []string {
	return slices.DeleteFunc(slices.Clone(named), func(ref string) bool {
		return slices.ContainsFunc(slots, func(p swap.Pending) bool {
			o := p.Old
			byID := strings.HasPrefix(ref, "/dev/disk/by-id/") && (o.Serial != "" && strings.Contains(ref, o.Serial) || o.WWN != "" && strings.Contains(ref, strings.TrimPrefix(o.WWN, "0x")))
			return ref == o.ByID || ref == o.ByPath || byID
		})
	})
}

// outcome is what is to be said of nodes that are not done.
type outcome struct{ busy, broken, swaps, lacks []string }

// finish says how the nodes are doing, as a whole. That only named devices are missing is a
// reason of its own, spec.ReasonDeviceMissing: everything else that was asked for is made
// then, and the cluster is as whole as it can be.
func finish(seen ProvisionSeen, o outcome, p *kit.Plan) {
	const reports = "the ConfigMaps rook-ceph-osd-<node>-status say for each device why it is used or not"
	blocked := len(o.busy) == 0
	switch {
	case len(o.broken) > 0, len(o.lacks) > 0 && len(o.busy)+len(o.swaps) > 0:
		all := slices.Sorted(slices.Values(slices.Concat(o.broken, o.lacks, o.swaps)))
		if len(o.busy) > 0 {
			all = append(all, "still at it: "+strings.Join(o.busy, "; "))
		}
		p.Wait = &kit.Wait{Reason: "StorageProblem", Message: strings.Join(all, "; "), Blocked: blocked, For: time.Minute, Hint: reports}
	case len(o.lacks) > 0:
		slices.Sort(o.lacks)
		p.Wait = &kit.Wait{Reason: spec.ReasonDeviceMissing, Message: strings.Join(o.lacks, "; "), Blocked: true, For: time.Minute, Hint: reports}
	case len(o.swaps) > 0:
		slices.Sort(o.swaps)
		p.Wait = &kit.Wait{Reason: "ReplacingDisks", Message: strings.Join(o.swaps, "; "), Blocked: blocked, For: time.Minute,
			Hint: "status.storage.replacements of the CephCluster says what the replacement waits for"}
	case len(o.busy) > 0:
		p.Wait = &kit.Wait{Reason: "PreparingDisks", Message: strings.Join(o.busy, "; "), For: 30 * time.Second}
	case len(seen.Resolved.Nodes) == 0:
		p.Wait = &kit.Wait{Reason: "NoStorageNodes", Message: "spec.storage selects no node", Blocked: true, For: 10 * time.Minute}
	}
}

type nodeState int

const (
	nodeDone nodeState = iota
	nodeBusy
	nodeBroken
	// nodeLacks: all is done but for devices that the spec names and the node does not have.
	nodeLacks
)

// node decides what happens to one node: nothing, a new Job, or a wait.
func (c *Provisioner) node(cl *cephv1.CephCluster, seen ProvisionSeen, n selection.Node, p *kit.Plan) (nodeState, string, error) {
	req := request.Provision{
		Namespace: cl.Namespace, Node: n.Name, ConfigMap: spec.StatusMap(n.Name), FSID: seen.Cluster.FSID, MonHost: seen.MonHost,
		Selection: n.Selection, AllowLoop: seen.Loop, Pending: seen.Slots[n.Name],
	}
	reason := cl.Annotations[RescanAnnotation] + "/" + seen.Devices[n.Name]
	if len(req.Pending) > 0 {
		reason += seen.Asks[n.Name].String()
	}
	question := req
	question.Pending = pending.Question(req.Pending)
	hash := spec.RequestHash(question, reason)
	req.Labels = map[string]string{
		spec.RequestLabel: hash, kube.OwnedLabel: "true", "rook_cluster": cl.Namespace, "node": naming.LabelValue(n.Name),
	}
	seen.Asks[n.Name].label(req)
	rep, job := seen.Reports[n.Name], seen.Jobs[n.Name]
	lacks := missing(rep.Missing, seen.Slots[n.Name])
	answered := rep.Request == hash && (rep.State == "completed" || rep.State == "failed")
	switch {
	case job != nil && !ended(job) && seen.Stuck[n.Name] != "" && job.Labels[spec.RequestLabel] == hash:
		return nodeBroken, seen.Stuck[n.Name], nil
	case job != nil && !ended(job) && seen.Stuck[n.Name] != "":
		// Nothing of it has run, and it is for an older request.
		p.Delete = append(p.Delete, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace, UID: job.UID}})
		return nodeBusy, "its earlier prepare Job, whose " + seen.Stuck[n.Name] + ", is being cleared away", nil
	case job != nil && job.Labels[spec.RequestLabel] == hash && !ended(job):
		why := "looking at its disks"
		if begun := job.CreationTimestamp.Time; seen.Now.Sub(begun) > longLook {
			why += fmt.Sprintf(" since %s; the log of Job %s says more, and after %v it is stopped", begun.UTC().Format(time.RFC3339), job.Name, spec.PrepareDeadline)
		}
		return nodeBusy, why, nil
	case job != nil && job.Labels[spec.RequestLabel] != hash && !ended(job):
		// It runs for an older request; it is let finish, since it may be writing.
		return nodeBusy, "finishing an earlier request", nil
	case answered && rep.State == "completed" && len(lacks) > 0:
		field := "spec.storage.devices"
		if n.Index >= 0 && len(cl.Spec.Storage.Nodes[n.Index].Devices) > 0 {
			field = fmt.Sprintf("spec.storage.nodes[%d].devices", n.Index)
		}
		return nodeLacks, fmt.Sprintf("%s: the node has no device %s; correct the name, or take it out; or, when it is there, set the annotation %s of the CephCluster to a new value", field, strings.Join(lacks, ", "), RescanAnnotation), nil
	case answered && rep.State == "completed":
		return nodeDone, "", nil
	case seen.Making[n.Host]:
		return nodeBusy, "a new disk of an OSD is being prepared", nil
	case job != nil && job.Labels[spec.RequestLabel] == hash && seen.Now.Sub(endTime(job)) < retryAfter:
		why := rep.Message
		if !answered || why == "" {
			why = "its prepare Job has failed without a report; see the log of Job " + job.Name
		}
		if len(rep.Problems) > 0 {
			why += ": " + strings.Join(rep.Problems, "; ")
		}
		return nodeBroken, why, nil
	case job != nil:
		p.Delete = append(p.Delete, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace, UID: job.UID}})
		return nodeBusy, "its earlier prepare Job is being cleared away", nil
	}
	if why := seen.Resolved.Waiting[n.Name]; why != "" {
		return nodeBroken, why, nil
	}
	if why := seen.Unsaid[n.Host]; why != "" {
		p.Next = 2 * time.Second // that Ceph has destroyed it wakes nobody
		return nodeBusy, why, nil
	}
	user := podspec.UserOf(&cl.Spec, cephv1.KeyOSDPrepare, cephv1.ResourcesKeyPrepareOSD)
	user.Placement.Tolerations = append(user.Placement.Tolerations, cl.Spec.Placement[cephv1.KeyOSD].Tolerations...)
	j, err := spec.Job(seen.Cluster, spec.Prepare{Node: n.Name, Host: n.Host, Request: req, User: user})
	if err != nil {
		return nodeBroken, "", fmt.Errorf("building the prepare Job of node %s: %w", n.Name, err)
	}
	if !seen.Hosts[n.Host] {
		p.Create = append(p.Create, j)
		return nodeBusy, "its prepare Job is starting", nil
	}
	p.Do = append(p.Do, kit.Confirmed{Check: allSaid{n.Host, ids(req.Pending)}, Then: kit.Create{Object: j}})
	return nodeBusy, "its prepare Job is starting", nil
}

// ended says that a Job has finished, either way.
func ended(j *batchv1.Job) bool { return !endTime(j).IsZero() }

func endTime(j *batchv1.Job) time.Time {
	at, _, _ := kube.JobEnd(j)
	return at
}

// Teardown implements kit.Controller: Jobs and reports go with the CephCluster.
func (*Provisioner) Teardown(*cephv1.CephCluster, ProvisionSeen) kit.Plan { return kit.Plan{} }
