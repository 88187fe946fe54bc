package replace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
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

// effect turns the step into a plan of one effect, with its events.
func effect(cl *cephv1.CephCluster, seen Seen, a plan.Action) kit.Plan {
	s, d := seen.State, seen.Deployment
	still := Still{For: a.Kind, ID: s.ID, Namespace: d.Namespace, Name: d.Name, UID: d.UID}
	if s.Note != nil {
		still.UUID, still.Encrypted, still.Set, still.Node = s.Note.UUID, s.Note.Record.Encrypted, s.Note.Set, s.Note.Node
	}
	for _, m := range s.Joined {
		still.Joined = append(still.Joined, m.ID)
	}
	e := effects{cl: cl, seen: seen, a: a, still: still}
	switch a.Kind {
	case plan.Refuse, plan.Unrefuse, plan.Accept, plan.Adopt, plan.Fence, plan.Unready, plan.Begin, plan.Show, plan.TooLate, plan.Remember, plan.Claim,
		plan.Failure, plan.Lost, plan.Handover, plan.Complete, plan.Drop, plan.Release, plan.Halt, plan.Stop, plan.Mourn, plan.Revive, plan.Bury,
		plan.Unclosed, plan.Unzapped, plan.Tell, plan.Unname, plan.Find, plan.Proof:
		return e.mark()
	case plan.Enlist:
		return e.enlist()
	case plan.Out, plan.Down, plan.Destroy, plan.In, plan.Reweight, plan.Purge, plan.Reclaim, plan.Force, plan.Weigh:
		return e.command()
	}
	return e.jobs()
}

type effects struct {
	cl    *cephv1.CephCluster
	seen  Seen
	a     plan.Action
	still Still
}

// told is a plan of one action whose events go to both objects that the user looks at.
func (e effects) told(action kit.Action, warning bool, reason, message string) kit.Plan {
	p := kit.Plan{Do: []kit.Action{action}}
	if reason == "" {
		return p
	}
	message = fmt.Sprintf("osd.%d: %s", e.seen.State.ID, message)
	p.Events = []kit.Event{
		{Warning: warning, Reason: reason, Message: message},
		{Object: e.seen.Deployment, Warning: warning, Reason: reason, Message: message},
	}
	return p
}

// warn adds what does not hold the step up, on both objects.
func (e effects) warn(p kit.Plan, warnings []string) kit.Plan {
	for _, w := range warnings {
		message := fmt.Sprintf("osd.%d: %s", e.seen.State.ID, w)
		p.Events = append(p.Events, kit.Event{Warning: true, Reason: "OSDReplaceWarning", Message: message},
			kit.Event{Object: e.seen.Deployment, Warning: true, Reason: "OSDReplaceWarning", Message: message})
	}
	return p
}

func (e effects) patch() Patch {
	d := e.seen.Deployment
	return Patch{What: e.a.Message, ID: e.seen.State.ID, Namespace: d.Namespace, Name: d.Name, UID: d.UID, Version: d.ResourceVersion,
		Annotations: map[string]*string{}, Labels: map[string]*string{}}
}

// mark is a step that changes the Deployment's marks or replicas.
func (e effects) mark() kit.Plan {
	s, p := e.seen.State, e.patch()
	yes := ptr.To("true")
	note := plan.Note{}
	if s.Note != nil {
		note = *s.Note
	}
	keep := func(n plan.Note) { p.Annotations[spec.NoteAnnotation] = ptr.To(n.Encode()) }
	fence := func() {
		p.Annotations[spec.InProgressAnnotation], p.Labels[kube.SkipLabel] = yes, yes
	}
	unmark := func() {
		for _, a := range []string{spec.InProgressAnnotation, spec.ReadyAnnotation, spec.NoteAnnotation, spec.RefusedAnnotation} {
			p.Annotations[a] = nil
		}
		p.Labels[kube.SkipLabel] = nil
	}
	switch e.a.Kind {
	case plan.Refuse:
		p.What = "refusing the replacement"
		p.Annotations[spec.RefusedAnnotation] = ptr.To(s.Refusal.Text())
		return e.told(p, true, "OSDReplaceRefused", s.Refusal.Message)
	case plan.Unrefuse:
		p.Annotations[spec.RefusedAnnotation] = nil
	case plan.Accept:
		p.What = "accepting the replacement"
		fence()
		keep(s.Fresh)
		p.Annotations[spec.RefusedAnnotation], p.Annotations[spec.ReplacedAnnotation] = nil, nil
		plan := e.told(p, false, "OSDReplaceAccepted", "the disk "+s.Fresh.Disk()+" is going to be replaced"+with(s.Fresh.Set, s.ID))
		return e.warn(plan, s.Warnings)
	case plan.Adopt:
		keep(s.Fresh)
	case plan.Fence:
		fence()
	case plan.Unready:
		p.Annotations[spec.ReadyAnnotation] = nil
		return e.told(p, true, "OSDReplaceNotReady", e.a.Message)
	case plan.Begin:
		note.Drain = &plan.Drain{Since: e.seen.Jobs.now, PGs: s.PGs, Bytes: s.Bytes}
		keep(note)
	case plan.Stop:
		p.Replicas = ptr.To[int32](0)
		return e.told(kit.Confirmed{Check: e.still, Then: p}, false, "OSDReplaceDrained", e.a.Message)
	case plan.Halt:
		p.Replicas = ptr.To[int32](0)
	case plan.Mourn:
		now := e.seen.Jobs.now.UTC()
		note.Dead = &now
		keep(note)
		return e.told(p, true, "OSDReplaceDeviceDead", e.a.Message)
	case plan.Revive:
		note.Dead = nil
		keep(note)
	case plan.Bury:
		p.Replicas = ptr.To[int32](0)
		return e.told(kit.Confirmed{Check: e.still, Then: p}, true, "OSDReplaceDeviceDead", e.a.Message)
	case plan.Show:
		fence()
		p.Annotations[spec.ReadyAnnotation] = yes
		return e.told(kit.Confirmed{Check: e.still, Then: p}, false, "OSDReplaceReadyForSwap", e.a.Message)
	case plan.TooLate:
		note.CancelRefused = true
		keep(note)
		return e.told(p, true, "OSDReplaceCancelRefused", fmt.Sprintf("%s; put a new disk in, or give the OSD up with %s=%s", e.a.Message, spec.AbandonAnnotation, spec.AbandonConfirmation(s.ID)))
	case plan.Remember:
		note.Disks = s.Disks
		keep(note)
	case plan.Claim:
		n := 1
		if note.Attempt != nil {
			n = note.Attempt.Number + 1
		}
		disk := e.disk()
		note.Attempt = &plan.Attempt{Number: n, Device: disk.Device, Serial: disk.Serial, Proof: disk.Proof, Set: s.Shares(), VG: e.seen.Jobs.joins,
			With: s.With, Faults: note.Attempt.Counts(disk, s.With)}
		keep(note)
		p.What = "claiming " + note.Attempt.Device
		return e.warn(e.told(p, false, "OSDReplaceProvisioning", e.a.Message), disk.Warnings)
	case plan.Failure:
		attempt := plan.Attempt{Number: 1}
		if note.Attempt != nil {
			attempt = *note.Attempt
		}
		attempt.Failed = plan.Bounded(s.Trouble(), plan.MaxKept)
		if s.Fault {
			attempt.Faults++
		}
		note.Attempt = &attempt
		// A volume that ceph-volume's rollback removed was made again, with another uuid.
		if r := e.seen.Jobs.replaced; r != nil {
			note.Record.DB, note.Record.WAL = remade(note.Record.DB, r.DB), remade(note.Record.WAL, r.WAL)
			if u := unproven(r); u == s.UUID {
				attempt.Unproven = u
			}
		}
		keep(note)
		p.What = "noting a failed attempt"
		return e.told(p, true, "OSDReplaceFailed", e.a.Message)
	case plan.Unclosed:
		note.Unclosed = note.Unclosed.Next(string(e.seen.Jobs.close.GetUID()))
		keep(note)
		p.What = "noting that mappings could not be closed"
		return e.told(p, true, "OSDReplaceFailed", e.a.Message)
	case plan.Unzapped:
		note.Unzapped = note.Unzapped.Next(string(e.seen.Jobs.zap.GetUID()))
		keep(note)
		p.What = "noting that volumes could not be wiped"
		return e.told(p, true, "OSDReplaceFailed", e.a.Message)
	case plan.Tell:
		note.Told = e.a.Told
		keep(note)
		p.What = "noting what was told"
		if e.a.Told != plan.Bounded(s.Taken, plan.MaxKept) {
			return e.told(p, true, "OSDReplaceNotClear", e.a.Message)
		}
		return e.told(p, true, "OSDReplaceWarning", e.a.Message)
	case plan.Unname:
		attempt := *note.Attempt
		attempt.With = ""
		note.Attempt = &attempt
		keep(note)
	case plan.Proof:
		attempt := *note.Attempt
		attempt.Proven = s.UUID
		note.Attempt = &attempt
		keep(note)
	case plan.Find:
		note.Attempt = &plan.Attempt{Number: 1, Device: s.FoundOn.Device, Serial: s.FoundOn.Serial, Proof: s.FoundOn.Proof, Recognized: true}
		keep(note)
	case plan.Lost:
		note.SlotLost = true
		keep(note)
		return e.told(p, true, "OSDReplaceSlotLost", fmt.Sprintf("%s; its CRUSH weight was %g and its class %q", e.a.Message, note.Before.CrushWeight, note.Before.Class))
	case plan.Handover:
		unmark()
		note.Replaced = s.UUID
		p.Annotations[spec.ReplacedAnnotation] = ptr.To(note.Encode())
		for _, a := range []string{spec.ReplaceAnnotation, spec.MetadataAnnotation, spec.WithAnnotation, spec.AbandonAnnotation} {
			p.Annotations[a] = nil
		}
		// The osd controller rebuilds what carries another uuid than the OSD has: that the
		// Deployment is of the old disk must be readable from it.
		if record, err := json.Marshal(note.Record); err == nil {
			p.Annotations[spec.RecordAnnotation] = ptr.To(string(record))
		}
		rebuilt := e.told(kit.Confirmed{Check: e.still, Then: p}, false, "OSDReplaceRebuilt", e.a.Message)
		if r := e.seen.Jobs.replaced; r != nil && r.Reason == request.SiblingChanged {
			rebuilt = e.warn(rebuilt, []string{s.Volumes})
		}
		return rebuilt
	case plan.Complete:
		p.Annotations[spec.ReplacedAnnotation] = nil
		return e.told(p, false, "OSDReplaceCompleted", fmt.Sprintf("up and in on its new disk (uuid %s instead of %s)", note.Replaced, note.UUID))
	case plan.Drop:
		p.Annotations[spec.ReplacedAnnotation] = nil
		return e.told(p, true, "OSDReplaceEnded", e.a.Message)
	case plan.Release:
		unmark()
		p.Annotations[spec.ReplaceAnnotation], p.Annotations[spec.MetadataAnnotation] = nil, nil
		p.Replicas = ptr.To(note.Before.Replicas)
		p.What = "cancelling the replacement"
		return e.told(kit.Confirmed{Check: e.still, Then: p}, false, "OSDReplaceCancelled", "the replacement is cancelled and the OSD is as it was")
	}
	return e.told(p, false, "", "")
}

// remade is a part whose volume has another uuid now.
func remade(p *prepare.Part, now *request.LV) *prepare.Part {
	if p == nil || now == nil || now.UUID == "" || p.VG != now.VG || p.LV != now.Name {
		return p
	}
	q := *p
	q.LVUUID = now.UUID
	return &q
}

// command is a step that changes Ceph.
func (e effects) command() kit.Plan {
	s := e.seen.State
	c := Command{Kind_: e.a.Kind, ID: s.ID}
	confirmed := kit.Confirmed{Check: e.still}
	switch e.a.Kind {
	case plan.Out:
		confirmed.Then = c
		return e.told(confirmed, false, "OSDReplaceDraining", fmt.Sprintf("marked out; %d PGs are to be moved to other OSDs", s.PGs))
	case plan.Destroy:
		confirmed.Then = c
		return e.told(confirmed, false, "OSDReplaceDestroyed", "destroyed in Ceph; its id, weight and place stay")
	case plan.Force:
		confirmed.Then = c
		return e.told(confirmed, true, "OSDReplaceDestroyedUnsafely", "destroyed in Ceph although it was not safe, since its metadata device is dead and the loss of data was accepted; its id, weight and place stay")
	case plan.Weigh:
		c.Weight = s.Weigh
		return e.told(c, false, "OSDReplaceWeight", e.a.Message)
	case plan.Reclaim:
		c.Void = s.Safety != plan.Safe
		check := Still{For: plan.Reclaim, ID: s.ID, UUID: s.UUID, Namespace: e.still.Namespace, Name: e.still.Name, UID: e.still.UID}
		if j := e.seen.Jobs.make; j != nil {
			check.Job = j.UID
		}
		confirmed.Check = check
		confirmed.Then = c
		return e.told(confirmed, true, "OSDReplaceFailed", e.a.Message)
	case plan.Purge:
		c.Void = s.Safety != plan.Safe
		confirmed.Then = c
		return e.told(confirmed, true, "OSDReplaceAbandoned", "the slot is purged, as "+spec.AbandonAnnotation+" confirms")
	case plan.Reweight:
		c.Weight = s.Note.Before.Reweight
	}
	return e.told(c, false, "", "")
}

// jobs is a step that makes or clears a Job, or clears the Deployment.
func (e effects) jobs() kit.Plan {
	s, d := e.seen.State, e.seen.Deployment
	job, err := e.seen.Jobs.build(e.a.Kind, e.cl, e.seen)
	if err != nil {
		return kit.Plan{Err: err}
	}
	switch e.a.Kind {
	case plan.Close, plan.Make, plan.Prove, plan.Zap:
		return e.told(kit.Confirmed{Check: e.still, Then: StartJob{Job: job}}, false, "", "")
	case plan.Unclose:
		return e.told(endOf(e.seen.Jobs.close), false, "", "")
	case plan.Unmake:
		return e.told(endOf(e.seen.Jobs.make), false, "", "")
	case plan.Unzap:
		return e.told(endOf(e.seen.Jobs.zap), false, "", "")
	case plan.Remove:
		reason := "OSDReplaceAbandoned"
		if s.Abandon != plan.ConfirmedAbandon {
			reason = "OSDReplaceEnded"
		}
		remove := RemoveDeployment{Namespace: d.Namespace, Name: d.Name, UID: d.UID, Version: d.ResourceVersion}
		return e.told(kit.Confirmed{Check: e.still, Then: remove}, true, reason, e.a.Message)
	}
	return kit.Plan{Err: fmt.Errorf("osd.%d: the step %s is not known", s.ID, e.a.Kind)}
}

func endOf(j *batchv1.Job) EndJob {
	return EndJob{Namespace: j.Namespace, Name: j.Name, UID: j.UID}
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	switch a := action.(type) {
	case Patch:
		return c.patch(ctx, a)
	case Command:
		return c.command(ctx, cl, a)
	case StartJob:
		job := a.Job.DeepCopy()
		job.Labels[kube.OwnedLabel] = "true"
		return c.Write.Create(ctx, job, client.FieldOwner(kube.FieldOwner))
	case EndJob:
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
		err := c.Write.Delete(ctx, job, client.Preconditions{UID: &a.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return ignoreGone(err)
	case RemoveDeployment:
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
		err := c.Write.Delete(ctx, d, client.Preconditions{UID: &a.UID, ResourceVersion: &a.Version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return ignoreGone(err)
	}
	return noSuch(action)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Controller) patch(ctx context.Context, p Patch) error {
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
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return c.Write.Patch(ctx, d, client.RawPatch(types.MergePatchType, b), client.FieldOwner(kube.FieldOwner))
}

func (c *Controller) command(ctx context.Context, cl *cephv1.CephCluster, a Command) error {
	stored, err := c.Access.Read(ctx, cl.Namespace)
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
	return noSuch(a)
}

// refused makes a wait of Ceph's own no.
func refused(err error) error {
	var e *ceph.Error
	if errors.As(err, &e) && (e.Errno == syscall.EBUSY || e.Errno == syscall.EAGAIN) {
		return kit.Waiting(kit.Wait{Reason: "NotSafeToDestroy", Message: "Ceph refuses: " + e.Status, For: time.Second})
	}
	return err
}

// Confirm implements kit.Confirmer: what must hold at the very moment, read live.
func (c *Controller) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	s, ok := check.(Still)
	if !ok {
		return nil, noSuch(check)
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
	return c.confirmCeph(ctx, cl, s, d)
}

func no(format string, args ...any) *kit.Wait {
	return &kit.Wait{Reason: "Changed", Message: fmt.Sprintf(format, args...), For: time.Second}
}

// marks holds the Deployment against the request.
func (s Still) marks(d *appsv1.Deployment, mates map[int]*appsv1.Deployment) *kit.Wait {
	asked := d.Annotations[spec.ReplaceAnnotation] == spec.Confirmation(s.ID)
	if s.Set != nil && s.Set.Kind == plan.OnMetadata {
		asked = askedMetadata(mates[s.Set.Leader], s.Set.Leader)
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
func (c *Controller) noPods(ctx context.Context, s Still, d *appsv1.Deployment) (*kit.Wait, error) {
	if s.For == plan.Release {
		return nil, nil
	}
	list, err := kube.List(ctx, c.Access.Live, &corev1.PodList{}, client.InNamespace(s.Namespace), client.MatchingLabels{spec.IDLabel: fmt.Sprint(s.ID)})
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 {
		return no("the pod %s is still there", list.Items[0].Name), nil
	}
	if s.For != plan.Destroy && s.For != plan.Force || !s.Encrypted {
		return nil, nil
	}
	job, err := kube.Lookup[batchv1.Job](ctx, c.Access.Live, client.ObjectKey{Namespace: s.Namespace, Name: spec.CloseName(s.ID)})
	if err != nil {
		return nil, err
	}
	if state, _ := closeState(job, s.UUID, d.Generation, 0, kit.Now(ctx)); state != plan.Succeeded {
		return no("it is not proven that the dm-crypt mappings are closed"), nil
	}
	return nil, nil
}

// noJob: nobody prepares a disk for the OSD, or has done so unseen. The cache may be behind a
// Job that was just made.
func (c *Controller) noJob(ctx context.Context, s Still) (*kit.Wait, error) {
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
func (c *Controller) confirmCeph(ctx context.Context, cl *cephv1.CephCluster, s Still, _ *appsv1.Deployment) (*kit.Wait, error) {
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
	_, same := holds(m, s.ID, s.UUID)
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
		if _, anew := madeAnew(m, s.ID, s.UUID); !anew {
			return no("osd.%d has no new disk", s.ID), nil
		}
		return nil, nil
	case plan.Release:
		if !same {
			return no("osd.%d is not what it was", s.ID), nil
		}
		return nil, nil
	default:
		return nil, noSuch(s)
	}
	safety, err := osds.Safety(ctx, s.ID)
	if err != nil {
		return nil, fmt.Errorf("asking whether osd.%d is safe to destroy: %w", s.ID, err)
	}
	if (s.For == plan.Reclaim || s.For == plan.Purge) && safety.Exists && !safety.Safe && !safety.Up && void(o, safety) {
		return nil, nil
	}
	if !safety.Exists || !safety.Safe || s.For != plan.Stop && safety.Up {
		return &kit.Wait{Reason: "NotSafeToDestroy", Message: fmt.Sprintf("osd.%d is not safe to destroy: %s", s.ID, safety.Why), For: time.Second}, nil
	}
	return s.whole(ctx, osds, m)
}
