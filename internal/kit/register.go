package kit

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/castellan-storage/castellan/internal/kube"
)

// Back-off of failed passes. The default of controller-runtime ends at 16 minutes,
// which is longer than anybody waits after the cause is gone.
const (
	backOffMin = 50 * time.Millisecond
	backOffMax = time.Minute
)

// EnvOf makes the Env of a manager: cached client, uncached reader, events as
// "castellan", metrics in controller-runtime's registry, and a board.
func EnvOf(mgr ctrl.Manager) (Env, error) {
	m, err := NewMetrics(metrics.Registry)
	if err != nil {
		return Env{}, err
	}
	return Env{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder(kube.FieldOwner),
		Metrics:  m,
		Board:    NewBoard(),
		Writers:  NewWriters(),
	}, nil
}

// Register adds a controller to a manager, with all its watches.
func Register[T Object, S any](mgr ctrl.Manager, env Env, ctl Controller[T, S], opt Options) error {
	r := NewReconciler(ctl, env, opt)
	opt = r.opt
	if opt.Name == "" {
		return fmt.Errorf("registering a controller of %T: it has no name", ctl.New())
	}
	b := ctrl.NewControllerManagedBy(mgr).Named(opt.Name).WithOptions(controller.Options{
		MaxConcurrentReconciles: opt.Concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](backOffMin, backOffMax),
	})
	if _, keyed := any(ctl).(Keyed[T]); !keyed {
		when := opt.When
		if when == nil {
			when = kube.SpecChanged()
		}
		b = b.For(ctl.New(), builder.WithPredicates(when))
		for _, owned := range opt.Owns {
			b = b.Owns(owned, builder.MatchEveryOwner, builder.WithPredicates(opt.OwnsWhen()))
		}
	} else if len(opt.Owns) > 0 {
		return fmt.Errorf("registering %s: a keyed controller cannot have Owns, only Watches", opt.Name)
	}
	for _, dep := range opt.Dependents {
		b = b.Watches(dep.Object, mapped(env.Client, func(_ context.Context, _ client.Reader, obj Object) []Key {
			return dep.Parents(obj)
		}), builder.WithPredicates(kube.Gone()))
	}
	for _, w := range opt.Watches {
		when := w.When
		if when == nil {
			when = predicate.Funcs{}
		}
		opts := []builder.WatchesOption{builder.WithPredicates(when)}
		if w.MetadataOnly {
			opts = append(opts, builder.OnlyMetadata)
		}
		b = b.Watches(w.Object, mapped(env.Client, w.Map), opts...)
	}
	for _, s := range opt.Sources {
		b = b.WatchesRawSource(s)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("registering %s: %w", opt.Name, err)
	}
	return nil
}

func mapped(cache client.Reader, keys func(context.Context, client.Reader, Object) []Key) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var reqs []reconcile.Request
		for _, key := range keys(ctx, cache, obj) {
			reqs = append(reqs, reconcile.Request{NamespacedName: key})
		}
		return reqs
	})
}
