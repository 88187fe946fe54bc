// Package publish says since when the drivers' configuration holds what an object
// asks for, and names the cache indexes by which controllers find what belongs
// together.
//
// It is shared by the controllers of ClientProfiles and of
// ClientProfileReplications, which do not import each other. It must not read or
// write anything but what it is given.
package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// Field indexes of the cache. AddIndexes makes them.
const (
	// IndexLocalProfile is a ClientProfileReplication's spec.localClientProfile.
	IndexLocalProfile = "spec.localClientProfile"
	// IndexConnection is a ClientProfile's spec.cephConnectionRef.name.
	IndexConnection = "spec.cephConnectionRef.name"
)

// AddIndexes makes the field indexes. It has to be called once for a manager,
// before its controllers are registered.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &csiv1.ClientProfileReplication{}, IndexLocalProfile, func(obj client.Object) []string {
		r, ok := obj.(*csiv1.ClientProfileReplication)
		if !ok {
			return nil
		}
		return []string{r.Spec.LocalClientProfile}
	}); err != nil {
		return fmt.Errorf("indexing ClientProfileReplications by local profile: %w", err)
	}
	if err := indexer.IndexField(ctx, &csiv1.ClientProfile{}, IndexConnection, func(obj client.Object) []string {
		p, ok := obj.(*csiv1.ClientProfile)
		if !ok {
			return nil
		}
		return []string{p.Spec.CephConnectionRef.Name}
	}); err != nil {
		return fmt.Errorf("indexing ClientProfiles by connection: %w", err)
	}
	return nil
}

// digest tells values apart by their JSON.
func digest(what any) string {
	raw, err := json.Marshal(what)
	if err != nil {
		// Records are plain structs; they can always be encoded.
		return fmt.Sprintf("%T", what)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// Same tells whether two values read the same in JSON.
func Same(a, b any) bool { return digest(a) == digest(b) }

// Since gives since when what stands in config.json: the time that is known, if it
// is the same, else now.
func Since(known *csiv1.Published, what any, now time.Time) *csiv1.Published {
	d := digest(what)
	if known != nil && known.Digest == d {
		return known.DeepCopy()
	}
	return &csiv1.Published{Since: metav1.NewTime(now.Truncate(time.Second)), Digest: d}
}

// Message says since when drivers can have seen something.
func Message(p *csiv1.Published) string {
	return fmt.Sprintf("in config.json since %s; drivers see it within about two minutes of that", p.Since.UTC().Format(time.RFC3339))
}
