package sim

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listen has the loop told of what happens to the objects that a step looks at: to look
// fifty times a second is most of the work of an API server that nothing else happens on.
// A client without watches has it look each time. The func that it gives waits until
// nobody listens any more.
func (w *World) listen(ctx context.Context, c client.Client) (ended func()) {
	var listeners sync.WaitGroup
	watcher, ok := c.(client.WithWatch)
	for _, gvk := range []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("DeploymentList"), batchv1.SchemeGroupVersion.WithKind("JobList"),
		corev1.SchemeGroupVersion.WithKind("PodList"), corev1.SchemeGroupVersion.WithKind("NodeList"),
	} {
		opts := []client.ListOption{client.InNamespace(w.ns)}
		if gvk.Kind == "NodeList" {
			opts = nil
		}
		listeners.Go(func() {
			for ctx.Err() == nil {
				if ok {
					w.hear(ctx, watcher, gvk, opts)
				}
				w.told.Store(true) // of what was missed
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	return listeners.Wait
}

// hear listens until a watch ends.
func (w *World) hear(ctx context.Context, c client.WithWatch, gvk schema.GroupVersionKind, opts []client.ListOption) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	events, err := c.Watch(ctx, list, opts...)
	if err != nil {
		return
	}
	defer events.Stop()
	w.told.Store(true) // what was before it is not told
	for range events.ResultChan() {
		w.told.Store(true)
	}
}
