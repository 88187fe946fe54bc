// Package mon runs a cluster's mons: it observes them, lets internal/mon/plan
// decide the next step, and builds that step from internal/mon/spec.
//
// It must not decide anything itself, and it must not write the list of mons in
// any other way than through a step of the plan.
package mon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephmon "github.com/castellan-storage/castellan/internal/ceph/mon"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/mon/plan"
	"github.com/castellan-storage/castellan/internal/mon/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Controller runs the mons of CephClusters.
type Controller struct {
	// Cache reads what the operator watches, Access what must be read live.
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	byLabel := func(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
		return kube.ToAll(&cephv1.CephClusterList{})(ctx, cache, obj)
	}
	return kit.Options{
		Name:   "mon",
		Report: kit.SubjectReport("Mon"), When: access.When(), AdoptFrom: pods.FormerOperators(),
		Owns: []kit.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &policyv1.PodDisruptionBudget{}, &discoveryv1.EndpointSlice{}},
		// identity, keyring, list, Deployments, Services and budget; what clients are told.
		OwnsNamed: kube.Named(spec.App, spec.App+"-", "rook-ceph-mons-keyring", endpoints.Secret, endpoints.Service, endpoints.Service+"-"),
		Watches: []kit.Watch{
			{Object: &corev1.Pod{}, Map: kube.OnlyApp(spec.App, byLabel), When: podChanged()},
			{Object: &corev1.Node{}, Map: byLabel, When: nodeChanged()},
		},
	}
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Now     time.Time
	Cluster podspec.Cluster
	Stored  access.Cluster
	// Version of Ceph that has been accepted for this cluster, "" before.
	Version string
	State   plan.State
	// Live are the mons' Deployments by id.
	Live map[string]*appsv1.Deployment
	// Wanted are the Deployments as they should be, for all listed mons.
	Wanted map[string]*appsv1.Deployment
	// Pending are the canaries without a node: id to the hash they were made with.
	Pending map[string]string
	// Down is how many listed mons are out of quorum.
	Down int
	// HasKeyring says that the Secret that mons start with exists.
	HasKeyring bool
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{Now: kit.Now(ctx), Live: map[string]*appsv1.Deployment{}, Wanted: map[string]*appsv1.Deployment{}, Pending: map[string]string{}}
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	if seen.Stored, err = c.Access.Read(ctx, cl.Namespace); err != nil {
		return Seen{}, err
	}
	if v := cl.Status.CephVersion; v != nil {
		seen.Version = v.Version
	}
	seen.Cluster = pods.Cluster(cl, c.Operator, set, seen.Stored.Identity.FSID, seen.Version)
	if v := cl.Status.CephVersion; v != nil && v.Image != "" {
		seen.Cluster.CephImage = v.Image // the image that the version check has accepted
	}
	if seen.HasKeyring, err = c.hasKeyring(ctx, cl.Namespace); err != nil {
		return Seen{}, err
	}
	seen.State = plan.State{
		Now: seen.Now, List: seen.Stored.List, Mons: map[string]plan.Mon{}, External: cl.Spec.Mon.ExternalMonIDs,
		Spec: planSpec(cl, set, seen.Cluster.HostNetwork),
	}
	if st := cl.Status.CephStatus; st != nil && st.FSID != "" {
		seen.State.Ran = "the CephCluster's status says that Ceph has run with fsid " + st.FSID
	}
	for _, id := range seen.Stored.List.IDs() {
		m := seen.Stored.List.Mons[id]
		seen.set(id, func(p *plan.Mon) { p.Listed, p.Addr, p.Place = true, m.Addr, m.Place })
	}
	for _, look := range []func(context.Context, *cephv1.CephCluster, *Seen) error{c.objects, c.pods, c.nodes, c.quorum} {
		if err := look(ctx, cl, &seen); err != nil {
			return Seen{}, err
		}
	}
	seen.want(cl)
	seen.stale(cl)
	return seen, nil
}

func (s *Seen) set(id string, change func(*plan.Mon)) {
	m := s.State.Mons[id]
	change(&m)
	s.State.Mons[id] = m
}

// planSpec is the user's wish; settings of the operator go before the cluster's
// as they always have.
func planSpec(cl *cephv1.CephCluster, set settings.Settings, hostNetwork bool) plan.Spec {
	health := cl.Spec.HealthCheck.DaemonHealth.Monitor
	s := plan.Spec{
		Count: cl.Spec.Mon.EffectiveCount(), AllowMultiplePerNode: cl.Spec.Mon.AllowMultiplePerNode, HostNetwork: hostNetwork,
		CheckInterval: health.EffectiveInterval(cephv1.DefaultMonHealthInterval), Port: endpoints.PortV1,
	}
	// A timeout that cannot be read is refused by check; the default then serves for
	// everything else.
	s.OutTimeout, _ = health.EffectiveTimeout(cephv1.DefaultMonOutTimeout)
	if set.MonOutTimeout != nil {
		s.OutTimeout = *set.MonOutTimeout
	}
	if set.MonCheckInterval != nil {
		s.CheckInterval = *set.MonCheckInterval
	}
	if health.Disabled {
		s.OutTimeout = 0
	}
	if pods.Msgr2Only(&cl.Spec.Network) {
		s.Port = endpoints.PortV2
	}
	return s
}

func (c *Controller) hasKeyring(ctx context.Context, ns string) (bool, error) {
	var secret corev1.Secret
	found, err := kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: ns, Name: "rook-ceph-mons-keyring"}, &secret)
	if err != nil {
		return false, fmt.Errorf("reading the mons' keyring: %w", err)
	}
	return found, nil
}

// objects reads Deployments and Services.
func (c *Controller) objects(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	if err := c.deployments(ctx, cl, c.Cache, seen); err != nil {
		return err
	}
	// Before a mon is founded or started, the API server is asked: the cache may be
	// behind, and it does not hold Deployments that somebody else has made.
	ids := seen.Stored.List.IDs()
	if len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return seen.Live[id] == nil }) {
		if err := c.deployments(ctx, cl, c.Access.Live, seen); err != nil {
			return err
		}
	}
	services, err := kube.List(ctx, c.Cache, &corev1.ServiceList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the mons' Services: %w", err)
	}
	for _, s := range services.Items {
		if id := s.Labels["mon"]; s.Name == spec.Name(id) {
			if addr, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
				seen.set(id, func(m *plan.Mon) { m.Address = addr })
			}
		}
	}
	return nil
}

// deployments reads the mons' Deployments.
func (c *Controller) deployments(ctx context.Context, cl *cephv1.CephCluster, from client.Reader, seen *Seen) error {
	deps, err := kube.List(ctx, from, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the mons' Deployments: %w", err)
	}
	for i := range deps.Items {
		d := &deps.Items[i]
		id, ok := strings.CutPrefix(d.Name, spec.App+"-")
		if !ok || d.Labels["mon"] != id {
			continue // somebody's copy of a mon, such as the plugin's maintenance clone
		}
		seen.Live[id] = d
		seen.set(id, func(m *plan.Mon) {
			m.Deployed, m.Made, m.Skipped = true, d.CreationTimestamp.Time, kube.Skipped(d)
			m.Stopped = d.Spec.Replicas != nil && *d.Spec.Replicas == 0
			m.Restarting = !pods.RolledOut(d)
			m.Leaving = d.Annotations[spec.LeavingAnnotation] != ""
			m.OutSince, m.RoomMade = stamp(d, spec.OutSinceAnnotation, seen.Now), stamp(d, spec.RoomMadeAnnotation, seen.Now)
		})
	}
	return nil
}

// skew is how far the clock of the operator before may have been ahead.
const skew = time.Minute

// stamp reads a time that an annotation holds. One that cannot be read, or that has not
// come yet, is none, and is noted anew: it delays a replacement and never hastens it, nor
// keeps it off for ever.
func stamp(d *appsv1.Deployment, annotation string, now time.Time) time.Time {
	v := d.Annotations[annotation]
	if v == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil || t.After(now.Add(skew)) {
		return time.Time{}
	}
	return t
}

// pods reads canaries and the mons' own pods.
func (c *Controller) pods(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	list, err := kube.List(ctx, c.Cache, &corev1.PodList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the mons' pods: %w", err)
	}
	for _, p := range list.Items {
		id := p.Labels["mon"]
		if p.Labels[spec.CanaryLabel] == "true" {
			if p.Name != spec.CanaryName(id) || p.DeletionTimestamp != nil {
				continue
			}
			seen.set(id, func(m *plan.Mon) {
				m.Canary.Exists = true
				if p.Spec.NodeName == "" {
					seen.Pending[id] = p.Annotations[pods.HashAnnotation]
				} else {
					m.Canary.Place = &endpoints.Place{Name: p.Spec.NodeName, Hostname: p.Spec.NodeName}
				}
				m.Canary.Refused = refused(&p)
			})
			continue
		}
		if p.DeletionTimestamp == nil {
			seen.set(id, func(m *plan.Mon) {
				m.Scheduled = m.Scheduled || p.Spec.NodeName != ""
				m.Ready = m.Ready || ready(&p)
			})
		}
	}
	return nil
}

// refused is the scheduler's reason why a pod has no node.
func refused(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodes completes places and says which nodes are gone.
func (c *Controller) nodes(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	list, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	byName, byHost, named := map[string]*corev1.Node{}, map[string]*corev1.Node{}, map[string][]string{}
	for i := range list.Items {
		n := &list.Items[i]
		byName[n.Name] = n
		named[n.Labels[corev1.LabelHostname]] = append(named[n.Labels[corev1.LabelHostname]], n.Name)
		byHost[n.Labels[corev1.LabelHostname]] = n
	}
	zoneLabel := cl.Spec.Mon.EffectiveFailureDomainLabel()
	for id := range seen.State.Mons {
		seen.set(id, func(m *plan.Mon) {
			if p := m.Canary.Place; p != nil {
				n := byName[p.Name]
				if n == nil {
					m.Canary.Place = nil // gone since; the canary will follow
				} else {
					p.Hostname, p.Address = n.Labels[corev1.LabelHostname], internalIP(n)
					if len(cl.Spec.Mon.EffectiveZones()) > 0 {
						p.Zone = n.Labels[zoneLabel]
					}
					if seen.State.Spec.HostNetwork {
						m.Address, _ = netip.ParseAddr(monIP(n))
					}
					// Pinned by such a label, the mon could come to the other node, where it
					// has no store, and begin with an empty one.
					if same := named[p.Hostname]; (len(same) > 1 || p.Hostname == "") && cl.Spec.Mon.ClaimFor(p.Zone) == nil {
						slices.Sort(same)
						m.Canary.Place, m.Canary.Refused = nil, fmt.Sprintf("it would be on node %s, and the nodes %s all have the label %s=%s: give each node its own", n.Name, strings.Join(same, ", "), corev1.LabelHostname, p.Hostname)
					}
				}
			}
			if m.Place != nil && m.Place.Hostname != "" {
				n := byHost[m.Place.Hostname]
				m.NodeGone = n == nil && pinned(seen.Live[id])
				m.NodeFit = n != nil && !n.Spec.Unschedulable && nodeReady(n)
			}
		})
	}
	return nil
}

// pinned reports whether a mon can run on its node only. One on a volume is not:
// that its first node is gone says nothing about it.
func pinned(d *appsv1.Deployment) bool {
	return d == nil || d.Spec.Template.Spec.NodeSelector[corev1.LabelHostname] != ""
}

func internalIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// monIP is the address of a mon on the host network: the user's annotation, or
// the node's own.
func monIP(n *corev1.Node) string {
	if ip := n.Annotations["network.rook.io/mon-ip"]; ip != "" {
		return ip
	}
	return internalIP(n)
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// quorum asks Ceph. No answer is not an error of the pass: it is what the plan
// has to know.
func (c *Controller) quorum(ctx context.Context, _ *cephv1.CephCluster, seen *Seen) error {
	if seen.Stored.Ceph == nil || len(seen.Live) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := cephmon.New(seen.Stored.Ceph).QuorumStatus(ctx)
	if err != nil {
		seen.State.Silence = err.Error()
		return nil
	}
	seen.State.Quorum = true
	for _, m := range q.Monmap.Mons {
		seen.set(m.Name, func(p *plan.Mon) {
			p.InMap, p.InQuorum = true, q.In(m.Name)
			p.MapAddr = mapAddr(m.PublicAddrs)
		})
	}
	for _, id := range seen.Stored.List.IDs() {
		if !seen.State.Mons[id].InQuorum {
			seen.Down++
		}
	}
	return nil
}

// mapAddr is a monmap address as the list keeps it: port 6789 where v1 is
// served, else 3300.
func mapAddr(a ceph.Addrs) netip.AddrPort {
	for _, proto := range []string{"v1", "v2"} {
		if ap, err := netip.ParseAddrPort(a.Of(proto)); err == nil {
			return ap
		}
	}
	return netip.AddrPort{}
}
