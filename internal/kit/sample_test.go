package kit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/kube"
)

// Keep is a kind for tests: so many rooms in a depot outside Kubernetes, with a
// Deployment that serves them.
type Keep struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              KeepSpec   `json:"spec,omitempty"`
	Status            KeepStatus `json:"status,omitempty"`
}

type KeepSpec struct {
	Rooms int    `json:"rooms"`
	Image string `json:"image,omitempty"`
}

type KeepStatus struct {
	Phase              string          `json:"phase,omitempty"`
	Rooms              int             `json:"rooms,omitempty"`
	Note               string          `json:"note,omitempty"`
	ObservedGeneration int64           `json:"observedGeneration,omitempty"`
	Conditions         []KeepCondition `json:"conditions,omitempty"`
}

// KeepCondition has the shape of Rook's conditions.
type KeepCondition struct {
	Type               string                 `json:"type,omitempty"`
	Status             metav1.ConditionStatus `json:"status,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
	LastHeartbeatTime  metav1.Time            `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
}

type KeepList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Keep `json:"items"`
}

func (k *Keep) DeepCopyObject() runtime.Object {
	out := *k
	out.ObjectMeta = *k.DeepCopy()
	out.Status.Conditions = slices.Clone(k.Status.Conditions)
	return &out
}

func (l *KeepList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		if k, ok := l.Items[i].DeepCopyObject().(*Keep); ok {
			out.Items = append(out.Items, *k)
		}
	}
	return &out
}

func keepGV() schema.GroupVersion {
	return schema.GroupVersion{Group: "test.castellan.io", Version: "v1"}
}

func keepScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	s.AddKnownTypes(keepGV(), &Keep{}, &KeepList{})
	metav1.AddToGroupVersion(s, keepGV())
	return s
}

func keepCRD() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "keeps.test.castellan.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: keepGV().Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "keeps", Singular: "keep", Kind: "Keep", ListKind: "KeepList"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec":   {Type: "object", XPreserveUnknownFields: &preserve},
						"status": {Type: "object", XPreserveUnknownFields: &preserve},
					},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func newKeep(ns, name string, rooms int) *Keep {
	return &Keep{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: KeepSpec{Rooms: rooms, Image: "image:1"}}
}

// depot is what is outside Kubernetes: the Ceph of this sample.
type depot struct {
	mu    sync.Mutex
	rooms map[string]int
	busy  map[string]bool // rooms cannot be taken away
	made  map[string]int  // how often a name was made
	// broken says that the depot answers with an error.
	broken error
	calls  []string
}

func newDepot() *depot {
	return &depot{rooms: map[string]int{}, busy: map[string]bool{}, made: map[string]int{}}
}

func (d *depot) get(name string) (int, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.rooms[name]
	return n, ok, d.broken
}

func (d *depot) set(name string, rooms int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	if _, ok := d.rooms[name]; !ok {
		d.made[name]++
	}
	d.rooms[name] = rooms
	d.calls = append(d.calls, fmt.Sprintf("set %s %d", name, rooms))
	return nil
}

func (d *depot) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	delete(d.rooms, name)
	d.calls = append(d.calls, "remove "+name)
	return nil
}

func (d *depot) isBusy(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy[name], d.broken
}

// The actions and the check of the sample.

type setRooms struct {
	Name  string
	Rooms int
}

func (a setRooms) String() string { return fmt.Sprintf("setting %s to %d rooms", a.Name, a.Rooms) }

type removeRooms struct{ Name string }

func (a removeRooms) String() string { return "removing the rooms of " + a.Name }

type nobodyIn struct{ Name string }

func (c nobodyIn) String() string { return "nobody is in " + c.Name }

// keepState is what Observe sees.
type keepState struct {
	Rooms  int
	There  bool
	Ready  bool
	Live   bool
	Secret bool
	Now    time.Time
}

// keeper is the sample controller.
type keeper struct {
	client client.Client
	depot  *depot
	// observe and plan, if set, take the place of the sample's own.
	observe func(ctx context.Context, k *Keep) (keepState, error)
	plan    func(k *Keep, s keepState) kit.Plan
	confirm func() (*kit.Wait, error)
}

var (
	_ kit.Controller[*Keep, keepState] = (*keeper)(nil)
	_ kit.Doer[*Keep]                  = (*keeper)(nil)
	_ kit.Confirmer[*Keep]             = (*keeper)(nil)
)

func (c *keeper) New() *Keep { return &Keep{} }

func (c *keeper) Observe(ctx context.Context, k *Keep) (keepState, error) {
	if c.observe != nil {
		return c.observe(ctx, k)
	}
	s := keepState{Now: kit.Now(ctx)}
	var err error
	if s.Rooms, s.There, err = c.depot.get(k.Name); err != nil {
		return s, fmt.Errorf("asking the depot: %w", err)
	}
	d, err := kube.Lookup[appsv1.Deployment](ctx, c.client, client.ObjectKeyFromObject(k))
	if err != nil {
		return s, err
	}
	if d != nil {
		s.Live = true
		s.Ready = d.Status.ReadyReplicas > 0
	}
	return s, nil
}

func (c *keeper) Plan(k *Keep, s keepState) kit.Plan {
	if c.plan != nil {
		return c.plan(k, s)
	}
	if k.Spec.Rooms < 0 {
		return kit.Plan{Err: kit.Terminal("spec.rooms", "%d is not a number of rooms", k.Spec.Rooms)}
	}
	p := kit.Plan{
		Create: []kit.Object{keepSecret(k)},
		Apply:  []kit.Object{keepDeployment(k), keepConfig(k)},
	}
	if !s.There || s.Rooms < k.Spec.Rooms {
		p.Do = append(p.Do, setRooms{k.Name, k.Spec.Rooms})
	} else if s.Rooms > k.Spec.Rooms {
		p.Do = append(p.Do, kit.Confirmed{Check: nobodyIn{k.Name}, Then: setRooms{k.Name, k.Spec.Rooms}})
	}
	if len(p.Do) > 0 {
		p.Events = append(p.Events, kit.Event{Object: keepDeployment(k), Reason: "Moved", Message: "the rooms were changed"})
	}
	if !s.Ready {
		p.Wait = &kit.Wait{Reason: "DeploymentNotReady", Object: "Deployment " + k.Name, Message: "no pod is ready", For: 10 * time.Second}
	}
	want := k.DeepCopyObject().(*Keep)
	want.Status.Rooms = s.Rooms
	p.Status = want
	return p
}

func (c *keeper) Teardown(k *Keep, s keepState) kit.Plan {
	p := kit.Plan{Delete: []kit.Object{keepDeployment(k), keepConfig(k), keepSecret(k)}}
	if s.There && !s.Live {
		p.Do = append(p.Do, kit.Confirmed{Check: nobodyIn{k.Name}, Then: removeRooms{k.Name}})
	} else if s.There {
		p.Wait = &kit.Wait{Reason: "DeploymentStillThere", Message: "waiting for the Deployment to go", For: time.Second}
	}
	return p
}

func (c *keeper) Do(_ context.Context, _ *Keep, action kit.Action) error {
	switch a := action.(type) {
	case setRooms:
		return c.depot.set(a.Name, a.Rooms)
	case removeRooms:
		return c.depot.remove(a.Name)
	}
	return fmt.Errorf("unknown action %T", action)
}

func (c *keeper) Confirm(_ context.Context, k *Keep, check kit.Check) (*kit.Wait, error) {
	if c.confirm != nil {
		return c.confirm()
	}
	busy, err := c.depot.isBusy(k.Name)
	if err != nil {
		return nil, err
	}
	if busy {
		return &kit.Wait{Reason: "RoomsBusy", Message: "somebody is in " + k.Name, For: 5 * time.Second, Blocked: true}, nil
	}
	return nil, nil
}

func keepMeta(k *Keep, suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name + suffix, Labels: map[string]string{"keep": k.Name}}
}

func keepSecret(k *Keep) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: keepMeta(k, "-key"), StringData: map[string]string{"key": "made-once"}}
}

func keepConfig(k *Keep) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: keepMeta(k, ""), Data: map[string]string{"rooms": fmt.Sprint(k.Spec.Rooms)}}
}

func keepDeployment(k *Keep) *appsv1.Deployment {
	replicas := int32(1)
	meta := keepMeta(k, "")
	if k.UID != "" {
		meta.OwnerReferences = []metav1.OwnerReference{naming.Owner(k, keepGV().WithKind("Keep"))}
	}
	return &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"keep": k.Name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"keep": k.Name}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "keep", Image: k.Spec.Image, Env: []corev1.EnvVar{{Name: "ROOMS", Value: fmt.Sprint(k.Spec.Rooms)}},
				}}},
			},
		},
	}
}

func keepOptions() kit.Options {
	return kit.Options{
		Name:      "keep",
		Finalizer: "keep.test.castellan.io",
		Phases:    kit.RookPhases(),
		Dependents: []kit.Dependent{{Object: &corev1.ConfigMap{}, Parents: func(o kit.Object) []kit.Key {
			if name := o.GetAnnotations()["needs-keep"]; name != "" {
				return []kit.Key{{Namespace: o.GetNamespace(), Name: name}}
			}
			return nil
		}}},
	}
}

// servePods makes every Deployment of a namespace ready, as Kubernetes would.
func servePods(ctx context.Context, c client.Client, namespace string) (changed bool, err error) {
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return false, err
	}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Status.ReadyReplicas == 1 && d.Status.ObservedGeneration == d.Generation || d.DeletionTimestamp != nil {
			continue
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
		if err := c.Status().Update(ctx, d); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

var errDepot = errors.New("the depot does not answer")

func key(ns, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: ns, Name: name}
}
