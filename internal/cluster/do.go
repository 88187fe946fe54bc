package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// Writer is what releasing an object needs.
type Writer interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Releaser carries out Unprotect; the controller that runs in a manager has one.
type Releaser struct {
	*Controller
	Write Writer
}

// Confirm implements kit.Confirmer: the user's confirmation is read live before
// anything is destroyed by it.
func (r Releaser) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	if _, ok := check.(Confirmed); !ok {
		return nil, fmt.Errorf("%s: no such check", check)
	}
	var live cephv1.CephCluster
	found, err := kube.Get(ctx, r.Access.Live, client.ObjectKeyFromObject(cl), &live)
	if err != nil {
		return nil, err
	}
	if !found || live.UID != cl.UID || live.DeletionTimestamp.IsZero() || !live.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return &kit.Wait{Reason: "CleanupNotConfirmed", Message: "spec.cleanupPolicy.confirmation is not set any more", For: time.Second}, nil
	}
	return nil, nil
}

// Do implements kit.Doer.
func (r Releaser) Do(ctx context.Context, _ *cephv1.CephCluster, action kit.Action) error {
	u, ok := action.(Unprotect)
	if !ok {
		return fmt.Errorf("%s: no such action", action)
	}
	var obj client.Object = &corev1.Secret{}
	key := u.Secret
	if key == (types.NamespacedName{}) {
		obj, key = &corev1.ConfigMap{}, u.ConfigMap
	}
	found, err := kube.Get(ctx, r.Access.Live, key, obj)
	if err != nil || !found {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == identity.Finalizer })
	if len(left) == len(obj.GetFinalizers()) {
		return nil
	}
	base, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s: %T is no object", u, obj)
	}
	obj.SetFinalizers(left)
	if err := r.Write.Patch(ctx, obj, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s: %w", u, err)
	}
	return nil
}
