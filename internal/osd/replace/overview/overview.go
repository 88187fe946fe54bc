// Package overview is the controller that tells how all replacements of a cluster are going,
// in its status and as one condition, and keeps a watch on each node where one waits for a
// disk. It must not change anything of the OSDs, nor decide what is next of one: it looks at
// each as the controller in internal/osd/replace does, and says what that would do.
package overview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	"github.com/castellan-storage/castellan/internal/osd/replace/observe"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// ConditionType of the CephCluster tells how its replacements are going; it is there
// as long as there is one.
const ConditionType = "OSDReplacement"

// Controller tells how all replacements of a cluster are going, and keeps a watch on
// each node where one waits for a disk. It changes nothing of the OSDs.
type Controller struct{ view.Reader }

// Options of the controller for kit.Register.
func Options() kit.Options {
	clusters := kube.ToAll(&cephv1.CephClusterList{})
	return kit.Options{
		Name:   "osd-replacements",
		Report: kit.Report{None: true},
		Owns:   []kit.Object{&batchv1.Job{}},
		Watches: []kit.Watch{
			{Object: &appsv1.Deployment{}, When: kube.Changed(), Map: func(ctx context.Context, c client.Reader, obj client.Object) []kit.Key {
				if !view.Concerned(obj) {
					return nil
				}
				return clusters(ctx, c, obj)
			}},
			{Object: &corev1.ConfigMap{}, When: kube.Changed(), Map: kube.OnlyApp(spec.App, clusters)},
		},
	}
}

// Entry is one replacement with its next step.
type Entry struct {
	State  plan.State
	Action plan.Action
	// Left is how many PGs are still on a draining OSD; Counted says that it is known.
	Left    int
	Counted bool
}

// Seen is everything that the overview needs to know.
type Seen struct {
	Now     time.Time
	Cluster podspec.Cluster
	Entries []Entry
	// Watches are the watch Jobs by name.
	Watches map[string]*batchv1.Job
	// Pending are the slots that wait for a disk, by node.
	Pending map[string][]swap.Pending
	Hosts   map[string]string
	Maps    map[string]*corev1.ConfigMap
	// Busy are nodes on which another Job looks at disks or prepares one.
	Busy map[string]bool
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller. A cluster without replacements costs two reads of
// the cache.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{Now: kit.Now(ctx), Watches: map[string]*batchv1.Job{}, Hosts: map[string]string{}, Busy: map[string]bool{}}
	deps, err := kube.List(ctx, c.Cache, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return Seen{}, err
	}
	watches, err := kube.List(ctx, c.Cache, &batchv1.JobList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.WatchApp})
	if err != nil {
		return Seen{}, err
	}
	for i := range watches.Items {
		seen.Watches[watches.Items[i].Name] = &watches.Items[i]
	}
	if !slices.ContainsFunc(deps.Items, func(d appsv1.Deployment) bool { return view.Concerned(&d) }) {
		return seen, nil
	}
	v, err := c.Read(ctx, cl)
	if err != nil {
		return Seen{}, err
	}
	seen.Cluster, seen.Maps, seen.Pending = v.Cluster, v.Maps, pending.Of(v.All)
	for name, n := range v.Nodes {
		seen.Hosts[name] = n.Labels[corev1.LabelHostname]
	}
	for _, j := range v.Jobs {
		if _, _, ended := kube.JobEnd(j); !ended && slices.Contains([]string{spec.PrepareApp, spec.MakeApp}, j.Labels["app"]) {
			seen.Busy[j.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.Deployments)) {
		d := v.Deployments[id]
		if !view.Concerned(d) {
			continue
		}
		one, err := observe.Look(ctx, c.Access.Live, cl, v, id, d)
		if err != nil {
			return Seen{}, err
		}
		e := Entry{State: one.State, Action: plan.Next(one.State)}
		if e.Action.Phase == cephv1.OSDReplacementDraining && e.State.Up && e.State.Answered {
			if pgs, err := pg.New(v.Stored.Ceph).OnOSD(ctx, id); err == nil {
				e.Left, e.Counted = len(pgs), true
			}
		}
		seen.Entries = append(seen.Entries, e)
	}
	return seen, nil
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	p := kit.Plan{}
	watches(cl, seen, &p)
	next := cl.DeepCopy()
	var old []cephv1.OSDReplacement
	if s := cl.Status.CephStorage; s != nil {
		old = s.Replacements
	}
	list := replacements(seen, old)
	if len(list) > 0 || len(old) > 0 {
		if next.Status.CephStorage == nil {
			next.Status.CephStorage = &cephv1.CephStorage{}
		}
		next.Status.CephStorage.Replacements = list
		p.Status = next
	}
	p.Conditions = []kit.Condition{condition(seen)}
	for _, e := range seen.Entries {
		if e.Action.Kind == plan.None {
			continue
		}
		every := 30 * time.Second
		if !e.Action.Blocked {
			every = 2 * time.Second
		}
		if p.Next == 0 || every < p.Next {
			p.Next = every
		}
	}
	return p
}

// replacements are the entries of the status.
func replacements(seen Seen, old []cephv1.OSDReplacement) []cephv1.OSDReplacement {
	var out []cephv1.OSDReplacement
	for _, e := range seen.Entries {
		if e.Action.Kind == plan.None || e.Action.Phase == "" {
			continue
		}
		r := cephv1.OSDReplacement{ID: e.State.ID, Phase: e.Action.Phase, WaitingFor: e.Action.Text(), Since: metav1.NewTime(seen.Now)}
		if n := e.State.Note; n != nil {
			r.Node = n.Node
			d := n.Pull()
			r.Disk = &cephv1.OSDDisk{Serial: d.Serial, Model: d.Model, Path: cmp.Or(d.ByPath, d.ByID, d.Path), Slot: d.Slot}
		}
		i := slices.IndexFunc(old, func(o cephv1.OSDReplacement) bool { return o.ID == r.ID })
		before := cephv1.OSDReplacement{}
		if i >= 0 {
			before = old[i]
		}
		if before.Phase == r.Phase {
			r.Since = before.Since
		}
		r.Progress = progress(e, seen.Now, before.Progress)
		if r.Phase == cephv1.OSDReplacementDraining {
			// What Ceph says of PGs changes all the time; the progress tells it in steps.
			if e.Action.Reason == "Draining" {
				r.WaitingFor = "its data is being moved to other OSDs"
			}
		} else {
			r.Progress = ""
		}
		out = append(out, r)
	}
	return out
}

// progress tells how much of the draining is done, in steps of a hundredth, so that a
// drain of days is no more than a hundred writes. Rate and estimate are those of the
// whole drain so far, from its beginning as noted.
func progress(e Entry, now time.Time, before string) string {
	n := e.State.Note
	if n == nil || n.Drain == nil || e.Action.Phase != cephv1.OSDReplacementDraining {
		return ""
	}
	if !e.Counted {
		return before
	}
	total := max(n.Drain.PGs, e.Left)
	if total == 0 {
		return "100% (no PG is left)"
	}
	moved := total - e.Left
	percent := fmt.Sprintf("%d%% (", 100*moved/total)
	if strings.HasPrefix(before, percent) {
		return before
	}
	s := fmt.Sprintf("%s%d of %d PGs left", percent, e.Left, total)
	if n.Drain.Bytes > 0 {
		left := float64(n.Drain.Bytes) * float64(e.Left) / float64(total)
		s += fmt.Sprintf(", about %s of %s", bytesText(left), bytesText(float64(n.Drain.Bytes)))
		if took := now.Sub(n.Drain.Since).Seconds(); moved > 0 && took > 0 {
			rate := (float64(n.Drain.Bytes) - left) / took
			s += fmt.Sprintf(", %s/s, %s to go", bytesText(rate), time.Duration(math.Ceil(left/math.Max(rate, 1)))*time.Second)
		}
	}
	return s + ")"
}

func bytesText(b float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for b >= 1024 && i < len(units)-1 {
		b /= 1024
		i++
	}
	return fmt.Sprintf("%.3g %s", b, units[i])
}

// condition sums the replacements up. The worst comes first.
func condition(seen Seen) kit.Condition {
	var refused, blocked, going []string
	reason := ""
	for _, e := range seen.Entries {
		line := fmt.Sprintf("osd.%d: %s", e.State.ID, e.Action.Text())
		switch {
		case e.Action.Kind == plan.None || e.Action.Phase == "":
		case e.Action.Phase == cephv1.OSDReplacementRefused:
			refused = append(refused, line)
		case e.Action.Blocked && e.Action.Reason != "AwaitingSwap":
			blocked = append(blocked, line)
			reason = e.Action.Reason
		default:
			going = append(going, fmt.Sprintf("osd.%d: %s", e.State.ID, e.Action.Phase))
		}
	}
	c := kit.Condition{Type: ConditionType, Status: metav1.ConditionTrue}
	switch {
	case len(refused) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, "Refused"
	case len(blocked) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, reason
	case len(going) > 0:
		c.Reason = "InProgress"
	default:
		return kit.Condition{Type: ConditionType} // none: the condition goes
	}
	c.Message = strings.Join(slices.Concat(refused, blocked, going), "; ")
	return c
}

// watches keeps one watch on each node that waits for a disk and has been asked about
// its slots. One that has ended is a reason to look at the node's disks; it is
// cleared away when they have been looked at, and then the next one begins.
func watches(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) {
	wanted := map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(seen.Pending)) {
		name := spec.WatchName(node)
		hash := pending.Hash(seen.Pending[node])
		job, cm := seen.Watches[name], seen.Maps[spec.StatusMap(node)]
		if cm == nil || cm.Labels[pending.SlotsLabel] != hash || seen.Hosts[node] == "" {
			continue // not asked yet, or asked about other slots
		}
		if job != nil {
			_, _, ended := kube.JobEnd(job)
			wanted[name] = job.Labels[pending.SlotsLabel] == hash && (!ended || cm.Labels[pending.AfterLabel] != string(job.UID))
			continue
		}
		if seen.Busy[seen.Hosts[node]] {
			continue // what it finds is what is known next
		}
		job, err := watch(cl, seen, node, cm)
		if err != nil {
			p.Err = err
			return
		}
		wanted[name] = true
		p.Create = append(p.Create, job)
	}
	for _, name := range slices.Sorted(maps.Keys(seen.Watches)) {
		if j := seen.Watches[name]; !wanted[name] && j.DeletionTimestamp == nil {
			p.Delete = append(p.Delete, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: j.Name, Namespace: j.Namespace, UID: j.UID}})
		}
	}
}

func watch(cl *cephv1.CephCluster, seen Seen, node string, cm *corev1.ConfigMap) (*batchv1.Job, error) {
	devices, err := reports.Devices(cm)
	if err != nil {
		return nil, err
	}
	req := request.Watch{Namespace: cl.Namespace, Node: node, ConfigMap: cm.Name, FSID: seen.Cluster.FSID, Pending: seen.Pending[node]}
	req.Known = provision.Known(devices)
	user := podspec.UserOf(&cl.Spec, cephv1.KeyOSDPrepare, cephv1.ResourcesKeyPrepareOSD)
	user.Placement.Tolerations = append(user.Placement.Tolerations, cl.Spec.Placement[cephv1.KeyOSD].Tolerations...)
	user.Resources = corev1.ResourceRequirements{} // it sleeps
	job, err := spec.NodeJobOf(seen.Cluster, spec.NodeJob{
		Name: spec.WatchName(node), App: spec.WatchApp, Host: seen.Hosts[node], Command: "watch", Request: req, User: user, Retries: 6,
	})
	if err != nil {
		return nil, fmt.Errorf("building the Job that watches the disks of node %s: %w", node, err)
	}
	job.Labels[pending.SlotsLabel] = pending.Hash(req.Pending)
	return job, nil
}

// Teardown implements kit.Controller.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }
