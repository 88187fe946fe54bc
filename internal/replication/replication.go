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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// Controller implements kit.Controller for ClientProfileReplications.
type Controller struct {
	client client.Client
	files  *store.Store
}

// State is what a replication depends on.
type State struct {
	// Profile is nil if there is none.
	Profile *csiv1.ClientProfile
	// Peers are all replications of the same local profile, this one included.
	Peers []csiv1.ClientProfileReplication
	// Published is the destination of the profile in config.json, or nil.
	Published *clusterconfig.ReplicationDestination
	// Now is the time of the pass.
	Now time.Time
}

// Register adds the controller to a manager. publish.AddIndexes must have been called.
func Register(mgr ctrl.Manager, env kit.Env, files *store.Store) error {
	c := &Controller{client: env.Client, files: files}
	return kit.Register(mgr, env, kit.Controller[*csiv1.ClientProfileReplication, State](c), kit.Options{
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
	})
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
	return s, nil
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
	p := kit.Plan{Status: status, Phase: v.Phase, Conditions: []kit.Condition{suspicious(r)}}
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

func suspicious(r *csiv1.ClientProfileReplication) kit.Condition {
	if w := plan.Warnings(&r.Spec); len(w) > 0 {
		return kit.Condition{Type: ConditionSuspicious, Status: metav1.ConditionTrue, Reason: "SharedRemotePool", Message: strings.Join(w, "; ")}
	}
	return kit.Condition{Type: ConditionSuspicious, Status: metav1.ConditionFalse, Reason: "NothingFound", Message: "every pool leads to a remote pool of its own"}
}

// Teardown implements kit.Controller: somebody else's finalizer holds the object,
// which does not win any more and still protects its profile.
func (c *Controller) Teardown(r *csiv1.ClientProfileReplication, s State) kit.Plan {
	return c.Plan(r, s)
}
