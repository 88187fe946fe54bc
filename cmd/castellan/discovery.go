package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/castellan-storage/castellan/internal/discover"
	"github.com/castellan-storage/castellan/internal/kit"
)

// registerDiscovery adds the controller of the discovery daemon. It is told of every
// change of the settings and once at the start, since there may be none.
func registerDiscovery(c *common) error {
	req := reconcile.Request{NamespacedName: discover.Key(c.operator.Namespace)}
	o := discover.Options(c.operator.Namespace)
	o.Sources = append(o.Sources,
		source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(req)
			return nil
		}),
		source.Kind(c.settings.cache, &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(context.Context, *corev1.ConfigMap) []reconcile.Request { return []reconcile.Request{req} })),
	)
	ctl := &discover.Controller{Cache: c.env.Client, Live: c.env.Live, Operator: c.operator, Settings: c.settings.Get}
	return kit.Register(c.mgr, c.env, ctl, o)
}
