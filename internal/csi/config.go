package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/plan"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// Reasons of waits and conditions of this package, beside kit's own.
const (
	ReasonConnectionNotFound = "CephConnectionNotFound"
	ReasonConfigBroken       = "ConfigBroken"
	ReasonPublishing         = "Publishing"
	ReasonPublished          = "Published"
	ReasonReferenced         = "ReplicationReferences"
	ReasonRemoving           = "RemovingRecord"
	ReasonTerminating        = "NamespaceTerminating"
	ReasonStale              = "CacheBehind"
)

// configWriter writes config.json. It is keyed on the ConfigMap of a namespace, so
// one pass brings the records of all profiles up to date, with one write.
type configWriter struct {
	client client.Client
	live   client.Reader
	files  *store.Store
}

// configState is what the writer knows of a namespace.
type configState struct {
	namespace plan.Namespace
	files     store.Files
	mappings  int
	// onlyOurs says that the ConfigMap has no data but the two files, and our label.
	onlyOurs bool
}

func configParts(env kit.Env, files *store.Store, _ Options) (kit.Controller[*corev1.ConfigMap, configState], kit.Options) {
	w := &configWriter{client: env.Client, live: env.Live, files: files}
	return w, kit.Options{
		Name:   "csi-config",
		Report: kit.Report{None: true},
		Watches: []kit.Watch{
			{Object: &csiv1.ClientProfile{}, Map: toFiles, When: kube.SpecChanged()},
			{Object: &csiv1.CephConnection{}, Map: toFiles, When: kube.SpecChanged()},
			{Object: &csiv1.ClientProfileReplication{}, Map: toFiles, When: kube.SpecChanged()},
			{Object: &csiv1.Driver{}, Map: toFiles, When: kube.SpecChanged()},
		},
		Sources: []source.Source{files.Source(onlyFiles)},
	}
}

// onlyFiles passes ceph-csi-config itself.
func onlyFiles(_ context.Context, cm *corev1.ConfigMap) []types.NamespacedName {
	if cm.Name != clusterconfig.ConfigMapName {
		return nil
	}
	return []types.NamespacedName{client.ObjectKeyFromObject(cm)}
}

// New implements kit.Controller.
func (*configWriter) New() *corev1.ConfigMap { return &corev1.ConfigMap{} }

// Fetch implements kit.Keyed: a namespace without the ConfigMap gets an empty one
// to work on.
func (w *configWriter) Fetch(ctx context.Context, key kit.Key) (*corev1.ConfigMap, error) {
	return fetchFiles(ctx, w.files, key)
}

func fetchFiles(ctx context.Context, files *store.Store, key kit.Key) (*corev1.ConfigMap, error) {
	cm, found, err := files.Get(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	if !found {
		return store.Empty(key.Namespace), nil
	}
	return cm, nil
}

// Observe implements kit.Controller.
func (w *configWriter) Observe(ctx context.Context, cm *corev1.ConfigMap) (configState, error) {
	var s configState
	var err error
	ns := client.InNamespace(cm.Namespace)
	if s.files, err = w.files.Files(ctx, cm.Namespace); err != nil {
		return s, err
	}
	profiles, err := kube.List(ctx, w.client, &csiv1.ClientProfileList{}, ns)
	if err != nil {
		return s, err
	}
	connections, err := kube.List(ctx, w.client, &csiv1.CephConnectionList{}, ns)
	if err != nil {
		return s, err
	}
	replications, err := kube.List(ctx, w.client, &csiv1.ClientProfileReplicationList{}, ns)
	if err != nil {
		return s, err
	}
	drivers, err := kube.List(ctx, w.client, &csiv1.DriverList{}, ns)
	if err != nil {
		return s, err
	}
	mappings, err := kube.List(ctx, w.client, &csiv1.ClientProfileMappingList{}, ns)
	if err != nil {
		return s, err
	}
	s.namespace = plan.Namespace{Profiles: profiles.Items, Connections: connections.Items, Replications: replications.Items, Drivers: len(drivers.Items)}
	s.mappings = len(mappings.Items)
	s.onlyOurs = ownedOnly(cm)
	return s, nil
}

func ownedOnly(cm *corev1.ConfigMap) bool {
	if cm.Labels[kube.OwnedLabel] != "true" || len(cm.BinaryData) > 0 {
		return false
	}
	for key := range cm.Data {
		if key != clusterconfig.ConfigKey && key != clusterconfig.MappingKey {
			return false
		}
	}
	return true
}

// writeConfig is the one action of configWriter.
type writeConfig struct {
	Namespace, Version, Text string
	Ours, Orphans            []string
}

// String implements kit.Action.
func (a writeConfig) String() string {
	return fmt.Sprintf("writing %s of %d client profiles to namespace %s", clusterconfig.ConfigKey, len(a.Ours), a.Namespace)
}

// Kind is the label of the action's metric.
func (writeConfig) Kind() string { return "write-config" }

// Plan implements kit.Controller.
func (*configWriter) Plan(cm *corev1.ConfigMap, s configState) kit.Plan {
	want, err := plan.Decide(s.namespace, s.files.Text, s.files.Ours)
	if errors.Is(err, clusterconfig.ErrBroken) {
		return kit.Plan{Wait: &kit.Wait{Reason: ReasonConfigBroken, Message: err.Error(), Blocked: true, For: time.Hour,
			Hint: "put the file right, or delete the key " + clusterconfig.ConfigKey + " to have it written anew"}}
	}
	if err != nil {
		return kit.Plan{Err: err}
	}
	unused := s.namespace.Drivers == 0 && len(s.namespace.Profiles) == 0 && want.Text == "[]"
	switch {
	case unused && s.mappings == 0 && s.files.Exists && s.onlyOurs:
		gone := store.Empty(cm.Namespace)
		gone.ResourceVersion = s.files.Version
		return kit.Plan{Delete: []kit.Object{gone}}
	case unused:
		return kit.Plan{}
	case s.files.Exists && want.Text == s.files.Text && slices.Equal(want.Ours, s.files.Ours):
		return kit.Plan{}
	}
	return kit.Plan{Do: []kit.Action{writeConfig{Namespace: cm.Namespace, Version: s.files.Version, Text: want.Text, Ours: want.Ours, Orphans: want.Orphans}}}
}

// Teardown implements kit.Controller: a ConfigMap that is being deleted is made
// anew when it is gone.
func (*configWriter) Teardown(*corev1.ConfigMap, configState) kit.Plan { return kit.Plan{} }

// Do implements kit.Doer.
func (w *configWriter) Do(ctx context.Context, _ *corev1.ConfigMap, action kit.Action) error {
	a, ok := action.(writeConfig)
	if !ok {
		return fmt.Errorf("%s: unknown action %T", action, action)
	}
	for _, name := range a.Orphans {
		// The cache may be older than the write that made the record.
		found, err := kube.Get(ctx, w.live, types.NamespacedName{Namespace: a.Namespace, Name: name}, &csiv1.ClientProfile{})
		if err != nil {
			return err
		}
		if found {
			return kit.Waiting(kit.Wait{Reason: ReasonStale, Message: "ClientProfile " + name + " is not in the cache yet", For: time.Second})
		}
	}
	return ended(w.files.WriteConfig(ctx, a.Namespace, a.Version, a.Text, a.Ours))
}

// ended turns the refusal of a namespace that is being deleted into a wait.
func ended(err error) error {
	if err != nil && (store.Ended(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) {
		return kit.Waiting(kit.Wait{Reason: ReasonTerminating, Message: "the namespace is being deleted", For: time.Minute})
	}
	return err
}
