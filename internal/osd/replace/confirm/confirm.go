// Package confirm proves once more, live, right before it is taken, that a step of a
// replacement may be taken: the request stands, and what the step needs is so at that moment
// by what the API server and Ceph say themselves.
//
// It must not use what a pass has seen at its beginning, neither the cache nor an answer that
// is kept; and whatever is not known is an error or a wait, never a yes.
package confirm

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Still is the check that must hold, live, right before a step that cannot be taken
// back, or that the user can still call off: the request stands, and what the step
// needs is proven.
type Still struct {
	// For is the step.
	For       plan.Kind
	ID        int
	UUID      string
	Namespace string
	Name      string
	UID       types.UID
	// Encrypted: a Job has just proven that no mapping is open.
	Encrypted bool
	// Set that the OSD is replaced with; nil for none. Node is where it is.
	Set  *plan.Set
	Node string
	// Joined are OSDs of other sets that get the same metadata device.
	Joined []int
	// Job is the uid of the Job that has prepared a disk, as it was seen; "" for none.
	Job types.UID
}

// String implements kit.Check.
func (s Still) String() string { return fmt.Sprintf("osd.%d (%s) may be: %s", s.ID, s.UUID, s.For) }

// Checker confirms steps.
type Checker struct{ Access access.Reader }

// Confirm implements kit.Confirmer for a Still: what must hold at the very moment, read live.
// A wait says what does not hold.
func (c Checker) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	s, ok := check.(Still)
	if !ok {
		return nil, fmt.Errorf("%s: no such action or check", check)
	}
	d, err := kube.Lookup[appsv1.Deployment](ctx, c.Access.Live, client.ObjectKey{Namespace: s.Namespace, Name: s.Name})
	if err != nil {
		return nil, err
	}
	if d == nil || d.UID != s.UID {
		return no("the Deployment is another one"), nil
	}
	mates, err := c.mates(ctx, s)
	if err != nil {
		return nil, err
	}
	if w := s.marks(d, mates); w != nil {
		return w, nil
	}
	if w, err := c.confirmSet(ctx, cl, s, mates); w != nil || err != nil {
		return w, err
	}
	if s.For == plan.Reclaim {
		if w, err := c.noJob(ctx, s); w != nil || err != nil {
			return w, err
		}
	}
	if s.For == plan.Out || s.For == plan.Close || s.For == plan.Zap || s.For == plan.Stop || s.For == plan.Bury || s.For == plan.Enlist {
		if s.For != plan.Stop {
			return nil, nil
		}
	} else if w, err := c.noPods(ctx, s, d); w != nil || err != nil {
		return w, err
	}
	return c.confirmCeph(ctx, cl, s)
}

func no(format string, args ...any) *kit.Wait {
	return &kit.Wait{Reason: "Changed", Message: fmt.Sprintf(format, args...), For: time.Second}
}

// marks holds the Deployment against the request.
func (s Still) marks(d *appsv1.Deployment, mates map[int]*appsv1.Deployment) *kit.Wait {
	asked := d.Annotations[spec.ReplaceAnnotation] == spec.Confirmation(s.ID)
	if s.Set != nil && s.Set.Kind == plan.OnMetadata {
		asked = view.AskedMetadata(mates[s.Set.Leader], s.Set.Leader)
	}
	abandoned := d.Annotations[spec.AbandonAnnotation] == spec.AbandonConfirmation(s.ID)
	note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], s.ID)
	_, inProgress := d.Annotations[spec.InProgressAnnotation]
	replicas := d.Spec.Replicas != nil && *d.Spec.Replicas == 0
	switch {
	case err != nil:
		return no("%v", err)
	case note == nil || s.For != plan.Reclaim && note.UUID != s.UUID:
		return no("the replacement is not noted any more")
	}
	switch s.For {
	case plan.Out, plan.Stop, plan.Close, plan.Destroy, plan.Force, plan.Bury, plan.Enlist:
		if !asked || !inProgress {
			return no("the request was taken back")
		}
	case plan.Release:
		if asked {
			return no("the request was made again")
		}
	case plan.Purge:
		if !abandoned {
			return no("the slot is not given up any more")
		}
	}
	switch s.For {
	case plan.Close, plan.Destroy, plan.Force, plan.Reclaim, plan.Purge, plan.Show, plan.Make, plan.Prove, plan.Remove, plan.Handover:
		if !replicas {
			return no("the Deployment has replicas again")
		}
	}
	return nil
}

// noPods holds the API server's pods against a step for which there must be none, of
// whatever owner: one that runs could still write to the old disk.
func (c Checker) noPods(ctx context.Context, s Still, d *appsv1.Deployment) (*kit.Wait, error) {
	if s.For == plan.Release {
		return nil, nil
	}
	if w, err := c.noPodOf(ctx, s, s.ID); w != nil || err != nil {
		return w, err
	}
	if s.For != plan.Destroy && s.For != plan.Force || !s.Encrypted {
		return nil, nil
	}
	job, err := kube.Lookup[batchv1.Job](ctx, c.Access.Live, client.ObjectKey{Namespace: s.Namespace, Name: spec.CloseName(s.ID)})
	if err != nil {
		return nil, err
	}
	if state, _ := jobs.CloseState(job, s.UUID, d.Generation, 0, kit.Now(ctx)); state != plan.Succeeded {
		return no("it is not proven that the dm-crypt mappings are closed"), nil
	}
	return nil, nil
}

// noPodOf: there is no pod of an OSD, whatever labels its Deployment has.
func (c Checker) noPodOf(ctx context.Context, s Still, id int) (*kit.Wait, error) {
	list, err := kube.List(ctx, c.Access.Live, &corev1.PodList{}, client.InNamespace(s.Namespace), client.MatchingLabels{spec.IDLabel: fmt.Sprint(id)})
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 {
		return no("the pod %s is still there", list.Items[0].Name), nil
	}
	return nil, nil
}

// noJob: nobody prepares a disk for the OSD, or has done so unseen. The cache may be behind a
// Job that was just made.
func (c Checker) noJob(ctx context.Context, s Still) (*kit.Wait, error) {
	job, err := kube.Lookup[batchv1.Job](ctx, c.Access.Live, client.ObjectKey{Namespace: s.Namespace, Name: spec.MakeName(s.ID)})
	if err != nil {
		return nil, err
	}
	if job == nil {
		return nil, nil
	}
	if _, _, ended := kube.JobEnd(job); !ended || job.UID != s.Job {
		return no("the Job %s is preparing a disk, or has", job.Name), nil
	}
	return nil, nil
}

// confirmCeph asks Ceph again.
func (c Checker) confirmCeph(ctx context.Context, cl *cephv1.CephCluster, s Still) (*kit.Wait, error) {
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return nil, err
	}
	if stored.Ceph == nil {
		return nil, errors.New("the cluster's mons are not known")
	}
	osds := cephosd.New(stored.Ceph)
	m, err := osds.Dump(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the OSD map: %w", err)
	}
	if m.FSID != stored.Identity.FSID {
		return nil, fmt.Errorf("the OSD map is that of cluster %s", m.FSID)
	}
	o, exists := m.Find(s.ID)
	_, same := view.Holds(m, s.ID, s.UUID)
	switch s.For {
	case plan.Stop:
		if !same || bool(o.In) {
			return no("osd.%d is not what is to be stopped", s.ID), nil
		}
	case plan.Destroy, plan.Force:
		if !same || bool(o.In) || bool(o.Up) {
			return no("osd.%d is not what is to be destroyed: out, down and with uuid %s", s.ID, s.UUID), nil
		}
		if s.For == plan.Force {
			return nil, nil // that it is not safe is what the user has accepted
		}
	case plan.Reclaim:
		if !same || !o.New() || bool(o.Up) {
			return no("osd.%d is not an OSD that was never started", s.ID), nil
		}
	case plan.Purge:
		if !exists || !o.Destroyed() {
			return no("osd.%d is not destroyed", s.ID), nil
		}
	case plan.Show, plan.Make:
		if exists && !o.Destroyed() {
			return no("osd.%d is not destroyed", s.ID), nil
		}
		return nil, nil
	case plan.Remove:
		if exists {
			return no("Ceph has osd.%d", s.ID), nil
		}
		return nil, nil
	case plan.Handover, plan.Prove:
		if _, anew := view.MadeAnew(m, s.ID, s.UUID); !anew {
			return no("osd.%d has no new disk", s.ID), nil
		}
		return nil, nil
	case plan.Release:
		if !same {
			return no("osd.%d is not what it was", s.ID), nil
		}
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: no such action or check", s)
	}
	safety, err := osds.Safety(ctx, s.ID)
	if err != nil {
		return nil, fmt.Errorf("asking whether osd.%d is safe to destroy: %w", s.ID, err)
	}
	if (s.For == plan.Reclaim || s.For == plan.Purge) && safety.Exists && !safety.Safe && !safety.Up && view.Void(o, safety) {
		return nil, nil
	}
	if !safety.Exists || !safety.Safe || s.For != plan.Stop && safety.Up {
		return &kit.Wait{Reason: "NotSafeToDestroy", Message: fmt.Sprintf("osd.%d is not safe to destroy: %s", s.ID, safety.Why), For: time.Second}, nil
	}
	return s.whole(ctx, osds, m)
}
