package csi

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/publish"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// connectionController tells on a CephConnection who uses it.
type connectionController struct{ client client.Client }

// connectionState is the number of profiles that use a connection.
type connectionState struct{ profiles int }

func connectionParts(env kit.Env, _ *store.Store, _ Options) (kit.Controller[*csiv1.CephConnection, connectionState], kit.Options) {
	c := &connectionController{client: env.Client}
	return c, kit.Options{
		Name:   "csi-connection",
		Report: kit.Report{Progressing: csiv1.ConditionProgressing},
		Phases: &kit.Phases{Failed: "Failed"},
		Watches: []kit.Watch{{Object: &csiv1.ClientProfile{}, When: kube.SpecChanged(), Map: func(_ context.Context, _ client.Reader, obj client.Object) []kit.Key {
			p, ok := obj.(*csiv1.ClientProfile)
			if !ok || p.Spec.CephConnectionRef.Name == "" {
				return nil
			}
			return []kit.Key{{Namespace: p.Namespace, Name: p.Spec.CephConnectionRef.Name}}
		}}},
	}
}

// New implements kit.Controller.
func (*connectionController) New() *csiv1.CephConnection { return &csiv1.CephConnection{} }

// Observe implements kit.Controller.
func (c *connectionController) Observe(ctx context.Context, obj *csiv1.CephConnection) (connectionState, error) {
	list, err := kube.List(ctx, c.client, &csiv1.ClientProfileList{}, client.InNamespace(obj.Namespace), client.MatchingFields{publish.IndexConnection: obj.Name})
	if err != nil {
		return connectionState{}, err
	}
	return connectionState{profiles: len(list.Items)}, nil
}

// Plan implements kit.Controller.
func (*connectionController) Plan(obj *csiv1.CephConnection, s connectionState) kit.Plan {
	status := obj.DeepCopy()
	status.Status.ClientProfiles = int32(s.profiles)
	status.Status.Message = fmt.Sprintf("used by %d client profiles", s.profiles)
	if s.profiles == 0 {
		status.Status.Message = "used by no client profile"
	}
	return kit.Plan{Status: status, Phase: "Ready", Conditions: []kit.Condition{
		{Type: csiv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Accepted", Message: status.Status.Message},
	}}
}

// Teardown implements kit.Controller: somebody else's finalizer holds the object.
func (c *connectionController) Teardown(obj *csiv1.CephConnection, s connectionState) kit.Plan {
	return c.Plan(obj, s)
}
