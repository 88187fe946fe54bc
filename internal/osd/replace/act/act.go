// Package act turns a step of a replacement into effects: values that can be compared and
// printed, each one mutation of Kubernetes or of Ceph, with what the user is told of it and
// with the check that must hold right before; and it carries them out.
//
// It must not decide the step, nor look at anything but what it is given: what must still
// hold when an effect comes is proven in internal/osd/replace/confirm.
package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
)

// Patch changes marks of one Deployment, and nothing if it has changed since it was
// read. It goes past the fence label: here is the one who has set it.
type Patch struct {
	What      string
	ID        int
	Namespace string
	Name      string
	UID       types.UID
	Version   string
	// Annotations and Labels to set; nil removes.
	Annotations, Labels map[string]*string
	Replicas            *int32
}

// String implements kit.Action.
func (p Patch) String() string { return fmt.Sprintf("patching osd.%d: %s", p.ID, p.What) }

// Kind is the metric label.
func (Patch) Kind() string { return "patch" }

// Command is one mutation of Ceph.
type Command struct {
	Kind_ plan.Kind
	ID    int
	// Weight for Reweight and Weigh.
	Weight float64
	// Void: Reclaim or Purge of what cannot have data, without Ceph's own check.
	Void bool
}

// String implements kit.Action.
func (c Command) String() string {
	switch c.Kind_ {
	case plan.Out:
		return fmt.Sprintf("marking osd.%d out", c.ID)
	case plan.In:
		return fmt.Sprintf("marking osd.%d in", c.ID)
	case plan.Down:
		return fmt.Sprintf("marking osd.%d down", c.ID)
	case plan.Reweight:
		return fmt.Sprintf("giving osd.%d the override weight %g", c.ID, c.Weight)
	case plan.Purge:
		return fmt.Sprintf("purging osd.%d", c.ID)
	case plan.Reclaim:
		return fmt.Sprintf("destroying the never started osd.%d", c.ID)
	case plan.Weigh:
		return fmt.Sprintf("giving osd.%d the CRUSH weight %.5f", c.ID, c.Weight)
	case plan.Force:
		return fmt.Sprintf("destroying osd.%d although Ceph does not call it safe", c.ID)
	}
	return fmt.Sprintf("destroying osd.%d", c.ID)
}

// Kind is the metric label.
func (c Command) Kind() string { return "ceph" }

// StartJob makes a Job.
type StartJob struct{ Job *batchv1.Job }

// String implements kit.Action.
func (s StartJob) String() string { return "creating Job " + s.Job.Name }

// Kind is the metric label.
func (StartJob) Kind() string { return "create" }

// EndJob deletes a Job with its pods.
type EndJob struct {
	Namespace, Name string
	UID             types.UID
}

// String implements kit.Action.
func (e EndJob) String() string { return "deleting Job " + e.Name }

// Kind is the metric label.
func (EndJob) Kind() string { return "delete" }

// RemoveDeployment deletes the Deployment of an OSD that Ceph does not have.
type RemoveDeployment struct {
	Namespace, Name string
	UID             types.UID
	Version         string
}

// String implements kit.Action.
func (r RemoveDeployment) String() string { return "deleting Deployment " + r.Name }

// Kind is the metric label.
func (RemoveDeployment) Kind() string { return "delete" }

// Doer carries the actions of this package out.
type Doer struct {
	Access access.Reader
	Write  client.Client
}

// Do implements kit.Doer. Where Ceph itself refuses a step as not safe, that is a wait.
func (d Doer) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	switch a := action.(type) {
	case Patch:
		return d.patch(ctx, a)
	case Command:
		return d.command(ctx, cl, a)
	case StartJob:
		job := a.Job.DeepCopy()
		job.Labels[kube.OwnedLabel] = "true"
		return d.Write.Create(ctx, job, client.FieldOwner(kube.FieldOwner))
	case EndJob:
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
		err := d.Write.Delete(ctx, job, client.Preconditions{UID: &a.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return ignoreGone(err)
	case RemoveDeployment:
		dep := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
		err := d.Write.Delete(ctx, dep, client.Preconditions{UID: &a.UID, ResourceVersion: &a.Version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return ignoreGone(err)
	}
	return fmt.Errorf("%s: no such action or check", action)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (d Doer) patch(ctx context.Context, p Patch) error {
	meta := map[string]any{"uid": string(p.UID), "resourceVersion": p.Version}
	if len(p.Annotations) > 0 {
		meta["annotations"] = p.Annotations
	}
	if len(p.Labels) > 0 {
		meta["labels"] = p.Labels
	}
	body := map[string]any{"metadata": meta}
	if p.Replicas != nil {
		body["spec"] = map[string]any{"replicas": *p.Replicas}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	dep := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return d.Write.Patch(ctx, dep, client.RawPatch(types.MergePatchType, b), client.FieldOwner(kube.FieldOwner))
}

func (d Doer) command(ctx context.Context, cl *cephv1.CephCluster, a Command) error {
	stored, err := d.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return err
	}
	if stored.Ceph == nil {
		return errors.New("the cluster's mons are not known")
	}
	osds := cephosd.New(stored.Ceph)
	switch a.Kind_ {
	case plan.Out:
		return osds.Out(ctx, a.ID)
	case plan.In:
		return osds.In(ctx, a.ID)
	case plan.Down:
		return osds.Down(ctx, a.ID)
	case plan.Reweight:
		return osds.Reweight(ctx, a.ID, a.Weight)
	case plan.Reclaim:
		if a.Void {
			return refused(osds.DestroyUnchecked(ctx, a.ID))
		}
		return refused(osds.Destroy(ctx, a.ID))
	case plan.Destroy:
		// Without the flag that skips it, the mgr makes its own check once more.
		return refused(osds.Destroy(ctx, a.ID))
	case plan.Purge:
		if a.Void {
			return refused(osds.PurgeUnchecked(ctx, a.ID))
		}
		return refused(osds.Purge(ctx, a.ID))
	case plan.Force:
		return refused(osds.DestroyUnchecked(ctx, a.ID))
	case plan.Weigh:
		return crush.New(stored.Ceph).Reweight(ctx, ceph.OSDName(a.ID), a.Weight)
	}
	return fmt.Errorf("%s: no such action or check", a)
}

// refused makes a wait of Ceph's own no.
func refused(err error) error {
	var e *ceph.Error
	if errors.As(err, &e) && (e.Errno == syscall.EBUSY || e.Errno == syscall.EAGAIN) {
		return kit.Waiting(kit.Wait{Reason: "NotSafeToDestroy", Message: "Ceph refuses: " + e.Status, For: time.Second})
	}
	return err
}
