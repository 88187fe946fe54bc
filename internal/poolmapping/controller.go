// Package poolmapping tells CSI drivers where the volumes of mirrored pools are found
// in the other cluster: it asks each peer for the ids of its pools, and writes them
// as a ClientProfileMapping, for volumes that come from there, and as a
// ClientProfileReplication, for volumes that are replicated to there.
//
// It changes nothing in any Ceph, keeps no connection to a peer, and never takes away
// what a volume may need. What it cannot do is a condition on the CephCluster that
// holds nothing up.
package poolmapping

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/ceph/pool"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/csi/clientprofile"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// Condition is True on a CephCluster whose mirrored pools are mapped. Clusters without
// a mirrored pool with a peer do not have it.
const Condition = "CSIPoolMapping"

// Reasons of the condition.
const (
	ReasonMapped         = "Mapped"
	ReasonSecretNotFound = "PeerSecretNotFound"
	ReasonToken          = "PeerTokenUnusable"
	ReasonSilent         = "PeerSilent"
	ReasonPoolNotFound   = "PeerPoolNotFound"
	ReasonProfile        = "PeerProfileUnknown"
	ReasonReplication    = "SeveralDestinations"
	ReasonLocalSilent    = "MonsNotReady"
	ReasonCRDsMissing    = "CSICRDsMissing"
	ReasonNotOurs        = "NameTaken"
)

const (
	// again is how often peers are asked: no watch tells of their pools.
	again = 10 * time.Minute
	// soon is how often while something is missing.
	soon = time.Minute
	// patience is how long one peer may take.
	patience = 8 * time.Second
)

// Open connects to a peer; done ends it.
type Open func(cfg conn.Config) (c ceph.Commander, done func())

// Dial opens a connection for one pass.
func Dial(cfg conn.Config) (ceph.Commander, func()) {
	p := conn.New()
	return p.Cluster("peer", cfg), p.Close
}

// Controller maps the mirrored pools of CephClusters.
type Controller struct {
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Peers    Open
}

// Options of the controller for kit.Register. kinds says that the kinds of csi.ceph.io
// are installed.
func Options(kinds bool) kit.Options {
	o := kit.Options{
		Name: "csi-pool-mapping", Report: kit.Report{None: true},
		Watches: []kit.Watch{{Object: &cephv1.CephBlockPool{}, Map: kube.ToAll(&cephv1.CephClusterList{}), When: kube.SpecChanged()}},
	}
	if kinds {
		byProfile := func(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
			if r, ok := obj.(*csiv1.ClientProfileReplication); ok {
				return clustersIn(ctx, cache, r.Spec.LocalClientProfile)
			}
			m, ok := obj.(*csiv1.ClientProfileMapping)
			if !ok || len(m.Spec.Mappings) == 0 {
				return nil
			}
			return clustersIn(ctx, cache, m.Spec.Mappings[0].LocalClientProfile)
		}
		o.Watches = append(o.Watches,
			kit.Watch{Object: &csiv1.ClientProfileReplication{}, Map: byProfile, When: kube.SpecChanged()},
			kit.Watch{Object: &csiv1.ClientProfileMapping{}, Map: byProfile, When: kube.SpecChanged()})
	}
	return o
}

func clustersIn(ctx context.Context, cache client.Reader, namespace string) []kit.Key {
	return kube.KeysIn(ctx, cache, &cephv1.CephClusterList{}, namespace)
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Input
	// Missing says that a kind of csi.ceph.io is not installed.
	Missing string
	// Silence is why the local cluster has not answered.
	Silence string
	// Taken names an object of somebody else that has our name.
	Taken string
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller. Nothing beyond the pools is read where none is
// mirrored with a peer, unless there are objects of ours.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	ref := clientprofile.Of(cl, c.Operator.Namespace)
	seen := Seen{Input: Input{Profile: cl.Namespace, Namespace: c.Operator.Namespace, Owner: ref.Owner}}
	pools, err := kube.List(ctx, c.Cache, &cephv1.CephBlockPoolList{}, client.InNamespace(cl.Namespace))
	if err != nil {
		return Seen{}, err
	}
	mirrored := slices.DeleteFunc(pools.Items, func(p cephv1.CephBlockPool) bool {
		m := p.Spec.Mirroring
		return !m.Enabled || m.Peers == nil || len(m.Peers.SecretNames) == 0 || !p.DeletionTimestamp.IsZero()
	})
	err = c.objects(ctx, &seen)
	if len(mirrored) == 0 {
		seen.Missing, seen.Taken = "", "" // they are in nobody's way
	}
	if err != nil || seen.Missing != "" || len(mirrored) == 0 {
		return seen, err
	}
	local, silence, err := c.local(ctx, cl.Namespace)
	if seen.Silence = silence; err != nil || silence != "" {
		return seen, err
	}
	slices.SortFunc(mirrored, func(a, b cephv1.CephBlockPool) int {
		return slices.Compare([]string{a.PoolName()}, []string{b.PoolName()})
	})
	asked := map[string]*answers{}
	for i := range mirrored {
		found, err := c.pool(ctx, &mirrored[i], local, asked)
		if err != nil {
			return Seen{}, err
		}
		seen.Pools = append(seen.Pools, found...)
	}
	return seen, nil
}

// objects reads what there is of ours and of others.
func (c *Controller) objects(ctx context.Context, seen *Seen) error {
	list := &csiv1.ClientProfileReplicationList{}
	if err := c.Access.Live.List(ctx, list, client.InNamespace(seen.Namespace)); meta.IsNoMatchError(err) {
		seen.Missing = "ClientProfileReplication"
		return nil
	} else if err != nil {
		return fmt.Errorf("listing ClientProfileReplications: %w", err)
	}
	name := Name(seen.Profile)
	for i := range list.Items {
		r := &list.Items[i]
		switch ours := r.Labels[kube.OwnedLabel] == "true"; {
		case r.Name == name && ours:
			seen.Replication = r
		case r.Name == name:
			seen.Taken = "ClientProfileReplication " + name
		}
		if r.Spec.LocalClientProfile == seen.Profile && r.Name != name {
			seen.Others = append(seen.Others, r.Name)
		}
	}
	m := &csiv1.ClientProfileMapping{}
	err := c.Access.Live.Get(ctx, types.NamespacedName{Namespace: seen.Namespace, Name: name}, m)
	switch {
	case meta.IsNoMatchError(err):
		seen.Missing = "ClientProfileMapping"
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading ClientProfileMapping %s: %w", name, err)
	case err == nil && m.Labels[kube.OwnedLabel] != "true":
		seen.Taken = "ClientProfileMapping " + name
	case err == nil:
		seen.Mapping = m
	}
	return nil
}

// local gives the ids of the cluster's own pools.
func (c *Controller) local(ctx context.Context, namespace string) (ids map[string]int64, silence string, err error) {
	stored, err := c.Access.Read(ctx, namespace)
	if err != nil {
		return nil, "", err
	}
	if stored.Ceph == nil {
		return nil, "the cluster has no mons yet", nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := pool.New(stored.Ceph).List(ctx)
	if err != nil {
		return nil, err.Error(), nil //nolint:nilerr // a cluster that does not answer is waited for
	}
	ids = map[string]int64{}
	for _, p := range list {
		ids[p.Name] = int64(p.ID)
	}
	return ids, "", nil
}

// answers are the ids of a peer's pools, by name, as far as they were asked for. One
// that did not answer is not asked again in the same pass.
type answers struct {
	silence string
	ids     map[string]int64
}

// pool finds out where a pool's images are at each of its peers.
func (c *Controller) pool(ctx context.Context, obj *cephv1.CephBlockPool, local map[string]int64, asked map[string]*answers) ([]Pool, error) {
	var list []Pool
	for _, name := range obj.Spec.Mirroring.Peers.SecretNames {
		p := Pool{Name: obj.PoolName(), Local: local[obj.PoolName()], Profile: obj.Annotations[ProfileAnnotation]}
		secret, err := kube.Lookup[corev1.Secret](ctx, c.Access.Live, types.NamespacedName{Namespace: obj.Namespace, Name: name})
		if err != nil {
			return nil, fmt.Errorf("reading the token of a peer of pool %s: %w", p.Name, err)
		}
		switch {
		case p.Local == 0:
			p.Reason, p.Problem = ReasonLocalSilent, "it does not exist yet"
		case secret == nil:
			p.Reason, p.Problem = ReasonSecretNotFound, "Secret "+name+" with the token of its peer does not exist"
		default:
			peer, err := ParseToken(secret.Data["token"])
			if err != nil {
				p.Reason, p.Problem = ReasonToken, "Secret "+name+": "+err.Error()
				break
			}
			if p.Profile == "" {
				p.Profile = peer.Namespace
			}
			c.ask(ctx, peer, &p, asked)
		}
		if p.Problem == "" && p.Profile == "" {
			p.Reason, p.Problem = ReasonProfile, "the name of the client profile at its peer is not known: annotate the CephBlockPool with "+ProfileAnnotation
		}
		list = append(list, p)
	}
	return list, nil
}

// ask asks the peer for the id of the pool of that name.
func (c *Controller) ask(ctx context.Context, peer Peer, p *Pool, asked map[string]*answers) {
	a := asked[peer.FSID]
	if a == nil {
		a = &answers{ids: map[string]int64{}}
		asked[peer.FSID] = a
	}
	if _, known := a.ids[p.Name]; !known && a.silence == "" {
		id, err := c.poolID(ctx, peer, p.Name)
		if err != nil && !ceph.NotFound(err) {
			a.silence = err.Error()
		} else {
			a.ids[p.Name] = id
		}
	}
	switch p.Remote = a.ids[p.Name]; {
	case p.Remote != 0:
	case a.silence != "":
		p.Reason, p.Problem = ReasonSilent, "its peer does not answer, so what is known stays: "+a.silence
	default:
		p.Reason, p.Problem = ReasonPoolNotFound, "there is no pool of that name at its peer"
	}
}

func (c *Controller) poolID(ctx context.Context, peer Peer, name string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	commander, done := c.Peers(conn.Config{FSID: peer.FSID, MonHost: peer.MonHost, User: peer.User, Key: peer.Key})
	defer done()
	all, err := pool.New(commander).Get(ctx, name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(fmt.Sprint(all["pool_id"]), 10, 64)
	if err != nil || id <= 0 {
		return 0, fmt.Errorf("reading the id of pool %s at the peer: %v", name, all["pool_id"])
	}
	return id, nil
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	cond := kit.Condition{Type: Condition, Status: metav1.ConditionFalse}
	switch {
	case seen.Missing != "":
		cond.Reason, cond.Message = ReasonCRDsMissing, "kind "+seen.Missing+" of csi.ceph.io is not installed, so mirrored pools are not mapped"
		return kit.Plan{Conditions: []kit.Condition{cond}, Next: soon}
	case seen.Silence != "":
		cond.Reason, cond.Message = ReasonLocalSilent, "mirrored pools are mapped when the mons answer: "+seen.Silence
		return kit.Plan{Conditions: []kit.Condition{cond}, Next: soon}
	case seen.Taken != "":
		cond.Reason, cond.Message = ReasonNotOurs, seen.Taken+" in namespace "+seen.Namespace+" is somebody else's: rename it to have mirrored pools mapped"
		return kit.Plan{Conditions: []kit.Condition{cond}, Next: again}
	}
	out := Decide(seen.Input)
	p := kit.Plan{Next: again}
	if out.Mapping != nil {
		p.Apply = append(p.Apply, out.Mapping)
	}
	if out.Replication != nil {
		p.Apply = append(p.Apply, out.Replication)
	}
	if out.Remove {
		p.Delete = append(p.Delete, &csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{
			Namespace: seen.Namespace, Name: Name(seen.Profile), UID: seen.Replication.UID}})
	}
	switch {
	case len(seen.Pools) == 0:
		cond.Status = "" // there is nothing to say
		if cephv1.FindCondition(cl.Status.Conditions, Condition) == nil {
			return p
		}
	case out.Problem != "":
		cond.Reason, cond.Message = out.Reason, out.Problem
		p.Next = soon
	default:
		cond.Status, cond.Reason = metav1.ConditionTrue, ReasonMapped
		cond.Message = fmt.Sprintf("%d mirrored pools are mapped", len(seen.Pools))
	}
	p.Conditions = []kit.Condition{cond}
	return p
}

// Teardown implements kit.Controller: the objects go with the CephCluster where it is
// their owner, and stay with the connection and the profile otherwise.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }
