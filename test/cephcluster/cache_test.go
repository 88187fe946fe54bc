package cephcluster

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kube"
)

// cacheFor selects as the operator does, for one namespace: other tests have theirs
// on the same server.
func cacheFor(ns string) cache.Options {
	req, err := labels.NewRequirement("rook_cluster", selection.Exists, nil)
	if err != nil {
		panic(err)
	}
	return kube.CacheOptions(kube.CacheConfig{
		Namespaces: []string{ns},
		Ours:       []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &appsv1.Deployment{}, &batchv1.Job{}, &corev1.Service{}},
		Selected:   []kube.Selected{{Object: &corev1.Pod{}, Label: labels.NewSelector().Add(*req)}},
	})
}
