// Package store keeps the ConfigMap ceph-csi-config: it reads it from a cache of
// its own and writes its two files, each under a field owner of its own, so that
// neither write can touch the other file or what people have added.
//
// It must not decide what stands in the files; it only refuses to write over a
// version that the decision was not made from.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/kube"
)

// Field owners of the two files.
const (
	ConfigOwner  = kube.FieldOwner + "-csi-config"
	MappingOwner = kube.FieldOwner + "-csi-mapping"
)

// OursAnnotation holds the names of the client profiles whose records are in
// config.json, as a JSON list.
const OursAnnotation = "castellan.ceph.io/client-profiles"

// Store is the ConfigMap ceph-csi-config of every namespace.
type Store struct {
	cache  cache.Cache // for events; nil if made by Direct
	reader client.Reader
	client client.Client
	live   client.Reader

	mu     sync.Mutex
	parsed map[string]parsed // by namespace; a memo of the cache, not state
}

type parsed struct {
	version string
	files   Files
	err     error
}

// Files is what the ConfigMap of a namespace holds.
type Files struct {
	// Exists tells whether there is a ConfigMap; Version is its resourceVersion.
	Exists  bool
	Version string
	// Config is config.json and Text the same as it stands there.
	Config clusterconfig.File
	Text   string
	// Broken is why config.json cannot be read, or nil. Config is empty then.
	Broken error
	// Mapping is cluster-mapping.json as it stands there; HasMapping whether it does.
	Mapping    string
	HasMapping bool
	// Ours are the names in OursAnnotation.
	Ours []string
}

// New makes a store and adds its cache to a manager. namespaces limits it; none
// means all. The cache holds the data of ceph-csi-config and, of all other
// ConfigMaps, the metadata only.
func New(mgr ctrl.Manager, namespaces ...string) (*Store, error) {
	opts := cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: slim,
	}
	if len(namespaces) > 0 {
		opts.DefaultNamespaces = map[string]cache.Config{}
		for _, ns := range namespaces {
			opts.DefaultNamespaces[ns] = cache.Config{}
		}
	}
	c, err := cache.New(mgr.GetConfig(), opts)
	if err != nil {
		return nil, fmt.Errorf("making a cache of ConfigMaps: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("adding a cache of ConfigMaps: %w", err)
	}
	return &Store{cache: c, reader: c, client: mgr.GetClient(), live: mgr.GetAPIReader(), parsed: map[string]parsed{}}, nil
}

// Direct makes a store without a cache: it reads by the client itself, and tells of no
// changes. It is for what makes single passes.
func Direct(c client.Client, live client.Reader) *Store {
	return &Store{reader: c, client: c, live: live, parsed: map[string]parsed{}}
}

// slim drops what is never read from the cache.
func slim(in any) (any, error) {
	cm, ok := in.(*corev1.ConfigMap)
	if !ok {
		return in, nil
	}
	cm.ManagedFields = nil
	if cm.Name != clusterconfig.ConfigMapName {
		cm.Data, cm.BinaryData = nil, nil
	}
	return cm, nil
}

// Source gives the passes that a change of a ConfigMap leads to. keys gets every
// ConfigMap; of those other than ceph-csi-config it sees the metadata only.
func (s *Store) Source(keys func(ctx context.Context, cm *corev1.ConfigMap) []types.NamespacedName) source.Source {
	return source.Kind(s.cache, &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, cm *corev1.ConfigMap) []reconcile.Request {
		var reqs []reconcile.Request
		for _, key := range keys(ctx, cm) {
			reqs = append(reqs, reconcile.Request{NamespacedName: key})
		}
		return reqs
	}))
}

// RecordSource gives the passes that changes of config.json lead to: keys gets the
// cluster ids whose records an update has changed, or all, if what has happened
// concerns every record (the ConfigMap came or went, the file is broken, or is so
// no more). In a namespace with a thousand profiles each write would lead to a
// thousand passes otherwise.
func (s *Store) RecordSource(keys func(ctx context.Context, namespace string, ids []string, all bool) []types.NamespacedName) source.Source {
	add := func(ctx context.Context, namespace string, ids []string, all bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, key := range keys(ctx, namespace, ids, all) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	everything := func(ctx context.Context, cm *corev1.ConfigMap, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if cm.Name == clusterconfig.ConfigMapName {
			add(ctx, cm.Namespace, nil, true, q)
		}
	}
	return source.Kind(s.cache, &corev1.ConfigMap{}, handler.TypedFuncs[*corev1.ConfigMap, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.ConfigMap], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			everything(ctx, e.Object, q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.ConfigMap], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			everything(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.ConfigMap], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.ObjectNew.Name != clusterconfig.ConfigMapName {
				return
			}
			was, wasErr := clusterconfig.Parse(e.ObjectOld.Data[clusterconfig.ConfigKey])
			now, err := clusterconfig.Parse(e.ObjectNew.Data[clusterconfig.ConfigKey])
			if wasErr != nil || err != nil {
				everything(ctx, e.ObjectNew, q)
				return
			}
			add(ctx, e.ObjectNew.Namespace, clusterconfig.Differing(was, now), false, q)
		},
	})
}

// Get reads the ConfigMap of a namespace from the cache.
func (s *Store) Get(ctx context.Context, namespace string) (*corev1.ConfigMap, bool, error) {
	cm := &corev1.ConfigMap{}
	found, err := kube.Get(ctx, s.reader, types.NamespacedName{Namespace: namespace, Name: clusterconfig.ConfigMapName}, cm)
	if err != nil {
		return nil, false, fmt.Errorf("reading the drivers' configuration: %w", err)
	}
	return cm, found, nil
}

// Files reads both files of a namespace. A file that cannot be read is not an
// error of Files: it is in Broken.
func (s *Store) Files(ctx context.Context, namespace string) (Files, error) {
	cm, found, err := s.Get(ctx, namespace)
	if err != nil || !found {
		return Files{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	version := string(cm.UID) + "/" + cm.ResourceVersion
	if p, ok := s.parsed[namespace]; ok && p.version == version {
		return p.files, p.err
	}
	p := parsed{version: version}
	p.files, p.err = Read(cm)
	s.parsed[namespace] = p
	return p.files, p.err
}

// Read reads the files of a ConfigMap.
func Read(cm *corev1.ConfigMap) (Files, error) {
	f := Files{Exists: true, Version: cm.ResourceVersion, Text: cm.Data[clusterconfig.ConfigKey]}
	f.Mapping, f.HasMapping = cm.Data[clusterconfig.MappingKey]
	f.Config, f.Broken = clusterconfig.Parse(f.Text)
	if text, ok := cm.Annotations[OursAnnotation]; ok {
		if err := json.Unmarshal([]byte(text), &f.Ours); err != nil {
			return Files{}, fmt.Errorf("reading annotation %s of ConfigMap %s/%s: %w", OursAnnotation, cm.Namespace, cm.Name, err)
		}
	}
	return f, nil
}

// WriteConfig writes config.json on the condition that the ConfigMap still is the
// version that was read; "" means that there is none yet. A ConfigMap that has
// changed, or has appeared, is a Conflict or AlreadyExists error: read again,
// decide again.
func (s *Store) WriteConfig(ctx context.Context, namespace, version, text string, ours []string) error {
	if ours == nil {
		ours = []string{}
	}
	names, err := json.Marshal(ours)
	if err != nil {
		return fmt.Errorf("encoding the names of client profiles: %w", err)
	}
	annotations := map[string]any{OursAnnotation: string(names)}
	return s.write(ctx, namespace, version, clusterconfig.ConfigKey, text, ConfigOwner, annotations)
}

// WriteMapping writes cluster-mapping.json, under the same condition.
func (s *Store) WriteMapping(ctx context.Context, namespace, version, text string) error {
	return s.write(ctx, namespace, version, clusterconfig.MappingKey, text, MappingOwner, nil)
}

func (s *Store) write(ctx context.Context, namespace, version, key, text, owner string, annotations map[string]any) error {
	meta := map[string]any{"name": clusterconfig.ConfigMapName, "namespace": namespace, "labels": map[string]any{kube.OwnedLabel: "true"}}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": map[string]any{key: text},
	}}
	var err error
	if version == "" {
		err = s.client.Create(ctx, u, client.FieldOwner(owner))
	} else {
		meta["resourceVersion"] = version
		err = s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership)
	}
	if err != nil {
		return fmt.Errorf("writing %s of ConfigMap %s/%s: %w", key, namespace, clusterconfig.ConfigMapName, err)
	}
	return nil
}

// Ended tells whether a write failed since its namespace is being deleted, in
// which case nothing is to be written any more.
func Ended(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// Empty is the ConfigMap of a namespace that has none: the object of a controller
// that is keyed on it.
func Empty(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: clusterconfig.ConfigMapName, Namespace: namespace}}
}

// Live reads a ConfigMap of users (an image set) from the API server.
func (s *Store) Live(ctx context.Context, key types.NamespacedName) (map[string]string, bool, error) {
	cm := &corev1.ConfigMap{}
	found, err := kube.Get(ctx, s.live, key, cm)
	if err != nil || !found {
		return nil, false, err
	}
	return cm.Data, true, nil
}
