package plan

import (
	"fmt"
	"math"
	"strings"
	"time"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Kind is what an action does.
type Kind string

// The actions. All but Wait and None are one effect each.
const (
	None     Kind = "None"     // no replacement, nothing to do
	Wait     Kind = "Wait"     // something must happen first
	Refuse   Kind = "Refuse"   // store and tell why the request does not hold
	Unrefuse Kind = "Unrefuse" // drop a stored refusal
	Accept   Kind = "Accept"   // fence, mark and note, in one update
	Adopt    Kind = "Adopt"    // write the note of a replacement that has marks and no note
	Fence    Kind = "Fence"    // put back marks that somebody has taken away
	Unready  Kind = "Unready"  // take away a ready-for-swap that is not true
	Begin    Kind = "Begin"    // note how much there is to drain
	Out      Kind = "Out"      // mark the OSD out
	Stop     Kind = "Stop"     // replicas 0, with a live safe-to-destroy right before
	Halt     Kind = "Halt"     // replicas 0 of an OSD that is destroyed already
	Down     Kind = "Down"     // mark the stopped OSD down
	Close    Kind = "Close"    // start closing dm-crypt mappings
	Unclose  Kind = "Unclose"  // clear the Job that closed, or failed to
	Unclosed Kind = "Unclosed" // note and tell that it failed to
	Destroy  Kind = "Destroy"  // destroy the OSD, proven right before
	Show     Kind = "Show"     // ready for swap
	TooLate  Kind = "TooLate"  // tell that a destroyed OSD cannot be cancelled
	Remember Kind = "Remember" // note which disks the node has while the slot is free
	Claim    Kind = "Claim"    // note which disk is about to be prepared
	Make     Kind = "Make"     // start preparing it
	Failure  Kind = "Failure"  // note and tell that preparing failed
	Unmake   Kind = "Unmake"   // clear the Job that prepared, or failed to
	Lost     Kind = "Lost"     // note and tell that the id is gone from the maps
	Reclaim  Kind = "Reclaim"  // take back an id that a failed preparation left claimed
	Handover Kind = "Handover" // the new disk is found: give the Deployment back
	Complete Kind = "Complete" // drop the note, tell that it is done
	Drop     Kind = "Drop"     // drop the note of a replacement that has no OSD any more
	In       Kind = "In"       // cancel: mark in again
	Reweight Kind = "Reweight" // cancel: the override weight as it was
	Release  Kind = "Release"  // cancel: replicas as they were, no marks, in one update
	Purge    Kind = "Purge"    // abandon: remove the slot
	Zap      Kind = "Zap"      // abandon: wipe the volumes that are left
	Unzap    Kind = "Unzap"    // abandon: clear the Job that failed to
	Unzapped Kind = "Unzapped" // abandon: note and tell that it failed to
	Tell     Kind = "Tell"     // note and tell why a disk that is there is not taken
	Unname   Kind = "Unname"   // note that the name of a disk that was given up was taken away
	Find     Kind = "Find"     // note which disk carries a new OSD that no attempt of ours has made
	Prove    Kind = "Prove"    // have the node prove a new OSD that a look has found
	Proof    Kind = "Proof"    // note that it has
	Remove   Kind = "Remove"   // delete the Deployment of an id that Ceph does not have
	Enlist   Kind = "Enlist"   // fence, mark and note another OSD of the set
	Mourn    Kind = "Mourn"    // note that the OSD is down with its metadata device
	Revive   Kind = "Revive"   // drop that note
	Bury     Kind = "Bury"     // replicas 0 of an OSD that is down with its metadata device
	Force    Kind = "Force"    // destroy it though it is not safe, at the user's word
	Weigh    Kind = "Weigh"    // give the new OSD the CRUSH weight that it should have
)

// Action is the one next step, with what the user is told about it.
type Action struct {
	Kind  Kind
	Phase cephv1.OSDReplacementPhase
	// Reason is CamelCase and from a small set, for waits and refusals.
	Reason string
	// Message says what is awaited, or what is being done.
	Message string
	// Hint is what the user can do.
	Hint string
	// Blocked: nothing moves until somebody acts.
	Blocked bool
	// Mate is the other OSD that Enlist is about.
	Mate int
	// Told is what Tell notes, so that it is told once.
	Told string
}

// Text is the message with the hint.
func (a Action) Text() string {
	if a.Hint == "" {
		return a.Message
	}
	return a.Message + " (" + a.Hint + ")"
}

// Next is the next step of a replacement. It is a function of the state only.
func Next(s State) Action {
	a := s.next()
	if a.Kind != Wait {
		return a
	}
	switch a.Reason {
	case "Closing", "Preparing", "Cleaning", "Abandoning", "Cancelling":
		// A Job is awaited: what keeps it from ending is not in it, but on its node.
		if s.NodeProblem != "" {
			a.Message, a.Blocked = a.Message+"; "+s.NodeProblem, true
		}
		if s.Hung != "" {
			a.Message, a.Hint, a.Blocked = a.Message+"; "+s.Hung, s.HungHint, true
		}
	}
	return a
}

// next has the order of the flow.
func (s State) next() Action {
	claimed := s.Note != nil || s.InProgress || s.Ready || s.NoteProblem != ""
	switch {
	case !claimed:
		return s.outside()
	case s.NoteProblem != "":
		return s.block(s.guess(), "NoteUnreadable", fmt.Sprintf("nothing is done with osd.%d: %s", s.ID, s.NoteProblem),
			fmt.Sprintf("the annotation %s of %s must be as it was; if that is lost, remove it, and it is made anew from what is known", spec.NoteAnnotation, spec.Name(s.ID)))
	case !s.Answered:
		return s.wait(s.guess(), "CephSilent", "nothing is changed while Ceph does not answer: "+s.Silence)
	case s.Note == nil && s.FreshProblem != "":
		return s.block(s.guess(), "DiskUnknown", fmt.Sprintf("the Deployment of osd.%d has marks of a replacement and no note of it, and what is replaced is not known: %s", s.ID, s.FreshProblem),
			fmt.Sprintf("remove the annotations %s and %s and the label ceph.rook.io/do-not-reconcile, and ask again", spec.InProgressAnnotation, spec.ReadyAnnotation))
	case s.Note == nil:
		return s.do(Adopt, s.guess(), "noting what is known of the OSD")
	case s.Note.Replaced != "":
		return s.starting()
	case !s.Exists:
		return s.absent()
	case s.Destroyed:
		return s.destroyed()
	case s.UUID == s.Note.UUID:
		return s.before()
	default:
		return s.claimedAnew()
	}
}

// outside is a Deployment without any mark of a replacement.
func (s State) outside() Action {
	refused := cephv1.OSDReplacementRefused
	switch {
	case !s.Asked && s.RefusedText != "":
		return s.do(Unrefuse, "", "dropping the refusal of a request that was taken back")
	case !s.Asked:
		return Action{Kind: None}
	case s.Fenced:
		return s.block(refused, "Fenced", "somebody has set the label ceph.rook.io/do-not-reconcile on the Deployment, which asks the operator to leave this OSD alone",
			"remove the label if the OSD is to be replaced")
	case !s.Answered:
		return s.wait(cephv1.OSDReplacementAccepted, "CephSilent", "the request cannot be checked: Ceph does not answer: "+s.Silence)
	case s.Unchecked != "":
		return s.wait(cephv1.OSDReplacementAccepted, "NotChecked", "the request cannot be checked: "+s.Unchecked)
	case s.Refusal != nil && s.Refusal.Text() != s.RefusedText:
		return Action{Kind: Refuse, Phase: refused, Reason: s.Refusal.Reason, Message: s.Refusal.Message, Blocked: true}
	case s.Refusal != nil:
		return s.block(refused, s.Refusal.Reason, s.Refusal.Message, "")
	case s.FreshProblem != "":
		return s.wait(cephv1.OSDReplacementAccepted, "DiskUnknown", s.FreshProblem)
	}
	return s.do(Accept, cephv1.OSDReplacementAccepted, "the request holds")
}

// before is an OSD that still has its old disk.
func (s State) before() Action {
	draining := cephv1.OSDReplacementDraining
	switch {
	case s.Ready:
		return s.do(Unready, draining, "the OSD is not destroyed: its disk must not be pulled")
	case !s.Asked:
		return s.cancel()
	case !s.InProgress || !s.Fenced:
		return s.do(Fence, draining, "putting back the marks of the replacement")
	case s.Note.Dead != nil && !s.lossy():
		return s.do(Revive, draining, "dropping the note that the OSD is dead: "+s.unlossy())
	}
	if a, ok := s.gather(s.guess()); ok {
		return a
	}
	switch {
	case s.In && s.Turn != "" && !s.lossy():
		return s.waitAs(cephv1.OSDReplacementAccepted, "Queued", s.Turn)
	case s.Note.Drain == nil && !s.Usage:
		return s.wait(draining, "CephSilent", "Ceph does not say yet how much is on the OSD (ceph osd df), which is noted before it is marked out")
	case s.Note.Drain == nil:
		return s.do(Begin, draining, "noting how much there is to drain")
	case s.In:
		return s.do(Out, draining, "marking the OSD out")
	case s.Replicas > 0:
		return s.drain(draining)
	}
	return s.stopped(cephv1.OSDReplacementDestroying)
}

// unlossy says why a loss is not accepted any more.
func (s State) unlossy() string {
	if !s.Loss {
		return "the loss of its data is not accepted any more"
	}
	return s.alive()
}

// stopped is an OSD that does not run any more and is not destroyed yet.
func (s State) stopped(phase cephv1.OSDReplacementPhase) Action {
	others := s.which(func(m Mate) bool { return !m.Gone && !m.Stopped })
	switch {
	case len(s.Pods) > 0:
		return s.waitPods(phase)
	case s.Up:
		return s.do(Down, phase, "marking the stopped OSD down")
	case others != "":
		return s.wait(phase, "SetNotStopped", fmt.Sprintf("all OSDs on %s are destroyed together: %s has to be stopped first", s.common(), others))
	case s.Safety != Safe && !s.forced():
		a := s.wait(phase, "NotSafeToDestroy", "the OSD is stopped, and Ceph does not call it safe to destroy yet: "+s.why())
		a.Hint = "a PG that is not active+clean elsewhere can be the cause (ceph pg dump_stuck): it goes on when Ceph says yes; cancelling starts the OSD again"
		return a
	case s.encrypted() && s.Close != Succeeded:
		return s.closing(phase)
	case s.Safety != Safe:
		return s.do(Force, phase, "destroying the OSD with its dead metadata device, at the word that data on it is lost: "+s.why())
	}
	return s.do(Destroy, phase, "destroying the OSD; its id, weight and place stay")
}

// drain waits until no data is on the OSD any more.
func (s State) drain(phase cephv1.OSDReplacementPhase) Action {
	if s.drained() {
		return s.do(Stop, cephv1.OSDReplacementDestroying, "the OSD is drained: stopping it")
	}
	if a, ok := s.mourn(phase); ok {
		return a
	}
	switch {
	case s.Safety == Safe:
		return s.wait(phase, "SetDraining", fmt.Sprintf("the OSD is drained; so must be %s on the same device", s.which(func(m Mate) bool { return !m.Gone && (m.In || m.Safe != Safe) })))
	case s.Stuck && s.kind() == OnMetadata:
		return s.block(phase, "NowhereToDrain", "nothing moves any more, and PGs are still mapped to the OSD: there is no other failure domain that could take them",
			fmt.Sprintf("add OSDs in another failure domain, or lower the size of the pools; or cancel by removing the annotation %s of osd.%d; a loss of data can be accepted only of a device that is dead, and %s", spec.MetadataAnnotation, s.asker(), s.alive()))
	case s.Stuck:
		return s.block(phase, "NowhereToDrain", "nothing moves any more, and PGs are still mapped to the OSD: there is no other failure domain that could take them",
			"add OSDs in another failure domain, or lower the size of the pools; or cancel by removing the annotation "+s.annotation())
	case s.Safety == Unknown:
		return s.wait(phase, "SafetyUnknown", "Ceph cannot tell yet whether the OSD is safe to destroy: "+s.why())
	case !s.Up && s.dead():
		a := s.wait(phase, "DeviceSeemsDead", "its metadata device seems dead: no OSD on it runs, though node "+s.Note.Node+" is ready; and Ceph does not call the OSD safe to destroy: "+s.why())
		a.Blocked = s.Settled
		a.Hint = fmt.Sprintf("other copies are used as far as there are any; if what is only on this device may be lost, confirm it on osd.%d: %s=%s", s.asker(), spec.MetadataAnnotation, spec.LossConfirmation(s.asker()))
		return a
	}
	return s.wait(phase, "Draining", "data is being moved to other OSDs: "+s.why())
}

func (s State) why() string {
	if s.SafetyWhy == "" {
		return "no answer"
	}
	return s.SafetyWhy
}

func (s State) waitPods(phase cephv1.OSDReplacementPhase) Action {
	a := s.wait(phase, "PodsNotGone", "pods of the OSD are not gone: "+strings.Join(s.Pods, ", "))
	a.Hint, a.Blocked = s.PodsHint, s.PodsHint != ""
	return a
}

// closing is the way to a fresh proof that no dm-crypt mapping of the OSD is open.
func (s State) closing(phase cephv1.OSDReplacementPhase) Action {
	switch s.Close {
	case NoJob:
		if s.NodeProblem != "" {
			return s.block(phase, "NodeGone", "the dm-crypt mappings of the OSD must be closed on its node before it is destroyed: "+s.NodeProblem, "bring the node back, or cancel by removing the annotation "+s.annotation())
		}
		return s.do(Close, phase, "closing the dm-crypt mappings on the node")
	case Failed, Retry:
		if s.CloseUncounted {
			return s.do(Unclosed, phase, s.unclosed())
		}
		if s.Close == Failed {
			return s.block(phase, "CloseFailed", s.unclosed(),
				fmt.Sprintf("it is tried again%s, or at once when Job %s is deleted; something else on the node may hold the volume open: dmsetup ls --tree", when(s.CloseRetryAt), spec.CloseName(s.ID)))
		}
		return s.do(Unclose, phase, "clearing the Job that could not close dm-crypt mappings, to try again")
	case Expired, Stale:
		return s.do(Unclose, phase, "clearing the Job that closed dm-crypt mappings, to ask again")
	case Ending:
		return s.wait(phase, "Closing", "an earlier Job is being cleared away")
	}
	return s.wait(phase, "Closing", fmt.Sprintf("the dm-crypt mappings of the OSD are being closed on node %s (Job %s)", s.Note.Node, spec.CloseName(s.ID)))
}

func (s State) unclosed() string {
	return fmt.Sprintf("the dm-crypt mappings of the OSD could not be closed on node %s: %s", s.Note.Node, s.CloseProblem)
}

// cancel undoes what was done, in the reverse order.
func (s State) cancel() Action {
	phase := cephv1.OSDReplacementCancelling
	switch {
	case s.Close == Ending:
		return s.wait(phase, "Cancelling", "the Job that closes dm-crypt mappings is being cleared away")
	case s.Close != NoJob:
		return s.do(Unclose, phase, "clearing the Job that closes dm-crypt mappings")
	case s.Note.Before.In && !s.In:
		return s.do(In, phase, "marking the OSD in again")
	case s.Note.Before.In && s.In && !sameWeight(s.Weight, s.Note.Before.Reweight):
		return s.do(Reweight, phase, "giving the OSD the override weight that it had")
	}
	return s.do(Release, phase, "giving the OSD back")
}

// sameWeight compares override weights, which Ceph keeps in 1/65536.
func sameWeight(a, b float64) bool { return math.Abs(a-b) < 1.0/32768 }

// destroyed is a slot without an OSD.
func (s State) destroyed() Action {
	phase := cephv1.OSDReplacementReadyForSwap
	switch {
	case s.Abandon == ConfirmedAbandon:
		return s.abandon()
	case !s.InProgress || !s.Fenced:
		return s.do(Fence, phase, "putting back the marks of the replacement")
	case s.Replicas > 0:
		return s.do(Halt, phase, "stopping the Deployment of a destroyed OSD")
	case len(s.Pods) > 0:
		return s.waitPods(phase)
	case s.Close == Ending:
		return s.wait(cephv1.OSDReplacementDestroying, "Closing", "the Job that closed dm-crypt mappings is being cleared away")
	case s.Close != NoJob:
		return s.do(Unclose, cephv1.OSDReplacementDestroying, "clearing the Job that closed dm-crypt mappings")
	case !s.Ready:
		return s.show(phase)
	case !s.Asked && !s.Note.CancelRefused && (s.kind() != OnMetadata || s.Leads):
		return s.do(TooLate, phase, "the OSD is destroyed already, so the replacement cannot be cancelled any more")
	}
	return s.slot()
}

// show tells that the disk may be pulled, when no OSD is on it any more.
func (s State) show(phase cephv1.OSDReplacementPhase) Action {
	if a, ok := s.shown(phase); ok {
		return a
	}
	return s.do(Show, phase, "the disk may be pulled: "+s.Note.Disk())
}

// slot is a slot that waits for a disk, whether Ceph still has its id or not.
func (s State) slot() Action {
	phase := cephv1.OSDReplacementReadyForSwap
	making := cephv1.OSDReplacementProvisioning
	s = s.claimed()
	a := s.Note.Attempt
	switch {
	case s.Make == Running:
		return s.wait(making, "Preparing", s.preparing())
	case s.Make == Ending:
		return s.wait(making, "Preparing", "an earlier Job is being cleared away")
	case s.Make == Stale:
		return s.do(Unmake, making, "clearing the Job of an earlier replacement")
	case s.Make != NoJob && (a == nil || a.Failed == ""):
		return s.do(Failure, making, s.Trouble()+"; "+s.left()+s.last())
	case s.spent():
		return s.givenUp(making)
	case (s.Make == Failed || s.Make == Succeeded) && !s.another(a) && !s.insisted():
		return s.failed(making, a)
	case s.Make != NoJob:
		return s.do(Unmake, making, "clearing the Job of the earlier attempt")
	case s.taken():
		return s.tell(s.Taken, s.block(phase, "NeedsOwnDisk", s.own(), ""))
	case s.Question != "":
		return s.tell(s.Question, s.block(phase, "ReplacementNotClear", s.Question, s.naming()))
	case s.Match == nil && len(s.Note.Disks) == 0 && len(s.Disks) > 0:
		return s.do(Remember, phase, "noting which disks the node has")
	case s.Match == nil && s.NodeProblem != "":
		return s.block(phase, "NodeGone", "a new disk for "+s.Note.Disk()+" is awaited, and "+s.NodeProblem, fmt.Sprintf("bring the node back; or, if it is gone for good, give the slot up: %s=%s", spec.AbandonAnnotation, spec.AbandonConfirmation(s.ID)))
	case s.Match == nil:
		x := s.block(phase, "AwaitingSwap", "pull the disk "+s.Note.Disk()+" and put a new one in", "")
		if s.Abandon == WrongAbandon {
			x.Hint = fmt.Sprintf("osd.rook.io/replace-abandon is only taken as yes-really-purge-osd-%d", s.ID)
		}
		return x
	case s.lost() != "":
		return s.block(phase, "SetNotWhole", fmt.Sprintf("%s is not used yet: %s of the set has a share of it too, and the note of its replacement is gone", s.attempt(a), s.lost()),
			fmt.Sprintf("write the annotation %s of its Deployment again; or, to go on without it, delete its Deployment", spec.NoteAnnotation))
	case s.Need > 0 && s.Match.Size > 0 && s.Match.Size < s.Need:
		small := s.block(phase, "DiskTooSmall", fmt.Sprintf("%s has %d bytes, and %s needs %d", s.attempt(a), s.Match.Size, s.needs(), s.Need), "put a larger one in")
		return s.tell(small.Message, small)
	case s.Behind != "" && s.another(a):
		return s.block(making, "SetNotWhole", fmt.Sprintf("the disk %s is the replacement (%s), and is not used yet: %s", s.attempt(a), s.Match.Proof, s.Behind), s.BehindHint)
	case a == nil || s.another(a) || a.Failed != "":
		return s.do(Claim, making, "the disk "+s.Match.Device+" is the replacement: "+s.Match.Proof)
	case s.turn() != "":
		return s.wait(making, "SetPreparing", "the new disk "+attempted(a)+" is prepared for one OSD after the other: "+s.turn())
	}
	return s.do(Make, making, "preparing "+s.Match.Device)
}

// tell notes and tells what a wait is about, once; then it waits.
func (s State) tell(what string, wait Action) Action {
	what = Bounded(what, MaxKept)
	if s.Note.Told == what {
		return wait
	}
	a := s.do(Tell, wait.Phase, wait.Text())
	a.Told = what
	return a
}

// MaxKept bounds a text that is kept in a note, in bytes: annotations share one limit.
const MaxKept = 512

// Bounded is a text of so many bytes at most.
func Bounded(text string, bytes int) string { return text[:min(len(text), bytes)] }

// spent: the disk of the last attempt has failed so often that it is not tried again by
// itself, and there is no other, nor anybody's word to try it once more.
func (s State) spent() bool {
	a := s.Note.Attempt
	return a != nil && a.Failed != "" && a.Faults >= maxFaults && !a.renamed(s.With) && (s.Match == nil || a.on(*s.Match))
}

// insisted: it was given up, and the user has named it since.
func (s State) insisted() bool {
	a := s.Note.Attempt
	return a != nil && a.Faults >= maxFaults && a.renamed(s.With)
}

// givenUp waits for another disk, or for the user's word.
func (s State) givenUp(phase cephv1.OSDReplacementPhase) Action {
	a := s.Note.Attempt
	if a.With != "" && s.With == "" {
		return s.do(Unname, phase, "noting that "+attempted(a)+" is not named any more")
	}
	again := "the same annotation tries this one again"
	if a.With != "" {
		again = "to try this one again, remove that annotation and set it anew"
	}
	return s.block(phase, "DiskFailed", fmt.Sprintf("%s on node %s has failed %d times and is not tried any more; the last time: %s; %s", attempted(a), s.Note.Node, a.Faults, a.Failed, s.left()),
		fmt.Sprintf("put another disk in, which is taken by itself; or %s; %s", s.naming(), again))
}

// last says of a failure that it was the last on its disk.
func (s State) last() string {
	a := s.Note.Attempt
	if a == nil || !s.Fault || a.Faults+1 < maxFaults {
		return ""
	}
	return fmt.Sprintf("; that disk has failed %d times and is not tried any more: put another one in, or %s", a.Faults+1, s.naming())
}

// taken: a disk with other OSDs on it is where the new one would have to come, and nothing
// else is proven or named.
func (s State) taken() bool { return s.Taken != "" && s.Match == nil && s.With == "" }

// own says that the OSD needs a disk to itself, and how it gets one.
func (s State) own() string {
	what := "disk"
	if s.kind() == OnMetadata {
		what = "metadata device"
	}
	return fmt.Sprintf("%s, so the OSD needs a %s of its own: leave that one alone, put a blank one into another slot of node %s, and %s", s.Taken, what, s.Note.Node, s.naming())
}

// naming is how the user names the new disk.
func (s State) naming() string {
	return fmt.Sprintf("name the disk: kubectl annotate deployment %s %s=/dev/disk/by-id/...", spec.Name(s.ID), spec.WithAnnotation)
}

func (s State) needs() string {
	if s.kind() == OnMetadata {
		return "what the OSDs had on the metadata device"
	}
	return "what was on the old disk"
}

// preparing says what runs where.
func (s State) preparing() string {
	return fmt.Sprintf("the new disk %s is being prepared on node %s (Job %s)", attempted(s.Note.Attempt), s.Note.Node, spec.MakeName(s.ID))
}

// annotation is the one that asks for this replacement.
func (s State) annotation() string {
	if s.kind() == OnMetadata {
		return fmt.Sprintf("%s of osd.%d", spec.MetadataAnnotation, s.asker())
	}
	return spec.ReplaceAnnotation
}

// another says that the match is a disk that the last attempt was not about.
func (s State) another(a *Attempt) bool {
	return s.Match != nil && (a == nil || s.Match.Device != a.Device || s.Match.Serial != a.Serial)
}

func attempted(a *Attempt) string {
	if a == nil {
		return "disk"
	}
	if a.Serial == "" {
		return a.Device
	}
	return a.Device + " (serial " + a.Serial + ")"
}

func (s State) problem() string {
	if s.MakeProblem != "" {
		return s.MakeProblem
	}
	if s.Make == Succeeded || s.Make == Expired {
		return "the Job has ended well, and Ceph knows nothing of a new OSD"
	}
	if s.Make == NoJob {
		return "its Job was deleted before it had ended"
	}
	return "its Job has failed without a report"
}

// Trouble is how the last attempt has failed, as it is noted and told.
func (s State) Trouble() string {
	return "preparing the new disk " + attempted(s.Note.Attempt) + " failed: " + s.problem()
}

// left says what is left of the slot after a failed attempt: the id in Ceph's maps, and
// the volumes that the next attempt needs.
func (s State) left() string {
	slot := fmt.Sprintf("the slot of osd.%d is as it was: destroyed, with its id, weight and place", s.ID)
	switch {
	case !s.Exists:
		slot = fmt.Sprintf("ceph-volume has taken osd.%d out of the maps; it is made again with the same id", s.ID)
	case !s.Destroyed:
		slot = fmt.Sprintf("osd.%d is claimed by the failed attempt (uuid %s) and has never run; it keeps its id, weight and place, and is destroyed again before the next attempt", s.ID, s.UUID)
	}
	if s.Volumes == "" {
		return slot
	}
	return slot + "; " + s.Volumes
}

// failed waits for the next try on the same disk, or for another one.
func (s State) failed(phase cephv1.OSDReplacementPhase, a *Attempt) Action {
	count := ""
	if a.Faults > 0 {
		count = fmt.Sprintf("; it has failed %d times of %d", a.Faults, maxFaults)
	}
	return s.block(phase, "PrepareFailed", a.Failed+count+"; "+s.left(), fmt.Sprintf("it is tried again%s; if the disk is bad, pull it and put another one in: that is taken at once", when(s.RetryAt)))
}

// when the next try is due, for a person; "" where nobody knows.
func when(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " at " + clock(at)
}

// attempt is the disk of the next attempt.
func (s State) attempt(a *Attempt) string {
	if s.Match == nil || !s.another(a) {
		return "the next attempt on " + attempted(a)
	}
	return attempted(&Attempt{Device: s.Match.Device, Serial: s.Match.Serial})
}

// claimedAnew is an id that has another uuid than the OSD that was destroyed.
func (s State) claimedAnew() Action {
	phase := cephv1.OSDReplacementProvisioning
	a := s.Note.Attempt
	switch {
	case s.Make == Running:
		return s.wait(phase, "Preparing", s.preparing())
	case s.Replicas > 0:
		return s.do(Halt, phase, "stopping the Deployment of the old disk")
	case len(s.Pods) > 0:
		return s.waitPods(phase)
	case s.Make == Stale:
		return s.do(Unmake, phase, "clearing the Job of an earlier replacement")
	case s.Found && s.Proven && s.unmade() != "" && a != nil && a.Proven != s.UUID:
		return s.do(Proof, phase, "noting that the node has proven the OSD")
	case s.Found && s.Proven && s.unmade() != "":
		return s.wait(phase, "SetPreparing", "the OSD is made, and starts when the whole disk is: "+s.unmade()+" is not made yet")
	case s.Found && s.Proven:
		return s.do(Handover, phase, "the new disk carries the OSD: rebuilding its Deployment")
	case s.Make == Ending:
		return s.wait(phase, "Preparing", "an earlier Job is being cleared away")
	case s.Found:
		return s.prove(phase)
	case (s.Make == Failed || s.Make == Retry || s.Make == NoJob && s.New && !s.Up) && a != nil && (a.Failed == "" || s.Unproven):
		return s.do(Failure, phase, s.Trouble()+"; "+s.left()+s.last())
	case a != nil && (a.Recognized || !s.New) && a.Unproven == s.UUID && s.Abandon != ConfirmedAbandon:
		return s.block(phase, "NotProven", fmt.Sprintf("osd.%d (uuid %s) is not started: %s", s.ID, s.UUID, a.Failed),
			fmt.Sprintf("it was not made by this replacement, or has run, so it is not taken back by itself: ceph osd destroy %d, and it is made anew on a disk that is proven or named", s.ID))
	case s.New && !s.Up && s.spent():
		return s.reclaim(phase, "so that another disk can have it")
	case s.New && !s.Up && a != nil && !a.Recognized && (s.Make == Retry || s.Make == NoJob && a.Failed != "" || s.Make == Failed && s.Question == "" && s.another(a)):
		return s.reclaim(phase, "for "+s.attempt(a))
	case s.New && !s.Up && a != nil && a.Failed != "" && s.Abandon == ConfirmedAbandon:
		return s.reclaim(phase, "to give it up")
	case s.Make == Failed && a != nil:
		return s.failed(phase, a)
	}
	return s.block(phase, "NewDiskNotFound", fmt.Sprintf("Ceph has the new uuid %s for osd.%d, and node %s has not reported a disk that carries it", s.UUID, s.ID, s.Note.Node),
		"its disks are looked at again when they change, or when the annotation castellan.ceph.io/rescan of the CephCluster gets another value")
}

// prove is the way to the node's proof that an OSD which a look has found is whole. Its Job
// has ended without a report, or another one has written over that: the tags on a disk are
// written before mkfs, and say nothing of the key of a database. The same Job, run again,
// changes nothing of an OSD that is made; it proves it, or says what is wrong.
func (s State) prove(phase cephv1.OSDReplacementPhase) Action {
	a := s.Note.Attempt
	found := fmt.Sprintf("osd.%d (uuid %s) was found on a disk of node %s, and the node has not proven that it is whole", s.ID, s.UUID, s.Note.Node)
	making := s.which(func(m Mate) bool { return m.Making })
	switch {
	case a == nil:
		return s.do(Find, phase, "noting which disk carries the OSD")
	case s.Abandon == ConfirmedAbandon && s.New && !s.Up:
		return s.reclaim(phase, "to give it up")
	case s.Make == Failed:
		return s.block(phase, "NotProven", found+": "+s.problem(), fmt.Sprintf("it is asked again%s", when(s.RetryAt)))
	case s.Make == Succeeded:
		return s.wait(phase, "Proving", found+": its report is awaited")
	case s.Make != NoJob:
		return s.do(Unmake, phase, "clearing the Job that has left no proof")
	case s.NodeProblem != "":
		return s.block(phase, "NotProven", found+": "+s.NodeProblem, fmt.Sprintf("bring the node back; or, if it is gone for good, give the slot up: %s=%s", spec.AbandonAnnotation, spec.AbandonConfirmation(s.ID)))
	case making != "":
		return s.wait(phase, "Proving", found+": "+making+" is being made first")
	}
	return s.do(Prove, phase, "having the node prove the OSD that was found")
}

// reclaim destroys an id that was claimed and has never run. Ceph's own check wants all
// PGs of the cluster to be clean before it says anything of an OSD that is down; of one
// that has never been in that is too much: what keeps them from it may be this very OSD,
// which they wait for.
func (s State) reclaim(phase cephv1.OSDReplacementPhase, purpose string) Action {
	message := "taking back the id that the failed preparation has claimed, " + purpose
	switch {
	case s.Safety == Safe:
		return s.do(Reclaim, phase, message)
	case s.Void:
		return s.do(Reclaim, phase, message+"; Ceph cannot call it safe ("+s.why()+"), but by its map the OSD has never run with data, so none can be lost")
	}
	a := s.wait(phase, "NotSafeToDestroy", fmt.Sprintf("%s; Ceph does not let it be destroyed again: %s", s.left(), s.why()))
	a.Hint = fmt.Sprintf("it goes on when osd.%d is down and out in `ceph osd dump`, and `ceph osd safe-to-destroy %d` answers, and says no more against it than that it has not reported", s.ID, s.ID)
	return a
}

// absent is an id that Ceph does not have.
func (s State) absent() Action {
	phase := cephv1.OSDReplacementReadyForSwap
	switch {
	case s.Abandon == ConfirmedAbandon:
		return s.abandon()
	case s.Replicas > 0:
		return s.do(Halt, phase, "stopping the Deployment of an OSD that Ceph does not have")
	case len(s.Pods) > 0:
		return s.waitPods(phase)
	case s.Close == Ending || s.Make == Ending:
		return s.wait(phase, "Cleaning", "an earlier Job is being cleared away")
	case s.Close != NoJob:
		return s.do(Unclose, phase, "clearing the Job that closed dm-crypt mappings")
	case s.Make == Stale:
		return s.do(Unmake, phase, "clearing the Job of an earlier replacement")
	case s.Note.Attempt == nil && s.Make == NoJob:
		return s.do(Remove, phase, "somebody has purged the OSD: removing its Deployment")
	case s.Make == Running:
		return s.slot()
	case !s.Note.SlotLost:
		return s.do(Lost, phase, s.left())
	case !s.InProgress || !s.Fenced:
		return s.do(Fence, phase, "putting back the marks of the replacement")
	case !s.Ready:
		return s.show(phase)
	}
	return s.slot()
}

// abandon gives up the slot of a destroyed OSD, at the user's word.
func (s State) abandon() Action {
	phase := cephv1.OSDReplacementAbandoning
	switch {
	case s.Make == Running || s.Make == Ending || s.Close == Ending:
		return s.wait(phase, "Abandoning", "a Job on the node has not ended yet")
	case s.Make != NoJob:
		return s.do(Unmake, phase, "clearing the Job of an attempt")
	case s.Close != NoJob:
		return s.do(Unclose, phase, "clearing the Job that closed dm-crypt mappings")
	case s.Replicas > 0:
		return s.do(Halt, phase, "stopping the Deployment of a destroyed OSD")
	case len(s.Pods) > 0:
		return s.waitPods(phase)
	case s.Exists && s.Safety != Safe && !s.Void:
		a := s.wait(phase, "NotSafeToDestroy", "Ceph does not let the slot be purged: "+s.why())
		a.Hint = fmt.Sprintf("it goes on when osd.%d is down and out in `ceph osd dump`, and `ceph osd safe-to-destroy %d` answers, and says no more against it than that it has not reported", s.ID, s.ID)
		return a
	case s.Exists && s.Safety != Safe:
		return s.do(Purge, phase, "purging the slot; Ceph cannot call it safe ("+s.why()+"), but it is destroyed, so no data can be lost")
	case s.Exists:
		return s.do(Purge, phase, "purging the slot")
	case s.leavesVolumes() && s.Zap != Succeeded && s.Zap != Expired:
		return s.zapping(phase)
	}
	return s.do(Remove, phase, "removing the Deployment")
}

func (s State) zapping(phase cephv1.OSDReplacementPhase) Action {
	switch s.Zap {
	case NoJob:
		if s.NodeProblem != "" {
			return s.block(phase, "NodeGone", fmt.Sprintf("osd.%d is purged, and the volumes that it has left cannot be wiped: %s", s.ID, s.NodeProblem), "bring the node back")
		}
		return s.do(Zap, phase, "wiping the volumes that the OSD had on a shared device")
	case Failed, Retry:
		failed := fmt.Sprintf("osd.%d is purged, and the volumes that it has left on node %s could not be wiped: %s", s.ID, s.Note.Node, s.ZapProblem)
		if s.ZapUncounted {
			return s.do(Unzapped, phase, failed)
		}
		if s.Zap == Failed {
			return s.block(phase, "ZapFailed", failed, fmt.Sprintf("it is tried again%s, or at once when Job %s is deleted, whose log says more", when(s.ZapRetryAt), spec.ZapName(s.ID)))
		}
		return s.do(Unzap, phase, "clearing the Job that could not wipe the volumes")
	case Stale:
		return s.do(Unzap, phase, "clearing the Job of an earlier replacement")
	}
	return s.wait(phase, "Abandoning", fmt.Sprintf("the volumes that the OSD had on a shared device are being wiped on node %s (Job %s)", s.Note.Node, spec.ZapName(s.ID)))
}

// starting is an OSD whose Deployment was given back for its new disk.
func (s State) starting() Action {
	phase := cephv1.OSDReplacementProvisioning
	switch {
	case s.Make != NoJob && s.Make != Running && s.Make != Ending:
		return s.do(Unmake, phase, "clearing the Job that prepared the new disk")
	case !s.Exists || s.Destroyed:
		return s.do(Drop, phase, "somebody has removed the new OSD: the replacement ends")
	case s.Up && s.In && s.Unweighed != "":
		return s.wait(phase, "NotWeighed", "the OSD is up and in; what its CRUSH weight should be cannot be told yet: "+s.Unweighed)
	case s.Up && s.In && s.Weigh > 0:
		return s.do(Weigh, phase, fmt.Sprintf("giving the OSD the CRUSH weight %.5f", s.Weigh))
	case s.Up && s.In && s.Make == Running:
		return s.wait(phase, "Starting", "the OSD is up and in; the Job that prepared its disk has not ended yet")
	case s.Up && s.In:
		return s.do(Complete, phase, "the OSD is up and in")
	case s.Up:
		a := s.wait(phase, "NotIn", "the OSD is up on its new disk and is not in")
		a.Hint = fmt.Sprintf("a flag (noin) keeps it out, or somebody has marked it out: ceph osd in %d", s.ID)
		return a
	}
	a := s.wait(phase, "Starting", "the OSD is starting on its new disk, and is not up yet")
	a.Hint = fmt.Sprintf("its pod's log says how far it is; if a new disk of it has failed meanwhile, ask for its replacement again: %s", s.ask())
	return a
}

// ask is the annotation that asks for the replacement of this OSD.
func (s State) ask() string {
	if s.kind() == OnMetadata {
		return fmt.Sprintf("%s=%s, or %s=%s", spec.ReplaceAnnotation, spec.Confirmation(s.ID), spec.MetadataAnnotation, spec.MetadataConfirmation(s.ID))
	}
	return spec.ReplaceAnnotation + "=" + spec.Confirmation(s.ID)
}

// guess is the phase of a replacement that cannot be looked at now.
func (s State) guess() cephv1.OSDReplacementPhase {
	switch {
	case s.Note != nil && s.Note.Replaced != "":
		return cephv1.OSDReplacementProvisioning
	case s.Ready:
		return cephv1.OSDReplacementReadyForSwap
	case s.Replicas == 0:
		return cephv1.OSDReplacementDestroying
	case s.Note != nil && s.Note.Drain != nil:
		return cephv1.OSDReplacementDraining
	}
	return cephv1.OSDReplacementAccepted
}

func (s State) do(k Kind, phase cephv1.OSDReplacementPhase, message string) Action {
	return Action{Kind: k, Phase: phase, Reason: string(k), Message: message}
}

func (s State) wait(phase cephv1.OSDReplacementPhase, reason, message string) Action {
	a := Action{Kind: Wait, Phase: phase, Reason: reason, Message: message}
	if s.Abandon != NoAbandon && phase == cephv1.OSDReplacementDraining {
		a.Hint = "there is nothing to abandon before the OSD is destroyed: cancel by removing the annotation " + s.annotation()
	}
	return a
}

func (s State) waitAs(phase cephv1.OSDReplacementPhase, reason, message string) Action {
	return Action{Kind: Wait, Phase: phase, Reason: reason, Message: message}
}

func (s State) block(phase cephv1.OSDReplacementPhase, reason, message, hint string) Action {
	return Action{Kind: Wait, Phase: phase, Reason: reason, Message: message, Hint: hint, Blocked: true}
}
