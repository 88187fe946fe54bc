package statusmap

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
)

// Field managers of what a replacement writes. Each key has its own: what the prepare
// Job has reported stays, and a failed replacement does not take away the list of OSDs
// that an earlier one has written.
const (
	osdsManager    = FieldManager + "-osds"
	replaceManager = FieldManager + "-replace"
)

// StoreReplaced stores what a replacement has to say. OSDs are written first, so that
// who sees that it is done finds them.
func (c *Client) StoreReplaced(ctx context.Context, t Target, r request.Replaced, osds []prepare.Result) error {
	if r.Result == request.Done {
		if err := c.key(ctx, t, "osds", osds, osdsManager); err != nil {
			return err
		}
	}
	return c.key(ctx, t, request.ReplacedKey, r, replaceManager)
}

// key applies one key of the ConfigMap.
func (c *Client) key(ctx context.Context, t Target, key string, value any, manager string) error {
	b, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the report's %s: %w", key, err)
	}
	labels := map[string]any{"app": "rook-ceph-osd", "status": "provisioning", "node": t.Node}
	for k, v := range t.Labels {
		labels[k] = v
	}
	_, err = c.Apply(ctx, t.Namespace, t.Name, manager, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": t.Name, "namespace": t.Namespace, "labels": labels},
		"data":     map[string]any{key: string(b)},
	})
	return err
}
