package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/settings"
)

// operatorSettings reads the ConfigMap with the operator's settings from a cache
// that holds this one object, since users make it and it carries no label of ours.
type operatorSettings struct {
	key   types.NamespacedName
	cache cache.Cache
	log   logr.Logger

	mu   sync.Mutex
	memo *settingsMemo
}

// settingsMemo is what was last read, so that it is parsed, and its problems are
// logged, once for each change.
type settingsMemo struct {
	version  string
	value    settings.Settings
	problems []settings.Problem
}

// newOperatorSettings adds the cache of the ConfigMap to a manager.
func newOperatorSettings(mgr ctrl.Manager, namespace string) (*operatorSettings, error) {
	s := &operatorSettings{
		key: types.NamespacedName{Namespace: namespace, Name: settings.ConfigMap},
		log: mgr.GetLogger().WithName("settings"),
	}
	var err error
	s.cache, err = cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", settings.ConfigMap)}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("making a cache of the operator's settings: %w", err)
	}
	if err := mgr.Add(s.cache); err != nil {
		return nil, fmt.Errorf("adding a cache of the operator's settings: %w", err)
	}
	return s, nil
}

// Get gives the settings as they are now. A ConfigMap that does not exist means
// the defaults; one that cannot be read is an error.
func (s *operatorSettings) Get(ctx context.Context) (settings.Settings, error) {
	cm, err := kube.Lookup[corev1.ConfigMap](ctx, s.cache, s.key)
	if err != nil {
		return settings.Settings{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	return s.parsed(cm), nil
}

// parsed parses cm, which may be nil, and logs its problems if they are new. No
// value is logged beyond what a problem's message quotes of a word that is not one
// of the allowed ones.
func (s *operatorSettings) parsed(cm *corev1.ConfigMap) settings.Settings {
	version := ""
	var data map[string]string
	if cm != nil {
		version, data = string(cm.UID)+"/"+cm.ResourceVersion, cm.Data
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memo != nil && s.memo.version == version {
		return s.memo.value
	}
	value, problems := settings.Parse(data)
	if s.memo == nil || !reflect.DeepEqual(problems, s.memo.problems) {
		for _, p := range problems {
			s.log.Info("a setting has no effect", "configMap", s.key.String(), "key", p.Key, "why", p.Message)
		}
	}
	s.memo = &settingsMemo{version, value, problems}
	return value
}

// OnChange follows the ConfigMap: the log level is set at once, and changed is
// called with the value and the data, at the start and after every change.
func (s *operatorSettings) OnChange(ctx context.Context, level *slog.LevelVar, changed func(value settings.Settings, data map[string]string)) error {
	informer, err := s.cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching the operator's settings: %w", err)
	}
	see := func(cm *corev1.ConfigMap) {
		value := s.parsed(cm)
		setLevel(level, value.LogLevel)
		var data map[string]string
		if cm != nil {
			data = cm.Data
		}
		changed(value, data)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { withMap(obj, see) },
		UpdateFunc: func(_, obj any) {
			withMap(obj, see)
		},
		DeleteFunc: func(any) { see(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching the operator's settings: %w", err)
	}
	return nil
}

func withMap(obj any, f func(*corev1.ConfigMap)) {
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		f(cm)
	}
}

// setLevel takes the level from the settings, or from the environment where they
// leave it at its default.
func setLevel(level *slog.LevelVar, word string) {
	if env := os.Getenv("ROOK_LOG_LEVEL"); env != "" && word == settings.Default().LogLevel {
		word = env
	}
	level.Set(levelOf(word))
}

// Source has every CephCluster looked at again when the settings change.
func (s *operatorSettings) Source(clusters client.Reader) source.Source {
	toAll := kube.ToAll(&cephv1.CephClusterList{})
	return source.Kind(s.cache, &corev1.ConfigMap{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *corev1.ConfigMap) []reconcile.Request {
			// kube.ToAll keeps to the namespace of what it is given; the settings are for
			// the clusters of all namespaces, so it is given something without one.
			var reqs []reconcile.Request
			for _, key := range toAll(ctx, clusters, &corev1.Node{}) {
				reqs = append(reqs, reconcile.Request{NamespacedName: key})
			}
			return reqs
		}),
		predicate.TypedFuncs[*corev1.ConfigMap]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.ConfigMap]) bool {
			return !reflect.DeepEqual(e.ObjectOld.Data, e.ObjectNew.Data)
		}},
	)
}
