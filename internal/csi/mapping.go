package csi

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// mappingWriter writes cluster-mapping.json, keyed on the ConfigMap of a
// namespace.
type mappingWriter struct {
	client client.Client
	files  *store.Store
}

// mappingState is what there is in a namespace.
type mappingState struct {
	mappings []csiv1.ClientProfileMapping
	files    store.Files
}

func mappingParts(env kit.Env, files *store.Store, _ Options) (kit.Controller[*corev1.ConfigMap, mappingState], kit.Options) {
	w := &mappingWriter{client: env.Client, files: files}
	return w, kit.Options{
		Name:    "csi-mapping-config",
		Report:  kit.Report{None: true},
		Watches: []kit.Watch{{Object: &csiv1.ClientProfileMapping{}, Map: toFiles, When: kube.SpecChanged()}},
		Sources: []source.Source{files.Source(onlyFiles)},
	}
}

// New implements kit.Controller.
func (*mappingWriter) New() *corev1.ConfigMap { return &corev1.ConfigMap{} }

// Fetch implements kit.Keyed.
func (w *mappingWriter) Fetch(ctx context.Context, key kit.Key) (*corev1.ConfigMap, error) {
	return fetchFiles(ctx, w.files, key)
}

// Observe implements kit.Controller.
func (w *mappingWriter) Observe(ctx context.Context, cm *corev1.ConfigMap) (mappingState, error) {
	return observeMappings(ctx, w.client, w.files, cm.Namespace)
}

func observeMappings(ctx context.Context, c client.Reader, files *store.Store, namespace string) (mappingState, error) {
	f, err := files.Files(ctx, namespace)
	if err != nil {
		return mappingState{}, err
	}
	list, err := kube.List(ctx, c, &csiv1.ClientProfileMappingList{}, client.InNamespace(namespace))
	if err != nil {
		return mappingState{}, err
	}
	return mappingState{mappings: list.Items, files: f}, nil
}

// wanted gives the file as it is to be.
func (s mappingState) wanted() (text string, bad []clusterconfig.Contradiction, err error) {
	records, bad := clusterconfig.BuildMappings(s.mappings)
	text, err = clusterconfig.EncodeMappings(records)
	return text, bad, err
}

// writeMapping is the one action of mappingWriter.
type writeMapping struct {
	Namespace, Version, Text string
}

// String implements kit.Action.
func (a writeMapping) String() string {
	return fmt.Sprintf("writing %s to namespace %s", clusterconfig.MappingKey, a.Namespace)
}

// Kind is the label of the action's metric.
func (writeMapping) Kind() string { return "write-mapping" }

// Plan implements kit.Controller. A namespace that never had a mapping gets no
// file; one that has none any more gets an empty list.
func (*mappingWriter) Plan(cm *corev1.ConfigMap, s mappingState) kit.Plan {
	if len(s.mappings) == 0 && !s.files.HasMapping {
		return kit.Plan{}
	}
	text, _, err := s.wanted()
	if err != nil {
		return kit.Plan{Err: err}
	}
	if s.files.HasMapping && s.files.Mapping == text {
		return kit.Plan{}
	}
	return kit.Plan{Do: []kit.Action{writeMapping{Namespace: cm.Namespace, Version: s.files.Version, Text: text}}}
}

// Teardown implements kit.Controller.
func (*mappingWriter) Teardown(*corev1.ConfigMap, mappingState) kit.Plan { return kit.Plan{} }

// Do implements kit.Doer.
func (w *mappingWriter) Do(ctx context.Context, _ *corev1.ConfigMap, action kit.Action) error {
	a, ok := action.(writeMapping)
	if !ok {
		return fmt.Errorf("%s: unknown action %T", action, action)
	}
	return ended(w.files.WriteMapping(ctx, a.Namespace, a.Version, a.Text))
}

// mappingReporter tells each ClientProfileMapping what became of it.
type mappingReporter struct {
	client client.Client
	files  *store.Store
}

func mappingStatusParts(env kit.Env, files *store.Store, _ Options) (kit.Controller[*csiv1.ClientProfileMapping, mappingState], kit.Options) {
	m := &mappingReporter{client: env.Client, files: files}
	siblings := kube.ToAll(&csiv1.ClientProfileMappingList{})
	return m, kit.Options{
		Name:    "csi-mapping",
		Report:  kit.Report{Progressing: csiv1.ConditionProgressing},
		Phases:  &kit.Phases{},
		Watches: []kit.Watch{{Object: &csiv1.ClientProfileMapping{}, Map: siblings, When: kube.SpecChanged()}},
		Sources: []source.Source{files.Source(func(ctx context.Context, cm *corev1.ConfigMap) []types.NamespacedName {
			if cm.Name != clusterconfig.ConfigMapName {
				return nil
			}
			return siblings(ctx, env.Client, cm)
		})},
	}
}

// New implements kit.Controller.
func (*mappingReporter) New() *csiv1.ClientProfileMapping { return &csiv1.ClientProfileMapping{} }

// Observe implements kit.Controller.
func (m *mappingReporter) Observe(ctx context.Context, obj *csiv1.ClientProfileMapping) (mappingState, error) {
	return observeMappings(ctx, m.client, m.files, obj.Namespace)
}

// ConditionConsistent is False on a ClientProfileMapping with pool pairs that
// contradict each other or those of another one.
const ConditionConsistent = "Consistent"

// Plan implements kit.Controller.
func (*mappingReporter) Plan(obj *csiv1.ClientProfileMapping, s mappingState) kit.Plan {
	text, bad, err := s.wanted()
	if err != nil {
		return kit.Plan{Err: err}
	}
	status := obj.DeepCopy()
	p := kit.Plan{Status: status, Conditions: []kit.Condition{consistent(obj.Name, bad)}}
	if s.files.HasMapping && s.files.Mapping == text {
		p.Phase, status.Status.Message = "Ready", "in "+clusterconfig.MappingKey
		p.Conditions = append(p.Conditions, kit.Condition{Type: csiv1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonPublished,
			Message: clusterconfig.MappingKey + " holds the mapping; drivers see it within about two minutes"})
		return p
	}
	p.Phase, status.Status.Message = "Pending", "being written to "+clusterconfig.MappingKey
	p.Wait = &kit.Wait{Reason: ReasonPublishing, Message: status.Status.Message, Object: "ConfigMap " + clusterconfig.ConfigMapName}
	p.Conditions = append(p.Conditions, kit.Condition{Type: csiv1.ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonPublishing, Message: p.Wait.Message})
	return p
}

func consistent(name string, bad []clusterconfig.Contradiction) kit.Condition {
	var texts []string
	for _, b := range bad {
		for _, object := range b.Objects {
			if object == name {
				texts = append(texts, b.Text)
			}
		}
	}
	if len(texts) == 0 {
		return kit.Condition{Type: ConditionConsistent, Status: metav1.ConditionTrue, Reason: "NoContradiction", Message: "no pool pair contradicts another"}
	}
	return kit.Condition{Type: ConditionConsistent, Status: metav1.ConditionFalse, Reason: "Contradiction",
		Message: strings.Join(texts, "; ") + ": drivers try one after the other, so a volume may be looked for in the wrong pool"}
}

// Teardown implements kit.Controller: somebody else's finalizer holds the object.
func (m *mappingReporter) Teardown(obj *csiv1.ClientProfileMapping, s mappingState) kit.Plan {
	return m.Plan(obj, s)
}
