package csi

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/plan"
	"github.com/castellan-storage/castellan/internal/csi/publish"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	replication "github.com/castellan-storage/castellan/internal/replication/plan"
)

// Messages of a ClientProfile's status, in the words that its users know.
const (
	messageProfileReady  = "ClientProfile reconciled successfully"
	prefixConnection     = "failed to reconcile CephConnection: "
	prefixConfigMap      = "failed to reconcile ConfigMap: "
	messagePublishing    = "the record is being written to config.json"
	messageRemovingEntry = "the record is being removed from config.json"
)

// profileController keeps the finalizer of a ClientProfile and tells what became
// of it. The record itself is written by configWriter.
type profileController struct {
	client client.Client
	live   client.Reader
	files  *store.Store
}

// profileState is what a profile depends on.
type profileState struct {
	connection   *csiv1.CephConnection // nil: there is none
	replications []csiv1.ClientProfileReplication
	files        store.Files
	now          time.Time
}

func profileParts(env kit.Env, files *store.Store, _ Options) (kit.Controller[*csiv1.ClientProfile, profileState], kit.Options) {
	c := &profileController{client: env.Client, live: env.Live, files: files}
	return c, kit.Options{
		Name: "csi-profile",
		// Passes wait for the API server; a namespace may hold a thousand profiles.
		Concurrency: 16,
		Finalizer:   csiv1.ClientProfileFinalizer,
		Report:      kit.Report{Progressing: csiv1.ConditionProgressing},
		Phases:      &kit.Phases{},
		When:        kube.Changed(),
		Watches: []kit.Watch{
			{Object: &csiv1.CephConnection{}, Map: profilesOfConnection, When: kube.SpecChanged()},
			{Object: &csiv1.ClientProfileReplication{}, Map: profileOfReplication, When: kube.SpecChanged()},
		},
		Sources: []source.Source{files.RecordSource(func(ctx context.Context, namespace string, ids []string, all bool) []types.NamespacedName {
			if all {
				return kube.ToAll(&csiv1.ClientProfileList{})(ctx, env.Client, store.Empty(namespace))
			}
			var keys []types.NamespacedName
			for _, id := range ids {
				keys = append(keys, types.NamespacedName{Namespace: namespace, Name: id})
			}
			return keys
		})},
	}
}

func profilesOfConnection(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	list, err := kube.List(ctx, cache, &csiv1.ClientProfileList{}, client.InNamespace(obj.GetNamespace()), client.MatchingFields{publish.IndexConnection: obj.GetName()})
	if err != nil {
		return nil // the cache is not filled yet; every profile gets a pass of its own then
	}
	var keys []kit.Key
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return keys
}

func profileOfReplication(_ context.Context, _ client.Reader, obj client.Object) []kit.Key {
	r, ok := obj.(*csiv1.ClientProfileReplication)
	if !ok || r.Spec.LocalClientProfile == "" {
		return nil
	}
	return []kit.Key{{Namespace: r.Namespace, Name: r.Spec.LocalClientProfile}}
}

// New implements kit.Controller.
func (*profileController) New() *csiv1.ClientProfile { return &csiv1.ClientProfile{} }

// Observe implements kit.Controller.
func (c *profileController) Observe(ctx context.Context, p *csiv1.ClientProfile) (profileState, error) {
	s := profileState{now: kit.Now(ctx)}
	var err error
	if s.files, err = c.files.Files(ctx, p.Namespace); err != nil {
		return s, err
	}
	list, err := kube.List(ctx, c.client, &csiv1.ClientProfileReplicationList{}, client.InNamespace(p.Namespace), client.MatchingFields{publish.IndexLocalProfile: p.Name})
	if err != nil {
		return s, err
	}
	if s.replications = list.Items; !p.DeletionTimestamp.IsZero() && len(list.Items) == 0 {
		// What follows cannot be undone, so a cache that is behind must not decide it.
		if list, err = kube.List(ctx, c.live, &csiv1.ClientProfileReplicationList{}, client.InNamespace(p.Namespace)); err != nil {
			return s, err
		}
		s.replications = list.Items
	}
	connection := &csiv1.CephConnection{}
	found, err := kube.Get(ctx, c.client, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.CephConnectionRef.Name}, connection)
	if err != nil {
		return s, err
	}
	if found {
		s.connection = connection
	}
	return s, nil
}

// Plan implements kit.Controller.
func (*profileController) Plan(p *csiv1.ClientProfile, s profileState) kit.Plan {
	status := p.DeepCopy()
	status.Status.Published = nil
	out := kit.Plan{Status: status}
	switch {
	case s.files.Broken != nil:
		return failed(out, status, ReasonConfigBroken, prefixConfigMap+s.files.Broken.Error(),
			"put the file right, or delete the key "+clusterconfig.ConfigKey+" of ConfigMap "+clusterconfig.ConfigMapName+" to have it written anew")
	case s.connection == nil:
		return failed(out, status, ReasonConnectionNotFound,
			fmt.Sprintf("%sCephConnection '%s' not found", prefixConnection, p.Spec.CephConnectionRef.Name), "create it, or change spec.cephConnectionRef")
	}
	status.Status.ActiveReplication = ""
	if winner := replication.Decide(p.Name, p, s.replications).Winner; winner != nil {
		status.Status.ActiveReplication = winner.Name
	}
	record := plan.Record(p, s.connection, s.replications)
	if !s.files.Config.Holds(record) {
		out.Phase, status.Status.Message = csiv1.ClientProfilePhasePending, messagePublishing
		out.Wait = &kit.Wait{Reason: ReasonPublishing, Message: messagePublishing, Object: "ConfigMap " + clusterconfig.ConfigMapName}
		out.Conditions = []kit.Condition{{Type: csiv1.ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonPublishing, Message: messagePublishing}}
		return out
	}
	out.Phase, status.Status.Message = csiv1.ClientProfilePhaseReady, messageProfileReady
	status.Status.Published = publish.Since(p.Status.Published, record, s.now)
	out.Conditions = []kit.Condition{{Type: csiv1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonPublished, Message: publish.Message(status.Status.Published)}}
	return out
}

// failed completes the plan of a profile that cannot be published.
func failed(out kit.Plan, status *csiv1.ClientProfile, reason, message, hint string) kit.Plan {
	out.Phase, status.Status.Message = csiv1.ClientProfilePhaseFailed, message
	out.Wait = &kit.Wait{Reason: reason, Message: message, Hint: hint, Blocked: true, For: 10 * time.Minute}
	out.Conditions = []kit.Condition{{Type: csiv1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message + " (" + hint + ")"}}
	return out
}

// Teardown implements kit.Controller. Neither the connection nor a readable file is
// needed: a record that cannot be seen cannot be waited for.
func (*profileController) Teardown(p *csiv1.ClientProfile, s profileState) kit.Plan {
	status := p.DeepCopy()
	out := kit.Plan{Status: status}
	if names := replication.Referrers(p.Name, s.replications); len(names) > 0 {
		return failed(out, status, ReasonReferenced, replication.BlockedMessage(names), "delete them first")
	}
	if _, there, err := s.files.Config.Get(p.Name); there || err != nil {
		out.Phase, status.Status.Message = csiv1.ClientProfilePhasePending, messageRemovingEntry
		out.Wait = &kit.Wait{Reason: ReasonRemoving, Message: messageRemovingEntry, Object: "ConfigMap " + clusterconfig.ConfigMapName}
		out.Conditions = []kit.Condition{{Type: csiv1.ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonRemoving, Message: messageRemovingEntry}}
		return out
	}
	return kit.Plan{}
}
