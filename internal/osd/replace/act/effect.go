package act

import (
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/replace/confirm"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/observe"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Effect turns the step into a plan of one effect, with its events. What cannot be built is
// the error of the plan.
func Effect(cl *cephv1.CephCluster, seen observe.Seen, a plan.Action) kit.Plan {
	s, d := seen.State, seen.Deployment
	still := confirm.Still{For: a.Kind, ID: s.ID, Namespace: d.Namespace, Name: d.Name, UID: d.UID}
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
	seen  observe.Seen
	a     plan.Action
	still confirm.Still
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
		note.Drain = &plan.Drain{Since: e.seen.Now, PGs: s.PGs, Bytes: s.Bytes}
		keep(note)
	case plan.Stop:
		p.Replicas = ptr.To[int32](0)
		return e.told(kit.Confirmed{Check: e.still, Then: p}, false, "OSDReplaceDrained", e.a.Message)
	case plan.Halt:
		p.Replicas = ptr.To[int32](0)
	case plan.Mourn:
		now := e.seen.Now.UTC()
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
		note.Attempt = &plan.Attempt{Number: n, Device: disk.Device, Serial: disk.Serial, Proof: disk.Proof, Set: s.Shares(), VG: e.seen.Joins,
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
		if r := e.seen.Replaced; r != nil {
			note.Record.DB, note.Record.WAL = remade(note.Record.DB, r.DB), remade(note.Record.WAL, r.WAL)
			if u := observe.Unproven(r); u == s.UUID {
				attempt.Unproven = u
			}
		}
		keep(note)
		p.What = "noting a failed attempt"
		return e.told(p, true, "OSDReplaceFailed", e.a.Message)
	case plan.Unclosed:
		note.Unclosed = note.Unclosed.Next(string(e.seen.Jobs.Close.GetUID()))
		keep(note)
		p.What = "noting that mappings could not be closed"
		return e.told(p, true, "OSDReplaceFailed", e.a.Message)
	case plan.Unzapped:
		note.Unzapped = note.Unzapped.Next(string(e.seen.Jobs.Zap.GetUID()))
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
		if r := e.seen.Replaced; r != nil && r.Reason == request.SiblingChanged {
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
		check := confirm.Still{For: plan.Reclaim, ID: s.ID, UUID: s.UUID, Namespace: e.still.Namespace, Name: e.still.Name, UID: e.still.UID}
		if j := e.seen.Jobs.Make; j != nil {
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
	job, err := jobs.Build(e.a.Kind, e.cl, e.seen.New, s)
	if err != nil {
		return kit.Plan{Err: err}
	}
	switch e.a.Kind {
	case plan.Close, plan.Make, plan.Prove, plan.Zap:
		return e.told(kit.Confirmed{Check: e.still, Then: StartJob{Job: job}}, false, "", "")
	case plan.Unclose:
		return e.told(endOf(e.seen.Jobs.Close), false, "", "")
	case plan.Unmake:
		return e.told(endOf(e.seen.Jobs.Make), false, "", "")
	case plan.Unzap:
		return e.told(endOf(e.seen.Jobs.Zap), false, "", "")
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

// with says whom an OSD is replaced with.
func with(set *plan.Set, id int) string {
	if set == nil || len(set.Members) < 2 {
		return ""
	}
	names := ""
	for _, m := range set.Members {
		if m.ID != id {
			names += fmt.Sprintf(", osd.%d", m.ID)
		}
	}
	return ", together with " + names[2:]
}

// enlist writes the marks and the note of another OSD of the set, in one update.
func (e effects) enlist() kit.Plan {
	m := e.seen.Enlist[e.a.Mate]
	if m == nil {
		return kit.Plan{Err: fmt.Errorf("osd.%d: nothing is prepared to take osd.%d into its set", e.seen.State.ID, e.a.Mate)}
	}
	d, yes := m.Deployment, ptr.To("true")
	p := Patch{What: "taking it into the set of osd." + fmt.Sprint(e.seen.State.ID), ID: e.a.Mate, Namespace: d.Namespace, Name: d.Name, UID: d.UID, Version: d.ResourceVersion,
		Annotations: map[string]*string{
			spec.InProgressAnnotation: yes, spec.NoteAnnotation: ptr.To(m.Note.Encode()), spec.RefusedAnnotation: nil, spec.ReplacedAnnotation: nil,
		},
		Labels: map[string]*string{kube.SkipLabel: yes}}
	message := fmt.Sprintf("osd.%d: its metadata device %s is going to be replaced%s, as is asked for on osd.%d", e.a.Mate, m.Note.Disk(), with(m.Note.Set, e.a.Mate), e.seen.State.ID)
	return kit.Plan{Do: []kit.Action{kit.Confirmed{Check: e.still, Then: p}}, Events: []kit.Event{
		{Reason: "OSDReplaceAccepted", Message: message}, {Object: d, Reason: "OSDReplaceAccepted", Message: message},
	}}
}

// disk is the one that is claimed: the match, or that of the last attempt where the node
// cannot tell any more.
func (e effects) disk() swap.Match {
	if m := e.seen.State.Match; m != nil {
		return *m
	}
	a := e.seen.State.Note.Attempt
	return swap.Match{Device: a.Device, Serial: a.Serial, Proof: a.Proof}
}
