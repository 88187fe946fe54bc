package kittest

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/internal/kit"
)

// Digest gives the objects of some kinds in a namespace as YAML without what differs
// from run to run: versions, generations, times, uids, managed fields, and the name
// of the namespace.
func Digest(ctx context.Context, c client.Client, namespace string, lists ...client.ObjectList) (string, error) {
	var all []*unstructured.Unstructured
	for _, list := range lists {
		fresh, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return "", fmt.Errorf("copying %T: not a list", list)
		}
		if err := c.List(ctx, fresh, client.InNamespace(namespace)); err != nil {
			return "", fmt.Errorf("listing %T: %w", list, err)
		}
		err := meta.EachListItem(fresh, func(o runtime.Object) error {
			u, err := toUnstructured(c.Scheme(), o)
			all = append(all, u)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return DigestOf(namespace, all...)
}

// DigestOf is Digest for objects in hand.
func DigestOf(namespace string, objs ...*unstructured.Unstructured) (string, error) {
	sorted := slices.Clone(objs)
	slices.SortFunc(sorted, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	var b strings.Builder
	for _, u := range sorted {
		u = u.DeepCopy()
		scrub(u.Object)
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	if namespace == "" {
		return b.String(), nil
	}
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(namespace)+`\b`).ReplaceAllString(b.String(), "NAMESPACE"), nil
}

// scrub removes what differs from run to run.
func scrub(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, val := range v {
			switch key {
			case "resourceVersion", "uid", "generation", "observedGeneration", "creationTimestamp", "managedFields",
				"lastTransitionTime", "lastHeartbeatTime", "lastUpdateTime", "selfLink", "clusterIP", "clusterIPs",
				// The hash covers owner references, and so uids.
				"castellan.ceph.io/applied-hash":
				delete(v, key)
			case "deletionTimestamp":
				v[key] = "set"
			default:
				scrub(val)
			}
		}
	case []any:
		for _, e := range v {
			scrub(e)
		}
	}
}

// Events collects events; it is a kit.Recorder.
type Events struct {
	mu   sync.Mutex
	list []string
}

var _ kit.Recorder = (*Events)(nil)

// Eventf implements kit.Recorder.
func (e *Events) Eventf(regarding, _ runtime.Object, eventtype, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	on := fmt.Sprintf("%T", regarding)
	if obj, ok := regarding.(kit.Object); ok {
		on = kit.KindOf(obj) + " " + obj.GetName()
	}
	e.list = append(e.list, fmt.Sprintf("%s %s %s: %s", on, eventtype, reason, fmt.Sprintf(note, args...)))
}

// Take gives the events so far ("Deployment a Normal Reason: note") and forgets them.
func (e *Events) Take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}
