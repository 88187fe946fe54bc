package kube

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object into obj and says whether it is there. Only a NotFound of the
// API server means that it is not; any other failure is an error.
func Get(ctx context.Context, r client.Reader, key types.NamespacedName, obj client.Object) (found bool, err error) {
	err = r.Get(ctx, key, obj)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("reading %T %s: %w", obj, key, err)
	}
}

// Lookup reads an object that may be absent: nil means that the API server said so.
//
//	secret, err := kube.Lookup[corev1.Secret](ctx, live, key)
func Lookup[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r client.Reader, key types.NamespacedName) (P, error) {
	obj := P(new(T))
	found, err := Get(ctx, r, key, obj)
	if err != nil || !found {
		return nil, err
	}
	return obj, nil
}

// List reads objects; the error says of which kind.
func List[L client.ObjectList](ctx context.Context, r client.Reader, list L, opts ...client.ListOption) (L, error) {
	if err := r.List(ctx, list, opts...); err != nil {
		return list, fmt.Errorf("listing %T: %w", list, err)
	}
	return list, nil
}

// NewLike gives an empty object to read obj's live state into: of obj's own type if
// that is typed, of the type that the scheme knows for an unstructured one (so that
// no second cache is filled), and otherwise unstructured.
func NewLike(scheme *runtime.Scheme, obj client.Object) (client.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		fresh, ok := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
		if !ok {
			return nil, fmt.Errorf("making an empty %T: not an object", obj)
		}
		return fresh, nil
	}
	gvk := u.GroupVersionKind()
	if scheme.Recognizes(gvk) {
		fresh, err := scheme.New(gvk)
		if err != nil {
			return nil, fmt.Errorf("making an empty %s: %w", gvk, err)
		}
		if typed, ok := fresh.(client.Object); ok {
			return typed, nil
		}
	}
	fresh := &unstructured.Unstructured{}
	fresh.SetGroupVersionKind(gvk)
	return fresh, nil
}

// Skipped says whether users have asked for an object to be left alone.
func Skipped(obj client.Object) bool {
	labels := obj.GetLabels()
	_, skip := labels[SkipLabel]
	return skip || labels[LegacySkipLabel] == "true"
}
