// Package replication holds the controller of ClientProfileReplications: it tells
// each of them whether its destination is in effect, and why not.
//
// The decision is internal/replication/plan's, and the destination is published by
// the writer of the drivers' configuration, which asks the same function. This
// controller must not write the configuration, and must not read a phase.
package replication

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/publish"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/replication/plan"
)

// ReasonPublishing is the reason of the Ready condition while the destination is not
// in config.json yet.
const ReasonPublishing = "Publishing"

// ReasonPublished is the reason of the Ready condition when it is.
const ReasonPublished = "Published"

// ConditionSuspicious is True on a replication that is legal and almost surely not
// what was meant.
const ConditionSuspicious = "Suspicious"

// ReasonSharedPool and ReasonPoolNotFound are reasons of the condition Suspicious.
const (
	ReasonSharedPool   = "SharedRemotePool"
	ReasonPoolNotFound = "PoolNotFound"
)

// lookAgain is how often the pools of the local cluster are looked at: no watch tells
// of them.
const lookAgain = 5 * time.Minute

// PoolLister knows the pools of clusters that the operator itself runs.
type PoolLister interface {
	// Pools gives the names of all pools of the cluster that a connection leads to. ours
	// is false if the operator has no access to it. A nil list says that there was no
	// answer.
	Pools(ctx context.Context, connection *csiv1.CephConnection) (names sets.Set[string], ours bool)
}

// Controller implements kit.Controller for ClientProfileReplications.
type Controller struct {
	client client.Client
	files  *store.Store
	pools  PoolLister
}

// State is what a replication depends on.
type State struct {
	// Profile is nil if there is none.
	Profile *csiv1.ClientProfile
	// Peers are all replications of the same local profile, this one included.
	Peers []csiv1.ClientProfileReplication
	// Published is the destination of the profile in config.json, or nil.
	Published *clusterconfig.ReplicationDestination
	// Ours says that the operator has access to the local cluster; Pools are the names
	// of its pools, nil if it has not answered.
	Ours  bool
	Pools sets.Set[string]
	// Now is the time of the pass.
	Now time.Time
}

// Register adds the controller to a manager. publish.AddIndexes must have been called.
// pools may be nil: what is in the local cluster is not known then.
func Register(mgr ctrl.Manager, env kit.Env, files *store.Store, pools PoolLister) error {
	ctl, o := Parts(env, files, pools)
	return kit.Register(mgr, env, ctl, o)
}

// Parts gives the controller and how it is run, for Register and for tests.
func Parts(env kit.Env, files *store.Store, pools PoolLister) (kit.Controller[*csiv1.ClientProfileReplication, State], kit.Options) {
	return &Controller{client: env.Client, files: files, pools: pools}, kit.Options{
		Name: "csi-replication",
		// Passes wait for the API server; a namespace may hold a thousand of them.
		Concurrency: 16,
		Report:      kit.Report{Progressing: csiv1.ConditionProgressing},
		Phases:      &kit.Phases{},
		// A phase that somebody else has written is put right.
		When: kube.Changed(),
		Watches: []kit.Watch{
			// Whatever happens to one concerns all of the same profile; a change of the
			// local profile is mapped for the old object and for the new one.
			{Object: &csiv1.ClientProfileReplication{}, Map: peers, When: kube.SpecChanged()},
			{Object: &csiv1.ClientProfile{}, Map: ofProfile, When: kube.SpecChanged()},
		},
		Sources: []source.Source{files.RecordSource(func(ctx context.Context, namespace string, ids []string, all bool) []types.NamespacedName {
			if all {
				return kube.ToAll(&csiv1.ClientProfileReplicationList{})(ctx, env.Client, store.Empty(namespace))
			}
			var keys []types.NamespacedName
			for _, id := range ids {
				keys = append(keys, keysOf(ctx, env.Client, namespace, id)...)
			}
			return keys
		})},
	}
}

func peers(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	r, ok := obj.(*csiv1.ClientProfileReplication)
	if !ok {
		return nil
	}
	return keysOf(ctx, cache, r.Namespace, r.Spec.LocalClientProfile)
}

func ofProfile(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	return keysOf(ctx, cache, obj.GetNamespace(), obj.GetName())
}

func keysOf(ctx context.Context, cache client.Reader, namespace, profile string) []kit.Key {
	list, err := byProfile(ctx, cache, namespace, profile)
	if err != nil {
		return nil // the cache is not filled yet; every object gets a pass of its own then
	}
	var keys []kit.Key
	for i := range list {
		keys = append(keys, client.ObjectKeyFromObject(&list[i]))
	}
	return keys
}

// byProfile lists by the index that publish.AddIndexes makes.
func byProfile(ctx context.Context, cache client.Reader, namespace, profile string) ([]csiv1.ClientProfileReplication, error) {
	list, err := kube.List(ctx, cache, &csiv1.ClientProfileReplicationList{}, client.InNamespace(namespace),
		client.MatchingFields{publish.IndexLocalProfile: profile})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// New implements kit.Controller.
func (*Controller) New() *csiv1.ClientProfileReplication { return &csiv1.ClientProfileReplication{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, r *csiv1.ClientProfileReplication) (State, error) {
	s := State{Now: kit.Now(ctx)}
	var err error
	if s.Profile, err = kube.Lookup[csiv1.ClientProfile](ctx, c.client, types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.LocalClientProfile}); err != nil {
		return s, err
	}
	if s.Peers, err = byProfile(ctx, c.client, r.Namespace, r.Spec.LocalClientProfile); err != nil {
		return s, err
	}
	files, err := c.files.Files(ctx, r.Namespace)
	if err != nil {
		return s, err
	}
	record, found, err := files.Config.Get(r.Spec.LocalClientProfile)
	if err == nil && found {
		s.Published = record.ReplicationDestination
	}
	return s, c.observePools(ctx, r, &s)
}

// observePools asks the local cluster for its pools, if it is one of ours and a pool is
// mapped.
func (c *Controller) observePools(ctx context.Context, r *csiv1.ClientProfileReplication, s *State) error {
	if c.pools == nil || s.Profile == nil || r.Spec.RBD == nil || len(r.Spec.RBD.PoolMapping) == 0 {
		return nil
	}
	connection, err := kube.Lookup[csiv1.CephConnection](ctx, c.client, types.NamespacedName{Namespace: r.Namespace, Name: s.Profile.Spec.CephConnectionRef.Name})
	if err != nil || connection == nil {
		return err
	}
	s.Pools, s.Ours = c.pools.Pools(ctx, connection)
	return nil
}

// Plan implements kit.Controller.
func (*Controller) Plan(r *csiv1.ClientProfileReplication, s State) kit.Plan {
	v, judged := plan.Decide(r.Spec.LocalClientProfile, s.Profile, s.Peers).Verdicts[r.Name]
	if !judged {
		// The index is behind the object itself; its own event is on the way.
		return kit.Plan{Wait: &kit.Wait{Reason: "CacheBehind", Message: "not in the index yet", For: time.Second}}
	}
	status := r.DeepCopy()
	status.Status.Message = v.Message
	status.Status.Published = nil
	p := kit.Plan{Status: status, Phase: v.Phase, Conditions: []kit.Condition{suspicious(r, s)}}
	if s.Ours {
		p.Next = lookAgain
	}
	ready := kit.Condition{Type: csiv1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.Reason, Message: v.Message}
	switch {
	case !v.Accepted():
	case !publish.Same(s.Published, clusterconfig.BuildDestination(r)):
		ready.Reason, ready.Message = ReasonPublishing, "accepted; the destination is being written to config.json"
		p.Wait = &kit.Wait{Reason: ReasonPublishing, Message: ready.Message, Object: "ConfigMap " + clusterconfig.ConfigMapName}
	default:
		status.Status.Published = publish.Since(r.Status.Published, s.Published, s.Now)
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, ReasonPublished, publish.Message(status.Status.Published)
	}
	p.Conditions = append(p.Conditions, ready)
	return p
}

// suspicious says what is legal and almost surely not meant. A warning about pools stays
// while the cluster does not answer.
func suspicious(r *csiv1.ClientProfileReplication, s State) kit.Condition {
	cond := kit.Condition{Type: ConditionSuspicious, Status: metav1.ConditionFalse, Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}
	texts := plan.Warnings(&r.Spec)
	if len(texts) > 0 {
		cond.Status, cond.Reason = metav1.ConditionTrue, ReasonSharedPool
	}
	was := meta.FindStatusCondition(r.Status.Conditions, ConditionSuspicious)
	switch {
	case s.Pools != nil:
		if absent := plan.AbsentPools(&r.Spec, s.Pools.Has); len(absent) > 0 {
			cond.Status, cond.Reason = metav1.ConditionTrue, ReasonPoolNotFound
			texts = append(absent, texts...)
		}
	case s.Ours && was != nil && was.Reason == ReasonPoolNotFound && was.ObservedGeneration == r.Generation:
		cond.Status, cond.Reason, texts = was.Status, was.Reason, []string{was.Message}
	}
	if len(texts) > 0 {
		cond.Message = strings.Join(texts, "; ")
	}
	return cond
}

// Teardown implements kit.Controller: somebody else's finalizer holds the object,
// which does not win any more and still protects its profile.
func (c *Controller) Teardown(r *csiv1.ClientProfileReplication, s State) kit.Plan {
	return c.Plan(r, s)
}
