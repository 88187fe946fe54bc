package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/castellan-storage/castellan/internal/kube"
)

func (p *run[T, S]) held() bool { return slices.Contains(p.obj.GetFinalizers(), p.opt.Finalizer) }

// addFinalizer is the first effect on an object, before anything is made for it.
func (p *run[T, S]) addFinalizer(ctx context.Context) error {
	if p.opt.Finalizer == "" || p.held() {
		return nil
	}
	return p.effect(ctx, "finalizer", "adding the finalizer", func(ctx context.Context) error {
		return p.setFinalizers(ctx, append(slices.Clone(p.obj.GetFinalizers()), p.opt.Finalizer))
	})
}

// removeFinalizer is the last effect on an object.
func (p *run[T, S]) removeFinalizer(ctx context.Context) error {
	return p.effect(ctx, "finalizer", "removing the finalizer", func(ctx context.Context) error {
		err := p.setFinalizers(ctx, slices.DeleteFunc(slices.Clone(p.obj.GetFinalizers()), func(f string) bool {
			return f == p.opt.Finalizer
		}))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// setFinalizers replaces the list, on the condition that nobody has changed the object
// since it was read. The patch goes through a copy with the kind only, so p.obj is
// refreshed from the answer and keeps everything else.
func (p *run[T, S]) setFinalizers(ctx context.Context, finalizers []string) error {
	if finalizers == nil {
		finalizers = []string{}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": p.obj.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	return p.env.Client.Patch(ctx, p.obj, client.RawPatch(types.MergePatchType, body), client.FieldOwner(kube.FieldOwner))
}

// deletion is the state of an object's deletion with regard to its dependents.
type deletion struct {
	blockers []string
}

// namedBlockers bounds the message.
const namedBlockers = 20

func (d *deletion) wait() *Wait {
	return &Wait{
		Reason:  ReasonHasDependents,
		Message: d.message(),
		Hint:    "delete them, or keep this object",
		For:     10 * time.Second,
		Blocked: true,
	}
}

func (d *deletion) message() string {
	if len(d.blockers) == 0 {
		return "nothing depends on it any more"
	}
	named := d.blockers
	more := ""
	if len(named) > namedBlockers {
		more = fmt.Sprintf(" and %d more", len(named)-namedBlockers)
		named = named[:namedBlockers]
	}
	return "deletion waits for " + strings.Join(named, ", ") + more
}

func (d *deletion) condition() Condition {
	if len(d.blockers) == 0 {
		return Condition{Type: "DeletionIsBlocked", Status: metav1.ConditionFalse, Reason: ReasonNoDependents, Message: d.message()}
	}
	return Condition{Type: "DeletionIsBlocked", Status: metav1.ConditionTrue, Reason: ReasonHasDependents, Message: d.message()}
}

// dependents finds what needs the driving object. If the cache knows of nothing,
// the API server is asked, since what follows cannot be undone. nil means that the
// controller has no kinds of dependents.
func (p *run[T, S]) dependents(ctx context.Context) (*deletion, error) {
	if len(p.opt.Dependents) == 0 {
		return nil, nil
	}
	for _, reader := range []client.Reader{p.env.Client, p.env.Live} {
		d := &deletion{}
		for _, dep := range p.opt.Dependents {
			names, err := dependentsOf(ctx, reader, p.env.Client.Scheme(), dep, client.ObjectKeyFromObject(p.obj))
			if err != nil {
				return nil, err
			}
			d.blockers = append(d.blockers, names...)
		}
		if len(d.blockers) > 0 {
			return d, nil
		}
	}
	return &deletion{}, nil
}

// dependentsOf lists the objects of one kind that need parent. It goes through all
// of them: that happens in deletions only, and needs no index.
func dependentsOf(ctx context.Context, r client.Reader, scheme *runtime.Scheme, dep Dependent, parent Key) ([]string, error) {
	gvk, err := apiutil.GVKForObject(dep.Object, scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of dependent %T: %w", dep.Object, err)
	}
	list, err := newList(scheme, dep.Object)
	if err != nil {
		return nil, err
	}
	if err := r.List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil // the kind is not installed, so there is none
		}
		return nil, fmt.Errorf("listing dependents of kind %s: %w", gvk.Kind, err)
	}
	var names []string
	err = meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(Object)
		if ok && slices.Contains(dep.Parents(obj), parent) {
			names = append(names, gvk.Kind+" "+obj.GetNamespace()+"/"+obj.GetName())
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

func newList(scheme *runtime.Scheme, obj Object) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	if _, ok := obj.(*unstructured.Unstructured); !ok && scheme.Recognizes(gvk) {
		list, err := scheme.New(gvk)
		if err != nil {
			return nil, fmt.Errorf("making an empty %s: %w", gvk, err)
		}
		if l, ok := list.(client.ObjectList); ok {
			return l, nil
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	return list, nil
}
