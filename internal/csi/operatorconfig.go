package csi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// operatorConfigController tells on an OperatorConfig whether it is in use.
type operatorConfigController struct {
	client client.Client
	files  *store.Store
	opt    Options
}

// operatorConfigState is what an OperatorConfig depends on.
type operatorConfigState struct {
	inUse    types.NamespacedName
	imageSet bool // the image set that it names exists, or it names none
	drivers  int
}

func operatorConfigParts(env kit.Env, files *store.Store, opt Options) (kit.Controller[*csiv1.OperatorConfig, operatorConfigState], kit.Options) {
	c := &operatorConfigController{client: env.Client, files: files, opt: opt}
	toInUse := func(context.Context, client.Reader, client.Object) []kit.Key { return []kit.Key{opt.operatorConfig()} }
	return c, kit.Options{
		Name:    "csi-operator-config",
		Report:  kit.Report{Progressing: csiv1.ConditionProgressing},
		Phases:  &kit.Phases{Failed: "Failed"},
		Watches: []kit.Watch{{Object: &csiv1.Driver{}, Map: toInUse, When: kube.SpecChanged()}},
		Sources: []source.Source{files.Source(func(_ context.Context, cm *corev1.ConfigMap) []types.NamespacedName {
			if cm.Namespace != opt.OperatorNamespace {
				return nil
			}
			return []types.NamespacedName{opt.operatorConfig()}
		})},
	}
}

// New implements kit.Controller.
func (*operatorConfigController) New() *csiv1.OperatorConfig { return &csiv1.OperatorConfig{} }

// Observe implements kit.Controller.
func (c *operatorConfigController) Observe(ctx context.Context, obj *csiv1.OperatorConfig) (operatorConfigState, error) {
	s := operatorConfigState{inUse: c.opt.operatorConfig(), imageSet: true}
	list, err := kube.List(ctx, c.client, &csiv1.DriverList{})
	if err != nil {
		return s, err
	}
	s.drivers = len(list.Items)
	if d := obj.Spec.DriverSpecDefaults; d != nil && d.ImageSet != nil {
		if _, s.imageSet, err = c.files.Live(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: d.ImageSet.Name}); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Plan implements kit.Controller.
func (*operatorConfigController) Plan(obj *csiv1.OperatorConfig, s operatorConfigState) kit.Plan {
	status := obj.DeepCopy()
	p := kit.Plan{Status: status, Phase: "Ready"}
	ready := kit.Condition{Type: csiv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "InUse"}
	status.Status.Drivers = 0
	switch {
	case client.ObjectKeyFromObject(obj) != s.inUse:
		p.Phase, ready.Status, ready.Reason = "Ignored", metav1.ConditionFalse, "NotInUse"
		status.Status.Message = fmt.Sprintf("not in use: the operator reads %s", s.inUse)
	case !s.imageSet:
		name := obj.Spec.DriverSpecDefaults.ImageSet.Name
		p.Phase, ready.Status, ready.Reason = "Failed", metav1.ConditionFalse, ReasonImageSetNotFound
		status.Status.Message = fmt.Sprintf("image set ConfigMap %s/%s not found", obj.Namespace, name)
		p.Wait = &kit.Wait{Reason: ReasonImageSetNotFound, Message: status.Status.Message, Hint: "create it, or change spec.driverSpecDefaults.imageSet", Blocked: true, For: 10 * time.Minute}
	default:
		status.Status.Drivers = int32(s.drivers)
		status.Status.Message = fmt.Sprintf("gives defaults to %d drivers", s.drivers)
	}
	ready.Message = status.Status.Message
	p.Conditions = []kit.Condition{ready}
	return p
}

// Teardown implements kit.Controller: somebody else's finalizer holds the object.
func (c *operatorConfigController) Teardown(obj *csiv1.OperatorConfig, s operatorConfigState) kit.Plan {
	return c.Plan(obj, s)
}
