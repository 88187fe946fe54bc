package mon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephmon "github.com/castellan-storage/castellan/internal/ceph/mon"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/mon/plan"
	"github.com/castellan-storage/castellan/internal/mon/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// nodeChanged passes what matters of a node: that it comes or goes, that it is
// cordoned or not ready, its labels and taints. A kubelet writes its status every
// few seconds otherwise.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*corev1.Node)
		b, okB := e.ObjectNew.(*corev1.Node)
		return !okA || !okB || nodeReady(a) != nodeReady(b) || a.Spec.Unschedulable != b.Spec.Unschedulable ||
			!maps.Equal(a.Labels, b.Labels) || len(a.Spec.Taints) != len(b.Spec.Taints)
	}}
}

// podChanged passes what is read of a mon's pod or a canary: where it is, whether it is
// ready or refused, its labels and notes, its end. A kubelet reports each step of a start.
func podChanged() predicate.Predicate {
	return predicate.Or(kube.SpecChanged(), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*corev1.Pod)
		b, okB := e.ObjectNew.(*corev1.Pod)
		return !okA || !okB || a.Spec.NodeName != b.Spec.NodeName || ready(a) != ready(b) || refused(a) != refused(b)
	}})
}

// build makes the object builder's view of a mon.
func (s *Seen) build(cl *cephv1.CephCluster, id string) spec.Mon {
	m := s.State.Mons[id]
	place := m.Place
	if !m.Listed && m.Canary.Place != nil {
		place = m.Canary.Place
	}
	b := spec.Mon{
		ID: id, Addr: m.Addr, Place: place, HostNetwork: s.State.Spec.HostNetwork, AllowMultiplePerNode: s.State.Spec.AllowMultiplePerNode,
		Startup: cl.Spec.HealthCheck.StartupProbe[cephv1.KeyMon], Liveness: cl.Spec.HealthCheck.LivenessProbe[cephv1.KeyMon],
		ZoneLabel: cl.Spec.Mon.EffectiveFailureDomainLabel(), Zone: s.zone(cl, id),
	}
	b.Claim = cl.Spec.Mon.ClaimFor(b.Zone)
	b.Stay(s.Live[id])
	if !b.Addr.IsValid() {
		b.Addr = netipPort(s.State.Spec.Port)
	}
	return b
}

// zone of a mon: where it is, or, for a new one, the wanted zone with the fewest
// mons. The arbiter's zone holds one.
func (s *Seen) zone(cl *cephv1.CephCluster, id string) string {
	zones := cl.Spec.Mon.EffectiveZones()
	if len(zones) == 0 {
		return ""
	}
	if p := s.State.Mons[id].Place; p != nil && p.Zone != "" {
		return p.Zone
	}
	count := map[string]int{}
	for _, other := range s.State.List.IDs() {
		if p := s.State.Mons[other].Place; p != nil && other != id {
			count[p.Zone]++
		}
	}
	// Founders are placed together, so each takes the zone of its turn.
	if i, err := endpoints.Index(id); err == nil && len(s.State.List.Mons) == 0 {
		return zones[i%len(zones)].Name
	}
	best := ""
	for _, z := range zones {
		if z.Arbiter && count[z.Name] > 0 {
			continue
		}
		if best == "" || count[z.Name] < count[best] {
			best = z.Name
		}
	}
	return best
}

// canary is the pod that finds a node, with a note of what it was made from.
func canary(c podspec.Cluster, m spec.Mon, user podspec.User) *corev1.Pod {
	p := spec.Canary(c, m, user)
	p.Annotations = map[string]string{pods.HashAnnotation: pods.Hash(corev1.PodTemplateSpec{Spec: p.Spec}, c.NodeImage)}
	return p
}

// stale finds canaries that wait for a node that nobody asks for any more.
func (s *Seen) stale(cl *cephv1.CephCluster) {
	user := podspec.UserOf(&cl.Spec, cephv1.KeyMon, cephv1.ResourcesKeyMon)
	for id, hash := range s.Pending {
		if !s.State.Mons[id].Listed && hash != "" && hash != canary(s.Cluster, s.build(cl, id), user).Annotations[pods.HashAnnotation] {
			s.set(id, func(m *plan.Mon) { m.Canary.Stale = true })
		}
	}
}

// want builds the Deployments of listed mons and says which are outdated.
func (s *Seen) want(cl *cephv1.CephCluster) {
	user := podspec.UserOf(&cl.Spec, cephv1.KeyMon, cephv1.ResourcesKeyMon)
	for _, id := range s.State.List.IDs() {
		d := pods.Stamp(spec.Deployment(s.Cluster, s.build(cl, id), user), s.Cluster.NodeImage)
		s.Wanted[id] = d
		live := s.Live[id]
		if live == nil {
			continue
		}
		if pods.Adopt(d, live, "mon") || pods.UpToDate(live, d) {
			pods.KeepNodeImage(d, live, s.Cluster.NodeImage)
		} else {
			s.set(id, func(m *plan.Mon) { m.Outdated = true })
		}
		// Marks and size are carried over; a step changes them. They are those of this
		// version: one that the cache has not seen yet may have others, which an apply would
		// take away, and a mon that leaves would be one that nobody knows.
		d.ResourceVersion = live.ResourceVersion
		for _, a := range []string{spec.LeavingAnnotation, spec.OutSinceAnnotation, spec.RoomMadeAnnotation} {
			if v := live.Annotations[a]; v != "" {
				d.Annotations[a] = v
			}
		}
		if s.State.Mons[id].Stopped {
			d.Spec.Replicas = ptr.To[int32](0)
		}
	}
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	if err := check(cl); err != nil {
		return kit.Plan{Err: err}
	}
	if !seen.Stored.Founded || !seen.HasKeyring || seen.Version == "" {
		return kit.Plan{Wait: pods.NotFounded()}
	}
	p := kit.Plan{Apply: steady(seen), Next: seen.State.Spec.CheckInterval}
	if err := step(cl, seen, plan.Next(seen.State), &p); err != nil {
		p.Err = err
	}
	return p
}

// Teardown implements kit.Controller: the mons' objects go with the CephCluster,
// by owner references, once the cluster's own controller lets it go.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }

// check refuses what can never work.
func check(cl *cephv1.CephCluster) error {
	n := cl.Spec.Mon.EffectiveCount()
	if n%2 == 0 && len(cl.Spec.Mon.ExternalMonIDs) == 0 && cl.Spec.Mon.FloatingMon == nil {
		return kit.Terminal("spec.mon.count", "%d mons survive no more failures than %d do; write an odd number, for instance %d", n, n-1, n+1)
	}
	if _, ok := cl.Spec.HealthCheck.DaemonHealth.Monitor.EffectiveTimeout(0); !ok {
		return kit.Terminal("spec.healthCheck.daemonHealth.mon.timeout", "%q is no duration; write for instance 600s, or 0 for never", cl.Spec.HealthCheck.DaemonHealth.Monitor.Timeout)
	}
	if zones := cl.Spec.Mon.EffectiveZones(); len(zones) > n {
		return kit.Terminal("spec.mon.zones", "%d zones need at least as many mons, but spec.mon.count is %d", len(zones), n)
	}
	return nil
}

// steady are the objects that a settled set of mons has. Outdated Deployments are
// left as they are: a step changes them one at a time.
func steady(seen Seen) []kit.Object {
	var objs []kit.Object
	for _, id := range seen.State.List.IDs() {
		m := seen.State.Mons[id]
		if m.Skipped || slices.Contains(seen.State.External, id) {
			continue
		}
		if !seen.State.Spec.HostNetwork {
			objs = append(objs, service(seen, id))
		}
		if m.Deployed && !m.Outdated {
			objs = append(objs, seen.Wanted[id])
		}
	}
	if len(seen.State.List.Mons) == 0 {
		return objs
	}
	if cm, secret, err := spec.EndpointObjects(seen.Cluster, seen.State.List, seen.Stored.CSI); err == nil {
		cm.ResourceVersion = seen.Stored.ListVersion
		objs = append(objs, cm, secret)
	}
	for _, s := range spec.Slices(seen.Cluster, seen.State.List) {
		objs = append(objs, s)
	}
	if b := spec.Budget(seen.Cluster, len(seen.State.List.Mons), downFor(seen)); b != nil {
		objs = append(objs, b)
	}
	return objs
}

// downFor is how many mons are down as far as is known. Without a quorum nothing
// is known, and nothing may be drained.
func downFor(seen Seen) int {
	if !seen.State.Quorum && len(seen.Live) > 0 {
		return len(seen.State.List.Mons)
	}
	return seen.Down
}

func service(seen Seen, id string) *corev1.Service {
	var families []corev1.IPFamily
	switch {
	case seen.Cluster.IPv6:
		families = []corev1.IPFamily{corev1.IPv6Protocol}
	case seen.Cluster.DualStack:
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	v2only := seen.State.Spec.Port == endpoints.PortV2
	if m := seen.State.Mons[id]; m.Listed {
		v2only = m.Addr.Port() == endpoints.PortV2
	}
	return spec.Service(seen.Cluster, id, v2only, families, nil)
}

// step turns the next step into a plan.
func step(cl *cephv1.CephCluster, seen Seen, a plan.Action, p *kit.Plan) error {
	user := podspec.UserOf(&cl.Spec, cephv1.KeyMon, cephv1.ResourcesKeyMon)
	switch a.Kind {
	case plan.Nothing:
	case plan.Await:
		p.Wait = &kit.Wait{Reason: a.Reason, Message: a.Message, Blocked: a.Blocked, For: waitFor(seen)}
		if a.Reason == plan.ReasonRestarting {
			p.Wait.For = min(p.Wait.For, time.Second)
		}
	case plan.Place:
		for _, id := range a.IDs {
			m := seen.build(cl, id)
			if m.Claim != nil {
				// The claim comes first: once the canary is there this step is over, and
				// nobody would make the claim after a crash between the two.
				p.Do = append(p.Do, kit.Apply{Object: spec.Claim(seen.Cluster, m)}, kit.Create{Object: canary(seen.Cluster, m, user)})
			} else {
				p.Create = append(p.Create, canary(seen.Cluster, m, user))
			}
			// The address is asked for at once: it does not depend on the node.
			if !seen.State.Spec.HostNetwork {
				p.Apply = append(p.Apply, service(seen, id))
			}
		}
		p.Wait = &kit.Wait{Reason: "PlacingMon", Message: "finding nodes for mon " + join(a.IDs), For: waitFor(seen)}
	case plan.Expose:
		for _, id := range a.IDs {
			p.Apply = append(p.Apply, service(seen, id))
		}
	case plan.Record:
		cm, secret, err := spec.EndpointObjects(seen.Cluster, *a.List, seen.Stored.CSI)
		if err != nil {
			return err
		}
		p.Apply = append(without(p.Apply, cm.Name, secret.Name), secret)
		// What is written was made from what was read: a list that somebody has changed
		// since is read again.
		if cm.ResourceVersion = seen.Stored.ListVersion; seen.Stored.Listed {
			p.Apply = append(p.Apply, cm)
		} else {
			p.Create = append(p.Create, cm)
		}
	case plan.Start, plan.Repair, plan.Update:
		startOrUpdate(seen, a, p)
	case plan.MarkOut, plan.MarkIn, plan.MakeRoom, plan.MarkLeave, plan.Keep:
		mark(seen, a, p)
	case plan.Abandon:
		for _, id := range a.IDs {
			p.Delete = append(p.Delete, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: spec.CanaryName(id), Namespace: cl.Namespace}})
			if !seen.State.Mons[id].Listed {
				p.Delete = append(p.Delete, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: spec.Name(id), Namespace: cl.Namespace}})
			}
		}
	case plan.Expel:
		id := a.IDs[0]
		p.Do = append(p.Do, kit.Confirmed{Check: KeepsQuorum{Mon: id}, Then: RemoveMon{Mon: id}})
	case plan.Delete:
		remove(cl, seen, a, p)
	default:
		return fmt.Errorf("carrying out %s: no such step", a)
	}
	return nil
}

// waitFor is how soon to look again while mons start or join: a quorum forms
// within a second, and nothing in Kubernetes tells.
func waitFor(seen Seen) time.Duration {
	if seen.Down == 0 && seen.State.Quorum {
		return seen.State.Spec.CheckInterval
	}
	for _, d := range seen.Live {
		if seen.Now.Sub(d.CreationTimestamp.Time) < 2*time.Minute {
			return 500 * time.Millisecond
		}
	}
	return min(seen.State.Spec.CheckInterval, 15*time.Second)
}

func startOrUpdate(seen Seen, a plan.Action, p *kit.Plan) {
	for _, id := range a.IDs {
		d := seen.Wanted[id]
		d.Spec.Replicas = ptr.To[int32](1)
		if a.Kind == plan.Start {
			delete(d.Annotations, spec.RoomMadeAnnotation)
		}
		p.Apply = without(p.Apply, d.Name)
		if a.Kind == plan.Update {
			p.Do = append(p.Do, kit.Confirmed{Check: OkToStop{Mon: id}, Then: kit.Apply{Object: d}})
		} else {
			p.Apply = append(p.Apply, d)
		}
	}
	p.Wait = &kit.Wait{Reason: "MonStarting", Message: "mon " + join(a.IDs) + " is starting", For: 500 * time.Millisecond}
}

// mark changes the durable notes on Deployments, and nothing else of them.
func mark(seen Seen, a plan.Action, p *kit.Plan) {
	for _, id := range a.IDs {
		live := seen.Live[id]
		if live == nil {
			continue
		}
		d := seen.Wanted[id]
		if seen.State.Mons[id].Outdated {
			// The template must stay: only the notes are to change.
			d = d.DeepCopy()
			d.Spec.Template = *live.Spec.Template.DeepCopy()
			d.Annotations[pods.HashAnnotation] = live.Annotations[pods.HashAnnotation]
		}
		now := seen.Now.UTC().Format(time.RFC3339)
		switch a.Kind {
		case plan.MarkOut:
			d.Annotations[spec.OutSinceAnnotation] = now
		case plan.MarkIn:
			delete(d.Annotations, spec.OutSinceAnnotation)
			delete(d.Annotations, spec.RoomMadeAnnotation)
		case plan.MakeRoom:
			d.Annotations[spec.RoomMadeAnnotation] = now
			d.Spec.Replicas = ptr.To[int32](0)
		case plan.MarkLeave:
			d.Annotations[spec.LeavingAnnotation] = now
		case plan.Keep:
			delete(d.Annotations, spec.LeavingAnnotation)
		}
		p.Apply = append(without(p.Apply, d.Name), d)
	}
	if a.Kind == plan.MarkLeave {
		p.Events = append(p.Events, kit.Event{Reason: "MonRemoving", Message: "mon " + join(a.IDs) + " is being removed"})
	}
}

// remove deletes what is left of a mon that Ceph and the list have forgotten.
func remove(cl *cephv1.CephCluster, seen Seen, a plan.Action, p *kit.Plan) {
	for _, id := range a.IDs {
		meta := metav1.ObjectMeta{Name: spec.Name(id), Namespace: cl.Namespace}
		p.Delete = append(p.Delete, &appsv1.Deployment{ObjectMeta: meta}, &corev1.Service{ObjectMeta: meta})
		if seen.build(cl, id).Claim != nil {
			p.Delete = append(p.Delete, &corev1.PersistentVolumeClaim{ObjectMeta: meta})
		}
	}
}

// without drops the objects of these names from a list, so that a step's version
// is the only one.
func without(objs []kit.Object, names ...string) []kit.Object {
	return slices.DeleteFunc(slices.Clone(objs), func(o kit.Object) bool {
		_, budget := o.(*policyv1.PodDisruptionBudget)
		_, svc := o.(*corev1.Service)
		return !budget && !svc && slices.Contains(names, o.GetName())
	})
}

// KeepsQuorum is the check that mon may leave the monmap.
type KeepsQuorum struct{ Mon string }

// String implements kit.Check.
func (k KeepsQuorum) String() string { return "the other mons keep a quorum without mon " + k.Mon }

// OkToStop is the check that mon may restart.
type OkToStop struct{ Mon string }

// String implements kit.Check.
func (o OkToStop) String() string { return "mon " + o.Mon + " is ok to stop" }

// RemoveMon takes a mon out of the monmap.
type RemoveMon struct{ Mon string }

// String implements kit.Action.
func (r RemoveMon) String() string { return "removing mon " + r.Mon + " from the monmap" }

// Confirm implements kit.Confirmer, with live reads.
func (c *Controller) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	commander, err := c.Access.Ceph(ctx, cl.Namespace, fmt.Sprintf("asking whether %s", check))
	if err != nil {
		return nil, err
	}
	mons := cephmon.New(commander)
	switch k := check.(type) {
	case KeepsQuorum:
		q, err := mons.QuorumStatus(ctx)
		if err != nil {
			return nil, fmt.Errorf("asking whether %s: %w", k, err)
		}
		members := map[string]bool{}
		for _, m := range q.Monmap.Mons {
			members[m.Name] = q.In(m.Name)
		}
		if !plan.KeepsQuorum(members, k.Mon) {
			return &kit.Wait{Reason: "MonRemovalBlocked", Message: "mon " + k.Mon + " cannot be removed: the other mons would have no quorum", Blocked: true, For: 15 * time.Second}, nil
		}
	case OkToStop:
		v, err := mons.OkToStop(ctx, k.Mon)
		if err != nil {
			return nil, fmt.Errorf("asking whether %s: %w", k, err)
		}
		if !v.OK {
			return &kit.Wait{Reason: "MonNotOkToStop", Message: "mon " + k.Mon + " is not ok to stop: " + v.Why, Object: "mon." + k.Mon, For: 15 * time.Second}, nil
		}
	default:
		return nil, fmt.Errorf("asking whether %s: no such check", check)
	}
	return nil, nil
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	r, ok := action.(RemoveMon)
	if !ok {
		return fmt.Errorf("%s: no such action", action)
	}
	commander, err := c.Access.Ceph(ctx, cl.Namespace, r.String())
	if err != nil {
		return err
	}
	return cephmon.New(commander).Remove(ctx, r.Mon)
}

func join(ids []string) string { return strings.Join(ids, ", ") }

// netipPort is an address that is not known yet with the port it will have: a
// canary's ports depend on it.
func netipPort(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv4Unspecified(), port) }
