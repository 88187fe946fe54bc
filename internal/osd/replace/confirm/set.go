package confirm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// mates are the Deployments of the other OSDs of the set, and its own, as they are live.
func (c Checker) mates(ctx context.Context, s Still) (map[int]*appsv1.Deployment, error) {
	out := map[int]*appsv1.Deployment{}
	if s.Set == nil {
		return out, nil
	}
	for _, m := range s.Set.Members {
		d, err := kube.Lookup[appsv1.Deployment](ctx, c.Access.Live, client.ObjectKey{Namespace: s.Namespace, Name: spec.Name(m.ID)})
		if err != nil {
			return nil, err
		}
		if d != nil {
			out[m.ID] = d
		}
	}
	return out, nil
}

// confirmSet holds what is live against what a step needs of the whole set.
func (c Checker) confirmSet(ctx context.Context, cl *cephv1.CephCluster, s Still, mates map[int]*appsv1.Deployment) (*kit.Wait, error) {
	if s.For == plan.Out {
		return c.myTurn(ctx, cl, s)
	}
	if s.Set == nil {
		return nil, nil
	}
	switch s.For {
	case plan.Stop, plan.Destroy, plan.Show, plan.Force, plan.Bury:
	case plan.Make, plan.Prove:
		return c.noOtherJob(ctx, s)
	default:
		return nil, nil
	}
	commander, err := c.Access.Ceph(ctx, cl.Namespace, "looking at the set of an OSD that is replaced")
	if err != nil {
		return nil, err
	}
	m, err := cephosd.New(commander).Dump(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the OSD map: %w", err)
	}
	for _, mate := range s.Set.Members {
		o, held := view.Holds(m, mate.ID, mate.UUID)
		if mate.ID == s.ID || !held {
			continue
		}
		if w, err := c.confirmMate(ctx, s, mate, o, mates[mate.ID]); w != nil || err != nil {
			return w, err
		}
	}
	if s.For == plan.Force || s.For == plan.Bury {
		return c.confirmLoss(ctx, s, commander, m, mates)
	}
	return nil, nil
}

// confirmMate is about another OSD of the set that Ceph still has.
func (c Checker) confirmMate(ctx context.Context, s Still, mate plan.Member, o cephosd.OSD, d *appsv1.Deployment) (*kit.Wait, error) {
	if s.For == plan.Show {
		return no("osd.%d is still on it", mate.ID), nil
	}
	if d == nil {
		return no("osd.%d of the set has no Deployment", mate.ID), nil
	}
	note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], mate.ID)
	switch {
	case err != nil || note == nil || note.UUID != mate.UUID || !s.Set.Same(note.Set):
		return no("osd.%d is not in the set any more", mate.ID), nil
	case s.Set.Kind == plan.OnDisk && d.Annotations[spec.ReplaceAnnotation] != spec.Confirmation(mate.ID):
		return no("the request for osd.%d was taken back", mate.ID), nil
	case bool(o.In) && s.For != plan.Bury:
		return no("osd.%d of the set is in", mate.ID), nil
	case s.For == plan.Stop || s.For == plan.Bury:
		return nil, nil
	case bool(o.Up) || d.Spec.Replicas == nil || *d.Spec.Replicas != 0:
		return no("osd.%d of the set is not stopped", mate.ID), nil
	case s.For == plan.Force && note.Dead == nil:
		return no("osd.%d of the set was not found dead", mate.ID), nil
	}
	return c.noPodOf(ctx, s, mate.ID)
}

// confirmLoss is what must hold, live, before anything is done to an OSD that Ceph does
// not call safe: the loss is accepted, and the device dead and found so long ago; no OSD
// on it runs; nothing in the cluster recovers any more.
func (c Checker) confirmLoss(ctx context.Context, s Still, commander ceph.Commander, m cephosd.Map, mates map[int]*appsv1.Deployment) (*kit.Wait, error) {
	if s.Set.Kind != plan.OnMetadata || !view.LossAccepted(mates[s.Set.Leader], s.Set.Leader) {
		return no("the loss of data is not accepted"), nil
	}
	mine := mates[s.ID]
	if mine == nil {
		return no("osd.%d has no Deployment", s.ID), nil
	}
	note, err := plan.ReadNote(mine.Annotations[spec.NoteAnnotation], s.ID)
	if err != nil || note == nil || note.Dead == nil || kit.Now(ctx).Sub(*note.Dead) < view.DeadAfter {
		return no("osd.%d has not been found dead for long", s.ID), nil
	}
	for _, mate := range s.Set.Members {
		o, held := view.Holds(m, mate.ID, mate.UUID)
		d := mates[mate.ID]
		if held && (bool(o.Up) || d != nil && d.Status.ReadyReplicas > 0) {
			return no("osd.%d runs, so the device is not dead", mate.ID), nil
		}
	}
	node, err := kube.Lookup[corev1.Node](ctx, c.Access.Live, client.ObjectKey{Name: s.Node})
	if err != nil {
		return nil, err
	}
	if node == nil || !view.Ready(node) {
		return no("node %s is not ready, so that its device is dead is not known", s.Node), nil
	}
	stat, err := pg.New(commander).Stat(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking how the PGs are: %w", err)
	}
	if !view.Settled(stat) {
		return no("PGs are still recovering"), nil
	}
	return nil, nil
}

// whole asks about all OSDs of the set that are left at once.
func (s Still) whole(ctx context.Context, osds cephosd.Client, m cephosd.Map) (*kit.Wait, error) {
	if s.Set == nil || s.For != plan.Stop && s.For != plan.Destroy {
		return nil, nil
	}
	var left []int
	for _, mate := range s.Set.Members {
		if _, held := view.Holds(m, mate.ID, mate.UUID); held {
			left = append(left, mate.ID)
		}
	}
	a, err := osds.SafeToDestroy(ctx, left...)
	if err != nil {
		return nil, fmt.Errorf("asking whether the whole set is safe to destroy: %w", err)
	}
	for _, id := range left {
		// A mate that is dead is not waited for by one that is safe itself.
		if !a.IsSafe(id) && (s.For == plan.Stop || id == s.ID) {
			return &kit.Wait{Reason: "NotSafeToDestroy", Message: fmt.Sprintf("osd.%d is not safe to destroy together with its set", id), For: time.Second}, nil
		}
	}
	return nil, nil
}

// noOtherJob: one OSD after the other is made on a new disk.
func (c Checker) noOtherJob(ctx context.Context, s Still) (*kit.Wait, error) {
	for _, id := range slices.Concat(s.Set.IDs(), s.Joined) {
		if id == s.ID {
			continue
		}
		job, err := kube.Lookup[batchv1.Job](ctx, c.Access.Live, client.ObjectKey{Namespace: s.Namespace, Name: spec.MakeName(id)})
		if err != nil {
			return nil, err
		}
		if job == nil {
			continue
		}
		if _, _, ended := kube.JobEnd(job); !ended {
			return no("osd.%d is being made on the same disk", id), nil
		}
	}
	return nil, nil
}

// excused: the loss of what is on the set is accepted, and its device is found dead now. Such
// OSDs do not wait for room that they cannot use. The word alone is no leave: while one
// OSD of the set runs, its data has to go somewhere.
func (c Checker) excused(ctx context.Context, v *view.View, note *plan.Note) (bool, error) {
	if note.Set.Kind != plan.OnMetadata || !view.LossAccepted(v.Deployments[note.Set.Leader], note.Set.Leader) {
		return false, nil
	}
	node, err := kube.Lookup[corev1.Node](ctx, c.Access.Live, client.ObjectKey{Name: note.Node})
	if err != nil {
		return false, err
	}
	if node != nil {
		v.Nodes[note.Node] = node
	}
	return v.Dead(note.Set, note.Node), nil
}

// myTurn asks again, live, whether the OSD may be marked out: another one may have been
// accepted meanwhile that the cache did not show yet.
func (c Checker) myTurn(ctx context.Context, cl *cephv1.CephCluster, s Still) (*kit.Wait, error) {
	commander, err := c.Access.Ceph(ctx, cl.Namespace, "asking whether there is room to drain an OSD")
	if err != nil {
		return nil, err
	}
	return c.turnNow(ctx, commander, s)
}

func (c Checker) turnNow(ctx context.Context, commander ceph.Commander, s Still) (*kit.Wait, error) {
	live, err := kube.List(ctx, c.Access.Live, &appsv1.DeploymentList{}, client.InNamespace(s.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return nil, err
	}
	v := &view.View{Now: kit.Now(ctx), Namespace: s.Namespace, Deployments: map[int]*appsv1.Deployment{}, Nodes: map[string]*corev1.Node{}}
	for i := range live.Items {
		if id, err := spec.IDOf(&live.Items[i]); err == nil {
			v.Deployments[id] = &live.Items[i]
		}
	}
	v.Stored.Ceph = commander
	if v.OSDMap, err = cephosd.New(commander).Dump(ctx); err != nil {
		return nil, fmt.Errorf("reading the OSD map: %w", err)
	}
	mine := v.Deployments[s.ID]
	if mine == nil {
		return no("the Deployment is gone"), nil
	}
	note, err := plan.ReadNote(mine.Annotations[spec.NoteAnnotation], s.ID)
	if err != nil || note == nil {
		return no("the replacement is not noted any more"), nil
	}
	f := plan.State{ID: s.ID, Note: note}
	if note.Set != nil {
		for _, m := range note.Set.Members {
			if m.ID == s.ID {
				continue
			}
			mate := v.Mate(m, note, true)
			if !mate.Gone && !mate.Claimed {
				return no("osd.%d is not in the set any more", m.ID), nil
			}
			f.Mates = append(f.Mates, mate)
		}
		excused, err := c.excused(ctx, v, note)
		if err != nil || excused {
			return nil, err
		}
	}
	capacity, why := v.Capacity(ctx)
	if why != "" {
		return nil, errors.New("asking whether there is room: " + why)
	}
	if turn := capacity.Turn(f.Remaining(), v.Ahead(s.ID, note)); turn != "" {
		return &kit.Wait{Reason: "Queued", Message: turn, For: time.Second}, nil
	}
	return nil, nil
}
