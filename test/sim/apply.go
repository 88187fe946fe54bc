package sim

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/node/statusmap"
)

// apply writes a node's report as castellan-node does: by server-side apply, under
// its own name.
func apply(ctx context.Context, c client.Client, m map[string]any) error {
	u := &unstructured.Unstructured{Object: m}
	// A map of plain JSON values is what the API machinery wants.
	if labels, ok, _ := unstructured.NestedStringMap(m, "metadata", "labels"); ok {
		u.SetLabels(labels)
	}
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(statusmap.FieldManager), client.ForceOwnership)
}
