package statusmap

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/castellan-storage/castellan/internal/node/rawosd"
)

// begunKey of the ConfigMap's data holds the OSDs that a node has begun. It has a
// field manager of its own, so that storing a report leaves it as it is.
const (
	begunKey     = "begun"
	begunManager = FieldManager + "-begun"
	// readManager owns nothing: its apply is how the ConfigMap is read, with no more
	// right than to apply.
	readManager = FieldManager + "-read"
)

// Begun keeps rawosd's notes in a node's status ConfigMap.
type Begun struct {
	Client *Client
	Target Target
}

// Get implements rawosd.Notes.
func (b Begun) Get(ctx context.Context) ([]rawosd.Begun, error) {
	out, err := b.Client.apply(ctx, b.Target, readManager, nil)
	if err != nil {
		return nil, err
	}
	var cm struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(out, &cm); err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", b.Target.Name, err)
	}
	if cm.Data[begunKey] == "" {
		return nil, nil
	}
	var list []rawosd.Begun
	if err := json.Unmarshal([]byte(cm.Data[begunKey]), &list); err != nil {
		return nil, fmt.Errorf("reading %q of ConfigMap %s: %w", begunKey, b.Target.Name, err)
	}
	return list, nil
}

// Set implements rawosd.Notes.
func (b Begun) Set(ctx context.Context, list []rawosd.Begun) error {
	var data map[string]any
	if len(list) > 0 {
		v, err := json.Marshal(list)
		if err != nil {
			return fmt.Errorf("encoding which OSDs were begun: %w", err)
		}
		data = map[string]any{begunKey: string(v)}
	}
	_, err := b.Client.apply(ctx, b.Target, begunManager, data)
	return err
}

// apply applies this data of the ConfigMap, for one field manager, and gives the
// ConfigMap as it then is.
func (c *Client) apply(ctx context.Context, t Target, manager string, data map[string]any) ([]byte, error) {
	m := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": t.Name, "namespace": t.Namespace}}
	if data != nil {
		m["data"] = data
	}
	return c.Apply(ctx, t.Namespace, t.Name, manager, m)
}
