// Package discover runs the discovery daemon: one DaemonSet for the whole operator,
// when the operator's settings ask for it, and nothing of it when they do not.
//
// It must not look at what the daemon finds: those who make OSDs read that in the
// ConfigMaps local-device-<node>.
package discover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/discover/spec"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/discover"
	"github.com/castellan-storage/castellan/internal/settings"
)

// operatorDeployment owns the DaemonSet, so that it goes with the operator.
const operatorDeployment = "rook-ceph-operator"

// Controller keeps the DaemonSet. It has one key, that of the operator's settings.
type Controller struct {
	Cache    client.Reader
	Live     client.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Key is the one key of the controller, for sources that tell of the settings.
func Key(namespace string) kit.Key { return kit.Key{Namespace: namespace, Name: settings.ConfigMap} }

// Options of the controller for kit.Register. A source that tells of the settings has
// to be added; it must give Key once at the start.
func Options(namespace string) kit.Options {
	ours := func(_ context.Context, _ client.Reader, obj client.Object) []kit.Key {
		if obj.GetNamespace() != "" && (obj.GetNamespace() != namespace || obj.GetLabels()["app"] != spec.App) {
			return nil
		}
		return []kit.Key{Key(namespace)}
	}
	return kit.Options{
		Name: "discover", Report: kit.Report{None: true},
		Watches: []kit.Watch{
			{Object: &appsv1.DaemonSet{}, Map: ours, When: predicate.Or(kube.SpecChanged(), kube.Gone())},
			{Object: &corev1.Node{}, Map: ours, When: kube.Gone()},
		},
	}
}

// Fetch implements kit.Keyed. The settings stand for the driving object even where
// nobody has made them: then all of them are at their defaults.
func (c *Controller) Fetch(_ context.Context, key kit.Key) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, nil
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Settings settings.Settings
	Operator spec.Operator
	// Nodes that exist, by name.
	Nodes map[string]bool
	// Maps are the ConfigMaps of the daemons, by name.
	Maps []string
}

// New implements kit.Controller.
func (*Controller) New() *corev1.ConfigMap { return &corev1.ConfigMap{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, _ *corev1.ConfigMap) (Seen, error) {
	seen := Seen{Operator: spec.Operator{Image: c.Operator.Image, Namespace: c.Operator.Namespace, Version: c.Operator.Version}, Nodes: map[string]bool{}}
	var err error
	if seen.Settings, err = c.Settings(ctx); err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	list, err := kube.List(ctx, c.Cache, &corev1.ConfigMapList{}, client.InNamespace(c.Operator.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return Seen{}, fmt.Errorf("listing discovered devices: %w", err)
	}
	for _, cm := range list.Items {
		seen.Maps = append(seen.Maps, cm.Name)
	}
	slices.Sort(seen.Maps)
	if !seen.Settings.EnableDiscovery {
		return seen, nil
	}
	nodes, err := kube.List(ctx, c.Cache, &corev1.NodeList{})
	if err != nil {
		return Seen{}, fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes.Items {
		seen.Nodes[discover.MapName(n.Name)] = true
	}
	dep, err := kube.Lookup[appsv1.Deployment](ctx, c.Live, types.NamespacedName{Namespace: c.Operator.Namespace, Name: operatorDeployment})
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's Deployment: %w", err)
	}
	if dep != nil {
		seen.Operator.Owner = &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: dep.Name, UID: dep.UID}
	}
	return seen, nil
}

// Plan implements kit.Controller.
func (c *Controller) Plan(_ *corev1.ConfigMap, seen Seen) kit.Plan {
	ns := seen.Operator.Namespace
	p := kit.Plan{}
	if !seen.Settings.EnableDiscovery {
		p.Delete = append(p.Delete, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: spec.App, Namespace: ns}})
	} else {
		ds, err := spec.DaemonSet(seen.Operator, seen.Settings)
		if bad := (*spec.KeyError)(nil); errors.As(err, &bad) {
			return kit.Plan{Err: kit.Terminal("data."+bad.Key, "%w", bad.Err)}
		} else if err != nil {
			return kit.Plan{Err: err}
		}
		p.Apply = append(p.Apply, ds)
	}
	for _, name := range seen.Maps {
		if !seen.Nodes[name] {
			p.Delete = append(p.Delete, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}})
		}
	}
	return p
}

// Teardown implements kit.Controller: the settings are never torn down.
func (*Controller) Teardown(*corev1.ConfigMap, Seen) kit.Plan { return kit.Plan{} }
