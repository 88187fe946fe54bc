// Package replace is the controller that carries out the replacement of OSDs' disks: one pass
// looks at one OSD and takes the one step that is due. What each part of a pass does is in the
// packages below it: view and observe read, plan decides, act makes effects of it, confirm
// proves, live, that they may be taken, jobs is about the Jobs on the nodes, check about what a
// request must fulfil. overview is the controller that tells how all replacements are going.
//
// It must not decide what comes next, and it must not destroy anything on what it
// has seen at the beginning of a pass: the proof is made again, live, right before.
package replace

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/act"
	"github.com/castellan-storage/castellan/internal/osd/replace/confirm"
	"github.com/castellan-storage/castellan/internal/osd/replace/observe"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Controller replaces OSDs' disks. It is keyed by the OSD's Deployment, so that one
// replacement that fails holds up no other.
type Controller struct {
	view.Reader
	Write client.Client
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	return kit.Options{
		Name:   "osd-replace",
		Report: kit.Report{None: true},
		Watches: []kit.Watch{
			{Object: &appsv1.Deployment{}, Map: toSet, When: kube.Changed()},
			{Object: &batchv1.Job{}, Map: ofJob, When: kube.Changed()},
			{Object: &corev1.Pod{}, Map: ofPod, When: kube.Changed()},
			{Object: &corev1.ConfigMap{}, Map: ofReport, When: kube.Changed()},
			{Object: &cephv1.CephCluster{}, Map: all, When: kube.SpecChanged()},
		},
	}
}

func toSelf(_ context.Context, _ client.Reader, obj client.Object) []kit.Key {
	if !view.Concerned(obj) {
		return nil
	}
	return []kit.Key{client.ObjectKeyFromObject(obj)}
}

// toSet leads from an OSD's Deployment to those that may wait for it: a new request is
// what others on the same disk wait for, and what changes of one OSD of a set matters to
// all of it.
func toSet(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if !view.Concerned(obj) {
		return nil
	}
	note := obj.GetAnnotations()[spec.NoteAnnotation]
	if note != "" && !strings.Contains(note, `"set":{`) {
		return toSelf(ctx, cache, obj)
	}
	return all(ctx, cache, obj)
}

// all are the Deployments of the object's namespace that are concerned.
func all(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	deps, err := kube.List(ctx, cache, &appsv1.DeploymentList{}, client.InNamespace(obj.GetNamespace()), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return nil // the cache is not there yet; its first list leads to every object
	}
	var keys []kit.Key
	for i := range deps.Items {
		keys = append(keys, toSelf(ctx, cache, &deps.Items[i])...)
	}
	return keys
}

func ofJob(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if !slices.Contains([]string{spec.CloseApp, spec.MakeApp, spec.ZapApp, spec.PrepareApp}, obj.GetLabels()["app"]) {
		return nil
	}
	return all(ctx, cache, obj)
}

func ofPod(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if obj.GetLabels()[spec.IDLabel] == "" {
		return nil
	}
	var d appsv1.Deployment
	key := kit.Key{Namespace: obj.GetNamespace(), Name: spec.App + "-" + obj.GetLabels()[spec.IDLabel]}
	if found, err := kube.Get(ctx, cache, key, &d); err != nil || !found {
		return nil
	}
	return toSelf(ctx, cache, &d)
}

func ofReport(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if obj.GetLabels()["app"] != spec.App {
		return nil
	}
	return all(ctx, cache, obj)
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Fetch implements kit.Keyed: the CephCluster of the OSD's namespace. A second one in
// a namespace is never founded, and so never meant.
func (c *Controller) Fetch(ctx context.Context, key kit.Key) (*cephv1.CephCluster, error) {
	list, err := kube.List(ctx, c.Cache, &cephv1.CephClusterList{}, client.InNamespace(key.Namespace))
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if cl := &list.Items[i]; pods.Founded(cl) {
			return cl, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: cephv1.SchemeGroupVersion.Group, Resource: "cephclusters"}, key.Namespace)
}

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (observe.Seen, error) {
	key := kit.PassOf(ctx).Key
	d, err := kube.Lookup[appsv1.Deployment](ctx, c.Cache, key)
	if err != nil || d == nil || !view.Concerned(d) {
		return observe.Seen{}, err
	}
	id, err := spec.IDOf(d)
	if err != nil {
		return observe.Seen{}, nil // somebody's copy of an OSD is not ours
	}
	v, err := c.Read(ctx, cl)
	if err != nil {
		return observe.Seen{}, err
	}
	v.Deployments[id] = d // as it was read first, so that its version guards what was read after it
	return observe.Look(ctx, c.Access.Live, cl, v, id, d)
}

// Plan implements kit.Controller: the one next step, as an action.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen observe.Seen) kit.Plan {
	if seen.Deployment == nil || cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	a := plan.Next(seen.State)
	if a.Kind == plan.None {
		return kit.Plan{}
	}
	if a.Kind == plan.Wait {
		return kit.Plan{Next: patience(a)}
	}
	p := act.Effect(cl, seen, a)
	p.Next = time.Second
	return p
}

// patience is when to look again, where no watch tells: what only Ceph knows is asked
// for every second, everything else now and then.
func patience(a plan.Action) time.Duration {
	switch a.Reason {
	case "Draining", "NotSafeToDestroy", "Starting", "PodsNotGone", "CephSilent", "NotIn", "Queued", "NotChecked", "NowhereToDrain",
		"SetNotWhole", "SetDraining", "SetNotStopped", "SetNotDestroyed", "SetPreparing", "DeviceDead", "DeviceSeemsDead", "SafetyUnknown", "NotWeighed":
		return time.Second
	case "Closing", "Preparing", "Proving", "NotProven", "CloseFailed", "PrepareFailed", "ZapFailed", "Abandoning", "Cancelling", "NewDiskNotFound", "DiskUnknown":
		return 5 * time.Second
	}
	return 30 * time.Second
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	return act.Doer{Access: c.Access, Write: c.Write}.Do(ctx, cl, action)
}

// Confirm implements kit.Confirmer.
func (c *Controller) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	return confirm.Checker{Access: c.Access}.Confirm(ctx, cl, check)
}

// Teardown implements kit.Controller: nothing is destroyed on the way out, and Jobs go
// with the CephCluster.
func (*Controller) Teardown(*cephv1.CephCluster, observe.Seen) kit.Plan { return kit.Plan{} }
