// Package observe puts together all that bears on the next step of one OSD's replacement:
// what is on its Deployment, what its node has reported and its Jobs have done, what Ceph
// says, and how the others of its set are. The outcome is a plan.State, with what the step is
// built from.
//
// It must not decide the step, and must not change anything; where something could not be
// read, the state says so.
package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Seen is what one pass knows of one OSD.
type Seen struct {
	// Deployment is nil when there is none that a replacement is about.
	Deployment *appsv1.Deployment
	State      plan.State
	// Now is the time of the pass.
	Now time.Time
	// Jobs that there are, as they were before Ceph was asked: what a Job that has ended has
	// done is in Ceph's answer. New is what another one is built from.
	Jobs jobs.Found
	New  jobs.Inputs
	// Replaced is what the node has reported of the last attempt of this OSD, nil where it has
	// not, or where all went well.
	Replaced *request.Replaced
	// Joins is the volume group that the OSD's database is put together with on the next
	// metadata device, where that is not its own; "" else.
	Joins string
	// Enlist are other OSDs of the set that are to be noted, by id.
	Enlist map[int]*Enlisted
}

// Look collects the state of the OSD with the id. live reads from the API server: what the
// cache does not have. An error is one of Kubernetes.
func Look(ctx context.Context, live client.Reader, cl *cephv1.CephCluster, v *view.View, id int, d *appsv1.Deployment) (Seen, error) {
	s := facts{State: plan.State{ID: id, Answered: v.Silence == "", Silence: v.Silence}}
	s.marks(d, v.Deployments)
	if o, exists := v.OSDMap.Find(id); s.Answered {
		s.Exists, s.Destroyed, s.New, s.Up, s.In, s.UUID, s.Weight = exists, o.Destroyed(), o.New(), bool(o.Up), bool(o.In), o.UUID, o.Weight
	}
	s.again(d)
	seen := Seen{Deployment: d, Now: v.Now}
	node := ""
	if s.Note != nil {
		node = s.Note.Node
	}
	seen.Jobs = jobs.Of(v.Jobs, id, node)
	seen.New = jobs.Inputs{Cluster: v.Cluster, Generation: d.Generation, MonHost: v.Stored.List.MonHost(), AllowLoop: v.Settings.AllowLoopDevices}
	s.pods(v)
	if s.Note != nil {
		s.node(v, d, &seen)
	}
	if s.Answered {
		if err := s.ask(ctx, live, cl, v, d); err != nil {
			return Seen{}, err
		}
	}
	var err error
	if seen.Enlist, err = enlistments(ctx, live, v, &s); err != nil {
		return Seen{}, err
	}
	seen.State = s.State
	return seen, nil
}

// facts is the state while it is put together.
type facts struct {
	plan.State
	// former is the note of a replacement that has ended with a Deployment for the new disk,
	// on which the OSD has not come up: its replacement is asked for once more. nil otherwise.
	former *plan.Note
}

// again looks for such a request. An OSD whose new disk has failed before it was up on it
// would otherwise start for ever.
func (s *facts) again(d *appsv1.Deployment) {
	if s.Note == nil || s.Note.Replaced == "" || !s.Answered || !s.Exists || s.Destroyed || s.UUID != s.Note.Replaced || s.Up && s.In {
		return
	}
	_, plain := d.Annotations[spec.ReplaceAnnotation]
	_, metadata := d.Annotations[spec.MetadataAnnotation]
	if plain || metadata {
		s.former, s.Note, s.Asked = s.Note, nil, true
		s.Leads, s.Loss = false, false
	}
}

// marks reads the Deployment. deps are all OSDs' Deployments: that of a set's leader says
// whether the set is asked for.
func (s *facts) marks(d *appsv1.Deployment, deps map[int]*appsv1.Deployment) {
	_, s.InProgress = d.Annotations[spec.InProgressAnnotation]
	_, s.Ready = d.Annotations[spec.ReadyAnnotation]
	s.Fenced = kube.Skipped(d)
	s.RefusedText = d.Annotations[spec.RefusedAnnotation]
	s.Replicas = 1
	if d.Spec.Replicas != nil {
		s.Replicas = *d.Spec.Replicas
	}
	note, err := plan.ReadNote(d.Annotations[spec.NoteAnnotation], s.ID)
	if err == nil && note == nil && !spec.Replacing(d.Annotations) {
		if note, err = plan.ReadNote(d.Annotations[spec.ReplacedAnnotation], s.ID); err == nil && note != nil && note.Replaced == "" {
			err = errors.New("reading the note of the replacement: it has no new uuid")
		}
	}
	if s.Note = note; err != nil {
		s.Note, s.NoteProblem = nil, err.Error()
	}
	value, asked := d.Annotations[spec.ReplaceAnnotation]
	_, metadata := d.Annotations[spec.MetadataAnnotation]
	s.Asked = asked || metadata
	if s.Note != nil || s.InProgress {
		// Another value confirms nothing: it was taken back.
		s.Asked = value == spec.Confirmation(s.ID)
		if s.Note == nil && metadata {
			s.Asked = view.AskedMetadata(d, s.ID)
		}
	}
	if s.Note != nil && s.Note.Set != nil && s.Note.Set.Kind == plan.OnMetadata {
		leader := deps[s.Note.Set.Leader]
		s.Leads = s.Note.Set.Leader == s.ID
		s.Asked = view.AskedMetadata(leader, s.Note.Set.Leader)
		s.Loss = view.LossAccepted(leader, s.Note.Set.Leader)
	}
	s.PodReady = d.Status.ReadyReplicas > 0
	if v, ok := d.Annotations[spec.AbandonAnnotation]; ok {
		s.Abandon = plan.WrongAbandon
		if v == spec.AbandonConfirmation(s.ID) {
			s.Abandon = plan.ConfirmedAbandon
		}
	}
}

// pods lists all that have the OSD's id, whatever owns them.
func (s *facts) pods(v *view.View) {
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Labels[spec.IDLabel] != fmt.Sprint(s.ID) {
			continue
		}
		s.Pods = append(s.Pods, p.Name)
		if n := v.Nodes[p.Spec.NodeName]; p.DeletionTimestamp != nil && (n == nil || !view.Ready(n)) {
			s.PodsHint = fmt.Sprintf("node %s does not answer, so nobody can say that the pod has ended: switch the node off and taint it with node.kubernetes.io/out-of-service, or bring it back", p.Spec.NodeName)
		}
	}
	slices.Sort(s.Pods)
}
