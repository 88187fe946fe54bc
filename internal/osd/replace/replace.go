// Package replace carries out the replacement of OSDs' disks: one pass looks at one
// OSD and takes the one step that internal/osd/replace/plan names. A second
// controller tells how all replacements of a cluster are going, and keeps a watch on
// nodes that wait for a disk.
//
// It must not decide what comes next, and it must not destroy anything on what it
// has seen at the beginning of a pass: the proof is made again, live, right before.
package replace

import (
	"context"
	"fmt"
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
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Base is what both controllers of this package need.
type Base struct {
	Cache    client.Reader
	Write    client.Client
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Controller replaces OSDs' disks. It is keyed by the OSD's Deployment, so that one
// replacement that fails holds up no other.
type Controller struct{ Base }

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

// Concerned reports whether a Deployment has anything to do with a replacement.
func Concerned(d client.Object) bool {
	if d.GetLabels()["app"] != spec.App {
		return false
	}
	for _, a := range []string{spec.ReplaceAnnotation, spec.MetadataAnnotation, spec.RefusedAnnotation, spec.ReplacedAnnotation} {
		if _, ok := d.GetAnnotations()[a]; ok {
			return true
		}
	}
	return spec.Replacing(d.GetAnnotations())
}

func toSelf(_ context.Context, _ client.Reader, obj client.Object) []kit.Key {
	if !Concerned(obj) {
		return nil
	}
	return []kit.Key{client.ObjectKeyFromObject(obj)}
}

// toSet leads from an OSD's Deployment to those that may wait for it: a new request is
// what others on the same disk wait for, and what changes of one OSD of a set matters to
// all of it.
func toSet(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if !Concerned(obj) {
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

// Seen is what one pass knows of one OSD.
type Seen struct {
	// Deployment is nil when there is none.
	Deployment *appsv1.Deployment
	State      plan.State
	Cluster    podspec.Cluster
	// Request of the Job that would prepare the new disk, and of the others.
	Jobs jobs
	// Enlist are other OSDs of the set that are to be noted, by id.
	Enlist map[int]*enlisted
}

// Plan implements kit.Controller: the one next step, as an action.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
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
	p := effect(cl, seen, a)
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

// Teardown implements kit.Controller: nothing is destroyed on the way out, and Jobs go
// with the CephCluster.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }

// noSuch is for what cannot happen but by a mistake in this package.
func noSuch(what fmt.Stringer) error { return fmt.Errorf("%s: no such action or check", what) }
