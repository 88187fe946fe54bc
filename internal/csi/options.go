package csi

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
)

// Options say where the controllers work.
type Options struct {
	// OperatorNamespace holds the OperatorConfig and the image sets that it names.
	OperatorNamespace string
	// OperatorConfigName is the name of the OperatorConfig in use;
	// csiv1.OperatorConfigDefaultName if empty.
	OperatorConfigName string
	// ServiceAccountPrefix is put before the default names of service accounts
	// (CSI_SERVICE_ACCOUNT_PREFIX).
	ServiceAccountPrefix string
	// OperatorImage holds castellan-node, for the rotation of log files.
	OperatorImage string
}

func (o Options) operatorConfig() types.NamespacedName {
	name := o.OperatorConfigName
	if name == "" {
		name = csiv1.OperatorConfigDefaultName
	}
	return types.NamespacedName{Namespace: o.OperatorNamespace, Name: name}
}

// Register adds the controllers of this package to a manager. publish.AddIndexes must have
// been called.
func Register(mgr ctrl.Manager, env kit.Env, files *store.Store, opt Options) error {
	for _, add := range []func(ctrl.Manager, kit.Env, *store.Store, Options) error{
		register(configParts), register(mappingParts), register(profileParts), register(connectionParts), register(mappingStatusParts),
		register(operatorConfigParts), register(driverParts),
	} {
		if err := add(mgr, env, files, opt); err != nil {
			return err
		}
	}
	return nil
}

// register makes of a controller's parts what adds it to a manager.
func register[T kit.Object, S any](parts func(kit.Env, *store.Store, Options) (kit.Controller[T, S], kit.Options)) func(ctrl.Manager, kit.Env, *store.Store, Options) error {
	return func(mgr ctrl.Manager, env kit.Env, files *store.Store, opt Options) error {
		ctl, o := parts(env, files, opt)
		return kit.Register(mgr, env, ctl, o)
	}
}

// filesKey is the key of controllers that are keyed on the ConfigMap of a
// namespace.
func filesKey(namespace string) kit.Key {
	return kit.Key{Namespace: namespace, Name: clusterconfig.ConfigMapName}
}

func toFiles(_ context.Context, _ client.Reader, obj client.Object) []kit.Key {
	return []kit.Key{filesKey(obj.GetNamespace())}
}
