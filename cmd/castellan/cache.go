package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	bucketv1alpha1 "github.com/castellan-storage/castellan/api/objectbucket/v1alpha1"
	"github.com/castellan-storage/castellan/internal/kube"
)

// scheme knows Kubernetes' own kinds and ours.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, cephv1.AddToScheme, csiv1.AddToScheme, bucketv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			// Kinds are fixed when the program is built: they fit together or no test passes.
			panic("registering kinds: " + err.Error())
		}
	}
	return s
}

// ClusterLabel is on every pod of a cluster.
const clusterLabel = "rook_cluster"

// cacheOptions says what is kept in memory: of the kinds that everybody uses, only
// what is ours. Pods are made by Deployments and carry no label of the operator,
// but that of their cluster.
func cacheOptions(s scope) cache.Options {
	ofClusters := labels.NewSelector()
	if r, err := labels.NewRequirement(clusterLabel, selection.Exists, nil); err == nil {
		ofClusters = ofClusters.Add(*r)
	} else {
		panic("selecting pods: " + err.Error()) // the label is a constant
	}
	return kube.CacheOptions(kube.CacheConfig{
		Namespaces: s.namespaces,
		Ours: []client.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{},
			&appsv1.Deployment{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &batchv1.CronJob{},
			&policyv1.PodDisruptionBudget{}, &discoveryv1.EndpointSlice{}, &networkingv1.NetworkPolicy{},
		},
		Selected: []kube.Selected{
			{Object: &corev1.Pod{}, Label: ofClusters, Keep: slimPod},
			{Object: &corev1.Node{}, Keep: slimNode},
		},
	})
}

// slimNode drops the long lists that nothing here reads.
func slimNode(obj client.Object) {
	if n, ok := obj.(*corev1.Node); ok {
		n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil
	}
}

// slimPod drops what a pod has from its template: what is read of pods is where
// they are and how they are.
func slimPod(obj client.Object) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].Env, list[i].VolumeMounts = nil, nil
		}
	}
}

// ready says whether the caches are filled. Replicas that do not lead are ready
// too: their caches fill while they wait.
func ready(mgr ctrl.Manager) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return fmt.Errorf("the caches are not filled yet")
		}
		return nil
	}
}
