package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/castellan-storage/castellan/internal/kube"
)

// stepper is what Step finds in the context of an action.
type stepper interface {
	effect(ctx context.Context, kind, what string, fn func(ctx context.Context) error) error
}

type stepKey struct{}

// Step makes one mutation within an action a numbered effect of its own. An action
// that is more than one mutation calls it for each, so that a crash between them is
// tested. Outside of a pass fn is just called.
func Step(ctx context.Context, kind, what string, fn func(ctx context.Context) error) error {
	if s, ok := ctx.Value(stepKey{}).(stepper); ok {
		return s.effect(ctx, kind, what, fn)
	}
	return fn(ctx)
}

// effect carries out one mutation: fence, number, hook, log, metric.
func (p *run[T, S]) effect(ctx context.Context, kind, what string, fn func(ctx context.Context) error) error {
	p.effects++
	e := Effect{N: p.effects, Controller: p.opt.Name, Key: p.key, Kind: kind, What: what}
	if p.dry != nil {
		*p.dry = append(*p.dry, e)
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if p.env.Fence != nil {
		if err := p.env.Fence(ctx); err != nil {
			return fmt.Errorf("%s: not allowed to act: %w", what, err)
		}
	}
	if p.env.Hook != nil {
		if err := p.env.Hook.Before(ctx, e); err != nil {
			return &CrashError{Effect: e, Err: err}
		}
	}
	err := fn(ctx)
	p.env.Metrics.effect(p.opt.Name, kind, err)
	l := log.FromContext(ctx).WithValues("effect", e.N, "kind", kind)
	if err != nil {
		l.Info(what, "error", err.Error())
	} else {
		l.Info(what)
	}
	if p.env.Hook != nil {
		hookErr := p.env.Hook.After(ctx, e, err)
		if lost, ok := errors.AsType[*ReplyLostError](hookErr); ok {
			return fmt.Errorf("%s: %w", what, lost)
		}
		if hookErr != nil {
			return &CrashError{Effect: e, Err: hookErr}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// act carries out a plan, up to the first effect that fails.
func (p *run[T, S]) act(ctx context.Context, plan Plan) error {
	started := time.Now()
	defer func() { p.env.Metrics.took(p.opt.Name, "act", time.Since(started)) }()
	for _, obj := range plan.Create {
		if err := p.create(ctx, obj, nil); err != nil {
			return err
		}
	}
	for _, obj := range inOrder(plan.Apply) {
		if err := p.apply(ctx, obj, nil); err != nil {
			return err
		}
	}
	for _, obj := range plan.Delete {
		if err := p.delete(ctx, Delete{Object: obj}, nil); err != nil {
			return err
		}
	}
	for _, action := range plan.Do {
		if err := p.do(ctx, action, nil); err != nil {
			return err
		}
	}
	return nil
}

// confirm is asked when an effect is certain to come, immediately before it. nil
// allows everything.
type confirm func(ctx context.Context) error

// do carries out one action.
func (p *run[T, S]) do(ctx context.Context, action Action, ask confirm) error {
	switch a := action.(type) {
	case Confirmed:
		return p.do(ctx, a.Then, p.asking(a.Check, ask))
	case Told:
		before := p.effects
		err := p.do(ctx, a.Then, ask)
		if err == nil && p.effects > before {
			p.told = append(p.told, a.Event)
		}
		return err
	case Apply:
		return p.apply(ctx, a.Object, ask)
	case Create:
		return p.create(ctx, a.Object, ask)
	case Delete:
		return p.delete(ctx, a, ask)
	}
	doer, ok := p.ctl.(Doer[T])
	if !ok {
		return fmt.Errorf("%s: %T is not a Doer", action, p.ctl)
	}
	if err := p.ask(ctx, ask); err != nil {
		return err
	}
	p.did++
	return p.effect(ctx, kindOf(action), action.String(), func(ctx context.Context) error {
		return doer.Do(context.WithValue(ctx, stepKey{}, stepper(p)), p.obj, action)
	})
}

// asking gives the confirm of a check, after that of an outer check.
func (p *run[T, S]) asking(check Check, outer confirm) confirm {
	return func(ctx context.Context) error {
		if outer != nil {
			if err := outer(ctx); err != nil {
				return err
			}
		}
		confirmer, ok := p.ctl.(Confirmer[T])
		if !ok {
			return fmt.Errorf("confirming that %s: %T is not a Confirmer", check, p.ctl)
		}
		wait, err := confirmer.Confirm(ctx, p.obj, check)
		if err != nil {
			return fmt.Errorf("confirming that %s: %w", check, err)
		}
		if wait != nil {
			return Waiting(*wait)
		}
		return nil
	}
}

// ask asks, except in a dry run: what a check would say then is of no use.
func (p *run[T, S]) ask(ctx context.Context, ask confirm) error {
	if ask == nil || p.dry != nil {
		return nil
	}
	return ask(ctx)
}

// live reads what is there, under the identity of want. It asks the cache first; if
// that has it and enough(cached) holds, nothing needs to be done and no request is
// made. Otherwise the API server answers, since a cache may be behind, and may not
// hold objects that are not labelled as ours yet.
func (p *run[T, S]) live(ctx context.Context, want Object, enough func(live Object) (bool, error)) (Object, error) {
	obj, err := kube.NewLike(p.env.Client.Scheme(), want)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(want)
	found, err := kube.Get(ctx, p.env.Client, key, obj)
	if err != nil {
		return nil, err
	}
	if found {
		ok, err := enough(obj)
		if err != nil || ok {
			return obj, err
		}
	}
	if obj, err = kube.NewLike(p.env.Client.Scheme(), want); err != nil {
		return nil, err
	}
	found, err = kube.Get(ctx, p.env.Live, key, obj)
	if err != nil || !found {
		return nil, err
	}
	return obj, nil
}

// create makes an object unless it is there.
func (p *run[T, S]) create(ctx context.Context, want Object, ask confirm) error {
	u, err := kube.ToCreate(p.env.Client.Scheme(), want)
	if err != nil {
		return err
	}
	live, err := p.live(ctx, u, func(Object) (bool, error) { return true, nil })
	if err != nil || live != nil {
		return err
	}
	if err := p.ask(ctx, ask); err != nil {
		return err
	}
	return p.effect(ctx, "create", "creating "+Name(u), func(ctx context.Context) error {
		return p.env.Client.Create(ctx, u, client.FieldOwner(kube.FieldOwner))
	})
}

// apply applies an object if that changes anything.
func (p *run[T, S]) apply(ctx context.Context, want Object, ask confirm) error {
	scheme := p.env.Client.Scheme()
	u, err := kube.ToApply(scheme, want)
	if err != nil {
		return err
	}
	name := Name(u)
	difference := ""
	same := func(live Object) (bool, error) {
		if kube.Skipped(live) {
			return true, nil
		}
		difference, err = kube.Changes(scheme, live, u)
		return difference == "", err
	}
	live, err := p.live(ctx, u, same)
	if err != nil {
		return err
	}
	if live != nil {
		ok, err := same(live)
		if err != nil || ok {
			return err
		}
		if !live.GetDeletionTimestamp().IsZero() {
			// It cannot be brought back; it is made again when it is gone.
			p.terminating = name
			return nil
		}
	}
	if rv := want.GetResourceVersion(); rv != "" {
		// The object was made from this version. The API server is asked to hold it too.
		if live == nil || live.GetResourceVersion() != rv {
			return apierrors.NewConflict(schema.GroupResource{Resource: strings.ToLower(u.GetKind())}, u.GetName(),
				errors.New("it has changed since it was read"))
		}
		u.SetResourceVersion(rv)
	}
	if err := p.ask(ctx, ask); err != nil {
		return err
	}
	if live != nil {
		if err := p.adopt(ctx, live, name); err != nil {
			return err
		}
		log.FromContext(ctx).V(1).Info("differs", "object", name, "field", difference)
	}
	kind := u.GetKind()
	err = p.effect(ctx, "apply", "applying "+name, func(ctx context.Context) error {
		return kube.ServerSideApply(ctx, p.env.Client, u)
	})
	if field, ok := kube.ImmutableField(err, kind); ok && live != nil {
		return &ImmutableError{Object: name, Field: field, Err: err}
	}
	return err
}

// adopt takes over the fields of an operator that was here before.
func (p *run[T, S]) adopt(ctx context.Context, live Object, name string) error {
	patch, err := kube.AdoptPatch(live, p.opt.AdoptFrom)
	if err != nil || patch == nil {
		return err
	}
	return p.effect(ctx, "adopt", "taking over the fields of "+name, func(ctx context.Context) error {
		return p.env.Client.Patch(ctx, live, patch, client.FieldOwner(kube.FieldOwner))
	})
}

// delete deletes an object if it is there.
func (p *run[T, S]) delete(ctx context.Context, d Delete, ask confirm) error {
	want := d.Object
	key := client.ObjectKeyFromObject(want)
	name := Name(want)
	live, err := p.absentOrLive(ctx, want, key)
	if err != nil || live == nil || kube.Skipped(live) && !d.Ours {
		return err
	}
	if want.GetUID() != "" && want.GetUID() != live.GetUID() {
		return nil // what was to be deleted is gone; this one is another
	}
	if !live.GetDeletionTimestamp().IsZero() {
		p.terminating = name
		return nil
	}
	if err := p.ask(ctx, ask); err != nil {
		return err
	}
	uid := live.GetUID()
	pre := metav1.Preconditions{UID: &uid}
	if rv := want.GetResourceVersion(); rv != "" {
		pre.ResourceVersion = &rv
	}
	propagation := cmp.Or(d.Propagation, metav1.DeletePropagationBackground)
	return p.effect(ctx, "delete", "deleting "+name, func(ctx context.Context) error {
		err := p.env.Client.Delete(ctx, live, client.Preconditions(pre), client.PropagationPolicy(propagation))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// absentOrLive reads an object that is to go. In a teardown the API server is asked
// even if the cache has nothing: the finalizer goes by the answer.
func (p *run[T, S]) absentOrLive(ctx context.Context, want Object, key types.NamespacedName) (Object, error) {
	scheme := p.env.Client.Scheme()
	obj, err := kube.NewLike(scheme, want)
	if err != nil {
		return nil, err
	}
	if p.obj.GetDeletionTimestamp().IsZero() {
		found, err := kube.Get(ctx, p.env.Client, key, obj)
		if err != nil || !found {
			return nil, err
		}
		if obj, err = kube.NewLike(scheme, want); err != nil {
			return nil, err
		}
	}
	found, err := kube.Get(ctx, p.env.Live, key, obj)
	if err != nil || !found {
		return nil, err
	}
	return obj, nil
}

// inOrder sorts objects such that what others refer to comes first. Within a rank
// the order stays.
func inOrder(objs []Object) []Object {
	sorted := slices.Clone(objs)
	slices.SortStableFunc(sorted, func(a, b Object) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted
}

// rank follows the order in which Helm installs kinds, where it matters here.
func rank(obj Object) int {
	switch KindOf(obj) {
	case "Namespace", "CustomResourceDefinition":
		return 0
	case "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
		return 1
	case "Secret", "ConfigMap":
		return 2
	case "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver":
		return 3
	case "Service", "EndpointSlice", "PodDisruptionBudget", "NetworkPolicy":
		return 4
	case "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Pod":
		return 6
	case "Job", "CronJob":
		return 7
	}
	return 5
}

// kindOf gives the metric label of an action.
func kindOf(action Action) string {
	if k, ok := action.(interface{ Kind() string }); ok {
		return k.Kind()
	}
	kind, _, _ := strings.Cut(action.String(), " ")
	return kind
}
